//! How are many numbers summed up in a few?

/// The middle of these numbers, without those that are none; NaN where none is left.
pub fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.into_iter().filter(|number| !number.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => f64::NAN,
        (length, middle) if length % 2 == 1 => sorted[middle],
        (_, middle) => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The number that so many of a hundred are not above; NaN where there is none.
#[must_use]
pub fn percentile(sorted: &[f64], percent: usize) -> f64 {
    per_mille(sorted, 10 * percent)
}

/// The number that so many of a thousand are not above; NaN where there is none.
#[must_use]
pub fn per_mille(sorted: &[f64], of_thousand: usize) -> f64 {
    let place = (sorted.len() * of_thousand / 1_000).min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_of_what_is_a_number() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, f64::NAN, 2.0, 9.0]), 3.0);
        assert!(median([f64::NAN]).is_nan());
    }

    #[test]
    fn a_percentile_is_one_of_the_numbers() {
        let sorted: Vec<f64> = (0..200).map(f64::from).collect();
        assert_eq!(percentile(&sorted, 50), 100.0);
        assert_eq!(percentile(&sorted, 99), 198.0);
        assert_eq!(percentile(&sorted, 100), 199.0);
        assert!(percentile(&[], 50).is_nan());
        let sorted: Vec<f64> = (0..2_000).map(f64::from).collect();
        assert_eq!(per_mille(&sorted, 999), 1_998.0);
        assert!(per_mille(&[], 999).is_nan());
    }
}
