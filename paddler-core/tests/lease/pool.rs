//! A board with a few upstreams, and short words for what happens to it.

use std::sync::Arc;
use std::time::Duration;

use paddler_core::Moment;
use paddler_core::request::Facts;
use paddler_core::schedule::trees;
use paddler_core::status::{Applied, BoardOptions, Report, Snapshot, StatusBoard, StatusEvent};
use paddler_core::upstream::{Lease, ModelEntry, Models, OwnLoad, SampleToken, UpstreamId, UpstreamSpec};

pub(crate) const SETTLE: Duration = Duration::from_secs(10);

pub(crate) fn id(name: &str) -> UpstreamId {
    UpstreamId::new(name).unwrap()
}

/// An upstream with this limit that serves a base model and two adapters.
pub(crate) fn spec(name: &str, limit: Option<u32>) -> UpstreamSpec {
    let models = vec![
        ModelEntry::new("base"),
        ModelEntry::adapter("red", "base"),
        ModelEntry::adapter("blue", "base"),
    ];
    let mut spec = UpstreamSpec::new(name, "http://127.0.0.1:1")
        .unwrap()
        .models(Models::Listed(models));
    spec.limits.max_in_flight = limit;
    spec
}

pub(crate) fn facts(weight: u32) -> Facts<'static> {
    let mut facts = Facts::new();
    facts.weight = weight;
    facts.tokens = 100;
    facts
}

pub(crate) fn report(slots: Option<u32>, running: Option<u32>, waiting: Option<u32>) -> Report {
    let mut report = Report::new();
    report.slots_total = slots;
    report.running = running;
    report.waiting = waiting;
    report
}

pub(crate) struct Pool {
    pub(crate) board: StatusBoard,
    pub(crate) now: Moment,
    pub(crate) snapshot: Arc<Snapshot>,
}

impl Pool {
    pub(crate) fn new(upstreams: &[(&str, Option<u32>)]) -> Self {
        let mut options = BoardOptions::default();
        // A limit is what the upstream says; how it grows at first is tested with health.
        options.health.slow_start = Duration::ZERO;
        options.settle = SETTLE;
        let mut board = StatusBoard::with_options(trees::balancer(), options);
        let now = Moment::from_millis(1_000);
        let snapshot = board.publish(now);
        let mut pool = Self { board, now, snapshot };
        for (name, limit) in upstreams {
            assert_eq!(pool.join(name, *limit), Applied::Joined(id(name)));
        }
        pool
    }

    pub(crate) fn apply(&mut self, event: StatusEvent) -> Applied {
        let applied = self.board.apply(event, self.now);
        self.snapshot = self.board.publish(self.now);
        applied
    }

    pub(crate) fn join(&mut self, name: &str, limit: Option<u32>) -> Applied {
        self.apply(StatusEvent::Upsert(spec(name, limit)))
    }

    pub(crate) fn leave(&mut self, name: &str) -> Applied {
        self.apply(StatusEvent::Remove(id(name)))
    }

    pub(crate) fn report(&mut self, name: &str, report: Report, sample: Option<SampleToken>) -> Applied {
        self.apply(StatusEvent::Report {
            id: id(name),
            report,
            sample,
        })
    }

    /// A report that says how much runs there.
    pub(crate) fn running(&mut self, name: &str, running: u32, sample: Option<SampleToken>) {
        let applied = self.report(name, report(None, Some(running), None), sample);
        assert!(matches!(applied, Applied::Reported { .. }), "{applied:?}");
    }

    pub(crate) fn sample(&self, name: &str) -> SampleToken {
        self.snapshot.sample(name, self.now).unwrap()
    }

    pub(crate) fn wait(&mut self, millis: u64) {
        self.now = self.now.saturating_add(Duration::from_millis(millis));
    }

    pub(crate) fn lease(&self, name: &str, facts: &Facts<'_>) -> Option<Lease> {
        self.snapshot
            .lease(self.snapshot.index(name).unwrap(), facts, self.now)
    }

    pub(crate) fn take(&self, name: &str, weight: u32) -> Lease {
        self.lease(name, &facts(weight)).unwrap()
    }

    /// A request that is under way for so long that the engine has seen it.
    pub(crate) fn running_lease(&mut self, name: &str, weight: u32) -> Lease {
        let mut lease = self.take(name, weight);
        lease.sent();
        self.wait(100);
        lease
    }

    pub(crate) fn load(&self, name: &str) -> OwnLoad {
        self.snapshot
            .ledger()
            .own_load(self.snapshot.index(name).unwrap())
    }

    pub(crate) fn weight(&self, name: &str) -> u32 {
        self.load(name).weight
    }

    pub(crate) fn others(&self, name: &str) -> u32 {
        self.snapshot.find(name).unwrap().others()
    }

    pub(crate) fn settling(&self) -> u64 {
        self.snapshot.ledger().settling_weight()
    }

    pub(crate) fn assert_idle(&self, name: &str) {
        let load = self.load(name);
        let counts = (
            load.weight,
            load.requests,
            load.prefill_tokens,
            load.adapter_requests,
        );
        assert_eq!(counts, (0, 0, 0, 0), "{name}");
    }
}
