//! What has become of each request, for whoever wants to know?
//!
//! The router keeps the [`Trail`] of a request while somebody is there to read it, and gives it to a [`Telemetry`]: access logs,
//! traces, rings of decisions and figures of a host's own are fed by it. Where nobody is, no trail is kept, which costs nothing.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::Serialize;

use super::metrics::class_of;
use crate::Moment;
use crate::request::{RequestFacts, Route};
use crate::schedule::{Detail, Explained, Record};
use crate::status::Snapshot;
use crate::upstream::UpstreamId;

/// Reads what becomes of requests. It is called on the runtime, in the middle of a request: it must not wait, and what it
/// keeps must have a bound. If it panics, that is logged, and ends no request.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use paddler_core::Clock;
/// use paddler_core::forward::{Body, Router, RouterOptions};
/// use paddler_core::observe::{Telemetry, Trail};
/// use paddler_core::schedule::trees;
/// use paddler_core::status::StatusBoard;
///
/// /// Keeps the last request's status and why it was refused.
/// #[derive(Debug, Default)]
/// struct Last(Mutex<Option<(Option<u16>, Option<String>)>>);
///
/// impl Telemetry for Last {
///     fn ended(&self, trail: &Trail) {
///         let last = (trail.status, trail.reason.as_deref().map(str::to_owned));
///         *self.0.lock().unwrap() = Some(last);
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (last, mut options) = (Arc::new(Last::default()), RouterOptions::default());
/// options.telemetry = Some(last.clone());
/// let router = Router::new(StatusBoard::new(trees::gateway()).published(), Clock::new(), options);
/// drop(router.handle(http::Request::get("/slots").body(Body::empty())?).await);
/// assert_eq!(*last.0.lock().unwrap(), Some((Some(403), Some("admin_path".to_owned()))));
/// # Ok(()) }
/// ```
pub trait Telemetry: fmt::Debug + Send + Sync + 'static {
    /// How much of why a request gets its place is to be kept. Provided: nothing.
    fn detail(&self, facts: &RequestFacts) -> Detail {
        let _unused = facts;
        Detail::Nothing
    }

    /// Whether it is told of every request. Provided: yes. Where all say no, only those are told of which [`detail`](Self::detail)
    /// says more than [`Detail::Nothing`], from that on; of all others no trail is kept.
    fn every(&self) -> bool {
        true
    }

    /// Whether answers are to be read for the tokens that they use: each byte of them is looked at, and upstreams are asked not to
    /// compress them. Provided: no; they are read
    /// all the same where somebody is charged for them.
    fn reads_usage(&self) -> bool {
        false
    }

    /// Whether a request becomes a span of a trace, with one below it for each attempt: upstreams are then told that they belong
    /// to those. `parent`: it comes with a trace, whose caller records it or does not. Provided: no; a trace passes as it comes.
    fn traces(&self, parent: Option<bool>, trace_id: u128) -> bool {
        let _unused = (parent, trace_id);
        false
    }

    /// A request is read, and looks for a place. Local ones are answered without, and so are those that are refused before.
    fn began(&self, trail: &Trail) {
        let _unused = trail;
    }

    /// It has a place, the last of [`Trail::attempts`], and is sent there now.
    fn placed(&self, trail: &Trail) {
        let _unused = trail;
    }

    /// It has come to its end, whichever. Once for each request that the router is asked; what a host refuses itself, or a
    /// server before it is read, is not told.
    fn ended(&self, trail: &Trail);

    /// What was lost on its way out since the start, since there was no room or nobody took it: by where to, each once. For
    /// the figures. Provided: nothing.
    fn lost(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Several, each told of everything.
#[derive(Debug, Clone, Default)]
pub struct Telemetries(pub Vec<Arc<dyn Telemetry>>);

impl Telemetries {
    /// Those that are there, as one; `None`: there is none.
    pub fn of(each: impl IntoIterator<Item = Option<Arc<dyn Telemetry>>>) -> Option<Arc<dyn Telemetry>> {
        let mut each: Vec<_> = each.into_iter().flatten().collect();
        match each.len() {
            0 | 1 => each.pop(),
            _ => Some(Arc::new(Self(each))),
        }
    }

    fn each(&self, tell: impl Fn(&dyn Telemetry)) {
        for each in &self.0 {
            guarded(|| tell(&**each));
        }
    }
}

impl Telemetry for Telemetries {
    fn every(&self) -> bool {
        self.0.iter().any(|each| guarded(|| each.every()) == Some(true))
    }

    fn detail(&self, facts: &RequestFacts) -> Detail {
        let each = self.0.iter().map(|each| guarded(|| each.detail(facts)));
        each.flatten().max().unwrap_or_default()
    }

    fn reads_usage(&self) -> bool {
        let mut each = self.0.iter().filter_map(|each| guarded(|| each.reads_usage()));
        each.any(|reads| reads)
    }

    fn traces(&self, parent: Option<bool>, trace_id: u128) -> bool {
        let mut each = self
            .0
            .iter()
            .filter_map(|each| guarded(|| each.traces(parent, trace_id)));
        each.any(|traces| traces)
    }

    fn began(&self, trail: &Trail) {
        self.each(|each| each.began(trail));
    }

    fn placed(&self, trail: &Trail) {
        self.each(|each| each.placed(trail));
    }

    fn ended(&self, trail: &Trail) {
        self.each(|each| each.ended(trail));
    }

    fn lost(&self) -> Vec<(&'static str, u64)> {
        let each = self.0.iter().filter_map(|each| guarded(|| each.lost()));
        each.flatten().collect()
    }
}

/// Whoever looks on may have a bug: it ends nothing.
pub(crate) fn guarded<T>(ask: impl FnOnce() -> T) -> Option<T> {
    let answer = catch_unwind(AssertUnwindSafe(ask)).ok();
    if answer.is_none() {
        tracing::error!("what is told of requests panicked");
    }
    answer
}

/// What has become of a request, as far as it has come. What is not known is left out where it is written. It holds nothing of
/// prompts and answers; times are of the router's clock.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Trail {
    /// Its `x-request-id`.
    pub id: Box<str>,
    /// Its method.
    pub method: Box<str>,
    /// Its path as it was judged, without the query; at most [`LONGEST_PATH`](Self::LONGEST_PATH) bytes of it.
    pub path: Box<str>,
    /// Its class as the metrics have it: `chat`, `control`, `local` and so on; `unreadable` where the path says nothing.
    pub class: &'static str,
    /// What is asked for, once it is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub facts: Option<RequestFacts>,
    /// Whose key it came with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Arc<str>>,
    /// The other end of the connection that it came by: a client, or a gateway in front.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The trace it belongs to (W3C Trace Context), as upstreams are told it, but for the span of each attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Box<str>>,
    /// What it is in that trace, where [`Telemetry::traces`] has said so.
    #[serde(skip)]
    pub span: Option<TraceSpan>,
    /// When its head was here.
    pub arrived: Moment,
    /// When it was read, and began to look for a place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<Moment>,
    /// Where it was sent, in order.
    pub attempts: Vec<TrailAttempt>,
    /// Why nobody was found for it in the end, if that is how it ended and somebody wanted to know: as it looked when it was
    /// refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unplaced: Option<Box<Explained>>,
    /// When the answer's head was here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered: Option<Moment>,
    /// When the first byte of the answer's body was here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<Moment>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Moment>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// The status of its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why it was refused here, or cut short: the stable word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Cow<'static, str>>,
    /// Bytes of the answer's body that have passed.
    pub answer_bytes: u64,
    /// In how many pieces they came: about one for each token of a stream, or fewer, where several came at once.
    pub pieces: u64,
    /// Whether the answer is a stream of events.
    pub events: bool,
    /// Tokens of the prompt, as the answer tells them, where it is read for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer, as it tells them or by its events, where it is read for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
}

