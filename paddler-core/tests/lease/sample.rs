//! What does a report say of our own requests, and of those of others?

use paddler_core::status::{Applied, Report};

use crate::pool::{Pool, id, report};

#[test]
fn what_is_younger_than_the_transit_allowance_is_not_seen() {
    let mut pool = Pool::new(&[("a", None)]);
    let _old = pool.running_lease("a", 4);
    let _young = pool.take("a", 2);
    // Steps of a millisecond up to 20 ms: still on its way. From 24 ms on it is seen, whatever the grain.
    for _ in 0..20 {
        assert_eq!(pool.sample("a").own_weight(), 4);
        pool.wait(1);
    }
    pool.wait(4);
    let token = pool.sample("a");
    assert_eq!((token.own_weight(), token.at()), (6, pool.now));
}

#[test]
fn a_young_lease_that_has_ended_is_not_taken_off_twice() {
    let mut pool = Pool::new(&[("a", None)]);
    let _old = pool.running_lease("a", 4);
    drop(pool.take("a", 2));
    assert_eq!(pool.sample("a").own_weight(), 4);
}

#[test]
fn a_moved_lease_keeps_its_age() {
    let mut pool = Pool::new(&[("a", None), ("b", None)]);
    let mut lease = pool.running_lease("a", 3);
    let b = pool.snapshot.index("b").unwrap();
    lease.move_to(&pool.snapshot, b).unwrap();
    assert_eq!(
        (pool.sample("a").own_weight(), pool.sample("b").own_weight()),
        (0, 3)
    );
    let mut young = pool.take("a", 1);
    young.move_to(&pool.snapshot, b).unwrap();
    assert_eq!(pool.sample("b").own_weight(), 3);
}

/// Own weight that has been seen, own weight too young, what runs and waits there by report, and what is others'.
#[test]
fn what_others_have_there() {
    for (seen, young, running, waiting, others) in [
        (0, 0, Some(0), Some(0), 0),
        (0, 0, Some(3), Some(2), 5),
        (2, 0, Some(2), Some(0), 0),
        (2, 0, Some(5), Some(1), 4),
        (2, 0, Some(1), Some(0), 0),
        (2, 0, Some(0), Some(2), 0),
        (2, 3, Some(2), Some(0), 0),
        (2, 3, Some(4), None, 2),
        (0, 3, Some(1), None, 1),
        (2, 0, None, Some(9), 0),
        (2, 0, None, None, 0),
        (2, 0, Some(u32::MAX), Some(u32::MAX), u32::MAX - 2),
    ] {
        let mut pool = Pool::new(&[("a", None)]);
        let _seen = pool.running_lease("a", seen);
        let _young = pool.take("a", young);
        let token = pool.sample("a");
        pool.report("a", report(None, running, waiting), Some(token));
        let case = format!("seen {seen}, young {young}, running {running:?}, waiting {waiting:?}");
        assert_eq!(pool.others("a"), others, "{case}");
        assert_eq!(pool.weight("a"), seen + young, "{case}");
    }
}

#[test]
fn what_others_hold_is_not_ours_to_give() {
    let mut pool = Pool::new(&[("a", None)]);
    let _own = pool.running_lease("a", 1);
    for (busy, waiting, left) in [(1, 0, 4), (3, 0, 2), (4, 0, 1), (4, 7, 0), (0, 0, 4)] {
        let mut busy_slots = Report::new();
        busy_slots.slots_total = Some(4);
        busy_slots.slots_busy = Some(busy);
        busy_slots.waiting = Some(waiting);
        let token = pool.sample("a");
        pool.report("a", busy_slots, Some(token));
        assert_eq!(pool.load("a").limit, Some(left), "busy {busy}, waiting {waiting}");
    }
}

