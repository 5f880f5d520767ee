//! What is open on each upstream right now, by our own count?
//!
//! The ledger holds what no report can tell in time: the requests that we ourselves have sent and not seen end. It is
//! shared by all threads without a lock on the way of a pick. Each upstream has one place, given when it joins and kept
//! until it has left *and* nothing is open on it; how places lie in memory is told in [`chunk`](super::chunk).
//!
//! # Orderings
//! Counters are independent of each other, and relaxed. Four facts span several of them:
//! - *Shown.* A bit that says something of a counter to scans is written whenever that changes, and looked after: see
//!   [`keep_up`](super::gates::keep_up).
//! - *Quiet.* A request is counted before the word is changed, and uncounted after all else was given back. Each change
//!   of the word publishes what came before it. So after [`Ledger::close`] has changed the word, the counts of all who
//!   reserved before are seen, and whoever comes later finds another tenancy; and whoever sees the count at zero sees
//!   all else given back.
//! - *Probed.* Who is let in as a probe takes the right to it by the same step in which he finds it free, so there is one.
//! - *Sampled.* The weight is read before the young weight in it, so that requests which begin in between count as not
//!   seen by the engine. Only one that is between its two counts at that very instant counts as seen.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use crate::Moment;
use crate::upstream::LANES;
use crate::upstream::adapters::{Cell, NameId};
use crate::upstream::chunk::{CHUNKS, Chunk, Chunks};
use crate::upstream::gates::{Entry, Gate, Probe, is_set, put};
use crate::upstream::reserve::{Reserve, Reserved, Reserves};
use crate::upstream::settling::Settlings;
use crate::upstream::sync::atomic::Ordering::Relaxed;
use crate::upstream::young::Span;

/// The counters of up to 32,768 upstreams. See the module for how.
pub struct Ledger {
    chunks: Chunks,
    settlings: Settlings,
    freed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// What was open on an upstream when a poll was about to be sent. A report carries it, so that our own requests are not
/// counted twice: once by us and once by the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SampleToken {
    /// Orders samples among each other, and against the ends of leases.
    pub(crate) sequence: u64,
    /// Own weight that the engine must have seen by then.
    pub(crate) own: u32,
    /// How much of that was settling.
    pub(crate) settling: u32,
    /// When it was taken.
    pub(crate) at: Moment,
    /// Whose it is: the place alone may be another upstream's by now.
    pub(crate) place: u32,
    pub(crate) tenancy: u16,
    /// Somebody beside the engine had asked it, so long before this was taken: where requests go on from here to it is not known
    /// by that, and what has ended in between may have been seen.
    pub(crate) told: Option<Duration>,
}

impl SampleToken {
    /// The same for what somebody tells who has asked so long ago.
    #[cfg(feature = "proxy")]
    pub(crate) fn told(self, age: Duration) -> Self {
        Self {
            told: Some(age),
            ..self
        }
    }

    /// The same, where nothing of ours was there.
    #[cfg(feature = "proxy")]
    pub(crate) fn of_nothing(self) -> Self {
        Self {
            own: 0,
            settling: 0,
            ..self
        }
    }

    /// The same for what still holds at this moment: what was ours then was ours.
    #[cfg(feature = "proxy")]
    pub(crate) fn still(self, now: Moment) -> Self {
        Self {
            at: now,
            told: Some(Duration::MAX),
            ..self
        }
    }

    /// Whether a report of it can prove that the engine is free of what has ended.
    pub(crate) fn proves_room(&self) -> bool {
        self.told.is_none_or(|age| age <= Ledger::TRANSIT)
    }

    /// When the engine was asked.
    pub(crate) fn asked_at(&self) -> Moment {
        let ago = self.told.filter(|age| *age < Duration::MAX).unwrap_or_default();
        Moment::ZERO.saturating_add(self.at.since(Moment::ZERO).saturating_sub(ago))
    }

    /// When the sample was taken.
    pub fn at(&self) -> Moment {
        self.at
    }

