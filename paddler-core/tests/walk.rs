//! Does each kind of node do what it says?

mod pool;

use std::time::Duration;

use paddler_core::Moment;
use paddler_core::request::{Facts, RequestClass, Task};
use paddler_core::schedule::filters::{
    Bound, Unknown, kv_cache, label, least_queue, lora_active, model, present, queue_depth, slot,
};
use paddler_core::schedule::{
    Alternative, Ask, CandidateSet, Class, Condition, Explanation, Filter, FilterError, Gate, Key, Node,
    NodeCounters, Outcome, PickCx, Reason, Scratch, Signals, Tree, cost_fn, filter_fn,
};
use paddler_core::upstream::{ModelEntry, Models};
use pool::{Pool, chi_square, corrected, count, ids, queue, report, slots, spec, tell};

/// Keeps the upstreams of these names.
fn named(names: &'static [&'static str]) -> impl Filter {
    filter_fn("named", move |cx, upstream| {
        names.contains(&cx.spec(upstream).id.as_str())
    })
}

#[derive(Debug)]
struct CannotJudge;

impl Filter for CannotJudge {
    fn narrow(&self, _cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        // What it has done before it gave up must not count.
        set.clear();
        Err(FilterError::new("no price list"))
    }
}

fn abc(nodes: impl IntoIterator<Item = Node>) -> Pool {
    Pool::of(corrected(nodes), &["a", "b", "c"])
}

fn ending(outcome: &Outcome) -> (bool, Class, &Reason) {
    let ending = outcome.ending().expect("nobody was picked");
    (matches!(outcome, Outcome::Wait(_)), ending.class, &ending.reason)
}

#[test]
fn require_narrows_or_ends_with_its_class() {
    let told = abc([Node::require(named(&["a", "c"])), Node::random()]).ask(1);
    assert_eq!(told.survivors, ["a", "c"]);

    let nobody = || named(&["z"]);
    let told = abc([Node::require(nobody()), Node::random()]).ask(1);
    assert_eq!(
        ending(&told.outcome),
        (true, Class::Later, &Reason::Filtered),
        "the natural class"
    );
    for (class, waits) in [(Class::Never, false), (Class::Later, true), (Class::Shed, false)] {
        let told = abc([Node::require_or(nobody(), class), Node::random()]).ask(1);
        assert_eq!(ending(&told.outcome), (waits, class, &Reason::Filtered));
        assert_eq!(
            told.outcome.ending().unwrap().node.get(),
            1,
            "the node that found nobody"
        );
    }
}

#[test]
fn require_of_a_filter_that_cannot_judge_names_the_node_and_the_error() {
    let told = abc([
        Node::prefer(present()),
        Node::require(CannotJudge),
        Node::random(),
    ])
    .ask(1);
    assert_eq!(
        ending(&told.outcome),
        (false, Class::Never, &Reason::FilterFailed)
    );
    let ending = told.outcome.ending().unwrap();
    assert_eq!(ending.node.get(), 2);
    assert_eq!(ending.error.as_ref().unwrap().to_string(), "no price list");
    assert_eq!(told.why.steps[1].error.as_deref(), Some("no price list"));
}

#[test]
fn prefer_narrows_unless_nobody_would_be_left() {
    let told = abc([Node::prefer(named(&["b"])), Node::random()]).ask(1);
    assert_eq!(told.survivors, ["b"]);
    let told = abc([Node::prefer(named(&["z"])), Node::random()]).ask(1);
    assert_eq!(told.survivors, ["a", "b", "c"]);
    let told = abc([Node::prefer(CannotJudge), Node::random()]).ask(1);
    assert_eq!(
        told.survivors,
        ["a", "b", "c"],
        "what a failed filter took out is back"
    );
}

