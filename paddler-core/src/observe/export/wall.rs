//! What does the clock on the wall say?

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A time of day in UTC, as RFC 3339 has it, to the microsecond.
#[derive(Debug, Clone, Copy)]
pub(super) struct Utc(Duration);

/// The time since 1970. A clock that is set before that tells nothing.
#[expect(
    clippy::disallowed_methods,
    reason = "what is written for people and collectors is of their day; nothing is decided by it"
)]
pub(super) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Utc {
    pub(super) fn now() -> Self {
        Self(since_1970())
    }
}

/// Year, month and day of a day since 1970: of the days of a 400-year cycle, with March as the first month, so that the day which
/// some years have more is the last one.
fn date(days: u64) -> (u64, u64, u64) {
    const CYCLE: u64 = 146_097;
    let days = days + 719_468;
    let (cycle, day) = (days / CYCLE, days % CYCLE);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (cycle * 400 + year + u64::from(month <= 2), month, day)
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0.as_secs(), self.0.subsec_micros());
        let ((year, month, day), second) = (date(seconds / 86_400), seconds % 86_400);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        // As `date -u -d @SECONDS` has them.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000001Z"),
            (951_782_399, "2000-02-28T23:59:59.000001Z"),
            (951_782_400, "2000-02-29T00:00:00.000001Z"),
            (951_868_800, "2000-03-01T00:00:00.000001Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000001Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000001Z"),
            (1_735_689_600, "2025-01-01T00:00:00.000001Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000001Z"),
        ] {
            let utc = Utc(Duration::from_secs(seconds) + Duration::from_micros(1));
            assert_eq!(utc.to_string(), text);
        }
    }

    #[test]
    fn each_day_comes_after_the_one_before() {
        let mut before = date(0);
        for day in 1..200_000 {
            let today = date(day);
            let next = (before.0, before.1, before.2 + 1);
            let is_next = today == next
                || (today.2 == 1 && (today == (before.0, before.1 + 1, 1) || today == (before.0 + 1, 1, 1)));
            assert!(is_next && today.2 <= 31 && today.1 <= 12, "{before:?} {today:?}");
            before = today;
        }
    }
}
