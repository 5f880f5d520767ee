//! What do picks cost, what a body, and what a page on which an engine tells how it is?

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use paddler_benches::bodies::Sample;
use paddler_benches::harness::Failure;
use paddler_benches::harness::clock::{of_each, thread_cpu};
use paddler_benches::harness::figures::median;
use paddler_benches::pages::Page;
use paddler_benches::pools::{Case, Changing, TREES, pool};
use paddler_core::Moment;
use paddler_core::schedule::{Ask, Scratch};
use paddler_core::status::{Published, Snapshot};
use tokio::time::Instant;

use super::goals::{self, PICKS, of_pick};
use super::table::{Goal, Row};

/// How long threads pick at once.
const TOGETHER: Duration = Duration::from_millis(20);

/// From one snapshot to the next.
const PUBLISHED_EVERY: Duration = Duration::from_millis(10);

/// A pick with each tree, in the middle of so many rounds.
pub(crate) fn picks(rounds: usize) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for (name, tree) in TREES {
        for case in Case::ALL {
            for (upstreams, affine) in PICKS {
                let (snapshot, leases) = pool(tree(), case, upstreams)?;
                let seconds = a_pick(rounds, &snapshot, case);
                drop(leases);
                let (unit, long) = if upstreams < 1_000 {
                    ("ns", 1.0)
                } else {
                    ("µs", 1_000.0)
                };
                let most = of_pick(name, case, affine);
                let goal = most.map_or(Goal::none(unit), |most| Goal::at_most(most / long, unit));
                let what = format!("pick, `{name}`, {}, {upstreams} upstreams", case.name());
                rows.push(Row::new(what, goal, seconds * 1e9 / long));
            }
        }
    }
    Ok(rows)
}

/// The CPU time of a pick, in seconds, in the middle of so many rounds.
pub(crate) fn a_pick(rounds: usize, snapshot: &Snapshot, case: Case) -> f64 {
    let (mut scratch, mut seed, facts) = (Scratch::default(), 0, case.facts());
    of_each(rounds, || {
        seed += 1;
        let ask = Ask::new(&facts, Moment::ZERO, seed);
        black_box(snapshot.pick(&ask, &mut scratch, &mut ()).picked());
    })
}

/// One pick, by its number.
type Work = fn(&Published, u64, &mut Scratch);

/// How much of its speed a thread has left where another one picks, too, while snapshots are published.
pub(crate) fn threads(rounds: usize) -> Result<Vec<Row>, Failure> {
    let mut changing = Changing::new(1_000)?;
    changing.publish();
    let (published, ends) = (changing.published(), Arc::new(AtomicBool::new(false)));
    let publisher = thread::spawn({
        let ends = ends.clone();
        move || {
            while !ends.load(Relaxed) {
                changing.publish();
                thread::sleep(PUBLISHED_EVERY);
            }
        }
    });
    let row = |name: &str, work: Work| {
        let one = || together(1, &published, work);
        let left = (0..rounds).map(|_| one() / together(2, &published, work));
        let what = format!(
            "{name}, `gateway`, 1,000 upstreams, 100 snapshots a second: speed of each of two threads, of one's alone"
        );
        Row::new(what, goals::OF_TWO_THREADS, median(left))
    };
    let rows = vec![row("picks", pick), row("places taken and left", place)];
    ends.store(true, Relaxed);
    publisher.join().map_err(|_| "who publishes has panicked")?;
    Ok(rows)
}

/// The CPU time of one pick, in seconds, where so many threads pick at once.
fn together(threads: usize, published: &Published, work: Work) -> f64 {
    let barrier = Barrier::new(threads);
    let each = |number: u64| {
        let mut scratch = Scratch::default();
        work(published, 0, &mut scratch);
        barrier.wait();
        let (until, began, mut done) = (Instant::now() + TOGETHER, thread_cpu(), 0_u32);
        while Instant::now() < until {
            // As many as make reading the clock weigh nothing.
            for turn in 0..64 {
                work(published, number << 32 | u64::from(done + turn), &mut scratch);
            }
            done += 64;
        }
        (thread_cpu() - began).as_secs_f64() / f64::from(done)
    };
    thread::scope(|scope| {
        let each = &each;
        let running: Vec<_> = (0..threads as u64)
            .map(|number| scope.spawn(move || each(number)))
            .collect();
        let took = running
            .into_iter()
            .map(|thread| thread.join().unwrap_or(f64::NAN));
        took.sum::<f64>() / threads as f64
    })
}

fn pick(published: &Published, seed: u64, scratch: &mut Scratch) {
    let facts = Case::Affinity.facts();
    let snapshot = published.load();
    black_box(
        snapshot
            .pick(&Ask::new(&facts, Moment::ZERO, seed), scratch, &mut ())
            .picked(),
    );
}

fn place(published: &Published, seed: u64, scratch: &mut Scratch) {
    let facts = Case::Affinity.facts();
    let reserved = published
        .load()
        .reserve(&Ask::new(&facts, Moment::ZERO, seed), scratch, &mut ());
    if let Ok(mut lease) = reserved {
        lease.sent();
        lease.first_byte();
        lease.complete();
    }
}

/// What bodies and pages cost that are read.
pub(crate) fn reading(rounds: usize) -> Result<Vec<Row>, Failure> {
    let facts = |sample: Sample| -> Result<_, Failure> {
        let (body, route) = (sample.body(), sample.route()?);
        sample.facts(&route, body.as_bytes())?;
        let seconds = of_each(rounds, || {
            black_box(sample.facts(&route, black_box(body.as_bytes())).ok());
        });
        Ok((seconds, body.len() as f64))
    };
    let (small, _) = facts(Sample::SMALL)?;
    let (largest, bytes) = facts(Sample::LARGEST)?;
    let page = of_each(rounds, || {
        black_box(Page::VLLM.read());
    });
    let what = format!(
        "a page of vLLM's with adapters ({} KB) read",
        Page::VLLM.body().len() / 1_000
    );
    Ok(vec![
        Row::new("facts from a chat of 1 KiB", goals::SMALL_BODY, small * 1e6),
        Row::new(
            "facts from 16 MiB with an image in base64",
            goals::LARGE_BODY,
            largest * 1e3,
        ),
        Row::new("the same, in bytes", goals::SCANNED, bytes / largest * 1e-9),
        Row::new(what, goals::PAGE, page * 1e6),
    ])
}