#[test]
fn branch_takes_then_with_those_left_and_its_end_is_final() {
    let then_ends = || Node::list([Node::require(named(&["z"])), Node::random()]);
    let told = abc([Node::branch(named(&["a"]), then_ends(), Node::random())]).ask(1);
    assert_eq!(
        ending(&told.outcome),
        (true, Class::Later, &Reason::Filtered),
        "no fall to `else`"
    );

    let told = abc([Node::branch(
        named(&["a", "b"]),
        Node::random(),
        Node::reject(Class::Shed, "else"),
    )])
    .ask(1);
    assert_eq!(told.survivors, ["a", "b"]);
    for nobody in [
        Node::branch(named(&["z"]), Node::reject(Class::Shed, "then"), Node::random()),
        Node::branch(CannotJudge, Node::reject(Class::Shed, "then"), Node::random()),
    ] {
        let told = abc([nobody]).ask(1);
        assert_eq!(told.survivors, ["a", "b", "c"], "`else` has the set as it was");
    }
}

#[test]
fn branches_that_only_narrow_pass_on_what_they_left() {
    let narrows = |when| {
        Node::branch(
            named(when),
            Node::prefer(named(&["b"])),
            Node::prefer(named(&["c"])),
        )
    };
    let told = abc([narrows(&["a", "b"]), Node::random()]).ask(1);
    assert_eq!(told.survivors, ["b"]);
    let told = abc([narrows(&["z"]), Node::random()]).ask(1);
    assert_eq!(told.survivors, ["c"]);
}

#[test]
fn gates_ask_about_the_pool_and_narrow_nothing() {
    let yes = || Node::random();
    let no = || Node::reject(Class::Shed, "no");
    let holds = |gate: Gate| {
        let told = abc([Node::gate(gate, yes(), no())]).ask(1);
        let held = told.outcome.picked().is_some();
        assert!(!held || told.survivors == ["a", "b", "c"]);
        held
    };
    let any = |names| Gate::Any(std::sync::Arc::new(named(names)));
    let all = |names| Gate::All(std::sync::Arc::new(named(names)));
    assert!(holds(any(&["a"])) && !holds(any(&["z"])));
    assert!(holds(all(&["a", "b", "c"])) && !holds(all(&["a", "b"])));
    assert!(!holds(Gate::Any(std::sync::Arc::new(CannotJudge))));
    assert!(!holds(Gate::All(std::sync::Arc::new(CannotJudge))));

    let mean = |values: [Option<f32>; 3], below| {
        let cost = cost_fn("given", move |_, upstream| values[upstream.get()]);
        holds(Gate::MeanBelow(std::sync::Arc::new(cost), below))
    };
    assert!(mean([Some(1.0), Some(2.0), Some(3.0)], 2.1) && !mean([Some(1.0), Some(2.0), Some(3.0)], 2.0));
    assert!(
        mean([Some(1.0), None, Some(3.0)], 2.1),
        "the mean of those that are known"
    );
    assert!(!mean([None; 3], f32::INFINITY), "none known: no");
    assert!(
        mean([Some(1.0), Some(f32::NAN), Some(2.0)], 1.6),
        "NaN is not known"
    );
}

#[test]
fn no_gate_holds_for_nobody() {
    for gate in [
        Gate::Any(std::sync::Arc::new(present())),
        Gate::All(std::sync::Arc::new(present())),
    ] {
        let nodes = [Node::gate(
            gate,
            Node::reject(Class::Shed, "yes"),
            Node::reject(Class::Never, "no"),
        )];
        let told = Pool::of(corrected(nodes), &[]).ask(1);
        assert_eq!(
            ending(&told.outcome),
            (false, Class::Never, &Reason::Rejected("no".into()))
        );
    }
}

