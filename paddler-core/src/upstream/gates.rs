//! Who is let in, for his health?
//!
//! One bit for each upstream and question, so that a pick reads a word for many of them. Gates are changed, and the right
//! to probe is given back, under a lock that a pick takes only where it meets such a change as a probe.
//!
//! A request without weight costs its engine nothing, so it finds out nothing: it is no probe, and the one that is under way
//! is no reason to refuse it. Only a gate that is closed for all is closed to it.
//!
//! The right to probe is a word of its own: who has it, and since when. The bits only say so to scans. It is held until
//! the probe has said how it went, or has ended; a gate that opens for all makes it void, and a pause does not.

use std::num::NonZeroU64;
use std::sync::PoisonError;

use crate::Moment;
use crate::upstream::LANES;
use crate::upstream::reserve::{Reserve, Reserves};
use crate::upstream::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::upstream::sync::{Mutex, MutexGuard};

/// Whether requests get in, for their upstream's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// They do, up to this weight if there is one.
    Open(Option<u32>),
    /// Those that have nobody else do.
    LastResort,
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
    Probe(Probe),
}

/// The right to find out how an upstream is: a number that changes when it is made void (16 bits), and since when it is
/// held in milliseconds and one (48 bits), which is nothing while nobody has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Right(u64);

/// That right as somebody holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Probe(NonZeroU64);

impl Right {
    const BEGAN: u64 = (1 << 48) - 1;

    fn is_held(self) -> bool {
        self.0 & Self::BEGAN != 0
    }

    fn taken(self, now: Moment) -> Self {
        let millis = now.as_nanos() / 1_000_000;
        Self(self.free().0 | (millis + 1).min(Self::BEGAN))
    }

    fn free(self) -> Self {
        Self(self.0 & !Self::BEGAN)
    }

    /// Whoever holds it does so no more.
    fn void(self) -> Self {
        if self.is_held() {
            Self(self.free().0.wrapping_add(1 << 48))
        } else {
            self
        }
    }

    fn began(self) -> Option<Moment> {
        let millis = (self.0 & Self::BEGAN).checked_sub(1)?;
        Some(Moment::from_millis(millis))
    }
}

