//! What does the board make of what it is told?

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use paddler_core::Moment;
use paddler_core::request::Facts;
use paddler_core::schedule::{Ask, Class, Outcome, Reason, Scratch, trees};
use paddler_core::status::{
    Applied, BoardOptions, Degraded, Failure, FailureKind, Report, Signal, Snapshot, StatusBoard, StatusEvent,
};
use paddler_core::upstream::{Ledger, Models, UpstreamId, UpstreamSpec};

const NOW: Moment = Moment::from_millis(500);

fn id(name: &str) -> UpstreamId {
    UpstreamId::new(name).unwrap()
}

fn spec(name: &str, url: &str) -> UpstreamSpec {
    UpstreamSpec::new(name, url).unwrap().models(Models::Any)
}

fn join(name: &str) -> StatusEvent {
    StatusEvent::Upsert(spec(name, "http://127.0.0.1:1"))
}

fn said(name: &str, report: Report) -> StatusEvent {
    StatusEvent::Report {
        id: id(name),
        report,
        sample: None,
    }
}

fn failed(name: &str, kind: FailureKind) -> StatusEvent {
    StatusEvent::Failed {
        id: id(name),
        failure: Failure::new(kind, "as expected"),
    }
}

fn board(names: &[&str]) -> StatusBoard {
    let mut board = StatusBoard::new(trees::balancer());
    for name in names {
        assert_eq!(board.apply(join(name), NOW), Applied::Joined(id(name)));
    }
    board
}

fn pick(snapshot: &Snapshot) -> Outcome {
    let facts = Facts::new();
    snapshot.pick(&Ask::new(&facts, NOW, 1), &mut Scratch::default(), &mut ())
}

fn picked(snapshot: &Snapshot) -> Option<String> {
    let upstream = pick(snapshot).picked()?;
    snapshot.spec(upstream).map(|spec| spec.id.to_string())
}

#[test]
fn upstreams_join_change_and_leave() {
    let mut board = board(&["a"]);
    let first = board.publish(NOW);
    assert_eq!(
        (
            first.len(),
            first.generation(),
            first.find("a").unwrap().generation()
        ),
        (1, 1, 0)
    );

    let changed = UpstreamSpec::new("a", "http://127.0.0.1:2").unwrap();
    assert_eq!(
        board.apply(StatusEvent::Upsert(changed), NOW),
        Applied::Changed(id("a"))
    );
    let second = board.publish(NOW);
    let entry = second.find("a").unwrap();
    assert_eq!(
        (entry.generation(), entry.spec().url.as_str()),
        (1, "http://127.0.0.1:2")
    );
    assert_eq!(
        (first.index("a"), first.find("a").unwrap().generation()),
        (second.index("a"), 0)
    );

    assert_eq!(
        board.apply(StatusEvent::Remove(id("a")), NOW),
        Applied::Left(id("a"))
    );
    let third = board.publish(NOW);
    assert!(third.is_empty() && third.find("a").is_none() && !third.models_complete());
    assert_eq!(second.len(), 1, "a snapshot stands still");
    for event in [
        StatusEvent::Remove(id("a")),
        said("a", Report::new()),
        failed("a", FailureKind::Timeout),
    ] {
        assert_eq!(board.apply(event, NOW), Applied::Unknown(id("a")));
    }
    assert!(!board.is_dirty(), "nothing has changed");
}