#[test]
fn when_asks_about_the_request_alone() {
    let holds = |when: Condition, facts: &Facts<'_>| {
        let node = Node::when(when, Node::random(), Node::reject(Class::Never, "no"));
        let spec = spec("a").models(Models::Listed(vec![
            ModelEntry::new("base"),
            ModelEntry::adapter("tuned", "base"),
        ]));
        Pool::new(corrected([node]))
            .with(spec)
            .ask_for(facts)
            .outcome
            .picked()
            .is_some()
    };
    let facts = Facts::new();
    assert!(holds(Condition::Critical, &facts) && !holds(Condition::Critical, &facts.priority(-1)));
    assert!(holds(Condition::PriorityAtLeast(2), &facts.priority(2)));
    assert!(!holds(Condition::PriorityAtLeast(2), &facts.priority(1)));
    assert!(holds(Condition::Adapter, &facts.model("tuned")));
    assert!(!holds(Condition::Adapter, &facts.model("base")) && !holds(Condition::Adapter, &facts));
    assert!(holds(Condition::Model("base".into()), &facts.model("base")));
    assert!(!holds(Condition::Model("base".into()), &facts));
    assert!(holds(Condition::TokensAtLeast(10), &facts.tokens(10)));
    assert!(!holds(Condition::TokensAtLeast(10), &facts.tokens(9)));
    assert!(holds(Condition::Stream, &facts.stream(true)) && !holds(Condition::Stream, &facts));
    assert!(holds(Condition::Session, &facts.session("s")) && !holds(Condition::Session, &facts));
    assert!(holds(Condition::Task(Task::Chat), &facts) && !holds(Condition::Task(Task::Embedding), &facts));
    assert!(!holds(
        Condition::Task(Task::Chat),
        &facts.class(RequestClass::Control)
    ));
    let both = || vec![Condition::Stream, Condition::Session];
    assert!(!holds(Condition::All(both()), &facts.stream(true)) && holds(Condition::All(Vec::new()), &facts));
    assert!(holds(Condition::Any(both()), &facts.stream(true)) && !holds(Condition::Any(Vec::new()), &facts));
    assert!(holds(Condition::Not(Box::new(Condition::Stream)), &facts));
    let long = Condition::custom("long", |cx| cx.facts.tokens > 5);
    assert!(holds(long.clone(), &facts.tokens(6)) && !holds(long, &facts.tokens(5)));
}