/// The gates of one chunk of upstreams. What scans read comes first, on a cache line that is hardly ever written.
#[repr(C, align(64))]
pub(super) struct Gates {
    /// Let nobody in: out, or a probe is under way.
    closed: AtomicU64,
    /// Let one in at a time.
    probing: AtomicU64,
    /// Let in whom nobody else could serve.
    last_resort: AtomicU64,
    /// The right to probe.
    probes: [AtomicU64; LANES],
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

/// Sets or clears a bit. Returns whether it was set.
pub(super) fn put(word: &AtomicU64, lane: usize, on: bool) -> bool {
    let old = if on {
        word.fetch_or(1 << lane, AcqRel)
    } else {
        word.fetch_and(!(1 << lane), AcqRel)
    };
    old >> lane & 1 == 1
}

pub(super) fn is_set(word: &AtomicU64, lane: usize) -> bool {
    word.load(Relaxed) >> lane & 1 == 1
}

/// Has a bit say what `is` says, which others may change meanwhile: whoever is the last to write the bit sees what all have done
/// who wrote it before him, and looks once more. Returns whether it said yes for a moment where it is no.
pub(super) fn keep_up(word: &AtomicU64, lane: usize, is: impl Fn() -> bool) -> bool {
    let (mut on, mut said_yes) = (is(), false);
    loop {
        put(word, lane, on);
        let now = is();
        if now == on {
            return said_yes && !on;
        }
        said_yes |= on;
        on = now;
    }
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            closed: AtomicU64::new(0),
            probing: AtomicU64::new(0),
            last_resort: AtomicU64::new(0),
            probes: std::array::from_fn(|_| AtomicU64::new(0)),
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

    /// Those that let one in at a time, whether one is there or not.
    pub(super) fn probing(&self) -> u64 {
        self.probing.load(Relaxed)
    }

    /// Those that let in only whom nobody else could serve.
    pub(super) fn last_resort(&self) -> u64 {
        self.last_resort.load(Relaxed)
    }

    /// A new upstream comes to this place: nothing is known against it.
    pub(super) fn begin(&self, lane: usize, limit: u32, reserves: &Reserves) {
        self.set(lane, Gate::Open(None), false, reserves);
        self.take_answered(lane);
        self.bounds()[lane].limit = limit;
    }

    /// Changes the upstream's own limit. Returns whether more fits now, or looked as if it did not.
    pub(super) fn set_limit(&self, lane: usize, limit: u32, reserves: &Reserves) -> bool {
        let mut bounds = self.bounds();
        bounds[lane].limit = limit;
        reserves.set_limit(lane, bounds[lane].least())
    }

    /// Lets requests in or not. Returns whether more are let in than before, or than it looked for a moment.
    pub(super) fn set(&self, lane: usize, gate: Gate, watched: bool, reserves: &Reserves) -> bool {
        let mut bounds = self.bounds();
        let mut was_closed = is_set(&self.closed, lane);
        let mut cap = Reserve::UNLIMITED;
        bounds[lane].gate = gate;
        put(&self.watched, lane, watched);
        put(&self.last_resort, lane, gate == Gate::LastResort);
        // In an order in which nobody gets in by the way.
        match gate {
            Gate::Open(_) | Gate::LastResort => {
                put(&self.probing, lane, false);
                // Or somebody went in as the probe since, and shut it for who looked meanwhile.
                was_closed |= put(&self.closed, lane, false);
                // Always written: whoever takes it after this sees that the gate is open.
                self.change_right(lane, |right| Some(right.void()));
            }
            Gate::Probe => {
                put(&self.probing, lane, true);
                was_closed |= self.show(lane, gate);
            }
            Gate::Closed => {
                put(&self.closed, lane, true);
                put(&self.probing, lane, false);
            }
        }
        if let Gate::Open(Some(most)) = gate {
            cap = most;
        }
        bounds[lane].cap = cap;
        let rose = reserves.set_limit(lane, bounds[lane].least());
        let is_closed = is_set(&self.closed, lane);
        !is_closed && (was_closed || rose)
    }

    /// Has scans see whether the gate lets anybody in. Returns whether it looked shut, and does not any more. Under the lock.
    fn show(&self, lane: usize, gate: Gate) -> bool {
        let closed = match gate {
            Gate::Open(_) | Gate::LastResort => false,
            Gate::Closed => true,
            Gate::Probe => self.right(lane).is_held(),
        };
        let was_closed = put(&self.closed, lane, closed);
        // Somebody may have become the probe in between, without the lock.
        if gate == Gate::Probe && self.right(lane).is_held() {
            put(&self.closed, lane, true);
            return false;
        }
        was_closed && !closed
    }

    fn right(&self, lane: usize) -> Right {
        Right(self.probes[lane].load(Acquire))
    }

    /// Returns what it was, if it was changed.
    fn change_right(&self, lane: usize, change: impl Fn(Right) -> Option<Right>) -> Option<Right> {
        let changed =
            self.probes[lane].fetch_update(AcqRel, Acquire, |old| change(Right(old)).map(|new| new.0));
        changed.ok().map(Right)
    }

    /// Goes in, unless the gate is closed, by now or, for whoever has weight, by the one who probes. With whether it looked shut for a
    /// moment, and does not any more: who waits is to look again, whatever came of this.
    pub(super) fn enter(&self, lane: usize, weight: u32, now: Moment) -> (Option<Entry>, bool) {
        if weight == 0 && is_set(&self.probing, lane) {
            return (Some(Entry::Usual), false);
        }
        if is_set(&self.closed, lane) {
            return (None, false);
        }
        if !is_set(&self.probing, lane) {
            return (Some(Entry::Usual), false);
        }
        let before = self.change_right(lane, |right| (!right.is_held()).then(|| right.taken(now)));
        let mine = before
            .and_then(|before| NonZeroU64::new(before.taken(now).0))
            .map(Probe);
        if let Some(mine) = mine {
            let closed = self.closed.fetch_or(1 << lane, AcqRel) >> lane & 1 == 1;
            // The right may be void, and the gate be for probes again.
            if !closed && is_set(&self.probing, lane) && self.holds_probe(lane, mine) {
                return (Some(Entry::Probe(mine)), false);
            }
        }
        // The gate was changed on the way in, or somebody else was faster: what it is now counts.
        let bounds = self.bounds();
        let gate = bounds[lane].gate;
        if gate != Gate::Probe {
            self.free(lane, mine);
        }
        let hid_room = self.show(lane, gate);
        let entry = match gate {
            Gate::Open(_) | Gate::LastResort => Some(Entry::Usual),
            Gate::Probe => mine
                .filter(|mine| self.holds_probe(lane, *mine))
                .map(Entry::Probe),
            Gate::Closed => None,
        };
        (entry, hid_room)
    }

    /// Returns whether it was held.
    fn free(&self, lane: usize, probe: Option<Probe>) -> bool {
        probe.is_some_and(|mine| {
            self.change_right(lane, |held| (held.0 == mine.0.get()).then(|| held.free()))
                .is_some()
        })
    }

    /// A probe that has spoken, or has ended, is none any more: the next one may come where the gate is for probes.
    /// Returns whether it may.
    pub(super) fn return_probe(&self, lane: usize, probe: Probe) -> bool {
        let bounds = self.bounds();
        let gate = bounds[lane].gate;
        if !self.free(lane, Some(probe)) {
            return false;
        }
        self.show(lane, gate);
        gate == Gate::Probe
    }

    /// Whether this is the right to probe that is held.
    pub(super) fn holds_probe(&self, lane: usize, probe: Probe) -> bool {
        self.right(lane) == Right(probe.0.get())
    }

    /// Since when a probe is under way, to the millisecond.
    pub(super) fn probe_began(&self, lane: usize) -> Option<Moment> {
        self.right(lane).began()
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