#[test]
fn the_same_spec_again_is_no_change() {
    #[derive(Debug)]
    struct Price;

    let mut board = board(&["a"]);
    board.publish(NOW);
    let mut priced = spec("a", "http://127.0.0.1:1");
    priced.extensions.insert(Price);
    let mut priced_anew = spec("a", "http://127.0.0.1:1");
    priced_anew.extensions.insert(Price);
    let limited = priced_anew.clone().max_in_flight(2);
    for (spec, changes) in [
        (spec("a", "http://127.0.0.1:1"), false),
        (priced.clone(), true),
        (priced, false),
        (priced_anew.clone(), true),
        (priced_anew, false),
        (limited.clone(), true),
        (limited.clone().label("zone", "a"), true),
        (limited, true),
    ] {
        let before = board.publish(NOW).find("a").unwrap().generation();
        let applied = board.apply(StatusEvent::Upsert(spec), NOW);
        let expected = if changes {
            Applied::Changed(id("a"))
        } else {
            Applied::Unchanged(id("a"))
        };
        assert_eq!((applied, board.is_dirty()), (expected, changes));
        assert_eq!(
            board.publish(NOW).find("a").unwrap().generation(),
            before + u64::from(changes)
        );
    }
}

#[test]
fn a_change_keeps_what_is_open_and_what_was_said() {
    let mut board = board(&["a"]);
    let mut report = Report::new();
    report.running = Some(3);
    board.apply(said("a", report), NOW);
    let snapshot = board.publish(NOW);
    let lease = snapshot.lease(snapshot.index("a").unwrap(), &Facts::new(), NOW);
    board.apply(join("a"), NOW);
    let snapshot = board.publish(NOW);
    assert_eq!(snapshot.find("a").unwrap().others(), 3);
    assert_eq!(board.ledger().own_load(snapshot.index("a").unwrap()).weight, 1);
    drop(lease);
}

#[test]
fn limits_take_effect_before_the_publish() {
    let mut board = board(&["a"]);
    let snapshot = board.publish(NOW);
    let index = snapshot.index("a").unwrap();
    let mut report = Report::new();
    report.slots_total = Some(0);
    board.apply(said("a", report), NOW);
    assert!(snapshot.lease(index, &Facts::new(), NOW).is_none());
    let free = UpstreamSpec::new("a", "http://127.0.0.1:1")
        .unwrap()
        .max_in_flight(1);
    board.apply(StatusEvent::Upsert(free), NOW);
    assert!(snapshot.lease(index, &Facts::new(), NOW).is_some());
}

#[test]
fn who_leaves_is_reserved_no_more_before_the_publish() {
    let mut board = board(&["a"]);
    let snapshot = board.publish(NOW);
    board.apply(StatusEvent::Remove(id("a")), NOW);
    let facts = Facts::new();
    let ending = snapshot
        .reserve(&Ask::new(&facts, NOW, 1), &mut Scratch::default(), &mut ())
        .unwrap_err();
    assert_eq!((ending.class, ending.reason), (Class::Later, Reason::Contended));
}

#[test]
fn draining_takes_effect_at_once_and_both_ways() {
    let mut board = board(&["a"]);
    let snapshot = board.publish(NOW);
    assert_eq!(picked(&snapshot).as_deref(), Some("a"));
    assert!(board.set_draining("a", true));
    assert_eq!(picked(&snapshot), None);
    assert!(!board.is_dirty());
    board.apply(said("a", Report::new()), NOW);
    board.apply(join("a"), NOW);
    assert_eq!(
        picked(&board.publish(NOW)),
        None,
        "a report or a new spec does not end it"
    );
    assert!(board.set_draining("a", false));
    assert_eq!(picked(&snapshot).as_deref(), Some("a"));
    assert!(!board.set_draining("nobody", true));
}

#[test]
fn who_drained_left_and_came_back_drains_also_at_another_place() {
    for open in [false, true] {
        let mut board = board(&["a"]);
        let old = board.publish(NOW);
        let lease = old
            .lease(old.index("a").unwrap(), &Facts::new(), NOW)
            .filter(|_| open);
        board.set_draining("a", true);
        board.apply(StatusEvent::Remove(id("a")), NOW);
        board.apply(join("a"), NOW);
        let new = board.publish(NOW);
        assert_eq!(old.index("a") == new.index("a"), !open);
        assert_eq!(picked(&new), None);
        board.set_draining("a", false);
        assert_eq!(picked(&new).as_deref(), Some("a"));
        drop(lease);
    }
}

