//! What do picks and leases see of an upstream that fails? Without a network, and moment by moment.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod away;
mod models;
mod probing;
mod weightless;

use std::time::Duration;

use paddler_core::Moment;
use paddler_core::health::{Cause, Fault, HealthState, Verdict};
#[cfg(feature = "proxy")]
use paddler_core::observe::UpstreamStatus;
use paddler_core::request::Facts;
use paddler_core::schedule::{Ask, Class, Ending, Reason, Scratch, trees};
use paddler_core::status::{Failure, FailureKind, Health, Report, Snapshot, StatusBoard, StatusEvent};
use paddler_core::upstream::{Lease, UpstreamId, UpstreamSpec};

const UNREACHABLE: Verdict = Verdict::Fault(Fault::Unreachable);
const BROKE: Verdict = Verdict::Fault(Fault::Broke);

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

fn id(text: &str) -> UpstreamId {
    UpstreamId::new(text).unwrap()
}

fn join(board: &mut StatusBoard, name: &str, slots: u32, now: Moment) {
    let spec = UpstreamSpec::new(name, "http://a").unwrap().max_in_flight(slots);
    board.apply(StatusEvent::Upsert(spec), now);
}

fn board(names: &[&str]) -> StatusBoard {
    let mut board = StatusBoard::new(trees::balancer());
    for name in names {
        join(&mut board, name, 8, Moment::ZERO);
    }
    board.publish(Moment::ZERO);
    board
}

fn reserve(snapshot: &Snapshot, seed: u64, now: Moment) -> Result<Lease, Ending> {
    let facts = Facts::new();
    snapshot.reserve(&Ask::new(&facts, now, seed), &mut Scratch::default(), &mut ())
}

/// A lease at this upstream.
fn lease_at(snapshot: &Snapshot, name: &str, now: Moment) -> Option<Lease> {
    snapshot.lease(snapshot.index(name).unwrap(), &Facts::new(), now)
}

fn state(snapshot: &Snapshot, name: &str) -> HealthState {
    snapshot.health(snapshot.index(name).unwrap()).unwrap().state
}

#[cfg(feature = "proxy")]
#[test]
fn the_status_of_an_upstream_that_is_left_out_says_why_and_for_how_long() {
    let mut board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    let mut lease = lease_at(&snapshot, "a", at(1)).unwrap();
    lease.report(UNREACHABLE, at(1));
    lease.complete();
    let mut lease = lease_at(&snapshot, "b", at(1)).unwrap();
    lease.report(Verdict::Busy(Some(Duration::from_secs(7))), at(1));
    lease.complete();
    let told = |name, now| serde_json::to_value(UpstreamStatus::find(&snapshot, name, now).unwrap()).unwrap();
    let a = told("a", at(251));
    assert_eq!(a["able"], true, "it has not said otherwise");
    assert_eq!(
        a["service"],
        serde_json::json!({"state": "ejected", "cause": "unreachable", "ends_in_seconds": 0.75, "faults": 1, "ejections": 1})
    );
    let paused =
        serde_json::json!({"state": "healthy", "paused_for_seconds": 5.0, "faults": 0, "ejections": 0});
    assert_eq!(told("b", at(2001))["service"], paused);
    assert_eq!(told("b", at(8000))["service"].get("paused_for_seconds"), None);
    board.expire(at(8_000));
    lease_at(&snapshot, "b", at(8_000))
        .unwrap()
        .report(UNREACHABLE, at(8_000));
    assert_eq!(told("b", at(8000))["service"]["last_resort"], true);
}

#[test]
fn one_failed_connection_takes_it_out_of_the_snapshot_in_force() {
    let board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    let mut lease = lease_at(&snapshot, "a", at(1)).unwrap();
    lease.report(UNREACHABLE, at(1));
    lease.complete();
    for seed in 0..50 {
        assert_eq!(reserve(&snapshot, seed, at(2)).unwrap().upstream(), &id("b"));
    }
}

