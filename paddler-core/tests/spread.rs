//! Is load spread as it should be: by what is in flight now, over those who may take it, with affinity where it is asked for?

mod pool;

use std::collections::BTreeMap;

use paddler_core::Moment;
use paddler_core::request::{Facts, RequestFacts};
use paddler_core::schedule::costs::in_flight_share;
use paddler_core::schedule::filters::{Margin, slot, within_best};
use paddler_core::schedule::{Ask, Key, Node, Scratch, trees};
use paddler_core::status::Snapshot;
use paddler_core::upstream::{Lease, ModelEntry, Models};
use pool::{Pool, corrected, kv, report, slots, spec};

/// Reserves places for these requests, one after the other, and keeps them.
fn reserve<'f>(snapshot: &Snapshot, requests: impl IntoIterator<Item = Facts<'f>>) -> Vec<Lease> {
    let mut scratch = Scratch::default();
    let place = |(seed, facts): (usize, Facts<'f>)| {
        let ask = Ask::new(&facts, Moment::ZERO, seed as u64);
        let mut lease = snapshot.reserve(&ask, &mut scratch, &mut ()).expect("a place");
        lease.sent();
        lease
    };
    requests.into_iter().enumerate().map(place).collect()
}

fn counts(leases: &[Lease]) -> BTreeMap<&str, usize> {
    leases.iter().fold(BTreeMap::new(), |mut counts, lease| {
        *counts.entry(lease.upstream().as_str()).or_default() += 1;
        counts
    })
}

#[test]
fn requests_for_one_model_do_not_skew_those_for_another() {
    let upstreams = [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("b2", "b")];
    let mut pool = upstreams
        .iter()
        .fold(Pool::new(trees::gateway()), |pool, (id, model)| {
            pool.with(spec(id).models(Models::Listed([ModelEntry::new(*model)].into())))
        });
    let interleaved = (0..120).map(|number| Facts::new().model(["a", "b"][number % 2]));
    let snapshot = pool.publish();
    let held = reserve(&snapshot, interleaved);
    let even = [("a1", 20), ("a2", 20), ("a3", 20), ("b1", 30), ("b2", 30)];
    assert_eq!(counts(&held), BTreeMap::from(even));
}

#[test]
fn who_is_over_a_threshold_gets_nothing_while_one_is_below() {
    let reports = [("a", kv(0.97)), ("b", kv(0.96)), ("c", kv(0.5)), ("d", kv(0.99))];
    let snapshot = Pool::reporting(trees::gateway(), reports).publish();
    let held = reserve(&snapshot, (0..100).map(|_| Facts::new()));
    assert_eq!(counts(&held), BTreeMap::from([("c", 100)]));
}

#[test]
fn a_burst_between_two_polls_is_spread_by_what_we_know_ourselves() {
    // One of the two was a little busier when it was asked last.
    let busy = |running| {
        report(|report| {
            (report.running, report.waiting, report.slots_total) = (Some(running), Some(0), Some(16));
        })
    };
    for tree in [trees::balancer(), trees::gateway()] {
        let snapshot = Pool::reporting(tree, [("idle", busy(0)), ("one", busy(1))]).publish();
        let held = reserve(&snapshot, (0..8).map(|_| Facts::new()));
        let counts = counts(&held);
        assert!(counts.values().all(|count| (3..=5).contains(count)), "{counts:?}");
    }
}

#[test]
fn long_prompts_with_short_answers_do_not_all_go_to_the_first() {
    let names = ["u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7"];
    let mut prompt = RequestFacts::new();
    prompt.tokens = 32_000;
    let prompts = vec![prompt; 64];
    let mut pool = Pool::of(trees::gateway(), &names);
    let snapshot = pool.publish();
    let held = reserve(&snapshot, prompts.iter().map(RequestFacts::as_facts));
    assert_eq!(counts(&held), names.map(|name| (name, 8)).into());
    drop(held);
    // One after the other, nothing in flight in between: chance breaks ties, not the order.
    let mut scratch = Scratch::default();
    let one_by_one = (0..640).map(|seed| {
        let facts = prompts[0].as_facts();
        snapshot
            .reserve(&Ask::new(&facts, Moment::ZERO, seed), &mut scratch, &mut ())
            .expect("a place")
            .upstream()
            .to_string()
    });
    let mut counts = BTreeMap::<_, u32>::new();
    for name in one_by_one {
        *counts.entry(name).or_default() += 1;
    }
    let shares: Vec<_> = counts.values().copied().collect();
    // 7 degrees of freedom, the 99.9 % quantile; seeds are fixed.
    assert!(
        shares.len() == 8 && pool::chi_square(&shares, &[0.125; 8]) < 24.3,
        "{counts:?}"
    );
}

