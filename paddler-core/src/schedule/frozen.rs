//! What were our own counters when the walk began?
//!
//! Each is read once, into memory that the caller owns, and the walk looks at that. So a relative filter cannot
//! contradict itself while leases come and go, and a record of what was read replays exactly.

use serde::{Deserialize, Serialize};

use super::context::Reads;
use crate::status::{ModelRow, Snapshot, bit, set};
use crate::upstream::CHUNK;

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
        let ledger = &snapshot.ledger;
        let words = snapshot.entries.len().div_ceil(CHUNK);
        let read = |what| if reads.contains(what) { words } else { 0 };
        self.barred.clear();
        self.barred.extend((0..words).map(|word| ledger.barred(word)));
        column(&mut self.reserve, read(Reads::LOAD), |chunk, to| {
            ledger.freeze_weight(chunk, to);
        });
        column(&mut self.requests, read(Reads::REQUESTS), |chunk, to| {
            ledger.freeze_requests(chunk, to);
        });
        column(&mut self.prefill, read(Reads::PREFILL), |chunk, to| {
            ledger.freeze_prefill(chunk, to);
        });
        self.adapters(snapshot, model, read(Reads::ADAPTERS));
    }

    fn adapters(&mut self, snapshot: &Snapshot, model: Option<&ModelRow>, words: usize) {
        self.own_active.clear();
        self.own_active.resize(words, 0);
        self.own_adapters.clear();
        self.own_adapters.resize(words * CHUNK, 0);
        let asked = model.map(|row| row.id);
        for chunk in 0..words {
            snapshot.ledger.open_adapters(chunk, |slot, adapters| {
                // A name can stand in two cells, so look for it among those that were seen before.
                let mut seen = [None; 16];
                let mut unreported = 0;
                adapters.for_each_open(|name| {
                    if Some(name) == asked {
                        set(&mut self.own_active, slot);
                    }
                    if !seen.contains(&Some(name)) && !snapshot.names.reports_active(slot, name) {
                        seen[unreported % seen.len()] = Some(name);
                        unreported += 1;
                    }
                });
                self.own_adapters[slot] = u8::try_from(unreported).unwrap_or(u8::MAX);
            });
        }
    }

    pub(crate) fn is_barred(&self, word: usize) -> u64 {
        self.barred.get(word).copied().unwrap_or(0)
    }

    pub(crate) fn has_own_active(&self, slot: usize) -> bool {
        bit(&self.own_active, slot)
    }
}

/// Has a column filled, chunk by chunk.
fn column<T: Clone + Default>(column: &mut Vec<T>, chunks: usize, fill: impl Fn(usize, &mut [T])) {
    column.resize(chunks * CHUNK, T::default());
    for (chunk, to) in column.chunks_exact_mut(CHUNK).enumerate() {
        fill(chunk, to);
    }
}
