//! Who is under a limit?

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::schedule::context::lanes;
use crate::schedule::lanes::mask;
use crate::schedule::{CandidateSet, Class, Filter, FilterError, Lack, PickCx, Reads, Reason, Signals};
use crate::status::{UNKNOWN, Within};
use crate::upstream::UpstreamIndex;

/// Where the limit lies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Less than this.
    Below(f64),
    /// This or less.
    AtMost(f64),
}

impl Bound {
    /// The least whole number that is not within it.
    fn first_beyond(self) -> u32 {
        // The casts cut off, saturate, and make zero of NaN, within which there is nothing.
        match self {
            Self::Below(limit) => {
                let whole = limit as u32;
                whole.saturating_add(u32::from(f64::from(whole) < limit))
            }
            Self::AtMost(limit) if limit >= 0.0 => (limit as u32).saturating_add(1),
            Self::AtMost(_) => 0,
        }
    }

    /// Whether the value is within it.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::Below(limit) => value < limit,
            Self::AtMost(limit) => value <= limit,
        }
    }
}

/// What becomes of an upstream whose value is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// It stays.
    #[default]
    Pass,
    /// It goes out.
    Fail,
}

/// Keeps upstreams whose value is within a bound. Made by [`queue_depth`] and [`kv_cache`].
#[derive(Clone, Copy, PartialEq)]
pub struct Threshold {
    signal: What,
    bound: Bound,
    unknown: Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    QueueDepth,
    KvCache,
}

/// Keeps upstreams where the number of requests waiting is within the bound. Unknown: passes. A request that takes no room
/// (control) passes everywhere.
pub fn queue_depth(bound: Bound) -> Threshold {
    Threshold {
        signal: What::QueueDepth,
        bound,
        unknown: Unknown::Pass,
    }
}

/// Keeps upstreams where the share of the KV cache in use, 0 to 1, is within the bound. Unknown: passes. A request that
/// takes no room (control) passes everywhere.
pub fn kv_cache(bound: Bound) -> Threshold {
    Threshold {
        signal: What::KvCache,
        bound,
        unknown: Unknown::Pass,
    }
}

impl Threshold {
    /// Of a word whose values lie within this: all bits where each of them passes, none where none does.
    fn all_or_none<T: Copy>(&self, within: Within<T>, holds: impl Fn(T) -> bool) -> Option<u64> {
        let passes = self.unknown == Unknown::Pass;
        // The bound is on one side, so what holds of the highest holds of all.
        match (holds(within.least), holds(within.most)) {
            (_, true) if within.known || passes => Some(u64::MAX),
            (false, _) if within.known || !passes => Some(0),
            _ => None,
        }
    }

    /// Says what becomes of upstreams whose value is not known.
    #[must_use]
    pub fn unknown(mut self, unknown: Unknown) -> Self {
        self.unknown = unknown;
        self
    }
}

impl fmt::Debug for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.signal {
            What::QueueDepth => "queue_depth",
            What::KvCache => "kv_cache",
        })?;
        match self.bound {
            Bound::Below(limit) => write!(f, " below {limit}"),
            Bound::AtMost(limit) => write!(f, " at_most {limit}"),
        }?;
        match self.unknown {
            Unknown::Pass => Ok(()),
            Unknown::Fail => f.write_str(" unknown fail"),
        }
    }
}

impl Filter for Threshold {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        // What takes no room is not kept out by a limit of load: it has to be answered also while all are busy.
        if cx.facts.weight == 0 {
            return Ok(());
        }
        let columns = &cx.snapshot.columns;
        match self.signal {
            What::QueueDepth => {
                let (beyond, unknown) = (self.bound.first_beyond(), self.unknown == Unknown::Pass);
                // Unknown is the largest number, so it is below nothing.
                let is_within = |waiting: u32| (waiting < beyond) | (unknown & (waiting == UNKNOWN));
                // What is reported says all of it only where it is not corrected.
                let reported = cx.signals == Signals::Reported;
                set.retain_words(|word, bits| {
                    let within = columns.waiting_within[word];
                    match self.all_or_none(within, |waiting| waiting < beyond) {
                        Some(all) if reported => bits & all,
                        None if reported && within.known => {
                            let waiting = lanes(&columns.waiting, word);
                            mask(bits, |lane| waiting[lane] < beyond)
                        }
                        _ if reported => {
                            let waiting = lanes(&columns.waiting, word);
                            mask(bits, |lane| is_within(waiting[lane]))
                        }
                        _ => {
                            let waiting = cx.waiting_lanes(word);
                            mask(bits, |lane| is_within(waiting[lane]))
                        }
                    }
                });
            }
            What::KvCache => set.retain_words(|word, bits| {
                let within = columns.kv_within[word];
                if let Some(all) = self.all_or_none(within, |usage| self.bound.holds(usage)) {
                    return bits & all;
                }
                let (usage, unknown) = (lanes(&columns.kv, word), self.unknown == Unknown::Pass);
                mask(bits, |lane| {
                    self.bound.holds(usage[lane]) | (unknown & usage[lane].is_nan())
                })
            }),
        }
        Ok(())
    }

    fn value(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Option<f64> {
        match self.signal {
            What::QueueDepth => cx.waiting(upstream).map(f64::from),
            What::KvCache => cx.kv_cache_usage(upstream),
        }
    }

    fn lack(&self, _cx: &PickCx<'_>) -> Lack {
        let reason = match self.signal {
            What::QueueDepth => Reason::QueueDeep,
            What::KvCache => Reason::KvCacheFull,
        };
        Lack::new(Class::Later, reason)
    }

    fn reads(&self) -> Reads {
        if self.signal == What::QueueDepth {
            Reads::QUEUE
        } else {
            Reads::NONE
        }
    }
}
