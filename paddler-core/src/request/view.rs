//! What does a pick read of a request?

use super::{RequestClass, Task};
use crate::Moment;

/// Facts of a request, borrowed: what a pick reads. Those who only pick make one directly.
///
/// ```
/// use paddler_core::request::Facts;
///
/// let facts = Facts::new().model("llama").priority(-1).seed(7);
/// assert_eq!((facts.model, facts.weight), (Some("llama"), 1));
/// assert!(!facts.critical());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Facts<'a> {
    /// [`RequestFacts::class`](super::RequestFacts::class)
    pub class: RequestClass,
    /// [`RequestFacts::model`](super::RequestFacts::model)
    pub model: Option<&'a str>,
    /// [`RequestFacts::asked`](super::RequestFacts::asked)
    pub asked: Option<&'a str>,
    /// [`RequestFacts::instead_of`](super::RequestFacts::instead_of)
    pub instead_of: Option<&'a str>,
    /// [`RequestFacts::to_keeper`](super::RequestFacts::to_keeper)
    pub to_keeper: bool,
    /// [`RequestFacts::weight`](super::RequestFacts::weight)
    pub weight: u32,
    /// [`RequestFacts::tokens`](super::RequestFacts::tokens)
    pub tokens: u32,
    /// [`RequestFacts::least_tokens`](super::RequestFacts::least_tokens)
    pub least_tokens: u32,
    /// [`RequestFacts::images`](super::RequestFacts::images)
    pub images: bool,
    /// [`RequestFacts::sounds`](super::RequestFacts::sounds)
    pub sounds: bool,
    /// [`RequestFacts::body_bytes`](super::RequestFacts::body_bytes)
    pub body_bytes: u64,
    /// [`RequestFacts::stream`](super::RequestFacts::stream)
    pub stream: bool,
    /// [`RequestFacts::priority`](super::RequestFacts::priority)
    pub priority: i32,
    /// [`RequestFacts::tenant`](super::RequestFacts::tenant)
    pub tenant: Option<&'a str>,
    /// [`RequestFacts::session`](super::RequestFacts::session)
    pub session: Option<&'a str>,
    /// [`RequestFacts::arrived`](super::RequestFacts::arrived)
    pub arrived: Moment,
    /// [`RequestFacts::deadline`](super::RequestFacts::deadline)
    pub deadline: Option<Moment>,
    /// [`RequestFacts::seed`](super::RequestFacts::seed)
    pub seed: u64,
    /// [`RequestFacts::replayable`](super::RequestFacts::replayable)
    pub replayable: bool,
}

