//! What can go wrong on command?
//!
//! A [`Fault`] is one way in which real engines misbehave. A [`FaultRule`] says which requests it hits, how
//! many of them and for how long. Rules are set through the library, through `POST /sim/fault`, or for one
//! request by its `x-sim-fault` header.

pub(crate) mod book;
mod parse;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use parse::FaultParseError;

/// One way in which an engine misbehaves.
///
/// In JSON a fault is an object whose member `fault` holds the name in kebab case, beside the fault's own
/// fields: `{"fault":"reset-after","bytes":100}`. In a header it is `reset-after=100`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Fault {
    /// The listener is closed: new connections are refused; those that exist stay.
    Refuse,
    /// The connection is reset before a byte of the answer.
    Reset,
    /// The connection is closed cleanly before a byte of the answer.
    Close,
    /// The connection is reset after this many bytes of the body, if the body is longer.
    ResetAfter {
        /// Bytes of the body that are sent, chunk framing not counted.
        bytes: usize,
    },
    /// The connection is closed after this many bytes of the body, if the body is longer.
    EofAfter {
        /// Bytes of the body that are sent, chunk framing not counted.
        bytes: usize,
    },
    /// Nothing more is sent after this many bytes of the body; the connection stays open.
    StallAfter {
        /// Bytes of the body that are sent, chunk framing not counted.
        bytes: usize,
    },
    /// After this many bytes of the body comes an error event, then the stream's regular end. This is how
    /// vLLM ends a stream when it is told to stop.
    ErrorEventAfter {
        /// Bytes of the body that are sent before the event.
        bytes: usize,
    },
    /// No answer ever comes. An inference request holds its slot while its client waits.
    Stall,
    /// The body goes out one byte at a time.
    Drip {
        /// Time between two bytes.
        #[serde(rename = "every_ms", with = "millis")]
        every: Duration,
    },
    /// Every path answers 503, as llama.cpp does while it loads a model.
    Loading,
    /// The answer is this status with the engine's error body.
    Status {
        /// The HTTP status.
        code: u16,
        /// Seconds for a `Retry-After` header.
        #[serde(default)]
        retry_after: Option<u64>,
    },
    /// The answer is 200 with a page of HTML, as a captive proxy would give.
    Html,
    /// `Content-Length` is off by this many bytes. Above zero the body ends early; below zero there are
    /// bytes left over after it.
    WrongLength {
        /// What is added to the true length.
        by: i64,
    },
    /// Work goes on to its end, and keeps its slot, when the client has left.
    HangOnDisconnect,
    /// Metrics are renamed, or absent where the new name is `None`.
    MetricNames {
        /// From the name of a metric family to what takes its place.
        names: BTreeMap<String, Option<String>>,
    },
    /// `/slots` answers 501, as when llama.cpp was started without it.
    SlotsOff,
    /// The answer is late.
    SlowStatus {
        /// Time before the answer.
        #[serde(rename = "delay_ms", with = "millis")]
        delay: Duration,
    },
}

impl Fault {
    /// The requests that a fault hits unless its rule says otherwise.
    fn scope(&self) -> Scope {
        match self {
            Self::Refuse | Self::Loading => Scope::All,
            Self::Html | Self::MetricNames { .. } | Self::SlotsOff | Self::SlowStatus { .. } => Scope::Status,
            _ => Scope::Inference,
        }
    }
}

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
    fn covers(&self, inference: bool, path: &str) -> bool {
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

/// Durations as whole milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        u64::try_from(value.as_millis())
            .unwrap_or(u64::MAX)
            .serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}
