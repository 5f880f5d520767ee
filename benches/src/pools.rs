//! Which upstreams, how busy, stand behind a pick that is measured, and who waits for one?

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use crate::harness::Failure;
use paddler_core::Moment;
use paddler_core::queue::{QueueLimits, Told, Tried, WaitQueue};
use paddler_core::request::{Facts, RequestFacts};
use paddler_core::schedule::{Tree, trees};
use paddler_core::status::{
    Adapters, Health, ModelRoom, Published, Report, Snapshot, StatusBoard, StatusEvent,
};
use paddler_core::upstream::{Lease, ModelEntry, Models, UpstreamId, UpstreamSpec};

const SLOTS: u32 = 8;

/// What makes a tree.
pub type MakeTree = fn() -> Tree;

/// The trees that are built in, by name.
pub const TREES: [(&str, MakeTree); 3] = [
    ("seed", trees::seed),
    ("balancer", trees::balancer),
    ("gateway", trees::gateway),
];

/// Upstreams, with requests of our own that are open there.
pub type Pool = (Arc<Snapshot>, Vec<Lease>);

/// What is asked, and of which pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// A critical request for an adapter that one upstream in sixteen has active.
    Affinity,
    /// One for an adapter that is active nowhere.
    Miss,
    /// Nobody is to be picked: every slot is busy and every queue too long.
    Shed,
}

impl Case {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Affinity, Self::Miss, Self::Shed];

    /// Its name in figures.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Affinity => "affinity",
            Self::Miss => "miss",
            Self::Shed => "shed",
        }
    }

    /// What is asked.
    #[must_use]
    pub fn facts(self) -> Facts<'static> {
        let facts = Facts::new().tokens(300);
        match self {
            Self::Affinity => facts.model("adapter-active"),
            Self::Miss => facts.model("adapter-idle"),
            Self::Shed => facts.model("adapter-active").priority(-1),
        }
    }

    /// What the upstream says at its `place`: loads differ, as they do, and none is out of the ordinary.
    #[must_use]
    pub fn report(self, place: usize) -> Report {
        let noise = (place as u32).wrapping_mul(2_654_435_761) >> 16;
        let shed = self == Self::Shed;
        let mut report = Report::new();
        report.health = Some(Health::Ready);
        report.waiting = Some(if shed { 6 + noise % 40 } else { noise % 40 });
        report.slots_total = Some(SLOTS);
        report.slots_busy = Some(if shed { SLOTS } else { noise % SLOTS });
        report.kv_cache_usage = Some(f64::from(noise % 90) / 100.0);
        let mut running: Vec<Arc<str>> = vec![format!("adapter-{}", noise % 7).into()];
        if place.is_multiple_of(16) {
            running.push("adapter-active".into());
        }
        report.adapters = Some(Adapters {
            max: Some(2 + noise % 2),
            running,
            waiting: Vec::new(),
        });
        report
    }
}

fn models() -> Models {
    let adapters = (0..7)
        .map(|number| number.to_string())
        .chain(["active".into(), "idle".into()]);
    let adapters = adapters.map(|name| ModelEntry::adapter(format!("adapter-{name}"), "base"));
    Models::Listed([ModelEntry::new("base")].into_iter().chain(adapters).collect())
}

/// The id of the upstream at this place.
///
/// # Errors
/// Never: these ids and URLs are sound.
pub fn id(place: usize) -> Result<UpstreamId, Failure> {
    Ok(UpstreamId::try_from(Arc::from(format!("upstream-{place}")))?)
}

/// So many upstreams, each of which has said how it is.
///
/// # Errors
/// Never: these ids and URLs are sound.
pub fn board(tree: Tree, case: Case, upstreams: usize) -> Result<StatusBoard, Failure> {
    board_of(tree, &models(), upstreams, |place| case.report(place))
}

/// Upstreams with these models, each of which has said what is in its report.
///
/// # Errors
/// Never: these ids and URLs are sound.
pub fn board_of(
    tree: Tree,
    models: &Models,
    upstreams: usize,
    report: impl Fn(usize) -> Report,
) -> Result<StatusBoard, Failure> {
    let mut board = StatusBoard::new(tree);
    for place in 0..upstreams {
        let id = id(place)?;
        let spec = UpstreamSpec::new(&*id.to_string(), "http://127.0.0.1:8080")?.models(models.clone());
        board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
        let event = StatusEvent::Report {
            id,
            report: report(place),
            sample: None,
        };
        board.apply(event, Moment::ZERO);
    }
    Ok(board)
}

