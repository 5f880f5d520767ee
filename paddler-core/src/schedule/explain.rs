//! Why did the walk end as it did?

use super::candidates::CandidateSet;
use super::context::PickCx;
use super::filter::{Filter, FilterError};
use super::node::NodeId;
use super::outcome::{Ending, Picks};
use crate::upstream::{UpstreamId, bit};

/// Looks on while a request goes through the tree. It cannot change where it goes.
///
/// `()` looks away; a pair looks on twice.
pub trait Observer {
    /// A node is about to be walked, with these candidates.
    fn entered(&mut self, cx: &PickCx<'_>, node: NodeId, set: &CandidateSet<'_>) {
        let _unused = (cx, node, set);
    }
    /// A filter is about to narrow the set.
    fn narrowing(&mut self, cx: &PickCx<'_>, node: NodeId, set: &CandidateSet<'_>) {
        let _unused = (cx, node, set);
    }
    /// A filter has narrowed the set, or could not judge.
    fn narrowed(
        &mut self,
        cx: &PickCx<'_>,
        node: NodeId,
        filter: &dyn Filter,
        set: &CandidateSet<'_>,
        error: Option<&FilterError>,
    ) {
        let _unused = (cx, node, filter, set, error);
    }
    /// A leaf is about to choose among these.
    fn choosing(&mut self, cx: &PickCx<'_>, node: NodeId, set: &CandidateSet<'_>) {
        let _unused = (cx, node, set);
    }
    /// A leaf has chosen.
    fn picked(&mut self, cx: &PickCx<'_>, node: NodeId, picks: &Picks) {
        let _unused = (cx, node, picks);
    }
    /// The walk has ended without a pick.
    fn ended(&mut self, cx: &PickCx<'_>, ending: &Ending) {
        let _unused = (cx, ending);
    }
}

impl Observer for () {}

impl<A: Observer, B: Observer> Observer for (A, B) {
    fn entered(&mut self, cx: &PickCx<'_>, node: NodeId, set: &CandidateSet<'_>) {
        self.0.entered(cx, node, set);
        self.1.entered(cx, node, set);
    }
    fn narrowing(&mut self, cx: &PickCx<'_>, node: NodeId, set: &CandidateSet<'_>) {
        self.0.narrowing(cx, node, set);
        self.1.narrowing(cx, node, set);
    }
    fn narrowed(
        &mut self,
        cx: &PickCx<'_>,
        node: NodeId,
        filter: &dyn Filter,
        set: &CandidateSet<'_>,
        error: Option<&FilterError>,
    ) {
        self.0.narrowed(cx, node, filter, set, error);
        self.1.narrowed(cx, node, filter, set, error);
    }
    fn choosing(&mut self, cx: &PickCx<'_>, node: NodeId, set: &CandidateSet<'_>) {
        self.0.choosing(cx, node, set);
        self.1.choosing(cx, node, set);
    }
    fn picked(&mut self, cx: &PickCx<'_>, node: NodeId, picks: &Picks) {
        self.0.picked(cx, node, picks);
        self.1.picked(cx, node, picks);
    }
    fn ended(&mut self, cx: &PickCx<'_>, ending: &Ending) {
        self.0.ended(cx, ending);
        self.1.ended(cx, ending);
    }
}

/// One filter's work on the way.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Step {
    /// Where.
    pub node: NodeId,
    /// How many candidates came.
    pub before: usize,
    /// How many were left.
    pub after: usize,
    /// Who went out, with the value that was judged by, where there is one.
    pub removed: Vec<(UpstreamId, Option<f64>)>,
    /// What the filter said if it could not judge.
    pub error: Option<String>,
}

/// An observer that writes everything down. Use a new one for each pick; where a reservation has walked more than once,
/// path and steps are those of all walks, and the rest is that of the last.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Explanation {
    /// The nodes that were walked, in order.
    pub path: Vec<NodeId>,
    /// What each filter did.
    pub steps: Vec<Step>,
    /// Who the leaf could choose among, in the order of places.
    pub survivors: Vec<UpstreamId>,
    /// Who was chosen, the best first.
    pub picked: Vec<UpstreamId>,
    /// How it ended without a pick.
    pub ending: Option<Ending>,
    before: Vec<u64>,
    before_len: usize,
}

impl Observer for Explanation {
    fn entered(&mut self, _cx: &PickCx<'_>, node: NodeId, _set: &CandidateSet<'_>) {
        self.path.push(node);
    }

    fn narrowing(&mut self, _cx: &PickCx<'_>, _node: NodeId, set: &CandidateSet<'_>) {
        self.before.clear();
        self.before.extend_from_slice(set.bits());
        self.before_len = set.len();
    }

    fn narrowed(
        &mut self,
        cx: &PickCx<'_>,
        node: NodeId,
        filter: &dyn Filter,
        set: &CandidateSet<'_>,
        error: Option<&FilterError>,
    ) {
        let was_in = |place: usize| bit(&self.before, place);
        let gone = cx
            .snapshot
            .iter()
            .filter(|(upstream, _)| was_in(upstream.get()) && !set.contains(*upstream));
        let removed = gone
            .map(|(upstream, entry)| (entry.spec().id.clone(), filter.value(cx, upstream)))
            .collect();
        let error = error.map(ToString::to_string);
        self.steps.push(Step {
            node,
            before: self.before_len,
            after: set.len(),
            removed,
            error,
        });
    }

    fn choosing(&mut self, cx: &PickCx<'_>, _node: NodeId, set: &CandidateSet<'_>) {
        self.survivors = set.iter().map(|upstream| cx.spec(upstream).id.clone()).collect();
    }

    fn picked(&mut self, cx: &PickCx<'_>, _node: NodeId, picks: &Picks) {
        self.picked = picks
            .iter()
            .map(|upstream| cx.spec(upstream).id.clone())
            .collect();
        self.ending = None;
    }

    fn ended(&mut self, _cx: &PickCx<'_>, ending: &Ending) {
        self.ending = Some(ending.clone());
        self.survivors.clear();
        self.picked.clear();
    }
}
