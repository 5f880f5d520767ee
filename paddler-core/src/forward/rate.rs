//! How much of a minute's worth is used up?
//!
//! One number: the moment until which all is used, if nothing more is taken. Each taking moves it on by its share of a
//! minute, and it may lie a minute ahead of now (the generic cell rate algorithm, ITU-T I.371). So what is left fills up
//! evenly, nothing has to tick, and at another rate what is used is reckoned anew.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Moment;

const MINUTE: u64 = 60_000_000_000;

/// The most that one taking costs, in nanoseconds: an hour. What is estimated of a prompt or told by an engine may be far off,
/// and must not shut a key out for good.
const MOST: u64 = 60 * MINUTE;

/// What is used of something that comes at a rate. A whole minute's worth can be taken at once.
#[derive(Debug, Default)]
pub(super) struct Rate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// In nanoseconds of the clock.
    used_until: u64,
    /// The rate at which that was reckoned. 0: nothing was taken yet.
    per_minute: u64,
}

/// What this costs, in nanoseconds: its share of a minute, rounded down so that a minute's worth fits into a minute.
fn cost(amount: u64, per_minute: u64) -> u64 {
    scale(MINUTE, amount, per_minute).min(MOST)
}

/// `nanos * times / by`.
fn scale(nanos: u64, times: u64, by: u64) -> u64 {
    let scaled = u128::from(nanos) * u128::from(times) / u128::from(by.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

impl Rate {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here can leave it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes so much, or says how long it will be until that is there. What is more than a minute's worth is there when
    /// nothing is used, and is paid for afterwards: for an hour at most. At another rate than before, so much stays used, and
    /// not so long. At a rate of 0 nothing is there, and it is said to come again in an hour.
    pub(super) fn take(&self, amount: u64, per_minute: u64, now: Moment) -> Result<(), Duration> {
        if per_minute == 0 {
            return Err(Duration::from_nanos(MOST));
        }
        let (now, cost) = (now.as_nanos(), cost(amount, per_minute));
        let mut state = self.lock();
        if state.per_minute != per_minute {
            let used = state.used_until.saturating_sub(now);
            state.used_until = now.saturating_add(scale(used, state.per_minute, per_minute).min(MOST));
            state.per_minute = per_minute;
        }
        let next = state.used_until.max(now).saturating_add(cost);
        let full = now.saturating_add(MINUTE);
        let wait = next
            .saturating_sub(full)
            .min(state.used_until.saturating_sub(now));
        if wait == 0 {
            state.used_until = next;
            return Ok(());
        }
        Err(Duration::from_nanos(wait))
    }

    /// It was so much that was used, and not what was taken.
    pub(super) fn correct(&self, taken: u64, used: u64, now: Moment) {
        let mut state = self.lock();
        state.correct(taken, used, now);
    }

    /// What was taken is for something that was wrong, so that little was made of it: it costs a minute's worth at most. Not
    /// nothing, since it was read.
    pub(super) fn found_wrong(&self, taken: u64, now: Moment) {
        let mut state = self.lock();
        let used = taken.min(state.per_minute);
        state.correct(taken, used, now);
    }

    /// What was taken was not used. What had come back of it meanwhile is lost to nobody, so whoever takes and gives back may
    /// gain as much as comes back while he held it, and no more.
    pub(super) fn give_back(&self, taken: u64) {
        let mut state = self.lock();
        let cost = cost(taken, state.per_minute);
        state.used_until = state.used_until.saturating_sub(cost);
    }
}

impl State {
    fn correct(&mut self, taken: u64, used: u64, now: Moment) {
        let (before, after) = (cost(taken, self.per_minute), cost(used, self.per_minute));
        self.used_until = if after < before {
            self.used_until.saturating_sub(before - after)
        } else {
            self.used_until.max(now.as_nanos()).saturating_add(after - before)
        };
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
        rate.correct(60, 10, at(0));
        assert_eq!(rate.take(50, 60, at(0)), Ok(()));
        rate.correct(50, 80, at(0));
        assert_eq!(rate.take(1, 60, at(0)), Err(Duration::from_secs(31)));
        // What was long ago is no credit.
        rate.correct(1_000, 0, at(1000));
        assert_eq!(rate.take(60, 60, at(1000)), Ok(()));
        assert!(rate.take(1, 60, at(1000)).is_err());
    }

    #[test]
    fn a_number_beyond_all_sense_costs_an_hour_at_most() {
        let told = Rate::default();
        assert_eq!(told.take(10, 100, at(0)), Ok(()));
        told.correct(10, u64::MAX, at(0));
        let thought = Rate::default();
        assert_eq!(thought.take(u64::MAX, 100, at(0)), Ok(()));
        for rate in [told, thought] {
            assert!(rate.take(1, 100, at(3500)).is_err());
            assert_eq!(rate.take(1, 100, at(3700)), Ok(()));
        }
        // Where far too much was thought, what was used is what remains.
        let corrected = Rate::default();
        assert_eq!(corrected.take(1_000_000, 100, at(0)), Ok(()));
        corrected.correct(1_000_000, 300, at(0));
        assert_eq!(corrected.take(1, 100, at(0)), Err(Duration::from_millis(120_600)));
        corrected.correct(300, 0, at(0));
        assert_eq!(corrected.take(100, 100, at(0)), Ok(()));
    }

    #[test]
    fn none_a_minute_is_none() {
        let rate = Rate::default();
        assert!(rate.take(1, 0, at(100)).is_err() && rate.take(0, 0, at(9_000)).is_err());
        rate.correct(0, 5, at(100));
        assert_eq!(rate.take(60, 60, at(100)), Ok(()));
        assert!(rate.take(1, 0, at(100)).is_err());
        assert_eq!(
            rate.take(1, 60, at(100)),
            Err(Duration::from_secs(1)),
            "what was used stays used"
        );
    }

    #[test]
    fn what_was_refused_as_wrong_costs_a_minutes_worth_at_most() {
        let rate = Rate::default();
        for (taken, seconds) in [(1_000_000, 60), (60, 60), (30, 30)] {
            assert_eq!(rate.take(taken, 60, at(1_000)), Ok(()), "{taken}");
            rate.found_wrong(taken, at(1_000));
            assert_eq!(rate.take(60, 60, at(1_000)), Err(Duration::from_secs(seconds)));
            rate.give_back(taken.min(60));
        }
    }

    #[test]
    fn at_another_rate_so_much_stays_used_and_not_so_long() {
        let rate = Rate::default();
        for _ in 0..2 {
            assert_eq!(rate.take(1, 2, at(0)), Ok(()));
        }
        assert!(rate.take(1, 2, at(0)).is_err());
        for _ in 0..598 {
            assert_eq!(rate.take(1, 600, at(0)), Ok(()));
        }
        assert_eq!(rate.take(1, 600, at(0)), Err(Duration::from_millis(100)));

        let rate = Rate::default();
        assert_eq!(rate.take(30, 600, at(0)), Ok(()));
        assert_eq!(
            rate.take(30, 60, at(0)),
            Ok(()),
            "half of the lower limit was used"
        );
        assert_eq!(rate.take(1, 60, at(0)), Err(Duration::from_secs(1)));
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
                wild.correct(*amount, *other, Moment::from_nanos(*amount));
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
