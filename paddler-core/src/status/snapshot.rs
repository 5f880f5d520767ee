//! What is known of all upstreams at one moment?

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::columns::{Columns, Reached, UNKNOWN};
use super::event::FailureKind;
use super::names::{ModelRow, Names};
use super::{Failure, Health, Report, Signal};
use crate::Moment;
use crate::health::{HealthBook, PoolHealth, Serves, UpstreamHealth};
use crate::request::Facts;
use crate::schedule::Tree;
use crate::upstream::{
    Abilities, Capability, Ledger, Models, Reserve, Rooms, SampleToken, Traffic, UpstreamId, UpstreamIndex,
    UpstreamSpec,
};

/// After this many failed connections in a row, nobody is there. One alone may be a dropped packet or a full backlog; a
/// third would keep a dead machine among the candidates for another poll.
pub(super) const UNREACHABLE_AFTER: u32 = 2;

/// An extension of the spec of an upstream that is not polled: its source tells how it is, and until it has, nobody is
/// [able](Snapshot::anyone_able) for that one's sake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpolled;

/// One upstream with what it last said.
#[derive(Debug, Clone)]
pub struct Entry {
    pub(crate) spec: Arc<UpstreamSpec>,
    /// Counts the specs that this id has had: a changed address under the same id is a new connection pool.
    pub(crate) generation: u64,
    pub(crate) tenancy: u16,
    pub(crate) report: Option<Arc<Report>>,
    pub(crate) reported_at: Moment,
    /// The number of the sample that the report was asked with.
    pub(crate) sample: u64,
    pub(crate) others: u32,
    pub(crate) rooms: Arc<Rooms>,
    pub(crate) failures: u32,
    /// Those of the last failures that found nobody, in a row.
    pub(crate) refused: u32,
    pub(crate) last_failure: Option<Failure>,
}

impl Entry {
    /// An upstream that has not spoken yet.
    pub(crate) fn new(spec: UpstreamSpec) -> Self {
        Self::unheard(Arc::new(spec))
    }

    fn unheard(spec: Arc<UpstreamSpec>) -> Self {
        Self {
            spec,
            generation: 0,
            tenancy: 0,
            report: None,
            reported_at: Moment::ZERO,
            sample: 0,
            others: 0,
            rooms: Arc::default(),
            failures: 0,
            refused: 0,
            last_failure: None,
        }
    }

    /// Somebody else answers from now on. What was asked before this sample is not about him.
    pub(crate) fn forget(&mut self, sample: u64) {
        *self = Self {
            generation: self.generation,
            tenancy: self.tenancy,
            sample,
            ..Self::unheard(self.spec.clone())
        };
    }

    pub(crate) fn set_unreachable(&mut self) {
        self.failures = UNREACHABLE_AFTER;
        self.refused = UNREACHABLE_AFTER;
        self.last_failure = Some(Failure::new(FailureKind::Unreachable, "no connection"));
    }

    /// What it is.
    pub fn spec(&self) -> &Arc<UpstreamSpec> {
        &self.spec
    }

