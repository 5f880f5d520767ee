//! What do scans and people read of the ledger?
//!
//! A scan reads a word or a column of a chunk at a time. Chunks that nobody has a place in read as zero.

use crate::upstream::adapters::AdapterCells;
use crate::upstream::ledger::Ledger;
use crate::upstream::reserve::{Reserve, ReserveWord};
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

    /// Copies what is open at each place of one chunk, and the limits, each pair read at once.
    pub(crate) fn freeze_weight(&self, chunk: usize, open: &mut [u32; LANES], limit: &mut [u32; LANES]) {
        let Some(chunk) = self.known_chunk(chunk) else {
            (*open, *limit) = ([0; LANES], [0; LANES]);
            return;
        };
        // Read first, and taken apart then: eight at a time, which needs no branch.
        let into = open
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .zip(limit.as_chunks_mut().0);
        for (words, (open, limit)) in chunk.reserve.as_chunks::<8>().0.iter().zip(into) {
            let words = words.each_ref().map(ReserveWord::glance);
            *open = words.map(Reserve::weight);
            *limit = words.map(Reserve::limit);
        }
    }

    /// Copies how many requests are open.
    pub(crate) fn freeze_requests(&self, chunk: usize, into: &mut [u32; LANES]) {
        let from = self.known_chunk(chunk).map(|chunk| &chunk.requests);
        copy(from, into, |requests| requests.load(Relaxed));
    }

    /// Copies how many prompt tokens are under way.
    pub(crate) fn freeze_prefill(&self, chunk: usize, into: &mut [u64; LANES]) {
        let from = self.known_chunk(chunk).map(|chunk| &chunk.prefill);
        copy(from, into, |tokens| tokens.load(Relaxed));
    }

    /// Calls `each` with every place of one chunk on which adapters have open leases, and those adapters: one can come
    /// twice.
    pub(crate) fn open_adapters(&self, chunk: usize, mut each: impl FnMut(usize, &AdapterCells)) {
        let Some(cells) = self.known_chunk(chunk) else {
            return;
        };
        let (eights, _) = cells.adapter_leases.as_chunks::<8>();
        for (eight, leases) in eights.iter().enumerate() {
            // Most have none, and are passed over eight at a time.
            let open = leases.each_ref().map(|leases| leases.load(Relaxed));
            if open.iter().fold(0, |any, open| any | open) == 0 {
                continue;
            }
            for (lane, _) in open.iter().enumerate().filter(|(_, open)| **open > 0) {
                let lane = eight * 8 + lane;
                each(chunk * LANES + lane, &cells.adapters[lane]);
            }
        }
    }
}

/// Copies a column eight at a time, which needs no branch.
fn copy<A, T: Copy + Default>(from: Option<&[A; LANES]>, into: &mut [T; LANES], read: impl Fn(&A) -> T) {
    let Some(from) = from else {
        *into = [T::default(); LANES];
        return;
    };
    for (from, into) in from.as_chunks::<8>().0.iter().zip(into.as_chunks_mut().0) {
        *into = from.each_ref().map(&read);
    }
}