/// Ends with a class for a reason, without having the last word.
fn ends(class: Class, reason: &'static str) -> Node {
    #[derive(Debug)]
    struct Nobody(&'static str);
    impl Filter for Nobody {
        fn narrow(&self, _cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
            set.clear();
            Ok(())
        }
        fn lack(&self, _cx: &PickCx<'_>) -> paddler_core::schedule::Lack {
            paddler_core::schedule::Lack::new(Class::Never, Reason::Rejected(self.0.into()))
        }
    }
    Node::list([Node::require_or(Nobody(reason), class), Node::random()])
}

fn first_of(alternatives: impl IntoIterator<Item = Alternative>) -> Tree {
    corrected([Node::first_of(alternatives)])
}

fn at(tree: Tree, arrived: u64, now: u64) -> pool::Told {
    let facts = Facts::new().arrived(Moment::from_millis(arrived));
    let snapshot = Pool::of(tree, &["a", "b"]).publish();
    tell(&snapshot, &Ask::new(&facts, Moment::from_millis(now), 1))
}

#[test]
fn first_of_goes_on_after_never_and_shed_with_the_set_as_it_was() {
    for class in [Class::Never, Class::Shed] {
        let narrowed = Node::list([Node::require(named(&["a"])), ends(class, "first")]);
        let told = at(
            first_of([Alternative::new(narrowed), Alternative::new(Node::random())]),
            0,
            0,
        );
        assert_eq!(told.survivors, ["a", "b"]);
    }
}

#[test]
fn first_of_reports_the_first_reason() {
    let tree = first_of([
        Alternative::new(ends(Class::Shed, "first")),
        Alternative::new(ends(Class::Never, "second")),
    ]);
    let told = at(tree, 0, 0);
    assert_eq!(
        ending(&told.outcome),
        (false, Class::Shed, &Reason::Rejected("first".into()))
    );
}

#[test]
fn first_of_waits_for_an_alternative_that_may_do_later() {
    let tree = || {
        first_of([
            Alternative::new(ends(Class::Later, "busy")),
            Alternative::new(Node::random()),
        ])
    };
    for now in [0, 1_000_000] {
        let told = at(tree(), 0, now);
        assert_eq!(
            ending(&told.outcome),
            (true, Class::Later, &Reason::Rejected("busy".into()))
        );
        assert_eq!(
            told.outcome.ending().unwrap().until,
            None,
            "time alone changes nothing"
        );
    }
    let tree = first_of([
        Alternative::new(ends(Class::Never, "gone")),
        Alternative::new(ends(Class::Later, "busy")),
        Alternative::new(Node::random()),
    ]);
    let told = at(tree, 0, 0);
    let first = Reason::Rejected("gone".into());
    assert_eq!(
        ending(&told.outcome),
        (true, Class::Later, &first),
        "it waits, and says the first reason"
    );
}

#[test]
fn first_of_goes_on_once_patience_has_ended() {
    let patience = Duration::from_millis(100);
    let tree = || {
        first_of([
            Alternative::with_patience(ends(Class::Later, "busy"), patience),
            Alternative::new(Node::random()),
        ])
    };
    for now in [500, 599] {
        let told = at(tree(), 500, now);
        assert_eq!(
            ending(&told.outcome),
            (true, Class::Later, &Reason::Rejected("busy".into()))
        );
        assert_eq!(
            told.outcome.ending().unwrap().until,
            Some(Moment::from_millis(600))
        );
    }
    for now in [600, 601] {
        assert_eq!(at(tree(), 500, now).survivors, ["a", "b"]);
    }
}

#[test]
fn first_of_still_waits_when_nobody_is_left_and_one_may_do_later() {
    let tree = first_of([
        Alternative::new(ends(Class::Never, "gone")),
        Alternative::with_patience(ends(Class::Later, "busy"), Duration::from_millis(1)),
        Alternative::new(ends(Class::Shed, "full")),
    ]);
    let told = at(tree, 0, 5);
    assert_eq!(
        ending(&told.outcome),
        (true, Class::Later, &Reason::Rejected("gone".into()))
    );
}

#[test]
fn first_of_says_the_earliest_moment_at_which_asking_again_can_help() {
    let inner = |patience| {
        Node::first_of([
            Alternative::with_patience(ends(Class::Later, "busy"), Duration::from_millis(patience)),
            Alternative::new(ends(Class::Later, "full")),
        ])
    };
    // The outer patience with the first alternative is over; its own inner one is not.
    let tree = first_of([
        Alternative::with_patience(inner(50), Duration::from_millis(10)),
        Alternative::with_patience(ends(Class::Later, "third"), Duration::from_millis(80)),
        Alternative::new(Node::random()),
    ]);
    let told = at(tree, 0, 20);
    assert_eq!(
        told.outcome.ending().unwrap().until,
        Some(Moment::from_millis(50))
    );
}

#[test]
fn reject_has_the_last_word_inside_first_of() {
    let tree = first_of([
        Alternative::new(Node::reject(Class::Shed, "closed")),
        Alternative::new(Node::random()),
    ]);
    assert_eq!(
        ending(&at(tree, 0, 0).outcome),
        (false, Class::Shed, &Reason::Rejected("closed".into()))
    );
    let told = abc([Node::reject(Class::Later, "come again")]).ask(1);
    assert_eq!(
        ending(&told.outcome),
        (true, Class::Later, &Reason::Rejected("come again".into()))
    );
}

#[test]
fn a_failed_filter_inside_first_of_leaves_it_to_the_next() {
    let failing = Node::list([Node::require(CannotJudge), Node::random()]);
    assert_eq!(
        at(
            first_of([Alternative::new(failing), Alternative::new(Node::random())]),
            0,
            0
        )
        .survivors
        .len(),
        2
    );
}

#[test]
fn split_draws_once_for_a_request_whatever_the_seed_of_the_attempt() {
    let only = |name: &'static [&'static str]| Node::list([Node::require(named(name)), Node::random()]);
    let split = Node::split([(1, only(&["a"])), (0, only(&["b"])), (3, only(&["c"]))]);
    let snapshot = abc([split]).publish();
    let mut counts = [0; 3];
    for request in 0..4_000 {
        let facts = Facts::new().seed(request);
        let of = |attempt| {
            let told = snapshot.pick(
                &Ask::new(&facts, Moment::ZERO, attempt),
                &mut Scratch::default(),
                &mut (),
            );
            told.picked().unwrap().get()
        };
        let part = of(0);
        assert!(
            (1..5).all(|attempt| of(attempt) == part),
            "a retry keeps its share"
        );
        counts[part] += 1;
    }
    assert_eq!(counts[1], 0, "no weight, no share");
    assert!(
        chi_square(&[counts[0], counts[2]], &[0.25, 0.75]) < 10.8,
        "{counts:?}"
    );
}

