//! Who is judged among whom, where upstreams serve different models? And what is left of old rules and rights?

use super::*;
use crate::upstream::{ModelEntry, Models};

fn names(names: &[&str]) -> Serves {
    What::Names(names.iter().map(|name| (*name).into()).collect()).into()
}

/// One upstream for each of these, that has been there for an hour.
fn pool_of(serve: &[Serves], rules: HealthRules) -> Pool {
    let mut pool = Pool::new(rules);
    for (place, serves) in (0..).zip(serve) {
        join(&mut pool, place, serves.clone(), 100, Moment::ZERO);
    }
    pool
}

fn is_out(pool: &Pool, place: u32) -> bool {
    pool.member(place).unwrap().is_out()
}

fn gates(pool: &Pool) -> Vec<Gate> {
    (0..).map_while(|place| pool.gate(place, secs(9))).collect()
}

const OPEN: Gate = Gate::Open(None);

#[test]
fn the_only_one_with_a_model_is_asked_for_it_whatever_becomes_of_others() {
    let serve = ["a", "b", "c", "d", "e"].map(|name| names(&[name]));
    let mut pool = pool_of(&serve, rules());
    row(&mut pool, 0, secs(9));
    assert_eq!(gates(&pool), [OPEN; 5]);
    assert_eq!(pool.totals().spared, 1);
    fault(&mut pool, 0, Fault::Unreachable, secs(9));
    assert_eq!(gates(&pool), [Gate::LastResort, OPEN, OPEN, OPEN, OPEN]);
    assert!(pool.health(0).unwrap().last_resort && is_out(&pool, 0));
    assert!(pool.totals().panicking);
    fault(&mut pool, 3, Fault::Unreachable, secs(9));
    assert_eq!(pool.totals().panics, 2, "once more, for another model");
    answered(&mut pool, 0, false, secs(9));
    assert!(pool.totals().panicking, "for d");
    answered(&mut pool, 3, false, secs(9));
    assert_eq!(gates(&pool), [OPEN; 5]);
    assert!(!pool.totals().panicking && !pool.health(0).unwrap().last_resort);
}

#[test]
fn the_largest_share_is_of_those_who_serve_the_same_model() {
    let (a, b) = (names(&["a"]), names(&["b"]));
    let serve = [vec![a; 4], vec![b; 4]].concat();
    let mut pool = pool_of(&serve, rules());
    (0..3).for_each(|place| row(&mut pool, place, secs(9)));
    assert_eq!([0, 1, 2].map(|place| is_out(&pool, place)), [true, true, false]);
    fault(&mut pool, 2, Fault::Unreachable, secs(9));
    fault(&mut pool, 3, Fault::Unreachable, secs(9));
    assert_eq!(pool.totals().panics, 1);
    // Half of all are out, and none of these.
    (4..7).for_each(|place| row(&mut pool, place, secs(9)));
    assert_eq!([4, 5, 6].map(|place| is_out(&pool, place)), [true, true, false]);
    assert_eq!(pool.totals().panics, 1);
}

#[test]
fn success_rates_leave_out_no_more_than_a_share_of_a_model_either() {
    let serve = ["a", "b", "b", "b", "b"].map(|name| names(&[name]));
    for (worst, expected) in [(0, vec![]), (1, vec![1])] {
        let mut pool = pool_of(&serve, rules());
        for _ in 0..40 {
            fault(&mut pool, worst, BROKE, secs(30));
            answered(&mut pool, worst, false, secs(30));
        }
        assert_eq!(pool.judge(&[100; 5], secs(60)), expected);
        assert_eq!(pool.totals().spared, u64::from(expected.is_empty()));
    }
}

#[test]
fn who_is_alone_with_one_model_is_left_out_for_another_that_others_serve() {
    let serve = [names(&["big", "small"]), names(&["small"]), names(&["small"])];
    let mut pool = pool_of(&serve, rules());
    row(&mut pool, 0, secs(9));
    assert_eq!(gates(&pool), [Gate::LastResort, OPEN, OPEN]);
    // But not where too few would be left for one of its models.
    let serve = ["x y", "x", "x", "y", "y"].map(|two| names(&two.split(' ').collect::<Vec<_>>()));
    let mut pool = pool_of(&serve, rules());
    row(&mut pool, 1, secs(9));
    row(&mut pool, 0, secs(9));
    assert_eq!((is_out(&pool, 0), is_out(&pool, 1)), (false, true));
}

