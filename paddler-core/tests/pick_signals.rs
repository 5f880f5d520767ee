//! Are signals read as they are meant: unknown, not a number, as reported or corrected by what we sent since?

mod pool;

use std::sync::Arc;
use std::time::Duration;

use paddler_core::Moment;
use paddler_core::request::{Facts, RequestClass};
use paddler_core::schedule::costs::{
    in_flight_share, kv_pressure, prefill_product, queue as queue_cost, weighted,
};
use paddler_core::schedule::filters::{
    Bound, Margin, Unknown, all_of, any_of, fresh, healthy, heard, kv_cache, least_kv_cache, least_queue,
    lora_active, lora_low_cost, lora_room, not, present, queue_depth, slot, within_best,
};
use paddler_core::schedule::{
    Ask, Class, Cost, Explanation, Filter, Node, Outcome, Reason, Record, Scratch, Signals, cost_fn,
    filter_fn, trees,
};
use paddler_core::status::{Failure, FailureKind, Health, Report, Snapshot, StatusBoard, StatusEvent};
use paddler_core::upstream::{Lease, ModelEntry, Models, UpstreamSpec};
use pool::{Pool, adapters, corrected, count, ids, kv, queue, report, slots, spec, tell, tree};

fn kept(filter: impl Filter, reports: Vec<(&str, Report)>) -> Vec<String> {
    Pool::reporting(corrected([Node::prefer(filter), Node::random()]), reports)
        .ask(1)
        .survivors
}

/// The unknowns are given last, so that places tell them apart.
fn least_of(costs: &'static [Option<f32>], seeds: u64) -> Vec<u32> {
    let cost = cost_fn("given", |_, upstream| costs[upstream.get()]);
    let names: Vec<String> = (0..costs.len()).map(|number| number.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    count(
        &Pool::of(corrected([Node::least(cost)]), &names).publish(),
        &Facts::new(),
        seeds,
    )
}

#[test]
fn in_relative_filters_the_unknown_is_the_median_of_the_known() {
    let silent = || Report::new();
    let of = |waiting: [u32; 3]| {
        let told = [
            ("a", queue(waiting[0])),
            ("b", queue(waiting[1])),
            ("c", queue(waiting[2])),
        ];
        kept(
            least_queue(),
            told.into_iter().chain([("silent", silent())]).collect(),
        )
    };
    assert_eq!(
        of([0, 0, 40]),
        ["a", "b", "silent"],
        "the median 0 is in the bucket of 0 to 10"
    );
    assert_eq!(of([0, 20, 40]), ["a"], "the median 20 is not");
    assert_eq!(
        kept(least_queue(), vec![("a", silent()), ("b", silent())]),
        ["a", "b"],
        "none known: nothing"
    );
    let usage = |values: [f64; 3]| {
        let told = [("a", kv(values[0])), ("b", kv(values[1])), ("c", kv(values[2]))];
        kept(
            least_kv_cache(),
            told.into_iter().chain([("silent", silent())]).collect(),
        )
    };
    assert_eq!(usage([0.1, 0.2, 0.9]), ["a", "b", "silent"]);
    assert_eq!(usage([0.1, 0.8, 0.9]), ["a"]);
}

#[test]
fn the_unknown_counts_among_those_that_reach_the_filter() {
    // Of two the bucket reaches to 5, of three to 3.
    assert_eq!(
        kept(
            least_queue(),
            vec![("a", queue(0)), ("b", queue(4)), ("c", queue(10))]
        ),
        ["a"]
    );
    let told = vec![("a", queue(0)), ("b", queue(10)), ("c", Report::new())];
    assert_eq!(
        kept(least_queue(), told),
        ["a", "c"],
        "the lower one of two is the median"
    );
}

#[test]
fn in_costs_the_unknown_is_the_median_of_the_known() {
    assert_eq!(
        least_of(&[Some(1.0), Some(3.0), Some(5.0), None], 200),
        [200, 0, 0, 0]
    );
    let counts = least_of(&[Some(1.0), Some(1.0), Some(5.0), None], 3_000);
    assert!(
        counts[2] == 0 && (800..1200).contains(&counts[3]),
        "its fair share: {counts:?}"
    );
    let counts = least_of(&[None, None], 1_000);
    assert!(
        counts.iter().all(|count| *count > 400),
        "none known: all are alike, {counts:?}"
    );
}

#[test]
fn nan_never_wins() {
    const NAN: Option<f32> = Some(f32::NAN);
    const MINUS_NAN: Option<f32> = Some(-f32::NAN);
    assert_eq!(
        least_of(&[NAN, MINUS_NAN, Some(f32::INFINITY)], 200),
        [0, 0, 200],
        "not even against infinity"
    );
    assert_eq!(
        least_of(&[NAN, MINUS_NAN, None], 200),
        [0, 0, 200],
        "nor against unknown"
    );
    let counts = least_of(&[NAN, MINUS_NAN], 1_000);
    assert!(
        counts.iter().all(|count| *count > 400),
        "unless it is all there is: {counts:?}"
    );
    assert_eq!(
        least_of(&[Some(-1.0), Some(f32::NEG_INFINITY), Some(0.0)], 100),
        [0, 100, 0]
    );
    let counts = least_of(&[Some(0.0), Some(-0.0)], 1_000);
    assert!(
        counts.iter().all(|count| *count > 400),
        "zero is zero: {counts:?}"
    );
}

#[test]
fn a_kv_usage_that_is_no_number_is_unknown() {
    for strange in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let reports = || vec![("a", kv(0.3)), ("b", kv(0.3)), ("c", kv(strange))];
        assert_eq!(kept(least_kv_cache(), reports()), ["a", "b", "c"]);
        assert_eq!(
            kept(kv_cache(Bound::AtMost(0.5)).unknown(Unknown::Fail), reports()),
            ["a", "b"]
        );
    }
}

