//! An engine that is gone from one moment to the next, and comes back.

use std::time::Duration;

use super::client::{All, many};
use super::world::{Notes, run_until, world};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn an_engine_that_crashes_costs_only_what_it_had_begun_and_is_used_again_when_it_is_back() {
    let (notes, all) = (Notes::default(), All::default());
    let mut sim = world(6, &notes);
    sim.client("client", many(400, Duration::from_millis(50), all.clone()));
    run_until(&mut sim, seconds(6));
    sim.crash("engine-c");
    run_until(&mut sim, seconds(12));
    sim.bounce("engine-c");
    sim.run().unwrap();
    let all = all.lock().unwrap().clone();
    assert_eq!(all.len(), 400);
    let failed: Vec<_> = all.iter().filter(|got| got.status != 200).collect();
    assert!(failed.len() <= 4, "no more than it may have at once: {failed:?}");
    for got in failed {
        let at_the_crash = got.sent <= seconds(6) && got.sent + got.took >= seconds(6);
        assert!(at_the_crash && notes.times(&got.id) >= 1, "it had begun: {got:?}");
        assert!(
            got.status == 502 || got.status == 504,
            "and the client is told: {got:?}"
        );
    }
    assert_eq!(notes.began("engine-c", seconds(6), seconds(12)), 0);
    assert!(
        notes.began("engine-c", seconds(12), seconds(18)) > 0,
        "it is used again"
    );
}
