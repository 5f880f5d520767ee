//! What can be asked of a request alone?

use std::fmt;
use std::sync::Arc;

use super::context::{PickCx, Reads};
use super::filter::FilterError;
use crate::request::{RequestClass, Task};

/// What a closure says of a request, or why it cannot.
type Holds = dyn Fn(&PickCx<'_>) -> Result<bool, FilterError> + Send + Sync;

/// A question about the request, for `when`.
#[derive(Clone)]
#[non_exhaustive]
pub enum Condition {
    /// It must not be shed: its priority is zero or more.
    Critical,
    /// Its priority is at least this.
    PriorityAtLeast(i32),
    /// The model that it asks for is known as an adapter (LoRA).
    Adapter,
    /// It is for this model, or names it.
    Model(Arc<str>),
    /// Its prompt has at least so many tokens, by estimate.
    TokensAtLeast(u32),
    /// It wants its answer streamed.
    Stream,
    /// It belongs to a session.
    Session,
    /// It asks for this kind of work.
    Task(Task),
    /// Each of these is so. Of none: yes.
    All(Vec<Condition>),
    /// One of these is so. Of none: no.
    Any(Vec<Condition>),
    /// This is not so.
    Not(Box<Condition>),
    /// What a closure says, under a name.
    Custom(Arc<str>, Arc<Holds>),
}

impl Condition {
    /// A condition that a closure decides.
    pub fn custom(
        name: impl Into<Arc<str>>,
        holds: impl Fn(&PickCx<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::fallible(name, move |cx| Ok(holds(cx)))
    }

    /// A condition that a closure decides, or cannot: then the node that asks it ends the walk, as a `require` does whose
    /// filter fails.
    pub fn fallible(
        name: impl Into<Arc<str>>,
        holds: impl Fn(&PickCx<'_>) -> Result<bool, FilterError> + Send + Sync + 'static,
    ) -> Self {
        Self::Custom(name.into(), Arc::new(holds))
    }

    /// Whether it is so. Of several parts no more are asked than decide it.
    ///
    /// # Errors
    /// When a closure that is asked cannot say.
    pub fn holds(&self, cx: &PickCx<'_>) -> Result<bool, FilterError> {
        let facts = cx.facts;
        Ok(match self {
            Self::Critical => facts.critical(),
            Self::PriorityAtLeast(least) => facts.priority >= *least,
            Self::Adapter => cx.is_adapter(),
            Self::Model(name) => facts.names(name),
            Self::TokensAtLeast(least) => facts.tokens >= *least,
            Self::Stream => facts.stream,
            Self::Session => facts.session.is_some(),
            Self::Task(task) => facts.class == RequestClass::Generate(*task),
            Self::All(all) => !one_is(all, false, cx)?,
            Self::Any(any) => one_is(any, true, cx)?,
            Self::Not(other) => !other.holds(cx)?,
            Self::Custom(_, holds) => holds(cx)?,
        })
    }
}

impl Condition {
    /// Which of our own counters it looks at: only a closure can.
    pub(crate) fn reads(&self) -> Reads {
        match self {
            Self::All(parts) | Self::Any(parts) => parts
                .iter()
                .map(Self::reads)
                .fold(Reads::NONE, |all, one| all | one),
            Self::Not(other) => other.reads(),
            Self::Custom(..) => Reads::ALL,
            Self::Critical
            | Self::PriorityAtLeast(_)
            | Self::Adapter
            | Self::Model(_)
            | Self::TokensAtLeast(_)
            | Self::Stream
            | Self::Session
            | Self::Task(_) => Reads::NONE,
        }
    }
}

/// Whether one of these comes out so.
fn one_is(parts: &[Condition], so: bool, cx: &PickCx<'_>) -> Result<bool, FilterError> {
    for part in parts {
        if part.holds(cx)? == so {
            return Ok(true);
        }
    }
    Ok(false)
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Critical => f.write_str("critical"),
            Self::PriorityAtLeast(least) => write!(f, "priority at_least {least}"),
            Self::Adapter => f.write_str("adapter"),
            Self::Model(name) => write!(f, "model {name}"),
            Self::TokensAtLeast(least) => write!(f, "tokens at_least {least}"),
            Self::Stream => f.write_str("stream"),
            Self::Session => f.write_str("session"),
            Self::Task(task) => write!(f, "task {task}"),
            Self::All(all) => write!(f, "all {all:?}"),
            Self::Any(any) => write!(f, "any {any:?}"),
            Self::Not(other) => write!(f, "not {other:?}"),
            Self::Custom(name, _) => f.write_str(name),
        }
    }
}
