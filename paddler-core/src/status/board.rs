//! Who writes down what the sources say?

mod members;
mod reports;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::away::Away;
use super::event::StatusEvent;
use super::names::{NameIds, Names};
use super::snapshot::{Entry, Snapshot};
use super::{Degraded, Failure, Health, Published};
use crate::Moment;
use crate::config::HealthRules;
use crate::health::{BoardView, HealthBook};
use crate::schedule::Tree;
use crate::upstream::{Ledger, UpstreamId, UpstreamIndex};

/// How a board behaves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BoardOptions {
    /// How long the weight of a cancelled request stays reserved when no report shows the room. Default 10 s: an engine
    /// notices a hang-up within 2 s, and one that does not should not lose its slot for ever.
    pub settle: Duration,
    /// The shortest time between two publishes. Default 10 ms: at most 100 a second, whatever the sources do.
    pub publish_every: Duration,
    /// When an upstream that fails is left out, and for how long.
    pub health: HealthRules,
}

/// What an upstream that has no limit and tells no room is taken to run at once, for as long as it warms up: vLLM's own
/// default.
const ROOM: u32 = 256;

impl Default for BoardOptions {
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(10),
            publish_every: Duration::from_millis(10),
            health: HealthRules::default(),
        }
    }
}

/// What applying an event has changed, for logs and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Applied {
    /// A new upstream.
    Joined(UpstreamId),
    /// A known upstream has another spec.
    Changed(UpstreamId),
    /// A known upstream has the spec that it had: nothing has changed.
    Unchanged(UpstreamId),
    /// It has left.
    Left(UpstreamId),
    /// A report came in.
    Reported {
        /// Who.
        id: UpstreamId,
        /// How it says it is.
        health: Option<Health>,
        /// Signals that are missing now and were not in the report before: worth saying once.
        degraded: Vec<Degraded>,
    },
    /// It could not be asked.
    Failed {
        /// Who.
        id: UpstreamId,
        /// How often in a row.
        failures: u32,
        /// Why this time.
        failure: Failure,
    },
    /// The event was about an upstream that is not known (any more): nothing has changed.
    Unknown(UpstreamId),
    /// A report was overtaken by a later one, or by a new upstream under the same id: nothing has changed.
    Overtaken(UpstreamId),
    /// No place is left for another upstream: nothing has changed.
    Full(UpstreamId),
}

impl Applied {
    fn has_changed_anything(&self) -> bool {
        match self {
            Self::Joined(_)
            | Self::Changed(_)
            | Self::Left(_)
            | Self::Reported { .. }
            | Self::Failed { .. } => true,
            Self::Unchanged(_) | Self::Unknown(_) | Self::Overtaken(_) | Self::Full(_) => false,
        }
    }
}

/// The one writer of statuses. Pure: events and time come in, snapshots go out.
///
/// ```
/// use paddler_core::schedule::{Ask, Outcome, Scratch, trees};
/// use paddler_core::status::{Report, StatusBoard, StatusEvent};
/// use paddler_core::upstream::UpstreamSpec;
/// use paddler_core::request::Facts;
/// use paddler_core::Moment;
///
/// let mut board = StatusBoard::new(trees::balancer());
/// for id in ["idle", "busy"] {
///     let spec = UpstreamSpec::new(id, "http://127.0.0.1:8080")?;
///     let mut report = Report::new();
///     report.slots_total = Some(4);
///     report.slots_busy = Some(if id == "busy" { 3 } else { 0 });
///     board.apply(StatusEvent::Upsert(spec.clone()), Moment::ZERO);
///     board.apply(StatusEvent::Report { id: spec.id, report, sample: None }, Moment::ZERO);
/// }
/// let snapshot = board.publish(Moment::ZERO);
///
/// let facts = Facts::new();
/// let ask = Ask::new(&facts, Moment::ZERO, 1);
/// let lease = snapshot.reserve(&ask, &mut Scratch::default(), &mut ()).unwrap();
/// assert_eq!(lease.upstream().as_str(), "idle");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct StatusBoard {
    options: BoardOptions,
    ledger: Arc<Ledger>,
    health: Arc<HealthBook>,
    tree: Arc<Tree>,
    entries: Vec<Option<Arc<Entry>>>,
    by_id: Arc<HashMap<UpstreamId, UpstreamIndex>>,
    /// What the entries say of models and adapters; `None` once one of them has said something else.
    gathered: Option<Arc<Names>>,
    /// Places whose upstream has left, and on which something may still be open.
    leaving: Vec<u32>,
    free: BTreeSet<u32>,
    away: Away,
    names: NameIds,
    published: Published,
    generation: u64,
    last_publish: Moment,
    /// Whether somebody asks the upstreams how they are.
    polled: bool,
    /// The latest moment that it was told.
    now: Moment,
    dirty: bool,
}

impl StatusBoard {
    /// A board without upstreams. Several boards may share a tree.
    pub fn new(tree: impl Into<Arc<Tree>>) -> Self {
        Self::with_options(tree, BoardOptions::default())
    }

    /// A board without upstreams, with other options.
    pub fn with_options(tree: impl Into<Arc<Tree>>, options: BoardOptions) -> Self {
        let ledger = Arc::new(Ledger::new(options.settle));
        let tree = tree.into();
        let names = NameIds::default();
        let health = Arc::new(HealthBook::new(ledger.clone(), options.health));
        let in_force = (health.clone(), tree.clone());
        let first = Snapshot::of(
            0,
            Moment::ZERO,
            in_force,
            (Vec::new(), false),
            Arc::default(),
            Arc::default(),
        );
        Self {
            options,
            ledger,
            health,
            tree,
            entries: Vec::new(),
            by_id: Arc::default(),
            gathered: None,
            leaving: Vec::new(),
            free: BTreeSet::new(),
            away: Away::default(),
            names,
            published: Published::new(first),
            generation: 0,
            last_publish: Moment::ZERO,
            polled: false,
            now: Moment::ZERO,
            dirty: false,
        }
    }

