//! Do the rules hold for whatever pool, tree and request there may be?
//!
//! The cases are random and always the same: the seed is fixed.

#[path = "../pool/mod.rs"]
mod pool;
mod words;

use std::sync::Arc;
use std::time::Duration;

use paddler_core::Moment;
use paddler_core::request::{Facts, RequestFacts};
use paddler_core::schedule::costs::{in_flight_share, kv_pressure, prefill_product, queue, weighted};
use paddler_core::schedule::filters::{
    Bound, Margin, Unknown, all_of, any_of, fresh, healthy, heard, kv_cache, label, least_kv_cache,
    least_queue, lora_active, lora_low_cost, lora_room, model, not, present, queue_depth, slot, within_best,
};
use paddler_core::schedule::{
    Alternative, Ask, CandidateSet, Class, Condition, Cost, Explanation, Filter, FilterError, Gate, Key,
    Node, NodeCounters, NodeId, Observer, Outcome, PickCx, Picks, Record, Scratch, Signals, Tree, cost_fn,
    filter_fn, trees,
};
use paddler_core::status::{Adapters, Health, Report, Snapshot, SnapshotRecord, StatusBoard, StatusEvent};
use paddler_core::upstream::{Lease, ModelEntry, Models, UpstreamId};
use pool::spec;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const NAMES: [&str; 5] = ["base", "x", "y", "z", "unheard_of"];

/// Runs a property on the same random cases every time.
fn hold<S: Strategy>(cases: u32, of: S, property: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, b"paddler: the same cases each run");
    TestRunner::new_with_rng(config, rng)
        .run(&of, property)
        .unwrap_or_else(|fault| panic!("{fault}"));
}

/// A number that is small, equal to another one or at an edge more often than chance would have it.
fn amount() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..4u32, 4 => 0..60u32, 1 => Just(u32::MAX), 1 => any::<u32>()]
}

fn usage() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => 0.0..1.0f64,
        2 => Just(0.8),
        1 => prop::sample::select(vec![0.0, 1.0, 1.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0]),
    ]
}

fn adapters() -> impl Strategy<Value = Adapters> {
    let some = || vec(prop::sample::select(vec!["x", "y", "z", "w"]), 0..4);
    (option::of(0..4u32), some(), some()).prop_map(|(max, running, waiting)| {
        let distinct = |mut names: Vec<&'static str>| {
            names.sort_unstable();
            names.dedup();
            names.into_iter().map(Arc::from).collect()
        };
        Adapters {
            max,
            running: distinct(running),
            waiting: distinct(waiting),
        }
    })
}

fn report() -> impl Strategy<Value = Report> {
    let health = prop::sample::select(vec![
        Health::Ready,
        Health::Ready,
        Health::Loading,
        Health::Failing,
    ]);
    (
        option::of(health),
        option::of(amount()),
        option::of(amount()),
        option::of((0..9u32, 0..9u32)),
        option::of(0..9u32),
        option::of(usage()),
        option::of(adapters()),
    )
        .prop_map(|(health, running, waiting, slots, sequences, kv, adapters)| {
            let mut report = Report::new();
            report.health = health;
            report.running = running;
            report.waiting = waiting;
            report.slots_busy = slots.map(|(busy, _)| busy);
            report.slots_total = slots.map(|(_, total)| total);
            report.max_sequences = sequences;
            report.kv_cache_usage = kv;
            report.adapters = adapters;
            report
        })
}

