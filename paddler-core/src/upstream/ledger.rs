//! What is open on each upstream right now, by our own count?
//!
//! The ledger holds what no report can tell in time: the requests that we ourselves have sent and not seen end. It is
//! shared by all threads without a lock on the way of a pick. Each upstream has one place, given when it joins and kept
//! until it has left *and* nothing is open on it; places lie in chunks of 64, so that a chunk is a word of the
//! candidate set and the ledger grows without moving.
//!
//! The reservation is the promise: weight and limit share one word with the number of the place's tenant, so
//! compare-and-swap can neither exceed the limit nor land on another upstream that got the place since.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::Moment;
use crate::upstream::adapters::{AdapterCells, Cell, NameId};
use crate::upstream::settling::Settlings;
use crate::upstream::young::YoungWeight;

/// Upstreams in a chunk: the bits of a word.
pub(crate) const CHUNK: usize = 64;
const CHUNKS: usize = 512;

/// The counters of up to 32,768 upstreams. See the module for how.
pub struct Ledger {
    chunks: Box<[OnceLock<Box<Chunk>>]>,
    settlings: Settlings,
    samples: AtomicU64,
    freed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct Chunk {
    reserve: [AtomicU64; CHUNK],
    requests: [AtomicU32; CHUNK],
    prefill: [AtomicU64; CHUNK],
    adapter_leases: [AtomicU32; CHUNK],
    adapters: [AdapterCells; CHUNK],
    young: [YoungWeight; CHUNK],
    barred: AtomicU64,
}

impl Chunk {
    fn new() -> Self {
        Self {
            reserve: [const { AtomicU64::new(0) }; CHUNK],
            requests: [const { AtomicU32::new(0) }; CHUNK],
            prefill: [const { AtomicU64::new(0) }; CHUNK],
            adapter_leases: [const { AtomicU32::new(0) }; CHUNK],
            adapters: std::array::from_fn(|_| AdapterCells::default()),
            young: std::array::from_fn(|_| YoungWeight::default()),
            barred: AtomicU64::new(0),
        }
    }
}

/// One word: tenant (16 bits), limit (24), weight (24).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reserve(pub(crate) u64);

impl Reserve {
    const FIELD: u64 = (1 << 24) - 1;
    /// No limit. Also the largest weight that can be open on one upstream.
    pub(crate) const UNLIMITED: u32 = Self::FIELD as u32;

    fn new(tenant: u16, limit: u32, weight: u32) -> Self {
        let limit = limit.min(Self::UNLIMITED);
        Self((u64::from(tenant) << 48) | (u64::from(limit) << 24) | (u64::from(weight) & Self::FIELD))
    }

    pub(crate) fn tenant(self) -> u16 {
        (self.0 >> 48) as u16
    }

    pub(crate) fn limit(self) -> u32 {
        ((self.0 >> 24) & Self::FIELD) as u32
    }

    pub(crate) fn weight(self) -> u32 {
        (self.0 & Self::FIELD) as u32
    }

    /// Whether `weight` more fits. A request heavier than the whole limit fits when nothing else is open: the engine
    /// runs its parts one after the other.
    pub(crate) fn fits(self, weight: u32) -> bool {
        self.weight().saturating_add(self.capped(weight)) <= self.limit()
    }

    /// What a request of this weight takes here: never more than the limit, or it could never run.
    pub(crate) fn capped(self, weight: u32) -> u32 {
        weight.min(self.limit().max(1))
    }
}

/// What was open on an upstream when a poll was about to be sent. A report carries it, so that our own requests are not
/// counted twice: once by us and once by the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SampleToken {
    /// Orders this sample against the ends of leases.
    pub(crate) sequence: u64,
    /// Own weight that the engine must have seen by then.
    pub(crate) own: u32,
    /// When it was taken.
    pub(crate) at: Moment,
    pub(crate) tenant: u16,
}

