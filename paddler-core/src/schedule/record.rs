//! How is a decision written down, so that it can be made again?

use serde::{Deserialize, Serialize};

use super::context::Reads;
use super::explain::Observer;
use super::frozen::Frozen;
use super::outcome::{Ending, Outcome, Picks};
use super::pick::{Ask, Lost, Scratch};
use crate::Moment;
use crate::request::RequestFacts;
use crate::status::Snapshot;
use crate::upstream::{Lease, UpstreamId, UpstreamIndex};

/// The version of the form that records of decisions and of snapshots are written in: 1, and nothing else. It is written
/// with each of them, and a record of another version is not read but refused, with an error that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct RecordVersion;

impl RecordVersion {
    /// The number.
    pub const NUMBER: u32 = 1;
}

impl From<RecordVersion> for u32 {
    fn from(_: RecordVersion) -> Self {
        RecordVersion::NUMBER
    }
}

impl TryFrom<u32> for RecordVersion {
    type Error = String;

    fn try_from(version: u32) -> Result<Self, Self::Error> {
        if version == Self::NUMBER {
            return Ok(Self);
        }
        let known = Self::NUMBER;
        Err(format!(
            "the record is of version {version}, and only version {known} can be read"
        ))
    }
}

/// One decision with all that went into it. Together with the snapshot that it names, it replays exactly.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Record {
    /// The version of the form that it is written in. Another one cannot be read.
    pub version: RecordVersion,
    /// Which snapshot it was made on.
    pub generation: u64,
    /// When.
    pub now: Moment,
    /// Where chance came from.
    pub seed: u64,
    /// What was asked for.
    pub facts: RequestFacts,
    /// Nobody but these was allowed, if given.
    pub only: Option<Vec<UpstreamId>>,
    /// These were not allowed.
    pub except: Vec<UpstreamId>,
    /// How many were to be ranked.
    pub want: usize,
    /// Our own counters, as the walk read them.
    frozen: Frozen,
    /// Who was picked, the best first.
    pub picked: Vec<UpstreamId>,
    /// How it ended without a pick.
    pub ending: Option<Ending>,
}

impl Snapshot {
    /// Picks as [`pick`](Self::pick) does, and writes down what went into it: all of our own counters, whatever the tree
    /// looks at, so that another tree can be tried on the record. This allocates.
    pub fn pick_recorded<O: Observer>(
        &self,
        ask: &Ask<'_>,
        scratch: &mut Scratch,
        observer: &mut O,
    ) -> (Outcome, Record) {
        let outcome = self.pick_without(&[], Reads::RECORD, ask, scratch, observer);
        let record = self.recorded(ask, &[], scratch, &outcome);
        (outcome, record)
    }

    /// Picks and reserves as [`reserve_ranked`](Self::reserve_ranked) does, and writes down what went into it. Who was lost to
    /// another request on the way is in the record as one that was not allowed. This allocates.
    ///
    /// # Errors
    /// How the walk ended, when nobody was picked.
    pub fn reserve_recorded<O: Observer>(
        &self,
        ask: &Ask<'_>,
        scratch: &mut Scratch,
        observer: &mut O,
    ) -> Result<(Lease, Picks, Record), Ending> {
        let mut lost = Lost::default();
        let (lease, picks) = self.reserve_without(&mut lost, Reads::RECORD, ask, scratch, observer)?;
        let record = self.recorded(ask, lost.as_slice(), scratch, &Outcome::Picked(picks));
        Ok((lease, picks, record))
    }

    fn recorded(
        &self,
        ask: &Ask<'_>,
        lost: &[UpstreamIndex],
        scratch: &Scratch,
        outcome: &Outcome,
    ) -> Record {
        let lost = lost.iter().filter_map(|at| Some(self.spec(*at)?.id.clone()));
        Record {
            version: RecordVersion,
            generation: self.generation(),
            now: ask.now,
            seed: ask.seed,
            facts: RequestFacts::from(*ask.facts),
            only: ask.only.map(<[UpstreamId]>::to_vec),
            except: ask.except.iter().cloned().chain(lost).collect(),
            want: ask.want,
            frozen: scratch.frozen.clone(),
            picked: self.ids(outcome),
            ending: outcome.ending().cloned(),
        }
    }

    /// Makes the decision again, on the snapshot that the record names: the outcome is the same, whatever has happened
    /// to the counters since. On another snapshot, or with another tree, it says what would have been.
    pub fn replay<O: Observer>(&self, record: &Record, scratch: &mut Scratch, observer: &mut O) -> Outcome {
        let facts = record.facts.as_facts();
        scratch.frozen.recall(&record.frozen, facts.weight);
        let ask = Ask {
            facts: &facts,
            now: record.now,
            seed: record.seed,
            only: record.only.as_deref(),
            except: &record.except,
            want: record.want,
        };
        let model = facts.model.and_then(|name| self.model(name));
        self.walk(&[], model, &ask, scratch, observer)
    }

    /// The ids of who was picked, the best first.
    pub fn ids(&self, outcome: &Outcome) -> Vec<UpstreamId> {
        match outcome {
            Outcome::Picked(picks) => picks
                .iter()
                .filter_map(|upstream| Some(self.spec(upstream)?.id.clone()))
                .collect(),
            Outcome::Wait(_) | Outcome::Refuse(_) => Vec::new(),
        }
    }
}