#[derive(Debug, Clone)]
struct Member {
    report: Option<Report>,
    models: u8,
    limit: Option<u32>,
    east: bool,
    age_ms: u64,
    /// Requests of ours that are open there: weight, prompt tokens and the name asked for.
    open: Vec<(u32, u32, &'static str)>,
    draining: bool,
}

fn member() -> impl Strategy<Value = Member> {
    let open = vec((1..4u32, 0..500u32, prop::sample::select(NAMES.to_vec())), 0..3);
    (
        option::weighted(0.8, report()),
        0..4u8,
        option::weighted(0.3, 0..6u32),
        any::<bool>(),
        prop_oneof![Just(0u64), 0..30_000u64],
        open,
        prop::bool::weighted(0.1),
    )
        .prop_map(|(report, models, limit, east, age_ms, open, draining)| Member {
            report,
            models,
            limit,
            east,
            age_ms,
            open,
            draining,
        })
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    prop_oneof![
        1 => vec(member(), 0..3),
        8 => vec(member(), 1..20),
        1 => vec(member(), 60..140),
        1 => words_of_members(),
    ]
}

/// Pools that end about where a word of 64 does. All of a word may report all there is, and its numbers are of one size.
fn words_of_members() -> impl Strategy<Value = Vec<Member>> {
    let size = prop::sample::select(vec![63, 64, 65, 128, 129]);
    let longest = prop::sample::select(vec![0, 3, 60, 100_000, u32::MAX - 1]);
    let fullest = prop::sample::select(vec![0.0, 0.01, 1.0]);
    let word = (any::<bool>(), longest, fullest);
    (vec(member(), 129), size, [word.clone(), word.clone(), word]).prop_map(|(mut members, size, words)| {
        members.truncate(size);
        for (word, (all, longest, fullest)) in members.chunks_mut(64).zip(words) {
            for member in word {
                if all {
                    member.report = Some(complete(member.report.take().unwrap_or_default()));
                }
                if let Some(report) = &mut member.report {
                    report.waiting = report.waiting.map(|waiting| waiting.min(longest));
                    report.kv_cache_usage = report.kv_cache_usage.map(|usage| usage * fullest);
                }
            }
        }
        members
    })
}

/// The same with all that was left out or made no sense.
fn complete(mut report: Report) -> Report {
    report.running.get_or_insert(1);
    report.waiting.get_or_insert(2);
    report.slots_busy.get_or_insert(1);
    report.slots_total = Some(report.slots_total.unwrap_or(4).max(1));
    report.max_sequences = Some(report.max_sequences.unwrap_or(4).max(1));
    report.kv_cache_usage = report
        .kv_cache_usage
        .filter(|usage| usage.is_finite())
        .or(Some(0.5));
    report
}

const NOW: Moment = Moment::from_millis(30_000);

/// The pool as a snapshot, with leases that are open on it.
fn build(tree: Tree, members: &[Member]) -> (StatusBoard, Arc<Snapshot>, Vec<Lease>) {
    let mut board = StatusBoard::new(tree);
    for (place, member) in members.iter().enumerate() {
        let mut spec = spec(&format!("upstream-{place}"));
        let tuned = ["x", "y"].map(|name| ModelEntry::adapter(name, "base"));
        spec.models = match member.models {
            0 => None,
            1 => Some(Models::Any),
            2 => Some(Models::Listed(vec![ModelEntry::new("base")])),
            _ => Some(Models::Listed(
                [ModelEntry::new("base")].into_iter().chain(tuned).collect(),
            )),
        };
        spec.limits.max_in_flight = member.limit;
        if member.east {
            spec = spec.label("zone", "east");
        }
        let id = spec.id.clone();
        board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
        if let Some(report) = member.report.clone() {
            let at = Moment::from_nanos(NOW.as_nanos() - member.age_ms * 1_000_000);
            board.apply(
                StatusEvent::Report {
                    id: id.clone(),
                    report,
                    sample: None,
                },
                at,
            );
        }
        board.set_draining(id.as_str(), member.draining);
    }
    let snapshot = board.publish(NOW);
    let open = |(upstream, _): (_, _)| -> Vec<Lease> {
        let upstream: paddler_core::upstream::UpstreamIndex = upstream;
        let leases = members[upstream.get()]
            .open
            .iter()
            .filter_map(|(weight, tokens, name)| {
                let facts = Facts::new().weight(*weight).tokens(*tokens).model(name);
                snapshot.lease(upstream, &facts, NOW)
            });
        leases.collect()
    };
    let leases = snapshot.iter().flat_map(open).collect();
    (board, snapshot.clone(), leases)
}

#[derive(Debug)]
struct CannotJudge;

impl Filter for CannotJudge {
    fn narrow(&self, _cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        set.retain(|upstream| upstream.get() % 2 == 0);
        Err(FilterError::new("it cannot judge"))
    }
}

type AnyFilter = Arc<dyn Filter>;

fn cost() -> impl Strategy<Value = Arc<dyn Cost>> {
    let leaf: Vec<Arc<dyn Cost>> = vec![
        Arc::new(queue()),
        Arc::new(in_flight_share()),
        Arc::new(kv_pressure()),
        Arc::new(prefill_product()),
        Arc::new(cost_fn("strange", |cx, upstream| match upstream.get() % 4 {
            0 => None,
            1 => Some(f32::NAN),
            _ => Some(cx.own_requests(upstream) as f32 - 1.0),
        })),
    ];
    prop::sample::select(leaf).prop_recursive(1, 3, 2, |part| {
        vec((-2.0..2.0f32, part), 0..3).prop_map(|parts| Arc::new(weighted(parts)) as Arc<dyn Cost>)
    })
}

fn bound() -> impl Strategy<Value = (Bound, Unknown)> {
    let bound = prop_oneof![
        prop::sample::select(vec![0.0, 0.5, 0.8, 5.0, 50.0]).prop_map(Bound::Below),
        prop::sample::select(vec![0.0, 0.5, 0.8, 5.0, 50.0]).prop_map(Bound::AtMost),
    ];
    (bound, prop::sample::select(vec![Unknown::Pass, Unknown::Fail]))
}

/// Each built-in filter, and what combines them.
fn filter() -> impl Strategy<Value = AnyFilter> {
    fn boxed(filter: impl Filter) -> AnyFilter {
        Arc::new(filter)
    }
    let plain: Vec<AnyFilter> = vec![
        boxed(present()),
        boxed(healthy()),
        boxed(heard()),
        boxed(fresh(Duration::from_secs(10))),
        boxed(model()),
        boxed(slot()),
        boxed(least_queue()),
        boxed(least_kv_cache()),
        boxed(lora_active()),
        boxed(lora_room()),
        boxed(lora_low_cost()),
        boxed(label("zone", ["east"])),
        boxed(CannotJudge),
        boxed(filter_fn("third", |_, upstream| upstream.get() % 3 == 0)),
    ];
    let margin = prop_oneof![
        (0.5..3.0f32).prop_map(Margin::Times),
        (0.0..5.0f32).prop_map(Margin::Plus)
    ];
    prop_oneof![
        4 => prop::sample::select(plain),
        1 => bound().prop_map(|(bound, unknown)| boxed(queue_depth(bound).unknown(unknown))),
        1 => bound().prop_map(|(bound, unknown)| boxed(kv_cache(bound).unknown(unknown))),
        1 => (cost(), margin).prop_map(|(cost, margin)| boxed(within_best(cost, margin))),
    ]
    .prop_recursive(2, 8, 3, |part| {
        prop_oneof![
            vec(part.clone(), 0..3).prop_map(|parts| boxed(all_of(parts))),
            vec(part.clone(), 0..3).prop_map(|parts| boxed(any_of(parts))),
            part.prop_map(|part| boxed(not(part))),
        ]
    })
}

fn class() -> impl Strategy<Value = Class> {
    prop::sample::select(vec![Class::Never, Class::Later, Class::Shed])
}

/// A tree as data: nodes themselves cannot be copied, and shrinking needs that.
#[derive(Debug, Clone)]
enum Plan {
    Then(Step, Box<Plan>),
    Branch(AnyFilter, Box<Plan>, Box<Plan>),
    Gate(u8, AnyFilter, Arc<dyn Cost>, Box<Plan>, Box<Plan>),
    When(bool, Box<Plan>, Box<Plan>),
    FirstOf(Vec<(Option<u64>, Plan)>),
    Split(Vec<(u32, Plan)>),
    ByModel(Box<Plan>, Box<Plan>),
    Reject(Class),
    Leaf(u8, Arc<dyn Cost>),
}

#[derive(Debug, Clone)]
enum Step {
    Require(AnyFilter, Option<Class>),
    Prefer(AnyFilter),
    PreferBranch(AnyFilter, AnyFilter),
}

fn plan() -> impl Strategy<Value = Plan> {
    let leaf = prop_oneof![
        6 => (0..6u8, cost()).prop_map(|(kind, cost)| Plan::Leaf(kind, cost)),
        1 => class().prop_map(Plan::Reject),
    ];
    leaf.prop_recursive(5, 24, 3, |below| {
        let one = || below.clone().prop_map(Box::new);
        let step = prop_oneof![
            (filter(), option::of(class())).prop_map(|(filter, class)| Step::Require(filter, class)),
            filter().prop_map(Step::Prefer),
            (filter(), filter()).prop_map(|(when, then)| Step::PreferBranch(when, then)),
        ];
        let patience = prop::sample::select(vec![None, Some(0), Some(5_000), Some(60_000)]);
        prop_oneof![
            4 => (step, one()).prop_map(|(step, then)| Plan::Then(step, then)),
            2 => (filter(), one(), one()).prop_map(|(when, then, other)| Plan::Branch(when, then, other)),
            1 => (0..3u8, filter(), cost(), one(), one())
                .prop_map(|(kind, filter, cost, then, other)| Plan::Gate(kind, filter, cost, then, other)),
            1 => (any::<bool>(), one(), one()).prop_map(|(kind, then, other)| Plan::When(kind, then, other)),
            2 => vec((patience, below.clone()), 1..3).prop_map(Plan::FirstOf),
            1 => vec((1..5u32, below.clone()), 1..3).prop_map(Plan::Split),
            1 => (one(), one()).prop_map(|(named, other)| Plan::ByModel(named, other)),
        ]
    })
}

impl Plan {
    fn node(&self) -> Node {
        match self {
            Self::Then(step, then) => Node::list([step.node(), then.node()]),
            Self::Branch(when, then, other) => Node::branch(when.clone(), then.node(), other.node()),
            Self::Gate(kind, filter, cost, then, other) => {
                let gate = match kind {
                    0 => Gate::Any(filter.clone()),
                    1 => Gate::All(filter.clone()),
                    _ => Gate::MeanBelow(cost.clone(), 2.0),
                };
                Node::gate(gate, then.node(), other.node())
            }
            Self::When(kind, then, other) => {
                let when = if *kind {
                    Condition::Critical
                } else {
                    Condition::Adapter
                };
                Node::when(when, then.node(), other.node())
            }
            Self::FirstOf(parts) => Node::first_of(parts.iter().map(|(patience, part)| match patience {
                Some(patience) => Alternative::with_patience(part.node(), Duration::from_millis(*patience)),
                None => Alternative::new(part.node()),
            })),
            Self::Split(parts) => Node::split(parts.iter().map(|(weight, part)| (*weight, part.node()))),
            Self::ByModel(named, other) => Node::by_model([("x", named.node())], other.node()),
            Self::Reject(class) => Node::reject(*class, "rejected"),
            Self::Leaf(kind, cost) => match kind {
                0 | 1 => Node::least(cost.clone()),
                2 | 3 => Node::two_choices(cost.clone()),
                4 => Node::random(),
                _ => Node::rendezvous(Key::Session),
            },
        }
    }