#[test]
fn thresholds_say_what_unknown_means() {
    let reports = || vec![("a", queue(4)), ("b", queue(5)), ("c", Report::new())];
    assert_eq!(kept(queue_depth(Bound::Below(5.0)), reports()), ["a", "c"]);
    assert_eq!(
        kept(queue_depth(Bound::AtMost(5.0)).unknown(Unknown::Fail), reports()),
        ["a", "b"]
    );
    assert_eq!(
        kept(queue_depth(Bound::Below(5.0)).unknown(Unknown::Fail), reports()),
        ["a"]
    );
}

#[test]
fn filters_combine() {
    let short = || Arc::new(queue_depth(Bound::Below(5.0))) as Arc<dyn Filter>;
    let first = || Arc::new(filter_fn("first", |_, upstream| upstream.get() == 0)) as Arc<dyn Filter>;
    let reports = || vec![("a", queue(9)), ("b", queue(1)), ("c", queue(2)), ("d", queue(7))];
    assert_eq!(kept(any_of([short(), first()]), reports()), ["a", "b", "c"]);
    assert_eq!(
        kept(all_of([short(), Arc::new(not(first()))]), reports()),
        ["b", "c"]
    );
    assert_eq!(kept(not(short()), reports()), ["a", "d"]);
    assert_eq!(kept(all_of([]), reports()).len(), 4, "of none: everybody");
    assert_eq!(kept(not(any_of([])), reports()).len(), 4, "of none: nobody");
    // A relative filter after another one sees those that it left.
    assert_eq!(
        kept(
            all_of([Arc::new(not(short())) as Arc<dyn Filter>, Arc::new(least_queue())]),
            reports()
        ),
        ["d"]
    );
    let nested = not(any_of([
        Arc::new(all_of([short(), Arc::new(not(first()))])) as Arc<dyn Filter>,
        first(),
    ]));
    assert_eq!(kept(nested, reports()), ["d"]);
}

