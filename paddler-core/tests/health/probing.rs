//! Who finds out how an upstream is, and for how long?

use super::*;

/// A board with "a", which gets one request at a time, and "b".
fn probing() -> (StatusBoard, std::sync::Arc<Snapshot>, Lease) {
    let mut board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    let old = lease_at(&snapshot, "a", at(1)).unwrap();
    for _ in 0..3 {
        lease_at(&snapshot, "a", at(1)).unwrap().report(BROKE, at(1));
    }
    board.expire(at(5_001));
    assert_eq!(state(&snapshot, "a"), HealthState::Probing);
    (board, snapshot, old)
}

fn polled(board: &mut StatusBoard, asked: Moment) {
    let snapshot = board.published().load_full();
    let event = StatusEvent::Report {
        id: id("a"),
        report: Report::new(),
        sample: snapshot.sample("a", asked),
    };
    board.apply(event, asked);
}

#[test]
fn a_long_probe_keeps_nobody_out_once_its_engine_has_answered_a_poll_after_ten_seconds() {
    let (mut board, snapshot, _old) = probing();
    let mut probe = lease_at(&snapshot, "a", at(6_000)).unwrap();
    probe.sent();
    polled(&mut board, at(15_999));
    assert_eq!(state(&snapshot, "a"), HealthState::Probing);
    board.expire(at(99_000));
    assert_eq!(
        state(&snapshot, "a"),
        HealthState::Probing,
        "time alone says nothing"
    );
    assert!(lease_at(&snapshot, "a", at(99_000)).is_none());
    polled(&mut board, at(99_000));
    assert!(matches!(state(&snapshot, "a"), HealthState::Warming { .. }));
    board.expire(at(128_000));
    let second = lease_at(&snapshot, "a", at(128_000)).unwrap();
    // It fails all the same: a fault as any other.
    probe.report(BROKE, at(128_000));
    probe.complete();
    assert_eq!(snapshot.health(snapshot.index("a").unwrap()).unwrap().faults, 1);
    assert!(lease_at(&snapshot, "a", at(128_000)).is_some());
    drop(second);
}

#[test]
fn a_probe_of_before_is_none_of_later() {
    let (mut board, snapshot, _old) = probing();
    let mut first = lease_at(&snapshot, "a", at(6_000)).unwrap();
    polled(&mut board, at(16_000));
    board.expire(at(46_000));
    for _ in 0..3 {
        lease_at(&snapshot, "a", at(46_000))
            .unwrap()
            .report(BROKE, at(46_000));
    }
    board.expire(at(60_000));
    assert_eq!(state(&snapshot, "a"), HealthState::Probing);
    let second = lease_at(&snapshot, "a", at(60_000)).expect("the first is a probe no more");
    // Neither its end nor what it says is for the second to bear.
    first.report(BROKE, at(60_001));
    assert_eq!(state(&snapshot, "a"), HealthState::Probing);
    first.report(Verdict::Answered, at(60_001));
    assert_eq!(state(&snapshot, "a"), HealthState::Probing);
    first.complete();
    assert!(lease_at(&snapshot, "a", at(60_002)).is_none(), "one at a time");
    polled(&mut board, at(69_999));
    assert_eq!(
        state(&snapshot, "a"),
        HealthState::Probing,
        "measured from the second"
    );
    drop(second);
    assert!(lease_at(&snapshot, "a", at(70_000)).is_some());
}

#[test]
fn a_pause_in_between_lets_no_second_probe_in() {
    let (mut board, snapshot, mut old) = probing();
    let probe = lease_at(&snapshot, "a", at(6_000)).unwrap();
    old.report(Verdict::Busy(Some(Duration::from_secs(1))), at(6_001));
    old.complete();
    board.expire(at(7_001));
    assert_eq!(state(&snapshot, "a"), HealthState::Probing);
    assert!(
        lease_at(&snapshot, "a", at(7_002)).is_none(),
        "the first is under way"
    );
    for seed in 0..50 {
        assert_eq!(reserve(&snapshot, seed, at(7_002)).unwrap().upstream(), &id("b"));
    }
    drop(probe);
    let next = lease_at(&snapshot, "a", at(7_003)).unwrap();
    assert!(lease_at(&snapshot, "a", at(7_003)).is_none());
    drop(next);
}

#[test]
fn a_probe_at_the_old_url_gives_no_place_to_another_at_the_new_one() {
    let (mut board, snapshot, _old) = probing();
    let old = lease_at(&snapshot, "a", at(6_000)).unwrap();
    let moved = UpstreamSpec::new("a", "http://b").unwrap().max_in_flight(8);
    board.apply(StatusEvent::Upsert(moved), at(7_000));
    let snapshot = board.publish(at(7_000));
    lease_at(&snapshot, "a", at(7_000))
        .unwrap()
        .report(UNREACHABLE, at(7_000));
    board.expire(at(8_000));
    let probe = lease_at(&snapshot, "a", at(8_000)).expect("the old one is no probe here");
    drop(old);
    assert!(lease_at(&snapshot, "a", at(8_000)).is_none());
    drop(probe);
    assert!(lease_at(&snapshot, "a", at(8_000)).is_some());
}

#[test]
fn an_upstream_that_is_drained_while_it_is_probed_goes_on_where_it_was() {
    let (mut board, snapshot, _old) = probing();
    let mut probe = lease_at(&snapshot, "a", at(6_000)).unwrap();
    board.set_draining("a", true);
    polled(&mut board, at(20_000));
    assert_eq!(
        state(&snapshot, "a"),
        HealthState::Probing,
        "nobody is let in there"
    );
    board.set_draining("a", false);
    assert!(lease_at(&snapshot, "a", at(20_000)).is_none());
    probe.report(Verdict::Answered, at(20_001));
    assert!(matches!(state(&snapshot, "a"), HealthState::Warming { .. }));
}

#[test]
fn a_probe_that_has_spoken_and_is_not_over_keeps_nobody_out() {
    let (mut board, snapshot, _old) = probing();
    let mut first = lease_at(&snapshot, "a", at(6_000)).unwrap();
    first.report(Verdict::Busy(None), at(6_001));
    assert!(
        lease_at(&snapshot, "a", at(6_002)).is_none(),
        "that it is busy says nothing"
    );
    first.report(BROKE, at(6_003));
    board.expire(at(17_000));
    assert_eq!(state(&snapshot, "a"), HealthState::Probing);
    let second = lease_at(&snapshot, "a", at(17_000)).expect("the first has failed");
    drop(first);
    assert!(lease_at(&snapshot, "a", at(17_000)).is_none());
    drop(second);
}

#[test]
fn those_who_wait_are_told_when_somebody_may_come_in_again() {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    let mut board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    lease_at(&snapshot, "a", at(1))
        .unwrap()
        .report(UNREACHABLE, at(1));
    let mut busy = lease_at(&snapshot, "b", at(1)).unwrap();
    busy.report(Verdict::Busy(Some(Duration::from_secs(3))), at(1));
    let told = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = told.clone();
    board.ledger().on_freed(move || {
        counted.fetch_add(1, Relaxed);
    });
    for (now, expected) in [(1_000, 0), (1_001, 1), (3_000, 1), (3_001, 2), (3_002, 2)] {
        board.expire(at(now));
        assert_eq!(told.load(Relaxed), expected, "{now}");
    }
    drop(busy);
}
