//! What does the decision need to know of a request?

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::path::{PathError, normalise};
use super::{
    AskedModel, BodyKind, Facts, RequestClass, Route, ScanError, ScanLimits, Scanned, Scanner, Task, triton,
};
use crate::Moment;
use crate::schedule::Detail;
use crate::upstream::UpstreamId;

/// Bytes of text that count as one token.
const BYTES_PER_TOKEN: u64 = 4;

/// Bytes of text that one token can stand for, at most, over a whole prompt: prose has 4 to 5. Single tokens are longer, but no
/// text is made of those alone.
const MOST_BYTES_PER_TOKEN: u64 = 16;

/// Tokens that an image, sound or file counts as: most vision models take between 256 and 1,600 for an image.
const TOKENS_PER_MEDIA: u64 = 512;

/// Facts of a request, owned: what queue and retry keep. Those with no request to read make one from [`Facts`].
///
/// ```
/// use paddler_core::Moment;
/// use paddler_core::request::{RequestFacts, Route, ScanLimits, Scanner};
///
/// let route = Route::of("POST", "/v1/completions")?;
/// let body = br#"{"model": "llama", "prompt": ["Hi there", "Good day"], "n": 3}"#;
/// let scanned = Scanner::scan(body, ScanLimits::default())?;
/// let facts = RequestFacts::from_scan(&route, &scanned, Moment::ZERO, 7)?;
/// assert_eq!(facts.model.as_deref(), Some("llama"));
/// assert_eq!((facts.weight, facts.tokens), (6, 4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RequestFacts {
    /// How it is treated.
    pub class: RequestClass,
    /// The model or adapter that it is for. `None`: any.
    #[serde(default)]
    pub model: Option<Arc<str>>,
    /// The name that was asked for, where that stands for [`model`](Self::model) by [`ModelRules`](super::ModelRules). `None`: that
    /// one.
    #[serde(default)]
    pub asked: Option<Arc<str>>,
    /// The model that it was for, which has no place for it, where [`model`](Self::model) is one that serves it
    /// [otherwise](super::Fallback). `None`: it is for that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<Arc<str>>,
    /// How much room it takes, in sequences: at least 1 if it generates, else 0. An upstream's limit caps it elsewhere.
    pub weight: u32,
    /// The prompt's length in tokens, estimated: see [`from_scan`](Self::from_scan).
    pub tokens: u32,
    /// The least tokens that one of its prompts can come to: a sixteenth of its bytes of text, and its token ids, divided by the number
    /// of prompts. No text has so few, be it spaces alone: what has no room for these has no room for it. 0: not known, or the
    /// engine is asked to cut it.
    #[serde(default)]
    pub least_tokens: u32,
    /// There are images in its prompt, for certain.
    #[serde(default)]
    pub images: bool,
    /// There are sounds in its prompt, for certain.
    #[serde(default)]
    pub sounds: bool,
    /// The length of its body, in bytes.
    pub body_bytes: u64,
    /// Whether the answer is asked for piece by piece.
    pub stream: bool,
    /// 0 is standard, above it is served first, and below it may be shed: see [`Priority`](crate::queue::Priority).
    pub priority: i32,
    /// Who pays: the API key's owner, if known.
    #[serde(default)]
    pub tenant: Option<Arc<str>>,
    /// How much is due to the tenant, compared with others: 1 to 1,000. 1 where nothing is said. With 2 it gets twice as many
    /// tokens while both wait.
    #[serde(default = "one")]
    pub tenant_weight: u32,
    /// What requests with a common past have in common: sent to one upstream, they find their prefix cached there.
    #[serde(default)]
    pub session: Option<Arc<str>>,
    /// The only upstreams that it may go to, if not all. None of these: it is refused with 503.
    #[serde(default)]
    pub only: Option<Arc<[UpstreamId]>>,
    /// [`only`](Self::only) is who keeps what it is about, which is asked whatever its [`traffic`](crate::upstream::Traffic) is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub to_keeper: bool,
    /// When it came.
    pub arrived: Moment,
    /// When its answer is of no use any more.
    #[serde(default)]
    pub deadline: Option<Moment>,
    /// Until when it waits for a place, where something else is tried then. It waits only while those who could serve it are busy,
    /// and is told at once that nobody can. Unlike a [`deadline`](Self::deadline), it brings it forward before nobody. `None`: no
    /// less than the queue has it.
    #[serde(skip)]
    pub patience: Option<Moment>,
    /// What all randomness of its decisions is drawn from.
    pub seed: u64,
    /// Whether it may be sent once more, elsewhere, when it was sent and no byte came back.
    pub replayable: bool,
    /// How much of why it gets its place is kept, for whoever is told of it.
    #[serde(skip)]
    pub detail: Detail,
}

