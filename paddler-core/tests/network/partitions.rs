//! An engine that cannot be reached, and can again.

use std::time::Duration;

use super::client::{All, Got, many};
use super::world::{BACKOFF, ENGINES, FIRST_BYTE, NOTICED, Notes, run_until, world};

const APART: Duration = Duration::from_millis(100);

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// One run: cut off from 5 s to 14 s, asked ten times a second for 20 s.
fn cut_off_for_a_while(seed: u64) -> (Notes, Vec<Got>) {
    let (notes, all) = (Notes::default(), All::default());
    let mut sim = world(seed, &notes);
    sim.client("client", many(200, APART, all.clone()));
    run_until(&mut sim, seconds(5));
    sim.partition("router", "engine-a");
    run_until(&mut sim, seconds(14));
    sim.repair("router", "engine-a");
    sim.run().unwrap();
    let got = all.lock().unwrap().clone();
    (notes, got)
}

#[test]
fn an_engine_that_is_cut_off_gets_nothing_until_it_is_back_and_others_serve() {
    let (notes, all) = cut_off_for_a_while(1);
    assert_eq!(all.len(), 200);
    // A request that was on its way into a connection that was cut has to run out of time: it was sent.
    let noticed = seconds(5) + NOTICED;
    let doubtful = |got: &&Got| (seconds(5) - APART..noticed).contains(&got.sent);
    for got in all.iter().filter(|got| !doubtful(got)) {
        assert_eq!(got.status, 200, "{got:?}");
        assert!(got.took < seconds(1), "{got:?}");
    }
    for got in all.iter().filter(doubtful) {
        let late = got.status == 504 && got.took >= FIRST_BYTE;
        assert!(got.status == 200 || late, "{got:?}");
    }
    let late = all.iter().filter(|got| got.status == 504).count();
    assert!(late <= 4, "no more than it may have at once: {late}");
    assert_eq!(notes.began("engine-a", seconds(5), seconds(14)), 0);
    let known_again = seconds(14) + BACKOFF + NOTICED;
    assert!(
        notes.began("engine-a", seconds(14), known_again) > 0,
        "it is asked again"
    );
    for engine in ENGINES {
        assert!(notes.began(engine, seconds(0), seconds(5)) > 0, "{engine}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let (first, second) = (cut_off_for_a_while(7), cut_off_for_a_while(7));
    assert_eq!(first.0.all(), second.0.all());
    assert_eq!(first.1, second.1);
    let other = cut_off_for_a_while(8);
    assert_ne!(first.0.all(), other.0.all(), "and it is the seed that makes it");
}

#[test]
fn with_everybody_cut_off_requests_wait_and_are_served_once_somebody_is_back() {
    let (notes, all) = (Notes::default(), All::default());
    let mut sim = world(3, &notes);
    sim.client("client", many(170, APART, all.clone()));
    run_until(&mut sim, seconds(4));
    ENGINES.iter().for_each(|engine| sim.partition("router", *engine));
    run_until(&mut sim, seconds(11));
    sim.repair("router", "engine-b");
    sim.run().unwrap();
    let all = all.lock().unwrap().clone();
    assert_eq!(all.len(), 170);
    let asked_while_all_were_away = |got: &&Got| (seconds(4) + NOTICED..seconds(11)).contains(&got.sent);
    let waited: Vec<_> = all.iter().filter(asked_while_all_were_away).collect();
    assert!(!waited.is_empty());
    for got in waited {
        assert_eq!((got.status, notes.times(&got.id)), (200, 1), "{got:?}");
        assert!(got.text.contains("engine-b"), "{got:?}");
    }
    for got in all.iter().filter(|got| got.status != 200) {
        assert!(
            got.sent >= seconds(4) - APART && got.sent < seconds(4) + NOTICED,
            "{got:?}"
        );
    }
}