#[test]
fn machines_of_unequal_size_are_filled_alike_from_the_first_request_on() {
    let reports = [
        ("large", slots(0, 10)),
        ("one", slots(0, 2)),
        ("other", slots(0, 2)),
    ];
    let snapshot = Pool::reporting(trees::balancer(), reports).publish();
    let held = reserve(&snapshot, (0..14).map(|_| Facts::new()));
    // No burst goes to one of them: a half of each is taken before any has more.
    let half = BTreeMap::from([("large", 5), ("one", 1), ("other", 1)]);
    assert_eq!((counts(&held[..7]), counts(&held[7..])), (half.clone(), half));
}

#[test]
fn affinity_goes_on_among_those_who_are_not_overloaded() {
    let hot = [("a", 1), ("b", 1), ("c", 1), ("hot", 9)];
    let reports = hot.map(|(name, busy)| (name, slots(busy, 10)));
    let nodes = [
        Node::require(slot()),
        Node::prefer(within_best(in_flight_share(), Margin::Plus(0.2))),
        Node::rendezvous(Key::Session),
    ];
    let snapshot = Pool::reporting(corrected(nodes), reports).publish();
    let calm = Pool::reporting(
        corrected([Node::rendezvous(Key::Session)]),
        ["a", "b", "c", "hot"].map(|name| (name, slots(1, 10))),
    )
    .publish();
    let mut moved = 0;
    for session in 0..200 {
        let name = session.to_string();
        let turns: Vec<_> = (0..10)
            .map(|turn| {
                let facts = Facts::new().session(&name);
                let ask = Ask::new(&facts, Moment::ZERO, turn);
                (
                    pool::tell(&snapshot, &ask).picked[0].clone(),
                    pool::tell(&calm, &ask).picked[0].clone(),
                )
            })
            .collect();
        let (now, at_rest) = &turns[0];
        assert!(
            turns.iter().all(|turn| turn == &turns[0]),
            "each turn finds its prefix"
        );
        assert_ne!(now, "hot");
        // Only those of the hot one go elsewhere.
        assert!(now == at_rest || at_rest == "hot", "{now} {at_rest}");
        moved += u32::from(now != at_rest);
    }
    assert!((20..80).contains(&moved), "{moved} of about 50");
}

#[test]
fn a_second_turn_finds_the_first_at_any_rate_of_requests() {
    // There is no table that only busy times would fill: who is asked once in an hour is sent to the same place.
    let names = ["a", "b", "c", "d"];
    let snapshot = Pool::of(corrected([Node::rendezvous(Key::Session)]), &names).publish();
    let mut first = BTreeMap::<String, usize>::new();
    for session in 0..40 {
        let name = format!("agent-{session}");
        let facts = Facts::new().session(&name);
        let at = |now, seed| pool::tell(&snapshot, &Ask::new(&facts, now, seed)).picked[0].clone();
        let (now, later) = (Moment::ZERO, Moment::from_millis(3_600_000));
        assert_eq!(at(now, session), at(later, session + 1_000));
        *first.entry(at(now, session)).or_default() += 1;
    }
    assert_eq!(first.len(), 4, "and not all to one place: {first:?}");
}

#[test]
fn rendezvous_is_as_even_as_chance() {
    // Ten machines with four engines each, and 512 sessions for each engine.
    let names: Vec<String> = (0..40)
        .map(|at| format!("node-{}-rank-{}", at / 4, at % 4))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let snapshot = Pool::of(corrected([Node::rendezvous(Key::Session)]), &names).publish();
    let mut counts = vec![0_u32; 40];
    let mut scratch = Scratch::default();
    for session in 0..40 * 512 {
        let name = format!("session-{session}");
        let facts = Facts::new().session(&name);
        let outcome = snapshot.pick(&Ask::new(&facts, Moment::ZERO, 1), &mut scratch, &mut ());
        counts[outcome.picked().expect("a pick").get()] += 1;
    }
    let deviations = counts.iter().map(|count| (f64::from(*count) - 512.0).powi(2));
    let deviation = (deviations.sum::<f64>() / 40.0).sqrt() / 512.0;
    assert!(deviation < 0.05, "{deviation}: {counts:?}");
}
