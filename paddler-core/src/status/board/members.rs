//! Who joins, changes and leaves?
//!
//! Each upstream has a place in the ledger, which it keeps until it has left and nothing is open on it. What is learned of
//! it outlives changes of its spec, and for a while also its absence: see [`away`](super::super::away).

use std::sync::Arc;

use super::{Applied, StatusBoard};
use crate::Moment;
use crate::health::Past;
use crate::status::snapshot::Entry;
use crate::upstream::{Ledger, UpstreamId, UpstreamIndex, UpstreamSpec};

impl StatusBoard {
    pub(super) fn upsert(&mut self, spec: UpstreamSpec, now: Moment) -> Applied {
        let id = spec.id.clone();
        let ledger = self.ledger.clone();
        if self
            .by_id
            .get(&id)
            .is_some_and(|index| self.has_spec(*index, &spec))
        {
            return Applied::Unchanged(id);
        }
        if let Some((index, entry)) = self.entry_mut(&id) {
            entry.generation += 1;
            let moved = entry.spec.url != spec.url;
            if moved {
                // What the machine at the old address has said is not true of this one.
                let asked_from_now_on = ledger.sample(index.0, entry.tenancy, now).sequence;
                entry.forget(asked_from_now_on);
                // Nor is what its requests come to: their leases end as usual, and their verdicts count for nobody.
                ledger.close(index.0);
                entry.tenancy = entry.tenancy.wrapping_add(1);
            }
            entry.spec = Arc::new(spec);
            ledger.set_limit(index.0, entry.own_limit());
            if moved {
                self.begin(index, &id, None);
            } else {
                self.tell_models(index);
                self.judge(index, false);
            }
            return Applied::Changed(id);
        }
        let Some(place) = self.place() else {
            tracing::error!(upstream = %id, capacity = Ledger::CAPACITY, "no place is left for another upstream");
            return Applied::Full(id);
        };
        let longest = self.options.health.longest_time;
        let past = self.away.take_past(id.as_str(), &spec.url, longest, now);
        let mut entry = Entry::new(spec);
        entry.tenancy = self.ledger.open(place, entry.own_limit());
        self.entries[place as usize] = Some(Arc::new(entry));
        Arc::make_mut(&mut self.by_id).insert(id.clone(), UpstreamIndex(place));
        if self.away.undrain(id.as_str()) {
            tracing::info!(upstream = %id, "upstream is back, and drained as it was when it left: undrain lets it in");
            self.ledger.set_barred(place, true);
        }
        self.begin(UpstreamIndex(place), &id, past);
        Applied::Joined(id)
    }

    /// Its health begins anew, with what is known against the machine at its address.
    fn begin(&self, index: UpstreamIndex, id: &UpstreamId, past: Option<Past>) {
        if let Some(entry) = &self.entries[index.get()] {
            let known = (self.known(index, entry, false), entry.serves());
            self.health
                .join((index.0, entry.tenancy), id.clone(), known, past, self.now);
        }
    }

    fn has_spec(&self, index: UpstreamIndex, spec: &UpstreamSpec) -> bool {
        let entry = self.entries[index.get()].as_ref();
        entry.is_some_and(|entry| entry.spec.same_as(spec))
    }

    /// A place on which nothing is open, the lowest first so that columns stay dense.
    fn place(&mut self) -> Option<u32> {
        let ledger = &self.ledger;
        let free = &mut self.free;
        self.leaving.retain(|place| {
            let quiet = ledger.is_quiet(*place);
            if quiet {
                free.insert(*place);
            }
            !quiet
        });
        if let Some(place) = free.pop_first() {
            return Some(place);
        }
        if self.entries.len() >= Ledger::CAPACITY {
            return None;
        }
        self.entries.push(None);
        u32::try_from(self.entries.len() - 1).ok()
    }

    pub(super) fn remove(&mut self, id: UpstreamId) -> Applied {
        let Some(index) = Arc::make_mut(&mut self.by_id).remove(&id) else {
            return Applied::Unknown(id);
        };
        let drained = self.ledger.is_barred(index.0);
        self.ledger.close(index.0);
        let past = self.health.leave(index.0, self.now);
        if let Some(entry) = self.entries[index.get()].take() {
            self.away.leave(&id, &entry.spec.url, drained, past, self.now);
        }
        self.leaving.push(index.0);
        Applied::Left(id)
    }
}