    /// How many specs this id has had before this one.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What it last said, if it ever said anything.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_deref()
    }

    /// When it was asked for what it last said.
    pub fn reported_at(&self) -> Moment {
        self.reported_at
    }

    /// Weight at the engine that is not ours, as of the last report.
    pub fn others(&self) -> u32 {
        self.others
    }

    /// Whether it has said how it is, or could not when it was asked.
    pub fn has_answered(&self) -> bool {
        self.report.is_some() || self.failures > 0
    }

    /// Polls that have failed since the last report.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Why the last poll failed, if one has since the last report.
    pub fn last_failure(&self) -> Option<&Failure> {
        self.last_failure.as_ref()
    }

    /// Whether several connections in a row could not be made, or whoever tells of it has said nothing for too long. Any other
    /// failure in between says that somebody is there.
    pub fn is_unreachable(&self) -> bool {
        self.refused >= UNREACHABLE_AFTER
    }

    /// The models it answers for: what the user says, else what it says itself.
    pub fn models(&self) -> Option<&Models> {
        self.spec
            .models
            .as_ref()
            .or_else(|| self.report()?.models.as_ref())
    }

    /// Who could serve in its place is told by this.
    pub(crate) fn serves(&self) -> Serves {
        Serves::of(self.models(), self.spec.traffic)
    }

    /// Whether all models are known that it answers for. A router behind this one may know only some of those behind it.
    fn has_told_models(&self) -> bool {
        let partly = |report: &Report| report.degraded.iter().any(|one| one.signal == Signal::Models);
        self.spec.models.is_some()
            || self
                .report()
                .is_some_and(|report| report.models.is_some() && !partly(report))
    }

    /// Whether it can do this: what the user says, else what it says itself.
    pub fn can(&self, what: Capability) -> Option<bool> {
        let own = |abilities: &Abilities| abilities.can.get(&what).copied();
        own(&self.spec.abilities).or_else(|| own(&self.report()?.abilities))
    }

    /// The most tokens of one prompt with its answer: what the user says, else what it says itself.
    pub fn context(&self) -> Option<u32> {
        self.spec
            .abilities
            .context
            .or_else(|| self.report()?.abilities.context)
    }

    /// Requests that the engine works on at once, if that is known.
    pub fn room(&self) -> Option<u32> {
        let report = self.report();
        let slots = report.and_then(|report| report.slots_total);
        let sequences = report.and_then(|report| report.max_sequences);
        slots.or(self.spec.limits.max_sequences).or(sequences)
    }

    /// The most weight that may be open on it, whoever sent it; `None` is no limit.
    ///
    /// It is what the spec says, else the slots that it reports. An engine without slots takes whatever it is sent and
    /// queues it; where it is known how many sequences it runs at once, it gets twice as many. One batch runs, and a second
    /// stands ready behind it, so that the engine never runs dry in the time that it takes to see that a request has ended
    /// and to send the next. What is more waits here, where it can still go to whoever is free first, and in a fair order.
    ///
    /// Where that is not known there is no limit: any number would be a guess, too low for one engine by ten times and too
    /// high for another.
    pub fn limit(&self) -> Option<u32> {
        let (limits, report) = (&self.spec.limits, self.report());
        let slots = report.and_then(|report| report.slots_total);
        let sequences = limits
            .max_sequences
            .or_else(|| report?.max_sequences)
            .map(|sequences| sequences.saturating_mul(2));
        limits.max_in_flight.or(slots).or(sequences)
    }

    /// Whether it is not known yet how it is, and will be: it is `polled`, or its source tells. Of one that answers what cannot be
    /// read, and has its models written, nothing more need be known.
    pub(super) fn is_awaited(&self, polled: bool) -> bool {
        if self.report.is_some() {
            return false;
        }
        let is_asked = polled && !self.spec.is_never_asked();
        let tells = is_asked || self.spec.extensions.get::<Unpolled>().is_some();
        let answers = |failure: &Failure| failure.kind == FailureKind::Unreadable;
        tells && !(self.spec.models.is_some() && self.last_failure.as_ref().is_some_and(answers))
    }

    /// Whether it can be sent work, by its own word: it is there, and neither loads nor fails.
    pub(crate) fn is_able(&self) -> bool {
        let health = self.report().and_then(|report| report.health);
        !self.is_unreachable() && !matches!(health, Some(Health::Loading | Health::Failing))
    }

    /// The limit for our own weight: what others hold is not ours to give.
    pub(crate) fn own_limit(&self) -> u32 {
        self.limit()
            .map_or(Reserve::UNLIMITED, |limit| limit.saturating_sub(self.others))
    }
}

/// What is known of all upstreams at one moment, with the tree in force. Immutable; replaced as a whole.
pub struct Snapshot {
    pub(crate) generation: u64,
    pub(crate) published: Moment,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) health: Arc<HealthBook>,
    pub(crate) tree: Arc<Tree>,
    pub(crate) entries: Vec<Option<Arc<Entry>>>,
    pub(crate) by_id: Arc<HashMap<UpstreamId, UpstreamIndex>>,
    pub(crate) columns: Columns,
    pub(crate) names: Arc<Names>,
    pub(crate) models_complete: bool,
}

