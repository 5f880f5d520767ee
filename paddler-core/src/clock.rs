//! Where does time come from, where there is a runtime?

use tokio::time::Instant;

use crate::Moment;

/// Tells moments. Follows the runtime's clock, so a test can pause it.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    began: Instant,
}

impl Clock {
    /// A clock that begins now.
    pub fn new() -> Self {
        Self { began: Instant::now() }
    }

    /// The moment now.
    pub fn now(&self) -> Moment {
        Moment::ZERO.saturating_add(self.began.elapsed())
    }

    /// The runtime's name for a moment.
    pub(crate) fn instant(&self, moment: Moment) -> Instant {
        // Further than the runtime can count is as good as 30 years.
        let after = moment.since(Moment::ZERO).min(std::time::Duration::from_secs(30 * 365 * 86_400));
        self.began + after
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
