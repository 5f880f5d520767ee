//! How long does a pick take?
//!
//! `pick/<tree>/<case>/<upstreams>`:
//!
//! - `affinity`: a critical request for an adapter that one upstream in sixteen has active;
//! - `miss`: one for an adapter that is active nowhere;
//! - `shed`: nobody is to be picked. For `seed`, a request that may be shed while every queue is too long; for
//!   `gateway`, which sheds nothing, every slot is busy and the request is told to wait.
//!
//! The walk is the whole of it: counters are read, candidates made and narrowed, a leaf picks. Nothing is reserved.
//!
//! `round/<who is asked>/<waiting>x<models>x<tenants>`: one round of handing out among so many who wait, for so many models and
//! of so many tenants, while every slot of a hundred upstreams is busy. Nobody can use the queue meanwhile. `one_of_each` asks
//! one of those who are alike, `256_others` as many besides as the router asks at once, `everybody` all.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use paddler_benches::pools::{Case, pool};
use paddler_core::Moment;
use paddler_core::queue::{Offer, QueueLimits, Told, Tried, WaitQueue};
use paddler_core::request::RequestFacts;
use paddler_core::schedule::{Ask, Outcome, Scratch, Tree, trees};
use paddler_core::status::{Snapshot, StatusBoard, StatusEvent};
use paddler_core::upstream::{ModelEntry, Models, UpstreamSpec};

const UPSTREAMS: [usize; 4] = [10, 100, 1_000, 10_000];

fn pick(criterion: &mut Criterion) {
    for (name, tree) in [("seed", trees::seed as fn() -> Tree), ("gateway", trees::gateway)] {
        for case in Case::ALL {
            let mut group = criterion.benchmark_group(format!("pick/{name}/{}", case.name()));
            for upstreams in UPSTREAMS {
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

fn queue_of(waiting: usize, models: usize, tenants: usize) -> WaitQueue<()> {
    let limits = QueueLimits::new(waiting, u64::MAX, Duration::from_secs(1_000));
    let mut queue = WaitQueue::new(limits);
    for number in 0..waiting {
        let mut facts = RequestFacts::new();
        facts.model = Some(format!("model-{}", number % models).into());
        facts.tenant = Some(format!("tenant-{}", number / models % tenants).into());
        let pushed = queue.push(facts, Tried::default(), Told::default(), Moment::ZERO, ());
        assert!(pushed.is_ok(), "there is room");
    }
    queue
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
                let mut queue = queue_of(waiting, models, tenants);
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

criterion_group!(benches, pick, round);
criterion_main!(benches);