/// Why a body that is valid has no facts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FactsError {
    /// The model's name is longer than any name can be: no upstream has it.
    ModelTooLong {
        /// Its length in bytes.
        bytes: u64,
    },
}

impl fmt::Display for FactsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ModelTooLong { bytes } => write!(f, "no model has a name of {bytes} bytes: check `model`"),
        }
    }
}

impl Error for FactsError {}

/// Why a request that lies here says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnreadableRequest {
    /// Its path is none.
    Path(PathError),
    /// Its body is malformed, or says two things.
    Body(ScanError),
    /// It names a model that cannot be one.
    Model(FactsError),
}

impl fmt::Display for UnreadableRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(error) => write!(f, "the path cannot be read: {error}"),
            Self::Body(error) => write!(f, "the body cannot be read: {error}"),
            Self::Model(error) => error.fmt(f),
        }
    }
}

impl Error for UnreadableRequest {}

impl Default for RequestFacts {
    fn default() -> Self {
        Self::new()
    }
}

impl RequestFacts {
    /// A chat of weight 1 with any model, of which nothing else is known. It is not replayable.
    pub fn new() -> Self {
        Self {
            class: RequestClass::Generate(Task::Chat),
            model: None,
            asked: None,
            instead_of: None,
            weight: 1,
            tokens: 0,
            least_tokens: 0,
            images: false,
            sounds: false,
            body_bytes: 0,
            stream: false,
            priority: 0,
            tenant: None,
            tenant_weight: 1,
            session: None,
            only: None,
            to_keeper: false,
            arrived: Moment::ZERO,
            deadline: None,
            patience: None,
            seed: 0,
            replayable: false,
            detail: Detail::Nothing,
        }
    }

    /// The facts of a request whose body was scanned.
    ///
    /// - A POST to an unknown path generates if it names a model, and is control otherwise.
    /// - The weight is `n` times the number of prompts or inputs, since an engine runs one sequence for each; a rerank
    ///   runs one for each document. It saturates.
    /// - The tokens are the bytes of text / 4, rounded up, plus the token ids, plus 512 for each image, sound or file.
    ///   English prose has about 4 bytes to a token; code and CJK have 1.5 to 4, so the estimate is low by up to 2.5
    ///   times there. What counts is that it is the same for all upstreams.
    /// - The session is `user`, until the caller knows better.
    /// - It is replayable if its path is and it leaves nothing behind: no `store`, `background` or
    ///   `previous_response_id`. In the Responses API `store` is the default, so there it takes a `"store": false`.
    ///
    /// # Errors
    /// [`FactsError::ModelTooLong`]: answer as for any unknown model.
    pub fn from_scan(
        route: &Route,
        scanned: &Scanned,
        arrived: Moment,
        seed: u64,
    ) -> Result<Self, FactsError> {
        if let AskedModel::TooLong { bytes } = scanned.model {
            return Err(FactsError::ModelTooLong { bytes });
        }
        let model = scanned.model.name().cloned();
        let class = match route.class {
            RequestClass::Generate(Task::Other) if model.is_none() => RequestClass::Control,
            class => class,
        };
        let (weight, stored_by_default) = match class {
            RequestClass::Generate(task) => (weight(task, scanned), task == Task::Responses),
            _ => (0, false),
        };
        let leaves_traces =
            scanned.store.unwrap_or(stored_by_default) || scanned.background || scanned.previous_response;
        Ok(Self {
            class,
            model,
            weight,
            tokens: tokens(scanned),
            least_tokens: least_tokens(class, scanned),
            images: scanned.images,
            sounds: scanned.sounds,
            body_bytes: scanned.body_bytes,
            stream: scanned.stream,
            session: scanned.user.clone(),
            arrived,
            seed,
            replayable: route.replayable && !leaves_traces,
            ..Self::new()
        })
    }

