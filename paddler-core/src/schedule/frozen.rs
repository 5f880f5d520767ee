//! What were our own counters when the walk began?
//!
//! Each is read once, into memory that the caller owns, and the walk looks at that. So a relative filter cannot
//! contradict itself while leases come and go, and a record of what was read replays exactly.

use serde::{Deserialize, Serialize};

use super::context::Reads;
use super::pick::Ask;
use crate::status::{ModelRow, Snapshot};
use crate::upstream::{CELLS, LANES, Reserve, UpstreamIndex, bit, set};

/// The frozen columns, in the order of places. What the tree does not look at is empty.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub(crate) struct Frozen {
    /// Our own open weight, and the most that it may be.
    pub(crate) weight: Vec<u32>,
    pub(crate) limit: Vec<u32>,
    pub(crate) requests: Vec<u32>,
    pub(crate) prefill: Vec<u64>,
    /// Upstreams taken out at once: draining or ejected, though some of these serve whom nobody else could.
    pub(crate) shut: Vec<u64>,
    /// Those of them that the operator has taken out.
    pub(crate) drained: Vec<u64>,
    /// Upstreams where we ourselves have an open lease with the adapter asked for.
    pub(crate) own_active: Vec<u64>,
    /// Adapters with an open lease of ours that the upstream has not reported.
    pub(crate) own_adapters: Vec<u8>,
}

/// The columns as a record has them.
#[derive(Serialize, Deserialize)]
struct Written {
    weight: Vec<u32>,
    /// `None` is no limit.
    limit: Vec<Option<u32>>,
    requests: Vec<u32>,
    prefill: Vec<u64>,
    shut: Vec<u64>,
    drained: Vec<u64>,
    own_active: Vec<u64>,
    own_adapters: Vec<u8>,
}

impl From<Frozen> for Written {
    fn from(frozen: Frozen) -> Self {
        let limit = |limit: u32| Some(limit).filter(|limit| *limit != Reserve::UNLIMITED);
        Self {
            weight: frozen.weight,
            limit: frozen.limit.into_iter().map(limit).collect(),
            requests: frozen.requests,
            prefill: frozen.prefill,
            shut: frozen.shut,
            drained: frozen.drained,
            own_active: frozen.own_active,
            own_adapters: frozen.own_adapters,
        }
    }
}

impl TryFrom<Written> for Frozen {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        // Whoever wrote it may have written anything.
        let count = |count: u32| count.min(Reserve::UNLIMITED);
        if written.weight.len() != written.limit.len() {
            return Err("the columns `weight` and `limit` are not of one length");
        }
        let limit = |limit: Option<u32>| limit.map_or(Reserve::UNLIMITED, count);
        Ok(Self {
            weight: written.weight.into_iter().map(count).collect(),
            limit: written.limit.into_iter().map(limit).collect(),
            requests: written.requests,
            prefill: written.prefill,
            shut: written.shut,
            drained: written.drained,
            own_active: written.own_active,
            own_adapters: written.own_adapters,
        })
    }
}

impl Frozen {
    /// `model` is known of what is asked for, if anything is known.
    pub(crate) fn read(
        &mut self,
        snapshot: &Snapshot,
        model: Option<&ModelRow>,
        ask: &Ask<'_>,
        reads: Reads,
    ) {
        let ledger = &snapshot.ledger;
        let words = snapshot.entries.len().div_ceil(LANES);
        let read = |what| if reads.contains(what) { words } else { 0 };
        self.shut.clear();
        self.shut.extend((0..words).map(|word| ledger.shut(word)));
        if ask.facts.weight == 0 {
            self.let_weightless_in(snapshot);
        }
        self.spare_last_resorts(snapshot, model, ask);
        self.drained.clear();
        self.drained.extend((0..words).map(|word| ledger.drained(word)));
        let load = read(Reads::LOAD) * LANES;
        self.weight.resize(load, 0);
        self.limit.resize(load, 0);
        let limits = self.limit.as_chunks_mut().0;
        for (chunk, (open, limit)) in self.weight.as_chunks_mut().0.iter_mut().zip(limits).enumerate() {
            ledger.freeze_weight(chunk, open, limit);
        }
        self.rooms(snapshot, ask);
        column(&mut self.requests, read(Reads::REQUESTS), |chunk, to| {
            ledger.freeze_requests(chunk, to);
        });
        column(&mut self.prefill, read(Reads::PREFILL), |chunk, to| {
            ledger.freeze_prefill(chunk, to);
        });
        self.adapters(snapshot, model, read(Reads::ADAPTERS));
    }

