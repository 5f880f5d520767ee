//! Where does time come from, where there is a runtime?

use std::time::Duration;

use tokio::time::Instant;

use crate::Moment;

/// The runtime cannot count to the end of time; nobody waits for more than 30 years.
const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);

/// So long after a moment, or 30 years after it: whoever wants no limit may say so by the longest duration there is.
pub(crate) fn after(moment: Instant, long: Duration) -> Instant {
    moment + long.min(FAR)
}

/// Tells moments. Follows the runtime's clock, so a test can pause it.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    began: Instant,
}

impl Clock {
    /// A clock that begins now.
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
        }
    }

    /// The moment now.
    pub fn now(&self) -> Moment {
        Moment::ZERO.saturating_add(self.began.elapsed())
    }

    /// What the runtime calls so, as a moment.
    pub(crate) fn moment(&self, instant: Instant) -> Moment {
        Moment::ZERO.saturating_add(instant.saturating_duration_since(self.began))
    }

    /// The runtime's name for a moment.
    pub(crate) fn instant(&self, moment: Moment) -> Instant {
        after(self.began, moment.since(Moment::ZERO))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn moments_and_instants_are_the_same_time() {
        let clock = Clock::new();
        assert_eq!(clock.now(), Moment::ZERO);
        let later = Moment::from_millis(1_500);
        tokio::time::sleep_until(clock.instant(later)).await;
        assert_eq!(clock.now(), later);
        assert_eq!(clock.instant(later), Instant::now());
        assert!(
            clock.instant(Moment::from_nanos(u64::MAX)) > Instant::now() + FAR / 2,
            "and none is too far"
        );
    }
}