impl SampleToken {
    /// When the sample was taken.
    pub fn at(&self) -> Moment {
        self.at
    }

    /// Our own weight that the engine must have seen when it was taken.
    pub fn own_weight(&self) -> u32 {
        self.own
    }
}

/// What a lease took, so that exactly that is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) slot: u32,
    pub(crate) weight: u32,
    pub(crate) tokens: u32,
    cell: Option<Cell>,
    adapter: bool,
    born: u64,
}

impl Ledger {
    /// The most upstreams that can be known at once.
    pub const CAPACITY: usize = CHUNK * CHUNKS;

    /// How long after it is sent a request may still be on its way: younger ones do not count as seen by a sample.
    pub const TRANSIT: Duration = Duration::from_millis(20);

    pub(crate) fn new(settle: Duration) -> Self {
        Self {
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            settlings: Settlings::new(settle),
            samples: AtomicU64::new(0),
            freed: OnceLock::new(),
        }
    }

    /// Has `call` called whenever weight was given back or a limit rose. Only the first hook counts.
    ///
    /// It is called on the thread that freed, often inside a drop: it must be quick and must not block.
    pub fn on_freed(&self, call: impl Fn() + Send + Sync + 'static) {
        if self.freed.set(Box::new(call)).is_err() {
            tracing::warn!("a second hook for freed weight was set on one ledger; it is not used");
        }
    }

    pub(crate) fn notify(&self) {
        if let Some(call) = self.freed.get() {
            call();
        }
    }

    fn chunk(&self, slot: u32) -> (&Chunk, usize) {
        let (chunk, lane) = (slot as usize / CHUNK, slot as usize % CHUNK);
        (self.chunks[chunk].get_or_init(|| Box::new(Chunk::new())), lane)
    }

    fn reserve_word(&self, slot: u32) -> &AtomicU64 {
        let (chunk, lane) = self.chunk(slot);
        &chunk.reserve[lane]
    }

    /// The word as it is now.
    pub(crate) fn reserved(&self, slot: u32) -> Reserve {
        Reserve(self.reserve_word(slot).load(Relaxed))
    }

    /// Gives the place to a new upstream: nothing may be open on it.
    pub(crate) fn open(&self, slot: u32, limit: u32) -> u16 {
        let word = self.reserve_word(slot);
        let old = Reserve(word.load(Relaxed));
        debug_assert_eq!(old.weight(), 0);
        word.store(Reserve::new(old.tenant(), limit, 0).0, Relaxed);
        self.set_barred(slot, false);
        old.tenant()
    }

    /// Ends the tenancy: who holds an older snapshot can reserve nothing here any more; leases end as usual.
    pub(crate) fn close(&self, slot: u32) {
        self.update(slot, |old| {
            Reserve::new(old.tenant().wrapping_add(1), old.limit(), old.weight())
        });
    }

    /// Whether nothing is open and nothing settles.
    pub(crate) fn is_quiet(&self, slot: u32) -> bool {
        let (chunk, lane) = self.chunk(slot);
        self.reserved(slot).weight() == 0 && chunk.requests[lane].load(Relaxed) == 0
    }

    /// Changes the limit. A smaller one than what is open takes nothing away: it only lets nobody in until it fits.
    pub(crate) fn set_limit(&self, slot: u32, limit: u32) {
        let old = self.update(slot, |old| Reserve::new(old.tenant(), limit, old.weight()));
        if limit > old.limit() {
            self.notify();
        }
    }

    fn update(&self, slot: u32, change: impl Fn(Reserve) -> Reserve) -> Reserve {
        let word = self.reserve_word(slot);
        let mut old = Reserve(word.load(Relaxed));
        loop {
            match word.compare_exchange_weak(old.0, change(old).0, Relaxed, Relaxed) {
                Ok(_) => return old,
                Err(now) => old = Reserve(now),
            }
        }
    }