#[test]
fn who_answers_for_any_model_stands_in_for_all_and_is_the_only_one_for_the_rest() {
    let mut pool = pool_of(&[What::Any.into(), names(&["a"]), names(&["b"])], rules());
    fault(&mut pool, 1, Fault::Unreachable, secs(9));
    assert_eq!(gates(&pool), [OPEN, Gate::Closed, OPEN]);
    fault(&mut pool, 0, Fault::Unreachable, secs(9));
    assert_eq!(
        gates(&pool),
        [Gate::LastResort, Gate::LastResort, OPEN],
        "b has its own"
    );
    answered(&mut pool, 0, false, secs(9));
    assert_eq!(gates(&pool), [OPEN, Gate::Closed, OPEN]);

    let mut pool = pool_of(&[What::Any.into(), names(&["a"])], rules());
    row(&mut pool, 1, secs(9));
    assert_eq!(gates(&pool), [OPEN, Gate::Closed], "one of two who could serve a");

    let two = [What::Any.into(), What::Any.into(), names(&["a"])];
    let mut pool = pool_of(&two, rules());
    row(&mut pool, 0, secs(9));
    row(&mut pool, 1, secs(9));
    assert_eq!(
        gates(&pool),
        [Gate::Closed, OPEN, OPEN],
        "two of three who could serve a"
    );
}

#[test]
fn who_has_told_no_model_is_held_against_all() {
    let mut pool = pool_of(
        &[
            What::Untold.into(),
            What::Untold.into(),
            names(&["a"]),
            names(&["a"]),
        ],
        rules(),
    );
    row(&mut pool, 0, secs(9));
    row(&mut pool, 1, secs(9));
    row(&mut pool, 2, secs(9));
    assert_eq!(gates(&pool), [Gate::Closed, Gate::Closed, Gate::Closed, OPEN]);
    row(&mut pool, 3, secs(9));
    assert_eq!(gates(&pool)[3], OPEN, "the last for a");
    fault(&mut pool, 3, Fault::Unreachable, secs(9));
    assert_eq!(gates(&pool), [Gate::LastResort; 4]);
}

#[test]
fn aliases_and_adapters_are_names_too_and_each_counts_once() {
    let mut aliased = ModelEntry::new("m");
    aliased.aliases = ["a", "m"].map(Into::into).into();
    let models = vec![aliased, ModelEntry::adapter("lora", "m"), ModelEntry::new("a")];
    let listed = Serves::of(Some(&Models::Listed(models)), Traffic::All);
    let What::Names(served) = listed.what else {
        panic!("not any")
    };
    assert_eq!(
        served.iter().map(|name| &**name).collect::<Vec<_>>(),
        ["a", "lora", "m"]
    );
    assert_eq!(Serves::of(Some(&Models::Any), Traffic::All), What::Any.into());
    assert_eq!(Serves::of(None, Traffic::All), What::Untold.into());

    let mut pool = pool_of(&[names(&["m", "lora"]), names(&["m"])], rules());
    fault(&mut pool, 0, Fault::Unreachable, secs(9));
    assert_eq!(gates(&pool), [Gate::LastResort, OPEN], "for the adapter");
}

#[test]
fn names_that_change_change_who_is_needed() {
    let mut pool = pool_of(&[names(&["a"]), names(&["b"])], rules());
    fault(&mut pool, 0, Fault::Unreachable, secs(9));
    assert_eq!(gates(&pool), [Gate::LastResort, OPEN]);
    pool.serve(1, names(&["a", "b"]));
    assert_eq!(gates(&pool), [Gate::Closed, OPEN]);
    pool.serve(1, names(&["b"]));
    assert_eq!(gates(&pool), [Gate::LastResort, OPEN]);
    join(&mut pool, 2, names(&["a"]), 1, secs(9));
    assert_eq!(gates(&pool)[0], Gate::Closed);
    pool.update(2, false, 1, false, secs(9));
    assert_eq!(gates(&pool)[0], Gate::LastResort, "it cannot serve");
    pool.update(2, true, 1, false, secs(9));
    pool.leave(2);
    assert_eq!(gates(&pool), [Gate::LastResort, OPEN]);
    assert_eq!(pool.totals().panics, 4);
    // One more of those who are out is no panic of its own.
    join(&mut pool, 2, names(&["a"]), 1, secs(9));
    fault(&mut pool, 2, Fault::Unreachable, secs(9));
    assert_eq!(pool.totals().panics, 5);
    pool.update(2, false, 1, false, secs(9));
    pool.update(2, true, 1, false, secs(9));
    assert_eq!(gates(&pool), [Gate::LastResort, OPEN, Gate::LastResort]);
    assert_eq!(pool.totals().panics, 5);
    pool.leave(2);
    pool.leave(0);
    assert!(!pool.totals().panicking);
}

