//! How often does each node do what?

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::candidates::CandidateSet;
use super::context::PickCx;
use super::explain::Observer;
use super::filter::{Filter, FilterError};
use super::node::NodeId;
use super::outcome::{Ending, Picks};
use super::tree::Tree;

/// Counts for each node of one tree, shared by all threads. As an observer, use `&counters`.
#[derive(Debug)]
pub struct NodeCounters(Box<[Counts]>);

#[derive(Debug, Default)]
struct Counts {
    entered: AtomicU64,
    emptied: AtomicU64,
    failed: AtomicU64,
    picked: AtomicU64,
    ended: AtomicU64,
}

/// What one node has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct NodeCount {
    /// Walks that came by.
    pub entered: u64,
    /// Walks in which its filter left nobody.
    pub emptied: u64,
    /// Walks in which its filter could not judge.
    pub failed: u64,
    /// Picks it made, as a leaf.
    pub picked: u64,
    /// Walks that ended here without a pick.
    pub ended: u64,
}

impl NodeCounters {
    /// Counters for this tree, all at zero.
    pub fn new(tree: &Tree) -> Self {
        Self((0..tree.node_count()).map(|_| Counts::default()).collect())
    }

    /// The counts of a node; zeros for one that the tree does not have.
    pub fn get(&self, node: NodeId) -> NodeCount {
        self.0
            .get(node.0 as usize)
            .map_or_else(NodeCount::default, |counts| NodeCount {
                entered: counts.entered.load(Relaxed),
                emptied: counts.emptied.load(Relaxed),
                failed: counts.failed.load(Relaxed),
                picked: counts.picked.load(Relaxed),
                ended: counts.ended.load(Relaxed),
            })
    }

    /// The counts of all nodes, in the order of the tree.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, NodeCount)> + '_ {
        (0..self.0.len() as u32).map(|node| (NodeId(node), self.get(NodeId(node))))
    }

    fn add(&self, node: NodeId, which: impl Fn(&Counts) -> &AtomicU64) {
        if let Some(counts) = self.0.get(node.0 as usize) {
            which(counts).fetch_add(1, Relaxed);
        }
    }
}

impl Observer for &NodeCounters {
    fn entered(&mut self, _cx: &PickCx<'_>, node: NodeId, _set: &CandidateSet<'_>) {
        self.add(node, |counts| &counts.entered);
    }

    fn narrowed(
        &mut self,
        _cx: &PickCx<'_>,
        node: NodeId,
        _filter: &dyn Filter,
        set: &CandidateSet<'_>,
        error: Option<&FilterError>,
    ) {
        if error.is_some() {
            self.add(node, |counts| &counts.failed);
        } else if set.is_empty() {
            self.add(node, |counts| &counts.emptied);
        }
    }

    fn picked(&mut self, _cx: &PickCx<'_>, node: NodeId, _picks: &Picks) {
        self.add(node, |counts| &counts.picked);
    }

    fn ended(&mut self, _cx: &PickCx<'_>, ending: &Ending) {
        self.add(ending.node, |counts| &counts.ended);
    }
}