    /// Takes out of all candidate sets at once, without a publish; or lets back in.
    pub(crate) fn set_barred(&self, slot: u32, barred: bool) {
        let (chunk, lane) = self.chunk(slot);
        if barred {
            chunk.barred.fetch_or(1 << lane, Relaxed);
        } else {
            chunk.barred.fetch_and(!(1 << lane), Relaxed);
        }
    }

    /// The barred upstreams of one word of the candidate set.
    pub(crate) fn barred(&self, word: usize) -> u64 {
        self.chunks
            .get(word)
            .and_then(OnceLock::get)
            .map_or(0, |chunk| chunk.barred.load(Relaxed))
    }

    /// Reserves `weight` for tenant `tenant` of the place, unless that exceeds the limit or the tenant has left.
    pub(crate) fn try_take(&self, slot: u32, tenant: u16, take: Take, now: Moment) -> Option<Taken> {
        let word = self.reserve_word(slot);
        let mut old = Reserve(word.load(Relaxed));
        loop {
            if old.tenant() != tenant || (take.weight > 0 && !old.fits(take.weight)) {
                return None;
            }
            let weight = old.weight() + old.capped(take.weight);
            match word.compare_exchange_weak(
                old.0,
                Reserve::new(tenant, old.limit(), weight).0,
                Relaxed,
                Relaxed,
            ) {
                Ok(_) => return Some(self.account(slot, old.capped(take.weight), take, now)),
                Err(seen) => old = Reserve(seen),
            }
        }
    }

    /// Counts weight that is there already, whatever the limit says: somebody else has sent the request.
    pub(crate) fn force_take(&self, slot: u32, take: Take, now: Moment) -> Taken {
        let mut weight = 0;
        // The word has 24 bits for weight; beyond that the count stops, as no machine holds so many requests.
        let word = self.reserve_word(slot);
        let mut old = Reserve(word.load(Relaxed));
        while take.weight > 0 {
            weight = take.weight.min(Reserve::UNLIMITED - old.weight());
            let new = Reserve::new(old.tenant(), old.limit(), old.weight() + weight);
            match word.compare_exchange_weak(old.0, new.0, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(seen) => old = Reserve(seen),
            }
        }
        self.account(slot, weight, take, now)
    }

    fn account(&self, slot: u32, weight: u32, take: Take, now: Moment) -> Taken {
        let (chunk, lane) = self.chunk(slot);
        chunk.requests[lane].fetch_add(1, Relaxed);
        chunk.prefill[lane].fetch_add(u64::from(take.tokens), Relaxed);
        let born = chunk.young[lane].add(now, weight);
        let cell = take
            .adapter
            .and_then(|adapter| chunk.adapters[lane].open(adapter));
        if cell.is_some() {
            chunk.adapter_leases[lane].fetch_add(1, Relaxed);
        }
        Taken {
            slot,
            weight,
            tokens: take.tokens,
            cell,
            adapter: cell.is_some(),
            born,
        }
    }

    /// The first byte came: the prompt is no longer being read.
    pub(crate) fn prefilled(&self, taken: &mut Taken) {
        let (chunk, lane) = self.chunk(taken.slot);
        chunk.prefill[lane].fetch_sub(u64::from(taken.tokens), Relaxed);
        taken.tokens = 0;
    }

    /// Gives everything back but the weight.
    fn close_account(&self, mut taken: Taken) {
        self.prefilled(&mut taken);
        let (chunk, lane) = self.chunk(taken.slot);
        if let Some(cell) = taken.cell {
            chunk.adapters[lane].close(cell);
        }
        if taken.adapter {
            chunk.adapter_leases[lane].fetch_sub(1, Relaxed);
        }
        chunk.young[lane].remove(taken.born, taken.weight);
        chunk.requests[lane].fetch_sub(1, Relaxed);
    }

    /// The engine is free of this request: gives all of it back.
    pub(crate) fn give_back(&self, taken: Taken) {
        self.release_weight(taken.slot, taken.weight);
        self.close_account(taken);
        self.notify();
    }

