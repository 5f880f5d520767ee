//! How much of our open weight may still be on its way to the engine?
//!
//! A ring of short spans, each with the weight that was taken in it and is still open. Exact to one span, bounded in
//! size whatever the load, and kept without a lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::Moment;

const SPAN_NANOS: u64 = 4_000_000;
const SPANS: usize = 8;
const WEIGHT_BITS: u32 = 24;
const WEIGHT_MASK: u64 = (1 << WEIGHT_BITS) - 1;

/// Each cell packs the number of a span (high) and the weight taken in it (low 24 bits).
#[derive(Default)]
pub(crate) struct YoungWeight([AtomicU64; SPANS]);

impl YoungWeight {
    fn span(now: Moment) -> u64 {
        // From one on, so that an empty ring is never mistaken for the first span.
        (now.as_nanos() / SPAN_NANOS + 1) & (u64::MAX >> WEIGHT_BITS)
    }

    /// Counts weight taken now; returns what [`remove`](Self::remove) needs.
    pub(crate) fn add(&self, now: Moment, weight: u32) -> u64 {
        let span = Self::span(now);
        self.change(
            span,
            |held| held.saturating_add(u64::from(weight)).min(WEIGHT_MASK),
            true,
        );
        span
    }

    /// Weight taken in that span is open no more. Spans that have rolled over need nothing.
    pub(crate) fn remove(&self, span: u64, weight: u32) {
        self.change(span, |held| held.saturating_sub(u64::from(weight)), false);
    }

    fn change(&self, span: u64, change: impl Fn(u64) -> u64, start: bool) {
        let cell = &self.0[(span as usize) % SPANS];
        let mut word = cell.load(Relaxed);
        loop {
            let current = word >> WEIGHT_BITS;
            let held = match current {
                _ if current == span => word & WEIGHT_MASK,
                // A later span may have been started by a thread whose clock was read later.
                _ if current < span && start => 0,
                _ => return,
            };
            let new = (span << WEIGHT_BITS) | change(held);
            match cell.compare_exchange_weak(word, new, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(seen) => word = seen,
            }
        }
    }

    /// Weight that was taken less than `age` before `now` and is still open. `age` is at most 28 ms.
    pub(crate) fn since(&self, now: Moment, age: Duration) -> u32 {
        let spans = (age.as_nanos() as u64).div_ceil(SPAN_NANOS).min(SPANS as u64 - 1);
        let first = Self::span(now).saturating_sub(spans);
        let young = |cell: &AtomicU64| {
            let word = cell.load(Relaxed);
            if word >> WEIGHT_BITS > first {
                word & WEIGHT_MASK
            } else {
                0
            }
        };
        self.0.iter().map(young).sum::<u64>().min(WEIGHT_MASK) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_millis(20);

    #[test]
    fn weight_is_young_for_the_age_and_not_longer_than_a_span_more() {
        let young = YoungWeight::default();
        let at = |ms| Moment::from_millis(ms);
        young.add(at(100), 3);
        assert_eq!(young.since(at(100), AGE), 3);
        assert_eq!(young.since(at(116), AGE), 3);
        assert_eq!(young.since(at(124), AGE), 0);
    }

    #[test]
    fn what_has_ended_is_not_young() {
        let young = YoungWeight::default();
        let span = young.add(Moment::from_millis(8), 2);
        young.add(Moment::from_millis(9), 5);
        young.remove(span, 2);
        assert_eq!(young.since(Moment::from_millis(10), AGE), 5);
        // The cell belongs to a later span by now: an old end must not touch it.
        young.add(Moment::from_millis(40), 1);
        young.remove(span, 5);
        assert_eq!(young.since(Moment::from_millis(40), AGE), 1);
    }

    #[test]
    fn the_first_moment_counts() {
        let young = YoungWeight::default();
        assert_eq!(young.since(Moment::ZERO, AGE), 0);
        young.add(Moment::ZERO, 4);
        assert_eq!(young.since(Moment::ZERO, AGE), 4);
    }
}
