//! Who is sent no work for now, though it is there?
//!
//! One machine for all upstreams: `healthy -> ejected -> probing (one request at a time) -> warming -> healthy`. It is
//! pure, with events and time as arguments. What it learns is kept by upstream, across changes of its spec, and while it is
//! away, for [`longest_time`](crate::config::HealthRules::longest_time): a source that flaps makes no machine well. Another
//! URL is another machine.
//!
//! | what happens | what follows |
//! |---|---|
//! | no connection can be made | out at once, for a short time at first; an answered poll lets a probe in |
//! | [`eject_after`](crate::config::HealthRules::eject_after) faults in a row: sent and no byte came back, broken off, late, 502, 503, 504 | out, unless too many are |
//! | 500s | the same, but those of one request count once: it may be the request's own fault |
//! | any other answer, 4xx among them | a row of faults ends |
//! | 429 | busy: no new request for as long as it asks, 15 s at most, since it may mean one client alone |
//! | 503 with `Retry-After` | a fault, and no new request for as long as it asks, 15 s at most: else one answer would shut it for all |
//! | fewer of its answers are good than of the others' | out, where the numbers carry it (see below) |
//! | its time is over | one request at a time: answered, it is back, slowly; failed, out for twice as long |
//! | that request lasts | after 10 s an answered poll lets the upstream back in, slowly: it lives, and works on it |
//! | everybody who could serve a model is out | panic: for that model none of them is left out, since somebody has to be wrong |
//!
//! A request without weight (`GET /version`) costs its engine nothing, so its answer says nothing of the work that does: it
//! ends no row, is no probe (nor refused for the one under way), pauses nobody and counts in no rate, and its faults, which
//! may be those of its path alone, count no more than its answers. Only that no connection can be made says the same whoever
//! asked. Where others are well it goes to none that is probed: it would find out nothing there.
//!
//! "Too many" and "everybody" are counted among those who could serve the same model (or alias, or adapter), those that
//! answer for any with them, and an upstream that has told no models among all: what is well and serves something else
//! can stand in for nobody. Who is let in by panic serves only what nobody else is in for ([`last_resort`]). So for whoever
//! is alone with a model, to be left out is no loss of it; where that is so for each of its models, it would be no gain
//! either, and its faults leave it in. Nor does it start slowly.
//!
//! A long probe is ended by a poll that is sent when it has gone on for 10 s without a fault, and answered. It goes on as a
//! request like any other, and counts as one if it fails later. That is not done for an upstream that was ejected for
//! silence ([`Fault::Late`]), which may have answered polls all the time; nor where no polls are answered, since nothing tells
//! a long answer from a dead machine then: there the probe lasts until its answer begins, or its time limit.
//!
//! [`last_resort`]: UpstreamHealth::last_resort
//!
//! Consecutive faults, the share that is never exceeded, growing times and the outliers of success rates are those of
//! Envoy's outlier detection (the docs of `envoy.config.cluster.v3.OutlierDetection`); the limits of this module say where
//! they differ, and why. Success rates are compared among at least five upstreams that had a hundred requests each in an
//! interval.
//!
//! A pick sees none of this machine but its outcome, as bits and limits in the ledger: it takes no lock. An answer of an
//! upstream with which all is well costs one atomic add. The embedder who forwards requests himself tells its lease how
//! it went ([`Lease::report`](crate::upstream::Lease::report)):
//!
//! ```
//! use paddler_core::Moment;
//! use paddler_core::health::{Fault, HealthState, Verdict};
//! use paddler_core::request::Facts;
//! use paddler_core::schedule::{Ask, Scratch, trees};
//! use paddler_core::status::{StatusBoard, StatusEvent};
//! use paddler_core::upstream::UpstreamSpec;
//!
//! let now = Moment::ZERO;
//! let mut board = StatusBoard::new(trees::gateway());
//! for id in ["a", "b"] {
//!     board.apply(StatusEvent::Upsert(UpstreamSpec::new(id, "http://127.0.0.1:8080")?), now);
//! }
//! let snapshot = board.publish(now);
//! let facts = Facts::new();
//! let mut lease = snapshot.reserve(&Ask::new(&facts, now, 1), &mut Scratch::default(), &mut ()).unwrap();
//! let dead = lease.upstream().clone();
//! lease.report(Verdict::Fault(Fault::Unreachable), now);
//! drop(lease);
//!
//! // At once, without a publish, nobody is sent there any more.
//! for seed in 0..100 {
//!     let lease = snapshot.reserve(&Ask::new(&facts, now, seed), &mut Scratch::default(), &mut ()).unwrap();
//!     assert_ne!(*lease.upstream(), dead);
//! }
//! let health = snapshot.health(snapshot.index(dead.as_str()).unwrap()).unwrap();
//! assert!(matches!(health.state, HealthState::Ejected { .. }));
//! # Ok::<(), paddler_core::upstream::InvalidId>(())
//! ```

mod book;
mod groups;
mod member;
mod pool;
mod rates;
#[cfg(test)]
mod tests;

use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use crate::Moment;
use crate::config::{UnknownWord, named};
pub use book::FaultReceipt;
pub(crate) use book::{BoardView, HealthBook};
pub(crate) use groups::Serves;
pub(crate) use member::Past;

/// How an attempt to use an upstream went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// It has begun to answer, and what it says is no fault of its own: a 4xx is the request's.
    Answered,
    /// It is fine and has too much to do: 429. It may say for how long it wants to be left alone.
    Busy(Option<Duration>),
    /// It failed.
    Fault(Fault),
    /// It failed and says for how long it wants to be left alone: 503 with `Retry-After`.
    FaultUntil(Fault, Duration),
}

