//! Is what is asked for what comes back: exclusions, subsets, ranks, chance, and pools of every size?

mod pool;

use paddler_core::Moment;
use paddler_core::request::Facts;
use paddler_core::schedule::costs::{in_flight_share, queue as queue_cost};
use paddler_core::schedule::{
    Ask, Class, Ending, Explanation, Key, Node, NodeId, Observer, Outcome, PickCx, Picks, Reason, Scratch,
    cost_fn, trees,
};
use paddler_core::status::{Report, Snapshot, StatusBoard, StatusEvent};
use paddler_core::upstream::Lease;
use pool::{Pool, chi_square, corrected, count, ids, queue, slots, spec, tell};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn five(leaf: Node) -> Pool {
    Pool::of(corrected([leaf]), &NAMES)
}

fn ended(outcome: &Outcome) -> (Class, &Reason) {
    let ending = outcome.ending().expect("nobody was picked");
    (ending.class, &ending.reason)
}

#[test]
fn exclusions_are_out_and_unknown_ones_do_no_harm() {
    let snapshot = five(Node::random()).publish();
    let facts = Facts::new();
    let except = ids(&["a", "c", "gone"]);
    let ask = Ask::new(&facts, Moment::ZERO, 1).except(&except);
    assert_eq!(tell(&snapshot, &ask).survivors, ["b", "d", "e"]);
    let all = ids(&NAMES);
    let told = tell(&snapshot, &ask.except(&all));
    assert_eq!(ended(&told.outcome), (Class::Later, &Reason::Excluded));
    assert!(matches!(told.outcome, Outcome::Wait(_)));
}

#[test]
fn a_subset_is_kept_to_and_none_of_it_is_a_refusal() {
    let snapshot = five(Node::random()).publish();
    let facts = Facts::new();
    let ask = Ask::new(&facts, Moment::ZERO, 1);
    let some = ids(&["e", "b", "b", "gone"]);
    assert_eq!(tell(&snapshot, &ask.only(&some)).survivors, ["b", "e"]);
    for nobody in [ids(&[]), ids(&["gone"])] {
        let told = tell(&snapshot, &ask.only(&nobody));
        assert_eq!(ended(&told.outcome), (Class::Never, &Reason::NotInSubset));
        assert!(matches!(told.outcome, Outcome::Refuse(_)));
    }
    let except = ids(&["b"]);
    assert_eq!(
        tell(&snapshot, &ask.only(&some).except(&except)).survivors,
        ["e"],
        "both hold"
    );
    let told = tell(&snapshot, &ask.only(&some).except(&some));
    assert_eq!(ended(&told.outcome), (Class::Later, &Reason::Excluded));
}

#[test]
fn a_subset_of_those_who_let_nobody_in_now_is_for_the_tree_to_judge() {
    for others in [&[][..], &["b"]] {
        let mut pool = five(Node::random());
        for id in [&["a"][..], others].concat() {
            assert!(pool.board.set_draining(id, true));
        }
        let snapshot = pool.publish();
        let facts = Facts::new();
        let ask = Ask::new(&facts, Moment::ZERO, 1);
        let shut = ids(&[&["a", "gone"], others].concat());
        let told = tell(&snapshot, &ask.only(&shut));
        assert_eq!(ended(&told.outcome), (Class::Later, &Reason::Draining));
        let told = tell(&snapshot, &ask.only(&shut).except(&shut));
        assert_eq!(ended(&told.outcome).0, Class::Later, "tried there before");
    }
    // Of nobody it is known at once, whoever lets nobody in.
    let mut pool = five(Node::random());
    for id in NAMES {
        assert!(pool.board.set_draining(id, true));
    }
    let (snapshot, facts, gone) = (pool.publish(), Facts::new(), ids(&["gone"]));
    let told = tell(&snapshot, &Ask::new(&facts, Moment::ZERO, 1).only(&gone));
    assert_eq!(ended(&told.outcome), (Class::Never, &Reason::NotInSubset));
}

#[test]
fn an_empty_pool_is_for_the_tree_to_judge_whatever_is_excluded() {
    let facts = Facts::new();
    let names = ids(&["a"]);
    let ask = Ask::new(&facts, Moment::ZERO, 1).except(&names).only(&names);
    let of = |tree| tell(&Pool::new(tree).publish(), &ask).outcome;
    assert_eq!(ended(&of(trees::seed())), (Class::Shed, &Reason::NoUpstream));
    assert_eq!(ended(&of(trees::balancer())), (Class::Later, &Reason::NoUpstream));
    assert_eq!(ended(&of(trees::gateway())), (Class::Later, &Reason::NoUpstream));
}