impl Default for Facts<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Facts<'a> {
    /// A chat of weight 1 with any model, of which nothing else is known.
    pub fn new() -> Self {
        Self {
            class: RequestClass::Generate(Task::Chat),
            model: None,
            asked: None,
            instead_of: None,
            to_keeper: false,
            weight: 1,
            tokens: 0,
            least_tokens: 0,
            images: false,
            sounds: false,
            body_bytes: 0,
            stream: false,
            priority: 0,
            tenant: None,
            session: None,
            arrived: Moment::ZERO,
            deadline: None,
            seed: 0,
            replayable: false,
        }
    }

    /// Whether it must not be shed: its priority is standard or higher.
    pub fn critical(&self) -> bool {
        self.priority >= 0
    }

    /// Whether it goes also where nothing goes of its own: it is served instead of another, or there lies what it is about.
    pub(crate) fn reaches_all(&self) -> bool {
        self.instead_of.is_some() || self.to_keeper
    }

    /// Whether it goes also where only what names a model goes: work of a kind that is known.
    pub(crate) fn goes_by_name(&self) -> bool {
        // What nobody knows may be anything, such as an order to somebody else's API.
        self.model.is_some() && self.class != RequestClass::Generate(Task::Other)
    }

    /// Sets how it is treated. The weight follows: at least 1 if it generates, else 0.
    #[must_use]
    pub fn class(mut self, class: RequestClass) -> Self {
        self.class = class;
        let weight = self.weight;
        self.weight(weight)
    }

    /// Sets the model or adapter that it is for.
    #[must_use]
    pub fn model(mut self, name: &'a str) -> Self {
        self.model = Some(name);
        self
    }

    /// Sets the name that was asked for, where that stands for the model.
    #[must_use]
    pub fn asked(mut self, name: &'a str) -> Self {
        self.asked = Some(name);
        self
    }

    /// Whether this is the model that it is for, or the name that was asked for.
    pub fn names(&self, model: &str) -> bool {
        self.model == Some(model) || self.asked == Some(model)
    }

    /// Sets how much room it takes, in sequences: at least 1 if it generates, else 0.
    #[must_use]
    pub fn weight(mut self, sequences: u32) -> Self {
        let generates = matches!(self.class, RequestClass::Generate(_));
        self.weight = if generates { sequences.max(1) } else { 0 };
        self
    }

    /// Sets the prompt's length, in tokens.
    #[must_use]
    pub fn tokens(mut self, tokens: u32) -> Self {
        self.tokens = tokens;
        self
    }

    /// Sets the least tokens that one of its prompts can come to.
    #[must_use]
    pub fn least_tokens(mut self, tokens: u32) -> Self {
        self.least_tokens = tokens;
        self
    }

    /// Says that there are images in its prompt.
    #[must_use]
    pub fn images(mut self) -> Self {
        self.images = true;
        self
    }

    /// Says that there are sounds in its prompt.
    #[must_use]
    pub fn sounds(mut self) -> Self {
        self.sounds = true;
        self
    }

    /// Sets the length of its body.
    #[must_use]
    pub fn body_bytes(mut self, bytes: u64) -> Self {
        self.body_bytes = bytes;
        self
    }

    /// Sets whether the answer is asked for piece by piece.
    #[must_use]
    pub fn stream(mut self, stream: bool) -> Self {
        self.stream = stream;
        self
    }

    /// Sets the priority: 0 is standard and negative may be shed.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets who pays.
    #[must_use]
    pub fn tenant(mut self, name: &'a str) -> Self {
        self.tenant = Some(name);
        self
    }

    /// Sets what requests with a common past have in common.
    #[must_use]
    pub fn session(mut self, key: &'a str) -> Self {
        self.session = Some(key);
        self
    }

    /// Sets when it came.
    #[must_use]
    pub fn arrived(mut self, at: Moment) -> Self {
        self.arrived = at;
        self
    }

    /// Sets when its answer is of no use any more.
    #[must_use]
    pub fn deadline(mut self, at: Moment) -> Self {
        self.deadline = Some(at);
        self
    }

    /// Sets what all randomness of its decisions is drawn from.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets whether it may be sent once more when no byte came back.
    #[must_use]
    pub fn replayable(mut self, replayable: bool) -> Self {
        self.replayable = replayable;
        self
    }
}

impl From<Facts<'_>> for super::RequestFacts {
    fn from(facts: Facts<'_>) -> Self {
        Self {
            class: facts.class,
            model: facts.model.map(Into::into),
            asked: facts.asked.map(Into::into),
            instead_of: facts.instead_of.map(Into::into),
            weight: facts.weight,
            tokens: facts.tokens,
            least_tokens: facts.least_tokens,
            images: facts.images,
            sounds: facts.sounds,
            body_bytes: facts.body_bytes,
            stream: facts.stream,
            priority: facts.priority,
            tenant: facts.tenant.map(Into::into),
            tenant_weight: 1,
            session: facts.session.map(Into::into),
            only: None,
            to_keeper: facts.to_keeper,
            arrived: facts.arrived,
            deadline: facts.deadline,
            patience: None,
            seed: facts.seed,
            replayable: facts.replayable,
            detail: Default::default(),
        }
    }
}