/// A pool in which one request in ten is our own, so that there is something to correct.
///
/// # Errors
/// Never: these ids and URLs are sound.
pub fn pool(tree: Tree, case: Case, upstreams: usize) -> Result<Pool, Failure> {
    Ok(with_own(&mut board(tree, case, upstreams)?))
}

/// The same of so many routers, each of which has room of its own for each of its models.
///
/// # Errors
/// Never: these ids and URLs are sound.
pub fn routers(tree: Tree, upstreams: usize) -> Result<Pool, Failure> {
    let report = |place: usize| {
        let mut report = Case::Affinity.report(place);
        let room = |(nth, models): (usize, &[&str])| ModelRoom {
            models: models.iter().map(|model| (*model).into()).collect(),
            limit: SLOTS,
            load: (place + nth) as u32 % SLOTS,
        };
        let rooms: [&[&str]; 3] = [
            &["base", "adapter-0", "adapter-active"],
            &["adapter-1"],
            &["adapter-2"],
        ];
        report.rooms = rooms.into_iter().enumerate().map(room).collect();
        report
    };
    Ok(with_own(&mut board_of(tree, &models(), upstreams, report)?))
}

/// What is published, with the requests of our own.
fn with_own(board: &mut StatusBoard) -> Pool {
    let snapshot = board.publish(Moment::ZERO);
    let own = Facts::new().model("adapter-1").tokens(100);
    let leases = snapshot
        .iter()
        .step_by(10)
        .filter_map(|(upstream, _)| snapshot.lease(upstream, &own, Moment::ZERO))
        .collect();
    (snapshot, leases)
}

/// A board one of whose upstreams says something new each time.
#[derive(Debug)]
pub struct Changing {
    board: StatusBoard,
    ids: Vec<UpstreamId>,
    turn: usize,
}

impl Changing {
    /// One with so many upstreams, under the tree of a gateway.
    ///
    /// # Errors
    /// Never: these ids and URLs are sound.
    pub fn new(upstreams: usize) -> Result<Self, Failure> {
        Ok(Self {
            board: board(trees::gateway(), Case::Miss, upstreams)?,
            ids: (0..upstreams).map(id).collect::<Result<_, _>>()?,
            turn: 0,
        })
    }

    /// Where what is published is found.
    #[must_use]
    pub fn published(&self) -> Published {
        self.board.published()
    }

    /// The next upstream's report comes into force.
    pub fn publish(&mut self) -> Arc<Snapshot> {
        self.turn += 1;
        let now = Moment::from_millis(self.turn as u64);
        if let Some(id) = self.ids.get(self.turn % self.ids.len().max(1)) {
            let event = StatusEvent::Report {
                id: id.clone(),
                report: Case::Miss.report(self.turn),
                sample: None,
            };
            self.board.apply(event, now);
        }
        self.board.publish(now)
    }
}

/// A queue in which so many wait, for ten models and of ten tenants.
#[derive(Debug)]
pub struct Waiting {
    queue: WaitQueue<()>,
    asked: RequestFacts,
}

impl Waiting {
    /// One in which so many wait.
    ///
    /// # Errors
    /// Never: there is room for all of them.
    pub fn new(waiting: usize) -> Result<Self, Failure> {
        let limits = QueueLimits::new(waiting + 1, u64::MAX, Duration::from_secs(1_000));
        Ok(Self {
            queue: queue_of(limits, waiting, (10, 10))?,
            asked: asked(0, (10, 10)),
        })
    }

    /// One more comes in, and leaves.
    pub fn come_and_go(&mut self) {
        let (now, facts) = (Moment::from_millis(1), self.asked.clone());
        if let Ok(pushed) = self.queue.push(facts, Tried::default(), Told::default(), now, ()) {
            black_box(self.queue.remove(pushed.ticket, now));
        }
    }
}

/// What the one of this number asks for, of so many models and of so many tenants.
fn asked(number: usize, (models, tenants): (usize, usize)) -> RequestFacts {
    let mut facts = RequestFacts::new();
    facts.model = Some(format!("model-{}", number % models).into());
    facts.tenant = Some(format!("tenant-{}", number / models % tenants).into());
    facts
}

/// So many who wait within these limits, for so many models and of so many tenants.
///
/// # Errors
/// When there is no room for them.
pub fn queue_of(limits: QueueLimits, waiting: usize, of: (usize, usize)) -> Result<WaitQueue<()>, Failure> {
    let mut queue = WaitQueue::new(limits);
    for number in 0..waiting {
        let pushed = queue.push(
            asked(number, of),
            Tried::default(),
            Told::default(),
            Moment::ZERO,
            (),
        );
        pushed.map_err(|_| "there is no room")?;
    }
    Ok(queue)
}