    /// A probe that is under way shuts nobody out who takes no room.
    fn let_weightless_in(&mut self, snapshot: &Snapshot) {
        let ledger = &snapshot.ledger;
        for (word, shut) in self.shut.iter_mut().enumerate() {
            *shut &= !ledger.probing(word) | ledger.drained(word);
        }
    }

    /// Leaves out those who are there for whom nobody else could serve, where somebody else can. For a request without
    /// weight, which can be no probe, those who are probed are such: it would find out nothing there.
    fn spare_last_resorts(&mut self, snapshot: &Snapshot, model: Option<&ModelRow>, ask: &Ask<'_>) {
        let anything = ask.facts.model.is_none();
        // Who names whom he wants, or was elsewhere before, takes what there is.
        let spares_probed = ask.facts.weight == 0 && ask.only.is_none() && ask.except.is_empty();
        let last = |word| {
            let probed = if spares_probed {
                snapshot.ledger.probing(word)
            } else {
                0
            };
            snapshot.ledger.last_resort(word) | probed
        };
        if (0..self.shut.len()).all(|word| last(word) == 0) {
            return;
        }
        let columns = &snapshot.columns;
        let listed = model.map_or(&[][..], |row| &row.serves[..]);
        let could = |word: usize| match listed.get(word).copied().unwrap_or(0) | columns.any_model[word] {
            _ if anything => u64::MAX,
            could => could,
        };
        let reached = snapshot.reached(ask.facts);
        let able = |word: usize| columns.able[word] & reached.word(word);
        let well = |word: usize| able(word) & could(word) & !self.shut[word] & !last(word);
        if (0..self.shut.len()).any(|word| well(word) != 0) {
            for (word, shut) in self.shut.iter_mut().enumerate() {
                *shut |= last(word);
            }
        }
    }

    /// Where there is less room for the model that is asked for than for all, that is the limit.
    fn rooms(&mut self, snapshot: &Snapshot, ask: &Ask<'_>) {
        let Some(model) = ask.facts.model else { return };
        for place in &snapshot.columns.with_rooms {
            let entry = snapshot.entry(UpstreamIndex(*place));
            let room = entry.and_then(|entry| entry.rooms.reserve(model));
            let at = *place as usize;
            let whole = self.weight.get(at).zip(self.limit.get_mut(at));
            let (Some(room), Some((weight, limit))) = (room, whole) else {
                continue;
            };
            // A request that is heavier than the whole room fits while that is empty, and so while there is room in all.
            let alone = room.weight() == 0 && room.limit() > 0 && ask.facts.weight > room.limit();
            if !alone && room.left() < Reserve::new(0, *limit, *weight).left() {
                *limit = weight.saturating_add(room.left());
            }
        }
    }

    fn adapters(&mut self, snapshot: &Snapshot, model: Option<&ModelRow>, words: usize) {
        self.own_active.clear();
        self.own_active.resize(words, 0);
        self.own_adapters.clear();
        self.own_adapters.resize(words * LANES, 0);
        let asked = model.map(|row| row.id);
        for chunk in 0..words {
            snapshot.ledger.open_adapters(chunk, |place, adapters| {
                // A name can stand in two cells, so look for it among those that were seen before.
                let mut seen = [None; CELLS];
                let mut unreported = 0;
                adapters.for_each_open(|name| {
                    if Some(name) == asked {
                        set(&mut self.own_active, place);
                    }
                    if !seen.contains(&Some(name)) && !snapshot.names.reports_active(place, name) {
                        seen[unreported % seen.len()] = Some(name);
                        unreported += 1;
                    }
                });
                self.own_adapters[place] = u8::try_from(unreported).unwrap_or(u8::MAX);
            });
        }
    }

    pub(crate) fn shut(&self, word: usize) -> u64 {
        self.shut.get(word).copied().unwrap_or(0)
    }

    pub(crate) fn drained(&self, word: usize) -> u64 {
        self.drained.get(word).copied().unwrap_or(0)
    }

    pub(crate) fn has_own_active(&self, place: usize) -> bool {
        bit(&self.own_active, place)
    }
}

/// Has a column filled, chunk by chunk.
fn column<T: Clone + Default>(column: &mut Vec<T>, chunks: usize, fill: impl Fn(usize, &mut [T; LANES])) {
    column.resize(chunks * LANES, T::default());
    for (chunk, to) in column.as_chunks_mut().0.iter_mut().enumerate() {
        fill(chunk, to);
    }
}