    /// The facts of a request without a body, or whose body is not read. Without a body that names a model, an unknown
    /// path is control.
    pub fn from_route(route: &Route, body_bytes: u64, arrived: Moment, seed: u64) -> Self {
        let class = match route.class {
            RequestClass::Generate(Task::Other) => RequestClass::Control,
            class => class,
        };
        let weight = u32::from(matches!(class, RequestClass::Generate(_)));
        Self {
            class,
            weight,
            body_bytes,
            arrived,
            seed,
            replayable: route.replayable,
            ..Self::new()
        }
    }

    /// Adds what the path tells, in its [normal form](super::path::normalise): where that names the model, as Triton's paths do, it
    /// counts and not what the body says.
    ///
    /// ```
    /// use paddler_core::Moment;
    /// use paddler_core::request::{RequestClass, RequestFacts, Route, Task};
    ///
    /// let path = "/v2/models/llama/generate_stream";
    /// let route = Route::of("POST", path)?;
    /// let facts = RequestFacts::from_route(&route, 0, Moment::ZERO, 7).named_in(path, &route);
    /// assert_eq!((facts.model.as_deref(), facts.stream), (Some("llama"), true));
    /// # Ok::<(), paddler_core::request::path::PathError>(())
    /// ```
    #[must_use]
    pub fn named_in(mut self, path: &str, route: &Route) -> Self {
        let Some(model) = triton::model_in(path) else {
            return self;
        };
        self.model = Some(model.into());
        // Without a model it would not be known to generate.
        self.class = route.class;
        if let RequestClass::Generate(_) = self.class {
            self.weight = self.weight.max(1);
        }
        self.stream |= triton::streams(path);
        self
    }

    /// The facts of a whole request that lies here, as a router reads them from one that comes in; without what only headers
    /// tell, such as that the body of an unknown path is JSON.
    ///
    /// ```
    /// use paddler_core::Moment;
    /// use paddler_core::request::{RequestClass, RequestFacts, Task};
    ///
    /// let read = |body: &str| RequestFacts::read("POST", "/v1/chat/completions", body.as_bytes(), Moment::ZERO, 1);
    /// let facts = read(r#"{"model": "llama-3", "messages": [{"role": "user", "content": "Hi"}], "n": 2}"#).unwrap();
    /// assert_eq!((facts.model.as_deref(), facts.weight), (Some("llama-3"), 2));
    /// assert_eq!(facts.class, RequestClass::Generate(Task::Chat));
    /// assert!(read("{").unwrap_err().to_string().starts_with("the body cannot be read: "));
    /// ```
    ///
    /// # Errors
    /// What a router would refuse: a path that is none, a body that is malformed or says two things, a name that is too long.
    pub fn read(
        method: &str,
        path: &str,
        body: &[u8],
        arrived: Moment,
        seed: u64,
    ) -> Result<Self, UnreadableRequest> {
        let path = normalise(path).map_err(UnreadableRequest::Path)?;
        let route = Route::of(method, &path).map_err(UnreadableRequest::Path)?;
        Self::read_body(&route, body, arrived, seed).map(|facts| facts.named_in(&path, &route))
    }