    /// We have stopped listening and the engine may still be at it: the weight stays until a later sample shows the
    /// room, or the settle time has passed.
    pub(crate) fn settle_later(&self, taken: Taken) {
        if taken.weight == 0 {
            return self.give_back(taken);
        }
        self.settlings
            .add(taken.slot, taken.weight, self.samples.load(Relaxed));
        self.close_account(taken);
    }

    fn release_weight(&self, slot: u32, weight: u32) {
        if weight > 0 {
            self.update(slot, |old| {
                debug_assert!(old.weight() >= weight);
                Reserve::new(old.tenant(), old.limit(), old.weight().saturating_sub(weight))
            });
        }
    }

    /// To be taken just before a poll is sent.
    pub(crate) fn sample(&self, slot: u32, tenant: u16, now: Moment) -> SampleToken {
        let (chunk, lane) = self.chunk(slot);
        let sequence = self.samples.fetch_add(1, Relaxed) + 1;
        let young = chunk.young[lane].since(now, Self::TRANSIT);
        SampleToken {
            sequence,
            own: self.reserved(slot).weight().saturating_sub(young),
            at: now,
            tenant,
        }
    }

    /// A report sampled with `token` says that `reported` weight is at the engine: settling weight that it cannot
    /// contain is given back.
    pub(crate) fn settle(&self, slot: u32, token: SampleToken, reported: u32) {
        let freed = self.settlings.confirm(slot, token, reported);
        if freed > 0 {
            self.release_weight(slot, freed);
            self.notify();
        }
    }

    /// Gives back what has settled for too long. Returns when to come again, if anything still settles.
    pub(crate) fn expire_settling(&self, now: Moment) -> Option<Moment> {
        let mut any = false;
        let next = self.settlings.expire(now, |slot, weight| {
            self.release_weight(slot, weight);
            any = true;
        });
        if any {
            self.notify();
        }
        next
    }

    /// Weight that is reserved for requests which have ended here and perhaps not yet there.
    pub fn settling_weight(&self) -> u64 {
        self.settlings.total()
    }

    /// Copies the weight words of one chunk, each read once. Absent chunks read as zero.
    pub(crate) fn freeze_weight(&self, chunk: usize, into: &mut [u64]) {
        self.freeze(chunk, into, |chunk, lane| chunk.reserve[lane].load(Relaxed));
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
        let chunk = self.chunks.get(chunk).and_then(OnceLock::get);
        for (lane, to) in into.iter_mut().enumerate().take(CHUNK) {
            *to = chunk.map_or_else(T::default, |chunk| read(chunk, lane));
        }
    }

    /// Calls `each` with every place of one chunk on which adapters have open leases, and those adapters: one can come
    /// twice.
    pub(crate) fn open_adapters(&self, chunk: usize, mut each: impl FnMut(usize, &AdapterCells)) {
        let Some(cells) = self.chunks.get(chunk).and_then(OnceLock::get) else {
            return;
        };
        for (lane, leases) in cells.adapter_leases.iter().enumerate() {
            if leases.load(Relaxed) > 0 {
                each(chunk * CHUNK + lane, &cells.adapters[lane]);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn requests(&self, slot: u32) -> u32 {
        let (chunk, lane) = self.chunk(slot);
        chunk.requests[lane].load(Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn prefill_tokens(&self, slot: u32) -> u64 {
        let (chunk, lane) = self.chunk(slot);
        chunk.prefill[lane].load(Relaxed)
    }
}

/// What a request would take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Take {
    pub(crate) weight: u32,
    pub(crate) tokens: u32,
    pub(crate) adapter: Option<NameId>,
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chunks = self.chunks.iter().filter(|chunk| chunk.get().is_some()).count();
        f.debug_struct("Ledger")
            .field("chunks", &chunks)
            .field("settling", &self.settling_weight())
            .finish()
    }
}
