//! Who is close to the least?
//!
//! The bucket rule of the original filter tree (Gateway API Inference Extension, pull request 78): of `n` candidates
//! that reach the filter, those stay whose value is at most `min + (max - min) / n`, inclusive, where the maximum starts
//! from zero. For queue lengths the division is of whole numbers.

use std::fmt;

use super::threshold::{Bound, Unknown, kv_cache, queue_depth};
use crate::schedule::{CandidateSet, Class, Filter, FilterError, Lack, PickCx, Reads, Reason, Signals};
use crate::status::{UNKNOWN, Within};
use crate::upstream::{UpstreamIndex, upstreams};

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
        min + match self {
            // Queue lengths are whole and below 2^32, so this is exact.
            Self::Queue => ((max - min) as u64).checked_div(n as u64).unwrap_or(0) as f64,
            Self::KvCache => (max - min) / n as f64,
        }
    }

    /// The highest value that stays, and whether the unknown do; `None` where nobody is known. NaN is unknown. `within`: within
    /// what the values of a word lie, where that is known.
    fn bucket<T: Copy + Into<f64>>(
        self,
        set: &mut CandidateSet<'_>,
        within: impl Fn(usize) -> Option<Within<T>>,
        value: impl Fn(UpstreamIndex) -> f64,
    ) -> Option<(f64, Unknown)> {
        let (mut min, mut max) = (f64::INFINITY, 0.0f64);
        let (mut any, mut all) = (false, true);
        for (word, bits) in set.bits().iter().enumerate().filter(|(_, bits)| **bits != 0) {
            // Most words hold nothing that the ones before it have not shown.
            let holds_more =
                |within: &Within<T>| !within.known || within.least.into() < min || within.most.into() > max;
            if any && !within(word).as_ref().is_none_or(holds_more) {
                continue;
            }
            for upstream in upstreams(word, *bits) {
                let value = value(upstream);
                // Neither of the two takes NaN.
                if value < min {
                    min = value;
                }
                if value > max {
                    max = value;
                }
                any |= !value.is_nan();
                all &= !value.is_nan();
            }
        }
        if !any {
            return None;
        }
        let edge = self.edge(min, max, set.len());
        let number = |upstream| Some(value(upstream)).filter(|value| !value.is_nan());
        let stays = !all && set.median(number).is_some_and(|median| median <= edge);
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
        // The only one is the least, be it known or not.
        if set.is_one() {
            return Ok(());
        }
        let columns = &cx.snapshot.columns;
        let bucket = match (self, cx.signals) {
            // The same as below, without a look at the corrections.
            (Self::Queue, Signals::Reported) => {
                let within = |word: usize| Some(columns.waiting_within[word]);
                self.bucket(set, within, |upstream| match columns.waiting[upstream.get()] {
                    UNKNOWN => f64::NAN,
                    waiting => f64::from(waiting),
                })
            }
            (Self::Queue, Signals::Corrected) => self.bucket(
                set,
                |_| None::<Within<u32>>,
                |upstream| cx.waiting(upstream).map_or(f64::NAN, f64::from),
            ),
            (Self::KvCache, _) => {
                let within = |word: usize| Some(columns.kv_within[word]);
                self.bucket(set, within, |upstream| columns.kv[upstream.get()])
            }
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
