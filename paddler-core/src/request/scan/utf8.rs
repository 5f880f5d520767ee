//! Are these bytes UTF-8?
//!
//! The standard library goes from character to character. This goes over blocks with no branch on what is in them, which the
//! compiler turns into vector instructions: several times as fast where text is not English. What is wrong with a byte
//! shows in it and the three before it, as in J. Keiser and D. Lemire, "Validating UTF-8 In Less Than One Instruction Per
//! Byte" (2021), with comparisons in place of their tables, for which there are no portable instructions.

use std::str;

const BLOCK: usize = 64;
/// The longest character but its last byte: what a block needs to see of the one before it.
const BEFORE: usize = 3;

/// Where bytes stop to be UTF-8.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Bad {
    /// How many are good before.
    pub(super) good: usize,
    /// Whether what follows could be the start of a character, of which the rest is missing.
    pub(super) cut: bool,
}

/// Whether they are, and else where not, as [`str::from_utf8`] says.
pub(super) fn check(bytes: &[u8]) -> Result<(), Bad> {
    let known = known_good(bytes);
    let rest = str::from_utf8(&bytes[known..]);
    rest.map(|_| ()).map_err(|error| Bad {
        good: known + error.valid_up_to(),
        cut: error.error_len().is_none(),
    })
}

/// How many whole characters at the start are known to be good, in bytes.
fn known_good(bytes: &[u8]) -> usize {
    let Some(first) = bytes.first_chunk::<BLOCK>() else {
        return 0;
    };
    let mut window = [0; BEFORE + BLOCK];
    window[BEFORE..].copy_from_slice(first);
    let mut at = 0;
    let mut next = Some(&window);
    while next.is_some_and(is_good) {
        at += BLOCK;
        next = bytes[at - BEFORE..].first_chunk();
    }
    // The last character may not be complete.
    let last = bytes[..at].iter().rposition(|byte| !continues(*byte));
    last.unwrap_or(0)
}

fn continues(byte: u8) -> bool {
    byte & 0xC0 == 0x80
}

/// Whether each byte but the first three can follow those before it. `saturating_sub` leaves the highest bit where a byte
/// is one of so many that are the highest.
#[inline]
fn is_good(window: &[u8; BEFORE + BLOCK]) -> bool {
    let (mut bits, mut wrong) = (0, false);
    for at in 0..BLOCK {
        let (third, second, first, byte) = (window[at], window[at + 1], window[at + 2], window[at + 3]);
        // It continues a character if and only if one began that is long enough.
        let must = first.saturating_sub(0xC0 - 0x80)
            | second.saturating_sub(0xE0 - 0x80)
            | third.saturating_sub(0xF0 - 0x80);
        let does = byte & !(byte << 1);
        // No character begins with a byte of 0xF5 or more.
        bits |= (must ^ does) | first.saturating_sub(0xF5 - 0x80);
        // As signed numbers, those that continue are the lowest.
        let (below_90, below_a0) = ((byte as i8) < 0x90u8 as i8, (byte as i8) < 0xA0u8 as i8);
        // Too long for what they stand for, half a surrogate pair, or above U+10FFFF.
        wrong |= (first & 0xFE == 0xC0)
            | ((first == 0xE0) & below_a0)
            | ((first == 0xED) & !below_a0)
            | ((first == 0xF0) & below_90)
            | ((first == 0xF4) & !below_90);
    }
    bits < 0x80 && !wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, whatever stands before and after, and wherever a block ends.
    fn agrees(bytes: &[u8]) {
        for before in [0, 61, 62, 63] {
            for after in [0, 70] {
                let mut all = "é".repeat(before / 2).into_bytes();
                all.resize(before, b'x');
                all.extend(bytes);
                all.extend("ü".repeat(after).bytes());
                let expected = str::from_utf8(&all).map(|_| ()).map_err(|error| Bad {
                    good: error.valid_up_to(),
                    cut: error.error_len().is_none(),
                });
                assert_eq!(check(&all), expected, "{bytes:x?} after {before}, before {after}");
            }
        }
    }

    /// What the rules know of, and what is beside it.
    const BOUNDS: [u8; 25] = [
        0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE,
        0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF8, 0xFF,
    ];

    #[test]
    fn pairs_of_bytes_are_judged_as_the_standard_library_does() {
        for first in 0..=255 {
            for second in BOUNDS {
                agrees(&[first, second]);
            }
        }
    }

    #[test]
    fn longer_characters_are_judged_as_the_standard_library_does() {
        let continuing = [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xE0, 0xF0];
        for first in BOUNDS {
            for second in continuing {
                for third in continuing {
                    agrees(&[first, second, third]);
                    for fourth in continuing {
                        agrees(&[first, second, third, fourth]);
                    }
                }
            }
        }
    }
}
