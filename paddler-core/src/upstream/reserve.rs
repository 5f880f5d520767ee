//! How much weight may be open at one upstream, and for whom?
//!
//! The reservation is the promise: weight and limit share one word with the number of the place's tenancy, so
//! compare-and-swap can neither exceed the limit nor land on another upstream that got the place since.

use crate::upstream::LANES;
use crate::upstream::gates::keep_up;
use crate::upstream::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// One word: tenancy (16 bits), limit (24), weight (24).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reserve(u64);

impl Reserve {
    const FIELD: u64 = (1 << 24) - 1;
    /// No limit. Also the largest weight that can be counted on one upstream.
    pub(crate) const UNLIMITED: u32 = Self::FIELD as u32;

    pub(crate) fn new(tenancy: u16, limit: u32, weight: u32) -> Self {
        let field = |value: u32| u64::from(value.min(Self::UNLIMITED));
        Self((u64::from(tenancy) << 48) | (field(limit) << 24) | field(weight))
    }

    pub(crate) fn tenancy(self) -> u16 {
        (self.0 >> 48) as u16
    }

    pub(crate) fn limit(self) -> u32 {
        ((self.0 >> 24) & Self::FIELD) as u32
    }

    pub(crate) fn weight(self) -> u32 {
        (self.0 & Self::FIELD) as u32
    }

    /// Whether `weight` more fits: see [`fits`].
    pub(crate) fn fits(self, weight: u32) -> bool {
        fits(self.weight(), self.limit(), weight)
    }

    /// How much more may be open.
    pub(crate) fn left(self) -> u32 {
        if self.limit() == Self::UNLIMITED {
            return Self::UNLIMITED;
        }
        self.limit().saturating_sub(self.weight())
    }

    /// Whether no weight has room, not even the least.
    fn is_full(self) -> bool {
        !self.fits(1)
    }

    fn with_weight(self, weight: u32) -> Self {
        Self::new(self.tenancy(), self.limit(), weight)
    }

    fn with_limit(self, limit: u32) -> Self {
        Self::new(self.tenancy(), limit, self.weight())
    }

    /// With weight that is there already, whatever the limit says, unless the tenancy is over. The count stops where the field
    /// ends: no machine holds so many requests.
    fn with(self, tenancy: u16, weight: u32) -> Option<Self> {
        (self.tenancy() == tenancy).then(|| self.with_weight(self.weight().saturating_add(weight)))
    }

    /// With weight that is reserved, unless the tenancy is over or the limit has no room.
    fn take(self, tenancy: u16, weight: u32) -> Option<Self> {
        self.with(tenancy, weight).filter(|_| self.fits(weight))
    }

    fn release(self, weight: u32) -> Self {
        debug_assert!(self.weight() >= weight, "weight was given back twice");
        self.with_weight(self.weight().saturating_sub(weight))
    }
}

/// Whether `asked` more fits where `open` is open under this limit. A request heavier than the whole limit fits when nothing else
/// is open: the engine runs its parts one after the other. No weight always fits, and so does any where there is no limit.
///
/// Signed and without branches, which is what a scan of many is made vector instructions of. Both numbers are at most
/// [`Reserve::UNLIMITED`].
pub(crate) fn fits(open: u32, limit: u32, asked: u32) -> bool {
    // Fields have 24 bits: no sum of two reaches the sign.
    let asked = asked.min(Reserve::UNLIMITED).cast_signed();
    let (open, limit) = (open.cast_signed(), limit.cast_signed());
    (asked == 0)
        | (limit == Reserve::UNLIMITED.cast_signed())
        | ((open == 0) & (limit > 0))
        | (open.wrapping_add(asked) <= limit)
}

/// The word, shared by all threads. Every change both publishes and sees what the changes before it did: the ledger's
/// "nothing is open here" rests on that.
#[derive(Debug)]
pub(crate) struct ReserveWord(AtomicU64);

impl Default for ReserveWord {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl ReserveWord {
    pub(crate) fn load(&self) -> Reserve {
        Reserve(self.0.load(Acquire))
    }

    /// The word for a scan that looks at nothing else with it.
    pub(crate) fn glance(&self) -> Reserve {
        Reserve(self.0.load(Relaxed))
    }

    /// Changes the word to what `change` makes of it, unless that is nothing. Returns the word before.
    fn update(&self, change: impl Fn(Reserve) -> Option<Reserve>) -> Option<Reserve> {
        self.0
            .fetch_update(AcqRel, Relaxed, |old| change(Reserve(old)).map(|new| new.0))
            .ok()
            .map(Reserve)
    }

    /// Ends the tenancy: nobody who still knows this one can reserve any more. Open weight stays until it ends.
    ///
    /// A number comes round after 65,536 tenancies, far more than the snapshots that anybody keeps.
    fn close(&self) {
        self.update(|old| {
            Some(Reserve::new(
                old.tenancy().wrapping_add(1),
                old.limit(),
                old.weight(),
            ))
        });
    }

    /// Returns whether the limit rose.
    pub(crate) fn set_limit(&self, limit: u32) -> bool {
        let old = self.update(|old| Some(old.with_limit(limit)));
        old.is_some_and(|old| limit > old.limit())
    }

    /// Reserves for this tenancy, unless it is over or the limit has no room. Returns what was taken.
    pub(crate) fn take(&self, tenancy: u16, weight: u32) -> Option<u32> {
        let old = self.update(|old| old.take(tenancy, weight))?;
        Some(old.take(tenancy, weight)?.weight() - old.weight())
    }

