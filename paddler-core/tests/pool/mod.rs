//! What tests of picks are made of: a board with upstreams, told in a line each.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::Arc;

use paddler_core::Moment;
use paddler_core::request::Facts;
use paddler_core::schedule::{Ask, Explanation, Node, Outcome, Scratch, Signals, Tree};
use paddler_core::status::{Adapters, Report, Snapshot, StatusBoard, StatusEvent};
use paddler_core::upstream::{UpstreamId, UpstreamSpec};

/// A board and how to fill it.
pub(crate) struct Pool {
    pub(crate) board: StatusBoard,
}

/// The walk's answer with its reasons.
pub(crate) struct Told {
    pub(crate) outcome: Outcome,
    pub(crate) why: Explanation,
    /// Who was picked, the best first.
    pub(crate) picked: Vec<String>,
    /// Among whom the leaf chose.
    pub(crate) survivors: Vec<String>,
}

pub(crate) fn tree(signals: Signals, nodes: impl IntoIterator<Item = Node>) -> Tree {
    Tree::new(signals, Node::list(nodes)).expect("a sound tree")
}

pub(crate) fn corrected(nodes: impl IntoIterator<Item = Node>) -> Tree {
    tree(Signals::Corrected, nodes)
}

pub(crate) fn spec(id: &str) -> UpstreamSpec {
    UpstreamSpec::new(id, "http://127.0.0.1:1").expect("a valid id")
}

pub(crate) fn ids(names: &[&str]) -> Vec<UpstreamId> {
    names
        .iter()
        .map(|name| UpstreamId::new(*name).expect("a valid id"))
        .collect()
}

/// A report of what a test cares about.
pub(crate) fn report(fill: impl FnOnce(&mut Report)) -> Report {
    let mut report = Report::new();
    fill(&mut report);
    report
}

pub(crate) fn slots(busy: u32, total: u32) -> Report {
    report(|report| {
        report.slots_busy = Some(busy);
        report.slots_total = Some(total);
    })
}

pub(crate) fn queue(waiting: u32) -> Report {
    report(|report| report.waiting = Some(waiting))
}

pub(crate) fn kv(usage: f64) -> Report {
    report(|report| report.kv_cache_usage = Some(usage))
}

pub(crate) fn adapters(max: Option<u32>, running: &[&str], waiting: &[&str]) -> Adapters {
    let names = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect();
    Adapters {
        max,
        running: names(running),
        waiting: names(waiting),
    }
}

impl Pool {
    pub(crate) fn new(tree: Tree) -> Self {
        Self {
            board: StatusBoard::new(tree),
        }
    }

    /// A pool of upstreams that say nothing.
    pub(crate) fn of(tree: Tree, names: &[&str]) -> Self {
        names
            .iter()
            .fold(Self::new(tree), |pool, name| pool.with(spec(name)))
    }

    /// A pool of upstreams with a report each.
    pub(crate) fn reporting<'n>(tree: Tree, all: impl IntoIterator<Item = (&'n str, Report)>) -> Self {
        all.into_iter().fold(Self::new(tree), |pool, (name, report)| {
            pool.with(spec(name)).says(name, report)
        })
    }

    pub(crate) fn with(mut self, spec: UpstreamSpec) -> Self {
        self.board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
        self
    }

    pub(crate) fn says(mut self, name: &str, report: Report) -> Self {
        self.report_at(name, report, Moment::ZERO);
        self
    }

    pub(crate) fn report_at(&mut self, name: &str, report: Report, now: Moment) {
        let id = UpstreamId::new(name).expect("a valid id");
        self.board.apply(
            StatusEvent::Report {
                id,
                report,
                sample: None,
            },
            now,
        );
    }

    pub(crate) fn publish(&mut self) -> Arc<Snapshot> {
        self.board.publish(Moment::ZERO)
    }

    /// Publishes, and asks once for any model.
    pub(crate) fn ask(&mut self, seed: u64) -> Told {
        let facts = Facts::new();
        tell(&self.publish(), &Ask::new(&facts, Moment::ZERO, seed))
    }

    /// Publishes, and asks once with these facts.
    pub(crate) fn ask_for(&mut self, facts: &Facts<'_>) -> Told {
        tell(&self.publish(), &Ask::new(facts, Moment::ZERO, 1))
    }
}

pub(crate) fn tell(snapshot: &Snapshot, ask: &Ask<'_>) -> Told {
    let mut why = Explanation::default();
    let outcome = snapshot.pick(ask, &mut Scratch::default(), &mut why);
    let names = |ids: &[UpstreamId]| ids.iter().map(ToString::to_string).collect();
    let (picked, survivors) = (names(&why.picked), names(&why.survivors));
    assert_eq!(
        why.picked,
        snapshot.ids(&outcome),
        "the explanation tells what happened"
    );
    assert_eq!(why.ending.as_ref(), outcome.ending());
    Told {
        outcome,
        why,
        picked,
        survivors,
    }
}

/// Asks with many seeds, and counts who is picked first, by place.
pub(crate) fn count(snapshot: &Snapshot, facts: &Facts<'_>, seeds: u64) -> Vec<u32> {
    let mut scratch = Scratch::default();
    let places = snapshot
        .iter()
        .map(|(upstream, _)| upstream.get() + 1)
        .max()
        .unwrap_or(0);
    let mut counts = vec![0; places];
    for seed in 0..seeds {
        let outcome = snapshot.pick(&Ask::new(facts, Moment::ZERO, seed), &mut scratch, &mut ());
        counts[outcome.picked().expect("a pick").get()] += 1;
    }
    counts
}

/// The chi-square statistic of counts against shares.
pub(crate) fn chi_square(counts: &[u32], shares: &[f64]) -> f64 {
    let total: f64 = counts.iter().copied().map(f64::from).sum();
    counts
        .iter()
        .zip(shares)
        .map(|(count, share)| (f64::from(*count) - total * share).powi(2) / (total * share))
        .sum()
}