    fn tree(&self, signals: Signals) -> Tree {
        Tree::new(signals, self.node()).expect("a sound tree")
    }
}

impl Step {
    fn node(&self) -> Node {
        match self {
            Self::Require(filter, None) => Node::require(filter.clone()),
            Self::Require(filter, Some(class)) => Node::require_or(filter.clone(), *class),
            Self::Prefer(filter) => Node::prefer(filter.clone()),
            Self::PreferBranch(when, then) => {
                Node::branch(when.clone(), Node::prefer(then.clone()), Node::list([]))
            }
        }
    }
}

fn facts() -> impl Strategy<Value = RequestFacts> {
    let name = || option::of(prop::sample::select(NAMES.to_vec()));
    (
        name(),
        1..5u32,
        0..1_000u32,
        -1..2i32,
        name(),
        any::<u64>(),
        0..30_000u64,
    )
        .prop_map(|(model, weight, tokens, priority, session, seed, arrived)| {
            let facts = Facts::new()
                .weight(weight)
                .tokens(tokens)
                .priority(priority)
                .seed(seed);
            let facts = facts.arrived(Moment::from_millis(arrived));
            let mut facts = RequestFacts::from(facts);
            facts.model = model.map(Into::into);
            facts.session = session.map(Into::into);
            facts
        })
}

#[derive(Debug, Clone)]
struct Question {
    facts: RequestFacts,
    seed: u64,
    only: Option<Vec<UpstreamId>>,
    except: Vec<UpstreamId>,
    want: usize,
}

impl Question {
    fn put<R>(&self, with: impl FnOnce(&Ask<'_>) -> R) -> R {
        let facts = self.facts.as_facts();
        let mut ask = Ask::new(&facts, NOW, self.seed)
            .except(&self.except)
            .want(self.want);
        ask.only = self.only.as_deref();
        with(&ask)
    }
}

fn question() -> impl Strategy<Value = Question> {
    let ids = |most| {
        vec(
            (0..20u32).prop_map(|place| spec(&format!("upstream-{place}")).id),
            0..most,
        )
    };
    (
        facts(),
        any::<u64>(),
        option::weighted(0.2, ids(12)),
        ids(3),
        1..5usize,
    )
        .prop_map(|(facts, seed, only, except, want)| Question {
            facts,
            seed,
            only,
            except,
            want,
        })
}

fn signals() -> impl Strategy<Value = Signals> {
    prop::sample::select(vec![Signals::Reported, Signals::Corrected])
}

/// Checks, at every filter of a walk, that what comes out was there before.
#[derive(Default)]
struct OnlyShrinks {
    before: Vec<usize>,
    grown: bool,
    filters: usize,
}

fn places(set: &CandidateSet<'_>) -> Vec<usize> {
    set.iter().map(|upstream| upstream.get()).collect()
}

impl Observer for OnlyShrinks {
    fn narrowing(&mut self, _cx: &PickCx<'_>, _node: NodeId, set: &CandidateSet<'_>) {
        self.before = places(set);
    }

