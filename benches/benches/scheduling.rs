//! How long does a pick take?
//!
//! `pick/<tree>/<case>/<upstreams>`:
//!
//! - `affinity`: a critical request for an adapter that one upstream in sixteen has active;
//! - `miss`: one for an adapter that is active nowhere;
//! - `shed`: nobody is to be picked. For `seed`, a request that may be shed while every queue is too long; for
//!   the others, which shed nothing, every slot is busy and the request is told to wait.
//!
//! They are those of the program `gates`, which counts instructions, over more sizes.
//!
//! The walk is the whole of it: counters are read, candidates made and narrowed, a leaf picks. Nothing is reserved.
//!
//! `queue/<waiting>`: somebody comes in where so many wait, and leaves.
//!
//! `round/<who is asked>/<waiting>x<models>x<tenants>`: one round of handing out among so many who wait, for so many models and
//! of so many tenants, while every slot of a hundred upstreams is busy. Nobody can use the queue meanwhile. `one_of_each` asks
//! one of those who are alike, `256_others` as many besides as the router asks at once, `everybody` all.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use paddler_benches::pools::{Case, TREES, Waiting, pool, queue_of};
use paddler_core::Moment;
use paddler_core::queue::{Offer, QueueLimits, Told};
use paddler_core::schedule::{Ask, Outcome, Scratch, trees};
use paddler_core::status::{Snapshot, StatusBoard, StatusEvent};
use paddler_core::upstream::{ModelEntry, Models, UpstreamSpec};

const UPSTREAMS: [usize; 6] = [1, 10, 100, 1_000, 10_000, 20_000];

/// Those that are tried at all: in a debug build the largest take their time, and show nothing more.
fn sizes() -> impl Iterator<Item = usize> {
    let most = if cfg!(debug_assertions) { 1_000 } else { usize::MAX };
    UPSTREAMS.into_iter().filter(move |upstreams| *upstreams <= most)
}

fn pick(criterion: &mut Criterion) {
    for (name, tree) in TREES {
        for case in Case::ALL {
            let mut group = criterion.benchmark_group(format!("pick/{name}/{}", case.name()));
            for upstreams in sizes() {
                group.throughput(Throughput::Elements(1));
                group.bench_function(BenchmarkId::from_parameter(upstreams), |bencher| {
                    let (snapshot, _leases) = pool(tree(), case, upstreams).expect("ids are valid");
                    let facts = case.facts();
                    let mut scratch = Scratch::default();
                    let mut seed = 0;
                    let mut pick = || {
                        seed += 1;
                        snapshot.pick(&Ask::new(&facts, Moment::ZERO, seed), &mut scratch, &mut ())
                    };
                    let nobody = !matches!(pick(), Outcome::Picked(_));
                    assert_eq!(nobody, case == Case::Shed, "the case is what it is called");
                    bencher.iter(|| black_box(pick()));
                });
            }
            group.finish();
        }
    }
}

/// A hundred upstreams whose slots are all busy, each with every model.
fn busy(models: usize) -> Result<Arc<Snapshot>, Box<dyn std::error::Error>> {
    let mut board = StatusBoard::new(trees::gateway());
    let models: Vec<_> = (0..models)
        .map(|model| ModelEntry::new(format!("model-{model}")))
        .collect();
    for place in 0..100 {
        let spec = UpstreamSpec::new(format!("upstream-{place}"), "http://127.0.0.1:8080")?;
        let (id, spec) = (spec.id.clone(), spec.models(Models::Listed(models.clone())));
        board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
        let report = Case::Shed.report(place);
        board.apply(
            StatusEvent::Report {
                id,
                report,
                sample: None,
            },
            Moment::ZERO,
        );
    }
    Ok(board.publish(Moment::ZERO))
}

fn queue(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("queue");
    for waiting in [0, 1_000, 10_000] {
        group.bench_function(BenchmarkId::from_parameter(waiting), |bencher| {
            let mut waiting = Waiting::new(waiting).expect("there is room");
            bencher.iter(|| waiting.come_and_go());
        });
    }
    group.finish();
}

fn round(criterion: &mut Criterion) {
    let (now, mut scratch) = (Moment::from_millis(1), Scratch::default());
    for (who, others) in [("one_of_each", 0), ("256_others", 256), ("everybody", usize::MAX)] {
        let mut group = criterion.benchmark_group(format!("round/{who}"));
        for (waiting, models, tenants) in [
            (1_000, 1, 1),
            (10_000, 1, 1),
            (10_000, 100, 1),
            (10_000, 1, 100),
            (10_000, 100, 100),
        ] {
            let name = format!("{waiting}x{models}x{tenants}");
            group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
                let snapshot = busy(models).expect("ids are valid");
                let limits = QueueLimits::new(waiting, u64::MAX, Duration::from_secs(1_000));
                let mut queue = queue_of(limits, waiting, (models, tenants)).expect("there is room");
                bencher.iter(|| {
                    queue.hand_out(now, others, |waiting, _| {
                        let facts = waiting.facts.as_facts();
                        match snapshot.reserve(&Ask::new(&facts, now, 1), &mut scratch, &mut ()) {
                            Ok(lease) => Offer::Place {
                                upstream: lease.upstream().clone(),
                                weight: lease.weight(),
                                place: lease,
                            },
                            Err(_) => Offer::Wait(Told::default()),
                        }
                    })
                });
                assert_eq!(queue.len(), waiting, "nobody got a place");
            });
        }
        group.finish();
    }
}

criterion_group!(benches, pick, queue, round);
criterion_main!(benches);