#[test]
fn a_lease_that_ends_between_sample_and_report_is_not_others() {
    let mut pool = Pool::new(&[("a", Some(4))]);
    let (done, cancelled) = (pool.running_lease("a", 1), pool.running_lease("a", 1));
    let token = pool.sample("a");
    done.complete();
    drop(cancelled);
    pool.running("a", 2, Some(token));
    assert_eq!((pool.others("a"), pool.load("a").limit), (0, Some(4)));
    // The one that was cancelled after the sample still settles: the report cannot know.
    assert_eq!((pool.weight("a"), pool.settling()), (1, 1));
}

/// Weights that are open and that settle, what runs there by a later report, and what still settles after that.
#[test]
fn a_later_report_shows_the_room_or_the_ghosts() {
    for (open, settling, running, left) in [
        (0, &[1][..], 0, 0),
        (0, &[1], 1, 1),
        (0, &[1], 9, 1),
        (2, &[1], 2, 0),
        (2, &[1], 3, 1),
        (2, &[1], 0, 0),
        (0, &[4], 3, 3),
        (0, &[4], 1, 1),
        (1, &[2, 3], 6, 5),
        (1, &[2, 3], 5, 4),
        (1, &[2, 3], 4, 3),
        (1, &[2, 3], 2, 1),
        (1, &[2, 3], 1, 0),
    ] {
        let mut pool = Pool::new(&[("a", Some(10)), ("b", Some(10))]);
        let _open = pool.running_lease("a", open);
        for weight in settling {
            drop(pool.running_lease("a", *weight));
        }
        let elsewhere = pool.running_lease("b", 1);
        drop(elsewhere);
        let token = pool.sample("a");
        pool.running("a", running, Some(token));
        let case = format!("open {open}, settling {settling:?}, running {running}");
        assert_eq!(pool.weight("a"), open + left, "{case}");
        assert_eq!(pool.settling(), u64::from(left) + 1, "{case}");
        assert_eq!(pool.weight("b"), 1, "no report was about b: {case}");
    }
}

/// Shown by the deadlines: what is left of the younger one ends when its own time is over.
#[test]
fn the_oldest_is_released_first() {
    let mut pool = Pool::new(&[("a", Some(10))]);
    drop(pool.running_lease("a", 2));
    pool.board.expire(pool.now);
    pool.wait(5_000);
    drop(pool.running_lease("a", 3));
    let second = pool.now;
    pool.board.expire(pool.now);
    let token = pool.sample("a");
    pool.running("a", 3, Some(token));
    assert_eq!(pool.weight("a"), 3);
    assert_eq!(
        pool.board.expire(pool.now),
        Some(second.saturating_add(crate::pool::SETTLE))
    );
    pool.wait(9_999);
    pool.board.expire(pool.now);
    assert_eq!(pool.weight("a"), 3);
    pool.wait(1);
    assert_eq!(pool.board.expire(pool.now), None);
    pool.assert_idle("a");
}

#[test]
fn a_report_from_before_the_end_releases_nothing() {
    let mut pool = Pool::new(&[("a", Some(4))]);
    let lease = pool.running_lease("a", 1);
    let before = pool.sample("a");
    drop(lease);
    pool.running("a", 0, Some(before));
    assert_eq!(pool.settling(), 1);
    let after = pool.sample("a");
    pool.running("a", 0, Some(after));
    assert_eq!(pool.settling(), 0);
    pool.assert_idle("a");
}

#[test]
fn who_speaks_unasked_releases_nothing() {
    let mut pool = Pool::new(&[("a", Some(4))]);
    drop(pool.running_lease("a", 1));
    pool.running("a", 0, None);
    assert_eq!((pool.settling(), pool.weight("a")), (1, 1));
    // But says what others have there.
    pool.running("a", 3, None);
    assert_eq!((pool.others("a"), pool.load("a").limit), (2, Some(2)));
}

#[test]
fn what_says_nothing_of_load_releases_nothing() {
    let mut pool = Pool::new(&[("a", Some(4))]);
    drop(pool.running_lease("a", 1));
    let token = pool.sample("a");
    pool.report("a", Report::new(), Some(token));
    assert_eq!(pool.settling(), 1);
}

