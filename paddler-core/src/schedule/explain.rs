//! Why did the walk end as it did?

use serde::Serialize;

use super::candidates::CandidateSet;
use super::context::PickCx;
use super::explained::Explained;
use super::filter::{Filter, FilterError};
use super::node::NodeId;
use super::outcome::{Ending, Picks};
use super::tree::Tree;
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

impl<O: Observer> Observer for &mut O {
    fn entered(&mut self, cx: &PickCx<'_>, node: NodeId, set: &CandidateSet<'_>) {
        (**self).entered(cx, node, set);
    }
    fn narrowing(&mut self, cx: &PickCx<'_>, node: NodeId, set: &CandidateSet<'_>) {
        (**self).narrowing(cx, node, set);
    }
    fn narrowed(
        &mut self,
        cx: &PickCx<'_>,
        node: NodeId,
        filter: &dyn Filter,
        set: &CandidateSet<'_>,
        error: Option<&FilterError>,
    ) {
        (**self).narrowed(cx, node, filter, set, error);
    }
    fn choosing(&mut self, cx: &PickCx<'_>, node: NodeId, set: &CandidateSet<'_>) {
        (**self).choosing(cx, node, set);
    }
    fn picked(&mut self, cx: &PickCx<'_>, node: NodeId, picks: &Picks) {
        (**self).picked(cx, node, picks);
    }
    fn ended(&mut self, cx: &PickCx<'_>, ending: &Ending) {
        (**self).ended(cx, ending);
    }
}

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
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Step {
    /// Where.
    #[serde(skip)]
    pub node: NodeId,
    /// How many candidates came.
    pub before: usize,
    /// How many were left.
    pub after: usize,
    /// Who went out, with the value that was judged by, where there is one. In an [`Explained`], as many as are named.
    pub removed: Vec<(UpstreamId, Option<f64>)>,
    /// What the filter said if it could not judge.
    #[serde(skip_serializing_if = "Option::is_none")]
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

impl Explanation {
    /// All of it in a line, for logs: what each node on the way did, and who was chosen. `tree` is the one that was walked.
    ///
    /// ```text
    /// require model 1 of 2, require slot 1 of 1, least prefill_product -> engine-1
    /// ```
    pub fn summary(&self, tree: &Tree) -> String {
        self.data(tree, 0).summary
    }

    /// All of it as data, with titles. `tree` is the one that was walked; `most` is how many upstreams each list names: what
    /// goes into a header is better short, and the counts say how many there were.
    ///
    /// ```
    /// use paddler_core::Moment;
    /// use paddler_core::request::Facts;
    /// use paddler_core::schedule::{Ask, Explanation, Scratch, trees};
    /// use paddler_core::status::StatusBoard;
    ///
    /// let snapshot = StatusBoard::new(trees::balancer()).publish(Moment::ZERO);
    /// let (facts, mut why) = (Facts::new(), Explanation::default());
    /// let outcome = snapshot.pick(&Ask::new(&facts, Moment::ZERO, 1), &mut Scratch::default(), &mut why);
    /// let json = serde_json::to_value(why.data(snapshot.tree(), 10)).unwrap();
    /// assert_eq!(json["outcome"], outcome.ending().unwrap().class.as_str());
    /// assert_eq!(json["nodes"][1]["title"], snapshot.tree().title(outcome.ending().unwrap().node).unwrap());
    /// ```
    pub fn data(&self, tree: &Tree, most: usize) -> Explained {
        Explained::new(self, tree, most)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;
    use crate::request::Facts;
    use crate::schedule::filters::{Margin, model, slot, within_best};
    use crate::schedule::{Ask, Node, Scratch, Signals, cost_fn, costs};
    use crate::status::{StatusBoard, StatusEvent};
    use crate::upstream::{ModelEntry, Models, UpstreamSpec};

    #[test]
    fn a_summary_says_each_step_and_the_end() {
        let least = Node::least(costs::in_flight_share());
        let nodes = Node::list([Node::require(model()), Node::require(slot()), least]);
        let mut board = StatusBoard::new(Tree::new(Signals::Corrected, nodes).unwrap());
        for (id, model) in [("engine-1", "small"), ("engine-2", "large")] {
            let models = Models::Listed(vec![ModelEntry::new(model)]);
            let mut spec = UpstreamSpec::new(id, "http://127.0.0.1:1")
                .unwrap()
                .models(models);
            spec.limits.max_in_flight = Some(1);
            board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
        }
        let snapshot = board.publish(Moment::ZERO);
        let facts = Facts::new().model("small");
        let reserve = || {
            let mut why = Explanation::default();
            let ask = Ask::new(&facts, Moment::ZERO, 1);
            let lease = snapshot.reserve(&ask, &mut Scratch::default(), &mut why);
            (lease, why.summary(snapshot.tree()))
        };
        let (lease, why) = reserve();
        assert!(lease.is_ok());
        assert_eq!(
            why,
            "require model 1 of 2, require slot 1 of 1, least in_flight_share -> engine-1"
        );
        let (_, why) = reserve();
        assert_eq!(
            why,
            "require model 1 of 2, require slot 0 of 1 -> later: slots_busy"
        );
    }

    #[test]
    fn as_data_it_has_titles_and_names_no_more_than_asked() {
        let far = cost_fn("far", |cx, upstream| {
            cx.spec(upstream).id.as_str().strip_prefix('u')?.parse().ok()
        });
        let near = within_best(far, Margin::Plus(2.0));
        let nodes = Node::list([Node::require(near), Node::random()]);
        let mut board = StatusBoard::new(Tree::new(Signals::Corrected, nodes).unwrap());
        for number in 0..9 {
            let spec = UpstreamSpec::new(format!("u{number}"), "http://127.0.0.1:1").unwrap();
            board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
        }
        let snapshot = board.publish(Moment::ZERO);
        let (facts, mut why) = (Facts::new(), Explanation::default());
        let ask = Ask::new(&facts, Moment::ZERO, 1);
        assert!(
            snapshot
                .pick(&ask, &mut Scratch::default(), &mut why)
                .picked()
                .is_some()
        );
        let data = why.data(snapshot.tree(), 2);
        let picked = data.picked[0].as_str();
        let wanted = serde_json::json!({
            "outcome": "picked",
            "picked": [picked],
            "survivors": ["u0", "u1"],
            "nodes": [
                {"node": 0, "title": "list"},
                {
                    "node": 1,
                    "title": "require within_best far plus 2",
                    "before": 9,
                    "after": 3,
                    "removed": [["u3", 3.0], ["u4", 4.0]],
                },
                {"node": 2, "title": "random"},
            ],
            "summary": why.summary(snapshot.tree()),
        });
        assert_eq!(serde_json::to_value(&data).unwrap(), wanted);
        let table = [
            "node  what it does                    left",
            "   1  require within_best far plus 2  3 of 9    without u3 (3), u4 (4) and 4 more",
            "   2  random",
            &format!("picked: {picked}"),
        ];
        assert_eq!(data.to_string(), table.join("\n"));
    }
}
