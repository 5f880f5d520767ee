//! What do scans and people read of the ledger?
//!
//! A scan reads a word or a column of a chunk at a time. Chunks that nobody has a place in read as zero.

use crate::upstream::adapters::AdapterCells;
use crate::upstream::chunk::Chunk;
use crate::upstream::ledger::Ledger;
use crate::upstream::reserve::Reserve;
use crate::upstream::sync::atomic::Ordering::Relaxed;
use crate::upstream::{LANES, UpstreamIndex};

/// What is open on one upstream by our own count, each number read once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct OwnLoad {
    /// Weight that is reserved, with what settles.
    pub weight: u32,
    /// The most weight that we may reserve: the upstream's limit without what others hold. `None` is no limit.
    pub limit: Option<u32>,
    /// Requests that have not ended, those without weight included.
    pub requests: u32,
    /// Prompt tokens that no first byte has answered yet (estimated).
    pub prefill_tokens: u64,
    /// Requests that use an adapter.
    pub adapter_requests: u32,
}

impl Ledger {
    /// The upstreams of one word of the candidate set that the operator has taken out.
    pub(crate) fn drained(&self, word: usize) -> u64 {
        self.known_chunk(word)
            .map_or(0, |chunk| chunk.barred.load(Relaxed))
    }

    /// The upstreams of one word of the candidate set that get nothing now, whether barred or out for their health.
    pub(crate) fn shut(&self, word: usize) -> u64 {
        self.known_chunk(word)
            .map_or(0, |chunk| chunk.barred.load(Relaxed) | chunk.gates.closed())
    }

    /// The upstreams of one word of the candidate set that let in one request with weight at a time.
    pub(crate) fn probing(&self, word: usize) -> u64 {
        self.known_chunk(word).map_or(0, |chunk| chunk.gates.probing())
    }

    /// The upstreams of one word of the candidate set that are out for their health, and get what nobody else could
    /// serve.
    pub(crate) fn last_resort(&self, word: usize) -> u64 {
        self.known_chunk(word)
            .map_or(0, |chunk| chunk.gates.last_resort())
    }

    /// What is open at this place of the snapshot in force.
    pub fn own_load(&self, upstream: UpstreamIndex) -> OwnLoad {
        let lane = upstream.get() % LANES;
        let Some(chunk) = self.known_chunk(upstream.get() / LANES) else {
            return OwnLoad::default();
        };
        let word = chunk.reserve[lane].load();
        OwnLoad {
            weight: word.weight(),
            limit: Some(word.limit()).filter(|limit| *limit != Reserve::UNLIMITED),
            requests: chunk.requests[lane].load(Relaxed),
            prefill_tokens: chunk.prefill[lane].load(Relaxed),
            adapter_requests: chunk.adapter_leases[lane].load(Relaxed),
        }
    }

    /// Copies the weight words of one chunk, each read once. Absent chunks read as zero.
    pub(crate) fn freeze_weight(&self, chunk: usize, into: &mut [u64]) {
        self.freeze(chunk, into, |chunk, lane| chunk.reserve[lane].glance());
    }

    /// Copies how many requests are open.
    pub(crate) fn freeze_requests(&self, chunk: usize, into: &mut [u32]) {
        self.freeze(chunk, into, |chunk, lane| chunk.requests[lane].load(Relaxed));
    }

    /// Copies how many prompt tokens are under way.
    pub(crate) fn freeze_prefill(&self, chunk: usize, into: &mut [u64]) {
        self.freeze(chunk, into, |chunk, lane| chunk.prefill[lane].load(Relaxed));
    }

    fn freeze<T: Default>(&self, chunk: usize, into: &mut [T], read: impl Fn(&Chunk, usize) -> T) {
        let Some(chunk) = self.known_chunk(chunk) else {
            return into.fill_with(T::default);
        };
        for (lane, to) in into.iter_mut().enumerate().take(LANES) {
            *to = read(chunk, lane);
        }
    }

    /// Calls `each` with every place of one chunk on which adapters have open leases, and those adapters: one can come
    /// twice.
    pub(crate) fn open_adapters(&self, chunk: usize, mut each: impl FnMut(usize, &AdapterCells)) {
        let Some(cells) = self.known_chunk(chunk) else {
            return;
        };
        for (lane, leases) in cells.adapter_leases.iter().enumerate() {
            if leases.load(Relaxed) > 0 {
                each(chunk * LANES + lane, &cells.adapters[lane]);
            }
        }
    }
}
