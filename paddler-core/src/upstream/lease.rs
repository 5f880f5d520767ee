//! Who holds what on an upstream, and until when?

use std::fmt;
use std::sync::Arc;

use crate::Moment;
use crate::health::{Fault, FaultReceipt, HealthBook, Verdict};
use crate::status::Snapshot;
use crate::upstream::adapters::NameId;
use crate::upstream::ledger::{Take, Taken};
use crate::upstream::{RoomTaken, UpstreamId, UpstreamIndex};

/// How far a request has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Stage {
    /// It may be sent.
    Reserved,
    /// The upstream may be working on it.
    Sent,
    /// Its answer has begun: the prompt has been read.
    FirstByte,
}

/// The right to use an upstream for one request. It is taken at the pick and given back once, on every path.
///
/// A lease ends when the *engine* is free, not when we stop reading. [`complete`](Self::complete) says that the answer
/// has come to its end. Dropped before [`sent`](Self::sent), the lease gives everything back at once. Dropped after it,
/// the request counts as cancelled and its weight *settles*: it stays reserved until a report sampled later shows the
/// room, or the settle time passes.
///
/// It works without forwarding: whoever sends the request tells the lease how far it has come, and with
/// [`report`](Self::report) how it went, so that an upstream which fails is left out.
#[must_use = "a dropped lease is given back"]
pub struct Lease {
    health: Arc<HealthBook>,
    id: UpstreamId,
    // `None` once it has been given back.
    taken: Option<Taken>,
    /// What it takes of the room of its model, where that is told.
    room: Option<RoomTaken>,
    adapter: Option<NameId>,
    weight: u32,
    stage: Stage,
    /// Its answer has begun, and is a good one as far as it was told.
    answered: bool,
}

impl Lease {
    pub(crate) fn new(
        health: Arc<HealthBook>,
        id: UpstreamId,
        (taken, room): (Taken, Option<RoomTaken>),
        take: Take,
    ) -> Self {
        let Take { weight, adapter, .. } = take;
        Self {
            health,
            id,
            taken: Some(taken),
            room,
            adapter,
            weight,
            stage: Stage::Reserved,
            answered: false,
        }
    }

    /// The upstream that may be used.
    pub fn upstream(&self) -> &UpstreamId {
        &self.id
    }

    /// How far the request has come.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The weight that is counted: what was asked for, at most the upstream's limit. After
    /// [`move_to`](Self::move_to) it is all that was asked for.
    pub fn weight(&self) -> u32 {
        self.taken.as_ref().map_or(0, |taken| taken.weight)
    }

    /// The request is on its way: from now on the upstream may be working on it.
    pub fn sent(&mut self) {
        self.stage = self.stage.max(Stage::Sent);
    }

    /// The answer has begun, so the prompt has been read.
    pub fn first_byte(&mut self) {
        self.stage = Stage::FirstByte;
        if let Some(taken) = &mut self.taken {
            self.health.ledger().prefilled(taken);
        }
    }

    /// How it went: to be told once the head of the answer is here, or the request has failed; and again if the answer
    /// breaks off later. What it means for the upstream is seen by the next pick, without a publish.
    ///
    /// A fault comes with a receipt, for when it turns out to be the request's own.
    ///
    /// Of a request without weight only [`Fault::Unreachable`] is heard: what costs an engine nothing says nothing of the
    /// work that does.
    pub fn report(&mut self, verdict: Verdict, now: Moment) -> Option<FaultReceipt> {
        if self.weight == 0 && verdict != Verdict::Fault(Fault::Unreachable) {
            return None;
        }
        let taken = self.taken.as_mut()?;
        // Who is busy says nothing of how he is: the next one may find out once this one has ended.
        let probe = taken.probe().filter(|_| !matches!(verdict, Verdict::Busy(_)));
        self.answered = verdict == Verdict::Answered;
        let place = (taken.place, taken.tenancy);
        let receipt = self.health.report(place, verdict, probe, now);
        // Only now, so that no other one is let in before what this one found is in force.
        if probe.is_some() {
            self.health.ledger().end_probe(taken);
        }
        receipt
    }

    /// The answer has come to its end, or the upstream has refused the work: the engine is free.
    pub fn complete(mut self) {
        // First, as whoever waits looks when the ledger tells him.
        self.room = None;
        if let Some(taken) = self.taken.take() {
            if self.answered {
                self.health.completed((taken.place, taken.tenancy));
            }
            self.health.ledger().give_back(taken);
        }
    }

    /// Another upstream serves the request than the one that was picked, as Envoy tells after the fact. The lease counts
    /// there from now on, even above its limit, because the request is there already.
    ///
    /// # Errors
    /// The index, when the snapshot has no upstream there, or it has left since, or the snapshot is another board's. The
    /// lease then stays where it was.
    pub fn move_to(&mut self, snapshot: &Snapshot, upstream: UpstreamIndex) -> Result<(), UpstreamIndex> {
        let entry = snapshot.entry(upstream).ok_or(upstream)?;
        if !Arc::ptr_eq(&self.health, snapshot.health_book()) {
            return Err(upstream);
        }
        let Some(taken) = &self.taken else { return Ok(()) };
        if taken.place == upstream.0 && entry.spec.id == self.id {
            return Ok(());
        }
        let take = Take {
            weight: self.weight,
            tokens: taken.tokens,
            adapter: self.adapter,
        };
        // Counted twice for a moment, and never not at all.
        let ledger = self.health.ledger();
        let moved = ledger
            .take_over(upstream.0, entry.tenancy, take, taken)
            .ok_or(upstream)?;
        // Whoever waits looks when the ledger tells him, and finds the room free then.
        self.room = None;
        if let Some(left) = self.taken.replace(moved) {
            ledger.give_back(left);
        }
        self.id = entry.spec.id.clone();
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Who is cancelled settles at the router that it was sent to, which has seen it end.
        self.room = None;
        if let Some(taken) = self.taken.take() {
            let ledger = self.health.ledger();
            if self.stage == Stage::Reserved {
                ledger.give_back(taken);
            } else {
                ledger.settle_later(taken);
            }
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("upstream", &self.id)
            .field("stage", &self.stage)
            .field("weight", &self.weight())
            .finish()
    }
}