    fn narrowed(
        &mut self,
        _cx: &PickCx<'_>,
        _node: NodeId,
        _filter: &dyn Filter,
        set: &CandidateSet<'_>,
        _error: Option<&FilterError>,
    ) {
        let after = places(set);
        self.filters += 1;
        self.grown |= after.len() != set.len() || !after.iter().all(|place| self.before.contains(place));
    }
}

#[test]
fn a_filter_never_adds_an_upstream() {
    hold(
        500,
        (members(), filter(), question(), signals()),
        |(members, filter, question, signals)| {
            let tree = pool::tree(signals, [Node::prefer(filter), Node::random()]);
            let (_board, snapshot, _leases) = build(tree, &members);
            let mut watch = OnlyShrinks::default();
            let outcome = question.put(|ask| snapshot.pick(ask, &mut Scratch::default(), &mut watch));
            prop_assert!(!watch.grown);
            // Exclusions that leave nobody end the walk before it.
            prop_assert_eq!(
                watch.filters,
                usize::from(outcome.ending().is_none_or(|ending| ending.node.get() > 0))
            );
            Ok(())
        },
    );
}

#[test]
fn memory_that_is_used_again_holds_nothing_of_the_pool_before() {
    let pools = (members(), members(), plan(), plan());
    hold(
        300,
        (pools, question(), signals()),
        |((one, two, first, then), question, signals)| {
            let mut used = Scratch::default();
            let (_first_board, other, _others) = build(first.tree(signals), &one);
            let _first = question.put(|ask| other.pick(ask, &mut used, &mut ()));
            let (_board, snapshot, leases) = build(then.tree(signals), &two);
            let pick = |scratch: &mut Scratch| question.put(|ask| snapshot.pick(ask, scratch, &mut ()));
            prop_assert_eq!(pick(&mut used), pick(&mut Scratch::default()));
            // Nor of leases that have ended since.
            drop(leases);
            prop_assert_eq!(pick(&mut used), pick(&mut Scratch::default()));
            Ok(())
        },
    );
}

#[test]
fn a_relative_filter_keeps_somebody() {
    let relative = prop_oneof![
        Just(Arc::new(least_queue()) as AnyFilter),
        Just(Arc::new(least_kv_cache()) as AnyFilter),
        (cost(), 1.0..3.0f32)
            .prop_map(|(cost, more)| Arc::new(within_best(cost, Margin::Times(more))) as AnyFilter),
    ];
    hold(
        400,
        (members(), relative, question(), signals()),
        |(members, filter, question, signals)| {
            let tree = pool::tree(signals, [Node::require_or(filter, Class::Shed), Node::random()]);
            let (_board, snapshot, _leases) = build(tree, &members);
            let outcome = question.put(|ask| snapshot.pick(ask, &mut Scratch::default(), &mut ()));
            let emptied = outcome.ending().is_some_and(|ending| ending.node.get() == 1);
            let nobody = members.iter().all(|member| member.draining);
            prop_assert!(!emptied || nobody, "{:?}", outcome);
            Ok(())
        },
    );
}

#[test]
fn every_walk_ends_with_a_decision_that_keeps_to_what_was_asked() {
    hold(
        500,
        (members(), plan(), question(), signals()),
        |(members, plan, question, signals)| {
            let (_board, snapshot, _leases) = build(plan.tree(signals), &members);
            let mut why = Explanation::default();
            let outcome = question.put(|ask| snapshot.pick(ask, &mut Scratch::default(), &mut why));
            let picked = snapshot.ids(&outcome);
            prop_assert_eq!(&picked, &why.picked);
            match &outcome {
                Outcome::Picked(picks) => {
                    prop_assert!((1..=question.want).contains(&picks.len()));
                    prop_assert_eq!(picks.len(), question.want.min(why.survivors.len()));
                }
                Outcome::Wait(ending) => prop_assert_eq!(ending.class, Class::Later),
                Outcome::Refuse(ending) => prop_assert!(ending.class != Class::Later),
            }
            for (rank, id) in picked.iter().enumerate() {
                prop_assert!(why.survivors.contains(id));
                prop_assert!(!picked[..rank].contains(id), "ranked twice");
                prop_assert!(!question.except.contains(id));
                prop_assert!(question.only.as_ref().is_none_or(|only| only.contains(id)));
                let place = snapshot.index(id.as_str()).unwrap();
                prop_assert!(!members[place.get()].draining);
            }
            Ok(())
        },
    );
}

/// Reads back what was written, as somebody else would.
fn through_json<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    let written = serde_json::to_string(value).expect("it can be written");
    serde_json::from_str(&written).expect("what was written can be read")
}

#[test]
fn a_record_replays_exactly_whatever_has_happened_since() {
    hold(
        250,
        (members(), plan(), question(), signals()),
        |(members, plan, question, signals)| {
            let (mut board, snapshot, leases) = build(plan.tree(signals), &members);
            let mut scratch = Scratch::default();
            let mut why = Explanation::default();
            let (outcome, record) = question.put(|ask| snapshot.pick_recorded(ask, &mut scratch, &mut why));
            prop_assert_eq!(record.generation, snapshot.generation());

            // The counters change, and so do flags and the board.
            drop(leases);
            let _more: Vec<_> = snapshot
                .iter()
                .filter_map(|(upstream, _)| snapshot.lease(upstream, &Facts::new().model("y").weight(2), NOW))
                .collect();
            for (_, entry) in snapshot.iter() {
                board.set_draining(entry.spec().id.as_str(), true);
            }
            board.publish(NOW);

            let record: Record = through_json(&record);
            let mut again = Explanation::default();
            let replayed = snapshot.replay(&record, &mut scratch, &mut again);
            prop_assert_eq!(&replayed, &outcome, "on the same snapshot");
            prop_assert_eq!(&again, &why);

            let written: SnapshotRecord = through_json(&snapshot.record());
            let elsewhere = Snapshot::from_record(&written, Arc::new(plan.tree(signals))).unwrap();
            let mut again = Explanation::default();
            let replayed = elsewhere.replay(&record, &mut Scratch::default(), &mut again);
            prop_assert_eq!(&replayed, &outcome, "on one made of its record");
            prop_assert_eq!(&again, &why);
            prop_assert_eq!(elsewhere.ids(&replayed), record.picked);
            Ok(())
        },
    );
}

#[test]
fn a_record_of_another_form_is_refused_and_says_why() {
    let (_, snapshot, _) = build(trees::gateway(), &[]);
    let (_, record) =
        snapshot.pick_recorded(&Ask::new(&Facts::new(), NOW, 1), &mut Scratch::default(), &mut ());
    let newer = |mut written: serde_json::Value| {
        written["version"] = 2.into();
        written
    };
    let expected = "the record is of version 2, and only version 1 can be read";
    let written = serde_json::to_value(&record).unwrap();
    let error = serde_json::from_value::<Record>(newer(written.clone())).unwrap_err();
    assert_eq!(error.to_string(), expected);
    let snapshot = serde_json::to_value(snapshot.record()).unwrap();
    let error = serde_json::from_value::<SnapshotRecord>(newer(snapshot)).unwrap_err();
    assert_eq!(error.to_string(), expected);

    let mut uneven = written;
    uneven["frozen"]["weight"] = vec![1].into();
    let error = serde_json::from_value::<Record>(uneven).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the columns `weight` and `limit` are not of one length"
    );
}