impl Trail {
    /// The most of a path that is kept, in bytes.
    pub const LONGEST_PATH: usize = 256;

    /// Of a request that has just come.
    /// What its head says.
    pub(crate) fn asks(&mut self, path: &str, route: &Route) {
        let mut end = path.len().min(Self::LONGEST_PATH);
        while !path.is_char_boundary(end) {
            end -= 1;
        }
        self.path = path[..end].into();
        self.class = class_of(Some(route));
    }

    pub(crate) fn begun(id: &str, method: &str, path: &str, arrived: Moment) -> Self {
        Self {
            id: id.into(),
            method: method.into(),
            path: path.into(),
            class: class_of(None),
            facts: None,
            client: None,
            address: None,
            traceparent: None,
            span: None,
            arrived,
            began: None,
            attempts: Vec::new(),
            unplaced: None,
            answered: None,
            first_byte: None,
            ended: None,
            end: None,
            status: None,
            reason: None,
            answer_bytes: 0,
            pieces: 0,
            events: false,
            prompt_tokens: None,
            output_tokens: None,
        }
    }

    /// The upstream that it was sent to last.
    pub fn upstream(&self) -> Option<&UpstreamId> {
        self.attempts.last().map(|sent| &sent.upstream)
    }

    /// The model that it was sent to last, where that is not its own, which had no place for it.
    pub fn fallback(&self) -> Option<&Arc<str>> {
        self.attempts.last()?.model.as_ref()
    }
}

