//! What is taken, and when is it given back?

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use paddler_core::schedule::{Ask, Class, Reason, Scratch};
use paddler_core::upstream::{Stage, UpstreamIndex};

use crate::pool::{Pool, facts, report};

#[test]
fn a_lease_that_was_never_sent_gives_back_at_once() {
    let pool = Pool::new(&[("a", Some(4))]);
    let lease = pool.take("a", 3);
    assert_eq!(
        (lease.stage(), lease.weight(), lease.upstream().as_str()),
        (Stage::Reserved, 3, "a")
    );
    let load = pool.load("a");
    assert_eq!(
        (load.weight, load.limit, load.requests, load.prefill_tokens),
        (3, Some(4), 1, 100)
    );
    drop(lease);
    pool.assert_idle("a");
    assert_eq!(pool.settling(), 0);
}

#[test]
fn a_lease_that_was_sent_settles_unless_it_completes() {
    for first_byte in [false, true] {
        let pool = Pool::new(&[("a", Some(4))]);
        let send = || {
            let mut lease = pool.take("a", 2);
            lease.sent();
            if first_byte {
                lease.first_byte();
            }
            lease
        };
        send().complete();
        pool.assert_idle("a");
        assert_eq!(pool.settling(), 0);
        drop(send());
        // The weight stays, and nothing else does.
        let load = pool.load("a");
        assert_eq!((load.weight, load.requests, load.prefill_tokens), (2, 0, 0));
        assert_eq!(pool.settling(), 2);
    }
}

#[test]
fn the_prompt_counts_until_the_first_byte() {
    let pool = Pool::new(&[("a", None)]);
    let (mut one, other) = (pool.take("a", 1), pool.take("a", 1));
    assert_eq!(pool.load("a").prefill_tokens, 200);
    one.first_byte();
    one.first_byte();
    one.sent();
    assert_eq!(one.stage(), Stage::FirstByte);
    assert_eq!((pool.load("a").prefill_tokens, pool.load("a").requests), (100, 2));
    one.complete();
    assert_eq!(pool.load("a").prefill_tokens, 100);
    other.complete();
    pool.assert_idle("a");
}

#[test]
fn the_largest_prompts_do_not_overflow() {
    let pool = Pool::new(&[("a", None)]);
    let mut huge = facts(u32::MAX);
    huge.tokens = u32::MAX;
    let leases: Vec<_> = (0..3).map(|_| pool.lease("a", &huge).unwrap()).collect();
    assert_eq!(pool.load("a").prefill_tokens, 3 * u64::from(u32::MAX));
    // The count stops at the edge of its field; without a limit nobody is refused for that.
    let most = (1 << 24) - 1;
    assert_eq!(pool.weight("a"), most);
    let weights: Vec<_> = leases.iter().map(|lease| lease.weight()).collect();
    assert_eq!(weights, [most, 0, 0]);
    let one_more = pool.take("a", 1);
    drop(leases);
    assert_eq!(one_more.weight(), 0);
    one_more.complete();
    pool.assert_idle("a");
}

#[test]
fn a_limit_that_is_too_large_to_count_is_none() {
    for limit in [u32::MAX, 1 << 24, (1 << 24) - 1] {
        assert_eq!(Pool::new(&[("a", Some(limit))]).load("a").limit, None);
    }
    let edge = Pool::new(&[("a", Some((1 << 24) - 2))]);
    assert_eq!(edge.load("a").limit, Some((1 << 24) - 2));
    let all = edge.take("a", u32::MAX);
    assert_eq!(all.weight(), (1 << 24) - 2);
    assert!(edge.lease("a", &facts(1)).is_none());
}

#[test]
fn a_request_heavier_than_the_limit_runs_alone() {
    let pool = Pool::new(&[("a", Some(4))]);
    let one = pool.take("a", 1);
    assert!(
        pool.lease("a", &facts(9)).is_none(),
        "not while something is open"
    );
    drop(one);
    let heavy = pool.take("a", 9);
    assert_eq!(heavy.weight(), 4);
    assert!(pool.lease("a", &facts(1)).is_none(), "and then nobody else");
    heavy.complete();
    pool.assert_idle("a");
}

#[test]
fn a_limit_of_zero_lets_nobody_in_but_control_requests() {
    let pool = Pool::new(&[("a", Some(0))]);
    assert!(pool.lease("a", &facts(1)).is_none());
    assert!(pool.lease("a", &facts(u32::MAX)).is_none());
    let control = pool.take("a", 0);
    assert_eq!(pool.load("a").requests, 1);
    control.complete();
    pool.assert_idle("a");
}

