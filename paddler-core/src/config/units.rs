//! How much is `250ms`, or `64MiB`?

use std::time::Duration;

use super::value::quoted;

/// What is wrong, and how it is mended.
pub(crate) type Wrong = (String, String);

/// A number was written where it takes a unit to mean something.
pub(super) fn needs_unit(number: &str, unit: &str) -> Wrong {
    (
        format!("{number} needs a unit"),
        format!("write {:?}", format!("{number}{unit}")),
    )
}

/// In milliseconds.
const TIMES: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

/// In bytes.
const SIZES: [(&str, u64); 10] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1000),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// What a length of time looks like, as a regular expression.
pub(super) fn duration_pattern() -> String {
    pattern(&TIMES)
}

/// What a size looks like, as a regular expression.
pub(super) fn bytes_pattern() -> String {
    pattern(&SIZES)
}

fn pattern(units: &[(&str, u64)]) -> String {
    let units: Vec<_> = units.iter().map(|(unit, _)| *unit).collect();
    format!(r"^[0-9]+(\.[0-9]*)?\s*({})$", units.join("|"))
}

/// A length of time: a number, whole or decimal, and `ms`, `s`, `m` or `h`.
pub(crate) fn duration(text: &str) -> Result<Duration, Wrong> {
    let form = "write a number and ms, s, m or h: 250ms, 10s, 5m, 1h";
    let (number, millis) = split(text, &TIMES, form)?;
    let wrong = || (format!("{} is not a length of time", quoted(text)), form.into());
    match number.parse::<u64>() {
        Ok(whole) => whole
            .checked_mul(millis)
            .map(Duration::from_millis)
            .ok_or_else(wrong),
        Err(_) => {
            let seconds = number.parse::<f64>().map_err(|_| wrong())? * (millis as f64 / 1000.0);
            Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
        }
    }
}

/// A number of bytes: a number, whole or decimal, and `B`, `KiB`, `MiB`, `GiB`, `TiB` (by 1024) or `KB`, `MB`, `GB`, `TB`
/// (by 1000).
pub(super) fn bytes(text: &str) -> Result<u64, Wrong> {
    let form = "write a number and B, KiB, MiB, GiB or TiB (KB, MB, GB, TB count by 1000): 64KiB, 1GiB";
    let (number, unit) = split(text, &SIZES, form)?;
    let wrong = || (format!("{} is not a size", quoted(text)), form.into());
    match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(unit).ok_or_else(wrong),
        Err(_) => {
            let bytes = number.parse::<f64>().map_err(|_| wrong())? * unit as f64;
            // Above this, floating point no longer tells one byte from the next.
            let exact = bytes.is_finite() && bytes < (1_u64 << 53) as f64;
            if exact {
                Ok(bytes.round() as u64)
            } else {
                Err(wrong())
            }
        }
    }
}

/// As it would be written, in the largest unit that leaves it whole.
pub(super) fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)) != duration {
        return format!("{duration:?}");
    }
    let unit = [(3_600_000, "h"), (60_000, "m"), (1000, "s")];
    let unit = unit.into_iter().find(|(size, _)| millis.is_multiple_of(*size));
    match unit {
        _ if millis == 0 => "0s".into(),
        Some((size, name)) => format!("{}{name}", millis / size),
        None => format!("{millis}ms"),
    }
}

/// As it would be written, in the largest unit that leaves it whole.
pub(super) fn show_bytes(bytes: u64) -> String {
    let unit = [
        (1 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    match unit
        .into_iter()
        .find(|(size, _)| bytes > 0 && bytes.is_multiple_of(*size))
    {
        Some((size, name)) => format!("{}{name}", bytes / size),
        None => format!("{bytes}B"),
    }
}

/// The number before the unit, and how much the unit is.
fn split<'t>(text: &'t str, units: &[(&str, u64)], form: &str) -> Result<(&'t str, u64), Wrong> {
    let digit = |c: char| c.is_ascii_digit() || c == '.';
    let end = text.find(|c| !digit(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if unit.is_empty() && !number.is_empty() {
        return Err(needs_unit(number, units[1].0));
    }
    let found = units.iter().find(|(name, _)| *name == unit.trim_start());
    match found {
        Some((_, size)) if number.starts_with(|c: char| c.is_ascii_digit()) => Ok((number, *size)),
        _ => Err((format!("{} cannot be read", quoted(text)), form.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let millis = Duration::from_millis;
        for (text, value) in [
            ("250ms", millis(250)),
            ("10s", millis(10_000)),
            ("1.5s", millis(1500)),
            ("5m", millis(300_000)),
            ("1h", millis(3_600_000)),
            ("0s", millis(0)),
            ("10 s", millis(10_000)),
        ] {
            assert_eq!(duration(text), Ok(value), "{text}");
        }
        for text in [
            "10",
            "s",
            "",
            "-1s",
            "1d",
            "1m30s",
            "1.2.3s",
            "99999999999999999999h",
            ".5s",
            "1 0s",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert_eq!(duration("10").unwrap_err().0, "10 needs a unit");
    }

    #[test]
    fn what_is_shown_reads_back() {
        for text in ["0s", "1ms", "1500ms", "90s", "25h", "1m"] {
            assert_eq!(show_duration(duration(text).unwrap()), text);
        }
        for text in ["0B", "7B", "1536B", "64KiB", "3GiB", "1TiB"] {
            assert_eq!(show_bytes(bytes(text).unwrap()), text);
        }
        assert_eq!(show_duration(Duration::from_nanos(1)), "1ns");
    }

    #[test]
    fn sizes() {
        for (text, value) in [
            ("64MiB", 64 << 20),
            ("1GiB", 1 << 30),
            ("16KiB", 16 << 10),
            ("1MB", 1_000_000),
            ("1kB", 1000),
            ("7B", 7),
            ("1.5KiB", 1536),
        ] {
            assert_eq!(bytes(text), Ok(value), "{text}");
        }
        for text in [
            "64",
            "64M",
            "64mib",
            "-1MiB",
            "99999999999TiB",
            "1e3MiB",
            "9999999.5TB",
        ] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