    pub(crate) fn release(&self, weight: u32) {
        if weight > 0 {
            self.update(|old| Some(old.release(weight)));
        }
    }
}

/// The words of one chunk of upstreams. That one is full is kept up for scans as a bit, so that they need not read the words.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Reserves {
    words: [ReserveWord; LANES],
    full: AtomicU64,
}

/// What a change of a word has come to.
struct Changed {
    old: Reserve,
    new: Reserve,
    /// Scans were told for a moment that it is full where it is not: who looked then is to look again.
    hid_room: bool,
}

/// What was reserved.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reserved {
    pub(super) weight: u32,
    /// Others gave some back meanwhile, and who waits may have seen none.
    pub(super) hid_room: bool,
}

impl Changed {
    fn reserved(&self) -> Reserved {
        Reserved {
            weight: self.new.weight() - self.old.weight(),
            hid_room: self.hid_room,
        }
    }
}

impl Default for Reserves {
    fn default() -> Self {
        Self {
            words: std::array::from_fn(|_| ReserveWord::default()),
            // As long as there is no limit, there is no room.
            full: AtomicU64::new(u64::MAX),
        }
    }
}

impl Reserves {
    pub(super) fn word(&self, lane: usize) -> &ReserveWord {
        &self.words[lane]
    }

    pub(super) fn words(&self) -> &[ReserveWord; LANES] {
        &self.words
    }

    /// Those where the least weight has no room.
    pub(super) fn full(&self) -> u64 {
        self.full.load(Relaxed)
    }

    /// Changes a word, and the bit with it.
    fn update(&self, lane: usize, change: impl Fn(Reserve) -> Option<Reserve>) -> Option<Changed> {
        let word = &self.words[lane];
        let old = word.update(&change)?;
        let new = change(old)?;
        let turns = old.is_full() != new.is_full();
        let hid_room = turns && keep_up(&self.full, lane, || word.load().is_full());
        Some(Changed { old, new, hid_room })
    }

    /// Begins the next tenancy. Returns its number.
    pub(super) fn open(&self, lane: usize, limit: u32) -> u16 {
        let changed = self.update(lane, |old| Some(old.with_limit(limit)));
        let old = changed.map_or(Reserve(0), |changed| changed.old);
        debug_assert_eq!(old.weight(), 0, "a place was given away that is in use");
        old.tenancy()
    }

    /// Ends the tenancy.
    pub(super) fn close(&self, lane: usize) {
        self.words[lane].close();
    }

    /// Returns whether the limit rose, or room was hidden meanwhile.
    pub(super) fn set_limit(&self, lane: usize, limit: u32) -> bool {
        let changed = self.update(lane, |old| Some(old.with_limit(limit)));
        changed.is_some_and(|changed| changed.hid_room || limit > changed.old.limit())
    }

    /// Reserves for this tenancy, unless it is over or the limit has no room.
    pub(super) fn take(&self, lane: usize, tenancy: u16, weight: u32) -> Option<Reserved> {
        let changed = self.update(lane, |old| old.take(tenancy, weight));
        changed.map(|changed| changed.reserved())
    }

    /// Counts weight that is there already, whatever the limit says, unless the tenancy is over.
    pub(super) fn force(&self, lane: usize, tenancy: u16, weight: u32) -> Option<Reserved> {
        let changed = self.update(lane, |old| old.with(tenancy, weight));
        changed.map(|changed| changed.reserved())
    }

    /// Returns whether that was the last that was open. Whoever gives back calls who waits in any case.
    pub(super) fn release(&self, lane: usize, weight: u32) -> bool {
        let changed = (weight > 0).then(|| self.update(lane, |old| Some(old.release(weight))));
        changed.flatten().is_some_and(|changed| changed.new.weight() == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_to_themselves_at_their_edges() {
        for (tenancy, limit, weight) in [
            (0, 0, 0),
            (u16::MAX, Reserve::UNLIMITED, Reserve::UNLIMITED),
            (7, Reserve::UNLIMITED - 1, 1),
        ] {
            let word = Reserve::new(tenancy, limit, weight);
            assert_eq!(
                (word.tenancy(), word.limit(), word.weight()),
                (tenancy, limit, weight)
            );
        }
        let over = Reserve::new(1, u32::MAX, u32::MAX);
        assert_eq!(over, Reserve::new(1, Reserve::UNLIMITED, Reserve::UNLIMITED));
    }

    #[test]
    fn what_fits() {
        const MAX: u32 = Reserve::UNLIMITED;
        // limit, open, asked, whether it fits
        for (limit, open, asked, fits) in [
            (4, 0, 1, true),
            (4, 3, 1, true),
            (4, 3, 2, false),
            (4, 4, 1, false),
            (4, 0, 9, true),
            (4, 0, u32::MAX, true),
            (4, 1, 9, false),
            (4, 9, 1, false),
            (4, 9, 0, true),
            (0, 0, 1, false),
            (0, 0, 9, false),
            (0, 0, 0, true),
            (0, 3, 0, true),
            (MAX, MAX, 1, true),
            (MAX, MAX, u32::MAX, true),
            (MAX - 1, MAX - 1, 1, false),
            (MAX - 1, MAX - 2, 1, true),
            (MAX - 1, 1, u32::MAX, false),
        ] {
            let word = Reserve::new(3, limit, open);
            assert_eq!(
                word.fits(asked),
                fits,
                "limit {limit}, open {open}, asked {asked}"
            );
        }
    }
}