#[test]
fn within_best_keeps_who_is_near() {
    let near = |margin| {
        let reports = vec![
            ("a", queue(10)),
            ("b", queue(12)),
            ("c", queue(13)),
            ("d", Report::new()),
        ];
        kept(within_best(queue_cost(), margin), reports)
    };
    assert_eq!(
        near(Margin::Times(1.2)),
        ["a", "b", "d"],
        "the unknown counts as 12"
    );
    assert_eq!(near(Margin::Times(1.1)), ["a"]);
    assert_eq!(near(Margin::Plus(3.0)), ["a", "b", "c", "d"]);
    assert_eq!(near(Margin::Times(0.1)), ["a"], "the best itself stays");
    assert_eq!(near(Margin::Plus(f32::NAN)), ["a"]);

    let given = |costs: &'static [Option<f32>]| {
        let cost = cost_fn("given", |_, upstream| costs[upstream.get()]);
        kept(
            within_best(cost, Margin::Times(2.0)),
            vec![("a", queue(0)), ("b", queue(0)), ("c", queue(0))],
        )
    };
    assert_eq!(
        given(&[Some(-4.0), Some(-2.0), Some(-1.0)]),
        ["a", "b"],
        "below zero, worse is towards zero"
    );
    assert_eq!(
        given(&[Some(1.0), Some(f32::NAN), None]),
        ["a", "c"],
        "NaN goes out"
    );
    assert_eq!(
        given(&[Some(f32::NAN), Some(f32::NAN), Some(f32::NAN)]).len(),
        3,
        "unless it is all there is"
    );
    assert_eq!(given(&[None, None, None]).len(), 3);
}

/// One upstream, and what a pick makes of it: waiting, load, and whether it fits.
fn seen(snapshot: &Snapshot, facts: &Facts<'_>) -> Seen {
    let mut seen = None;
    let probe = Probe(&mut seen);
    let outcome = snapshot.pick(&Ask::new(facts, Moment::ZERO, 1), &mut Scratch::default(), &mut {
        probe
    });
    assert!(outcome.picked().is_some());
    seen.expect("a leaf was reached")
}

#[derive(Debug, PartialEq)]
struct Seen {
    waiting: Option<u32>,
    load: u32,
    fits: bool,
    active: bool,
    adapters: Option<(u32, u32)>,
}

struct Probe<'a>(&'a mut Option<Seen>);

impl paddler_core::schedule::Observer for Probe<'_> {
    fn choosing(
        &mut self,
        cx: &paddler_core::schedule::PickCx<'_>,
        _node: paddler_core::schedule::NodeId,
        set: &paddler_core::schedule::CandidateSet<'_>,
    ) {
        let upstream = set.iter().next().expect("somebody");
        *self.0 = Some(Seen {
            waiting: cx.waiting(upstream),
            load: cx.load(upstream),
            fits: cx.fits(upstream),
            active: cx.adapter_active(upstream),
            adapters: cx.adapters(upstream),
        });
    }
}

/// Looks at everything, and takes nobody out.
fn look() -> Node {
    Node::prefer(filter_fn("look", |_, _| true))
}

fn lease(snapshot: &Snapshot, facts: &Facts<'_>, at: u64) -> Lease {
    let upstream = snapshot.iter().next().expect("somebody").0;
    let mut lease = snapshot
        .lease(upstream, facts, Moment::from_millis(at))
        .expect("there is room");
    lease.sent();
    lease
}

fn one(signals: Signals, said: Report) -> Pool {
    Pool::reporting(tree(signals, [look(), Node::random()]), [("a", said)])
}

#[test]
fn own_requests_wait_only_beyond_the_known_room() {
    let said = report(|report| {
        report.waiting = Some(0);
        report.running = Some(0);
        report.max_sequences = Some(2);
    });
    let facts = Facts::new();
    for (signals, expected) in [(Signals::Corrected, [0, 0, 0, 1, 2]), (Signals::Reported, [0; 5])] {
        let snapshot = one(signals, said.clone()).publish();
        let mut leases = Vec::new();
        for (own, waiting) in expected.into_iter().enumerate() {
            let seen = seen(&snapshot, &facts);
            assert_eq!(
                (seen.waiting, seen.load),
                (Some(waiting), own as u32),
                "{signals:?}"
            );
            // As many as one batch may wait behind it.
            if own < 4 {
                leases.push(lease(&snapshot, &facts, 0));
            }
        }
    }
    // Where the room is not known, waiting stays as reported; where waiting is not told, it stays unknown.
    let snapshot = one(Signals::Corrected, queue(3)).publish();
    let _leases: Vec<_> = (0..9).map(|_| lease(&snapshot, &facts, 0)).collect();
    assert_eq!(seen(&snapshot, &facts).waiting, Some(3));
    let snapshot = one(Signals::Corrected, slots(2, 2)).publish();
    assert_eq!(seen(&snapshot, &facts).waiting, None);
}

