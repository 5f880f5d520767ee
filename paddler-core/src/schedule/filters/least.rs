//! Who is close to the least?
//!
//! The bucket rule of the original filter tree (Gateway API Inference Extension, pull request 78): of `n` candidates
//! that reach the filter, those stay whose value is at most `min + (max - min) / n`, inclusive, where the maximum starts
//! from zero. For queue lengths the division is of whole numbers.

use std::fmt;

use super::threshold::{Bound, Unknown, kv_cache, queue_depth};
use crate::schedule::{CandidateSet, Class, Filter, FilterError, Lack, PickCx, Reads, Reason, Signals};
use crate::status::UNKNOWN;
use crate::upstream::UpstreamIndex;

/// Keeps the lowest bucket. Made by [`least_queue`] and [`least_kv_cache`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Least {
    /// By requests waiting.
    Queue,
    /// By KV-cache usage.
    KvCache,
}

/// Keeps the shortest queues. An unknown queue counts as the median of the known ones; none known: keeps everybody.
///
/// The division is of whole numbers, so with fewer requests between shortest and longest than there are candidates, only
/// the very shortest stay.
pub fn least_queue() -> Least {
    Least::Queue
}

/// Keeps the emptiest KV caches. An unknown one counts as the median of the known ones; none known: keeps everybody.
pub fn least_kv_cache() -> Least {
    Least::KvCache
}

impl Least {
    /// The highest value that stays, of `n` candidates. Zero candidates have no bucket, and nobody to ask.
    fn edge(self, min: f64, max: f64, n: usize) -> f64 {
        let share = (max - min) / n as f64;
        // Queue lengths are whole and below 2^32, so rounding down is exact here.
        min + if self == Self::Queue { share.floor() } else { share }
    }

    /// The highest value that stays, and whether the unknown do; `None` where nobody is known. NaN is unknown.
    fn bucket(
        self,
        set: &mut CandidateSet<'_>,
        value: impl Fn(UpstreamIndex) -> f64,
    ) -> Option<(f64, Unknown)> {
        let n = set.len();
        let (mut min, mut max, mut known) = (f64::INFINITY, 0.0f64, 0);
        set.iter().for_each(|upstream| {
            let value = value(upstream);
            // Neither of the two takes NaN.
            if value < min {
                min = value;
            }
            if value > max {
                max = value;
            }
            known += usize::from(!value.is_nan());
        });
        if known == 0 {
            return None;
        }
        let edge = self.edge(min, max, n);
        let number = |upstream| Some(value(upstream)).filter(|value| !value.is_nan());
        let stays = known < n && set.median(number).is_some_and(|median| median <= edge);
        Some((edge, if stays { Unknown::Pass } else { Unknown::Fail }))
    }
}

impl fmt::Debug for Least {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queue => "least_queue",
            Self::KvCache => "least_kv_cache",
        })
    }
}

impl Filter for Least {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        let columns = &cx.snapshot.columns;
        let bucket = match (self, cx.signals) {
            // The same as below, without a look at the corrections.
            (Self::Queue, Signals::Reported) => {
                self.bucket(set, |upstream| match columns.waiting[upstream.get()] {
                    UNKNOWN => f64::NAN,
                    waiting => f64::from(waiting),
                })
            }
            (Self::Queue, Signals::Corrected) => {
                self.bucket(set, |upstream| cx.waiting(upstream).map_or(f64::NAN, f64::from))
            }
            (Self::KvCache, _) => self.bucket(set, |upstream| columns.kv[upstream.get()]),
        };
        let Some((edge, unknown)) = bucket else {
            return Ok(());
        };
        let within = match self {
            Self::Queue => queue_depth(Bound::AtMost(edge)),
            Self::KvCache => kv_cache(Bound::AtMost(edge)),
        };
        within.unknown(unknown).narrow(cx, set)
    }

    fn value(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Option<f64> {
        match self {
            Self::Queue => cx.waiting(upstream).map(f64::from),
            Self::KvCache => cx.kv_cache_usage(upstream),
        }
    }

    fn lack(&self, _cx: &PickCx<'_>) -> Lack {
        Lack::new(Class::Later, Reason::NoUpstream)
    }

    fn reads(&self) -> Reads {
        if *self == Self::Queue {
            Reads::QUEUE
        } else {
            Reads::NONE
        }
    }
}