#[test]
fn a_limit_below_what_is_open_lets_nobody_in_until_it_fits() {
    let mut pool = Pool::new(&[("a", Some(4))]);
    let mut leases: Vec<_> = (0..3).map(|_| pool.take("a", 1)).collect();
    pool.join("a", Some(2));
    assert_eq!((pool.weight("a"), pool.load("a").limit), (3, Some(2)));
    for free in [false, false, true] {
        assert_eq!(pool.lease("a", &facts(1)).is_some(), free);
        assert!(
            pool.lease("a", &facts(0)).is_some(),
            "a control request never waits"
        );
        leases.pop();
    }
    pool.assert_idle("a");
}

/// The tree refuses nobody whom the ledger would let in: a control request passes where every slot is taken.
#[test]
fn the_tree_lets_control_requests_through() {
    let mut pool = Pool::new(&[("a", None)]);
    pool.report("a", report(Some(1), Some(0), None), None);
    let _taken = pool.take("a", 1);
    let mut scratch = Scratch::default();
    let mut reserve = |weight| {
        let facts = facts(weight);
        pool.snapshot
            .reserve(&Ask::new(&facts, pool.now, 1), &mut scratch, &mut ())
    };
    let ending = reserve(1).unwrap_err();
    assert_eq!((ending.class, ending.reason), (Class::Later, Reason::SlotsBusy));
    assert!(reserve(0).is_ok());
}

#[test]
fn a_control_request_that_is_cancelled_leaves_nothing() {
    let pool = Pool::new(&[("a", Some(1))]);
    let mut control = pool.take("a", 0);
    control.sent();
    drop(control);
    pool.assert_idle("a");
    assert_eq!(pool.settling(), 0);
}

#[test]
fn adapters_count_while_their_leases_are_open() {
    let pool = Pool::new(&[("a", None)]);
    let mut asked = facts(1);
    asked.model = Some("red");
    let (red, again) = (pool.lease("a", &asked).unwrap(), pool.lease("a", &asked).unwrap());
    asked.model = Some("base");
    let base = pool.lease("a", &asked).unwrap();
    assert_eq!((pool.load("a").adapter_requests, pool.load("a").requests), (2, 3));
    drop((red, base));
    assert_eq!(pool.load("a").adapter_requests, 1);
    again.complete();
    pool.assert_idle("a");
}

#[test]
fn a_move_counts_where_the_request_is() {
    let pool = Pool::new(&[("a", Some(4)), ("b", Some(1))]);
    let mut asked = facts(3);
    asked.model = Some("red");
    let full = pool.take("b", 1);
    let mut lease = pool.lease("a", &asked).unwrap();
    let b = pool.snapshot.index("b").unwrap();
    lease.move_to(&pool.snapshot, b).unwrap();
    assert_eq!((lease.upstream().as_str(), lease.weight()), ("b", 3));
    pool.assert_idle("a");
    let load = pool.load("b");
    assert_eq!(
        (
            load.weight,
            load.requests,
            load.prefill_tokens,
            load.adapter_requests
        ),
        (4, 2, 200, 1)
    );
    lease.first_byte();
    let a = pool.snapshot.index("a").unwrap();
    lease.move_to(&pool.snapshot, a).unwrap();
    assert_eq!(lease.stage(), Stage::FirstByte);
    assert_eq!((pool.load("a").weight, pool.load("a").prefill_tokens), (3, 0));
    lease.complete();
    full.complete();
    pool.assert_idle("a");
    pool.assert_idle("b");
}

#[test]
fn a_move_that_is_none_changes_nothing() {
    let pool = Pool::new(&[("a", Some(2)), ("b", None)]);
    let mut lease = pool.take("a", 9);
    let before = pool.load("a");
    lease
        .move_to(&pool.snapshot, pool.snapshot.index("a").unwrap())
        .unwrap();
    assert_eq!((pool.load("a"), lease.weight()), (before, 2));

    let larger = Pool::new(&[("a", None), ("b", None), ("c", None)]);
    let c = larger.snapshot.index("c").unwrap();
    assert_eq!(lease.move_to(&pool.snapshot, c), Err(c), "there is nobody");
    let b = larger.snapshot.index("b").unwrap();
    assert_eq!(
        lease.move_to(&larger.snapshot, b),
        Err(b),
        "that is another board's"
    );
    assert_eq!((pool.load("a"), lease.upstream().as_str()), (before, "a"));
    larger.assert_idle("b");
    lease.complete();
    pool.assert_idle("a");
}

#[test]
fn a_move_follows_an_upstream_that_has_come_back() {
    let mut pool = Pool::new(&[("a", None)]);
    let old = pool.snapshot.clone();
    let mut lease = pool.take("a", 1);
    pool.leave("a");
    pool.join("a", None);
    let (before, after) = (old.index("a").unwrap(), pool.snapshot.index("a").unwrap());
    assert_ne!(before, after, "the place is in use");
    pool.assert_idle("a");
    lease.move_to(&pool.snapshot, after).unwrap();
    assert_eq!(pool.weight("a"), 1);
    assert_eq!(old.ledger().own_load(before).weight, 0);
    lease.complete();
    pool.assert_idle("a");
}