impl Snapshot {
    /// What these upstreams come to: all that a pick scans is derived from them here. `polled`: they are asked how they are.
    pub(crate) fn of(
        generation: u64,
        published: Moment,
        (health, tree): (Arc<HealthBook>, Arc<Tree>),
        (entries, polled): (Vec<Option<Arc<Entry>>>, bool),
        by_id: Arc<HashMap<UpstreamId, UpstreamIndex>>,
        names: Arc<Names>,
    ) -> Self {
        // What nobody can ask for by its name says nothing of the names that can be asked for.
        let mut known = entries.iter().flatten();
        let fallback = |entry: &Entry| entry.spec.traffic == Traffic::Fallback;
        Self {
            generation,
            published,
            ledger: health.ledger().clone(),
            health,
            tree,
            columns: Columns::new(&entries, polled),
            names,
            models_complete: !by_id.is_empty()
                && known.all(|entry| fallback(entry) || entry.has_told_models()),
            entries,
            by_id,
        }
    }

    /// Counts publishes; a higher one is later.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// When it was published.
    pub fn published(&self) -> Moment {
        self.published
    }

    /// The tree in force.
    pub fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Our own count of what is open.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    pub(crate) fn health_book(&self) -> &Arc<HealthBook> {
        &self.health
    }

    /// What is known of the health of the upstream at a place, by the requests that it was sent. As of now, not of the
    /// publish. It takes a lock, and is for people and metrics.
    pub fn health(&self, upstream: UpstreamIndex) -> Option<UpstreamHealth> {
        self.entry(upstream)?;
        self.health.health(upstream.0)
    }

    /// What the pool as a whole has gone through, as of now.
    pub fn pool_health(&self) -> PoolHealth {
        self.health.totals()
    }

    /// How many upstreams there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is no upstream at all.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The place of this upstream, good for this snapshot alone.
    pub fn index(&self, id: &str) -> Option<UpstreamIndex> {
        self.by_id.get(id).copied()
    }

    /// The upstream at a place.
    pub fn entry(&self, upstream: UpstreamIndex) -> Option<&Arc<Entry>> {
        self.entries.get(upstream.get())?.as_ref()
    }

    /// The upstream with this id.
    pub fn find(&self, id: &str) -> Option<&Arc<Entry>> {
        self.entry(self.index(id)?)
    }

    /// What the upstream at a place is.
    pub fn spec(&self, upstream: UpstreamIndex) -> Option<&Arc<UpstreamSpec>> {
        self.entry(upstream).map(|entry| &entry.spec)
    }

    /// What the upstream at a place last said.
    pub fn report(&self, upstream: UpstreamIndex) -> Option<&Report> {
        self.entry(upstream)?.report()
    }

