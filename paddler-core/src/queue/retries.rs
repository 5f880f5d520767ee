//! May one more request be sent again?
//!
//! Retries are a share of requests, so that in an outage load grows by that share and not by the number of attempts: the
//! budget of Finagle (`RetryBudget`, 20 % and 10 a second over 10 s), which Linkerd has too.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::Moment;
use crate::config::Retry;

/// The time over which requests and retries are held against each other, in seconds.
const SECONDS: usize = 10;

/// How many requests there were in which second, and how many retries. Counting a request takes one atomic step.
///
/// ```
/// use paddler_core::Moment;
/// use paddler_core::config::Retry;
/// use paddler_core::queue::RetryBudget;
///
/// let mut retry = Retry::default();
/// (retry.share, retry.per_second) = (0.2, 0);
/// let budget = RetryBudget::default();
/// for _ in 0..50 {
///     budget.request(Moment::ZERO);
/// }
/// let allowed = (0..50).filter(|_| budget.retry(&retry, Moment::from_millis(9_999))).count();
/// assert_eq!(allowed, 10);
/// assert!(!budget.retry(&retry, Moment::from_millis(10_000)), "those requests are ten seconds ago");
/// ```
#[derive(Debug, Default)]
pub struct RetryBudget {
    requests: [AtomicU64; SECONDS],
    retries: Mutex<[u64; SECONDS]>,
}

/// One cell: the number of its second, from one on (high 32 bits), and a count (low).
fn second(now: Moment) -> u64 {
    now.as_nanos() / 1_000_000_000 + 1
}

fn count(cell: u64, now: u64) -> u64 {
    if cell >> 32 > now.saturating_sub(SECONDS as u64) {
        cell & u64::from(u32::MAX)
    } else {
        0
    }
}

fn one_more(cell: u64, now: u64) -> u64 {
    if cell >> 32 == now {
        cell + 1
    } else {
        (now << 32) | 1
    }
}

impl RetryBudget {
    /// A request has come.
    pub fn request(&self, now: Moment) {
        let now = second(now);
        let cell = &self.requests[now as usize % SECONDS];
        let next = |cell: u64| Some(one_more(cell, now));
        // It always changes.
        let _before = cell.fetch_update(Relaxed, Relaxed, next);
    }

    /// Whether one may be sent again now, and if so, counts it.
    pub fn retry(&self, limits: &Retry, now: Moment) -> bool {
        let now = second(now);
        let requests: u64 = self
            .requests
            .iter()
            .map(|cell| count(cell.load(Relaxed), now))
            .sum();
        let mut retries = self.retries.lock().unwrap_or_else(PoisonError::into_inner);
        let made: u64 = retries.iter().map(|cell| count(*cell, now)).sum();
        let allowed = limits.share * requests as f64 + f64::from(limits.per_second) * SECONDS as f64;
        let may = (made as f64) < allowed.floor();
        if may {
            let cell = &mut retries[now as usize % SECONDS];
            *cell = one_more(*cell, now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(share: f64, per_second: u32) -> Retry {
        let mut limits = Retry::default();
        (limits.share, limits.per_second) = (share, per_second);
        limits
    }

    #[test]
    fn the_least_holds_without_any_request_and_comes_back() {
        let budget = RetryBudget::default();
        let take = |at| {
            (0..1000)
                .filter(|_| budget.retry(&limits(0.2, 10), Moment::from_millis(at)))
                .count()
        };
        assert_eq!([take(0), take(9_999), take(10_000)], [100, 0, 100]);
    }

    #[test]
    fn nothing_is_allowed_where_nothing_is_to_be() {
        let budget = RetryBudget::default();
        budget.request(Moment::ZERO);
        assert!(!budget.retry(&limits(0.0, 0), Moment::ZERO));
        assert!(!budget.retry(&limits(0.9, 0), Moment::ZERO), "not a whole one");
        assert!(budget.retry(&limits(1.0, 0), Moment::ZERO));
        assert!(!budget.retry(&limits(1.0, 0), Moment::ZERO));
    }

    #[test]
    fn requests_of_each_second_count_for_ten() {
        let budget = RetryBudget::default();
        for at in 0..100u64 {
            let now = Moment::from_millis(at * 1000);
            (0..10).for_each(|_| budget.request(now));
            let allowed = (0..100).filter(|_| budget.retry(&limits(0.5, 0), now)).count();
            assert_eq!(allowed, 5, "second {at}: five more for the ten that came");
        }
    }
}
