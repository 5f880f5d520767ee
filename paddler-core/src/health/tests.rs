//! The machine, step by step and moment by moment.

mod models;

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::groups::{Serves, What};
use super::pool::Pool;
use super::rates::outliers;
use super::{Cause, Fault, HealthState};
use crate::Moment;
use crate::config::HealthRules;
use crate::upstream::{Gate, Traffic, UpstreamId};

const TENANCY: u16 = 3;
const BROKE: Fault = Fault::Broke;

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

fn secs(secs: u64) -> Moment {
    at(secs * 1000)
}

impl From<What> for Serves {
    fn from(what: What) -> Self {
        let traffic = Traffic::All;
        Self { what, traffic }
    }
}

/// So many upstreams that have been there for an hour.
fn pool(members: u32, rules: HealthRules) -> Pool {
    let mut pool = Pool::new(rules);
    for place in 0..members {
        join(&mut pool, place, Serves::default(), 100, Moment::ZERO);
    }
    pool
}

fn join(pool: &mut Pool, place: u32, serves: Serves, room: u32, now: Moment) {
    let id = UpstreamId::new(format!("u{place}")).unwrap();
    pool.join((place, TENANCY), id, (true, room), (serves, None), now);
}

fn rules() -> HealthRules {
    HealthRules {
        slow_start: Duration::ZERO,
        ..HealthRules::default()
    }
}

fn fault(pool: &mut Pool, place: u32, fault: Fault, now: Moment) -> u64 {
    pool.fault(place, TENANCY, fault, false, now).unwrap()
}

/// As many in a row as eject.
fn row(pool: &mut Pool, place: u32, now: Moment) {
    (0..3).for_each(|_| {
        fault(pool, place, BROKE, now);
    });
}

fn answered(pool: &mut Pool, place: u32, probe: bool, now: Moment) {
    pool.answered(place, TENANCY, probe, now);
}

fn gate(pool: &Pool, place: u32, now: Moment) -> Gate {
    pool.gate(place, now).unwrap()
}

fn ejected_for(pool: &Pool, place: u32, now: Moment) -> Option<Duration> {
    match pool.health(place).unwrap().state {
        HealthState::Ejected { until, .. } => Some(until.since(now)),
        _ => None,
    }
}

#[test]
fn one_failed_connection_is_enough_and_other_faults_come_in_rows() {
    let mut pool = pool(4, rules());
    fault(&mut pool, 0, Fault::Unreachable, secs(9));
    assert_eq!(gate(&pool, 0, secs(9)), Gate::Closed);
    assert_eq!(ejected_for(&pool, 0, secs(9)), Some(Duration::from_secs(1)));

    for (n, kind) in [BROKE, Fault::Late, Fault::Unavailable].into_iter().enumerate() {
        assert_eq!(gate(&pool, 1, secs(9)), Gate::Open(None), "after {n}");
        fault(&mut pool, 1, kind, secs(9));
    }
    let state = pool.health(1).unwrap().state;
    let until = secs(14);
    let cause = Cause::Unavailable;
    assert_eq!(state, HealthState::Ejected { cause, until });

    for _ in 0..9 {
        fault(&mut pool, 2, BROKE, secs(9));
        fault(&mut pool, 2, BROKE, secs(9));
        answered(&mut pool, 2, false, secs(9));
    }
    assert_eq!(gate(&pool, 2, secs(9)), Gate::Open(None), "an answer ends a row");
}

#[test]
fn one_request_that_fails_again_and_again_ejects_nobody() {
    let mut pool = pool(4, rules());
    for _ in 0..50 {
        fault(&mut pool, 0, Fault::Failed { request: 7 }, secs(9));
    }
    assert_eq!(gate(&pool, 0, secs(9)), Gate::Open(None));
    fault(&mut pool, 0, Fault::Failed { request: 8 }, secs(9));
    assert_eq!(gate(&pool, 0, secs(9)), Gate::Open(None));
    fault(&mut pool, 0, Fault::Failed { request: 9 }, secs(9));
    assert_eq!(gate(&pool, 0, secs(9)), Gate::Closed, "three different ones");
}