#[test]
fn without_slots_an_engine_gets_twice_the_sequences_that_it_runs_at_once() {
    let limit = |in_flight, sequences, said: Report| {
        let mut spec = UpstreamSpec::new("a", "http://127.0.0.1:9").unwrap();
        spec.limits.max_in_flight = in_flight;
        spec.limits.max_sequences = sequences;
        let (id, mut board) = (spec.id.clone(), StatusBoard::new(trees::gateway()));
        board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
        board.apply(
            StatusEvent::Report {
                id,
                report: said,
                sample: None,
            },
            Moment::ZERO,
        );
        board.publish(Moment::ZERO).find("a").unwrap().limit()
    };
    let tells = |sequences| report(|report| report.max_sequences = Some(sequences));
    assert_eq!(limit(None, None, tells(64)), Some(128));
    assert_eq!(
        limit(None, Some(8), tells(64)),
        Some(16),
        "what the user says counts"
    );
    assert_eq!(limit(Some(5), Some(8), tells(64)), Some(5));
    assert_eq!(
        limit(None, Some(8), slots(0, 4)),
        Some(4),
        "slots are counted to the last one"
    );
    assert_eq!(limit(None, None, tells(u32::MAX)), Some(u32::MAX));
    assert_eq!(limit(None, None, queue(3)), None, "unknown is not full");

    // Both batches are given, and then there is no slot.
    let tree = tree(Signals::Corrected, [Node::require(slot()), Node::random()]);
    let snapshot = Pool::reporting(tree, [("a", tells(2))]).publish();
    let facts = Facts::new();
    let _leases: Vec<_> = (0..4).map(|_| lease(&snapshot, &facts, 0)).collect();
    let ask = Ask::new(&facts, Moment::ZERO, 1);
    let full = snapshot
        .reserve(&ask, &mut Scratch::default(), &mut ())
        .unwrap_err();
    assert_eq!((full.class, full.reason), (Class::Later, Reason::SlotsBusy));
}

#[test]
fn a_reported_queue_is_never_corrected_downwards() {
    let said = report(|report| {
        report.waiting = Some(7);
        report.running = Some(1);
        report.max_sequences = Some(16);
    });
    assert_eq!(
        seen(&one(Signals::Corrected, said).publish(), &Facts::new()).waiting,
        Some(7)
    );
}

#[test]
fn busy_is_never_counted_twice() {
    let facts = Facts::new();
    let mut pool = one(Signals::Corrected, slots(0, 8));
    let snapshot = pool.publish();
    let held: Vec<_> = (0..3).map(|_| lease(&snapshot, &facts, 0)).collect();
    // A poll that was sent after all three had arrived sees five: two are somebody else's.
    let sample = snapshot.sample("a", Moment::from_millis(100));
    assert_eq!(sample.unwrap().own_weight(), 3);
    let late = lease(&snapshot, &facts, 100);
    let id = spec("a").id;
    let said = StatusEvent::Report {
        id: id.clone(),
        report: slots(5, 8),
        sample,
    };
    pool.board.apply(said, Moment::from_millis(101));
    let snapshot = pool.publish();
    assert_eq!(
        seen(&snapshot, &facts).load,
        3 + 1 + 2,
        "own now, and what is not ours"
    );
    drop((held, late));

    // Requests that may still have been under way at the sample are not taken for somebody else's, and ours that
    // the engine does not show yet do not make others of less than nothing.
    let mut pool = one(Signals::Corrected, slots(0, 8));
    let snapshot = pool.publish();
    let young = lease(&snapshot, &facts, 1_000);
    let sample = snapshot.sample("a", Moment::from_millis(1_005));
    assert_eq!(sample.unwrap().own_weight(), 0, "it may not have arrived");
    pool.board.apply(
        StatusEvent::Report {
            id,
            report: slots(0, 8),
            sample,
        },
        Moment::from_millis(1_006),
    );
    assert_eq!(seen(&pool.publish(), &facts).load, 1);
    drop(young);
}