    /// All upstreams, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (UpstreamIndex, &Arc<Entry>)> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(place, entry)| Some((UpstreamIndex(u32::try_from(place).ok()?), entry.as_ref()?)))
    }

    /// Whether anyone is there who was heard to be able to serve, and is not draining; who is only
    /// [fallen back to](crate::upstream::Traffic::Fallback) does not count.
    ///
    /// Of one that is neither polled nor [told of](super::Unpolled) nobody will ever hear: it counts from the start, as does
    /// [somebody else's API](crate::upstream::UpstreamSpec::is_hosted) whose models are written down. One that answers what cannot
    /// be read counts where its models are written down, too; one that does not answer in time does not.
    pub fn anyone_able(&self) -> bool {
        self.is_anyone_able(false)
    }

    /// The same. `instead`: who is only fallen back to counts, too.
    pub(crate) fn is_anyone_able(&self, instead: bool) -> bool {
        let reached = self.columns.reached(true, instead).words();
        let mut able = reached.zip(&self.columns.able).enumerate();
        able.any(|(chunk, (reached, able))| {
            let awaited = self.columns.awaited.get(chunk).copied().unwrap_or(0);
            reached & able & !awaited & !self.ledger.marks(chunk).drained != 0
        })
    }

    /// Whether there are upstreams that are not only fallen back to, and all are draining.
    #[cfg(feature = "proxy")]
    pub(crate) fn all_draining(&self) -> bool {
        let reached = self.columns.reached(true, false);
        let mut words = reached.words().enumerate();
        reached.words().any(|word| word != 0)
            && words.all(|(chunk, word)| word & !self.ledger.marks(chunk).drained == 0)
    }

    /// Whom the request reaches.
    pub(crate) fn reached(&self, facts: &Facts<'_>) -> Reached<'_> {
        self.columns.reached(facts.goes_by_name(), facts.reaches_all())
    }

    /// Whether the upstream with this id is draining: it gets nothing new, at once and whatever the snapshot's age.
    pub fn is_draining(&self, id: &str) -> Option<bool> {
        Some(self.ledger.is_barred(self.index(id)?.0))
    }

    pub(crate) fn is_able(&self, place: u32) -> bool {
        crate::upstream::bit(&self.columns.able, place as usize)
    }

    /// Whether it is still to be heard how the upstream at a place is.
    pub(crate) fn is_awaited(&self, place: u32) -> bool {
        crate::upstream::bit(&self.columns.awaited, place as usize)
    }

    /// How many are.
    #[cfg(feature = "proxy")]
    pub(crate) fn awaited(&self) -> usize {
        let each = self.columns.awaited.iter();
        each.map(|word| word.count_ones() as usize).sum()
    }

    /// Whether any upstream that is there has room for anything.
    #[cfg(feature = "proxy")]
    pub(crate) fn has_room(&self) -> bool {
        self.columns.live.iter().enumerate().any(|(chunk, live)| {
            let marks = self.ledger.marks(chunk);
            live & !marks.shut & !marks.full != 0
        })
    }

    /// Whether somebody whom such a request reaches lists the name, or answers for any. `instead`: the model serves it instead of
    /// its own.
    pub(crate) fn is_served(&self, model: Option<&str>, instead: bool) -> bool {
        let row = model.and_then(|name| self.model(name));
        self.is_listed_or_any(model.is_some(), row, instead)
    }

    /// The same of a name whose row is known.
    pub(crate) fn is_reached(&self, row: &ModelRow) -> bool {
        self.is_listed_or_any(true, Some(row), false)
    }

    fn is_listed_or_any(&self, named: bool, row: Option<&ModelRow>, instead: bool) -> bool {
        let columns = &self.columns;
        let reached = columns.reached(named, instead);
        let lists = row.map_or(&[][..], |row| &row.serves[..]);
        let of = |column: &[u64], at: usize| column.get(at).copied().unwrap_or(0);
        reached.words().enumerate().any(|(at, reached)| {
            let serves = if named {
                columns.any_model[at] | of(lists, at)
            } else {
                u64::MAX
            };
            reached & serves != 0
        })
    }

    /// What is known under a model or adapter name.
    pub fn model(&self, name: &str) -> Option<&ModelRow> {
        self.names.row(name)
    }

    /// All model and adapter names that can be asked for, with what is known of them. In no order.
    pub fn models(&self) -> impl Iterator<Item = (&str, &ModelRow)> {
        self.names
            .iter()
            .filter(|(_, row)| row.is_listed())
            .map(|(name, row)| (&**name, row))
    }

    /// Whether every upstream that is not only fallen back to has told which models it serves: only then is an unknown name known
    /// to be wrong.
    pub fn models_complete(&self) -> bool {
        self.models_complete
    }

    /// To be taken just before an upstream is asked how it is; its report then carries it.
    pub fn sample(&self, id: &str, now: Moment) -> Option<SampleToken> {
        let index = self.index(id)?;
        let tenancy = self.columns.tenancy[index.get()];
        let sample = self.ledger.sample(index.0, tenancy, now);
        self.entry(index)?.rooms.sample(sample.sequence);
        Some(sample)
    }

    pub(crate) fn count(column: &[u32], upstream: UpstreamIndex) -> Option<u32> {
        column
            .get(upstream.get())
            .copied()
            .filter(|count| *count != UNKNOWN)
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("generation", &self.generation)
            .field("published", &self.published)
            .field("upstreams", &self.len())
            .finish()
    }
}