#[test]
fn splits_in_one_tree_draw_apart_from_each_other() {
    let half = |yes, no| Node::split([(1, Node::prefer(named(yes))), (1, Node::prefer(named(no)))]);
    let snapshot = abc([half(&["a", "b"], &["c"]), half(&["a"], &["b"]), Node::random()]).publish();
    let mut counts = [0; 3];
    for request in 0..4_000 {
        let facts = Facts::new().seed(request);
        counts[count(&snapshot, &facts, 1)
            .iter()
            .position(|count| *count == 1)
            .unwrap()] += 1;
    }
    assert!(chi_square(&counts, &[0.25, 0.25, 0.5]) < 13.8, "{counts:?}");
}

#[test]
fn by_model_goes_by_the_name_and_else_by_none() {
    let only = |name: &'static [&'static str]| Node::list([Node::require(named(name)), Node::random()]);
    let snapshot = abc([Node::by_model(
        [("m", only(&["a"])), ("n", only(&["b"]))],
        only(&["c"]),
    )])
    .publish();
    for (asked, expected) in [(Some("m"), "a"), (Some("n"), "b"), (Some("o"), "c"), (None, "c")] {
        let mut facts = Facts::new();
        facts.model = asked;
        assert_eq!(
            tell(&snapshot, &Ask::new(&facts, Moment::ZERO, 1)).picked,
            [expected]
        );
    }
}

#[test]
fn a_leaf_with_nobody_says_wait() {
    let told = Pool::of(corrected([Node::random()]), &[]).ask(1);
    assert_eq!(ending(&told.outcome), (true, Class::Later, &Reason::NoUpstream));
}

#[test]
fn natural_classes_say_why() {
    let lacking = |filter: Box<dyn Fn() -> Node>, said: paddler_core::status::Report| {
        let nodes = [filter(), Node::random()];
        Pool::reporting(corrected(nodes), [("a", said)]).ask(1).outcome
    };
    let full = lacking(Box::new(|| Node::require(slot())), slots(2, 2));
    assert_eq!(ending(&full), (true, Class::Later, &Reason::SlotsBusy));
    let deep = lacking(
        Box::new(|| Node::require(queue_depth(Bound::Below(5.0)))),
        queue(5),
    );
    assert_eq!(ending(&deep), (true, Class::Later, &Reason::QueueDeep));
    let hot = lacking(
        Box::new(|| Node::require(kv_cache(Bound::AtMost(0.5)))),
        pool::kv(0.51),
    );
    assert_eq!(ending(&hot), (true, Class::Later, &Reason::KvCacheFull));
    let cold = lacking(Box::new(|| Node::require(lora_active())), queue(0));
    assert_eq!(ending(&cold), (true, Class::Later, &Reason::NoAdapterRoom));
    let unknown = Box::new(|| Node::require(queue_depth(Bound::Below(5.0)).unknown(Unknown::Fail)));
    assert_eq!(
        ending(&lacking(unknown, slots(0, 1))),
        (true, Class::Later, &Reason::QueueDeep)
    );
}