#[test]
fn what_others_hold_leaves_less_for_us() {
    let facts = Facts::new();
    let snapshot = one(Signals::Corrected, slots(3, 4)).publish();
    assert!(seen(&snapshot, &facts).fits);
    let held = lease(&snapshot, &facts, 0);
    let upstream = snapshot.index("a").unwrap();
    assert!(!seen(&snapshot, &facts).fits && snapshot.lease(upstream, &facts, Moment::ZERO).is_none());
    held.complete();
    assert!(
        seen(&snapshot, &facts.weight(3)).fits,
        "what weighs more than all there is fits where nothing is open"
    );
}

#[test]
fn control_requests_fit_everywhere() {
    let facts = Facts::new().class(RequestClass::Control);
    let mut pool = one(Signals::Corrected, slots(0, 2));
    let snapshot = pool.publish();
    let held: Vec<_> = (0..2).map(|_| lease(&snapshot, &Facts::new(), 0)).collect();
    // The limit falls below what is open.
    pool.report_at("a", slots(2, 1), Moment::from_millis(500));
    let snapshot = pool.publish();
    assert!(seen(&snapshot, &facts).fits && !seen(&snapshot, &Facts::new()).fits);
    drop(held);
}

#[test]
fn share_of_slots_and_not_their_number() {
    let reports = [("small", slots(1, 2)), ("large", slots(2, 8))];
    let mut pool = Pool::reporting(corrected([Node::least(in_flight_share())]), reports);
    assert_eq!(pool.ask(1).picked, ["large"]);
}

#[test]
fn the_balancer_spreads_a_burst_and_then_waits() {
    let mut pool = Pool::reporting(
        trees::balancer(),
        [("small", slots(0, 2)), ("large", slots(0, 6))],
    );
    let snapshot = pool.publish();
    let facts = Facts::new();
    let mut held: Vec<Lease> = Vec::new();
    let mut scratch = Scratch::default();
    let ending = loop {
        match snapshot.reserve(
            &Ask::new(&facts, Moment::ZERO, held.len() as u64),
            &mut scratch,
            &mut (),
        ) {
            Ok(lease) => held.push(lease),
            Err(ending) => break ending,
        }
    };
    assert_eq!(
        held.len(),
        8,
        "one for each slot, without a single report in between"
    );
    assert_eq!(ending.reason, paddler_core::schedule::Reason::SlotsBusy);
    let small = held
        .iter()
        .filter(|lease| lease.upstream().as_str() == "small")
        .count();
    assert_eq!(small, 2);
}

fn with_adapters(max: Option<u32>, running: &[&str], waiting: &[&str]) -> Report {
    report(|report| report.adapters = Some(adapters(max, running, waiting)))
}

fn adapter_pool(signals: Signals, said: Report) -> Pool {
    let listed = ["x", "y", "z"].map(|name| ModelEntry::adapter(name, "base"));
    let models = [ModelEntry::new("base")].into_iter().chain(listed).collect();
    Pool::new(tree(signals, [look(), Node::random()]))
        .with(spec("a").models(Models::Listed(models)))
        .says("a", said)
}

#[test]
fn adapters_that_run_or_wait_are_active_and_count_once() {
    let snapshot = adapter_pool(
        Signals::Reported,
        with_adapters(Some(4), &["x", "y"], &["y", "z"]),
    )
    .publish();
    for (name, active) in [("x", true), ("y", true), ("z", true), ("base", false)] {
        let seen = seen(&snapshot, &Facts::new().model(name));
        assert_eq!((seen.active, seen.adapters), (active, Some((3, 4))), "{name}");
    }
}