#[test]
fn one_lease_at_a_time_is_let_in_as_a_probe() {
    let mut board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    lease_at(&snapshot, "a", at(1))
        .unwrap()
        .report(UNREACHABLE, at(1));
    assert_eq!(board.expire(at(1)), Some(at(1_001)), "when its time is over");
    board.expire(at(1_001));
    assert_eq!(state(&snapshot, "a"), HealthState::Probing);

    let probe = lease_at(&snapshot, "a", at(1_002)).unwrap();
    assert!(lease_at(&snapshot, "a", at(1_002)).is_none(), "one at a time");
    for seed in 0..50 {
        assert_eq!(reserve(&snapshot, seed, at(1_002)).unwrap().upstream(), &id("b"));
    }
    // Its client leaves before there is an answer.
    drop(probe);
    let mut probe = lease_at(&snapshot, "a", at(1_003)).unwrap();
    probe.sent();
    drop(probe);
    let mut probe = lease_at(&snapshot, "a", at(1_004)).unwrap();
    probe.report(Verdict::Answered, at(1_005));
    assert!(matches!(state(&snapshot, "a"), HealthState::Warming { .. }));
    let second = lease_at(&snapshot, "a", at(1_006));
    assert!(second.is_none(), "it begins with one");
    board.expire(at(20_005));
    assert!(lease_at(&snapshot, "a", at(20_005)).is_some());
    // Its end, later, gives nothing back that was given back before.
    drop(probe);
    board.expire(at(40_000));
    let all: Vec<_> = (0..9)
        .map_while(|_| lease_at(&snapshot, "a", at(40_000)))
        .collect();
    assert!(all.len() >= 7, "{}", all.len());
}

#[test]
fn a_probe_that_fails_leaves_it_out_for_longer() {
    let mut board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    let mut now = at(0);
    for seconds in [1, 2, 4] {
        lease_at(&snapshot, "a", now).unwrap().report(UNREACHABLE, now);
        let until = now.saturating_add(Duration::from_secs(seconds));
        let cause = paddler_core::health::Cause::Unreachable;
        assert_eq!(state(&snapshot, "a"), HealthState::Ejected { cause, until });
        assert!(lease_at(&snapshot, "a", now).is_none(), "nor for who insists");
        board.expire(until);
        now = until;
    }
}

#[test]
fn a_probe_that_finds_it_busy_leaves_its_turn_to_the_next() {
    for asked in [None, Some(Duration::ZERO), Some(Duration::from_secs(2))] {
        let mut board = board(&["a", "b"]);
        let snapshot = board.published().load_full();
        lease_at(&snapshot, "a", at(1))
            .unwrap()
            .report(UNREACHABLE, at(1));
        board.expire(at(1_001));
        let mut probe = lease_at(&snapshot, "a", at(1_002)).unwrap();
        probe.sent();
        probe.report(Verdict::Busy(asked), at(1_002));
        probe.complete();
        board.expire(at(3_002));
        let mut next = lease_at(&snapshot, "a", at(3_002)).unwrap();
        assert!(lease_at(&snapshot, "a", at(3_002)).is_none(), "one at a time");
        next.report(Verdict::Answered, at(3_003));
        assert!(matches!(state(&snapshot, "a"), HealthState::Warming { .. }));
    }
}

#[test]
fn what_an_old_machine_does_is_not_held_against_the_one_at_the_new_url() {
    let mut board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    let leases: Vec<_> = (0..3).map(|_| lease_at(&snapshot, "a", at(1)).unwrap()).collect();
    let moved = UpstreamSpec::new("a", "http://b").unwrap().max_in_flight(8);
    board.apply(StatusEvent::Upsert(moved), at(5));
    assert!(
        lease_at(&snapshot, "a", at(5)).is_none(),
        "the old machine gets nothing more"
    );
    let snapshot = board.publish(at(6));
    for mut lease in leases {
        lease.report(UNREACHABLE, at(7));
        lease.complete();
    }
    assert_eq!(state(&snapshot, "a"), HealthState::Healthy);
    let all: Vec<_> = std::iter::from_fn(|| lease_at(&snapshot, "a", at(8))).collect();
    assert_eq!(all.len(), 8, "what it held is given back");
}

