//! How much of our open weight may still be on its way to the engine?
//!
//! A ring of short spans, each with the weight that was taken in it and is still open. Exact to one span, bounded in
//! size whatever the load, and kept without a lock.

use std::time::Duration;

use crate::Moment;
use crate::upstream::sync::atomic::{AtomicU64, Ordering::Relaxed};

const SPAN_NANOS: u64 = 4_000_000;
const SPANS: usize = 8;
const WEIGHT_BITS: u32 = 24;
const WEIGHT_MASK: u64 = (1 << WEIGHT_BITS) - 1;

/// The number of a span of time. From one on, so that an empty ring is never mistaken for the first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Span(u64);

impl Span {
    pub(crate) fn of(now: Moment) -> Self {
        Self((now.as_nanos() / SPAN_NANOS + 1) & (u64::MAX >> WEIGHT_BITS))
    }
}

/// Each cell packs the number of a span (high) and the weight taken in it (low 24 bits). All are on one cache line.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct YoungWeight([AtomicU64; SPANS]);

impl YoungWeight {
    /// Counts weight taken in that span.
    pub(crate) fn add(&self, span: Span, weight: u32) {
        let more = |held: u64| (held + u64::from(weight)).min(WEIGHT_MASK);
        self.change(span, |current, held| match current {
            _ if current == span => Some(more(held)),
            _ if current < span => Some(more(0)),
            // A later span was started by a thread that read its clock later: this weight is no longer young.
            _ => None,
        });
    }

    /// Weight taken in that span is open no more. Spans that have rolled over need nothing.
    pub(crate) fn remove(&self, span: Span, weight: u32) {
        let less = |held: u64| held.saturating_sub(u64::from(weight));
        self.change(span, |current, held| (current == span).then(|| less(held)));
    }

    fn change(&self, span: Span, change: impl Fn(Span, u64) -> Option<u64>) {
        let cell = &self.0[(span.0 as usize) % SPANS];
        let change = |word: u64| {
            let held = change(Span(word >> WEIGHT_BITS), word & WEIGHT_MASK)?;
            Some((span.0 << WEIGHT_BITS) | held)
        };
        // An `Err` means that the cell belongs to another span: nothing to change.
        let _unchanged = cell.fetch_update(Relaxed, Relaxed, change);
    }

    /// Weight that was taken less than `age` before `now` and is still open, and at most a span more. `age` is at most
    /// 28 ms.
    pub(crate) fn since(&self, now: Moment, age: Duration) -> u32 {
        let spans = (age.as_nanos() as u64).div_ceil(SPAN_NANOS).min(SPANS as u64 - 1);
        let first = Span::of(now).0.saturating_sub(spans);
        let young = |cell: &AtomicU64| {
            let word = cell.load(Relaxed);
            if word >> WEIGHT_BITS >= first {
                word & WEIGHT_MASK
            } else {
                0
            }
        };
        self.0.iter().map(young).sum::<u64>().min(WEIGHT_MASK) as u32
    }
}
