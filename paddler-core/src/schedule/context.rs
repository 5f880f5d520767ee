//! What may a filter or a cost look at?

use std::fmt;
use std::ops::BitOr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::frozen::Frozen;
use super::lanes::keep;
use crate::Moment;
use crate::request::Facts;
use crate::status::{ModelRow, Report, Snapshot, UNKNOWN};
use crate::upstream::{LANES, UpstreamId, UpstreamIndex, UpstreamSpec, bit, is_in};

/// Whether signals are taken as reported or corrected by what we have sent since.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signals {
    /// As the engine said them, however old: what the original filter tree does.
    Reported,
    /// With our own open requests counted in.
    #[default]
    Corrected,
}

impl Signals {
    /// The word that a config file has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Corrected => "corrected",
        }
    }
}

/// Which of our own counters a filter or cost looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reads(u8);

impl Reads {
    /// None of them: reports and specs alone.
    pub const NONE: Self = Self(0);
    /// Open weight: [`PickCx::own_weight`], [`load`](PickCx::load), [`fits`](PickCx::fits).
    pub const LOAD: Self = Self(1 | 32);
    /// Open requests: [`PickCx::own_requests`].
    pub const REQUESTS: Self = Self(2);
    /// Prompt tokens under way: [`PickCx::prefill_tokens`].
    pub const PREFILL: Self = Self(4);
    /// What corrects a reported queue: [`PickCx::waiting`]. In a tree that takes signals as reported, nothing.
    pub const QUEUE: Self = Self(8);
    /// What corrects reported adapters: [`PickCx::adapters`], [`adapter_active`](PickCx::adapter_active). In a tree that
    /// takes signals as reported, nothing.
    pub const ADAPTERS: Self = Self(16);
    /// All of them.
    pub const ALL: Self = Self(63);
    /// Of [`LOAD`](Self::LOAD), the weight alone.
    pub(crate) const WEIGHT: Self = Self(1);
    /// Of it, whether the request fits.
    pub(crate) const FITS: Self = Self(32);
    /// The limits, by which another request is told to fit or not.
    const LIMITS: Self = Self(64);
    /// All that a record keeps.
    pub(crate) const RECORD: Self = Self(Self::ALL.0 | Self::LIMITS.0);

    /// What this comes to where signals are taken like that.
    pub(crate) fn under(self, signals: Signals) -> Self {
        match signals {
            Signals::Reported => Self(self.0 & !(Self::QUEUE | Self::ADAPTERS).0),
            Signals::Corrected if self.contains(Self::QUEUE) => self | Self::WEIGHT,
            Signals::Corrected => self,
        }
    }

    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Reads {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What a pick is made from. Everything in it stands still for the whole walk.
#[non_exhaustive]
pub struct PickCx<'a> {
    /// What is known of all upstreams.
    pub snapshot: &'a Snapshot,
    /// What is asked.
    pub facts: &'a Facts<'a>,
    /// When.
    pub now: Moment,
    /// Where chance comes from.
    pub seed: u64,
    pub(crate) only: Option<&'a [UpstreamId]>,
    pub(crate) frozen: &'a Frozen,
    pub(crate) model: Option<&'a ModelRow>,
    pub(crate) signals: Signals,
}

impl<'a> PickCx<'a> {
    /// What is known under the model name that is asked for; `None` when no name was given, or nobody knows it.
    pub fn model(&self) -> Option<&'a ModelRow> {
        self.model
    }

    /// Whether each upstream that serves the model, and that the request may go to, is drained; of a model that nobody of
    /// these is known to serve, whether each of them is.
    pub(crate) fn is_drained(&self) -> bool {
        let columns = &self.snapshot.columns;
        let serves = self.model.map_or(&[][..], |row| &row.serves[..]);
        let word = |column: &[u64], at: usize| column.get(at).copied().unwrap_or(0);
        let reached = self.snapshot.reached(self.facts);
        let all_of = |of: &dyn Fn(usize) -> u64| {
            let mut any = false;
            let all = reached.words().enumerate().all(|(at, reached)| {
                let set = reached & of(at);
                any |= set != 0;
                set & !self.frozen.drained(at) == 0
            });
            (any, all)
        };
        let all_of_subset = |only: &[UpstreamId], of: &dyn Fn(usize) -> u64| {
            let mut any = false;
            let places = only.iter().filter_map(|id| self.snapshot.index(id.as_str()));
            let mut those = places
                .filter(|at| reached.has(*at))
                .filter(|at| is_in(of(at.get() / LANES), at.get()));
            let all = those.all(|at| {
                any = true;
                bit(&self.frozen.drained, at.get())
            });
            (any, all)
        };
        let is_drained = |of: &dyn Fn(usize) -> u64| match self.only {
            None => all_of(of),
            Some(only) => all_of_subset(only, of),
        };
        if self.facts.model.is_some()
            && let (true, all) = is_drained(&|at| word(&columns.any_model, at) | word(serves, at))
        {
            return all;
        }
        is_drained(&|_| u64::MAX) == (true, true)
    }