#[test]
fn the_only_one_with_a_model_gets_its_full_part_at_once() {
    let serve = [names(&["a"]), names(&["a"]), names(&["b"])];
    for (back, alone) in [(0, false), (2, true)] {
        let mut pool = pool_of(&serve, HealthRules::default());
        fault(&mut pool, back, Fault::Unreachable, secs(50));
        pool.tick(secs(51));
        answered(&mut pool, back, true, secs(51));
        let state = pool.health(back).unwrap().state;
        assert_eq!(state == HealthState::Healthy, alone, "{state:?}");
    }
    let mut pool = pool_of(&serve, HealthRules::default());
    for (place, serves, alone) in [(3, names(&["a"]), false), (4, names(&["c"]), true)] {
        join(&mut pool, place, serves, 100, secs(100));
        assert_eq!(pool.gate(place, secs(100)) == Some(OPEN), alone);
    }
    // It turns out by its first report, or when the others leave, that nobody carries the load meanwhile.
    pool.tick(secs(101));
    assert_eq!(pool.gate(3, secs(101)), Some(Gate::Open(Some(3))));
    pool.serve(3, names(&["d"]));
    pool.tick(secs(102));
    assert_eq!(pool.gate(3, secs(102)), Some(OPEN));
}

#[test]
fn a_probe_that_lasts_ends_when_its_engine_still_answers_polls() {
    let lasts = |fault: Fault, usable: bool, asked: u64, began: Option<u64>| {
        let mut pool = pool(2, rules());
        (0..3).for_each(|_| {
            pool.fault(0, TENANCY, fault, false, secs(9));
        });
        pool.tick(secs(14));
        pool.update(0, usable, 100, false, secs(14));
        let back = pool.polled(0, at(asked), began.map(at), at(asked));
        assert_eq!(back, pool.health(0).unwrap().state == HealthState::Healthy);
        back
    };
    assert!(lasts(BROKE, true, 25_000, Some(15_000)));
    assert!(!lasts(BROKE, true, 24_999, Some(15_000)), "not yet");
    assert!(!lasts(BROKE, true, 14_000, Some(15_000)), "asked before");
    assert!(!lasts(BROKE, true, 99_000, None), "no probe is under way");
    assert!(
        !lasts(BROKE, false, 25_000, Some(15_000)),
        "it says that it cannot"
    );
    assert!(lasts(Fault::Unreachable, true, 25_000, Some(15_000)));
    assert!(
        !lasts(Fault::Late, true, 99_000, Some(15_000)),
        "it was silent and answered polls before"
    );
}

#[test]
fn who_has_worked_on_a_probe_for_long_comes_back_slowly_and_is_held_to_what_follows() {
    let mut pool = pool(2, HealthRules::default());
    row(&mut pool, 0, secs(9));
    pool.tick(secs(14));
    assert!(pool.polled(0, secs(25), Some(secs(15)), secs(25)));
    assert_eq!(pool.gate(0, secs(40)), Some(Gate::Open(Some(50))));
    // The one that was the probe.
    fault(&mut pool, 0, BROKE, secs(26));
    assert_eq!(pool.health(0).unwrap().faults, 1);
    row(&mut pool, 0, secs(26));
    assert_eq!(
        ejected_for(&pool, 0, secs(26)),
        Some(Duration::from_secs(10)),
        "longer"
    );
}

#[test]
fn other_rules_shorten_what_was_measured_by_the_old_ones() {
    let long = HealthRules {
        eject_time: Duration::from_secs(200),
        longest_time: Duration::from_secs(1_000),
        ..rules()
    };
    let mut pool = pool(4, long);
    row(&mut pool, 0, secs(9));
    fault(&mut pool, 1, Fault::Unreachable, secs(9));
    pool.pause(2, TENANCY, Duration::from_secs(900), secs(9));
    pool.set_rules(rules(), secs(10));
    assert_eq!(ejected_for(&pool, 0, secs(9)), Some(Duration::from_secs(200)));
    let short = HealthRules {
        longest_time: Duration::from_millis(250),
        ..rules()
    };
    pool.set_rules(short, secs(10));
    assert_eq!(
        ejected_for(&pool, 0, secs(9)),
        Some(Duration::from_secs(5)),
        "the first time"
    );
    assert_eq!(ejected_for(&pool, 1, secs(9)), Some(Duration::from_secs(1)));
    assert_eq!(pool.health(2).unwrap().paused_until, Some(at(10_250)));
}

