//! Which weight is held for requests that have ended here and perhaps not yet at the engine?
//!
//! A cancelled request keeps its slot busy until the engine notices. Handing the slot on at once would queue the next
//! request behind a ghost. So the weight settles: it stays reserved until a report *sampled after the end* shows the
//! room, or a time limit passes. Cancels are rare and never on the way of a pick, so a lock is fine here.

use std::sync::Mutex;
use std::time::Duration;

use crate::Moment;
use crate::upstream::ledger::SampleToken;

#[derive(Debug)]
pub(crate) struct Settlings {
    limit: Duration,
    held: Mutex<Vec<Settling>>,
}

#[derive(Debug)]
struct Settling {
    slot: u32,
    weight: u32,
    /// The last sample that had been taken when it ended: a later one shows whether the engine is free of it.
    after: u64,
    /// Set when the clock is first looked at after the end: a drop has no clock.
    deadline: Option<Moment>,
}

impl Settlings {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            held: Mutex::new(Vec::new()),
        }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Vec<Settling>> {
        // Nothing in here can leave the list half changed.
        self.held
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn add(&self, slot: u32, weight: u32, after: u64) {
        self.held().push(Settling {
            slot,
            weight,
            after,
            deadline: None,
        });
    }

    pub(crate) fn total(&self) -> u64 {
        self.held()
            .iter()
            .map(|settling| u64::from(settling.weight))
            .sum()
    }

    /// Weight that a sample proves to be free: of what we held there, the engine shows only `reported`, and the
    /// requests that are still open come first in that.
    pub(crate) fn confirm(&self, slot: u32, token: SampleToken, reported: u32) -> u32 {
        let mut held = self.held();
        let ended = |settling: &Settling| settling.slot == slot && settling.after < token.sequence;
        let settling: u32 = held.iter().filter(|s| ended(s)).map(|s| s.weight).sum();
        let open = token.own.saturating_sub(settling);
        let mut free = settling - settling.min(reported.saturating_sub(open));
        let freed = free;
        // The oldest first: it is the likeliest to be gone.
        held.retain_mut(|settling| {
            if free == 0 || !ended(settling) {
                return true;
            }
            let part = free.min(settling.weight);
            settling.weight -= part;
            free -= part;
            settling.weight > 0
        });
        freed
    }

    /// Ends what is over its time; returns when the next one will be.
    pub(crate) fn expire(&self, now: Moment, mut ended: impl FnMut(u32, u32)) -> Option<Moment> {
        let mut held = self.held();
        held.retain_mut(|settling| {
            let deadline = *settling.deadline.get_or_insert(now.saturating_add(self.limit));
            if deadline <= now {
                ended(settling.slot, settling.weight);
            }
            deadline > now
        });
        held.iter().filter_map(|settling| settling.deadline).min()
    }
}
