//! Links that are slow, or hold packets back for a while.

use std::time::Duration;

use super::client::{All, many};
use super::world::{Notes, run_until, world};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_slow_link_costs_time_and_no_request() {
    let (notes, all) = (Notes::default(), All::default());
    let mut sim = world(4, &notes);
    sim.client("client", many(200, Duration::from_millis(100), all.clone()));
    run_until(&mut sim, seconds(5));
    sim.set_link_latency("router", "engine-a", Duration::from_millis(300));
    sim.run().unwrap();
    let all = all.lock().unwrap().clone();
    assert_eq!(all.len(), 200);
    assert!(all.iter().all(|got| got.status == 200), "{all:?}");
    let slow = all.iter().filter(|got| got.took >= Duration::from_millis(600));
    assert!(
        slow.clone().all(|got| got.text.contains("engine-a")),
        "only its own are slow"
    );
    assert!(slow.count() > 0);
    assert!(
        all.iter().all(|got| notes.times(&got.id) == 1),
        "nothing is sent twice"
    );
}

#[test]
fn packets_that_are_held_back_delay_an_answer_and_do_not_double_it() {
    let (notes, all) = (Notes::default(), All::default());
    let mut sim = world(5, &notes);
    sim.client("client", many(100, Duration::from_millis(100), all.clone()));
    run_until(&mut sim, seconds(5));
    sim.hold("router", "engine-b");
    // Shorter than a poll may take: nobody is taken to be gone.
    run_until(&mut sim, seconds(7));
    sim.release("router", "engine-b");
    sim.run().unwrap();
    let all = all.lock().unwrap().clone();
    assert_eq!(all.len(), 100);
    for got in &all {
        assert_eq!((got.status, notes.times(&got.id)), (200, 1), "{got:?}");
        assert!(got.took < seconds(4), "{got:?}");
    }
    assert!(
        all.iter().any(|got| got.took > Duration::from_millis(500)),
        "some were held"
    );
}
