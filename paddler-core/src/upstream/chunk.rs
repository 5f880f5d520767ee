//! Where do the counters of an upstream lie?
//!
//! In a chunk of [`LANES`] places, which is a word of the candidate set. A chunk is made when its first place is given away,
//! and never moves.
//!
//! A pick reads words of bits of every upstream: who is out, who is full, who is in use at all. They lie in three cache lines
//! for all of a chunk. Those of health are hardly ever written, and have a line of their own; those of use, with what the operator says beside them, change where a lease is the first or
//! the last at its upstream, or takes or gives the last room, and so are not written by most leases. The counters themselves are
//! read where something is open alone. They lie side by side, one array a counter, and a lease writes to three of them: two
//! upstreams can so share a cache line, which is the price of scans that walk memory in line. What only one upstream is asked for
//! (its adapters, its young weight) has cache lines of its own.

use std::sync::OnceLock;

use crate::upstream::LANES;
use crate::upstream::adapters::AdapterCells;
use crate::upstream::gates::{Gates, is_set, keep_up, put};
use crate::upstream::reserve::Reserves;
use crate::upstream::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::upstream::young::YoungWeight;

/// How many there may be.
pub(super) const CHUNKS: usize = 512;

pub(super) struct Chunk {
    pub(super) shown: Shown,
    pub(super) reserve: Reserves,
    pub(super) requests: [AtomicU32; LANES],
    pub(super) prefill: [AtomicU64; LANES],
    pub(super) adapter_leases: [AtomicU32; LANES],
    pub(super) adapters: [AdapterCells; LANES],
    pub(super) young: [YoungWeight; LANES],
    pub(super) gates: Gates,
}

/// Words of bits that scans read, beside those of [`Reserves`] and [`Gates`].
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Shown {
    /// Where anything of ours is open or settles: at all others each of our counters is zero.
    pub(super) in_use: AtomicU64,
    /// Where an adapter has an open lease.
    pub(super) with_adapters: AtomicU64,
    /// Taken out by the operator.
    pub(super) barred: AtomicU64,
}

impl Chunk {
    pub(super) fn new() -> Self {
        Self {
            shown: Shown::default(),
            reserve: Reserves::default(),
            requests: std::array::from_fn(|_| AtomicU32::new(0)),
            prefill: std::array::from_fn(|_| AtomicU64::new(0)),
            adapter_leases: std::array::from_fn(|_| AtomicU32::new(0)),
            adapters: std::array::from_fn(|_| AdapterCells::default()),
            young: std::array::from_fn(|_| YoungWeight::default()),
            gates: Gates::default(),
        }
    }

    /// One more request. To be told before anything else of it.
    pub(super) fn begin(&self, lane: usize) {
        // Who was the last may be about to take the bit back once more: until then this would look idle to all.
        if self.requests[lane].fetch_add(1, Relaxed) == 0 || !is_set(&self.shown.in_use, lane) {
            put(&self.shown.in_use, lane, true);
        }
    }

    /// One less. To be told after all else of it was given back.
    pub(super) fn end(&self, lane: usize) {
        // Who is the last sees what those before him have given back.
        if self.requests[lane].fetch_sub(1, AcqRel) == 1 {
            self.look_for_use(lane);
        }
    }

    /// Gives back weight; `settled`: that of a request which has ended before.
    pub(super) fn release(&self, lane: usize, weight: u32, settled: bool) {
        // Whether another one is still open is not asked before the bit is written: he may end just now, and ask the same of this.
        if self.reserve.release(lane, weight) && settled {
            self.look_for_use(lane);
        }
    }

    /// Whether nothing is open and nothing settles.
    pub(super) fn is_quiet(&self, lane: usize) -> bool {
        self.reserve.word(lane).load().weight() == 0 && self.requests[lane].load(Acquire) == 0
    }

    fn look_for_use(&self, lane: usize) {
        keep_up(&self.shown.in_use, lane, || !self.is_quiet(lane));
    }

    /// One more request with an adapter that has a cell.
    pub(super) fn begin_adapter(&self, lane: usize) {
        if self.adapter_leases[lane].fetch_add(1, Relaxed) == 0 || !is_set(&self.shown.with_adapters, lane) {
            put(&self.shown.with_adapters, lane, true);
        }
    }

    /// One less.
    pub(super) fn end_adapter(&self, lane: usize) {
        if self.adapter_leases[lane].fetch_sub(1, Relaxed) == 1 {
            let leases = &self.adapter_leases[lane];
            keep_up(&self.shown.with_adapters, lane, || leases.load(Relaxed) > 0);
        }
    }
}

/// All of them, by place.
pub(super) struct Chunks(Box<[OnceLock<Box<Chunk>>]>);

impl Chunks {
    pub(super) fn new() -> Self {
        Self((0..CHUNKS).map(|_| OnceLock::new()).collect())
    }

    /// The chunk of a place, and where the place lies in it.
    pub(super) fn of(&self, place: u32) -> (&Chunk, usize) {
        let (chunk, lane) = (place as usize / LANES, place as usize % LANES);
        (self.0[chunk].get_or_init(|| Box::new(Chunk::new())), lane)
    }

    /// A chunk, if any of its places was ever given away.
    pub(super) fn known(&self, chunk: usize) -> Option<&Chunk> {
        self.0.get(chunk)?.get().map(|chunk| &**chunk)
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().filter(|chunk| chunk.get().is_some()).count()
    }
}