#[test]
fn a_place_is_used_again_once_it_is_quiet_the_lowest_first() {
    let mut board = board(&["a", "b", "c"]);
    let old = board.publish(NOW);
    let place = |snapshot: &Snapshot, name: &str| snapshot.index(name).unwrap().get();
    let mut lease = old.lease(old.index("a").unwrap(), &Facts::new(), NOW).unwrap();
    for name in ["c", "a", "b"] {
        board.apply(StatusEvent::Remove(id(name)), NOW);
    }
    // `a` has an open lease, so its place is kept, and it comes back elsewhere.
    for name in ["a", "d", "e"] {
        board.apply(join(name), NOW);
    }
    let new = board.publish(NOW);
    assert_eq!([place(&new, "a"), place(&new, "d"), place(&new, "e")], [1, 2, 3]);
    assert_eq!(board.ledger().own_load(new.index("a").unwrap()).weight, 0);

    // A cancelled request keeps the place until it has settled.
    lease.sent();
    drop(lease);
    board.expire(NOW);
    board.apply(join("f"), NOW);
    assert_eq!(place(&board.publish(NOW), "f"), 4);
    board.expire(NOW.saturating_add(Duration::from_secs(10)));
    board.apply(join("g"), NOW);
    assert_eq!(place(&board.publish(NOW), "g"), 0);
}

#[test]
fn a_full_board_says_so_and_goes_on() {
    let mut board = StatusBoard::new(trees::balancer());
    for n in 0..Ledger::CAPACITY {
        assert!(matches!(
            board.apply(join(&format!("u{n}")), NOW),
            Applied::Joined(_)
        ));
    }
    let full = board.publish(NOW);
    assert_eq!(full.len(), Ledger::CAPACITY);
    assert_eq!(board.apply(join("one-more"), NOW), Applied::Full(id("one-more")));
    assert!(!board.is_dirty());
    assert_eq!(
        board.apply(StatusEvent::Upsert(spec("u7", "http://127.0.0.1:2")), NOW),
        Applied::Changed(id("u7")),
        "who is there can change"
    );

    let last = full.index(&format!("u{}", Ledger::CAPACITY - 1)).unwrap();
    assert!(full.lease(last, &Facts::new(), NOW).is_some());
    board.apply(StatusEvent::Remove(id("u7")), NOW);
    assert_eq!(
        board.apply(join("one-more"), NOW),
        Applied::Joined(id("one-more"))
    );
    assert_eq!(board.publish(NOW).index("one-more"), full.index("u7"));
}

#[test]
fn what_the_old_address_said_is_not_true_of_the_new_one() {
    let mut board = board(&["a"]);
    let mut report = Report::new();
    report.slots_total = Some(2);
    board.apply(said("a", report.clone()), NOW);
    let asked = board.publish(NOW).sample("a", NOW);
    board.apply(
        StatusEvent::Upsert(spec("a", "http://127.0.0.1:1").label("zone", "a")),
        NOW,
    );
    assert_eq!(board.publish(NOW).find("a").unwrap().limit(), Some(2));

    board.apply(StatusEvent::Upsert(spec("a", "http://127.0.0.1:2")), NOW);
    let entry = board.publish(NOW).find("a").unwrap().clone();
    assert!(entry.report().is_none() && entry.limit().is_none());
    let late = StatusEvent::Report {
        id: id("a"),
        report,
        sample: asked,
    };
    assert_eq!(
        board.apply(late, NOW),
        Applied::Overtaken(id("a")),
        "it was asked of the old one"
    );
}

