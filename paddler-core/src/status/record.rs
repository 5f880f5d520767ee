//! How is a snapshot written down, so that decisions on it can be made again?

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Report;
use super::names::{NameIds, Names};
use super::snapshot::{Entry, Snapshot};
use crate::Moment;
use crate::config::HealthRules;
use crate::health::HealthBook;
use crate::schedule::{RecordVersion, Tree};
use crate::upstream::{Ledger, UpstreamIndex, UpstreamSpec};

/// A snapshot as data: what was known of every upstream, and at which place it stood. The tree is not in it; it is given
/// when the snapshot is made again, so that another one can be tried.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SnapshotRecord {
    /// The version of the form that it is written in. Another one cannot be read.
    pub version: RecordVersion,
    /// The generation that decision records name.
    pub generation: u64,
    /// When it was published.
    pub published: Moment,
    /// The upstreams, in the order of their places.
    pub entries: Vec<EntryRecord>,
}

/// One upstream in a [`SnapshotRecord`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EntryRecord {
    /// Its place.
    pub place: u32,
    /// What it is.
    pub spec: UpstreamSpec,
    /// What it last said.
    pub report: Option<Report>,
    /// When it was asked for that.
    pub reported_at: Moment,
    /// Weight there that was not ours.
    pub others: u32,
    /// Whether nobody answered there.
    pub unreachable: bool,
}

/// Why a record cannot be made into a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSnapshot(String);

impl fmt::Display for InvalidSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this record cannot be made into a snapshot: {}", self.0)
    }
}

impl std::error::Error for InvalidSnapshot {}

impl Snapshot {
    /// Writes it down.
    pub fn record(&self) -> SnapshotRecord {
        let entry = |(upstream, entry): (UpstreamIndex, &Arc<Entry>)| EntryRecord::of(upstream.0, entry);
        SnapshotRecord {
            version: RecordVersion,
            generation: self.generation,
            published: self.published,
            entries: self.iter().map(entry).collect(),
        }
    }

    /// Makes it again, with this tree and counters of its own, all at zero: those of a decision come from its record.
    ///
    /// # Errors
    /// When two upstreams have one place or one id, or a place is out of range.
    pub fn from_record(record: &SnapshotRecord, tree: Arc<Tree>) -> Result<Self, InvalidSnapshot> {
        let mut entries: Vec<Option<Arc<Entry>>> = Vec::new();
        let mut by_id = std::collections::HashMap::new();
        let ledger = Arc::new(Ledger::new(std::time::Duration::ZERO));
        for one in &record.entries {
            let place = one.place as usize;
            if place >= Ledger::CAPACITY {
                return Err(InvalidSnapshot(format!(
                    "place {place} of {} is out of range",
                    one.spec.id
                )));
            }
            entries.resize(entries.len().max(place + 1), None);
            let twice = by_id
                .insert(one.spec.id.clone(), UpstreamIndex(one.place))
                .is_some();
            if twice || entries[place].is_some() {
                return Err(InvalidSnapshot(format!(
                    "{} or its place {place} is there twice",
                    one.spec.id
                )));
            }
            let mut entry = one.entry();
            entry.tenancy = ledger.open(one.place, entry.own_limit());
            entries[place] = Some(Arc::new(entry));
        }
        let names = Arc::new(Names::gather(&entries, &mut NameIds::default()));
        Ok(Self::of(
            record.generation,
            record.published,
            (Arc::new(HealthBook::new(ledger, HealthRules::default())), tree),
            // Nobody asks those in a record.
            (entries, false),
            Arc::new(by_id),
            names,
        ))
    }
}

impl EntryRecord {
    pub(crate) fn of(place: u32, entry: &Entry) -> Self {
        Self {
            place,
            spec: (*entry.spec).clone(),
            report: entry.report.as_deref().cloned(),
            reported_at: entry.reported_at,
            others: entry.others,
            unreachable: entry.is_unreachable(),
        }
    }

    fn entry(&self) -> Entry {
        let mut entry = Entry::new(self.spec.clone());
        entry.report = self.report.clone().map(Arc::new);
        entry.reported_at = self.reported_at;
        entry.others = self.others;
        if self.unreachable {
            entry.set_unreachable();
        }
        entry
    }
}
