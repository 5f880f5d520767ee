//! How long do walks through the tree take, and what do its nodes do?

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tokio::time::Instant;

use super::histogram::Histogram;
use crate::schedule::{NodeCounters, NodeId, Tree};
use crate::status::Snapshot;

/// One walk in so many is timed: two looks at the clock are a tenth of a short one.
const ONE_IN: u64 = 64;

/// The counts of one tree.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// Of the snapshot that had it first.
    generation: u64,
    tree: Arc<Tree>,
    counters: NodeCounters,
}

impl Nodes {
    fn of(snapshot: &Snapshot) -> Self {
        let tree = snapshot.tree().clone();
        Self {
            generation: snapshot.generation(),
            counters: NodeCounters::new(&tree),
            tree,
        }
    }

    pub(crate) fn counters(&self) -> &NodeCounters {
        &self.counters
    }

    pub(super) fn title(&self, node: NodeId) -> &str {
        self.tree.title(node).unwrap_or("?")
    }
}

/// What is counted of walks. The counts of nodes begin anew with each tree.
#[derive(Debug)]
pub(crate) struct Walks {
    times: Histogram,
    nodes: ArcSwap<Nodes>,
}

impl Walks {
    pub(crate) fn new(snapshot: &Snapshot) -> Self {
        Self {
            times: Histogram::of_picks(),
            nodes: ArcSwap::from_pointee(Nodes::of(snapshot)),
        }
    }

    /// Those of the tree of this snapshot.
    pub(crate) fn nodes(&self, snapshot: &Snapshot) -> Guard<Arc<Nodes>> {
        let nodes = self.nodes.load();
        if Arc::ptr_eq(&nodes.tree, snapshot.tree()) {
            return nodes;
        }
        let new = Arc::new(Nodes::of(snapshot));
        // A walk that began before the tree was changed counts for nobody.
        if nodes.generation < new.generation {
            self.nodes.compare_and_swap(&nodes, new.clone());
        }
        Guard::from_inner(new)
    }

    /// Walks, and sees now and then how long that takes. `seed`: whence chance comes for this walk.
    pub(crate) fn timed<T>(&self, seed: u64, walk: impl FnOnce() -> T) -> T {
        if !seed.is_multiple_of(ONE_IN) {
            return walk();
        }
        let began = Instant::now();
        let found = walk();
        self.times.add(began.elapsed());
        found
    }

    pub(super) fn times(&self) -> &Histogram {
        &self.times
    }
}
