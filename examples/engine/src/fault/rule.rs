//! Which requests does a fault hit, how often and for how long?

use std::fmt;
use std::time::Duration;

use super::Fault;

/// Which requests a rule hits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// Requests that make the model work.
    Inference,
    /// Every other request: health, slots, metrics, models and the like.
    Status,
    /// Every request.
    All,
    /// Requests for this path.
    Path(String),
}

impl Scope {
    pub(super) fn covers(&self, inference: bool, path: &str) -> bool {
        match self {
            Self::Inference => inference,
            Self::Status => !inference,
            Self::All => true,
            Self::Path(wanted) => wanted == path,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inference => "inference",
            Self::Status => "status",
            Self::All => "all",
            Self::Path(path) => path,
        })
    }
}

/// A fault, and which requests it hits.
///
/// ```
/// use paddler_engine::{Fault, FaultRule, Scope};
///
/// let rule = FaultRule::new(Fault::Reset).times(2).on(Scope::Path("/health".into()));
/// # drop(rule);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct FaultRule {
    pub(crate) fault: Fault,
    pub(crate) on: Scope,
    pub(crate) times: Option<u32>,
    pub(crate) lasting: Option<Duration>,
    pub(crate) after: u32,
    pub(crate) every: u32,
    pub(crate) chance: f64,
}

impl FaultRule {
    /// A rule that hits the fault's usual requests until it is cleared.
    #[must_use]
    pub fn new(fault: Fault) -> Self {
        Self {
            on: fault.scope(),
            fault,
            times: None,
            lasting: None,
            after: 0,
            every: 1,
            chance: 1.0,
        }
    }

    /// Hits only the next `times` requests. ([`Fault::Refuse`] sees no requests, so it has no use for this.)
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// Ends after this time.
    #[must_use]
    pub fn lasting(mut self, time: Duration) -> Self {
        self.lasting = Some(time);
        self
    }

    /// Lets the first `requests` of its scope pass: an engine that is well at first.
    #[must_use]
    pub fn after(mut self, requests: u32) -> Self {
        self.after = requests;
        self
    }

    /// Hits the first and then each `nth` request of its scope, such as every second one: an engine that flaps. 0 counts
    /// as 1.
    #[must_use]
    pub fn every(mut self, nth: u32) -> Self {
        self.every = nth.max(1);
        self
    }

    /// Hits a request with this chance, 0 to 1. The draws depend on the engine's seed and on how many requests the rule
    /// has seen, and on nothing else.
    #[must_use]
    pub fn chance(mut self, chance: f64) -> Self {
        self.chance = chance;
        self
    }

    /// Hits these requests instead of the fault's usual ones.
    #[must_use]
    pub fn on(mut self, scope: Scope) -> Self {
        self.on = scope;
        self
    }
}

impl From<Fault> for FaultRule {
    fn from(fault: Fault) -> Self {
        Self::new(fault)
    }
}