#[test]
fn a_label_that_nobody_carries_is_never_and_one_that_is_away_is_later() {
    let require = || [Node::require(label("zone", ["east"])), Node::random()];
    let told = abc(require()).ask(1);
    assert_eq!(ending(&told.outcome), (false, Class::Never, &Reason::NotLabelled));
    let mut pool = abc(require()).with(spec("d").label("zone", "east"));
    assert_eq!(pool.ask(1).picked, ["d"]);
    assert!(pool.board.set_draining("d", true));
    assert_eq!(
        ending(&pool.ask(1).outcome),
        (true, Class::Later, &Reason::NotLabelled)
    );
    let any =
        abc([Node::require(label("zone", [""; 0])), Node::random()]).with(spec("d").label("zone", "west"));
    assert_eq!({ any }.ask(1).picked, ["d"], "of no values: any");
}

#[test]
fn an_unknown_model_is_never_only_when_all_have_told_and_nobody_has_it() {
    let listed = |name: &str| Models::Listed(vec![ModelEntry::new(name)]);
    let pool = || Pool::new(corrected([Node::require(model()), Node::random()]));
    let asks = |pool: &mut Pool, name| {
        let told = pool.ask_for(&Facts::new().model(name));
        told.outcome
            .ending()
            .map(|ending| (ending.class, ending.reason.clone()))
    };

    let mut all_told = pool()
        .with(spec("a").models(listed("m")))
        .with(spec("b").models(listed("n")));
    assert_eq!(asks(&mut all_told, "m"), None);
    assert_eq!(
        asks(&mut all_told, "o"),
        Some((Class::Never, Reason::ModelNotFound))
    );
    assert!(all_told.board.set_draining("a", true));
    assert_eq!(
        asks(&mut all_told, "m"),
        Some((Class::Later, Reason::Draining)),
        "it may come back"
    );

    let mut one_silent = pool().with(spec("a").models(listed("m"))).with(spec("b"));
    assert_eq!(
        asks(&mut one_silent, "o"),
        Some((Class::Later, Reason::ModelsUnknown))
    );
    let told = report(|report| report.models = Some(listed("o")));
    one_silent.report_at("b", told, Moment::ZERO);
    assert_eq!(asks(&mut one_silent, "o"), None);

    // The one that answers for any is away: its name is not wrong.
    let mut any = pool()
        .with(spec("a").models(listed("m")))
        .with(spec("b").models(Models::Any));
    assert_eq!(asks(&mut any, "o"), None);
    assert!(any.board.set_draining("b", true));
    assert_eq!(asks(&mut any, "o"), Some((Class::Later, Reason::Draining)));
    // And who names no model is never told that there is no such model.
    assert!(any.board.set_draining("a", true));
    let nobody = any.ask(1).outcome;
    assert_eq!(ending(&nobody), (true, Class::Later, &Reason::Draining));
    assert_eq!(asks(&mut pool(), "m"), Some((Class::Later, Reason::NoUpstream)));
}

#[test]
fn a_spec_outweighs_what_the_engine_lists_and_aliases_count() {
    let listed = |entry: ModelEntry| Models::Listed(vec![entry]);
    let mut aliased = ModelEntry::new("m");
    aliased.aliases = vec!["nick".into()];
    let mut pool = Pool::new(corrected([Node::require(model()), Node::random()]))
        .with(spec("a").models(listed(ModelEntry::new("x"))))
        .with(spec("b").models(listed(aliased)));
    pool.report_at(
        "a",
        report(|report| report.models = Some(listed(ModelEntry::new("nick")))),
        Moment::ZERO,
    );
    assert_eq!(pool.ask_for(&Facts::new().model("nick")).survivors, ["b"]);
}

#[test]
fn trees_that_cannot_decide_are_faults_all_at_once() {
    let faults = |nodes: Vec<Node>| {
        Tree::new(Signals::Corrected, Node::list(nodes))
            .unwrap_err()
            .0
            .len()
    };
    assert_eq!(faults(vec![Node::prefer(present())]), 1, "no decision");
    assert_eq!(
        faults(vec![Node::random(), Node::random()]),
        1,
        "a node after the decision"
    );
    assert_eq!(
        faults(vec![
            Node::first_of([]),
            Node::split([(0, Node::random())]),
            Node::random()
        ]),
        3
    );
    let deep = (0..Tree::MAX_DEPTH).fold(Node::random(), |node, _| Node::list([node]));
    assert!(Tree::new(Signals::Corrected, deep).is_err());
    let deepest = (1..Tree::MAX_DEPTH).fold(Node::random(), |node, _| Node::list([node]));
    assert!(Tree::new(Signals::Corrected, deepest).is_ok());
}