#[test]
fn a_record_that_ends_with_the_last_upstream_replays_too() {
    hold(
        250,
        (members(), plan(), question(), signals()),
        |(members, plan, question, signals)| {
            let (_board, snapshot, _leases) = build(plan.tree(signals), &members);
            let mut scratch = Scratch::default();
            let mut why = Explanation::default();
            let (outcome, record) = question.put(|ask| snapshot.pick_recorded(ask, &mut scratch, &mut why));
            let mut written = serde_json::to_value(&record).unwrap();
            for column in ["weight", "limit", "requests", "prefill", "own_adapters"] {
                let column = written["frozen"][column].as_array_mut().unwrap();
                column.truncate(members.len());
            }
            let cut: Record = serde_json::from_value(written).unwrap();
            let mut again = Explanation::default();
            let replayed = snapshot.replay(&cut, &mut scratch, &mut again);
            prop_assert_eq!((replayed, again), (outcome, why));
            Ok(())
        },
    );
}

#[test]
fn places_with_gaps_replay_too() {
    let members: Vec<Member> = Vec::new();
    let (mut board, ..) = build(trees::gateway(), &members);
    for place in 0..130 {
        board.apply(
            StatusEvent::Upsert(spec(&format!("upstream-{place}"))),
            Moment::ZERO,
        );
    }
    for place in (0..130).step_by(3) {
        board.apply(
            StatusEvent::Remove(spec(&format!("upstream-{place}")).id),
            Moment::ZERO,
        );
    }
    let snapshot = board.publish(NOW);
    let elsewhere =
        Snapshot::from_record(&through_json(&snapshot.record()), Arc::new(trees::gateway())).unwrap();
    let facts = Facts::new();
    let mut scratch = Scratch::default();
    for seed in 0..200 {
        let ask = Ask::new(&facts, NOW, seed).want(4);
        let (outcome, record) = snapshot.pick_recorded(&ask, &mut scratch, &mut ());
        assert_eq!(
            elsewhere.replay(&through_json(&record), &mut scratch, &mut ()),
            outcome
        );
        assert!(outcome.picked().is_some());
    }
}

