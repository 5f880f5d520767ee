//! What does a pick scan? One column a signal, in the order of places, so that a scan walks memory in line.

use std::collections::HashSet;
use std::sync::Arc;

use super::names::active_adapters;
use super::snapshot::Entry;
use crate::schedule::stable_hash;
use crate::upstream::{Capability, LANES, Models, Traffic, UpstreamIndex, is_in, set};

/// A count that is not known.
pub(crate) const UNKNOWN: u32 = u32::MAX;

/// Every signal of every upstream, as a pick reads it. Places without an upstream hold unknowns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Columns {
    pub(crate) live: Box<[u64]>,
    pub(crate) heard: Box<[u64]>,
    /// Not known to be unable to serve.
    pub(crate) able: Box<[u64]>,
    /// Still to be heard from, so not counted as able yet; empty where nobody is so.
    pub(crate) awaited: Box<[u64]>,
    /// Answers for any model.
    pub(crate) any_model: Box<[u64]>,
    /// Has told which models it serves.
    pub(crate) told_models: Box<[u64]>,
    /// Gets only what names a model; empty where nobody is so.
    by_name: Box<[u64]>,
    /// Gets only what falls back to it; empty where nobody is so.
    spare: Box<[u64]>,
    pub(crate) tenancy: Box<[u16]>,
    /// A stable hash of the id, for rendezvous.
    pub(crate) id_hash: Box<[u64]>,
    pub(crate) waiting: Box<[u32]>,
    pub(crate) running: Box<[u32]>,
    /// Of each [`Capability`], who is known to lack it; empty where nobody is.
    pub(crate) lacks: [Box<[u64]>; Capability::ALL.len()],
    /// The longest context, in tokens.
    pub(crate) context: Box<[u32]>,
    /// The shortest of those.
    pub(crate) shortest_context: u32,
    /// NaN is unknown.
    pub(crate) kv: Box<[f64]>,
    /// Requests that it works on at once.
    pub(crate) room: Box<[u32]>,
    /// Weight at the engine that is not ours.
    pub(crate) others: Box<[u32]>,
    /// The places that tell their room by model: routers, and few.
    pub(crate) with_rooms: Vec<u32>,
    /// Where fewer adapters are in use than can be, by report.
    pub(crate) adapter_room: Box<[u64]>,
    pub(crate) adapters_max: Box<[u32]>,
    pub(crate) adapters_active: Box<[u32]>,
    /// Nanoseconds since the board began.
    pub(crate) reported_at: Box<[u64]>,
    /// Of those in each word who were heard, the earliest of these.
    pub(crate) earliest_report: Box<[u64]>,
    /// Within what `waiting` and `kv` lie in each word.
    pub(crate) waiting_within: Box<[Within<u32>]>,
    pub(crate) kv_within: Box<[Within<f64>]>,
}

/// Within what the numbers of the upstreams in one word lie, so that most words need not be looked into.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Within<T> {
    /// The least of those that are known; of none, at least the highest.
    pub(crate) least: T,
    /// The highest; of none, at most the least.
    pub(crate) most: T,
    /// Whether all are known.
    pub(crate) known: bool,
}

impl<T: PartialOrd + Copy> Within<T> {
    fn new(least: T, most: T) -> Self {
        let known = true;
        Self { least, most, known }
    }

    fn add(&mut self, value: Option<T>) {
        let Some(value) = value else {
            self.known = false;
            return;
        };
        if value < self.least {
            self.least = value;
        }
        if value > self.most {
            self.most = value;
        }
    }
}

/// The upstreams that a request reaches: who else there is cannot serve it, nor stand in for who can.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reached<'a> {
    live: &'a [u64],
    /// Empty where all are reached.
    not: &'a [u64],
}

impl Reached<'_> {
    pub(crate) fn word(self, at: usize) -> u64 {
        let of = |column: &[u64]| column.get(at).copied().unwrap_or(0);
        of(self.live) & !of(self.not)
    }

    pub(crate) fn words(self) -> impl Iterator<Item = u64> {
        (0..self.live.len()).map(move |at| self.word(at))
    }

    pub(crate) fn has(self, upstream: UpstreamIndex) -> bool {
        is_in(self.word(upstream.get() / LANES), upstream.get())
    }
}