    /// Our own weight that the engine must have seen when it was taken.
    pub fn own_weight(&self) -> u32 {
        self.own
    }
}

/// What a request would take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Take {
    pub(crate) weight: u32,
    pub(crate) tokens: u32,
    pub(crate) adapter: Option<NameId>,
}

/// What a lease took. It cannot be copied, so that it is given back once.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Taken {
    pub(crate) place: u32,
    pub(crate) tenancy: u16,
    pub(crate) weight: u32,
    pub(crate) tokens: u32,
    cell: Option<Cell>,
    born: Span,
    /// It is the one that was let in, and has not said how it went.
    probe: Option<Probe>,
}

impl Taken {
    /// The right to probe, if it is the one that was let in and has not said how it went.
    pub(crate) fn probe(&self) -> Option<Probe> {
        self.probe
    }
}

impl Ledger {
    /// The most upstreams that can be known at once.
    pub const CAPACITY: usize = LANES * CHUNKS;

    /// How long after it is sent a request may still be on its way: younger ones do not count as seen by a sample. 20 ms
    /// cover a new connection in one data centre and the tokenising of a prompt; a longer time would take what the engine
    /// has seen for unseen, and so count it twice.
    pub const TRANSIT: Duration = Duration::from_millis(20);

    pub(crate) fn new(settle: Duration) -> Self {
        Self {
            chunks: Chunks::new(),
            settlings: Settlings::new(settle),
            freed: OnceLock::new(),
        }
    }

    /// Has `call` called whenever weight was given back or a limit rose, and where room had been hidden for a moment. Only the first
    /// hook counts.
    ///
    /// It is called on the thread that freed, often inside a drop, or on one that is just taking a place: it must be quick, must
    /// not block, and takes no lock that is held where somebody picks. No lock of the
    /// ledger is held meanwhile.
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

    fn chunk(&self, place: u32) -> (&Chunk, usize) {
        self.chunks.of(place)
    }

    pub(super) fn known_chunk(&self, chunk: usize) -> Option<&Chunk> {
        self.chunks.known(chunk)
    }

    /// The word as it is now.
    pub(crate) fn reserved(&self, place: u32) -> Reserve {
        let (chunk, lane) = self.chunk(place);
        chunk.reserve.word(lane).load()
    }

    /// Gives the place to a new upstream: nothing may be open on it. Returns the number of the tenancy.
    pub(crate) fn open(&self, place: u32, limit: u32) -> u16 {
        self.set_barred(place, false);
        let (chunk, lane) = self.chunk(place);
        chunk.gates.begin(lane, limit, &chunk.reserve);
        chunk.reserve.open(lane, limit)
    }

    /// Ends the tenancy: who holds an older snapshot can reserve nothing here any more; leases end as usual.
    pub(crate) fn close(&self, place: u32) {
        let (chunk, lane) = self.chunk(place);
        chunk.reserve.close(lane);
    }

    /// Whether nothing is open and nothing settles. After [`close`](Self::close) it stays so.
    pub(crate) fn is_quiet(&self, place: u32) -> bool {
        let (chunk, lane) = self.chunk(place);
        chunk.is_quiet(lane)
    }

    /// Changes the limit. A smaller one than what is open takes nothing away: it only lets nobody in until it fits.
    pub(crate) fn set_limit(&self, place: u32, limit: u32) {
        let (chunk, lane) = self.chunk(place);
        if chunk.gates.set_limit(lane, limit, &chunk.reserve) {
            self.notify();
        }
    }

    /// Lets requests in or not, at once; `watched`: whether a good answer is news. Returns whether more are let in than
    /// before, or than it looked for a moment.
    pub(crate) fn set_gate(&self, place: u32, gate: Gate, watched: bool) -> bool {
        let (chunk, lane) = self.chunk(place);
        chunk.gates.set(lane, gate, watched, &chunk.reserve)
    }

