//! How long does it take to read a body?
//!
//! `scan/<body>`: it lies here as a whole, as in `facts/<body>` of the program `gates`, which counts instructions.
//! `chunks/<body>`: it comes in chunks of 16 KiB, as it does from a socket.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use paddler_benches::bodies::Sample;
use paddler_benches::harness::Failure;
use paddler_core::request::Scanned;

const CHUNK: usize = 16 << 10;

fn scan(sample: &Sample, body: &[u8], chunk: usize) -> Result<Scanned, Failure> {
    let mut scanner = sample.scanner()?;
    for chunk in body.chunks(chunk) {
        scanner.feed(chunk)?;
    }
    Ok(scanner.finish()?)
}

fn bodies(criterion: &mut Criterion) {
    for (name, chunk) in [("scan", usize::MAX), ("chunks", CHUNK)] {
        let mut group = criterion.benchmark_group(name);
        for sample in Sample::ALL
            .iter()
            .filter(|sample| chunk > CHUNK || sample.bytes > CHUNK)
        {
            let body = sample.body();
            group.throughput(Throughput::Bytes(body.len() as u64));
            group.bench_function(BenchmarkId::from_parameter(sample.name), |bencher| {
                bencher.iter(|| scan(sample, black_box(body.as_bytes()), chunk));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, bodies);
criterion_main!(benches);
