//! Is nobody sent away too soon, and nobody kept waiting in vain?

use super::*;
use crate::forward::no_place::Circumstances;
use crate::health::Verdict;
use crate::request::ModelRules;

fn listed(names: &[&str]) -> Models {
    Models::Listed(names.iter().map(|name| ModelEntry::new(*name)).collect())
}

/// Upstreams with one place each, and the models that they list.
fn with(upstreams: &[(&str, &[&str])]) -> (StatusBoard, Places) {
    let (clock, mut board) = (Clock::new(), StatusBoard::new(trees::gateway()));
    for (id, models) in upstreams {
        joins(&mut board, id, models, &clock);
    }
    let mut limits = QueueLimits::new(9, 1 << 20, Duration::from_secs(10));
    limits.max_wait_starting = Duration::from_secs(60);
    let places = Places::new(board.published(), clock, limits, 1);
    (board, places)
}

fn joins(board: &mut StatusBoard, id: &str, models: &[&str], clock: &Clock) {
    let spec = upstream(id, 1).models(listed(models));
    board.apply(StatusEvent::Upsert(spec), clock.now());
    board.publish(clock.now());
}

fn leaves(board: &mut StatusBoard, of: &str, clock: &Clock) {
    board.apply(StatusEvent::Remove(id(of)), clock.now());
    board.publish(clock.now());
}

fn id(of: &str) -> UpstreamId {
    UpstreamId::new(of).unwrap()
}

fn asks_for(model: &str) -> RequestFacts {
    let mut facts = RequestFacts::new();
    facts.model = Some(model.into());
    facts
}

/// Left out by these until the end of days.
fn refused_by(upstreams: &[&str]) -> Tried {
    let mut tried = Tried::default();
    for upstream in upstreams {
        tried.add(id(upstream), Moment::ZERO, Some(Duration::MAX));
    }
    tried
}

/// Whether it is refused without waiting.
async fn is_refused(places: &Places, facts: &RequestFacts, tried: &Tried) -> bool {
    let mut place = pin!(places.place(facts, tried));
    matches!(poll_once(&mut place).await, Poll::Ready(Err(_)))
}

#[tokio::test(start_paused = true)]
async fn who_will_not_wait_gets_what_is_idle_though_others_wait_for_another_model() {
    let (_board, places) = with(&[("a", &["x"]), ("b", &["y"])]);
    let (x, tried) = (asks_for("x"), Tried::default());
    let _held = places.place(&x, &tried).await.unwrap();
    let mut waits = pin!(places.place(&x, &tried));
    assert!(poll_once(&mut waits).await.is_pending());
    let mut at_once = asks_for("y");
    (at_once.arrived, at_once.deadline) = (places.clock.now(), Some(places.clock.now()));
    let mut place = Box::pin(places.place(&at_once, &tried));
    let Poll::Ready(Ok(held)) = poll_once(&mut place).await else {
        panic!("b is idle")
    };
    assert_eq!(held.lease.upstream(), &id("b"));
    // And nobody waits who would not.
    let mut late = pin!(places.place(&at_once, &tried));
    assert!(poll_once(&mut late).await.is_pending());
    places.hand_out();
    assert!(matches!(poll_once(&mut late).await, Poll::Ready(Err(_))));
    assert_eq!(waiting(&places), 1);
}

#[tokio::test(start_paused = true)]
async fn when_to_come_again_is_said_by_those_to_whom_the_request_may_go() {
    // Of one who is idle, and of whom the request may not make use, nothing is said.
    let (board, places) = with(&[("a", &["x"]), ("b", &["x"]), ("idle", &["x"])]);
    let (mut x, tried) = (asks_for("x"), Tried::default());
    for (upstream, seconds) in [("a", 12), ("b", 14)] {
        x.only = Some(Arc::new([id(upstream)]));
        let mut held = places.place(&x, &tried).await.unwrap();
        let asked = Verdict::Busy(Some(Duration::from_secs(seconds)));
        held.lease.report(asked, places.clock.now());
    }
    let Err(none) = places.place(&x, &tried).await else {
        panic!("both are paused")
    };
    let refusal = none.refusal(&Circumstances {
        places: &places,
        published: &board.published(),
        now: places.clock.now(),
        retry_after: Duration::from_secs(1),
        facts: &x,
        models: &ModelRules::default(),
        client: None,
    });
    assert_eq!(refusal.reason, "upstreams_busy");
    assert_eq!(refusal.retry_after, Some(Duration::from_secs(14)));
}

