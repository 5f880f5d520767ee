//! How long did it take, mostly and at worst?

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The upper bounds of the buckets, in nanoseconds.
pub(super) type Bounds = &'static [u64];

const fn nanos<const N: usize>(unit: u64, many: [u64; N]) -> [u64; N] {
    let (mut bounds, mut at) = (many, 0);
    while at < N {
        bounds[at] *= unit;
        at += 1;
    }
    bounds
}

/// From what a small model on the same machine takes to the default limit on the first byte, and on to the longest wait that can
/// be set: a long prompt takes minutes.
pub(super) const REQUESTS: Bounds = &nanos(
    1_000_000,
    [
        5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000,
        1_800_000, 3_600_000,
    ],
);

/// From a small model on a fast card to a large one without.
pub(super) const TOKENS: Bounds = &nanos(
    1_000_000,
    [
        1, 2, 5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 500, 1_000, 2_500, 10_000,
    ],
);

/// From a walk over a few upstreams to one over tens of thousands, or with a slow filter of the host's.
pub(super) const PICKS: Bounds = &nanos(
    1,
    [
        250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
        10_000_000,
    ],
);

/// Durations, counted by size. Adding takes no lock.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: Bounds,
    /// How many fell between each bound and the one before; the last: above all of them.
    buckets: Box<[AtomicU64]>,
    nanos: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::over(REQUESTS)
    }
}

impl Histogram {
    pub(super) fn over(bounds: Bounds) -> Self {
        Self {
            bounds,
            buckets: (0..=bounds.len()).map(|_| AtomicU64::default()).collect(),
            nanos: AtomicU64::default(),
        }
    }

    /// For the time that picks take.
    pub(crate) fn of_picks() -> Self {
        Self::over(PICKS)
    }

    pub(crate) fn add(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = self.bounds.partition_point(|bound| *bound < nanos);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.nanos.fetch_add(nanos, Relaxed);
    }

    /// For each bound, in seconds, how many were not above it; then how many there are, and their sum in seconds.
    pub(super) fn read(&self) -> (Vec<(f64, u64)>, u64, f64) {
        let mut so_far = 0;
        let bounds = self.bounds.iter().zip(&self.buckets).map(|(bound, bucket)| {
            so_far += bucket.load(Relaxed);
            (*bound as f64 / 1e9, so_far)
        });
        let bounds: Vec<_> = bounds.collect();
        let above = self.buckets[self.bounds.len()].load(Relaxed);
        (bounds, so_far + above, self.nanos.load(Relaxed) as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_grow() {
        for bounds in [REQUESTS, TOKENS, PICKS] {
            assert!(bounds.is_sorted_by(|a, b| a < b));
        }
    }

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