    /// A good answer of this tenant. Returns whether that is news.
    pub(crate) fn answered(&self, place: u32, tenancy: u16) -> bool {
        let (chunk, lane) = self.chunk(place);
        // A late answer of the one before says nothing of this one.
        chunk.reserve.word(lane).glance().tenancy() == tenancy && chunk.gates.answered(lane)
    }

    /// Whether the right to probe is still held with this.
    pub(crate) fn holds_probe(&self, place: u32, probe: Probe) -> bool {
        let (chunk, lane) = self.chunk(place);
        chunk.gates.holds_probe(lane, probe)
    }

    /// Since when a probe is under way, to the millisecond.
    pub(crate) fn probe_began(&self, place: u32) -> Option<Moment> {
        let (chunk, lane) = self.chunk(place);
        chunk.gates.probe_began(lane)
    }

    /// The probe has said how it went, and that was taken down: it is a request as any other from now on.
    pub(crate) fn end_probe(&self, taken: &mut Taken) {
        if self.return_probe(taken) {
            self.notify();
        }
    }

    /// Returns whether another one may come.
    fn return_probe(&self, taken: &mut Taken) -> bool {
        let (chunk, lane) = self.chunk(taken.place);
        let probe = taken.probe.take();
        probe.is_some_and(|probe| chunk.gates.return_probe(lane, probe))
    }

    /// Whether good answers are news.
    pub(crate) fn is_watched(&self, place: u32) -> bool {
        let (chunk, lane) = self.chunk(place);
        chunk.gates.is_watched(lane)
    }

    /// Good answers since this was last asked.
    pub(crate) fn take_answered(&self, place: u32) -> u32 {
        let (chunk, lane) = self.chunk(place);
        chunk.gates.take_answered(lane)
    }

    /// Takes out of all candidate sets at once, without a publish; or lets back in.
    pub(crate) fn set_barred(&self, place: u32, barred: bool) {
        let (chunk, lane) = self.chunk(place);
        put(&chunk.shown.barred, lane, barred);
    }

    /// Whether the operator has taken it out.
    pub(crate) fn is_barred(&self, place: u32) -> bool {
        let (chunk, lane) = self.chunk(place);
        is_set(&chunk.shown.barred, lane)
    }

    /// Reserves for a tenancy of the place, unless that exceeds the limit or the tenancy is over.
    pub(crate) fn try_take(&self, place: u32, tenancy: u16, take: Take, now: Moment) -> Option<Taken> {
        let word = self.reserved(place);
        if word.tenancy() != tenancy || !word.fits(take.weight) {
            // The usual refusal writes nothing.
            return None;
        }
        let (chunk, lane) = self.chunk(place);
        let (entry, hid_room) = chunk.gates.enter(lane, take.weight, now);
        let taken = entry.and_then(|_| {
            self.take((place, tenancy), take, Span::of(now), |reserves, lane| {
                reserves.take(lane, tenancy, take.weight)
            })
        });
        if hid_room {
            self.notify();
        }
        let Some(Entry::Probe(probe)) = entry else {
            return taken;
        };
        if taken.is_none() {
            chunk.gates.return_probe(lane, probe);
        }
        let probe = Some(probe);
        taken.map(|taken| Taken { probe, ..taken })
    }

    /// Counts at the place what was taken elsewhere, whatever the limit says: somebody else has sent the request there.
    /// `None` when the tenancy is over.
    pub(crate) fn take_over(&self, place: u32, tenancy: u16, take: Take, from: &Taken) -> Option<Taken> {
        self.take((place, tenancy), take, from.born, |reserves, lane| {
            reserves.force(lane, tenancy, take.weight)
        })
    }