    /// Where readers find the state in force.
    pub fn published(&self) -> Published {
        self.published.clone()
    }

    /// Our own count of what is open.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Puts another tree in force at the next publish.
    pub fn set_tree(&mut self, tree: impl Into<Arc<Tree>>) {
        self.tree = tree.into();
        self.dirty = true;
    }

    /// Whether somebody asks the upstreams how they are: who is asked is heard before anybody is known to be able to serve.
    #[cfg(feature = "proxy")]
    pub(super) fn set_polled(&mut self, polled: bool) {
        // Of nobody there is nothing to say: whoever comes first is published at once.
        self.dirty |= self.polled != polled && !self.by_id.is_empty();
        self.polled = polled;
    }

    /// Takes an upstream out of every pick at once, without waiting for a publish, or lets it back in. What is open on
    /// it goes on. Whoever is drained stays so while he is away, and when he comes back. Returns whether the upstream is
    /// known; who is away is, where he is to be let back in and was drained.
    pub fn set_draining(&mut self, id: &str, draining: bool) -> bool {
        let Some(&index) = self.by_id.get(id) else {
            return !draining && self.away.undrain(id);
        };
        self.ledger.set_barred(index.0, draining);
        self.judge(index, false);
        self.ledger.notify();
        true
    }

    /// Has other rules for upstreams that fail hold from now on.
    pub fn set_health(&mut self, rules: HealthRules) {
        self.options.health = rules;
        self.health.set_rules(rules, self.now);
    }

    /// Tells the health what it needs to know of an upstream. `became_ready`: by its last report, and not before.
    fn judge(&self, index: UpstreamIndex, became_ready: bool) {
        if let Some(entry) = &self.entries[index.get()] {
            let known = self.known(index, entry, became_ready);
            self.health.update(index.0, known, self.now);
        }
    }

    /// Tells the health what can be asked of an upstream.
    fn tell_models(&self, index: UpstreamIndex) {
        if let Some(entry) = &self.entries[index.get()] {
            self.health.serve(index.0, entry.serves(), self.now);
        }
    }

    fn known(&self, index: UpstreamIndex, entry: &Entry, became_ready: bool) -> BoardView {
        BoardView {
            usable: entry.is_able() && !self.ledger.is_barred(index.0),
            room: entry.limit().or(entry.room()).unwrap_or(ROOM),
            became_ready,
        }
    }

    /// Writes down one event. It is seen by picks after the next publish; limits take effect at once.
    pub fn apply(&mut self, event: StatusEvent, now: Moment) -> Applied {
        self.now = self.now.max(now);
        let applied = match event {
            StatusEvent::Upsert(spec) => self.upsert(spec, now),
            StatusEvent::Remove(id) => self.remove(id),
            StatusEvent::Report { id, report, sample } => self.report(id, report, sample, now),
            StatusEvent::Failed { id, failure } => self.failed(id, failure),
        };
        self.dirty |= applied.has_changed_anything();
        if matches!(
            applied,
            Applied::Joined(_) | Applied::Changed(_) | Applied::Left(_)
        ) {
            self.gathered = None;
        }
        applied
    }

    fn entry_mut(&mut self, id: &UpstreamId) -> Option<(UpstreamIndex, &mut Entry)> {
        let index = *self.by_id.get(id)?;
        let entry = self.entries[index.get()].as_mut()?;
        Some((index, Arc::make_mut(entry)))
    }

    /// Whether a publish would change anything.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// When the next publish is due: `None` when nothing has changed, else at the earliest one
    /// [`publish_every`](BoardOptions::publish_every) after the last.
    pub fn publish_due(&self) -> Option<Moment> {
        let next = self.last_publish.saturating_add(self.options.publish_every);
        self.dirty
            .then_some(if self.generation == 0 { Moment::ZERO } else { next })
    }

    /// Builds a snapshot of all that was applied and puts it in force.
    pub fn publish(&mut self, now: Moment) -> Arc<Snapshot> {
        self.now = self.now.max(now);
        self.generation += 1;
        self.last_publish = now;
        self.dirty = false;
        let (entries, ids) = (&self.entries, &mut self.names);
        // Most reports are about load alone, and gathering is the larger part of a publish.
        let names = self
            .gathered
            .get_or_insert_with(|| Arc::new(Names::gather(entries, ids)));
        let snapshot = Arc::new(Snapshot::of(
            self.generation,
            now,
            (self.health.clone(), self.tree.clone()),
            (self.entries.clone(), self.polled),
            self.by_id.clone(),
            names.clone(),
        ));
        self.published.store(snapshot.clone());
        // Who waits may now find a place.
        self.ledger.notify();
        snapshot
    }

    /// Ends what has settled for too long, and what upstreams were left out for. Returns when to come again, if anything
    /// is to end by now.
    ///
    /// An end has no clock: the time of what has ended since runs from this call. So call it now and then, also when
    /// nothing was settling before; once a second will do.
    pub fn expire(&mut self, now: Moment) -> Option<Moment> {
        self.now = self.now.max(now);
        self.away.forget(self.options.health.longest_time, now);
        let healed = self.health.tick(now);
        let settled = self.ledger.expire_settling(now);
        healed.into_iter().chain(settled).min()
    }
}