    fn read_body(route: &Route, body: &[u8], arrived: Moment, seed: u64) -> Result<Self, UnreadableRequest> {
        let bytes = body.len() as u64;
        if route.body == BodyKind::Opaque || (bytes == 0 && route.body == BodyKind::Unknown) {
            return Ok(Self::from_route(route, bytes, arrived, seed));
        }
        let limits = ScanLimits::default();
        let is_form = route.body == BodyKind::Form && body.starts_with(b"--");
        let scanned = if is_form {
            Scanner::scan_form(body, limits)
        } else {
            Scanner::scan(body, limits)
        };
        let scanned = match scanned {
            Ok(scanned) => scanned,
            // Any body may stand there.
            Err(error) if route.body == BodyKind::Unknown && !error.is_ambiguous() => {
                return Ok(Self::from_route(route, bytes, arrived, seed));
            }
            Err(error) => return Err(UnreadableRequest::Body(error)),
        };
        Self::from_scan(route, &scanned, arrived, seed).map_err(UnreadableRequest::Model)
    }

    /// The same request for another model, which [serves](super::Fallback) it instead of its own.
    #[must_use]
    pub fn instead(&self, model: &Arc<str>) -> Self {
        let mut facts = self.clone();
        let own = self.instead_of.clone().or(facts.model.take());
        (facts.asked, facts.instead_of, facts.model) = (None, own, Some(model.clone()));
        facts
    }

    /// The view that a pick reads.
    pub fn as_facts(&self) -> Facts<'_> {
        Facts {
            class: self.class,
            model: self.model.as_deref(),
            asked: self.asked.as_deref(),
            instead_of: self.instead_of.as_deref(),
            to_keeper: self.to_keeper,
            weight: self.weight,
            tokens: self.tokens,
            least_tokens: self.least_tokens,
            images: self.images,
            sounds: self.sounds,
            body_bytes: self.body_bytes,
            stream: self.stream,
            priority: self.priority,
            tenant: self.tenant.as_deref(),
            session: self.session.as_deref(),
            arrived: self.arrived,
            deadline: self.deadline,
            seed: self.seed,
            replayable: self.replayable,
        }
    }
}

fn one() -> u32 {
    1
}

/// One sequence for each answer to each prompt.
fn weight(task: Task, scanned: &Scanned) -> u32 {
    let answers = scanned.n.unwrap_or(1).max(1);
    let many = |items: Option<u32>| items.unwrap_or(1).max(1);
    match task {
        Task::Chat | Task::Image => answers,
        Task::Completion | Task::Infill => answers.saturating_mul(many(scanned.prompts)),
        Task::Embedding | Task::Pooling => many(scanned.inputs.or(scanned.prompts)),
        Task::Rerank => many(scanned.documents),
        Task::Responses | Task::Messages | Task::Audio => 1,
        Task::Other => answers.saturating_mul(many(scanned.prompts.max(scanned.inputs))),
    }
}

/// The least that the longest of its prompts can come to.
fn least_tokens(class: RequestClass, scanned: &Scanned) -> u32 {
    let RequestClass::Generate(task) = class else {
        return 0;
    };
    if scanned.truncates {
        return 0;
    }
    let many = match task {
        // One conversation, whatever it consists of.
        Task::Chat | Task::Responses | Task::Messages => 1,
        _ => [scanned.prompts, scanned.inputs, scanned.documents]
            .into_iter()
            .flatten()
            .sum(),
    };
    let all = (scanned.prompt_bytes / MOST_BYTES_PER_TOKEN).saturating_add(scanned.token_ids);
    u32::try_from(all / u64::from(many.max(1))).unwrap_or(u32::MAX)
}

fn tokens(scanned: &Scanned) -> u32 {
    let media = u64::from(scanned.media) * TOKENS_PER_MEDIA;
    let tokens = scanned
        .prompt_bytes
        .div_ceil(BYTES_PER_TOKEN)
        .saturating_add(scanned.token_ids)
        .saturating_add(media);
    u32::try_from(tokens).unwrap_or(u32::MAX)
}