#[test]
fn one_upstream_gets_everything() {
    for tree in [trees::seed(), trees::balancer(), trees::gateway()] {
        assert_eq!(Pool::of(tree, &["a"]).ask(1).picked, ["a"]);
    }
}

#[test]
fn as_many_as_wanted_are_ranked_and_distinct() {
    let leaves: [fn() -> Node; 4] = [
        || Node::random(),
        || Node::least(in_flight_share()),
        || Node::two_choices(in_flight_share()),
        || Node::rendezvous(Key::Session),
    ];
    for leaf in leaves {
        let snapshot = five(leaf()).publish();
        let facts = Facts::new().session("s");
        for (want, expected) in [(0, 1), (1, 1), (2, 2), (4, 4), (9, 4)] {
            let told = tell(&snapshot, &Ask::new(&facts, Moment::ZERO, 7).want(want));
            let mut distinct = told.picked.clone();
            distinct.sort();
            distinct.dedup();
            assert_eq!((told.picked.len(), distinct.len()), (expected, expected));
            assert_eq!(told.survivors.len(), 5, "those before the first was chosen");
            let first = tell(&snapshot, &Ask::new(&facts, Moment::ZERO, 7)).picked;
            assert_eq!(told.picked[..1], first, "more ranks do not change the first");
        }
        let except = ids(&["a", "b", "c"]);
        let told = tell(
            &snapshot,
            &Ask::new(&facts, Moment::ZERO, 7).except(&except).want(4),
        );
        assert_eq!(told.picked.len(), 2, "no more than there are");
    }
}

#[test]
fn least_ranks_by_cost() {
    let reports = [("a", 7), ("b", 1), ("c", 9), ("d", 3), ("e", 5)].map(|(name, n)| (name, queue(n)));
    let snapshot = Pool::reporting(corrected([Node::least(queue_cost())]), reports).publish();
    let facts = Facts::new();
    let told = tell(&snapshot, &Ask::new(&facts, Moment::ZERO, 3).want(4));
    assert_eq!(told.picked, ["b", "d", "e", "a"]);
}

#[test]
fn ties_and_random_are_uniform() {
    let facts = Facts::new();
    // The bound is the 99.9 % quantile of chi-square with 4 degrees of freedom; seeds are fixed.
    for leaf in [Node::random(), Node::least(cost_fn("same", |_, _| Some(1.0)))] {
        let counts = count(&five(leaf).publish(), &facts, 20_000);
        assert!(chi_square(&counts, &[0.2; 5]) < 18.5, "{counts:?}");
    }
    let tied = cost_fn("tied", |_, upstream| {
        Some(if upstream.get() % 2 == 0 { 1.0 } else { 2.0 })
    });
    let counts = count(&five(Node::least(tied)).publish(), &facts, 20_000);
    assert_eq!((counts[1], counts[3]), (0, 0));
    assert!(
        chi_square(&[counts[0], counts[2], counts[4]], &[1.0 / 3.0; 3]) < 13.8,
        "{counts:?}"
    );
}

#[test]
fn each_rank_of_random_is_uniform_too() {
    let snapshot = five(Node::random()).publish();
    let facts = Facts::new();
    let mut scratch = Scratch::default();
    let mut pairs = [0; 25];
    for seed in 0..20_000 {
        let ask = Ask::new(&facts, Moment::ZERO, seed).want(2);
        let Outcome::Picked(picks) = snapshot.pick(&ask, &mut scratch, &mut ()) else {
            panic!()
        };
        let places: Vec<_> = picks.iter().map(|upstream| upstream.get()).collect();
        pairs[places[0] * 5 + places[1]] += 1;
    }
    let different: Vec<u32> = (0..25)
        .filter(|pair| pair / 5 != pair % 5)
        .map(|pair| pairs[pair])
        .collect();
    assert!((0..5).all(|same| pairs[same * 6] == 0));
    // 19 degrees of freedom.
    assert!(chi_square(&different, &[0.05; 20]) < 43.8, "{different:?}");
}

