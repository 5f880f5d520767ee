//! What do scans and people read of the ledger?
//!
//! A scan reads a word or a column of a chunk at a time. Chunks that nobody has a place in read as zero.

use crate::upstream::adapters::{AdapterCells, NameId};
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
    /// All that is said of the upstreams of one word of the candidate set in bits.
    pub(crate) fn marks(&self, word: usize) -> Marks {
        let Some(chunk) = self.known_chunk(word) else {
            return Marks {
                full: u64::MAX,
                ..Marks::default()
            };
        };
        let drained = chunk.shown.barred.load(Relaxed);
        Marks {
            shut: drained | chunk.gates.closed(),
            drained,
            probing: chunk.gates.probing(),
            last_resort: chunk.gates.last_resort(),
            full: chunk.reserve.full(),
            in_use: chunk.shown.in_use.load(Relaxed),
            with_adapters: chunk.shown.with_adapters.load(Relaxed),
        }
    }

    /// What is open at this place of the snapshot in force.
    pub fn own_load(&self, upstream: UpstreamIndex) -> OwnLoad {
        let lane = upstream.get() % LANES;
        let Some(chunk) = self.known_chunk(upstream.get() / LANES) else {
            return OwnLoad::default();
        };
        let word = chunk.reserve.word(lane).load();
        OwnLoad {
            weight: word.weight(),
            limit: Some(word.limit()).filter(|limit| *limit != Reserve::UNLIMITED),
            requests: chunk.requests[lane].load(Relaxed),
            prefill_tokens: chunk.prefill[lane].load(Relaxed),
            adapter_requests: chunk.adapter_leases[lane].load(Relaxed),
        }
    }

    /// Copies what is open at each place of one chunk, and the limits, each pair read at once.
    pub(crate) fn freeze_reserves(&self, chunk: usize, open: &mut [u32; LANES], limit: &mut [u32; LANES]) {
        let Some(chunk) = self.known_chunk(chunk) else {
            (*open, *limit) = ([0; LANES], [0; LANES]);
            return;
        };
        for (lane, word) in chunk.reserve.words().iter().enumerate() {
            let word = word.glance();
            (open[lane], limit[lane]) = (word.weight(), word.limit());
        }
    }

    /// Copies what is open at these places of one chunk.
    pub(crate) fn freeze_weight(&self, chunk: usize, lanes: u64, into: &mut [u32; LANES]) {
        let from = self.known_chunk(chunk).map(|chunk| chunk.reserve.words());
        copy(from, lanes, into, |word| word.glance().weight());
    }

    /// Copies how many requests are open at these places of one chunk.
    pub(crate) fn freeze_requests(&self, chunk: usize, lanes: u64, into: &mut [u32; LANES]) {
        let from = self.known_chunk(chunk).map(|chunk| &chunk.requests);
        copy(from, lanes, into, |requests| requests.load(Relaxed));
    }

    /// Copies how many prompt tokens are under way at these places of one chunk.
    pub(crate) fn freeze_prefill(&self, chunk: usize, lanes: u64, into: &mut [u64; LANES]) {
        let from = self.known_chunk(chunk).map(|chunk| &chunk.prefill);
        copy(from, lanes, into, |tokens| tokens.load(Relaxed));
    }

    /// Calls `each` with every one of these places of one chunk on which adapters have open leases, and those adapters: one can
    /// come twice.
    pub(crate) fn open_adapters(&self, chunk: usize, lanes: u64, mut each: impl FnMut(usize, Adapters<'_>)) {
        let Some(known) = self.known_chunk(chunk) else {
            return;
        };
        for_each_lane(lanes, |lane| {
            if known.adapter_leases[lane].load(Relaxed) > 0 {
                each(chunk * LANES + lane, Adapters(&known.adapters[lane]));
            }
        });
    }
}

/// What is said of the upstreams of a word of the candidate set in bits, each word of them read once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Marks {
    /// They get nothing now, whether barred or out for their health.
    pub(crate) shut: u64,
    /// The operator has taken them out.
    pub(crate) drained: u64,
    /// They let in one request with weight at a time.
    pub(crate) probing: u64,
    /// They are out for their health, and get what nobody else could serve.
    pub(crate) last_resort: u64,
    /// The least weight has no room there.
    pub(crate) full: u64,
    /// Something of ours is open or settles there. At all others each of our counters is zero.
    pub(crate) in_use: u64,
    /// An adapter has an open lease there.
    pub(crate) with_adapters: u64,
}

/// The adapters that have open leases at an upstream.
pub(crate) struct Adapters<'a>(&'a AdapterCells);

impl Adapters<'_> {
    pub(crate) fn for_each(&self, each: impl FnMut(NameId)) {
        self.0.for_each_open(each);
    }
}

/// Copies some places of a column. Where they are many it looks at all, without a branch; the others are zero then.
fn copy<A, T: Copy + Default>(
    from: Option<&[A; LANES]>,
    lanes: u64,
    into: &mut [T; LANES],
    read: impl Fn(&A) -> T,
) {
    const MANY: u32 = 16;
    let Some(from) = from else { return };
    if lanes.count_ones() < MANY {
        return for_each_lane(lanes, |lane| into[lane] = read(&from[lane]));
    }
    for (lane, (from, into)) in from.iter().zip(into).enumerate() {
        let value = read(from);
        *into = if lanes >> lane & 1 == 1 {
            value
        } else {
            T::default()
        };
    }
}

fn for_each_lane(mut lanes: u64, mut each: impl FnMut(usize)) {
    while lanes != 0 {
        let lane = lanes.trailing_zeros() as usize;
        lanes &= lanes - 1;
        if lane < LANES {
            each(lane);
        }
    }
}