#[test]
fn times_double_and_are_forgotten_in_service() {
    let mut pool = pool(2, rules());
    let mut now = secs(100);
    for expected in [5, 10, 20, 40, 80, 160, 300, 300] {
        // The first by a row, the others by a probe that fails.
        if pool.tick(now).is_none() && gate(&pool, 0, now) == Gate::Probe {
            pool.fault(0, TENANCY, BROKE, true, now);
        } else {
            row(&mut pool, 0, now);
        }
        assert_eq!(ejected_for(&pool, 0, now), Some(Duration::from_secs(expected)));
        now = now.saturating_add(Duration::from_secs(expected));
        pool.tick(now);
        assert_eq!(gate(&pool, 0, now), Gate::Probe);
    }
    answered(&mut pool, 0, true, now);
    // Eight doublings, of which six minutes take back six.
    now = now.saturating_add(Duration::from_secs(6 * 60));
    row(&mut pool, 0, now);
    assert_eq!(ejected_for(&pool, 0, now), Some(Duration::from_secs(20)));
}

#[test]
fn only_the_probe_decides_and_one_that_says_nothing_changes_nothing() {
    let mut pool = pool(3, rules());
    fault(&mut pool, 0, Fault::Unreachable, secs(9));
    answered(&mut pool, 0, false, secs(9));
    assert_eq!(
        gate(&pool, 0, secs(9)),
        Gate::Closed,
        "the answer to an earlier request"
    );
    pool.tick(at(9_999));
    assert_eq!(gate(&pool, 0, at(9_999)), Gate::Closed);
    pool.tick(secs(10));
    assert_eq!(gate(&pool, 0, secs(10)), Gate::Probe);
    answered(&mut pool, 0, false, secs(10));
    fault(&mut pool, 0, BROKE, secs(10));
    assert_eq!(gate(&pool, 0, secs(10)), Gate::Probe, "of requests before it");
    answered(&mut pool, 0, true, secs(10));
    assert_eq!(gate(&pool, 0, secs(10)), Gate::Open(None));
}

#[test]
fn an_answered_poll_lets_a_probe_in_where_nobody_could_connect() {
    let mut pool = pool(6, rules());
    fault(&mut pool, 0, Fault::Unreachable, secs(9));
    pool.polled(0, at(8_999), None, at(8_999));
    assert_eq!(gate(&pool, 0, secs(9)), Gate::Closed, "it was asked before");
    pool.polled(0, at(9_100), None, at(9_100));
    assert_eq!(gate(&pool, 0, at(9_100)), Gate::Probe);
    fault(&mut pool, 2, Fault::Unreachable, secs(9));
    pool.polled(2, secs(9), None, secs(9));
    assert_eq!(
        gate(&pool, 2, secs(9)),
        Gate::Probe,
        "it was asked at that moment"
    );
    // But to answer polls is not to answer requests.
    row(&mut pool, 1, secs(9));
    pool.polled(1, at(9_100), None, at(9_100));
    assert_eq!(gate(&pool, 1, at(9_100)), Gate::Closed);
}

#[test]
fn never_more_than_a_share_but_who_cannot_be_reached_is_out_in_any_case() {
    let mut pool = pool(6, rules());
    for place in 0..6 {
        row(&mut pool, place, secs(9));
    }
    let out = |pool: &Pool| {
        (0..6)
            .filter(|place| gate(pool, *place, secs(9)) == Gate::Closed)
            .count()
    };
    assert_eq!((out(&pool), pool.totals().spared), (3, 3));
    fault(&mut pool, 4, Fault::Unreachable, secs(9));
    assert_eq!(out(&pool), 4);
    assert!(!pool.totals().panicking);
}

#[test]
fn of_two_one_may_be_out_and_of_one_none() {
    for (members, closed) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)] {
        let mut pool = pool(members, rules());
        for place in 0..members {
            row(&mut pool, place, secs(9));
        }
        let out = (0..members).filter(|place| gate(&pool, *place, secs(9)) == Gate::Closed);
        assert_eq!(out.count(), closed, "of {members}");
    }
}

#[test]
fn when_all_are_out_nobody_is_until_one_answers() {
    let mut pool = pool(3, rules());
    for place in 0..3 {
        fault(&mut pool, place, Fault::Unreachable, secs(9));
    }
    assert!(pool.totals().panicking);
    assert!((0..3).all(|place| gate(&pool, place, secs(9)) == Gate::LastResort));
    answered(&mut pool, 1, false, secs(9));
    assert_eq!(
        [0, 1, 2].map(|place| gate(&pool, place, secs(9))),
        [Gate::Closed, Gate::Open(None), Gate::Closed]
    );
    assert_eq!(pool.totals().panics, 1);
    // Who says himself that he cannot serve does not count as somebody who is left.
    pool.update(1, false, 100, false, secs(9));

    assert!(pool.totals().panicking);
}