#[test]
fn an_adapter_with_an_open_lease_is_active_and_takes_a_place() {
    let said = || with_adapters(Some(2), &["x"], &[]);
    let asked = Facts::new().model("y");
    let corrected = adapter_pool(Signals::Corrected, said()).publish();
    let (of_y, of_x) = (
        lease(&corrected, &asked, 0),
        lease(&corrected, &Facts::new().model("x"), 0),
    );
    let now = seen(&corrected, &asked);
    assert!(now.active && now.adapters == Some((2, 2)), "{now:?}");
    let again = lease(&corrected, &asked, 0);
    assert_eq!(
        seen(&corrected, &asked).adapters,
        Some((2, 2)),
        "two leases of one adapter take one place"
    );
    let base = lease(&corrected, &Facts::new().model("base"), 0);
    assert_eq!(
        seen(&corrected, &asked).adapters,
        Some((2, 2)),
        "a base model takes none"
    );
    drop((of_y, of_x, again, base));

    let corrected = adapter_pool(Signals::Corrected, said()).publish();
    let of_y = lease(&corrected, &asked, 0);
    of_y.complete();
    assert!(!seen(&corrected, &asked).active);
    assert_eq!(
        seen(&corrected, &asked).adapters,
        Some((1, 2)),
        "and not for longer than the lease"
    );

    let raw = adapter_pool(Signals::Reported, said()).publish();
    let _held = lease(&raw, &asked, 0);
    let now = seen(&raw, &asked);
    assert!(
        !now.active && now.adapters == Some((1, 2)),
        "as reported: {now:?}"
    );
}

#[test]
fn a_report_that_shows_our_adapter_does_not_count_it_twice() {
    let asked = Facts::new().model("y");
    let mut pool = adapter_pool(Signals::Corrected, with_adapters(Some(2), &[], &[]));
    let snapshot = pool.publish();
    let _held = lease(&snapshot, &asked, 0);
    assert_eq!(seen(&snapshot, &asked).adapters, Some((1, 2)));
    pool.report_at("a", with_adapters(Some(2), &["y"], &[]), Moment::from_millis(50));
    assert_eq!(seen(&pool.publish(), &asked).adapters, Some((1, 2)));
}

#[test]
fn adapter_filters() {
    let told = |filter: fn() -> paddler_core::schedule::filters::AdapterFilter| {
        let nodes = [Node::prefer(filter()), Node::random()];
        let mut pool = Pool::reporting(
            tree(Signals::Reported, nodes),
            [
                ("active_full", with_adapters(Some(2), &["x", "y"], &[])),
                ("room", with_adapters(Some(2), &["z"], &[])),
                ("full", with_adapters(Some(2), &["v", "w"], &[])),
                ("no_max", with_adapters(None, &[], &["x"])),
                ("silent", Report::new()),
            ],
        );
        pool.ask_for(&Facts::new().model("x")).survivors
    };
    assert_eq!(told(lora_active), ["active_full", "no_max"]);
    assert_eq!(told(lora_room), ["room"]);
    assert_eq!(told(lora_low_cost), ["active_full", "room", "no_max"]);
}

#[test]
fn heard_and_fresh_prefer_who_speaks_and_fall_back_together() {
    let nodes = || {
        [
            Node::prefer(heard()),
            Node::prefer(fresh(Duration::from_secs(10))),
            Node::random(),
        ]
    };
    let mut pool = Pool::of(corrected(nodes()), &["a", "b", "c"]);
    let facts = Facts::new();
    let survivors = |pool: &mut Pool, now: u64| {
        tell(&pool.publish(), &Ask::new(&facts, Moment::from_millis(now), 1)).survivors
    };
    assert_eq!(
        survivors(&mut pool, 0),
        ["a", "b", "c"],
        "none has been heard from"
    );
    pool.report_at("a", Report::new(), Moment::from_millis(1_000));
    assert_eq!(survivors(&mut pool, 1_000), ["a"]);
    pool.report_at("b", Report::new(), Moment::from_millis(5_000));
    assert_eq!(
        survivors(&mut pool, 11_000),
        ["a", "b"],
        "exactly 10 s is still fresh"
    );
    assert_eq!(survivors(&mut pool, 11_001), ["b"]);
    assert_eq!(
        survivors(&mut pool, 60_000),
        ["a", "b"],
        "all stale: those that were ever heard from"
    );
}