#[test]
fn publishes_are_due_at_most_every_so_often() {
    let mut options = BoardOptions::default();
    options.publish_every = Duration::from_millis(10);
    let mut board = StatusBoard::with_options(trees::balancer(), options);
    assert_eq!((board.is_dirty(), board.publish_due()), (false, None));
    board.apply(join("a"), NOW);
    assert_eq!(
        board.publish_due(),
        Some(Moment::ZERO),
        "the first one is due at once"
    );
    board.publish(NOW);
    assert_eq!((board.is_dirty(), board.publish_due()), (false, None));
    for _ in 0..100 {
        board.apply(said("a", Report::new()), NOW);
    }
    assert_eq!(
        board.publish_due(),
        Some(NOW.saturating_add(Duration::from_millis(10)))
    );
    board.apply(StatusEvent::Remove(id("nobody")), NOW);
    board.publish(NOW);
    board.apply(StatusEvent::Remove(id("nobody")), NOW);
    assert_eq!(board.publish_due(), None, "nothing has changed");
    board.set_tree(trees::gateway());
    assert!(board.publish_due().is_some());
    let snapshot = board.publish(NOW);
    assert_eq!(snapshot.tree().to_string(), trees::gateway().to_string());
}

#[test]
fn readers_find_what_was_published_last() {
    let mut board = board(&["a"]);
    let published = board.published();
    assert_eq!((published.load().generation(), published.load().len()), (0, 0));
    let snapshot = board.publish(NOW);
    assert!(Arc::ptr_eq(&snapshot, &published.load_full()));
    assert_eq!((snapshot.generation(), snapshot.published()), (1, NOW));
}

fn missing(signal: Signal, expected: &str, found: &str) -> Degraded {
    Degraded {
        signal,
        expected: expected.into(),
        found: found.into(),
    }
}

#[test]
fn a_missing_signal_is_said_once() {
    let mut board = board(&["a"]);
    let mut say = |degraded: &[Degraded]| {
        let mut report = Report::new();
        report.degraded = degraded.to_vec();
        match board.apply(said("a", report), NOW) {
            Applied::Reported { degraded, .. } => degraded,
            other => panic!("{other:?}"),
        }
    };
    let waiting = missing(Signal::Waiting, "queue_depth", "missing");
    let slots = missing(Signal::Slots, "/slots", "501: not supported");
    assert_eq!(say(std::slice::from_ref(&waiting)), vec![waiting.clone()]);
    assert_eq!(say(std::slice::from_ref(&waiting)), []);
    assert_eq!(say(&[slots.clone(), waiting.clone()]), vec![slots.clone()]);
    let otherwise = missing(Signal::Slots, "/slots", "503: busy");
    assert_eq!(
        say(&[otherwise, waiting.clone()]),
        [],
        "missing in another way is no news"
    );
    let elsewhere = missing(Signal::Slots, "slots_total", "missing");
    assert_eq!(say(&[elsewhere.clone(), waiting.clone()]), vec![elsewhere]);
    assert_eq!(say(&[]), []);
    assert_eq!(
        say(std::slice::from_ref(&waiting)),
        [waiting],
        "it was there in between"
    );
}

#[test]
fn a_failed_poll_is_no_reason_to_say_it_again() {
    let mut board = board(&["a"]);
    let mut report = Report::new();
    report.degrade(Signal::Waiting, "queue_depth", "missing");
    board.apply(said("a", report.clone()), NOW);
    board.apply(failed("a", FailureKind::Timeout), NOW);
    assert_eq!(
        board.apply(said("a", report), NOW),
        Applied::Reported {
            id: id("a"),
            health: None,
            degraded: Vec::new()
        }
    );
}

