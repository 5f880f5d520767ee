//! Within what may the number be that a flag says?

use std::fmt::Display;
use std::str::FromStr;

/// A whole number from 1 to `MOST`: of none there is nothing to measure.
///
/// # Errors
/// When it is another one, or none; with the range.
pub fn whole<const MOST: usize>(text: &str) -> Result<usize, String> {
    within(text, "a whole number", 1, MOST)
}

/// Seconds from 0.5 to 3600. The system counts CPU time in ticks of 10 ms: less than half a second tells nothing.
///
/// # Errors
/// When it is something else, with the range.
pub fn seconds(text: &str) -> Result<f64, String> {
    within(text, "a number", 0.5, 3_600.0)
}

/// How many a second, from 1 to 1000000.
///
/// # Errors
/// When it is something else, with the range.
pub fn rate(text: &str) -> Result<f64, String> {
    within(text, "a number", 1.0, 1_000_000.0)
}

fn within<N: FromStr + PartialOrd + Display>(text: &str, kind: &str, least: N, most: N) -> Result<N, String> {
    let number = text.parse().ok();
    number
        .filter(|number| (&least..=&most).contains(&number))
        .ok_or_else(|| format!("it has to be {kind} from {least} to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_a_range_is_refused_with_it() {
        assert_eq!((whole::<9>("1"), whole::<9>("9")), (Ok(1), Ok(9)));
        assert_eq!((seconds("0.5"), seconds("3600")), (Ok(0.5), Ok(3_600.0)));
        assert_eq!((rate("1"), rate("1e6")), (Ok(1.0), Ok(1e6)));
        for beyond in ["0", "10", "-1", "1.5", "NaN", "inf", "", "many"] {
            let told = whole::<9>(beyond).unwrap_err();
            assert_eq!(told, "it has to be a whole number from 1 to 9", "{beyond}");
        }
        for beyond in ["0.499", "3600.001", "-1", "NaN", "inf", "", "many"] {
            let told = seconds(beyond).unwrap_err();
            assert_eq!(told, "it has to be a number from 0.5 to 3600", "{beyond}");
        }
        for beyond in ["0", "0.9", "1000001", "-1", "NaN", "inf", ""] {
            let told = rate(beyond).unwrap_err();
            assert_eq!(told, "it has to be a number from 1 to 1000000", "{beyond}");
        }
    }
}