#[test]
fn what_is_forgiven_late_still_does_not_count_and_shortens_no_later_time_out() {
    let mut pool = pool(5, rules());
    let numbers: Vec<_> = (0..40)
        .map(|_| {
            let number = fault(&mut pool, 0, BROKE, secs(30));
            answered(&mut pool, 0, false, secs(30));
            number
        })
        .collect();
    for number in &numbers {
        pool.forgive(0, TENANCY, *number);
    }
    assert!(pool.judge(&[60, 100, 100, 100, 100], secs(60)).is_empty());
    // Of an interval that is over, it is taken from no other.
    for _ in 0..40 {
        fault(&mut pool, 0, BROKE, secs(70));
        answered(&mut pool, 0, false, secs(70));
    }
    for number in numbers {
        pool.forgive(0, TENANCY, number);
    }
    assert_eq!(pool.judge(&[60, 100, 100, 100, 100], secs(120)), [0]);

    // Four doublings, of which two minutes in service take back two, once.
    let mut pool = self::pool(3, rules());
    let mut now = secs(100);
    for _ in 0..4 {
        row(&mut pool, 0, now);
        now = now.saturating_add(Duration::from_secs(40));
        pool.tick(now);
        answered(&mut pool, 0, true, now);
    }
    now = now.saturating_add(Duration::from_secs(120));
    for _ in 0..2 {
        let numbers = [(); 3].map(|()| fault(&mut pool, 0, BROKE, now));
        assert_eq!(ejected_for(&pool, 0, now), Some(Duration::from_secs(20)));
        assert!(pool.forgive(0, TENANCY, numbers[0]));
        numbers[1..].iter().for_each(|number| {
            pool.forgive(0, TENANCY, *number);
        });
    }
}

#[test]
fn faults_count_in_their_own_interval_alone() {
    let mut pool = pool(5, rules());
    for _ in 0..40 {
        fault(&mut pool, 0, BROKE, secs(30));
        answered(&mut pool, 0, false, secs(30));
    }
    assert!(
        pool.judge(&[40, 0, 0, 0, 0], secs(60)).is_empty(),
        "nobody to compare with"
    );
    assert!(pool.judge(&[100; 5], secs(120)).is_empty());
}

#[test]
fn who_gets_only_some_requests_stands_in_for_none_whom_others_reach() {
    let big = |traffic| Serves {
        traffic,
        ..names(&["big"])
    };
    let after = |traffic: &[Traffic], first: Fault| {
        let serve: Vec<_> = traffic.iter().map(|traffic| big(*traffic)).collect();
        let mut pool = pool_of(&serve, rules());
        (0..3).for_each(|_| {
            fault(&mut pool, 0, first, secs(9));
        });
        gates(&pool)
    };
    use Traffic::{All, Fallback, Named};
    assert_eq!(
        after(&[All, Fallback], BROKE),
        [OPEN; 2],
        "nobody else is in for it"
    );
    let left = [Gate::LastResort, OPEN];
    assert_eq!(after(&[All, Fallback], Fault::Unreachable), left);
    assert_eq!(after(&[Named, Fallback], Fault::Unreachable), left);
    assert_eq!(after(&[All, Named], BROKE), left, "for those that name no model");
    let ejected = [Gate::Closed, OPEN];
    assert_eq!(after(&[Named, All], BROKE), ejected);
    assert_eq!(after(&[Named, Named], BROKE), ejected);
    assert_eq!(after(&[Fallback, All], BROKE), ejected);
    assert_eq!(after(&[Fallback, Fallback], BROKE), ejected);

    // Nor does it carry the load of who comes back, so that this begins slowly.
    for (traffic, slowly) in [(All, true), (Named, true), (Fallback, false)] {
        let mut pool = pool_of(&[big(All), big(traffic)], HealthRules::default());
        fault(&mut pool, 0, Fault::Unreachable, secs(50));
        pool.tick(secs(51));
        answered(&mut pool, 0, true, secs(51));
        let warms = matches!(pool.health(0).unwrap().state, HealthState::Warming { .. });
        assert_eq!(warms, slowly, "{traffic:?}");
    }
}