#[test]
fn a_heavy_request_counts_in_full_while_its_upstream_warms_up() {
    let mut board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    lease_at(&snapshot, "a", at(1))
        .unwrap()
        .report(UNREACHABLE, at(1));
    board.expire(at(1_001));
    let mut probe = lease_at(&snapshot, "a", at(1_002)).unwrap();
    probe.report(Verdict::Answered, at(1_003));
    probe.complete();
    let index = snapshot.index("a").unwrap();
    let heavy = snapshot
        .lease(index, &Facts::new().weight(20), at(1_004))
        .unwrap();
    assert_eq!(heavy.weight(), 8, "as many as it runs at once");
    board.expire(at(60_000));
    board.expire(at(120_000));
    assert_eq!(state(&snapshot, "a"), HealthState::Healthy);
    assert!(lease_at(&snapshot, "a", at(120_000)).is_none());
    heavy.complete();
    assert!(lease_at(&snapshot, "a", at(120_000)).is_some());
}

#[test]
fn those_who_wait_are_told_when_a_probe_ends_without_a_word() {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    let mut board = board(&["a"]);
    join(&mut board, "b", 8, Moment::ZERO);
    let snapshot = board.publish(Moment::ZERO);
    lease_at(&snapshot, "a", at(1))
        .unwrap()
        .report(UNREACHABLE, at(1));
    board.expire(at(1_001));
    let told = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = told.clone();
    board.ledger().on_freed(move || {
        counted.fetch_add(1, Relaxed);
    });
    let mut probe = lease_at(&snapshot, "a", at(1_002)).unwrap();
    probe.sent();
    drop(probe);
    assert_eq!(
        told.load(Relaxed),
        1,
        "the next may be one, though the weight settles"
    );
}

#[test]
fn waiting_is_worth_it_where_all_are_paused() {
    let board = board(&["a"]);
    let snapshot = board.published().load_full();
    let mut lease = reserve(&snapshot, 1, at(1)).unwrap();
    lease.report(Verdict::Busy(Some(Duration::from_secs(2))), at(1));
    lease.complete();
    let ending = reserve(&snapshot, 2, at(2)).unwrap_err();
    assert_eq!((ending.class, ending.reason), (Class::Later, Reason::Unhealthy));
    let mut board = board;
    board.expire(at(2_001));
    assert!(reserve(&snapshot, 3, at(2_001)).is_ok());
}

#[test]
fn a_joiner_takes_its_part_slowly_unless_all_have_just_begun() {
    let mut board = board(&["a"]);
    let limit = |board: &StatusBoard, name: &str| {
        let snapshot = board.published().load_full();
        board.ledger().own_load(snapshot.index(name).unwrap()).limit
    };
    join(&mut board, "b", 8, at(1_000));
    board.publish(at(1_000));
    assert_eq!(limit(&board, "b"), Some(8));
    join(&mut board, "c", 300, at(100_000));
    board.publish(at(100_000));
    assert_eq!(limit(&board, "c"), Some(1));
    board.expire(at(115_000));
    assert_eq!(limit(&board, "c"), Some(150));
    // The upstream's own limit holds all the same.
    let spec = UpstreamSpec::new("c", "http://a").unwrap().max_in_flight(5);
    board.apply(StatusEvent::Upsert(spec), at(116_000));
    assert!(limit(&board, "c") <= Some(5));
    board.expire(at(130_000));
    assert_eq!(limit(&board, "c"), Some(5));
}