    fn take(
        &self,
        (place, tenancy): (u32, u16),
        take: Take,
        born: Span,
        reserve: impl FnOnce(&Reserves, usize) -> Option<Reserved>,
    ) -> Option<Taken> {
        let (chunk, lane) = self.chunk(place);
        chunk.begin(lane);
        let Some(Reserved { weight, hid_room }) = reserve(&chunk.reserve, lane) else {
            chunk.end(lane);
            return None;
        };
        if hid_room {
            self.notify();
        }
        chunk.young[lane].add(born, weight);
        chunk.prefill[lane].fetch_add(u64::from(take.tokens), Relaxed);
        let cell = take.adapter.and_then(|name| chunk.adapters[lane].open(name));
        if cell.is_some() {
            chunk.begin_adapter(lane);
        }
        Some(Taken {
            place,
            tenancy,
            weight,
            tokens: take.tokens,
            cell,
            born,
            probe: None,
        })
    }

    /// The first byte came: the prompt is no longer being read.
    pub(crate) fn prefilled(&self, taken: &mut Taken) {
        let (chunk, lane) = self.chunk(taken.place);
        chunk.prefill[lane].fetch_sub(u64::from(taken.tokens), Relaxed);
        taken.tokens = 0;
    }

    /// Gives everything back but the weight; the request itself last, see the module.
    fn close_account(&self, mut taken: Taken) {
        self.prefilled(&mut taken);
        self.return_probe(&mut taken);
        let (chunk, lane) = self.chunk(taken.place);
        if let Some(cell) = taken.cell {
            chunk.adapters[lane].close(cell);
            chunk.end_adapter(lane);
        }
        chunk.young[lane].remove(taken.born, taken.weight);
        chunk.end(lane);
    }

    fn release(&self, place: u32, weight: u32, settled: bool) {
        let (chunk, lane) = self.chunk(place);
        chunk.release(lane, weight, settled);
    }

    /// The engine is free of this request: gives all of it back.
    pub(crate) fn give_back(&self, taken: Taken) {
        self.release(taken.place, taken.weight, false);
        self.close_account(taken);
        self.notify();
    }

    /// We have stopped listening and the engine may still be at it: the weight stays until a later sample shows the
    /// room, or the settle time has passed.
    pub(crate) fn settle_later(&self, taken: Taken) {
        if taken.weight == 0 {
            return self.give_back(taken);
        }
        self.settlings.add(taken.place, taken.weight);
        let probe = taken.probe.is_some();
        self.close_account(taken);
        if probe {
            self.notify();
        }
    }

    /// To be taken just before a poll is sent.
    pub(crate) fn sample(&self, place: u32, tenancy: u16, now: Moment) -> SampleToken {
        let (chunk, lane) = self.chunk(place);
        let (sequence, settling, own) = self.settlings.sample(place, || {
            let weight = chunk.reserve.word(lane).load().weight();
            weight.saturating_sub(chunk.young[lane].since(now, Self::TRANSIT))
        });
        SampleToken {
            sequence,
            own,
            settling,
            at: now,
            place,
            tenancy,
            told: None,
        }
    }

    /// A report sampled with `token` says that `reported` weight is at the engine. What it has beyond our requests that
    /// were open then may be ghosts of ended ones; settling weight above that is given back.
    pub(crate) fn settle(&self, token: SampleToken, reported: u32) {
        let open = token.own.saturating_sub(token.settling);
        let ghosts = reported.saturating_sub(open);
        let release = |weight| self.release(token.place, weight, true);
        if self
            .settlings
            .confirm(token.place, token.sequence, ghosts, release)
        {
            self.notify();
        }
    }

    /// Gives back what has settled for too long. Returns when to come again, if anything still settles.
    pub(crate) fn expire_settling(&self, now: Moment) -> Option<Moment> {
        let mut any = false;
        let next = self.settlings.expire(now, |place, weight| {
            self.release(place, weight, true);
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

    /// The same by place, where anything settles.
    #[cfg(feature = "manage")]
    pub(crate) fn settling_by_place(&self) -> std::collections::HashMap<u32, u32> {
        self.settlings.by_place()
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("chunks", &self.chunks.count())
            .field("settling", &self.settling_weight())
            .finish()
    }
}