impl Columns {
    /// `polled`: they are asked how they are.
    pub(crate) fn new(entries: &[Option<Arc<Entry>>], polled: bool) -> Self {
        let many = entries.len().div_ceil(LANES);
        let n = many * LANES;
        let words = || vec![0u64; many].into_boxed_slice();
        let counts = || vec![UNKNOWN; n].into_boxed_slice();
        let mut columns = Self {
            live: words(),
            heard: words(),
            able: words(),
            awaited: Box::default(),
            any_model: words(),
            told_models: words(),
            by_name: Box::default(),
            spare: Box::default(),
            tenancy: vec![0; n].into(),
            id_hash: vec![0; n].into(),
            waiting: counts(),
            running: counts(),
            lacks: Default::default(),
            context: counts(),
            shortest_context: UNKNOWN,
            kv: vec![f64::NAN; n].into(),
            room: counts(),
            others: vec![0; n].into(),
            with_rooms: Vec::new(),
            adapter_room: words(),
            adapters_max: counts(),
            adapters_active: counts(),
            reported_at: vec![0; n].into(),
            earliest_report: vec![u64::MAX; many].into(),
            waiting_within: vec![Within::new(UNKNOWN, 0); many].into(),
            kv_within: vec![Within::new(f64::INFINITY, f64::NEG_INFINITY); many].into(),
        };
        for (place, entry) in entries.iter().enumerate() {
            if let Some(entry) = entry {
                columns.fill(place, entry, polled);
            }
        }
        columns
    }

    /// Whom such a request reaches. `named`: it names a model; `instead`: which serves it instead of its own.
    pub(crate) fn reached(&self, named: bool, instead: bool) -> Reached<'_> {
        let not = match (named, instead) {
            (_, true) => &[][..],
            (true, false) => &self.spare,
            (false, false) => &self.by_name,
        };
        let live = &self.live;
        Reached { live, not }
    }

    fn fill(&mut self, place: usize, entry: &Entry, polled: bool) {
        set(&mut self.live, place);
        let traffic = entry.spec().traffic;
        for (column, is_so) in [
            (&mut self.by_name, traffic >= Traffic::Named),
            (&mut self.spare, traffic >= Traffic::Fallback),
            (&mut self.awaited, entry.is_awaited(polled)),
        ] {
            if is_so {
                if column.is_empty() {
                    *column = vec![0; self.live.len()].into();
                }
                set(column, place);
            }
        }
        self.tenancy[place] = entry.tenancy;
        self.id_hash[place] = stable_hash(entry.spec().id.as_str().as_bytes());
        self.room[place] = entry.room().unwrap_or(UNKNOWN);
        self.others[place] = entry.others;
        if !entry.rooms.is_empty() {
            self.with_rooms.extend(u32::try_from(place));
        }
        match entry.models() {
            Some(Models::Any) => {
                set(&mut self.any_model, place);
                set(&mut self.told_models, place);
            }
            Some(Models::Listed(_)) => set(&mut self.told_models, place),
            None => {}
        }
        for (at, what) in Capability::ALL.iter().enumerate() {
            if entry.can(*what) == Some(false) {
                if self.lacks[at].is_empty() {
                    self.lacks[at] = vec![0; self.live.len()].into();
                }
                set(&mut self.lacks[at], place);
            }
        }
        self.context[place] = known(entry.context());
        self.shortest_context = self.shortest_context.min(self.context[place]);
        if entry.is_able() {
            set(&mut self.able, place);
        }
        let word = place / LANES;
        let Some(report) = entry.report() else {
            self.waiting_within[word].add(None);
            self.kv_within[word].add(None);
            return;
        };
        set(&mut self.heard, place);
        self.reported_at[place] = entry.reported_at.as_nanos();
        self.earliest_report[word] = self.earliest_report[word].min(self.reported_at[place]);
        self.waiting[place] = known(report.waiting);
        self.waiting_within[word].add(Some(self.waiting[place]).filter(|waiting| *waiting != UNKNOWN));
        self.running[place] = known(report.running.or(report.slots_busy));
        self.kv[place] = report
            .kv_cache_usage
            .filter(|usage| usage.is_finite())
            .unwrap_or(f64::NAN);
        self.kv_within[word].add(Some(self.kv[place]).filter(|usage| !usage.is_nan()));
        if let Some(adapters) = &report.adapters {
            self.adapters_max[place] = known(adapters.max);
            let distinct = distinct(active_adapters(report));
            self.adapters_active[place] = u32::try_from(distinct).unwrap_or(UNKNOWN - 1);
            if self.adapters_active[place] < self.adapters_max[place] && adapters.max.is_some() {
                set(&mut self.adapter_room, place);
            }
        }
    }
}

/// How many different ones there are.
fn distinct<'a>(names: impl Iterator<Item = &'a Arc<str>> + Clone) -> usize {
    const FEW: usize = 16;
    if names.clone().nth(FEW).is_some() {
        return names.collect::<HashSet<_>>().len();
    }
    // Engines run few at once, and so few need no memory to compare them in.
    let new = |(at, name): &(usize, &Arc<str>)| !names.clone().take(*at).any(|before| before == *name);
    names.clone().enumerate().filter(new).count()
}

fn known(count: Option<u32>) -> u32 {
    // The largest count stands for unknown; one less is as full.
    count.map_or(UNKNOWN, |count| count.min(UNKNOWN - 1))
}
