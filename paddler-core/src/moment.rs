//! When is now?
//!
//! Time is an argument everywhere: a pick, the board and the queue are told what time it is. That keeps them pure, lets
//! tests be exact, and lets records, Python and C carry a moment as one number.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Nanoseconds since the board began. Lasts 584 years; arithmetic saturates.
///
/// ```
/// use std::time::Duration;
/// use paddler_core::Moment;
///
/// let poll = Moment::ZERO.saturating_add(Duration::from_millis(250));
/// assert_eq!(poll.as_nanos(), 250_000_000);
/// assert_eq!(Moment::ZERO.since(poll), Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(u64);

impl Moment {
    /// The moment the board began.
    pub const ZERO: Self = Self(0);

    /// This many nanoseconds after the board began.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// This many milliseconds after the board began.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the board began.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `after` this one; the end of time if that is too far.
    #[must_use]
    pub fn saturating_add(self, after: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// How long after `earlier` this is; zero if it is before.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Duration::from_nanos(self.0), f)
    }
}