    /// Whether the model that is asked for is an adapter (LoRA).
    pub fn is_adapter(&self) -> bool {
        self.model.is_some_and(ModelRow::is_adapter)
    }

    /// What the upstream is.
    ///
    /// # Panics
    /// When the index is not of this snapshot; those of the candidate set are.
    pub fn spec(&self, upstream: UpstreamIndex) -> &'a UpstreamSpec {
        self.snapshot
            .spec(upstream)
            .expect("a candidate's place has an upstream")
    }

    /// What it last said.
    pub fn report(&self, upstream: UpstreamIndex) -> Option<&'a Report> {
        self.snapshot.report(upstream)
    }

    /// How old what it last said is; `None` if it never said anything.
    pub fn age(&self, upstream: UpstreamIndex) -> Option<Duration> {
        let heard = bit(&self.snapshot.columns.heard, upstream.get());
        heard.then(|| {
            self.now.since(Moment::from_nanos(
                self.snapshot.columns.reported_at[upstream.get()],
            ))
        })
    }

    /// Our own open weight there, with what settles.
    pub fn own_weight(&self, upstream: UpstreamIndex) -> u32 {
        self.frozen.weight.get(upstream.get()).copied().unwrap_or(0)
    }

    /// Our own requests there that have not ended, control requests included.
    pub fn own_requests(&self, upstream: UpstreamIndex) -> u32 {
        self.frozen.requests.get(upstream.get()).copied().unwrap_or(0)
    }

    /// Prompt tokens that we have sent there and that no first byte has answered yet (estimated).
    pub fn prefill_tokens(&self, upstream: UpstreamIndex) -> u64 {
        self.frozen.prefill.get(upstream.get()).copied().unwrap_or(0)
    }

    /// Whether the weight of this request could be reserved there. What weighs nothing always can.
    pub fn fits(&self, upstream: UpstreamIndex) -> bool {
        !bit(&self.frozen.full, upstream.get())
    }

    /// Requests that the engine works on at once, if that is known.
    pub fn room(&self, upstream: UpstreamIndex) -> Option<u32> {
        Snapshot::count(&self.snapshot.columns.room, upstream)
    }

    /// All load there: our own open weight now, and what others had there at the last report.
    pub fn load(&self, upstream: UpstreamIndex) -> u32 {
        let others = self
            .snapshot
            .columns
            .others
            .get(upstream.get())
            .copied()
            .unwrap_or(0);
        self.own_weight(upstream).saturating_add(others)
    }

    /// Load as a share of what the engine works on at once; above 1 is a queue. Unknown where the room is unknown.
    pub fn load_share(&self, upstream: UpstreamIndex) -> Option<f64> {
        let room = self.room(upstream).filter(|room| *room > 0)?;
        Some(f64::from(self.load(upstream)) / f64::from(room))
    }

    /// Requests that wait in the engine's queue: as reported or, corrected, at least what exceeds its room. Unknown
    /// where the engine does not say.
    pub fn waiting(&self, upstream: UpstreamIndex) -> Option<u32> {
        let reported = Snapshot::count(&self.snapshot.columns.waiting, upstream)?;
        match (self.signals, self.room(upstream)) {
            (Signals::Corrected, Some(room)) => {
                let beyond = self.load(upstream).saturating_sub(room).min(UNKNOWN - 1);
                Some(reported.max(beyond))
            }
            _ => Some(reported),
        }
    }

    /// [`waiting`](Self::waiting) at each place of a word; [`UNKNOWN`] where that is `None`.
    pub(crate) fn waiting_lanes(&self, word: usize) -> [u32; LANES] {
        let columns = &self.snapshot.columns;
        let mut all = *lanes(&columns.waiting, word);
        if self.signals == Signals::Corrected {
            let (load, room) = (self.load_lanes(word), lanes(&columns.room, word));
            for (lane, waiting) in all.iter_mut().enumerate() {
                // An unknown room is the largest number, so nothing exceeds it; and nothing exceeds an unknown queue.
                let beyond = load[lane].saturating_sub(room[lane]).min(UNKNOWN - 1);
                *waiting = (*waiting).max(beyond);
            }
        }
        all
    }

    /// [`load`](Self::load) at each place of a word.
    pub(crate) fn load_lanes(&self, word: usize) -> [u32; LANES] {
        let mut load = *lanes(&self.snapshot.columns.others, word);
        // What the tree does not look at is idle.
        if let Some(own) = self.frozen.weight.as_chunks::<LANES>().0.get(word) {
            for (load, own) in load.iter_mut().zip(own) {
                *load = load.saturating_add(*own);
            }
        }
        load
    }

    /// Those lanes of a word where prompt tokens may be under way, with how many.
    pub(crate) fn prefill_in_use(&self, word: usize) -> impl Iterator<Item = (usize, u64)> {
        let tokens = self.frozen.prefill.as_chunks::<LANES>().0.get(word);
        let tokens = tokens.map(|tokens| self.frozen.in_use(word).map(|lane| (lane, tokens[lane])));
        tokens.into_iter().flatten()
    }

    /// Of a word's bits, those where one more adapter can be in use, as [`adapters`](Self::adapters) says it.
    pub(crate) fn adapter_room(&self, word: usize, bits: u64) -> u64 {
        let columns = &self.snapshot.columns;
        let room = bits & columns.adapter_room[word];
        let corrected = self.frozen.with_adapters.get(word).copied().unwrap_or(0);
        if self.signals == Signals::Reported || room & corrected == 0 {
            return room;
        }
        // Ours can only take room away.
        let still = |upstream| self.adapters(upstream).is_some_and(|(active, max)| active < max);
        room & !corrected | keep(word, room & corrected, still)
    }

    /// Where the adapter that is asked for is in use, as [`adapter_active`](Self::adapter_active) says it.
    pub(crate) fn active_word(&self, word: usize) -> u64 {
        let at = |words: &[u64]| words.get(word).copied().unwrap_or(0);
        let own = if self.signals == Signals::Corrected {
            at(&self.frozen.own_active)
        } else {
            0
        };
        own | self.model.map_or(0, |row| at(&row.active))
    }

    /// Share of the KV cache in use, 0 to 1.
    pub fn kv_cache_usage(&self, upstream: UpstreamIndex) -> Option<f64> {
        self.snapshot
            .columns
            .kv
            .get(upstream.get())
            .copied()
            .filter(|kv| !kv.is_nan())
    }

    /// Whether the adapter that is asked for is in use there, by report or, corrected, by a lease of ours.
    pub fn adapter_active(&self, upstream: UpstreamIndex) -> bool {
        let own = self.signals == Signals::Corrected && self.frozen.has_own_active(upstream.get());
        own || self.model.is_some_and(|row| row.is_active_on(upstream))
    }

    /// How many distinct adapters are in use there and how many can be, if both are known.
    pub fn adapters(&self, upstream: UpstreamIndex) -> Option<(u32, u32)> {
        let active = Snapshot::count(&self.snapshot.columns.adapters_active, upstream)?;
        let max = Snapshot::count(&self.snapshot.columns.adapters_max, upstream)?;
        let own = match self.signals {
            Signals::Corrected => self.frozen.own_adapters.get(upstream.get()).copied().unwrap_or(0),
            Signals::Reported => 0,
        };
        Some((active.saturating_add(u32::from(own)), max))
    }
}

/// The places of a word in a column.
pub(crate) fn lanes<T>(column: &[T], word: usize) -> &[T; LANES] {
    &column.as_chunks().0[word]
}

impl fmt::Debug for PickCx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PickCx")
            .field("snapshot", &self.snapshot.generation())
            .field("facts", &self.facts)
            .field("now", &self.now)
            .field("seed", &self.seed)
            .finish()
    }
}