#[test]
fn busy_is_no_fault_and_lasts_as_long_as_is_asked() {
    let mut pool = pool(2, rules());
    pool.pause(0, TENANCY, Duration::from_secs(7), secs(9));
    pool.pause(0, TENANCY, Duration::from_secs(1), secs(9));
    assert_eq!(gate(&pool, 0, at(15_999)), Gate::Closed);
    assert_eq!(pool.tick(secs(10)), Some(secs(16)));
    assert_eq!(gate(&pool, 0, secs(16)), Gate::Open(None));
    assert_eq!(pool.health(0).unwrap().faults, 0);
    pool.pause(1, TENANCY, Duration::MAX, secs(9));
    assert_eq!(gate(&pool, 1, secs(23)), Gate::Closed);
    assert_eq!(gate(&pool, 1, secs(24)), Gate::Open(None), "15 s at most");
}

#[test]
fn a_fault_that_is_taken_back_never_was() {
    let mut pool = pool(4, rules());
    let numbers = [0, 0, 0].map(|place| fault(&mut pool, place, BROKE, secs(9)));
    assert_eq!(gate(&pool, 0, secs(9)), Gate::Closed);
    assert!(pool.forgive(0, TENANCY, numbers[1]));
    assert_eq!(gate(&pool, 0, secs(9)), Gate::Open(None));
    assert!(!pool.forgive(0, TENANCY, numbers[1]), "once");
    fault(&mut pool, 0, BROKE, secs(9));
    assert_eq!(
        ejected_for(&pool, 0, secs(9)),
        Some(Duration::from_secs(5)),
        "as for the first time"
    );
    // A probe that failed by its own fault leaves the place to the next one.
    pool.tick(secs(14));
    let probe = pool.fault(0, TENANCY, BROKE, true, secs(14)).unwrap();
    assert_eq!(gate(&pool, 0, secs(14)), Gate::Closed);
    pool.forgive(0, TENANCY, probe);
    assert_eq!(gate(&pool, 0, secs(14)), Gate::Probe);
    // What another tenant of the place did is nothing to this one.
    assert!(pool.fault(0, TENANCY + 1, BROKE, false, secs(14)).is_none());
    assert!(!pool.forgive(0, TENANCY + 1, probe));
}

#[test]
fn joiners_start_slowly_where_others_carry_the_load() {
    let mut pool = pool(2, HealthRules::default());
    let join = |pool: &mut Pool, place, now| join(pool, place, Serves::default(), 300, now);
    join(&mut pool, 2, secs(29));
    assert_eq!(gate(&pool, 2, secs(29)), Gate::Open(None), "all have just begun");
    join(&mut pool, 3, secs(100));
    let caps = [0, 1, 3, 15, 29].map(|after| gate(&pool, 3, secs(100 + after)));
    assert_eq!(caps, [1, 10, 30, 150, 290].map(|cap| Gate::Open(Some(cap))));
    assert!(
        pool.tick(secs(129)).is_some(),
        "there is something to come again for"
    );
    pool.tick(secs(130));
    assert_eq!(gate(&pool, 3, secs(130)), Gate::Open(None));
    // An engine that has loaded a model has nothing in its cache.
    pool.update(0, true, 300, true, secs(200));
    assert_eq!(gate(&pool, 0, secs(201)), Gate::Open(Some(10)));
}

#[test]
fn who_comes_back_starts_slowly_too_and_at_once_where_he_is_the_only_one() {
    let mut pool = pool(2, HealthRules::default());
    fault(&mut pool, 0, Fault::Unreachable, secs(9));
    pool.tick(secs(10));
    answered(&mut pool, 0, true, secs(10));
    assert_eq!(gate(&pool, 0, secs(25)), Gate::Open(Some(50)));
    let until = secs(40);
    assert_eq!(pool.health(0).unwrap().state, HealthState::Warming { until });

    fault(&mut pool, 1, Fault::Unreachable, secs(50));
    fault(&mut pool, 0, Fault::Unreachable, secs(50));
    answered(&mut pool, 0, false, secs(50));
    assert_eq!(gate(&pool, 0, secs(50)), Gate::Open(None));
}