impl Verdict {
    /// What the head of an answer says by its HTTP status, and by how long it wants to be left alone (`Retry-After`), of which
    /// no more than 15 s count when it is [reported](crate::upstream::Lease::report).
    /// `request` gives the fingerprint of what was asked, if it matters: see [`Fault::Failed`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use paddler_core::health::{Fault, Verdict};
    ///
    /// let says = |status, seconds: Option<u64>| Verdict::of_status(status, seconds.map(Duration::from_secs), || 7);
    /// assert_eq!(says(200, None), Verdict::Answered);
    /// assert_eq!(says(404, None), Verdict::Answered, "that is the request's own");
    /// assert_eq!(says(429, Some(3)), Verdict::Busy(Some(Duration::from_secs(3))));
    /// assert_eq!(says(503, Some(3)), Verdict::FaultUntil(Fault::Unavailable, Duration::from_secs(3)));
    /// assert_eq!(says(502, Some(3)), Verdict::Fault(Fault::Unavailable));
    /// assert_eq!(says(500, None), Verdict::Fault(Fault::Failed { request: 7 }));
    /// ```
    pub fn of_status(status: u16, retry_after: Option<Duration>, request: impl FnOnce() -> u64) -> Self {
        match (status, retry_after) {
            (429, asked) => Self::Busy(asked),
            (503, Some(asked)) => Self::FaultUntil(Fault::Unavailable, asked),
            (502..=504, _) => Self::Fault(Fault::Unavailable),
            (500, _) => Self::Fault(Fault::Failed { request: request() }),
            _ => Self::Answered,
        }
    }
}

/// What an upstream did wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// No connection could be made.
    Unreachable,
    /// The request was sent, and the connection ended before the answer.
    Broke,
    /// The answer had begun, and broke off or went silent. Only a whole answer ends a row of these.
    CutShort,
    /// The answer did not begin in time.
    Late,
    /// It answered 502, 503 or 504.
    Unavailable,
    /// It answered 500. `request` tells requests apart: the same number for the same content. However often one request
    /// fails, it counts once in a row.
    Failed {
        /// A fingerprint of what was asked.
        request: u64,
    },
}

/// By the word of its [`Cause`]. [`Failed`](Fault::Failed) has none, since only who sent the request can tell it from others.
///
/// ```
/// use paddler_core::health::Fault;
///
/// assert_eq!("cut_short".parse(), Ok(Fault::CutShort));
/// let unknown = "cutshort".parse::<Fault>().unwrap_err();
/// assert_eq!(unknown.to_string(), "\"cutshort\" is not a fault; did you mean \"cut_short\"?");
/// ```
impl FromStr for Fault {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        const ALL: [Fault; 5] = [
            Fault::Unreachable,
            Fault::Broke,
            Fault::CutShort,
            Fault::Late,
            Fault::Unavailable,
        ];
        named(word, "a fault", &ALL, |fault| Cause::from(fault).as_str())
    }
}

/// Why an upstream was ejected.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// [`Fault::Unreachable`]
    Unreachable,
    /// [`Fault::Broke`]
    Broke,
    /// [`Fault::CutShort`]
    CutShort,
    /// [`Fault::Late`]
    Late,
    /// [`Fault::Unavailable`]
    Unavailable,
    /// [`Fault::Failed`]
    Failed,
    /// Fewer of its answers were good than of the others'.
    SuccessRate,
}

impl Cause {
    /// All of them, in the order of the metrics.
    pub const ALL: [Self; 7] = [
        Self::Unreachable,
        Self::Broke,
        Self::CutShort,
        Self::Late,
        Self::Unavailable,
        Self::Failed,
        Self::SuccessRate,
    ];

    /// The word used in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Broke => "broke",
            Self::CutShort => "cut_short",
            Self::Late => "late",
            Self::Unavailable => "unavailable",
            Self::Failed => "failed",
            Self::SuccessRate => "success_rate",
        }
    }
}

impl From<Fault> for Cause {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Unreachable => Self::Unreachable,
            Fault::Broke => Self::Broke,
            Fault::CutShort => Self::CutShort,
            Fault::Late => Self::Late,
            Fault::Unavailable => Self::Unavailable,
            Fault::Failed { .. } => Self::Failed,
        }
    }
}

/// Whether an upstream is sent work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HealthState {
    /// As much as its limit allows.
    Healthy,
    /// None, unless it is a [last resort](UpstreamHealth::last_resort).
    Ejected {
        /// Why.
        cause: Cause,
        /// When it is probed.
        until: Moment,
    },
    /// One request at a time, until one is answered, or has lasted while polls are answered.
    Probing,
    /// It has come, or come back: its limit grows until then.
    Warming {
        /// When it takes its full part.
        until: Moment,
    },
}

/// What is known of the health of one upstream from the requests that it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct UpstreamHealth {
    /// Whether it is sent work.
    pub state: HealthState,
    /// It is out, and gets work all the same: everybody is out who could serve some model of its.
    pub last_resort: bool,
    /// It has asked to be left alone until then.
    pub paused_until: Option<Moment>,
    /// Faults in a row so far.
    pub faults: u32,
    /// How often it was ejected since it joined, or since before it was away, if that is still known.
    pub ejections: u64,
}

/// What the whole pool has gone through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PoolHealth {
    /// Whether everybody who could serve some model is out, so that none of those is left out.
    pub panicking: bool,
    /// How often that has begun for a model; for several at once it counts once.
    pub panics: u64,
    /// Ejections, by [`Cause::ALL`].
    pub ejections: [u64; Cause::ALL.len()],
    /// Ejections that did not happen since the largest share of those with the same model was out already.
    pub spared: u64,
}