#[test]
fn a_deadline_runs_from_the_first_look_at_the_clock() {
    let mut pool = Pool::new(&[("a", Some(4))]);
    assert_eq!(pool.board.expire(pool.now), None);
    drop(pool.running_lease("a", 1));
    pool.wait(60_000);
    let deadline = pool.now.saturating_add(crate::pool::SETTLE);
    assert_eq!(pool.board.expire(pool.now), Some(deadline));
    pool.wait(9_999);
    assert_eq!(pool.board.expire(pool.now), Some(deadline));
    assert_eq!(pool.weight("a"), 1);
    pool.wait(1);
    assert_eq!(pool.board.expire(pool.now), None);
    pool.assert_idle("a");
}

/// Two polls are under way at once: what the first has released must not look like an open request to the second.
#[test]
fn a_ghost_is_not_released_by_two_reports_that_both_show_it() {
    let mut pool = Pool::new(&[("a", Some(4))]);
    drop(pool.running_lease("a", 1));
    drop(pool.running_lease("a", 1));
    let (first, second) = (pool.sample("a"), pool.sample("a"));
    pool.running("a", 1, Some(first));
    assert_eq!(pool.settling(), 1);
    pool.running("a", 1, Some(second));
    assert_eq!(pool.settling(), 1, "one of the two is still there");
}

#[test]
fn an_overtaken_report_is_ignored() {
    let mut pool = Pool::new(&[("a", Some(4))]);
    let (old, new) = (pool.sample("a"), pool.sample("a"));
    assert_eq!(old.at(), new.at(), "taken in the same moment, and yet in order");
    pool.running("a", 1, Some(new));
    assert_eq!(
        pool.report("a", report(None, Some(4), None), Some(old)),
        Applied::Overtaken(id("a"))
    );
    assert_eq!(pool.others("a"), 1);
    // An upstream that speaks unasked is as late as its word.
    let old = pool.sample("a");
    pool.running("a", 2, None);
    assert_eq!(
        pool.report("a", report(None, Some(4), None), Some(old)),
        Applied::Overtaken(id("a"))
    );
    // The same sample again is no older.
    let token = pool.sample("a");
    pool.running("a", 3, Some(token));
    pool.running("a", 4, Some(token));
    assert_eq!(pool.others("a"), 4);
}

#[test]
fn a_sample_of_an_earlier_tenancy_is_ignored() {
    let mut pool = Pool::new(&[("a", Some(4))]);
    let (old, token) = (pool.snapshot.clone(), pool.sample("a"));
    pool.leave("a");
    assert_eq!(
        pool.report("a", report(None, Some(4), None), Some(token)),
        Applied::Unknown(id("a"))
    );
    pool.join("a", Some(4));
    assert_eq!(old.index("a"), pool.snapshot.index("a"), "the same place");
    assert_eq!(
        pool.report("a", report(None, Some(4), None), Some(token)),
        Applied::Overtaken(id("a"))
    );
    // Also one that is taken now, by who still has the old snapshot.
    let late = old.sample("a", pool.now).unwrap();
    assert_eq!(
        pool.report("a", report(None, Some(4), None), Some(late)),
        Applied::Overtaken(id("a"))
    );
    assert_eq!(
        (
            pool.others("a"),
            pool.snapshot.find("a").unwrap().report().is_none()
        ),
        (0, true)
    );
}

#[test]
fn a_sample_of_an_earlier_tenancy_in_another_place_is_ignored() {
    let mut pool = Pool::new(&[("a", Some(4)), ("b", None)]);
    let (old, token, of_b) = (pool.snapshot.clone(), pool.sample("a"), pool.sample("b"));
    let _open = pool.take("a", 1);
    pool.leave("a");
    pool.join("a", Some(4));
    assert_ne!(old.index("a"), pool.snapshot.index("a"));
    for token in [token, of_b] {
        assert_eq!(
            pool.report("a", report(None, Some(4), None), Some(token)),
            Applied::Overtaken(id("a"))
        );
    }
}