#[test]
fn healthy_leaves_out_who_says_so_or_refuses_connections() {
    let health = |health| report(|report| report.health = Some(health));
    let nodes = [Node::require(healthy()), Node::random()];
    let mut pool = Pool::reporting(
        corrected(nodes),
        [
            ("ready", health(Health::Ready)),
            ("loading", health(Health::Loading)),
            ("failing", health(Health::Failing)),
        ],
    )
    .with(spec("silent"))
    .with(spec("gone"))
    .with(spec("slow"));
    let fail = |pool: &mut Pool, name: &str, kind| {
        let failed = StatusEvent::Failed {
            id: spec(name).id,
            failure: Failure::new(kind, ""),
        };
        pool.board.apply(failed, Moment::ZERO);
    };
    fail(&mut pool, "gone", FailureKind::Unreachable);
    assert_eq!(
        pool.ask(1).survivors,
        ["ready", "silent", "gone", "slow"],
        "one refusal may be chance"
    );
    fail(&mut pool, "gone", FailureKind::Unreachable);
    (0..9).for_each(|_| fail(&mut pool, "slow", FailureKind::Timeout));
    assert_eq!(
        pool.ask(1).survivors,
        ["ready", "silent", "slow"],
        "a busy engine is not broken"
    );
    pool.report_at("gone", health(Health::Ready), Moment::ZERO);
    assert_eq!(pool.ask(1).survivors, ["ready", "silent", "gone", "slow"]);
}

#[test]
fn built_in_costs() {
    fn chosen(cost: impl Cost, reports: Vec<(&str, Report)>) -> Vec<String> {
        Pool::reporting(corrected([Node::least(cost)]), reports)
            .ask(1)
            .picked
    }
    assert_eq!(
        chosen(queue_cost(), vec![("a", queue(2)), ("b", queue(1))]),
        ["b"]
    );
    assert_eq!(
        chosen(kv_pressure(), vec![("a", kv(0.9)), ("b", kv(0.89))]),
        ["b"]
    );
    assert_eq!(
        chosen(kv_pressure(), vec![("a", kv(5.0)), ("b", kv(0.99))]),
        ["b"],
        "out of range is full"
    );
    let parts =
        || -> [(f32, Arc<dyn Cost>); 2] { [(1.0, Arc::new(queue_cost())), (10.0, Arc::new(kv_pressure()))] };
    let both = |waiting, usage| {
        report(|report| {
            report.waiting = Some(waiting);
            report.kv_cache_usage = Some(usage);
        })
    };
    assert_eq!(
        chosen(weighted(parts()), vec![("a", both(1, 0.5)), ("b", both(5, 0.1))]),
        ["b"]
    );
    // One part unknown: all of it is, and counts as the median.
    let silent = vec![
        ("a", both(0, 0.5)),
        ("b", both(1, 0.5)),
        ("c", both(2, 0.5)),
        ("d", queue(0)),
    ];
    assert_eq!(chosen(weighted(parts()), silent), ["a"]);
}

#[test]
fn prefill_product_weighs_prompts_under_way_with_requests() {
    let mut pool = Pool::of(corrected([Node::least(prefill_product())]), &["a", "b"]);
    let snapshot = pool.publish();
    let take = |name: &str, tokens| {
        let facts = Facts::new().tokens(tokens);
        snapshot
            .lease(snapshot.index(name).unwrap(), &facts, Moment::ZERO)
            .unwrap()
    };
    let picked = |tokens| {
        tell(
            &snapshot,
            &Ask::new(&Facts::new().tokens(tokens), Moment::ZERO, 1),
        )
        .picked
    };
    // a: one long prompt; b: two short ones.
    let mut long = take("a", 4_000);
    let _short = [take("b", 10), take("b", 10)];
    assert_eq!(picked(100), ["b"], "(4000 + 100) * 2 > (20 + 100) * 3");
    assert_eq!(picked(100_000), ["a"], "(4000 + 100000) * 2 < (20 + 100000) * 3");
    long.first_byte();
    assert_eq!(picked(100), ["a"], "its prompt has been read: 100 * 2 < 120 * 3");
    assert_eq!(
        picked(0),
        ["a"],
        "a request without a prompt still sees load: 1 * 2 < 21 * 3"
    );
}

