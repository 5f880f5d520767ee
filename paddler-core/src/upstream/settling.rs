//! Which weight is held for requests that have ended here and perhaps not yet at the engine?
//!
//! A cancelled request keeps its slot busy until the engine notices. Handing the slot on at once would queue the next
//! request behind a ghost. So the weight settles: it stays reserved until a report *sampled after the end* shows the
//! room, or a time limit passes. Cancels and samples are rare and never on the way of a pick, so a lock is fine here;
//! it also puts the ends and the samples in one order.

use std::sync::PoisonError;
use std::time::Duration;

use crate::Moment;
use crate::upstream::sync::{Mutex, MutexGuard};

#[derive(Debug)]
pub(crate) struct Settlings {
    limit: Duration,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// Samples taken so far: the number of the last one.
    samples: u64,
    /// The oldest first.
    list: Vec<Settling>,
}

#[derive(Debug)]
struct Settling {
    place: u32,
    weight: u32,
    /// The last sample before it ended: a later one shows whether the engine is free of it.
    after: u64,
    /// Set when the clock is first looked at after the end: a drop has no clock.
    deadline: Option<Moment>,
}

impl Held {
    fn weight(&self, of: impl Fn(&Settling) -> bool) -> u32 {
        let weights = self.list.iter().filter(|one| of(one)).map(|one| one.weight);
        weights.fold(0, u32::saturating_add)
    }
}

impl Settlings {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            held: Mutex::new(Held::default()),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Nothing in here can leave the list half changed.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, place: u32, weight: u32) {
        let mut held = self.held();
        let after = held.samples;
        held.list.push(Settling {
            place,
            weight,
            after,
            deadline: None,
        });
    }

    pub(crate) fn total(&self) -> u64 {
        let held = self.held();
        held.list.iter().map(|one| u64::from(one.weight)).sum()
    }

    /// By place, where anything settles.
    #[cfg(feature = "manage")]
    pub(crate) fn by_place(&self) -> std::collections::HashMap<u32, u32> {
        let mut weights = std::collections::HashMap::new();
        for one in &self.held().list {
            let weight: &mut u32 = weights.entry(one.place).or_default();
            *weight = weight.saturating_add(one.weight);
        }
        weights
    }

    /// Begins a sample: its number, the weight that settles at the place, and what `read` reads in the same moment.
    pub(crate) fn sample<T>(&self, place: u32, read: impl FnOnce() -> T) -> (u64, u32, T) {
        let mut held = self.held();
        held.samples += 1;
        (held.samples, held.weight(|one| one.place == place), read())
    }

    /// Gives back what sample number `sample` proves to be free at the place: of what had ended before it, the engine
    /// can still be at no more than `ghosts`. Returns whether anything was given back.
    pub(crate) fn confirm(&self, place: u32, sample: u64, ghosts: u32, mut release: impl FnMut(u32)) -> bool {
        let mut held = self.held();
        let ended = |one: &Settling| one.place == place && one.after < sample;
        let mut free = held.weight(ended).saturating_sub(ghosts);
        if free == 0 {
            return false;
        }
        // The oldest first: it is the likeliest to be gone.
        held.list.retain_mut(|one| {
            if ended(one) {
                let part = free.min(one.weight);
                release(part);
                one.weight -= part;
                free -= part;
            }
            one.weight > 0
        });
        true
    }

    /// Ends what is over its time; returns when the next one will be.
    pub(crate) fn expire(&self, now: Moment, mut release: impl FnMut(u32, u32)) -> Option<Moment> {
        let mut held = self.held();
        held.list.retain_mut(|one| {
            let deadline = *one.deadline.get_or_insert(now.saturating_add(self.limit));
            if deadline <= now {
                release(one.place, one.weight);
            }
            deadline > now
        });
        held.list.iter().filter_map(|one| one.deadline).min()
    }
}
