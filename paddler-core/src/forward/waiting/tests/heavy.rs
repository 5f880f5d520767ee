//! Who pays for a place that nobody took, and who gets one that is too small for the first?

use std::collections::VecDeque;

use super::*;

fn with(upstreams: &[(&str, u32)], wait: Duration) -> (StatusBoard, Places) {
    let (clock, mut board) = (Clock::new(), StatusBoard::new(trees::gateway()));
    for (id, places) in upstreams {
        let models = Models::Listed(vec![ModelEntry::new(format!("of {id}"))]);
        board.apply(
            StatusEvent::Upsert(upstream(id, *places).models(models)),
            clock.now(),
        );
    }
    board.publish(clock.now());
    let limits = QueueLimits::new(1_000, 1 << 20, wait);
    let places = Places::new(board.published(), clock, limits, 1);
    (board, places)
}

fn of(tenant: &str, upstream: &str, weight: u32) -> RequestFacts {
    let mut facts = RequestFacts::new();
    (facts.tenant, facts.weight) = (Some(tenant.into()), weight);
    facts.model = Some(format!("of {upstream}").into());
    facts
}

#[tokio::test(start_paused = true)]
async fn a_place_that_nobody_took_is_not_charged() {
    let (_board, places) = with(&[("a", 1)], Duration::from_secs(100));
    let tried = Tried::default();
    let (one, two) = (of("one", "a", 1), of("two", "a", 1));
    let held = places.place(&of("holder", "a", 1), &tried).await.unwrap();
    let mut leaves = Box::pin(places.place(&one, &tried));
    let mut ones = pin!(places.place(&one, &tried));
    let mut twos = pin!(places.place(&two, &tried));
    assert!(poll_once(&mut leaves).await.is_pending());
    assert!(poll_once(&mut ones).await.is_pending());
    assert!(poll_once(&mut twos).await.is_pending());
    drop(held);
    places.hand_out();
    assert_eq!(waiting(&places), 2, "it was handed to the first of one");
    drop(leaves);
    // Both tenants have had nothing, so it is still the turn of the one who came first.
    places.hand_out();
    assert!(poll_once(&mut ones).await.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_heavy_request_gets_its_turn_beside_light_ones_that_never_end() {
    let (_board, places) = with(&[("a", 4)], Duration::from_secs(100));
    let tried = Tried::default();
    let (light, heavy) = (of("light", "a", 1), of("heavy", "a", 4));
    let mut held = VecDeque::new();
    for _ in 0..4 {
        held.push_back(places.place(&light, &tried).await.unwrap());
    }
    let mut waits = pin!(places.place(&heavy, &tried));
    assert!(poll_once(&mut waits).await.is_pending());
    let mut passed = 0;
    let mut later = Vec::new();
    while let Some(ends) = held.pop_front() {
        let mut next = Box::pin(places.place(&light, &tried));
        assert!(poll_once(&mut next).await.is_pending());
        drop(ends);
        places.hand_out();
        match poll_once(&mut next).await {
            Poll::Ready(place) => {
                passed += 1;
                held.push_back(place.unwrap());
            }
            Poll::Pending => {
                if later.is_empty() {
                    assert_eq!(places.held_back(), [UpstreamId::new("a").unwrap()]);
                }
                later.push(next);
            }
        }
    }
    let Poll::Ready(Ok(place)) = poll_once(&mut waits).await else {
        panic!("everything was free")
    };
    assert_eq!((passed, place.lease.weight()), (4, 4));
    assert!(places.held_back().is_empty(), "he has got it");
    drop(place);
    places.hand_out();
    assert_eq!(later.len(), 4);
    for next in &mut later {
        assert!(
            poll_once(next).await.is_ready(),
            "what was held back is free again"
        );
    }
}

/// A heavy one for whom room is held back, in a pool of two; and the light ones beside it.
#[tokio::test(start_paused = true)]
async fn while_room_is_held_back_others_go_elsewhere_wait_in_good_hope_and_get_it_when_he_leaves() {
    let (_board, places) = with(&[("a", 2), ("b", 1)], Duration::from_secs(100));
    let tried = Tried::default();
    let (light, heavy, elsewhere) = (of("light", "a", 1), of("heavy", "a", 2), of("light", "b", 1));
    let mut held = VecDeque::new();
    for _ in 0..2 {
        held.push_back(places.place(&light, &tried).await.unwrap());
    }
    let mut waits = Box::pin(places.place(&heavy, &tried));
    assert!(poll_once(&mut waits).await.is_pending());
    for _ in 0..4 {
        let mut next = Box::pin(places.place(&light, &tried));
        assert!(poll_once(&mut next).await.is_pending());
        held.pop_front();
        places.hand_out();
        let Poll::Ready(Ok(place)) = poll_once(&mut next).await else {
            panic!("it goes past him")
        };
        held.push_back(place);
    }
    held.pop_front();
    places.hand_out();
    // The only one who has the model is kept for somebody else: that is no reason to say that nobody has it.
    let mut kept_out = Box::pin(places.place(&light, &tried));
    assert!(poll_once(&mut kept_out).await.is_pending());
    let until = places.hand_out();
    assert!(until < Moment::from_millis(100_000));
    assert!(poll_once(&mut kept_out).await.is_pending());
    let mut other = Box::pin(places.place(&elsewhere, &tried));
    assert!(poll_once(&mut other).await.is_ready(), "nothing is held up there");
    let woken = async || {
        let mut notified = pin!(places.wake.notify.notified());
        poll_once(&mut notified).await.is_ready()
    };
    woken().await;
    assert!(!woken().await);
    drop(waits);
    assert!(woken().await, "whoever hands out has to know that more is free");
    places.hand_out();
    assert!(poll_once(&mut kept_out).await.is_ready());
}

#[tokio::test(start_paused = true)]
async fn what_a_place_counts_is_what_is_charged_for_it() {
    let (_board, places) = with(&[("a", 2)], Duration::from_secs(100));
    let tried = Tried::default();
    let held = places.place(&of("holder", "a", 2), &tried).await.unwrap();
    let absurd = of("one", "a", 1_000_000);
    let mut waits = pin!(places.place(&absurd, &tried));
    assert!(poll_once(&mut waits).await.is_pending());
    drop(held);
    places.hand_out();
    let Poll::Ready(Ok(place)) = poll_once(&mut waits).await else {
        panic!("it fits when nothing else is there")
    };
    assert!(place.owed.unwrap().into_charge().tokens() < 2_000);
}
