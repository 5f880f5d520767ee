//! How long does it take until it is known how an upstream is?
//!
//! - `status/<page>`: what an engine says of itself is read.
//! - `publish/<upstreams>`: one upstream's report comes into force.
//!
//! Both are those of the program `gates`, which counts instructions.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use paddler_benches::pages::Page;
use paddler_benches::pools::Changing;

fn pages(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("status");
    for page in Page::ALL {
        group.throughput(Throughput::Bytes(page.body().len() as u64));
        group.bench_function(BenchmarkId::from_parameter(page.name), |bencher| {
            bencher.iter(|| black_box(page.read()));
        });
    }
    group.finish();
}

fn publish(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("publish");
    for upstreams in [1, 10, 100, 1_000, 10_000, 20_000] {
        group.bench_function(BenchmarkId::from_parameter(upstreams), |bencher| {
            let mut changing = Changing::new(upstreams).expect("ids are valid");
            bencher.iter(|| black_box(changing.publish()));
        });
    }
    group.finish();
}

criterion_group!(benches, pages, publish);
criterion_main!(benches);
