//! Who serves which model, and where is which adapter in use?

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::report::Report;
use super::snapshot::Entry;
use crate::schedule::mix;
use crate::upstream::{LANES, ModelEntry, Models, NameId, UpstreamIndex, bit, set};

/// One model or adapter name, with the upstreams that serve it and those where it is in use.
#[derive(Debug, Clone)]
pub struct ModelRow {
    pub(crate) id: NameId,
    /// Upstreams that list the name.
    pub(crate) serves: Box<[u64]>,
    /// Upstreams that report the adapter as running or waiting.
    pub(crate) active: Box<[u64]>,
    parent: Option<Arc<str>>,
    listed: bool,
    /// What the name stands for, each model once.
    stands_for: Vec<(Arc<str>, Option<Arc<str>>)>,
}

impl ModelRow {
    /// Whether this names an adapter (LoRA) rather than a base model.
    pub fn is_adapter(&self) -> bool {
        self.parent.is_some() || !self.listed
    }

    /// The base model, if this is an adapter that was listed with one.
    pub fn parent(&self) -> Option<&str> {
        self.parent.as_deref()
    }

    /// The models that upstreams have under this name, each with its base if it is an adapter. One, unless it is an alias of
    /// several.
    pub fn stands_for(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.stands_for
            .iter()
            .map(|(model, base)| (&**model, base.as_deref()))
    }

    /// Whether some upstream lists the name, so that it can be asked for.
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// Whether the upstream reports the adapter as running or waiting.
    pub fn is_active_on(&self, upstream: UpstreamIndex) -> bool {
        bit(&self.active, upstream.get())
    }
}

/// The rows of a snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    rows: HashMap<Arc<str>, ModelRow, BuildHasherDefault<ByWords>>,
    /// The adapters in use at each place, one after the other, and where each place's begin.
    active: Vec<NameId>,
    active_from: Vec<u32>,
}

/// Hashes a name eight bytes at a time. Every pick looks one up, and no request ever adds one: nobody can fill a table with names
/// that are alike to it but who says which models there are.
#[derive(Default)]
struct ByWords(u64);

impl Hasher for ByWords {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        let rest = rest.iter().fold(0, |rest, byte| rest << 8 | u64::from(*byte));
        self.write_u64(rest ^ (bytes.len() as u64) << 56);
    }

    fn write_u8(&mut self, _end_of_text: u8) {}

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0.rotate_left(5) ^ word);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Gives numbers to names. A number is never given again, so a lease can hold one.
#[derive(Debug, Clone, Default)]
pub(crate) struct NameIds {
    ids: HashMap<Arc<str>, NameId>,
    next: u32,
}

impl Names {
    pub(crate) fn row(&self, name: &str) -> Option<&ModelRow> {
        self.rows.get(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &ModelRow)> {
        self.rows.iter()
    }

    /// Whether the upstream reports this adapter as in use.
    pub(crate) fn reports_active(&self, place: usize, name: NameId) -> bool {
        let from = |place: usize| {
            self.active_from
                .get(place)
                .map_or(self.active.len(), |from| *from as usize)
        };
        self.active[from(place)..from(place + 1)].contains(&name)
    }

    /// Gathers the names that specs and reports mention. Names that nobody mentions any more are forgotten, so what is
    /// remembered is bounded by what upstreams say; nothing here ever comes from a request.
    pub(crate) fn gather(entries: &[Option<Arc<Entry>>], ids: &mut NameIds) -> Self {
        let words = entries.len().div_ceil(LANES);
        let mut gathered = Gather {
            names: Self::default(),
            ids,
            words,
        };
        for (place, entry) in entries.iter().enumerate() {
            // Counts that do not fit 32 bits would need more memory than there is.
            let from = u32::try_from(gathered.names.active.len()).unwrap_or(u32::MAX);
            gathered.names.active_from.push(from);
            if let Some(entry) = entry {
                gathered.entry(place, entry);
            }
        }
        let names = gathered.names;
        ids.ids.retain(|name, _| names.rows.contains_key(name));
        names
    }
}

struct Gather<'a> {
    names: Names,
    ids: &'a mut NameIds,
    words: usize,
}

impl Gather<'_> {
    fn row(&mut self, name: &Arc<str>) -> &mut ModelRow {
        let (ids, words) = (&mut *self.ids, self.words);
        self.names.rows.entry(name.clone()).or_insert_with(|| ModelRow {
            id: ids.number(name),
            serves: vec![0; words].into(),
            active: vec![0; words].into(),
            parent: None,
            listed: false,
            stands_for: Vec::new(),
        })
    }

    fn entry(&mut self, place: usize, entry: &Entry) {
        if let Some(Models::Listed(models)) = entry.models() {
            for model in models {
                self.serves(place, &model.id, model);
                for alias in &model.aliases {
                    self.serves(place, alias, model);
                }
            }
        }
        for name in entry.report().into_iter().flat_map(active_adapters) {
            let row = self.row(name);
            set(&mut row.active, place);
            let id = row.id;
            self.names.active.push(id);
        }
    }

    fn serves(&mut self, place: usize, name: &Arc<str>, model: &ModelEntry) {
        let row = self.row(name);
        set(&mut row.serves, place);
        // A name that is a base model anywhere is not an adapter.
        row.parent = if row.listed {
            row.parent.take().and(model.parent.clone())
        } else {
            model.parent.clone()
        };
        row.listed = true;
        let known = |(id, base): &(Arc<str>, Option<Arc<str>>)| (id, base) == (&model.id, &model.parent);
        if !row.stands_for.iter().any(known) {
            row.stands_for.push((model.id.clone(), model.parent.clone()));
        }
    }
}

impl NameIds {
    fn number(&mut self, name: &Arc<str>) -> NameId {
        *self.ids.entry(name.clone()).or_insert_with(|| {
            self.next = self.next.wrapping_add(1);
            NameId(self.next)
        })
    }
}

/// Adapters that have requests at an upstream, running or waiting; a name may come twice.
pub(crate) fn active_adapters(report: &Report) -> impl Iterator<Item = &Arc<str>> + Clone {
    report
        .adapters
        .iter()
        .flat_map(|adapters| adapters.running.iter().chain(&adapters.waiting))
}
