//! Every order of events, one by one: nobody hands out by himself here.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll, Wake as WakeUp};
use std::time::Duration;

use async_trait::async_trait;
use http::{Request, Response};

use super::*;
use crate::forward::{Body, BoxError};
use crate::schedule::Reason;
use crate::schedule::filters::slot;
use crate::schedule::{Node, Signals, Tree, filter_fn, trees};
use crate::status::{StatusBoard, StatusEvent};
use crate::upstream::{ModelEntry, Models, Transport, Upstream, UpstreamId, UpstreamSpec};

mod heavy;
mod vain;

#[derive(Debug)]
struct Nobody;

#[async_trait]
impl Upstream for Nobody {
    async fn call(&self, _request: Request<Body>) -> Result<Response<Body>, BoxError> {
        Err("nobody is there".into())
    }
}

/// An upstream with so many places, which does nothing.
fn upstream(id: &str, places: u32) -> UpstreamSpec {
    let spec = UpstreamSpec::new(id, "http://127.0.0.1:9").unwrap();
    let mut spec = spec.max_in_flight(places);
    spec.extensions.insert(Transport(Arc::new(Nobody)));
    spec
}

/// One place at one upstream.
fn one_place() -> (StatusBoard, Places) {
    let (clock, mut board) = (Clock::new(), StatusBoard::new(trees::balancer()));
    board.apply(StatusEvent::Upsert(upstream("a", 1)), clock.now());
    board.publish(clock.now());
    let limits = QueueLimits::new(9, 1 << 20, Duration::from_secs(10));
    let places = Places::new(board.published(), clock, limits, 1);
    (board, places)
}

fn waiting(places: &Places) -> usize {
    places.waiting().iter().map(|waits| waits.waiting).sum()
}

async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx))).await
}