#[test]
fn two_choices_draws_two_and_takes_the_better() {
    // The k-th best of n wins every pair with a worse one: (n - k) pairs of n (n - 1) / 2, k from one.
    let rising = cost_fn("rising", |_, upstream| Some(upstream.get() as f32));
    let counts = count(&five(Node::two_choices(rising)).publish(), &Facts::new(), 20_000);
    assert_eq!(counts[4], 0, "the worst is never the better of two");
    assert!(
        chi_square(&counts[..4], &[0.4, 0.3, 0.2, 0.1]) < 16.3,
        "{counts:?}"
    );
    let flat = cost_fn("flat", |_, _| Some(0.0));
    let counts = count(&five(Node::two_choices(flat)).publish(), &Facts::new(), 20_000);
    assert!(chi_square(&counts, &[0.2; 5]) < 18.5, "{counts:?}");
}

#[test]
fn two_choices_gives_the_unknown_its_fair_share_and_nan_nothing() {
    let unknown = cost_fn("unknown", |_, upstream| {
        (upstream.get() > 0).then_some(upstream.get() as f32)
    });
    let counts = count(&five(Node::two_choices(unknown)).publish(), &Facts::new(), 20_000);
    assert!(
        chi_square(&[counts[0], counts[1..].iter().sum()], &[0.2, 0.8]) < 10.8,
        "{counts:?}"
    );
    let nan = cost_fn("nan", |_, upstream| match upstream.get() {
        0 => Some(f32::NAN),
        1 => None,
        _ => Some(f32::INFINITY),
    });
    assert_eq!(
        count(&five(Node::two_choices(nan)).publish(), &Facts::new(), 2_000)[0],
        0
    );
    let all_nan = cost_fn("all_nan", |_, _| Some(f32::NAN));
    let counts = count(&five(Node::two_choices(all_nan)).publish(), &Facts::new(), 20_000);
    assert!(chi_square(&counts, &[0.2; 5]) < 18.5, "{counts:?}");
}

