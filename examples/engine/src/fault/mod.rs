//! What can go wrong on command?
//!
//! A [`Fault`] is one way in which real engines misbehave. A [`FaultRule`] says which requests it hits, how
//! many of them and for how long. Rules are set through the library, through `POST /sim/fault`, or for one
//! request by its `x-sim-fault` header.

pub(crate) mod book;
mod parse;
mod rule;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use parse::FaultParseError;
pub use rule::{FaultRule, Scope};

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
    /// After its first event a stream ends as if it were whole, but without its regular last event (`[DONE]`,
    /// `message_stop`): the end alone does not say that it is complete.
    NoDone,
    /// No answer ever comes. An inference request holds its slot while its client waits.
    Stall,
    /// The body goes out one byte at a time.
    Drip {
        /// Time between two bytes.
        #[serde(rename = "every_ms", with = "millis")]
        every: Duration,
    },
    /// The body goes out in pieces of this many bytes, at least 1: events and characters are split wherever that falls.
    Pieces {
        /// Bytes in a piece.
        bytes: usize,
    },
    /// The head goes out one byte at a time.
    SlowHead {
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
    /// The answer is this status with a page of HTML, as a gateway in front of an engine gives it.
    HtmlError {
        /// The HTTP status.
        code: u16,
    },
    /// The answer is this status with a line of plain text.
    TextError {
        /// The HTTP status.
        code: u16,
    },
    /// The answer is 200 with the JSON value `null`: an error that was swallowed.
    BodyNull,
    /// The answer is these bytes, whatever they are, and the connection closes: two lengths, a switch of protocols,
    /// nothing of HTTP. For what no other fault foresees.
    Raw {
        /// All of the answer, head and body.
        text: String,
    },
    /// Before the answer comes an interim one with this status (100 to 199).
    Informational {
        /// The HTTP status.
        code: u16,
    },
    /// `Server` and `Content-Type` are there twice, with the same values. (Two lengths: [`Raw`](Self::Raw).)
    DuplicateHeaders,
    /// This many headers more than usual.
    ManyHeaders {
        /// How many.
        count: u16,
    },
    /// The answer has no `Content-Type`.
    NoContentType,
    /// The answer says that it is compressed (`Content-Encoding: gzip`), and is not.
    LabelGzip,
    /// An answer that is not streamed is compressed, and says so, whether or not the client takes that.
    Gzip,
    /// An answer that is not streamed comes in chunks, without a length.
    Chunked,
    /// A body in chunks ends with a trailer, `x-sim-trailer`. Other answers come in chunks for it.
    Trailers,
    /// The connection is closed after the answer, although the answer says that it stays.
    CloseAfterAnswer,
    /// The body is longer by this many bytes that mean nothing: white space before JSON, a comment before events.
    Padding {
        /// How many bytes.
        bytes: usize,
    },
    /// The text is of characters of two to four bytes each.
    Unicode,
    /// The text quotes what ends a stream: `data: [DONE]` and two line ends, within a token.
    QuoteDone,
    /// Each connection is reset as soon as it is accepted. (It sees no requests: only `times` and the time that it lasts
    /// count.)
    HangUp,
    /// A client that leaves takes everyone along: all connections are reset and all tasks end.
    CrashOnDisconnect,
    /// A request whose body comes in chunks is answered with 411.
    RefuseChunked,
    /// A request whose `Host` is not this engine's own address is answered with 404, as by a server of virtual hosts.
    VirtualHost,
    /// The list of models holds these names, in this order, twice if they are there twice.
    ModelList {
        /// The names.
        names: Vec<String>,
    },
    /// The page of metrics also holds what the format allows and few expect: escapes in labels, timestamps, `NaN` and
    /// `+Inf`, empty lines and comments.
    OddMetrics,
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
    /// Its name, as it is written.
    #[must_use]
    pub fn name(&self) -> String {
        let written = serde_json::to_value(self).unwrap_or_default();
        written["fault"].as_str().unwrap_or_default().to_owned()
    }

    /// The requests that a fault hits unless its rule says otherwise.
    fn scope(&self) -> Scope {
        match self {
            Self::Refuse | Self::HangUp | Self::Loading | Self::VirtualHost => Scope::All,
            Self::Html
            | Self::MetricNames { .. }
            | Self::OddMetrics
            | Self::ModelList { .. }
            | Self::SlotsOff
            | Self::SlowStatus { .. } => Scope::Status,
            _ => Scope::Inference,
        }
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