/// A span of a trace (W3C Trace Context).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceSpan {
    /// The trace that it is a part of.
    pub trace_id: u128,
    /// Itself.
    pub span_id: u64,
    /// The span of who has sent it, if the trace did not begin here.
    pub parent_id: Option<u64>,
    /// What vendors say of the trace, as it came.
    pub state: Option<Box<str>>,
}

/// A model that was asked for and did not serve a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PassedOver {
    /// Its name, as upstreams have it.
    pub model: Arc<str>,
    /// Why it had no place, as a [`Reason`](crate::schedule::Reason) has it; `no_answer`: it had some, and none of them answered.
    pub reason: Box<str>,
}

/// A sending of a request.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct TrailAttempt {
    /// Where to; where the transport chose another, that one.
    pub upstream: UpstreamId,
    /// For which model, where that is not its own, which had no place for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// Those that were asked for before it, its own first; empty where that was sent to at once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<PassedOver>,
    /// When the place was found and it was sent.
    pub at: Moment,
    /// Its span, where the request has one.
    #[serde(skip)]
    pub span_id: Option<u64>,
    /// Why it was that one, where somebody wanted to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Box<Why>>,
    /// How that ended: `answered`, `not_sent`, `lost`, `refused`, `broken` or `late`. `None`: it has not, or its client has left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<&'static str>,
    /// When that was known: the head of an answer was here, or none was to come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Moment>,
}

/// Why a request got its place.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Why {
    /// The way through the tree.
    pub explained: Explained,
    /// All that went into it, where [`Detail::Record`] was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
    /// The statuses that the record names.
    #[serde(skip)]
    pub snapshot: Option<Arc<Snapshot>>,
}

impl Why {
    pub(crate) fn new(explained: Explained, record: Option<Record>, snapshot: &Arc<Snapshot>) -> Self {
        Self {
            explained,
            snapshot: record.as_ref().map(|_| snapshot.clone()),
            record,
        }
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum End {
    /// Its answer has passed to the last byte; also that by which an upstream refused it, where nobody else took it.
    Complete,
    /// It was answered here: with an error, or because it was local.
    Here,
    /// Its answer was cut short.
    CutShort,
    /// It was given up before its end: its client has left, or its connection was ended here, since it took nothing or the
    /// router was stopped.
    Left,
}

impl End {
    /// The word that is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Here => "here",
            Self::CutShort => "cut_short",
            Self::Left => "left",
        }
    }
}