#[tokio::test(start_paused = true)]
async fn who_was_refused_by_one_that_has_left_waits_for_the_one_that_came() {
    let (mut board, places) = with(&[("a", &["x"])]);
    let (x, tried) = (asks_for("x"), refused_by(&["a"]));
    assert!(is_refused(&places, &x, &tried).await, "there is nobody else");
    leaves(&mut board, "a", &places.clock);
    joins(&mut board, "b", &["x"], &places.clock);
    let held = places.place(&x, &Tried::default()).await.unwrap();
    let mut waits = pin!(places.place(&x, &tried));
    assert!(poll_once(&mut waits).await.is_pending(), "b is merely busy");
    drop(held);
    places.hand_out();
    assert!(matches!(poll_once(&mut waits).await, Poll::Ready(Ok(_))));
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_when_it_becomes_known_that_it_is_in_vain() {
    let (mut board, places) = with(&[("a", &["x"]), ("b", &["x"]), ("c", &["y"])]);
    let (x, untried, tried) = (asks_for("x"), Tried::default(), refused_by(&["a"]));
    let _held = [
        places.place(&x, &untried).await.unwrap(),
        places.place(&x, &untried).await.unwrap(),
    ];
    let mut waits = pin!(places.place(&x, &tried));
    assert!(poll_once(&mut waits).await.is_pending(), "for b");
    places.hand_out();
    leaves(&mut board, "b", &places.clock);
    // Soon after a round for all there is none yet, but it is known when.
    let until = places.hand_out();
    tokio::time::sleep_until(places.clock.instant(until)).await;
    places.hand_out();
    assert!(matches!(poll_once(&mut waits).await, Poll::Ready(Err(_))));
}

#[tokio::test(start_paused = true)]
async fn only_those_count_who_could_serve_the_model() {
    let (mut board, places) = with(&[("a", &["x"]), ("b", &["y"]), ("c", &["x", "y"])]);
    let clock = places.clock;
    let x = asks_for("x");
    assert!(is_refused(&places, &x, &refused_by(&["a", "c"])).await);
    // Who is drained may be let back in at any time.
    assert!(board.set_draining("c", true));
    board.publish(clock.now());
    let tried = refused_by(&["a"]);
    let mut waits = Box::pin(places.place(&x, &tried));
    assert!(poll_once(&mut waits).await.is_pending());
    drop(waits);
    // A model that nobody lists may be one of those that were not told yet.
    let spec = upstream("d", 1);
    board.apply(StatusEvent::Upsert(spec), clock.now());
    board.publish(clock.now());
    let z = asks_for("z");
    let tried = refused_by(&["a", "b", "c"]);
    let mut waits = Box::pin(places.place(&z, &tried));
    assert!(poll_once(&mut waits).await.is_pending());
    drop(waits);
    assert!(is_refused(&places, &z, &refused_by(&["d"])).await);
}

#[tokio::test(start_paused = true)]
async fn of_two_one_may_be_left_out_and_the_other_want_to_be_left_alone() {
    let (_board, places) = with(&[("a", &["x"]), ("b", &["x"]), ("c", &["y"])]);
    let (x, tried) = (asks_for("x"), refused_by(&["a"]));
    let mut held = places.place(&x, &tried).await.unwrap();
    let now = places.clock.now();
    held.lease
        .report(crate::health::Verdict::Busy(Some(Duration::from_secs(15))), now);
    held.lease.complete();
    assert!(is_refused(&places, &x, &tried).await, "longer than anybody waits");
    tokio::time::sleep(Duration::from_secs(6)).await;
    let mut waits = pin!(places.place(&x, &tried));
    assert!(
        poll_once(&mut waits).await.is_pending(),
        "nine seconds are worth it"
    );
}