#[test]
fn success_rates_eject_only_where_the_numbers_carry_it() {
    let mut pool = pool(5, rules());
    // Never three in a row, but every third.
    let work = |pool: &mut Pool, rounds: u32| {
        for _ in 0..rounds {
            fault(pool, 0, BROKE, secs(30));
            answered(pool, 0, false, secs(30));
        }
    };
    work(&mut pool, 40);
    let judge = |pool: &mut Pool, bad: u32, good: u32, now| {
        assert!(pool.interval_is_over(now));
        pool.judge(&[bad, good, good, good, good], now)
    };
    assert!(judge(&mut pool, 59, 200, secs(60)).is_empty());
    assert_eq!(gate(&pool, 0, secs(60)), Gate::Open(None), "99 requests");
    work(&mut pool, 40);
    assert!(judge(&mut pool, 60, 99, secs(120)).is_empty());
    assert_eq!(
        gate(&pool, 0, secs(120)),
        Gate::Open(None),
        "one that can be compared"
    );
    work(&mut pool, 40);
    assert!(!pool.interval_is_over(secs(179)));
    assert_eq!(judge(&mut pool, 60, 100, secs(180)), [0]);
    let (cause, until) = (Cause::SuccessRate, secs(185));
    assert_eq!(
        pool.health(0).unwrap().state,
        HealthState::Ejected { cause, until }
    );
}

