//! Who is let in, for his health?
//!
//! One bit for each upstream and question, so that a pick reads a word for many of them. Gates are changed, and a probe
//! that came to nothing is given back, under a lock that a pick takes only where it meets such a change as a probe.

use std::sync::PoisonError;

use crate::upstream::LANES;
use crate::upstream::reserve::{Reserve, ReserveWord};
use crate::upstream::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Relaxed},
};
use crate::upstream::sync::{Mutex, MutexGuard};

/// Whether requests get in, for their upstream's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// They do, up to this weight if there is one.
    Open(Option<u32>),
    /// One at a time.
    Probe,
    /// None does.
    Closed,
}

/// How one was let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Usual,
    /// As the one who finds out how it is.
    Probe,
}

/// The gates of one chunk of upstreams.
pub(super) struct Gates {
    /// Let nobody in: out, or a probe is under way.
    closed: AtomicU64,
    /// Let one in at a time.
    probing: AtomicU64,
    /// A good answer is news there.
    watched: AtomicU64,
    /// Good answers since they were last looked at.
    answered: [AtomicU32; LANES],
    bounds: Mutex<[Bounds; LANES]>,
}

/// What was last put in force at one place. Of the two bounds of the weight the smaller counts.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    gate: Gate,
    /// The upstream's limit, without what others hold.
    limit: u32,
    /// What its health allows.
    cap: u32,
}

impl Bounds {
    const NONE: Self = Self {
        gate: Gate::Open(None),
        limit: Reserve::UNLIMITED,
        cap: Reserve::UNLIMITED,
    };

    fn least(self) -> u32 {
        self.limit.min(self.cap)
    }
}

pub(super) fn put(word: &AtomicU64, lane: usize, on: bool) {
    if on {
        word.fetch_or(1 << lane, AcqRel);
    } else {
        word.fetch_and(!(1 << lane), AcqRel);
    }
}

pub(super) fn is_set(word: &AtomicU64, lane: usize) -> bool {
    word.load(Relaxed) >> lane & 1 == 1
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            closed: AtomicU64::new(0),
            probing: AtomicU64::new(0),
            watched: AtomicU64::new(0),
            answered: std::array::from_fn(|_| AtomicU32::new(0)),
            bounds: Mutex::new([Bounds::NONE; LANES]),
        }
    }
}

impl Gates {
    fn bounds(&self) -> MutexGuard<'_, [Bounds; LANES]> {
        // Nothing in here can leave them half changed.
        self.bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that let nobody in now.
    pub(super) fn closed(&self) -> u64 {
        self.closed.load(Relaxed)
    }

    /// A new upstream comes to this place: nothing is known against it.
    pub(super) fn begin(&self, lane: usize, limit: u32, word: &ReserveWord) {
        self.set(lane, Gate::Open(None), false, word);
        self.take_answered(lane);
        self.bounds()[lane].limit = limit;
    }

    /// Changes the upstream's own limit. Returns whether more fits now.
    pub(super) fn set_limit(&self, lane: usize, limit: u32, word: &ReserveWord) -> bool {
        let mut bounds = self.bounds();
        bounds[lane].limit = limit;
        word.set_limit(bounds[lane].least())
    }

    /// Lets requests in or not. Returns whether more are let in than before.
    pub(super) fn set(&self, lane: usize, gate: Gate, watched: bool, word: &ReserveWord) -> bool {
        let mut bounds = self.bounds();
        let was_closed = is_set(&self.closed, lane);
        let was_probing = is_set(&self.probing, lane);
        put(&self.watched, lane, watched);
        let mut cap = Reserve::UNLIMITED;
        // In an order in which nobody gets in by the way.
        match gate {
            Gate::Open(most) => {
                cap = most.unwrap_or(cap);
                put(&self.probing, lane, false);
                put(&self.closed, lane, false);
            }
            // While a probe is under way, it is the probe that has closed it.
            Gate::Probe if was_probing => return false,
            Gate::Probe => {
                put(&self.probing, lane, true);
                put(&self.closed, lane, false);
            }
            Gate::Closed => {
                put(&self.closed, lane, true);
                put(&self.probing, lane, false);
            }
        }
        bounds[lane].gate = gate;
        bounds[lane].cap = cap;
        let rose = word.set_limit(bounds[lane].least());
        gate != Gate::Closed && (was_closed || rose)
    }

    /// Goes in, unless the gate is closed, by now or by the one who probes.
    pub(super) fn enter(&self, lane: usize) -> Option<Entry> {
        if is_set(&self.closed, lane) {
            return None;
        }
        if !is_set(&self.probing, lane) {
            return Some(Entry::Usual);
        }
        let before = self.closed.fetch_or(1 << lane, AcqRel);
        if before >> lane & 1 == 1 {
            return None;
        }
        if is_set(&self.probing, lane) {
            return Some(Entry::Probe);
        }
        // The gate was changed on the way in: what it is now counts, and not what was just closed.
        let bounds = self.bounds();
        match bounds[lane].gate {
            Gate::Probe => Some(Entry::Probe),
            Gate::Closed => None,
            Gate::Open(_) => {
                put(&self.closed, lane, false);
                Some(Entry::Usual)
            }
        }
    }

    /// A probe that says nothing is none: the next one may come.
    pub(super) fn return_probe(&self, lane: usize) {
        let bounds = self.bounds();
        if bounds[lane].gate != Gate::Closed {
            put(&self.closed, lane, false);
        }
        drop(bounds);
    }

    pub(super) fn answered(&self, lane: usize) -> bool {
        self.answered[lane].fetch_add(1, Relaxed);
        self.is_watched(lane)
    }

    pub(super) fn is_watched(&self, lane: usize) -> bool {
        is_set(&self.watched, lane)
    }

    pub(super) fn take_answered(&self, lane: usize) -> u32 {
        self.answered[lane].swap(0, Relaxed)
    }
}
