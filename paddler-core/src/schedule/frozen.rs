//! What were our own counters when the walk began?
//!
//! Each is read once, into memory that the caller owns, and the walk looks at that. So a relative filter cannot
//! contradict itself while leases come and go, and a record of what was read replays exactly.

use serde::{Deserialize, Serialize};

use super::context::Reads;
use crate::status::{ModelRow, Snapshot, bit, set};
use crate::upstream::{CHUNK, FrozenLanes};

/// The frozen columns, in the order of places. What the tree does not look at is empty.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Frozen {
    pub(crate) reserve: Vec<u64>,
    pub(crate) requests: Vec<u32>,
    pub(crate) prefill: Vec<u64>,
    /// Upstreams taken out at once: draining or ejected.
    pub(crate) barred: Vec<u64>,
    /// Upstreams where we ourselves have an open lease with the adapter asked for.
    pub(crate) own_active: Vec<u64>,
    /// Adapters with an open lease of ours that the upstream has not reported.
    pub(crate) own_adapters: Vec<u8>,
}

impl Frozen {
    pub(crate) fn read(&mut self, snapshot: &Snapshot, model: Option<&ModelRow>, reads: Reads) {
        let words = snapshot.entries.len().div_ceil(CHUNK);
        self.barred.clear();
        self.barred
            .extend((0..words).map(|word| snapshot.ledger.barred(word)));
        self.load(snapshot, if reads.contains(Reads::LOAD) { words } else { 0 });
        self.adapters(
            snapshot,
            model,
            if reads.contains(Reads::ADAPTERS) { words } else { 0 },
        );
    }

    fn load(&mut self, snapshot: &Snapshot, words: usize) {
        let places = words * CHUNK;
        self.reserve.resize(places, 0);
        self.requests.resize(places, 0);
        self.prefill.resize(places, 0);
        let lanes = self
            .reserve
            .chunks_exact_mut(CHUNK)
            .zip(self.requests.chunks_exact_mut(CHUNK));
        for (chunk, ((reserve, requests), prefill)) in
            lanes.zip(self.prefill.chunks_exact_mut(CHUNK)).enumerate()
        {
            snapshot.ledger.freeze(
                chunk,
                FrozenLanes {
                    reserve,
                    requests,
                    prefill,
                },
            );
        }
    }

    fn adapters(&mut self, snapshot: &Snapshot, model: Option<&ModelRow>, words: usize) {
        self.own_active.clear();
        self.own_active.resize(words, 0);
        self.own_adapters.clear();
        self.own_adapters.resize(words * CHUNK, 0);
        if words == 0 {
            return;
        }
        let asked = model.map(|row| row.id);
        for (upstream, _) in snapshot.iter() {
            let slot = upstream.get();
            // A name can stand in two cells, so look for it among those that were seen before.
            let mut seen = [None; 16];
            let mut unreported = 0;
            snapshot.ledger.open_adapters(upstream.0, |name| {
                if Some(name) == asked {
                    set(&mut self.own_active, slot);
                }
                if !seen.contains(&Some(name)) && !snapshot.names.reports_active(slot, name) {
                    seen[unreported % seen.len()] = Some(name);
                    unreported += 1;
                }
            });
            self.own_adapters[slot] = u8::try_from(unreported).unwrap_or(u8::MAX);
        }
    }

    pub(crate) fn is_barred(&self, word: usize) -> u64 {
        self.barred.get(word).copied().unwrap_or(0)
    }

    pub(crate) fn has_own_active(&self, slot: usize) -> bool {
        bit(&self.own_active, slot)
    }
}