/// Writes down who was picked, in order.
#[derive(Default)]
struct Order(Vec<Vec<usize>>);

impl Observer for &mut Order {
    fn picked(&mut self, _cx: &PickCx<'_>, _node: NodeId, picks: &Picks) {
        self.0.push(picks.iter().map(|upstream| upstream.get()).collect());
    }
}

#[test]
fn ten_thousand_picks_are_the_same_with_and_without_observers() {
    // 100 pools and trees, 100 requests each.
    let of = (members(), plan(), vec(question(), 100), signals());
    hold(100, of, |(members, plan, questions, signals)| {
        let (_board, snapshot, _leases) = build(plan.tree(signals), &members);
        let counters = NodeCounters::new(snapshot.tree());
        let mut scratch = Scratch::default();
        let (mut plain, mut watched) = (Vec::new(), Vec::new());
        for question in &questions {
            plain.push(question.put(|ask| snapshot.pick(ask, &mut scratch, &mut ())));
        }
        let mut order = Order::default();
        let mut picked = 0;
        for question in &questions {
            let mut observers = ((Explanation::default(), &counters), &mut order);
            let outcome = question.put(|ask| snapshot.pick(ask, &mut scratch, &mut observers));
            picked += u64::from(outcome.picked().is_some());
            watched.push(outcome);
        }
        prop_assert_eq!(&plain, &watched);
        let expected: Vec<Vec<usize>> = plain
            .iter()
            .filter_map(|outcome| match outcome {
                Outcome::Picked(picks) => Some(picks.iter().map(|upstream| upstream.get()).collect()),
                _ => None,
            })
            .collect();
        prop_assert_eq!(&order.0, &expected);
        let counted: u64 = counters.iter().map(|(_, count)| count.picked).sum();
        let ended: u64 = counters.iter().map(|(_, count)| count.ended).sum();
        prop_assert_eq!((counted, ended), (picked, questions.len() as u64 - picked));
        Ok(())
    });
}

#[test]
fn a_written_kv_usage_is_the_same_to_the_last_bit() {
    hold(
        5_000,
        any::<f64>().prop_filter("a number", |usage| usage.is_finite()),
        |usage| {
            let report = pool::kv(usage);
            let again: Report = through_json(&report);
            prop_assert_eq!(again.kv_cache_usage.map(f64::to_bits), Some(usage.to_bits()));
            Ok(())
        },
    );
    hold(5_000, 0.0..1.0f64, |usage| {
        let again: Report = through_json(&pool::kv(usage));
        prop_assert_eq!(again.kv_cache_usage.map(f64::to_bits), Some(usage.to_bits()));
        Ok(())
    });
}