/// An index of an old snapshot may be another upstream's place by now.
#[test]
fn a_move_to_who_has_left_is_refused() {
    let mut pool = Pool::new(&[("a", None), ("gone", None)]);
    let old = pool.snapshot.clone();
    let gone = old.index("gone").unwrap();
    let mut lease = pool.take("a", 1);
    pool.leave("gone");
    assert_eq!(lease.move_to(&old, gone), Err(gone));
    pool.join("new", None);
    assert_eq!(
        pool.snapshot.index("new"),
        Some(gone),
        "the quiet place is used again"
    );
    assert_eq!(lease.move_to(&old, gone), Err(gone));
    pool.assert_idle("new");
    assert_eq!((pool.weight("a"), lease.upstream().as_str()), (1, "a"));
}

#[test]
fn a_moved_lease_settles_where_it_is() {
    let pool = Pool::new(&[("a", None), ("b", None)]);
    let mut lease = pool.take("a", 2);
    lease.sent();
    lease
        .move_to(&pool.snapshot, pool.snapshot.index("b").unwrap())
        .unwrap();
    drop(lease);
    pool.assert_idle("a");
    assert_eq!((pool.weight("b"), pool.settling()), (2, 2));
}

#[test]
fn an_old_snapshot_reserves_nothing_at_who_has_left() {
    let mut pool = Pool::new(&[("a", Some(4))]);
    let old = pool.snapshot.clone();
    let index = old.index("a").unwrap();
    pool.leave("a");
    for weight in [0, 1, 9] {
        assert!(old.lease(index, &facts(weight), pool.now).is_none());
    }
    pool.join("b", Some(4));
    assert_eq!(pool.snapshot.index("b"), Some(index));
    for weight in [0, 1, 9] {
        assert!(old.lease(index, &facts(weight), pool.now).is_none());
    }
    pool.assert_idle("b");
}

#[test]
fn who_waits_is_told_of_each_chance() {
    let mut pool = Pool::new(&[("a", Some(2)), ("b", None)]);
    let told = Arc::new(AtomicU32::new(0));
    let ledger = pool.snapshot.ledger().clone();
    ledger.on_freed({
        let (told, ledger) = (told.clone(), Arc::downgrade(&ledger));
        move || {
            told.fetch_add(1, Relaxed);
            // No lock is held: the hook may look.
            ledger.upgrade().unwrap().settling_weight();
        }
    });
    ledger.on_freed(|| panic!("only the first hook counts"));
    let heard = {
        let told = told.clone();
        move || told.swap(0, Relaxed) > 0
    };

    let (lease, b) = (pool.take("a", 1), pool.snapshot.index("b").unwrap());
    assert!(!heard(), "a reservation frees nothing");
    drop(lease);
    assert!(heard(), "given back unsent");
    pool.take("a", 1).complete();
    assert!(heard(), "complete");
    pool.take("a", 1).move_to(&pool.snapshot, b).unwrap();
    assert!(heard(), "moved away");

    let mut cancelled = pool.running_lease("a", 1);
    cancelled.first_byte();
    drop(cancelled);
    assert!(!heard(), "settling weight is not free");
    let token = pool.sample("a");
    let free = report(Some(2), Some(0), None);
    let event = |report, sample| paddler_core::status::StatusEvent::Report {
        id: crate::pool::id("a"),
        report,
        sample,
    };
    pool.board.apply(event(free.clone(), Some(token)), pool.now);
    assert!(heard(), "a report has shown the room");
    pool.board.apply(event(free, None), pool.now);
    assert!(!heard(), "nothing was freed");

    drop(pool.running_lease("a", 1));
    heard();
    let mut late = pool.take("a", 1);
    late.sent();
    drop(late);
    pool.board.expire(pool.now);
    assert!(!heard(), "its time runs");
    pool.wait(10_000);
    pool.board.expire(pool.now);
    assert!(heard(), "its time is over");

    pool.board.apply(
        paddler_core::status::StatusEvent::Upsert(crate::pool::spec("a", Some(3))),
        pool.now,
    );
    assert!(heard(), "the limit rose");
    pool.board.apply(
        paddler_core::status::StatusEvent::Upsert(crate::pool::spec("a", Some(2))),
        pool.now,
    );
    assert!(!heard(), "the limit fell");
}

#[test]
fn an_index_beyond_what_is_there_has_no_load() {
    let small = Pool::new(&[("a", None)]);
    let names: Vec<_> = (0..130).map(|n| (format!("u{n}"), None)).collect();
    let names: Vec<_> = names
        .iter()
        .map(|(name, limit)| (name.as_str(), *limit))
        .collect();
    let large = Pool::new(&names);
    let far: UpstreamIndex = large.snapshot.index("u129").unwrap();
    assert_eq!(
        small.snapshot.ledger().own_load(far),
        paddler_core::upstream::OwnLoad::default()
    );
}