/// The failures in a row, and whether nobody is there after them.
#[test]
fn two_refused_connections_in_a_row_mean_that_nobody_is_there() {
    use FailureKind::{Silent, Timeout, Unreachable, Unreadable};
    for (failures, unreachable) in [
        (&[][..], false),
        (&[Unreachable], false),
        (&[Unreachable, Unreachable], true),
        (&[Unreachable, Unreachable, Unreachable], true),
        (&[Timeout, Timeout, Timeout], false),
        (&[Unreadable, Unreadable], false),
        (&[Timeout, Unreachable], false),
        (&[Timeout, Unreachable, Unreachable], true),
        (&[Unreachable, Timeout, Unreachable], false),
        (&[Unreachable, Unreachable, Timeout], false),
        (&[Silent], true),
    ] {
        let mut board = board(&["a"]);
        for (n, kind) in failures.iter().enumerate() {
            let failures = n as u32 + 1;
            assert_eq!(
                board.apply(failed("a", *kind), NOW),
                Applied::Failed {
                    id: id("a"),
                    failures,
                    failure: Failure::new(*kind, "as expected"),
                }
            );
        }
        let snapshot = board.publish(NOW);
        let entry = snapshot.find("a").unwrap();
        assert_eq!(entry.is_unreachable(), unreachable, "{failures:?}");
        assert_eq!(entry.failures() as usize, failures.len());
        assert_eq!(
            entry.last_failure().map(|failure| failure.kind),
            failures.last().copied()
        );
        assert_eq!(pick(&snapshot).picked().is_none(), unreachable, "{failures:?}");

        board.apply(said("a", Report::new()), NOW);
        let snapshot = board.publish(NOW);
        let entry = snapshot.find("a").unwrap();
        assert_eq!(
            (entry.failures(), entry.last_failure(), entry.is_unreachable()),
            (0, None, false)
        );
        assert_eq!(picked(&snapshot).as_deref(), Some("a"));
    }
}

#[test]
fn a_failure_leaves_the_last_report_to_age() {
    let mut board = board(&["a"]);
    let mut report = Report::new();
    report.running = Some(2);
    board.apply(said("a", report), NOW);
    board.apply(failed("a", FailureKind::Timeout), Moment::from_millis(900));
    let snapshot = board.publish(Moment::from_millis(900));
    let entry = snapshot.find("a").unwrap();
    assert_eq!(entry.report().and_then(|report| report.running), Some(2));
    assert_eq!((entry.reported_at(), entry.others()), (NOW, 2));
}

#[test]
fn a_report_is_as_old_as_its_sample() {
    let mut board = board(&["a"]);
    let sample = board.publish(NOW).sample("a", NOW);
    let event = StatusEvent::Report {
        id: id("a"),
        report: Report::new(),
        sample,
    };
    board.apply(event, Moment::from_millis(900));
    assert_eq!(
        board
            .publish(Moment::from_millis(900))
            .find("a")
            .unwrap()
            .reported_at(),
        NOW
    );
}

/// What the user says of the models counts from the start, before the upstream has said anything.
#[test]
fn models_of_the_spec_are_known_before_any_report() {
    let mut board = board(&["a"]);
    let snapshot = board.publish(NOW);
    assert_eq!(snapshot.find("a").unwrap().models(), Some(&Models::Any));
    assert!(snapshot.models_complete());
    board.apply(
        StatusEvent::Upsert(UpstreamSpec::new("b", "http://127.0.0.1:1").unwrap()),
        NOW,
    );
    assert!(!board.publish(NOW).models_complete());
}

/// One that refuses our key says that it is ready, and nothing else: whoever looks has to see why nobody is sent there.
#[cfg(feature = "proxy")]
#[test]
fn what_an_upstream_does_not_tell_is_seen_in_its_status() {
    use paddler_core::observe::UpstreamStatus;

    let mut board = board(&["a", "b"]);
    let missing = Degraded {
        signal: Signal::Slots,
        expected: "/slots".to_owned(),
        found: "401: the upstream wants a key".to_owned(),
    };
    let mut report = Report::new();
    report.degraded.push(missing.clone());
    board.apply(said("a", report), NOW);
    board.apply(said("b", Report::new()), NOW);
    let snapshot = board.publish(NOW);
    let status = |name| UpstreamStatus::find(&snapshot, name, NOW).unwrap();
    assert_eq!(status("a").degraded, [missing]);
    assert!(status("b").degraded.is_empty());
}