/// Whom a walk picks, and by what, and the same by its record, if its columns end with the last upstream.
fn told_and_replayed(snapshot: &Snapshot, facts: &Facts<'_>) -> [(Outcome, Explanation); 2] {
    let mut scratch = Scratch::default();
    let [mut why, mut again] = [Explanation::default(), Explanation::default()];
    let ask = Ask::new(facts, Moment::ZERO, 1);
    let (outcome, record) = snapshot.pick_recorded(&ask, &mut scratch, &mut why);
    let mut written = serde_json::to_value(&record).expect("a record can be written");
    for column in ["weight", "limit", "requests", "prefill", "own_adapters"] {
        let column = written["frozen"][column].as_array_mut().expect("a column");
        column.truncate(snapshot.len());
    }
    let cut: Record = serde_json::from_value(written).expect("a record of this form");
    let replayed = snapshot.replay(&cut, &mut Scratch::default(), &mut again);
    [(outcome, why), (replayed, again)]
}

#[test]
fn a_record_that_ends_with_the_last_upstream_tells_of_its_prompts_and_adapters() {
    // So many that costs are found for a whole word at once.
    let names: Vec<_> = (0..20).map(|number| format!("upstream-{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut pool = Pool::of(corrected([Node::least(prefill_product())]), &names);
    let snapshot = pool.publish();
    let take = |snapshot: &Snapshot, name: &str, facts: Facts<'_>| {
        let at = snapshot.index(name).unwrap();
        snapshot.lease(at, &facts, Moment::ZERO).unwrap()
    };
    let long = names[1..].iter().map(|name| (*name, 4_000));
    let prompts = long.chain([(names[0], 10), (names[0], 10)]);
    let _open: Vec<_> = prompts
        .map(|(name, tokens)| take(&snapshot, name, Facts::new().tokens(tokens)))
        .collect();
    let [told, replayed] = told_and_replayed(&snapshot, &Facts::new().tokens(100));
    assert_eq!(
        told.1.picked,
        ids(&names[..1]),
        "the others have fewer requests, and long prompts"
    );
    assert_eq!(replayed, told);

    let listed = ["v", "x", "y"].map(|name| ModelEntry::adapter(name, "base"));
    let models = Models::Listed(listed.into_iter().collect());
    let mut pool = Pool::new(corrected([Node::require(lora_room()), Node::random()]));
    for name in ["a", "b"] {
        pool = pool
            .with(spec(name).models(models.clone()))
            .says(name, with_adapters(Some(2), &["x"], &[]));
    }
    let snapshot = pool.publish();
    let _open = take(&snapshot, "a", Facts::new().model("y"));
    let [told, replayed] = told_and_replayed(&snapshot, &Facts::new().model("v"));
    assert_eq!(told.1.survivors, ids(&["b"]), "ours takes the last place at a");
    assert_eq!(replayed, told);
}

#[test]
fn present_keeps_everybody_and_slot_passes_who_has_no_limit() {
    assert_eq!(
        kept(present(), vec![("a", queue(0)), ("b", Report::new())]).len(),
        2
    );
    assert_eq!(
        kept(slot(), vec![("a", slots(4, 4)), ("b", Report::new())]),
        ["b"]
    );
}

#[test]
fn a_request_that_takes_no_room_is_not_kept_out_by_load() {
    let mut full = report(|report| report.kv_cache_usage = Some(0.99));
    (full.slots_total, full.slots_busy, full.waiting) = (Some(4), Some(4), Some(60));
    let limits = [
        Node::require(kv_cache(Bound::Below(0.95))),
        Node::require(queue_depth(Bound::Below(50.0))),
    ];
    let nodes = limits.into_iter().chain([Node::require(slot()), Node::random()]);
    let mut pool = Pool::reporting(corrected(nodes), [("full", full)]);
    let control = Facts::new().class(RequestClass::Control);
    assert_eq!(pool.ask_for(&control).picked, ["full"]);
    assert!(pool.ask_for(&Facts::new()).picked.is_empty());
}

#[test]
fn an_explanation_says_by_which_value_one_went_out() {
    let told = |running: &[&str]| {
        let adapters = adapters(Some(2), running, &[]);
        report(|report| report.adapters = Some(adapters))
    };
    let pool = [("full", told(&["x", "y"])), ("room", told(&["x"]))];
    let mut pool = Pool::reporting(corrected([Node::prefer(lora_room()), Node::random()]), pool);
    let why = pool.ask(1).why;
    let gone: Vec<_> = why.steps[0]
        .removed
        .iter()
        .map(|(id, value)| (id.as_str(), *value))
        .collect();
    assert_eq!(gone, [("full", Some(2.0))]);
}
