//! How long did it take, mostly and at worst?

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The upper bounds of the buckets, in milliseconds. From what a small model on the same machine takes to the default
/// limit on the first byte, and on to the longest wait that can be set: a long prompt takes minutes.
const BOUNDS_MS: [u64; 18] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000,
    1_800_000, 3_600_000,
];

/// Durations, counted by size. Adding takes no lock.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    /// How many fell between each bound and the one before; above the last bound: `above`.
    buckets: [AtomicU64; BOUNDS_MS.len()],
    above: AtomicU64,
    nanos: AtomicU64,
}

impl Histogram {
    pub(super) fn add(&self, duration: Duration) {
        let bucket = BOUNDS_MS.partition_point(|bound| Duration::from_millis(*bound) < duration);
        self.buckets
            .get(bucket)
            .unwrap_or(&self.above)
            .fetch_add(1, Relaxed);
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Relaxed);
    }

    /// For each bound, in seconds, how many were not above it; then how many there are, and their sum in seconds.
    pub(super) fn read(&self) -> (Vec<(f64, u64)>, u64, f64) {
        let mut so_far = 0;
        let bounds = BOUNDS_MS.iter().zip(&self.buckets).map(|(bound, bucket)| {
            so_far += bucket.load(Relaxed);
            (*bound as f64 / 1e3, so_far)
        });
        let bounds: Vec<_> = bounds.collect();
        let count = so_far + self.above.load(Relaxed);
        (bounds, count, self.nanos.load(Relaxed) as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_bound_and_all_below() {
        let histogram = Histogram::default();
        for millis in [0, 5, 6, 10, 600_000, 600_001, 3_600_000, 3_600_001] {
            histogram.add(Duration::from_millis(millis));
        }
        let (bounds, count, seconds) = histogram.read();
        assert_eq!(bounds[..3], [(0.005, 2), (0.01, 4), (0.025, 4)]);
        assert_eq!(bounds[15..], [(600.0, 5), (1_800.0, 6), (3_600.0, 7)]);
        assert_eq!(count, 8);
        assert!((seconds - 8_400.023).abs() < 1e-9, "{seconds}");
    }
}