#[test]
fn rendezvous_spreads_keys_and_moves_only_those_of_who_left() {
    let names: Vec<String> = (0..20).map(|number| format!("upstream-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut pool = Pool::of(corrected([Node::rendezvous(Key::Session)]), &names);
    let keys: Vec<String> = (0..4_000).map(|number| format!("session-{number}")).collect();
    let assign = |pool: &mut Pool| -> Vec<String> {
        let snapshot = pool.publish();
        let mut scratch = Scratch::default();
        let pick = |(seed, key): (usize, &String)| {
            let facts = Facts::new().session(key);
            let outcome = snapshot.pick(
                &Ask::new(&facts, Moment::ZERO, seed as u64),
                &mut scratch,
                &mut (),
            );
            snapshot.ids(&outcome)[0].to_string()
        };
        keys.iter().enumerate().map(pick).collect()
    };
    let before = assign(&mut pool);
    let mut counts = vec![0u32; names.len()];
    for name in &before {
        counts[names.iter().position(|one| one == name).unwrap()] += 1;
    }
    // 19 degrees of freedom.
    assert!(chi_square(&counts, &[0.05; 20]) < 43.8, "{counts:?}");

    pool.board
        .apply(StatusEvent::Remove(spec("upstream-7").id), Moment::ZERO);
    let after = assign(&mut pool);
    for (old, new) in before.iter().zip(&after) {
        assert!(
            old == new || old == "upstream-7",
            "{old} was still there, and its key went to {new}"
        );
        assert_ne!(new, "upstream-7");
    }
    // It comes back to another place, since somebody took its own.
    let mut pool = pool.with(spec("guest")).with(spec("upstream-7"));
    pool.board
        .apply(StatusEvent::Remove(spec("guest").id), Moment::ZERO);
    assert_eq!(
        pool.publish().index("upstream-7").map(|place| place.get()),
        Some(20)
    );
    assert_eq!(assign(&mut pool), before, "and it gets its keys back");
}

#[test]
fn rendezvous_ranks_who_would_be_next() {
    let snapshot = five(Node::rendezvous(Key::Session)).publish();
    let facts = Facts::new().session("s");
    let ranked = tell(&snapshot, &Ask::new(&facts, Moment::ZERO, 1).want(4)).picked;
    let without_the_first = ids(&[&ranked[0]]);
    let next = tell(
        &snapshot,
        &Ask::new(&facts, Moment::ZERO, 2)
            .except(&without_the_first)
            .want(3),
    )
    .picked;
    assert_eq!(next, ranked[1..]);
}

#[test]
fn twenty_thousand_upstreams() {
    let names: Vec<String> = (0..20_000).map(|number| format!("upstream-{number}")).collect();
    for tree in [trees::seed(), trees::balancer(), trees::gateway()] {
        let mut board = StatusBoard::new(tree);
        for (number, name) in names.iter().enumerate() {
            board.apply(StatusEvent::Upsert(spec(name)), Moment::ZERO);
            let mut report = slots(if number == 19_999 { 0 } else { 1 }, 8);
            report.waiting = Some(if number == 19_999 { 0 } else { 3 });
            let id = spec(name).id;
            board.apply(
                StatusEvent::Report {
                    id,
                    report,
                    sample: None,
                },
                Moment::ZERO,
            );
        }
        let snapshot = board.publish(Moment::ZERO);
        let facts = Facts::new().tokens(10);
        assert_eq!(
            tell(&snapshot, &Ask::new(&facts, Moment::ZERO, 5)).picked,
            ["upstream-19999"]
        );
        let allowed = ids(&["upstream-12345", "upstream-3"]);
        let ask = Ask::new(&facts, Moment::ZERO, 5).only(&allowed);
        assert_eq!(tell(&snapshot, &ask).survivors.len(), 2);
        let ending = tell(&snapshot, &ask.except(&allowed)).outcome;
        assert_eq!(ended(&ending), (Class::Later, &Reason::Excluded));
    }
}

#[test]
fn a_board_takes_no_more_than_it_has_places_for() {
    let mut board = StatusBoard::new(trees::balancer());
    for number in 0..=paddler_core::upstream::Ledger::CAPACITY {
        board.apply(
            StatusEvent::Upsert(spec(&format!("upstream-{number}"))),
            Moment::ZERO,
        );
    }
    let snapshot = board.publish(Moment::ZERO);
    assert_eq!(snapshot.len(), paddler_core::upstream::Ledger::CAPACITY);
    assert!(snapshot.find("upstream-32768").is_none());
}

#[test]
fn places_are_used_again_once_nothing_is_open_on_them() {
    let remove =
        |pool: &mut Pool, name: &str| pool.board.apply(StatusEvent::Remove(spec(name).id), Moment::ZERO);
    let mut pool = Pool::of(trees::balancer(), &["a", "b", "c"]);
    let facts = Facts::new();
    let old = pool.publish();
    let lease = old.lease(old.index("b").unwrap(), &facts, Moment::ZERO).unwrap();
    remove(&mut pool, "a");
    remove(&mut pool, "b");
    pool = pool.with(spec("d")).with(spec("e"));
    let new = pool.publish();
    assert_eq!(new.index("d"), old.index("a"), "the lowest free place");
    assert!(
        new.index("e").is_some_and(|place| place.get() == 3),
        "something is open on the other one"
    );
    assert_eq!(
        new.iter()
            .map(|(_, entry)| entry.spec().id.to_string())
            .collect::<Vec<_>>(),
        ["d", "c", "e"]
    );

    // Who holds the old snapshot gets no lease from whoever lives there now.
    assert!(old.lease(old.index("a").unwrap(), &facts, Moment::ZERO).is_none());
    let only = ids(&["a"]);
    let told = old.reserve(
        &Ask::new(&facts, Moment::ZERO, 1).only(&only),
        &mut Scratch::default(),
        &mut (),
    );
    assert!(matches!(
        told,
        Err(Ending {
            class: Class::Later,
            reason: Reason::Contended,
            ..
        })
    ));

    lease.complete();
    pool = pool.with(spec("f"));
    assert_eq!(pool.publish().index("f"), old.index("b"));
    let counts = count(&pool.publish(), &facts, 1_000);
    assert!(
        counts.iter().all(|count| *count > 0),
        "everybody is picked at some time: {counts:?}"
    );
}

#[test]
fn a_report_of_an_earlier_life_is_ignored() {
    let mut pool = Pool::of(trees::balancer(), &["a"]);
    let sample = pool.publish().sample("a", Moment::ZERO);
    pool.board.apply(StatusEvent::Remove(spec("a").id), Moment::ZERO);
    pool = pool.with(spec("a"));
    let id = spec("a").id;
    pool.board.apply(
        StatusEvent::Report {
            id,
            report: Report::new(),
            sample,
        },
        Moment::ZERO,
    );
    assert!(pool.publish().find("a").unwrap().report().is_none());
}

#[test]
fn draining_takes_effect_without_a_publish() {
    let mut pool = Pool::of(trees::balancer(), &["a", "b"]);
    let snapshot = pool.publish();
    let facts = Facts::new();
    assert!(pool.board.set_draining("a", true) && !pool.board.set_draining("gone", true));
    assert_eq!(count(&snapshot, &facts, 100), [0, 100]);
    assert!(snapshot.anyone_able());
    assert!(pool.board.set_draining("b", true));
    let outcome = snapshot.pick(
        &Ask::new(&facts, Moment::ZERO, 1),
        &mut Scratch::default(),
        &mut (),
    );
    assert_eq!(ended(&outcome), (Class::Later, &Reason::Draining));
    assert!(!snapshot.anyone_able());
    assert!(pool.board.set_draining("a", false));
    assert!(count(&snapshot, &facts, 100)[0] > 0);
}

#[test]
fn a_reservation_goes_elsewhere_when_the_place_is_gone_and_waits_when_all_are() {
    // Nothing in this tree looks at slots, so it picks whom the limit refuses.
    let blind = cost_fn("blind", |_, upstream| Some(upstream.get() as f32));
    let tree = corrected([Node::least(blind)]);
    let mut pool = Pool::new(tree)
        .with(spec("a").max_in_flight(1))
        .with(spec("b").max_in_flight(1));
    let snapshot = pool.publish();
    let facts = Facts::new();
    let ask = Ask::new(&facts, Moment::ZERO, 1);
    let mut why = Explanation::default();
    let mut reserve = || {
        why = Explanation::default();
        snapshot.reserve(&ask, &mut Scratch::default(), &mut why)
    };
    let first = reserve().unwrap();
    let second = reserve().unwrap();
    assert_eq!(
        (first.upstream().as_str(), second.upstream().as_str()),
        ("a", "b")
    );
    let ending = reserve().unwrap_err();
    assert_eq!((ending.class, &ending.reason), (Class::Later, &Reason::Contended));
    drop(first);
    assert_eq!(reserve().unwrap().upstream().as_str(), "a");
    assert_eq!(why.picked, ids(&["a"]));
}

/// Takes the place of whom the first walk picks, before it can be reserved.
struct Rival<'s> {
    snapshot: &'s Snapshot,
    taken: Option<Lease>,
}

impl Observer for Rival<'_> {
    fn picked(&mut self, _: &PickCx<'_>, _: NodeId, picks: &Picks) {
        if self.taken.is_none() {
            let first = picks.first().expect("somebody was picked");
            self.taken = self.snapshot.lease(first, &Facts::new(), Moment::ZERO);
        }
    }
}

