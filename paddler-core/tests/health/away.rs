//! What is still known of an upstream that its source has lost and finds again?

use super::*;

fn leave(board: &mut StatusBoard, name: &str, now: Moment) {
    board.apply(StatusEvent::Remove(id(name)), now);
    board.publish(now);
}

/// It leaves and is back a second later.
fn flap(board: &mut StatusBoard, name: &str, now: Moment) -> std::sync::Arc<Snapshot> {
    leave(board, name, now);
    let back = now.saturating_add(Duration::from_secs(1));
    join(board, name, 8, back);
    board.publish(back)
}

fn fail(snapshot: &Snapshot, name: &str, times: usize, now: Moment) {
    for _ in 0..times {
        lease_at(snapshot, name, now).unwrap().report(BROKE, now);
    }
}

fn is_ejected(snapshot: &Snapshot, name: &str) -> bool {
    matches!(state(snapshot, name), HealthState::Ejected { .. })
}

fn gets_nothing(snapshot: &Snapshot, name: &str, now: Moment) -> bool {
    (0..50).all(|seed| *reserve(snapshot, seed, now).unwrap().upstream() != id(name))
}

#[test]
fn who_is_drained_stays_so_while_he_is_away() {
    let mut board = board(&["a", "b"]);
    assert!(board.set_draining("a", true));
    leave(&mut board, "a", at(1));
    // Somebody else has got the place meanwhile.
    join(&mut board, "c", 8, at(2));
    let snapshot = board.publish(at(2));
    assert_eq!(
        (snapshot.is_draining("a"), snapshot.is_draining("c")),
        (None, Some(false))
    );
    board.expire(at(9_000_000));
    join(&mut board, "a", 8, at(9_000_000));
    let snapshot = board.publish(at(9_000_000));
    assert_eq!(snapshot.is_draining("a"), Some(true), "however long that was");
    assert!(gets_nothing(&snapshot, "a", at(9_000_001)));
    assert!(board.set_draining("a", false));
    let snapshot = flap(&mut board, "a", at(9_000_002));
    assert_eq!(snapshot.is_draining("a"), Some(false));
}

#[test]
fn who_is_drained_and_comes_back_elsewhere_is_still_drained() {
    let mut board = board(&["a", "b"]);
    board.set_draining("a", true);
    leave(&mut board, "a", at(1));
    board.apply(
        StatusEvent::Upsert(UpstreamSpec::new("a", "http://b").unwrap()),
        at(2),
    );
    assert_eq!(board.publish(at(2)).is_draining("a"), Some(true));
}

#[test]
fn who_is_away_can_be_let_back_in_and_not_be_drained() {
    let mut board = board(&["a", "b"]);
    board.set_draining("a", true);
    leave(&mut board, "a", at(1));
    assert!(!board.set_draining("a", true), "nobody is there");
    assert!(board.set_draining("a", false));
    assert!(!board.set_draining("a", false), "he is not drained any more");
    join(&mut board, "a", 8, at(2));
    assert_eq!(board.publish(at(2)).is_draining("a"), Some(false));
}

#[test]
fn who_is_ejected_stays_so_until_its_time_is_over() {
    let mut board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    fail(&snapshot, "a", 3, at(1));
    let snapshot = flap(&mut board, "a", at(1_000));
    assert!(is_ejected(&snapshot, "a") && gets_nothing(&snapshot, "a", at(2_000)));
    let health = snapshot.health(snapshot.index("a").unwrap()).unwrap();
    assert_eq!(health.ejections, 1);
    board.expire(at(5_001));
    assert_eq!(state(&snapshot, "a"), HealthState::Probing);
    let snapshot = flap(&mut board, "a", at(5_002));
    assert_eq!(state(&snapshot, "a"), HealthState::Probing);
    let probe = lease_at(&snapshot, "a", at(6_003)).unwrap();
    assert!(lease_at(&snapshot, "a", at(6_003)).is_none(), "one at a time");
    // And the next time out is the longer for it.
    let mut probe = probe;
    probe.report(BROKE, at(6_003));
    let HealthState::Ejected { until, .. } = state(&snapshot, "a") else {
        panic!("{:?}", state(&snapshot, "a"))
    };
    assert_eq!(until, at(16_003));
}

#[test]
fn faults_in_a_row_and_a_pause_outlive_an_absence() {
    let mut board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    fail(&snapshot, "a", 2, at(1));
    let mut busy = lease_at(&snapshot, "b", at(1)).unwrap();
    busy.report(Verdict::Busy(Some(Duration::from_secs(3))), at(1));
    busy.complete();
    let snapshot = flap(&mut board, "a", at(1));
    fail(&snapshot, "a", 1, at(1_002));
    assert!(is_ejected(&snapshot, "a"));
    let snapshot = flap(&mut board, "b", at(1_002));
    assert!(lease_at(&snapshot, "b", at(2_003)).is_none());
    board.expire(at(3_001));
    assert!(lease_at(&snapshot, "b", at(3_001)).is_some());
}

#[test]
fn another_machine_under_the_same_id_is_well() {
    let mut board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    fail(&snapshot, "a", 3, at(1));
    leave(&mut board, "a", at(2));
    board.apply(
        StatusEvent::Upsert(UpstreamSpec::new("a", "http://b").unwrap()),
        at(3),
    );
    let snapshot = board.publish(at(3));
    assert_eq!(state(&snapshot, "a"), HealthState::Healthy);
    // It has taken the place of the first for good.
    let snapshot = flap(&mut board, "a", at(4));
    assert!(!is_ejected(&snapshot, "a"));
}

#[test]
fn what_is_known_against_who_is_away_is_forgotten_when_it_would_be_tried_again_anyway() {
    for (away, known) in [(299_999, true), (300_000, false)] {
        let mut board = board(&["a", "b"]);
        let snapshot = board.published().load_full();
        fail(&snapshot, "a", 2, at(0));
        leave(&mut board, "a", at(0));
        join(&mut board, "a", 8, at(away));
        let snapshot = board.publish(at(away));
        let health = snapshot.health(snapshot.index("a").unwrap()).unwrap();
        assert_eq!(health.faults > 0, known, "after {away} ms");
    }
}

#[test]
fn rules_that_change_while_an_upstream_is_away_hold_for_it() {
    let mut board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    let mut busy = lease_at(&snapshot, "a", at(0)).unwrap();
    busy.report(Verdict::Busy(Some(Duration::from_secs(90))), at(0));
    busy.complete();
    leave(&mut board, "a", at(0));
    let mut rules = paddler_core::config::HealthRules::default();
    rules.longest_time = Duration::from_secs(10);
    board.set_health(rules);
    join(&mut board, "a", 8, at(1_000));
    let snapshot = board.publish(at(1_000));
    let health = snapshot.health(snapshot.index("a").unwrap()).unwrap();
    assert_eq!(health.paused_until, Some(at(11_000)));
}

#[test]
fn what_its_requests_of_before_come_to_counts_no_more() {
    let mut board = board(&["a", "b"]);
    let snapshot = board.published().load_full();
    let mut old = lease_at(&snapshot, "a", at(1)).unwrap();
    fail(&snapshot, "a", 3, at(1));
    let snapshot = flap(&mut board, "a", at(2));
    board.expire(at(5_002));
    assert_eq!(state(&snapshot, "a"), HealthState::Probing);
    old.report(BROKE, at(5_003));
    old.report(Verdict::Answered, at(5_003));
    old.complete();
    assert_eq!(state(&snapshot, "a"), HealthState::Probing);
}