#[test]
fn an_explanation_tells_path_steps_and_values() {
    let nodes = [
        Node::require(queue_depth(Bound::Below(5.0))),
        Node::prefer(least_queue()),
        Node::random(),
    ];
    let mut pool = Pool::reporting(
        corrected(nodes),
        [("a", queue(9)), ("b", queue(1)), ("c", queue(4))],
    );
    let told = pool.ask(1);
    let path: Vec<_> = told.why.path.iter().map(|node| node.get()).collect();
    assert_eq!(path, [0, 1, 2, 3]);
    let steps: Vec<_> = told
        .why
        .steps
        .iter()
        .map(|step| (step.before, step.after))
        .collect();
    assert_eq!(steps, [(3, 2), (2, 1)]);
    let removed = |step: usize| {
        let removed = told.why.steps[step].removed.iter();
        removed
            .map(|(id, value)| (id.as_str(), *value))
            .collect::<Vec<_>>()
    };
    assert_eq!(removed(0), [("a", Some(9.0))]);
    assert_eq!(removed(1), [("c", Some(4.0))]);
    assert_eq!(told.survivors, ["b"]);
}

#[test]
fn counters_say_what_each_node_did() {
    let mut pool = abc([Node::require(named(&["a"])), Node::random()]);
    let snapshot = pool.publish();
    let counters = NodeCounters::new(snapshot.tree());
    let facts = Facts::new();
    let except = ids(&["a"]);
    let mut scratch = Scratch::default();
    for seed in 0..3 {
        let ask = Ask::new(&facts, Moment::ZERO, seed);
        let ask = if seed == 0 { ask.except(&except) } else { ask };
        let outcome = snapshot.pick(&ask, &mut scratch, &mut &counters);
        assert_eq!(outcome.picked().is_none(), seed == 0);
    }
    let counts: Vec<_> = counters
        .iter()
        .map(|(_, count)| {
            (
                count.entered,
                count.emptied,
                count.failed,
                count.picked,
                count.ended,
            )
        })
        .collect();
    assert_eq!(counts, [(3, 0, 0, 0, 0), (3, 1, 0, 0, 1), (2, 0, 0, 2, 0)]);
}

#[test]
fn a_pair_of_observers_sees_the_same() {
    let snapshot = abc([Node::prefer(named(&["a", "b"])), Node::random()]).publish();
    let facts = Facts::new();
    let mut both = (Explanation::default(), Explanation::default());
    let outcome = snapshot.pick(
        &Ask::new(&facts, Moment::ZERO, 1),
        &mut Scratch::default(),
        &mut both,
    );
    assert!(outcome.picked().is_some());
    assert_eq!(both.0, both.1);
    assert_eq!(both.0.survivors.len(), 2);
}

#[test]
fn rendezvous_falls_back_from_session_to_tenant_to_chance() {
    let snapshot = abc([Node::rendezvous(Key::Session)]).publish();
    let facts = Facts::new();
    let places = |facts: &Facts<'_>| {
        count(&snapshot, facts, 200)
            .iter()
            .filter(|count| **count > 0)
            .count()
    };
    assert_eq!(places(&facts.session("s")), 1);
    assert_eq!(places(&facts.tenant("t")), 1);
    assert_eq!(
        count(&snapshot, &facts.tenant("x"), 1),
        count(&snapshot, &facts.session("x"), 1),
        "the same key"
    );
    assert_eq!(places(&facts.model("m")), 3, "no key: chance");
    let snapshot = abc([Node::rendezvous(Key::Model)]).publish();
    assert_eq!(
        count(&snapshot, &facts.model("m"), 200)
            .iter()
            .filter(|count| **count > 0)
            .count(),
        1
    );
}
