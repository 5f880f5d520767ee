//! How much of a minute's worth is used up?
//!
//! One number: the moment until which all is used, if nothing more is taken. Each taking moves it on by its share of a
//! minute, and it may lie a minute ahead of now (the generic cell rate algorithm, ITU-T I.371). So what is left fills up
//! evenly, nothing has to tick, and another rate can be set at any time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::Moment;

const MINUTE: u64 = 60_000_000_000;

/// The most that one correction takes, in nanoseconds: an hour. What an engine says may be wrong, and must not shut a key out
/// for good.
const MOST: u64 = 60 * MINUTE;

/// What is used of something that comes at a rate. A whole minute's worth can be taken at once.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// In nanoseconds of the clock.
    used_until: AtomicU64,
}

/// The share of a minute that this is, in nanoseconds, rounded down so that a minute's worth fits into a minute.
fn share(amount: u64, per_minute: u64) -> u64 {
    let nanos = u128::from(amount) * u128::from(MINUTE) / u128::from(per_minute.max(1));
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

impl Rate {
    /// Takes so much, or says how long it will be until that is there. What is more than a minute's worth is there when
    /// nothing is used, and is paid for afterwards.
    pub(super) fn take(&self, amount: u64, per_minute: u64, now: Moment) -> Result<(), Duration> {
        let (now, share) = (now.as_nanos(), share(amount, per_minute));
        let full = now.saturating_add(MINUTE);
        let mut wait = 0;
        let taken = self.used_until.fetch_update(Relaxed, Relaxed, |until| {
            let next = until.max(now).saturating_add(share);
            wait = next.saturating_sub(full).min(until.saturating_sub(now));
            (wait == 0).then_some(next)
        });
        taken.map(drop).map_err(|_| Duration::from_nanos(wait))
    }

    /// It was so much that was used, and not what was taken.
    pub(super) fn correct(&self, taken: u64, used: u64, per_minute: u64, now: Moment) {
        let (now, more) = (now.as_nanos(), used >= taken);
        let share = share(used.abs_diff(taken), per_minute).min(MOST);
        let corrected = self.used_until.fetch_update(Relaxed, Relaxed, |until| {
            Some(match more {
                true => until.max(now).saturating_add(share),
                false => until.saturating_sub(share),
            })
        });
        debug_assert!(corrected.is_ok(), "it is always changed");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn at(seconds: u64) -> Moment {
        Moment::from_millis(seconds * 1000)
    }

    #[test]
    fn a_minutes_worth_is_there_at_once_and_comes_back_evenly() {
        for per_minute in [1, 7, 60, 600, 6000] {
            let rate = Rate::default();
            for _ in 0..per_minute {
                assert_eq!(rate.take(1, per_minute, at(5)), Ok(()));
            }
            let wait = rate.take(1, per_minute, at(5)).unwrap_err();
            assert!(
                wait <= Duration::from_nanos(60_000_000_000 / per_minute + per_minute),
                "{wait:?}"
            );
            let later = at(5).saturating_add(wait);
            assert_eq!(rate.take(1, per_minute, later), Ok(()), "{per_minute}");
            assert!(rate.take(1, per_minute, later).is_err());
        }
    }

    #[test]
    fn what_is_more_than_a_minutes_worth_is_paid_for_afterwards() {
        let rate = Rate::default();
        assert_eq!(rate.take(300, 100, at(0)), Ok(()));
        assert_eq!(rate.take(1, 100, at(0)), Err(Duration::from_millis(120_600)));
        assert!(rate.take(1, 100, at(120)).is_err());
        assert_eq!(rate.take(1, 100, at(121)), Ok(()));
        assert_eq!(rate.take(300, 100, at(121)), Err(Duration::from_millis(59_600)));
    }

    #[test]
    fn what_was_used_counts_and_not_what_was_thought() {
        let rate = Rate::default();
        assert_eq!(rate.take(60, 60, at(0)), Ok(()));
        rate.correct(60, 10, 60, at(0));
        assert_eq!(rate.take(50, 60, at(0)), Ok(()));
        rate.correct(50, 80, 60, at(0));
        assert_eq!(rate.take(1, 60, at(0)), Err(Duration::from_secs(31)));
        // What was long ago is no credit.
        rate.correct(1_000, 0, 60, at(1000));
        assert_eq!(rate.take(60, 60, at(1000)), Ok(()));
        assert!(rate.take(1, 60, at(1000)).is_err());
    }

    #[test]
    fn a_number_beyond_all_sense_costs_an_hour_at_most() {
        let rate = Rate::default();
        assert_eq!(rate.take(10, 100, at(0)), Ok(()));
        rate.correct(10, u64::MAX, 100, at(0));
        assert!(rate.take(1, 100, at(3500)).is_err());
        assert_eq!(rate.take(1, 100, at(3700)), Ok(()));
    }

    proptest! {
        #[test]
        fn no_numbers_overflow_and_no_more_than_two_minutes_worth_goes_in_a_minute(
            takes in prop::collection::vec((0u64..60_000, any::<u64>(), any::<u64>()), 1..50),
            per_minute in 1u64..1000,
        ) {
            let wild = Rate::default();
            for (millis, amount, other) in &takes {
                wild.take(*amount, *other, Moment::from_millis(*millis)).ok();
                wild.correct(*amount, *other, per_minute, Moment::from_nanos(*amount));
            }
            let (rate, mut sum, mut times) = (Rate::default(), 0, takes);
            times.sort_unstable();
            for (millis, amount, _) in times {
                let amount = amount % 20 + 1;
                if amount <= per_minute && rate.take(amount, per_minute, Moment::from_millis(millis)).is_ok() {
                    sum += amount;
                }
            }
            prop_assert!(sum <= 2 * per_minute);
        }
    }
}
