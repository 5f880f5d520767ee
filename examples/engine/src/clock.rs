//! What time does the engine believe it is?
//!
//! Nothing here reads the machine's clock: Unix time is a configured start plus what tokio's clock has
//! counted since, so a paused tokio clock pauses the engine's as well.

use tokio::time::Instant;

/// A Unix clock that begins at a chosen second.
#[derive(Debug)]
pub(crate) struct Clock {
    base_unix: u64,
    started: Instant,
    /// Whether written timestamps stay at the base.
    frozen: bool,
}

impl Clock {
    pub(crate) fn new(base_unix: u64, frozen: bool) -> Self {
        Self {
            base_unix,
            started: Instant::now(),
            frozen,
        }
    }

    /// Unix time in seconds, always moving.
    pub(crate) fn unix(&self) -> f64 {
        self.base_unix as f64 + self.started.elapsed().as_secs_f64()
    }

    /// Unix time of the start, in whole seconds.
    pub(crate) fn base(&self) -> u64 {
        self.base_unix
    }

    /// The whole second that an answer is stamped with.
    pub(crate) fn stamp(&self) -> u64 {
        if self.frozen {
            self.base_unix
        } else {
            self.base_unix + self.started.elapsed().as_secs()
        }
    }

    /// The stamp in the form of an HTTP `Date` header.
    pub(crate) fn http_date(&self) -> String {
        http_date(self.stamp())
    }
}

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Formats a Unix second as `Sun, 06 Nov 1994 08:49:37 GMT`. Years after 9999 stay at 9999.
fn http_date(unix: u64) -> String {
    let unix = unix.min(253_402_300_799);
    let (days, second) = (unix / 86_400, unix % 86_400);
    let mut year = 1970;
    let mut left = days;
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 0;
    for length in [
        31,
        28 + u64::from(is_leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    let name = MONTHS.get(month).unwrap_or(&"Dec");
    let weekday = DAYS[(days % 7) as usize];
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!(
        "{weekday}, {:02} {name} {year} {hour:02}:{minute:02}:{second:02} GMT",
        left + 1
    )
}

#[cfg(test)]
mod tests {
    use super::http_date;

    #[test]
    fn known_dates() {
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(http_date(1_735_689_599), "Tue, 31 Dec 2024 23:59:59 GMT");
        assert_eq!(http_date(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