#[test]
fn who_was_lost_to_another_request_stands_in_the_record_as_not_allowed() {
    // Whom it picks depends on nothing that is written down beside.
    let mut pool = Pool::new(corrected([Node::rendezvous(Key::Session)]));
    for name in NAMES {
        pool = pool.with(spec(name).max_in_flight(1));
    }
    let snapshot = pool.publish();
    let facts = Facts::new().session("s");
    let except = ids(&["gone"]);
    let ask = Ask::new(&facts, Moment::ZERO, 1).except(&except);
    let mut scratch = Scratch::default();
    let mut rival = Rival {
        snapshot: &snapshot,
        taken: None,
    };
    let (lease, picks, record) = snapshot.reserve_recorded(&ask, &mut scratch, &mut rival).unwrap();
    let lost = rival.taken.unwrap().upstream().clone();
    assert_ne!(*lease.upstream(), lost);
    assert_eq!(record.except, [except[0].clone(), lost]);
    assert_eq!(record.picked, [lease.upstream().clone()]);
    let again = snapshot.replay(&record, &mut scratch, &mut ());
    assert_eq!(
        again,
        Outcome::Picked(picks),
        "the record alone says why it was this one"
    );
}

#[test]
fn an_explanation_of_several_walks_ends_as_the_last_one() {
    let tree = corrected([Node::random()]);
    let snapshot = Pool::new(tree).with(spec("a").max_in_flight(1)).publish();
    let facts = Facts::new();
    let ask = Ask::new(&facts, Moment::ZERO, 1);
    let lease = snapshot.reserve(&ask, &mut Scratch::default(), &mut ()).unwrap();
    let mut why = Explanation::default();
    assert!(snapshot.reserve(&ask, &mut Scratch::default(), &mut why).is_err());
    assert!(why.picked.is_empty() && why.survivors.is_empty() && why.ending.is_some());
    drop(lease);
}
