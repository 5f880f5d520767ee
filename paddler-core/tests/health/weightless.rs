//! What does a request that costs its engine nothing say of it? Only whether a connection can be made.

use paddler_core::request::RequestClass;

use super::*;

fn control() -> Facts<'static> {
    Facts::new().class(RequestClass::Control)
}

fn look(snapshot: &Snapshot, name: &str, now: Moment) -> Option<Lease> {
    snapshot.lease(snapshot.index(name).unwrap(), &control(), now)
}

fn answered(mut lease: Lease, now: Moment) {
    lease.report(Verdict::Answered, now);
    lease.complete();
}

/// A board with "a", which gets one request at a time, and "b".
fn probing() -> (StatusBoard, std::sync::Arc<Snapshot>) {
    let mut board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    for _ in 0..3 {
        lease_at(&snapshot, "a", at(1)).unwrap().report(BROKE, at(1));
    }
    board.expire(at(5_001));
    assert_eq!(state(&snapshot, "a"), HealthState::Probing);
    (board, snapshot)
}

#[test]
fn what_costs_nothing_ends_no_row_of_faults() {
    let board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    for n in 0..3 {
        let mut lease = lease_at(&snapshot, "a", at(n)).unwrap();
        lease.report(BROKE, at(n));
        lease.complete();
        let _ended = look(&snapshot, "a", at(n)).map(|lease| answered(lease, at(n)));
    }
    assert!(matches!(state(&snapshot, "a"), HealthState::Ejected { .. }));
}

#[test]
fn nor_does_its_end_end_a_row_of_answers_cut_short() {
    let board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    for n in 0..3 {
        let mut lease = lease_at(&snapshot, "a", at(n)).unwrap();
        lease.report(Verdict::Answered, at(n));
        lease.report(Verdict::Fault(Fault::CutShort), at(n));
        lease.complete();
        let _ended = look(&snapshot, "a", at(n)).map(|lease| answered(lease, at(n)));
    }
    assert!(matches!(state(&snapshot, "a"), HealthState::Ejected { .. }));
}

#[test]
fn what_costs_nothing_is_no_probe_and_is_not_refused_for_one() {
    let (_board, snapshot) = probing();
    answered(look(&snapshot, "a", at(6_000)).expect("it is let in"), at(6_000));
    assert_eq!(state(&snapshot, "a"), HealthState::Probing);
    let first = look(&snapshot, "a", at(6_001)).unwrap();
    let probe = lease_at(&snapshot, "a", at(6_001)).expect("the other one is no probe");
    assert!(lease_at(&snapshot, "a", at(6_001)).is_none(), "one at a time");
    answered(
        look(&snapshot, "a", at(6_001)).expect("beside a probe"),
        at(6_001),
    );
    drop(first);
    assert!(lease_at(&snapshot, "a", at(6_002)).is_none(), "the probe goes on");
    answered(probe, at(6_003));
    assert!(matches!(state(&snapshot, "a"), HealthState::Warming { .. }));
}

#[test]
fn what_costs_nothing_goes_where_all_is_well_and_else_to_who_is_probed() {
    let (_board, snapshot) = probing();
    let facts = control();
    let pick = |ask: Ask<'_>| {
        let lease = snapshot.reserve(&ask, &mut Scratch::default(), &mut ());
        lease.map(|lease| lease.upstream().clone())
    };
    let probe = lease_at(&snapshot, "a", at(6_000)).unwrap();
    for seed in 0..50 {
        assert_eq!(pick(Ask::new(&facts, at(6_000), seed)), Ok(id("b")));
    }
    let (a, b) = ([id("a")], [id("b")]);
    assert_eq!(pick(Ask::new(&facts, at(6_000), 1).only(&a)), Ok(id("a")));
    assert_eq!(pick(Ask::new(&facts, at(6_000), 1).except(&b)), Ok(id("a")));
    let mut busy = lease_at(&snapshot, "b", at(6_000)).unwrap();
    busy.report(Verdict::Busy(Some(Duration::from_secs(3))), at(6_000));
    assert_eq!(pick(Ask::new(&facts, at(6_001), 1)), Ok(id("a")));
    drop(probe);
}

#[test]
fn who_is_drained_gets_nothing_that_costs_nothing_either() {
    let (mut board, snapshot) = probing();
    board.set_draining("a", true);
    let facts = control();
    let b = [id("b")];
    let ask = Ask::new(&facts, at(6_000), 1).except(&b);
    assert!(snapshot.reserve(&ask, &mut Scratch::default(), &mut ()).is_err());
}

#[test]
fn a_failed_connection_says_the_same_whoever_asked_and_nothing_else_does() {
    for fault in [
        BROKE,
        Verdict::Fault(Fault::Late),
        Verdict::Fault(Fault::CutShort),
        Verdict::Fault(Fault::Unavailable),
        Verdict::FaultUntil(Fault::Unavailable, Duration::from_secs(9)),
        Verdict::Busy(Some(Duration::from_secs(9))),
    ] {
        let board = board(&["a", "b"]);
        let snapshot = board.published().load_full();
        for n in 0..9 {
            look(&snapshot, "a", at(n)).unwrap().report(fault, at(n));
        }
        let health = snapshot.health(snapshot.index("a").unwrap()).unwrap();
        assert_eq!(
            (health.state, health.faults, health.paused_until),
            (HealthState::Healthy, 0, None),
            "{fault:?}"
        );
    }
    let board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    look(&snapshot, "a", at(1)).unwrap().report(UNREACHABLE, at(1));
    assert!(matches!(state(&snapshot, "a"), HealthState::Ejected { .. }));
    assert!(look(&snapshot, "a", at(2)).is_none(), "out is out for all");
}

#[test]
fn what_costs_nothing_makes_no_success_rate_better() {
    let names = ["a", "b", "c", "d", "e"];
    let mut board = board(&names);
    let snapshot = board.published().load_full();
    for _ in 0..100 {
        for name in names {
            answered(lease_at(&snapshot, name, at(1)).unwrap(), at(1));
        }
    }
    // As often as it fails, it does what costs nothing well, ten times.
    for _ in 0..30 {
        lease_at(&snapshot, "a", at(1)).unwrap().report(BROKE, at(1));
        answered(lease_at(&snapshot, "a", at(1)).unwrap(), at(1));
        (0..10).for_each(|_| answered(look(&snapshot, "a", at(1)).unwrap(), at(1)));
    }
    board.expire(at(60_000));
    assert!(matches!(
        state(&snapshot, "a"),
        HealthState::Ejected {
            cause: Cause::SuccessRate,
            ..
        }
    ));
}
