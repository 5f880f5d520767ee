//! Which upstreams, how busy, stand behind a pick that is measured?

use std::sync::Arc;

use crate::harness::Failure;
use paddler_core::Moment;
use paddler_core::request::Facts;
use paddler_core::schedule::Tree;
use paddler_core::status::{Adapters, Health, Report, Snapshot, StatusBoard, StatusEvent};
use paddler_core::upstream::{Lease, ModelEntry, Models, UpstreamId, UpstreamSpec};

const SLOTS: u32 = 8;

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
    let mut board = StatusBoard::new(tree);
    let models = models();
    for place in 0..upstreams {
        let id = id(place)?;
        let spec = UpstreamSpec::new(&*id.to_string(), "http://127.0.0.1:8080")?.models(models.clone());
        board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
        let report = case.report(place);
        board.apply(
            StatusEvent::Report {
                id,
                report,
                sample: None,
            },
            Moment::ZERO,
        );
    }
    Ok(board)
}

/// A pool in which one request in ten is our own, so that there is something to correct.
///
/// # Errors
/// Never: these ids and URLs are sound.
pub fn pool(tree: Tree, case: Case, upstreams: usize) -> Result<(Arc<Snapshot>, Vec<Lease>), Failure> {
    let snapshot = board(tree, case, upstreams)?.publish(Moment::ZERO);
    let own = Facts::new().model("adapter-1").tokens(100);
    let leases = snapshot
        .iter()
        .step_by(10)
        .filter_map(|(upstream, _)| snapshot.lease(upstream, &own, Moment::ZERO))
        .collect();
    Ok((snapshot, leases))
}