#[test]
fn a_poll_that_fails_while_requests_are_open_makes_data_stale_and_no_more() {
    let mut board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    let fail = |board: &mut StatusBoard, now| {
        let failure = Failure::new(FailureKind::Unreachable, "refused");
        board.apply(StatusEvent::Failed { id: id("a"), failure }, now);
        let snapshot = board.publish(now);
        snapshot.find("a").unwrap().is_unreachable()
    };
    let mut lease = lease_at(&snapshot, "a", at(1)).unwrap();
    lease.sent();
    for now in 1..9 {
        assert!(!fail(&mut board, at(now)));
    }
    lease.complete();
    assert!(!fail(&mut board, at(10)));
    assert!(fail(&mut board, at(11)), "twice, and nothing is open");
}

#[test]
fn an_answered_poll_ends_the_time_of_who_could_not_be_reached() {
    let mut board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    let before = snapshot.sample("a", at(1)).unwrap();
    lease_at(&snapshot, "a", at(2))
        .unwrap()
        .report(UNREACHABLE, at(2));
    let report = |sample| {
        let mut report = Report::new();
        report.health = Some(Health::Ready);
        let sample = Some(sample);
        StatusEvent::Report {
            id: id("a"),
            report,
            sample,
        }
    };
    board.apply(report(before), at(3));
    assert!(
        matches!(state(&snapshot, "a"), HealthState::Ejected { .. }),
        "it was asked before"
    );
    let after = snapshot.sample("a", at(4)).unwrap();
    board.apply(report(after), at(5));
    assert_eq!(state(&snapshot, "a"), HealthState::Probing);
}

#[test]
fn what_is_learnt_stays_with_an_upstream_whose_spec_changes_and_not_with_another() {
    let mut board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    let mut late = lease_at(&snapshot, "a", at(1)).unwrap();
    lease_at(&snapshot, "a", at(1))
        .unwrap()
        .report(UNREACHABLE, at(1));
    join(&mut board, "a", 4, at(2));
    let changed = board.publish(at(2));
    assert!(matches!(state(&changed, "a"), HealthState::Ejected { .. }));

    let elsewhere = UpstreamSpec::new("a", "http://b").unwrap();
    board.apply(StatusEvent::Upsert(elsewhere), at(2));
    let moved = board.publish(at(2));
    assert_eq!(state(&moved, "a"), HealthState::Healthy, "another machine");
    lease_at(&moved, "a", at(2)).unwrap().report(UNREACHABLE, at(2));

    board.apply(StatusEvent::Remove(id("a")), at(3));
    board.publish(at(3));
    late.report(UNREACHABLE, at(3));
    late.complete();
    join(&mut board, "c", 4, at(4));
    let snapshot = board.publish(at(4));
    assert_eq!(state(&snapshot, "c"), HealthState::Healthy);
    assert_eq!(reserve(&snapshot, 1, at(4)).map(drop), Ok(()));
}

#[test]
fn good_answers_of_the_old_machine_are_not_counted_for_the_one_at_the_new_url() {
    let mut board = board(&["a", "b", "c", "d", "e"]);
    let snapshot = board.published().load_full();
    let answer = |snapshot: &Snapshot, name: &str, verdict| {
        let mut lease = lease_at(snapshot, name, at(2)).unwrap();
        lease.report(verdict, at(2));
        lease.complete();
    };
    (0..900).for_each(|_| answer(&snapshot, "a", Verdict::Answered));
    let moved = UpstreamSpec::new("a", "http://b").unwrap().max_in_flight(8);
    board.apply(StatusEvent::Upsert(moved), at(2));
    let snapshot = board.publish(at(2));
    for name in ["a", "b", "c", "d", "e"] {
        (0..100).for_each(|_| answer(&snapshot, name, Verdict::Answered));
    }
    for _ in 0..40 {
        answer(&snapshot, "a", BROKE);
        answer(&snapshot, "a", Verdict::Answered);
    }
    board.expire(at(60_002));
    assert!(matches!(state(&snapshot, "a"), HealthState::Ejected { .. }));
}