#[tokio::test(start_paused = true)]
async fn an_arrival_does_not_take_what_one_who_waits_can_have() {
    let (_board, places) = one_place();
    let (facts, tried) = (RequestFacts::new(), Tried::default());
    let first = places.place(&facts, &tried).await.unwrap();
    let mut waits = pin!(places.place(&facts, &tried));
    assert!(poll_once(&mut waits).await.is_pending());
    drop(first);
    let mut arrives = pin!(places.place(&facts, &tried));
    assert!(poll_once(&mut arrives).await.is_pending());
    let Poll::Ready(Ok(second)) = poll_once(&mut waits).await else {
        panic!("it was his")
    };
    assert_eq!(waiting(&places), 1);
    drop(second);
    places.hand_out();
    assert!(matches!(poll_once(&mut arrives).await, Poll::Ready(Ok(_))));
    assert_eq!(waiting(&places), 0);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_was_handed_to_one_who_leaves_is_free_again() {
    let (_board, places) = one_place();
    let (facts, tried) = (RequestFacts::new(), Tried::default());
    let first = places.place(&facts, &tried).await.unwrap();
    {
        let mut leaves = pin!(places.place(&facts, &tried));
        assert!(poll_once(&mut leaves).await.is_pending());
        drop(first);
        places.hand_out();
        assert_eq!(waiting(&places), 0, "it is his, though he has not seen it");
    }
    assert!(places.place(&facts, &tried).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn whoever_hands_out_is_woken_only_when_somebody_waits() {
    let (_board, places) = one_place();
    let (facts, tried) = (RequestFacts::new(), Tried::default());
    let woken = async || {
        poll_once(&mut pin!(places.wake.notify.notified()))
            .await
            .is_ready()
    };
    drop(places.place(&facts, &tried).await.unwrap());
    assert!(!woken().await);
    let first = places.place(&facts, &tried).await.unwrap();
    let mut waits = pin!(places.place(&facts, &tried));
    assert!(poll_once(&mut waits).await.is_pending());
    assert!(woken().await, "to know until when he waits");
    let mut later = pin!(places.place(&facts, &tried));
    assert!(poll_once(&mut later).await.is_pending());
    assert!(!woken().await, "nothing has to be done sooner");
    drop(first);
    assert!(woken().await);
}

#[tokio::test(start_paused = true)]
async fn while_nothing_is_free_one_walk_speaks_for_all() {
    let walks = Arc::new(AtomicUsize::new(0));
    let counted = walks.clone();
    let count = filter_fn("count", move |_, _| counted.fetch_add(1, Relaxed) < usize::MAX);
    let tree = Node::list([Node::require(count), Node::require(slot()), Node::random()]);
    let (mut board, places) = one_place();
    board.set_tree(Tree::new(Signals::Corrected, tree).unwrap());
    board.publish(Moment::ZERO);

    let (facts, tried) = (RequestFacts::new(), Tried::default());
    let held = places.place(&facts, &tried).await.unwrap();
    let mut waiting: Vec<_> = (0..9).map(|_| Box::pin(places.place(&facts, &tried))).collect();
    for waits in &mut waiting {
        assert!(poll_once(waits).await.is_pending());
    }
    places.hand_out();
    walks.store(0, Relaxed);
    places.hand_out();
    assert_eq!(
        walks.swap(0, Relaxed),
        1,
        "the first was told that nothing is free"
    );

    drop(held);
    places.hand_out();
    assert!(
        poll_once(&mut waiting[0]).await.is_ready(),
        "what is free goes to the first"
    );
    assert_eq!(
        walks.swap(0, Relaxed),
        2,
        "and the second was told that nothing is left"
    );
}

#[tokio::test(start_paused = true)]
async fn news_that_waiting_will_not_help_reach_everybody() {
    let (mut board, places) = one_place();
    let (facts, tried) = (RequestFacts::new(), Tried::default());
    let _held = places.place(&facts, &tried).await.unwrap();
    let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(places.place(&facts, &tried))).collect();
    for waits in &mut waiting {
        assert!(poll_once(waits).await.is_pending());
    }
    places.hand_out();
    let nobody = Node::require_or(filter_fn("nobody", |_, _| false), Class::Never);
    board.set_tree(Tree::new(Signals::Corrected, Node::list([nobody, Node::random()])).unwrap());
    board.publish(places.clock.now());
    // Soon after a round for all there is none yet, but it is known when.
    let until = places.hand_out();
    tokio::time::sleep_until(places.clock.instant(until)).await;
    places.hand_out();
    for waits in &mut waiting {
        let Poll::Ready(Err(NoPlace::Ending { ending, .. })) = poll_once(waits).await else {
            panic!("it was to be told")
        };
        assert_eq!(ending.class, Class::Never);
    }
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_panics_ends_the_request_that_it_was_asked_for_and_no_other() {
    let fails = Arc::new(AtomicUsize::new(0));
    let left = fails.clone();
    let bug = filter_fn("bug", move |_, _| {
        let fine = left
            .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
            .is_err();
        assert!(fine, "a bug in a filter of the host");
        true
    });
    let tree = Node::list([Node::require(bug), Node::require(slot()), Node::random()]);
    let (mut board, places) = one_place();
    board.set_tree(Tree::new(Signals::Corrected, tree).unwrap());
    board.publish(Moment::ZERO);

    let (facts, tried) = (RequestFacts::new(), Tried::default());
    fails.store(1, Relaxed);
    let now = places.place(&facts, &tried).await.unwrap_err();
    assert_eq!(now.ending().reason, Reason::FilterFailed);

    let held = places.place(&facts, &tried).await.unwrap();
    let (mut first, mut second) = (
        pin!(places.place(&facts, &tried)),
        pin!(places.place(&facts, &tried)),
    );
    assert!(poll_once(&mut first).await.is_pending());
    assert!(poll_once(&mut second).await.is_pending());
    drop(held);
    fails.store(1, Relaxed);
    places.hand_out();
    let Poll::Ready(Err(no_place)) = poll_once(&mut first).await else {
        panic!("it was asked first")
    };
    assert_eq!(no_place.ending().reason, Reason::FilterFailed);
    places.hand_out();
    assert!(matches!(poll_once(&mut second).await, Poll::Ready(Ok(_))));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_told_with_the_node_that_it_came_from() {
    let bug = filter_fn("bug", |_, _| panic!("a bug in a filter of the host"));
    let tree = Node::list([Node::require(slot()), Node::require(bug), Node::random()]);
    let (mut board, places) = one_place();
    board.set_tree(Tree::new(Signals::Corrected, tree).unwrap());
    board.publish(Moment::ZERO);
    let (facts, tried) = (RequestFacts::new(), Tried::default());
    let ending = places.place(&facts, &tried).await.unwrap_err().ending().clone();
    assert_eq!((ending.reason, ending.node.get()), (Reason::FilterFailed, 2));
    assert!(!places.others_could(&facts, &tried), "nor is it a way out");
}

/// A host's task that goes wrong when it is woken.
struct Breaks;

impl WakeUp for Breaks {
    fn wake(self: Arc<Self>) {
        panic!("a bug in what the host waits with");
    }
}

#[tokio::test(start_paused = true)]
async fn handing_out_goes_on_after_a_panic() {
    let (_board, places) = one_place();
    let places = Arc::new(places);
    let (facts, tried) = (RequestFacts::new(), Tried::default());
    let held = places.place(&facts, &tried).await.unwrap();
    let mut breaks = Box::pin(places.place(&facts, &tried));
    let waker = Arc::new(Breaks).into();
    assert!(
        breaks
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    let handing_out = tokio::spawn(places.clone().keep_handing_out());
    drop(held);
    let soon = async |what: &str, many: usize| {
        let waits = async {
            while waiting(&places) != many {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), waits)
            .await
            .expect(what);
    };
    soon("it gets what is free", 0).await;
    let next = tokio::spawn({
        let places = places.clone();
        async move {
            places
                .place(&RequestFacts::new(), &Tried::default())
                .await
                .is_ok()
        }
    });
    soon("the next one waits", 1).await;
    // What broke has a place, and gives it back by leaving.
    drop(breaks);
    soon("so does the next one", 0).await;
    assert!(next.await.unwrap());
    handing_out.abort();
}
