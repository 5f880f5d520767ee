//! Which known word was meant?

use std::fmt;

use super::value::quoted;

/// A word that names nothing, with what was meant or all that there is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownWord(String);

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnknownWord {}

/// Which of `all` has this word for its name. `what` it should be, for the error: "a task".
pub(crate) fn named<T: Copy>(
    word: &str,
    what: &str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<T, UnknownWord> {
    let found = all.iter().copied().find(|one| name(*one) == word);
    found.ok_or_else(|| {
        let names: Vec<_> = all.iter().copied().map(name).collect();
        let mend = mend(word, &names).unwrap_or_default();
        UnknownWord(format!("{} is not {what}; {mend}", quoted(word)))
    })
}

/// The known word that is nearest to `word`, if one is near enough to have been meant.
pub(super) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    // Nobody misspells a known word into something much longer, and the distance costs the product of the lengths.
    const LONGEST: usize = 64;
    if word.len() > LONGEST {
        return None;
    }
    let asked = plain(word);
    let near = |candidate: &&'k str| {
        let candidate_plain = plain(candidate);
        let distance = distance(&asked, &candidate_plain);
        // One slip for every three letters, and at least one.
        let allowed = (asked.len().max(candidate.len()) / 3).clamp(1, 4);
        let begun = asked.len() >= 3 && candidate_plain.starts_with(&asked);
        let near = begun || (distance <= allowed && distance < asked.len());
        near.then_some((distance, *candidate))
    };
    known
        .iter()
        .filter_map(near)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// What to say of a word that is not known: the one that was meant, or else all that there are.
pub(super) fn mend(word: &str, known: &[&str]) -> Option<String> {
    if let Some(nearest) = nearest(word, known) {
        return Some(format!("did you mean {nearest:?}?"));
    }
    (!known.is_empty()).then(|| format!("known: {}", known.join(", ")))
}

/// As people mix it up: case, and the sign between words, tell nothing apart.
fn plain(word: &str) -> Vec<char> {
    let plain = word.chars().map(|c| if c == '-' || c == ' ' { '_' } else { c });
    plain.flat_map(char::to_lowercase).collect()
}

/// How many letters to add, leave out, change or swap with their neighbour (optimal string alignment).
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, r) in right.iter().enumerate() {
            let change = last[j] + usize::from(l != r);
            let mut best = change.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *l == right[j - 1] && left[i - 1] == *r {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_and_a_far_one_is_not() {
        let known = ["healthy", "heard", "slot", "queue_depth"];
        assert_eq!(nearest("helthy", &known), Some("healthy"));
        assert_eq!(nearest("haelthy", &known), Some("healthy"));
        assert_eq!(nearest("Queue-Depth", &known), Some("queue_depth"));
        assert_eq!(nearest("slots", &known), Some("slot"));
        assert_eq!(nearest("queue", &known), Some("queue_depth"));
        assert_eq!(nearest("temperature", &known), None);
        assert_eq!(nearest("slot", &["not"]), None);
        assert_eq!(nearest("", &known), None);
        assert_eq!(nearest("x", &["y"]), None);
    }

    #[test]
    fn distance_counts_slips() {
        let distance = |left: &str, right: &str| distance(&plain(left), &plain(right));
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("abc", "acb"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
