//! What becomes of a request where a filter or a cost of the host's cannot judge?

mod pool;

use std::fmt;
use std::sync::Arc;

use paddler_core::schedule::filters::{Margin, within_best};
use paddler_core::schedule::{
    Alternative, Class, Condition, Cost, FilterError, Gate, Node, PickCx, Reason, Tree, costs, filter_fn,
};
use paddler_core::upstream::UpstreamIndex;
use pool::{Pool, corrected};

/// A cost that knows all prices but that of `b`.
#[derive(Clone, Copy)]
struct Price;

impl fmt::Debug for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("price")
    }
}

impl Cost for Price {
    fn cost(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Result<Option<f32>, FilterError> {
        match cx.spec(upstream).id.as_str() {
            "b" => Err(FilterError::new("no price for b")),
            _ => Ok(Some(1.0)),
        }
    }
}

fn weighted() -> Node {
    let parts: [(f32, Arc<dyn Cost>); 2] = [(1.0, Arc::new(costs::queue())), (2.0, Arc::new(Price))];
    Node::least(costs::weighted(parts))
}

fn ask(tree: Tree) -> pool::Told {
    Pool::of(tree, &["a", "b"]).ask(1)
}

#[test]
fn a_leaf_whose_cost_cannot_judge_ends_the_walk_and_is_named() {
    let leaves = [
        (Node::least(Price), "least price"),
        (Node::two_choices(Price), "two_choices price"),
        (weighted(), "least weighted [1 queue, 2 price]"),
    ];
    for (leaf, title) in leaves {
        let keeps_all = filter_fn("all", |_, _| true);
        let tree = corrected([Node::require(keeps_all), leaf]);
        let told = ask(tree);
        let ending = told.outcome.ending().unwrap();
        assert_eq!(
            (ending.class, &ending.reason),
            (Class::Never, &Reason::FilterFailed)
        );
        assert_eq!(ending.node.get(), 2, "{title}");
        assert_eq!(ending.error, Some(FilterError::new("no price for b")));
        assert!(told.picked.is_empty() && told.survivors.is_empty());
    }
}

#[test]
fn a_condition_that_cannot_say_ends_the_walk_and_is_named() {
    let broken = || Condition::fallible("night", |_| Err(FilterError::new("no clock")));
    let no = || Condition::Not(Box::new(Condition::All(Vec::new())));
    let when = |condition| Node::when(condition, Node::random(), Node::random());
    for condition in [
        broken(),
        Condition::Not(Box::new(broken())),
        Condition::All(vec![Condition::Critical, broken()]),
        Condition::Any(vec![no(), broken()]),
    ] {
        let told = ask(corrected([when(condition.clone())]));
        let ending = told.outcome.ending().unwrap();
        assert_eq!(
            (ending.class, &ending.reason),
            (Class::Never, &Reason::FilterFailed)
        );
        assert_eq!(ending.node.get(), 1, "{condition:?}");
        assert_eq!(ending.error, Some(FilterError::new("no clock")));
        assert_eq!(ending.title.as_deref(), Some(&*format!("when {condition:?}")));
    }
    // Not asked once it is decided; and another alternative goes on.
    let undecided = Condition::All(vec![no(), broken()]);
    assert!(ask(corrected([when(undecided)])).outcome.picked().is_some());
    let alternatives = [when(broken()), Node::random()].map(Alternative::new);
    assert!(
        ask(corrected([Node::first_of(alternatives)]))
            .outcome
            .picked()
            .is_some()
    );
}

#[test]
fn a_filter_of_the_hosts_that_leaves_nobody_is_named() {
    let cheap = || filter_fn("cheap", |_, _| false);
    let told = ask(corrected([Node::require(cheap()), Node::random()]));
    let ending = told.outcome.ending().unwrap();
    assert_eq!(ending.reason, Reason::Filtered);
    assert_eq!(ending.title.as_deref(), Some("require cheap"));
}

#[test]
fn a_summary_says_once_why_the_walk_could_not_go_on() {
    let pool = |leaf| {
        let mut pool = Pool::of(corrected([leaf]), &["a", "b"]);
        let told = pool.ask(1);
        told.why.summary(pool.publish().tree())
    };
    assert_eq!(
        pool(Node::least(Price)),
        "least price -> never: filter_failed (no price for b)"
    );
    let filter = Node::list([
        Node::require(within_best(Price, Margin::Plus(1.0))),
        Node::random(),
    ]);
    assert_eq!(
        pool(filter),
        "require within_best price plus 1 2 of 2 (no price for b) -> never: filter_failed"
    );
}

#[test]
fn who_is_not_asked_about_the_one_it_cannot_judge_goes_on() {
    let without_b = filter_fn("not b", |cx, upstream| cx.spec(upstream).id.as_str() != "b");
    let told = ask(corrected([Node::require(without_b), Node::least(Price)]));
    assert_eq!(told.picked, ["a"]);
}

#[test]
fn a_preference_by_such_a_cost_is_left_out_and_a_mean_of_it_is_below_nothing() {
    let prefers = [
        Node::prefer(within_best(Price, Margin::Times(1.1))),
        Node::random(),
    ];
    assert_eq!(ask(corrected(prefers)).survivors, ["a", "b"]);

    let gate = Gate::MeanBelow(Arc::new(Price), f32::MAX);
    let told = ask(corrected([Node::gate(
        gate,
        Node::reject(Class::Shed, "below"),
        Node::reject(Class::Never, "not below"),
    )]));
    let reason = &told.outcome.ending().unwrap().reason;
    assert_eq!(*reason, Reason::Rejected("not below".into()));
}