#[test]
fn a_pool_that_is_bad_all_over_has_no_outlier() {
    assert_eq!(outliers(&[(100, 0), (99, 1), (60, 40), (100, 0), (98, 2)]), [2]);
    let four = [(100, 0), (99, 1), (60, 40), (100, 0)];
    assert!(outliers(&four).is_empty(), "four are too few");
    assert!(outliers(&[(50, 50); 9]).is_empty());
    assert!(
        outliers(&[(100, 0), (100, 0), (100, 0), (100, 0), (91, 9)]).is_empty(),
        "nine in a hundred"
    );
    assert_eq!(outliers(&[(100, 0), (100, 0), (100, 0), (100, 0), (89, 11)]), [4]);
    let wide = [(95, 5), (70, 30), (88, 12), (60, 40), (99, 1), (65, 35)];
    assert!(outliers(&wide).is_empty(), "all over the place");
    assert!(outliers(&[]).is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Fault(u32, u8, bool),
    Answered(u32, bool),
    Pause(u32, u64),
    Polled(u32),
    Usable(u32, bool),
    Forgive(u32, u64),
    Leave(u32),
    Join(u32, Serves),
    Serve(u32, Serves),
    Wait(u64),
}

const NAMES: [&str; 3] = ["a", "b", "c"];

const TRAFFIC: [Traffic; 3] = [Traffic::All, Traffic::Named, Traffic::Fallback];

/// Any subset of the names, nothing told, or any name, for one kind of requests.
fn serves() -> impl Strategy<Value = Serves> {
    let what = (0..9u8).prop_map(|bits| match bits {
        8 => What::Any,
        0 => What::Untold,
        bits => {
            let named = NAMES.into_iter().enumerate().filter(|(n, _)| bits >> n & 1 == 1);
            What::Names(named.map(|(_, name)| name.into()).collect())
        }
    });
    let traffic = prop_oneof![3 => Just(TRAFFIC[0]), 1 => Just(TRAFFIC[1]), 1 => Just(TRAFFIC[2])];
    (what, traffic).prop_map(|(what, traffic)| Serves { what, traffic })
}

/// Whether it can be asked for this by such a request; `None`: for anything. "z" is listed by nobody.
fn could(serves: &Serves, (name, traffic): (Option<&str>, Traffic)) -> bool {
    let has_it = match (&serves.what, name) {
        (_, None) | (What::Any, _) => true,
        (What::Untold, Some(_)) => false,
        (What::Names(names), Some(name)) => names.iter().any(|one| **one == *name),
    };
    has_it && serves.traffic <= traffic
}

/// Each kind of requests with each name; those that get only to who takes all name none.
fn asks() -> impl Iterator<Item = (Option<&'static str>, Traffic)> {
    let names = || NAMES.into_iter().chain(["z"]).map(Some).chain([None]);
    let each = TRAFFIC
        .into_iter()
        .flat_map(move |traffic| names().map(move |name| (name, traffic)));
    each.filter(|(name, traffic)| name.is_none() || *traffic > Traffic::All)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = 0..7u32;
    let step = prop_oneof![
        8 => (place.clone(), 0..5u8, any::<bool>()).prop_map(|(p, f, probe)| Step::Fault(p, f, probe)),
        4 => (place.clone(), any::<bool>()).prop_map(|(p, probe)| Step::Answered(p, probe)),
        1 => (place.clone(), 0..20_000u64).prop_map(|(p, ms)| Step::Pause(p, ms)),
        1 => place.clone().prop_map(Step::Polled),
        1 => (place.clone(), any::<bool>()).prop_map(|(p, usable)| Step::Usable(p, usable)),
        1 => (place.clone(), 0..200u64).prop_map(|(p, n)| Step::Forgive(p, n)),
        1 => place.clone().prop_map(Step::Leave),
        1 => (place.clone(), serves()).prop_map(|(p, serves)| Step::Join(p, serves)),
        1 => (place, serves()).prop_map(|(p, serves)| Step::Serve(p, serves)),
        4 => (0..20_000u64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    /// Whatever happens: of those who could serve a model somebody is always let in unless he
    /// asked for a pause, and whoever is out comes back within the longest time.
    #[test]
    fn rules_that_always_hold(steps in steps(), slow in any::<bool>()) {
        let mut rules = if slow { HealthRules::default() } else { rules() };
        rules.longest_time = Duration::from_secs(20);
        let mut pool = pool(6, rules);
        let mut now = secs(100);
        for step in steps {
            match step {
                Step::Fault(p, kind, probe) => {
                    let kind = [Fault::Unreachable, BROKE, Fault::Late, Fault::Unavailable, Fault::Failed { request: now.as_nanos() }][kind as usize];
                    pool.fault(p, TENANCY, kind, probe, now);
                }
                Step::Answered(p, probe) => { pool.answered(p, TENANCY, probe, now); }
                Step::Pause(p, ms) => pool.pause(p, TENANCY, Duration::from_millis(ms), now),
                Step::Polled(p) => { pool.polled(p, now, None, now); },
                Step::Usable(p, usable) => pool.update(p, usable, 100, false, now),
                Step::Forgive(p, number) => { pool.forgive(p, TENANCY, number); }
                Step::Leave(p) => { pool.leave(p); }
                Step::Join(p, serves) => join(&mut pool, p, serves, 100, now),
                Step::Serve(p, serves) => pool.serve(p, serves),
                Step::Wait(ms) => { now = now.saturating_add(Duration::from_millis(ms)); }
            }
            pool.tick(now);

            let members = || (0..7).filter_map(|place| Some((place, pool.member(place)?)));
            for (place, _) in members() {
                let health = pool.health(place).unwrap();
                if let HealthState::Ejected { until, .. } = health.state {
                    prop_assert!(until > now && until.since(now) <= Duration::from_secs(20));
                }
                if let Gate::Open(Some(cap)) = gate(&pool, place, now) {
                    prop_assert!((1..=100).contains(&cap));
                }
            }
            let mut last_resorts = BTreeSet::new();
            for name in asks() {
                let asked: Vec<_> = members().filter(|(_, m)| m.usable && could(&m.serves, name)).collect();
                let let_in = |place| {
                    pool.health(place).unwrap().paused_until.is_some() || gate(&pool, place, now) != Gate::Closed
                };
                prop_assert!(asked.is_empty() || asked.iter().any(|(place, _)| let_in(*place)), "{name:?}: {pool:?}");
                if asked.iter().all(|(_, member)| member.is_out()) {
                    last_resorts.extend(asked.iter().map(|(place, _)| *place));
                }
            }
            let told = members().filter(|(_, member)| member.last_resort).map(|(place, _)| place);
            prop_assert_eq!(told.collect::<BTreeSet<_>>(), last_resorts.clone());
            prop_assert_eq!(pool.totals().panicking, !last_resorts.is_empty());
        }
    }
}

#[test]
fn an_answer_that_begins_ends_no_row_of_answers_that_break_off() {
    let mut pool = pool(3, rules());
    for _ in 0..2 {
        answered(&mut pool, 0, false, secs(9));
        fault(&mut pool, 0, Fault::CutShort, secs(9));
    }
    answered(&mut pool, 0, false, secs(9));
    assert_eq!(pool.health(0).unwrap().faults, 2);
    pool.completed(0, TENANCY);
    assert_eq!(pool.health(0).unwrap().faults, 0, "a whole one does");
    for _ in 0..3 {
        answered(&mut pool, 0, false, secs(9));
        fault(&mut pool, 0, Fault::CutShort, secs(9));
    }
    assert_eq!(gate(&pool, 0, secs(9)), Gate::Closed);
}

#[test]
fn what_is_forgiven_does_not_count_against_its_share_of_good_answers() {
    for (forgiven, expected) in [(false, Gate::Closed), (true, Gate::Open(None))] {
        let mut pool = pool(5, rules());
        for _ in 0..40 {
            let number = fault(&mut pool, 0, BROKE, secs(30));
            if forgiven {
                pool.forgive(0, TENANCY, number);
            }
            answered(&mut pool, 0, false, secs(30));
        }
        pool.judge(&[60, 100, 100, 100, 100], secs(60));
        assert_eq!(gate(&pool, 0, secs(60)), expected);
    }
}
