//! Where do the counters of an upstream lie?
//!
//! In a chunk of [`LANES`] places, which is a word of the candidate set. A chunk is made when its first place is given away,
//! and never moves.
//!
//! What a pick reads of every upstream lies side by side, one array a counter; a lease writes to three of them. Two
//! upstreams can so share a cache line, which is the price of scans that walk memory in line. What only one upstream is
//! asked for (its adapters, its young weight) has cache lines of its own.

use std::sync::OnceLock;

use crate::upstream::LANES;
use crate::upstream::adapters::AdapterCells;
use crate::upstream::gates::Gates;
use crate::upstream::reserve::ReserveWord;
use crate::upstream::sync::atomic::{AtomicU32, AtomicU64};
use crate::upstream::young::YoungWeight;

/// How many there may be.
pub(super) const CHUNKS: usize = 512;

pub(super) struct Chunk {
    pub(super) reserve: [ReserveWord; LANES],
    pub(super) requests: [AtomicU32; LANES],
    pub(super) prefill: [AtomicU64; LANES],
    pub(super) adapter_leases: [AtomicU32; LANES],
    pub(super) adapters: [AdapterCells; LANES],
    pub(super) young: [YoungWeight; LANES],
    /// Taken out by the operator.
    pub(super) barred: AtomicU64,
    pub(super) gates: Gates,
}

impl Chunk {
    pub(super) fn new() -> Self {
        Self {
            reserve: std::array::from_fn(|_| ReserveWord::default()),
            requests: std::array::from_fn(|_| AtomicU32::new(0)),
            prefill: std::array::from_fn(|_| AtomicU64::new(0)),
            adapter_leases: std::array::from_fn(|_| AtomicU32::new(0)),
            adapters: std::array::from_fn(|_| AdapterCells::default()),
            young: std::array::from_fn(|_| YoungWeight::default()),
            barred: AtomicU64::new(0),
            gates: Gates::default(),
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
