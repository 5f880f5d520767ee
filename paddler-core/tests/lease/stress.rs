//! Does it all come back to zero when threads do as they like?

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use paddler_core::Moment;
use paddler_core::status::{Published, StatusEvent};
use paddler_core::upstream::{Lease, UpstreamIndex};

use crate::pool::{Pool, facts, id, report, spec};

const THREADS: u64 = 8;
const ROUNDS: u64 = 25_000;
const LIMIT: u32 = 6;
/// The last one is where leases move to, and so the one that may be over its limit.
const NAMES: [&str; 4] = ["a", "b", "c", "moved"];

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn work(published: &Published, mut random: Random) {
    let mut open: Vec<Lease> = Vec::new();
    let mut old = published.load_full();
    for round in 0..ROUNDS {
        let now = Moment::from_nanos(round * 100_000);
        if random.below(16) == 0 {
            old = published.load_full();
        }
        // Often the snapshot is an old one, whose upstreams have left or whose places are others' by now.
        let snapshot = if random.below(2) == 0 {
            published.load_full()
        } else {
            old.clone()
        };
        let name = NAMES[random.below(NAMES.len() as u64) as usize];
        match random.below(8) {
            0..=3 => {
                let mut asked = facts(random.below(8) as u32);
                asked.model = [None, Some("red"), Some("blue")][random.below(3) as usize];
                if let Some(index) = snapshot.index(name) {
                    open.extend(snapshot.lease(index, &asked, now));
                    if name != "moved" {
                        assert!(snapshot.ledger().own_load(index).weight <= LIMIT);
                    }
                }
            }
            4 if !open.is_empty() => {
                let lease = &mut open[0];
                lease.sent();
                if let Some(index) = snapshot.index("moved") {
                    let before = lease.upstream().clone();
                    let moved = lease.move_to(&snapshot, index);
                    assert_eq!(
                        *lease.upstream(),
                        if moved.is_ok() { id("moved") } else { before }
                    );
                }
            }
            5 if !open.is_empty() => open.swap_remove(0).complete(),
            6 if !open.is_empty() => {
                let at = random.below(open.len() as u64) as usize;
                let mut lease = open.swap_remove(at);
                match random.below(3) {
                    0 => {}
                    1 => lease.sent(),
                    _ => lease.first_byte(),
                }
            }
            _ => drop(snapshot.sample(name, now)),
        }
        if open.len() > 6 {
            open.clear();
        }
    }
}

/// Upstreams come, go, change their limits, report and expire for as long as the others work.
fn administer(pool: &mut Pool, places: &mut Vec<UpstreamIndex>, random: &mut Random) {
    let name = NAMES[random.below(NAMES.len() as u64) as usize];
    let at = pool.now;
    let event = match random.below(6) {
        0 => StatusEvent::Remove(id(name)),
        1 | 2 => StatusEvent::Upsert(spec(name, Some(random.below(u64::from(LIMIT) + 1) as u32))),
        _ => StatusEvent::Report {
            id: id(name),
            report: report(Some(LIMIT), Some(random.below(4) as u32), Some(0)),
            sample: pool.snapshot.sample(name, at).filter(|_| random.below(3) > 0),
        },
    };
    pool.wait(random.below(2_000));
    pool.apply(event);
    pool.board.expire(pool.now);
    places.extend(pool.snapshot.index(name));
    places.sort_unstable();
    places.dedup();
}

#[test]
fn eight_threads_and_a_board() {
    let limits = NAMES.map(|name| (name, Some(LIMIT)));
    let mut pool = Pool::new(&limits);
    let published = pool.board.published();
    let (start, done) = (Barrier::new(THREADS as usize + 1), AtomicBool::new(false));
    let mut places: Vec<_> = NAMES
        .iter()
        .filter_map(|name| pool.snapshot.index(name))
        .collect();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (published, start) = (&published, &start);
                scope.spawn(move || {
                    start.wait();
                    work(published, Random(thread * 7_919 + 1));
                })
            })
            .collect();
        scope.spawn(|| {
            start.wait();
            let mut random = Random(42);
            while !done.load(SeqCst) {
                administer(&mut pool, &mut places, &mut random);
                thread::yield_now();
            }
        });
        // Whatever happens to a worker, the board must hear that it is over.
        let results: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        done.store(true, SeqCst);
        results.into_iter().for_each(|result| result.unwrap());
    });
    pool.board.expire(pool.now);
    pool.wait(10_000);
    assert_eq!(pool.board.expire(pool.now), None);
    assert_eq!(pool.settling(), 0);
    for place in &places {
        let load = pool.snapshot.ledger().own_load(*place);
        let counts = (
            load.weight,
            load.requests,
            load.prefill_tokens,
            load.adapter_requests,
        );
        assert_eq!(counts, (0, 0, 0, 0), "{place:?}");
    }
    // Nothing is left in the young weight either, or weight taken now would count as less than it is.
    for name in NAMES {
        pool.join(name, Some(LIMIT));
        pool.running(name, 0, None);
        let _held = pool.running_lease(name, LIMIT);
        assert_eq!(pool.sample(name).own_weight(), LIMIT);
    }
    // Every place is quiet, so each is used again before a new one is.
    let most = places.iter().map(|place| place.get()).max().unwrap();
    for new in 0..=most {
        pool.join(&format!("new-{new}"), None);
    }
    let reused = (0..=most).filter_map(|new| pool.snapshot.index(&format!("new-{new}")));
    assert_eq!(
        reused.filter(|index| index.get() <= most).count(),
        most + 1 - NAMES.len()
    );
}
