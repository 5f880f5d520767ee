//! Whose answers are worse than those of all others?
//!
//! A rate needs numbers: at least [`UPSTREAMS`] upstreams with at least [`REQUESTS`] requests each in an interval, as in
//! Envoy. Each is held against the mean and the deviation of the *others*, since among five an outlier that is counted in
//! lies at most 1.8 deviations from the mean, however bad it is: it would hide itself.

/// The fewest upstreams that are compared: among fewer, one bad one is half the picture.
const UPSTREAMS: usize = 5;

/// The fewest requests of an upstream in an interval: with fewer, its rate is mostly chance.
const REQUESTS: u32 = 100;

/// How many deviations below the others is too low. 1.9 is Envoy's.
const DEVIATIONS: f64 = 1.9;

/// The least gap to the others that counts. Among a hundred requests a true rate of 95 % shows as 89 % now and then.
const GAP: f64 = 0.1;

/// The outliers among these counts of good and bad answers, as positions in the list.
pub(super) fn outliers(counts: &[(u32, u32)]) -> Vec<usize> {
    let enough = |(good, bad): &(u32, u32)| good.saturating_add(*bad) >= REQUESTS;
    let rate = |(good, bad): &(u32, u32)| f64::from(*good) / (f64::from(*good) + f64::from(*bad));
    let rates: Vec<_> = counts
        .iter()
        .enumerate()
        .filter(|(_, count)| enough(count))
        .map(|(at, count)| (at, rate(count)))
        .collect();
    if rates.len() < UPSTREAMS {
        return Vec::new();
    }
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), (_, rate)| {
        (sum + rate, squares + rate * rate)
    });
    let others = (rates.len() - 1) as f64;
    let is_low = |rate: f64| {
        let mean = (sum - rate) / others;
        let variance = (squares - rate * rate) / others - mean * mean;
        rate < mean - (DEVIATIONS * variance.max(0.0).sqrt()).max(GAP)
    };
    rates
        .into_iter()
        .filter(|(_, rate)| is_low(*rate))
        .map(|(at, _)| at)
        .collect()
}
