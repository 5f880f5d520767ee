//! What does the model say?
//!
//! Text, ids and vectors are drawn from a 64-bit seed, so equal seeds give equal answers.

/// Bytes of text that count as one token.
const BYTES_PER_TOKEN: usize = 4;

/// What every answer is made of.
const WORDS: [&str; 64] = [
    "amber", "anchor", "arrow", "autumn", "basket", "beacon", "birch", "blue", "bridge", "bright", "candle",
    "canyon", "cedar", "circle", "clear", "cloud", "copper", "coral", "crane", "delta", "distant", "early",
    "ember", "field", "forest", "garden", "gentle", "glass", "golden", "harbor", "hollow", "island", "ivory",
    "kettle", "lantern", "light", "marble", "meadow", "mirror", "morning", "narrow", "north", "ocean",
    "orchard", "paper", "pebble", "pine", "quiet", "rain", "river", "saddle", "silver", "slow", "stone",
    "summer", "thread", "tidal", "timber", "valley", "velvet", "violet", "water", "willow", "winter",
];

/// Spreads the bits of a number: one step of the splitmix64 generator.
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Where [`fnv`] begins.
pub(crate) const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// Takes bytes into an FNV-1a hash.
pub(crate) fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A 64-bit digest of bytes under a seed (FNV-1a, then spread).
pub(crate) fn digest(seed: u64, bytes: &[u8]) -> u64 {
    mix(fnv(FNV_START ^ mix(seed), bytes))
}

/// How many tokens a text counts as.
pub(crate) fn token_count(text: &str) -> usize {
    text.len().div_ceil(BYTES_PER_TOKEN).max(1)
}

/// Made-up token ids for a text: as many as it has tokens.
pub(crate) fn token_ids(seed: u64, text: &str) -> Vec<u64> {
    text.as_bytes()
        .chunks(BYTES_PER_TOKEN)
        .map(|piece| digest(seed, piece) % 32_000)
        .collect()
}

/// What the words are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Speech {
    #[default]
    Plain,
    /// Of characters of two to four bytes.
    Unicode,
    /// With a quote of what ends a stream.
    QuotesDone,
}

/// Words of two, three and four bytes a character.
const WIDE: [&str; 8] = [
    "Größe",
    "йога",
    "日本語",
    "한국",
    "🦀🚀",
    "naïve",
    "数字",
    "e\u{301}",
];

/// The `index`-th token of the answer that `seed` stands for.
pub(crate) fn token(seed: u64, index: usize, speech: Speech) -> String {
    let words = match speech {
        Speech::Unicode => &WIDE[..],
        Speech::Plain | Speech::QuotesDone => &WORDS[..],
    };
    let word = words[(mix(seed ^ mix(index as u64)) % words.len() as u64) as usize];
    let quote = "\n\ndata: [DONE]\n\n";
    let word = match speech {
        Speech::QuotesDone => format!("{word}{quote}"),
        Speech::Plain | Speech::Unicode => word.to_owned(),
    };
    if index == 0 { word } else { format!(" {word}") }
}

/// An id of letters and digits, as llama.cpp makes them.
pub(crate) fn letters(seed: u64, length: usize) -> String {
    const ALPHABET: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    (0..length as u64)
        .map(|place| char::from(ALPHABET[(mix(seed.wrapping_add(place)) % ALPHABET.len() as u64) as usize]))
        .collect()
}

/// An id of sixteen hexadecimal digits, as vLLM makes them.
pub(crate) fn hexadecimal(seed: u64) -> String {
    format!("{:016x}", mix(seed))
}

/// A vector of numbers between -1 and 1.
pub(crate) fn vector(seed: u64, dimensions: usize) -> Vec<f64> {
    (0..dimensions as u64)
        .map(|place| unit(seed.wrapping_add(place)) * 2.0 - 1.0)
        .collect()
}

/// A number from 0 to 1.
pub(crate) fn unit(seed: u64) -> f64 {
    (mix(seed) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_answers() {
        let say = |seed| {
            (0..20)
                .map(|index| token(seed, index, Speech::Plain))
                .collect::<String>()
        };
        assert_eq!(say(7), say(7));
        assert_ne!(say(7), say(8));
        assert_eq!(letters(3, 32).len(), 32);
        assert!(vector(5, 64).iter().all(|value| (-1.0..=1.0).contains(value)));
    }

    #[test]
    fn wide_words_are_wide_and_quotes_quote() {
        assert!(!token(1, 0, Speech::Unicode).is_ascii());
        assert!(token(1, 1, Speech::QuotesDone).ends_with("\n\ndata: [DONE]\n\n"));
    }

    #[test]
    fn four_bytes_are_a_token() {
        assert_eq!(token_count(""), 1);
        assert_eq!(token_count("12345"), 2);
        assert_eq!(token_ids(1, "12345").len(), 2);
    }
}
