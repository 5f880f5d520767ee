//! How long does something take on a machine that does other things meanwhile?
//!
//! In CPU time of the thread: what others have of the machine is not in it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::figures::median;

/// The least time of a round, so that reading the clock weighs nothing.
const ROUND: Duration = Duration::from_millis(2);

/// The CPU time that this thread has taken so far.
#[must_use]
pub fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// The CPU time of one run, in seconds: in the middle of so many rounds, each of as many runs as take 2 ms.
pub fn of_each(rounds: usize, mut run: impl FnMut()) -> f64 {
    let mut took = |runs: u32| {
        let began = thread_cpu();
        (0..runs).for_each(|_| run());
        thread_cpu().saturating_sub(began)
    };
    let mut runs = 1;
    while took(runs) < ROUND && runs < 1 << 24 {
        runs *= 2;
    }
    median((0..rounds.max(1)).map(|_| took(runs).as_secs_f64() / f64::from(runs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_a_thread_sleeps_is_not_its_own() {
        let began = thread_cpu();
        std::thread::sleep(Duration::from_millis(200));
        assert!(thread_cpu() - began < Duration::from_millis(200));
    }

    #[test]
    fn what_does_more_takes_longer() {
        let sum = |up_to: u64| {
            of_each(5, move || {
                std::hint::black_box(
                    (0..std::hint::black_box(up_to)).fold(0_u64, |sum, n| sum ^ n.wrapping_mul(n)),
                );
            })
        };
        let (little, much) = (sum(1_000), sum(100_000));
        assert!(little > 0.0 && much > little, "{little} and {much}");
    }
}
