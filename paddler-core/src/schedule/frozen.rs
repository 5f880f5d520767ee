//! What were our own counters when the walk began?
//!
//! Each is read once, into memory that the caller owns, and the walk looks at that. So a relative filter cannot
//! contradict itself while leases come and go, and a record of what was read replays exactly.
//!
//! Counters are read where something of ours is open alone. At all other places the memory holds a zero, which is written where
//! something was open at the walk before. Who has no room is read as bits that the ledger keeps up, unless limits have to be looked at.

use std::mem;

use serde::{Deserialize, Serialize};

use super::context::Reads;
use super::lanes::mask;
use super::pick::Ask;
use crate::status::{ModelRow, Snapshot};
use crate::upstream::{Bits, CELLS, LANES, Ledger, Reserve, UpstreamIndex, bit, fits, set};

/// The frozen columns, in the order of places. What the tree does not look at is empty.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub(crate) struct Frozen {
    /// Our own open weight.
    pub(crate) weight: Vec<u32>,
    /// The most that it may be.
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
    /// Where that is more than none. As all that follows, it is derived, and not in a record.
    pub(crate) with_adapters: Vec<u64>,
    /// Where the request has no room.
    pub(crate) full: Vec<u64>,
    /// Upstreams that let in one request with weight at a time.
    probing: Vec<u64>,
    /// Upstreams that get what nobody else could serve.
    last_resort: Vec<u64>,
    /// Where a counter may be more than zero.
    in_use: Vec<u64>,
    /// Where one may be left over from the walk before, and is zero now.
    stale: Vec<u64>,
    /// Whether the weight was read at all places instead, with the limits.
    whole: bool,
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
        // Requests are read one upstream at a time, all else as whole words.
        let (requests, prefill) = (written.requests, padded(written.prefill, 0));
        let own_adapters = padded(written.own_adapters, 0);
        let (words, _) = own_adapters.as_chunks::<LANES>();
        let more_than_none = |own: &[u8; LANES]| mask(u64::MAX, |lane| own[lane] > 0);
        let longest = written.weight.len().max(requests.len()).max(prefill.len());
        Ok(Self {
            with_adapters: words.iter().map(more_than_none).collect(),
            full: Vec::new(),
            probing: Vec::new(),
            last_resort: Vec::new(),
            in_use: vec![u64::MAX; longest.div_ceil(LANES)],
            stale: Vec::new(),
            whole: true,
            weight: padded(written.weight.into_iter().map(count).collect(), 0),
            limit: padded(written.limit.into_iter().map(limit).collect(), Reserve::UNLIMITED),
            requests,
            prefill,
            shut: written.shut,
            drained: written.drained,
            own_active: written.own_active,
            own_adapters,
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
        let words = snapshot.entries.len().div_ceil(LANES);
        // Bits say whether the least weight fits.
        let whole = reads == Reads::RECORD || reads.contains(Reads::FITS) && ask.facts.weight > 1;
        self.read_marks(snapshot, words, reads, ask, model);
        self.read_counters(&snapshot.ledger, words, reads, whole);
        if reads.contains(Reads::FITS) {
            match ask.facts.weight {
                0 => self.full.fill(0),
                weight if whole => self.fit(weight),
                _ => {}
            }
            self.rooms(snapshot, ask);
        }
        self.adapters(snapshot, model);
    }

    fn read_marks(
        &mut self,
        snapshot: &Snapshot,
        words: usize,
        reads: Reads,
        ask: &Ask<'_>,
        model: Option<&ModelRow>,
    ) {
        // What `in_use` holds is from the walk before.
        for column in [
            &mut self.shut,
            &mut self.drained,
            &mut self.full,
            &mut self.probing,
            &mut self.last_resort,
            &mut self.in_use,
            &mut self.stale,
            &mut self.with_adapters,
        ] {
            sized(column, words);
        }
        let (mut last_resort, mut probing) = (0, 0);
        for word in 0..words {
            let marks = snapshot.ledger.marks(word);
            self.shut[word] = marks.shut;
            self.drained[word] = marks.drained;
            self.full[word] = marks.full;
            self.probing[word] = marks.probing;
            self.last_resort[word] = marks.last_resort;
            self.stale[word] = self.in_use[word] & !marks.in_use;
            self.in_use[word] = marks.in_use;
            self.with_adapters[word] = marks.with_adapters;
            last_resort |= marks.last_resort;
            probing |= marks.probing;
        }
        if !reads.contains(Reads::FITS) {
            self.full.clear();
        }
        if !reads.contains(Reads::ADAPTERS) {
            self.with_adapters.clear();
        }
        if ask.facts.weight == 0 && probing != 0 {
            self.let_weightless_in();
        }
        if last_resort | probing != 0 {
            self.spare_last_resorts(snapshot, model, ask);
        }
    }

    /// `whole`: with the limits, which are read with the weights of all places.
    fn read_counters(&mut self, ledger: &Ledger, words: usize, reads: Reads, whole: bool) {
        let places = |what| if reads.contains(what) { words * LANES } else { 0 };
        let reserves = if whole { words * LANES } else { 0 };
        sized(&mut self.limit, reserves);
        sized(&mut self.weight, places(Reads::WEIGHT).max(reserves));
        sized(&mut self.requests, places(Reads::REQUESTS));
        sized(&mut self.prefill, places(Reads::PREFILL));
        if mem::replace(&mut self.whole, whole) && !whole {
            self.weight.fill(0);
        }
        let chunks = || self.in_use.iter().copied().zip(self.stale.iter().copied());
        if whole {
            let limits = self.limit.as_chunks_mut().0;
            for (chunk, (open, limit)) in self.weight.as_chunks_mut().0.iter_mut().zip(limits).enumerate() {
                ledger.freeze_reserves(chunk, open, limit);
            }
        } else {
            column(&mut self.weight, chunks(), |chunk, lanes, to| {
                ledger.freeze_weight(chunk, lanes, to);
            });
        }
        column(&mut self.requests, chunks(), |chunk, lanes, to| {
            ledger.freeze_requests(chunk, lanes, to);
        });
        column(&mut self.prefill, chunks(), |chunk, lanes, to| {
            ledger.freeze_prefill(chunk, lanes, to);
        });
    }

    /// Those of a record, for a request of this weight.
    pub(crate) fn recall(&mut self, record: &Self, weight: u32) {
        self.clone_from(record);
        self.full.resize(self.limit.len() / LANES, 0);
        self.fit(weight);
    }

    /// Finds who has no room for this weight.
    fn fit(&mut self, weight: u32) {
        let columns = self
            .weight
            .as_chunks::<LANES>()
            .0
            .iter()
            .zip(self.limit.as_chunks::<LANES>().0);
        for (full, (open, limit)) in self.full.iter_mut().zip(columns) {
            *full = mask(u64::MAX, |lane| !fits(open[lane], limit[lane], weight));
        }
    }

    /// A probe that is under way shuts nobody out who takes no room.
    fn let_weightless_in(&mut self) {
        let marks = self.probing.iter().zip(&self.drained);
        for (shut, (probing, drained)) in self.shut.iter_mut().zip(marks) {
            *shut &= !probing | drained;
        }
    }

    /// Leaves out those who are there for whom nobody else could serve, where somebody else can. For a request without
    /// weight, which can be no probe, those who are probed are such: it would find out nothing there.
    fn spare_last_resorts(&mut self, snapshot: &Snapshot, model: Option<&ModelRow>, ask: &Ask<'_>) {
        let anything = ask.facts.model.is_none();
        // Who names whom he wants, or was elsewhere before, takes what there is.
        if ask.facts.weight == 0 && ask.only.is_none() && ask.except.is_empty() {
            let probing = self.last_resort.iter_mut().zip(&self.probing);
            probing.for_each(|(last, probing)| *last |= probing);
        }
        if self.last_resort.iter().all(|last| *last == 0) {
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
        let well = |word: usize| able(word) & could(word) & !self.shut[word] & !self.last_resort[word];
        if (0..self.shut.len()).any(|word| well(word) != 0) {
            let last = self.shut.iter_mut().zip(&self.last_resort);
            last.for_each(|(shut, last)| *shut |= last);
        }
    }

    /// Where there is less room for the model that is asked for than for all, that is the limit.
    fn rooms(&mut self, snapshot: &Snapshot, ask: &Ask<'_>) {
        let Some(model) = ask.facts.model else { return };
        for place in &snapshot.columns.with_rooms {
            let entry = snapshot.entry(UpstreamIndex(*place));
            let Some(room) = entry.and_then(|entry| entry.rooms.reserve(model)) else {
                continue;
            };
            let at = *place as usize;
            let whole = self.weight.get(at).zip(self.limit.get(at));
            let whole = whole.map(|(weight, limit)| Reserve::new(0, *limit, *weight));
            let whole = whole.unwrap_or_else(|| snapshot.ledger.reserved(*place));
            // A request that is heavier than the whole room fits while that is empty, and so while there is room in all.
            let alone = room.weight() == 0 && room.limit() > 0 && ask.facts.weight > room.limit();
            if alone || room.left() >= whole.left() {
                continue;
            }
            let narrow = whole.weight().saturating_add(room.left());
            if let Some(limit) = self.limit.get_mut(at) {
                *limit = narrow;
            }
            if !fits(whole.weight(), narrow, ask.facts.weight) {
                set(&mut self.full, at);
            }
        }
    }

    fn adapters(&mut self, snapshot: &Snapshot, model: Option<&ModelRow>) {
        let words = self.with_adapters.len();
        sized(&mut self.own_active, words);
        sized(&mut self.own_adapters, words * LANES);
        if words == 0 {
            // Where nothing is, glibc fills nothing by a masked store, whose fault the processor takes 50 ns to suppress.
            return;
        }
        self.own_active.fill(0);
        self.own_adapters.fill(0);
        let asked = model.map(|row| row.id);
        for (chunk, lanes) in self
            .with_adapters
            .iter()
            .enumerate()
            .filter(|(_, lanes)| **lanes != 0)
        {
            snapshot.ledger.open_adapters(chunk, *lanes, |place, adapters| {
                // A name can stand in two cells, so look for it among those that were seen before.
                let mut seen = [None; CELLS];
                let mut unreported = 0;
                adapters.for_each(|name| {
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

    /// The lanes of a word where a counter may be more than zero.
    pub(crate) fn in_use(&self, word: usize) -> impl Iterator<Item = usize> {
        let bits = self.in_use.get(word).copied().unwrap_or(0);
        Bits(bits)
    }

    pub(crate) fn has_own_active(&self, place: usize) -> bool {
        bit(&self.own_active, place)
    }
}

/// Makes a column as long as whole words are, which one that was written down need not be.
fn padded<T: Copy>(mut column: Vec<T>, with: T) -> Vec<T> {
    column.resize(column.len().next_multiple_of(LANES), with);
    column
}

/// Makes a column so long, which it is nearly always.
fn sized<T: Copy + Default>(column: &mut Vec<T>, len: usize) {
    if column.len() != len {
        column.resize(len, T::default());
    }
}

/// Has a column filled, chunk by chunk, at those lanes of each that come first, and zeros put at those that come second.
fn column<T: Default>(
    column: &mut [T],
    chunks: impl Iterator<Item = (u64, u64)>,
    fill: impl Fn(usize, u64, &mut [T; LANES]),
) {
    for (chunk, (to, (in_use, stale))) in column.as_chunks_mut().0.iter_mut().zip(chunks).enumerate() {
        Bits(stale).for_each(|lane| to[lane] = T::default());
        if in_use != 0 {
            fill(chunk, in_use, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;
    use crate::request::Facts;
    use crate::schedule::trees;
    use crate::status::{StatusBoard, StatusEvent};
    use crate::upstream::UpstreamSpec;

    /// As of a lease that began once the marks of the first walk had been read, and ended before the second.
    #[test]
    fn what_a_walk_saw_at_all_places_is_not_left_for_the_next() {
        let mut board = StatusBoard::new(trees::balancer());
        let spec = UpstreamSpec::new("a", "http://127.0.0.1:9").unwrap();
        board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
        let snapshot = board.publish(Moment::ZERO);
        let (mut frozen, facts) = (Frozen::default(), Facts::new());
        let ask = Ask::new(&facts, Moment::ZERO, 1);
        frozen.read(&snapshot, None, &ask, Reads::RECORD);
        frozen.weight[0] = 7;
        frozen.read(&snapshot, None, &ask, Reads::WEIGHT);
        assert_eq!(frozen.weight[0], 0);
    }
}
