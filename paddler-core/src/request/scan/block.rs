//! Which bytes of a block mean something in a string, and where do they stand?
//!
//! All of a block is looked at in one go, by loops without branches that the compiler turns into vector instructions. What
//! they find becomes bits of a word, one for each byte.

use std::array;

use crate::upstream::Bits;

/// How many bytes are looked at in one go: as many as a word has bits.
pub(super) const BLOCK: usize = 64;

/// The last byte of a block, in order or laid over.
const LAST: u64 = 1 << (BLOCK - 1);

/// As many bytes as vectors have everywhere.
const VECTOR: usize = 16;

pub(super) struct Plain {
    pub(super) special: bool,
    pub(super) high: bool,
}

/// Whether there are special bytes in a block: `"`, `\` or control characters. Flipping the second bit makes `"` the next
/// one after the control characters, and so both are one comparison (D. Lemire, "Quickly checking whether a string needs
/// escaping", 2024).
#[inline]
pub(super) fn plain(block: &[u8; BLOCK]) -> Plain {
    let (mut special, mut high) = (false, false);
    for &byte in block {
        special |= (byte ^ 2 < 0x21) | (byte == b'\\');
        high |= byte >= 0x80;
    }
    Plain { special, high }
}

/// Some bytes of a block, in the order in which they are cheap to get. Safe Rust has no instruction that gathers a bit of each
/// byte, so the words of a block are laid over each other: bit `8 * i + j` is for byte `i` of word `j`.
#[derive(Clone, Copy)]
pub(super) struct Laid(u64);

impl Laid {
    #[inline]
    fn of(block: &[u8; BLOCK], is: impl Fn(u8) -> bool) -> Self {
        let bit = |at: usize| if is(block[at]) { 1 << (at / 8) } else { 0 };
        let lanes =
            array::from_fn(|at| bit(at) | bit(at + VECTOR) | bit(at + 2 * VECTOR) | bit(at + 3 * VECTOR));
        let lanes = u128::from_le_bytes(lanes);
        Self(lanes as u64 | (lanes >> 64) as u64)
    }

    /// The bytes that follow these in the block.
    #[inline]
    fn following(self) -> Self {
        Self(self.0 << 8 | (self.0 >> 55 & 0xFE))
    }

    /// Two of them, the lowest bit for the first byte, and so on: matrices of 8 by 8 bits that are turned over at once.
    #[inline]
    fn in_order(pair: [Self; 2]) -> [u64; 2] {
        let swapped = |pair: [u64; 2], by: u32, which: u64| {
            pair.map(|bits| {
                let differ = (bits ^ (bits >> by)) & which;
                bits ^ differ ^ (differ << by)
            })
        };
        let pair = swapped(pair.map(|laid| laid.0), 7, 0x00AA_00AA_00AA_00AA);
        let pair = swapped(pair, 14, 0x0000_CCCC_0000_CCCC);
        swapped(pair, 28, 0x0000_0000_F0F0_F0F0)
    }
}

/// Their places, in no order.
impl Iterator for Laid {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let mut bits = Bits(self.0);
        let bit = bits.next()?;
        self.0 = bits.0;
        Some((bit << 3 | bit >> 3) % BLOCK)
    }
}

/// What a block has that means something in a string. It begins with no second half of an escape.
#[derive(Clone, Copy)]
pub(super) struct Special {
    backslashes: Laid,
    quotes: Laid,
    controls: bool,
    /// Whether there are control characters, or bytes that are not ASCII.
    pub(super) odd: bool,
}

/// The escapes of a block: how many there are, and the places of what follows their backslashes, but `"` and `\`.
pub(super) struct Escapes<P> {
    pub(super) count: u32,
    pub(super) escaped: P,
}

impl Special {
    // It has to be where its loop is, whose registers hold what it compares with.
    #[inline(always)]
    pub(super) fn of(block: &[u8; BLOCK]) -> Self {
        // As signed numbers, those that are not ASCII are below 0.
        let odd = any(block, |byte| (byte as i8) < 0x20);
        Self {
            backslashes: Laid::of(block, |byte| byte == b'\\'),
            quotes: Laid::of(block, |byte| byte == b'"'),
            controls: odd && has_controls(block),
            odd,
        }
    }

    pub(super) fn has_backslashes(self) -> bool {
        self.backslashes.0 != 0
    }

    /// The escapes, if the string does not end here and no backslash follows another, so that each begins an escape. Its last
    /// byte may begin one, which is not counted.
    #[inline]
    pub(super) fn simple(self) -> Option<Escapes<Laid>> {
        let (backslashes, quotes) = (self.backslashes, self.quotes);
        let following = backslashes.following();
        let odd = backslashes.0 & following.0 | quotes.0 & !following.0;
        (odd == 0 && !self.controls).then(|| Escapes {
            count: (backslashes.0 & !LAST).count_ones(),
            escaped: Laid(following.0 & !quotes.0),
        })
    }

    #[inline]
    pub(super) fn marks(self, block: &[u8; BLOCK]) -> Marks {
        let [backslashes, quotes] = Laid::in_order([self.backslashes, self.quotes]);
        let escapes = beginning(backslashes);
        let controls = if self.controls { controls(block) } else { 0 };
        Marks {
            ends: controls | quotes & !(escapes << 1),
            escapes,
            escaped: (escapes << 1) & !(backslashes | quotes),
        }
    }
}

/// Where the special bytes of a block are: the lowest bit is for the first byte.
pub(super) struct Marks {
    /// What ends a string, well or not: each `"` that is not escaped, and each control character.
    pub(super) ends: u64,
    /// The backslashes that begin an escape.
    pub(super) escapes: u64,
    /// What follows them, but `"` and `\`.
    escaped: u64,
}

impl Marks {
    /// The escapes, if they and the string do not end here.
    #[inline]
    pub(super) fn whole(&self) -> Option<Escapes<Bits>> {
        (self.ends | self.escapes & LAST == 0).then(|| Escapes {
            count: self.escapes.count_ones(),
            escaped: Bits(self.escaped),
        })
    }
}

/// Which of the backslashes begin an escape: in each run of them the first, the third and so on. Adding its first one to
/// a run carries through all of it (as in G. Langdale and D. Lemire, "Parsing Gigabytes of JSON per Second", 2019).
#[inline]
fn beginning(backslashes: u64) -> u64 {
    const EVEN: u64 = u64::MAX / 3;
    let first = backslashes & !(backslashes << 1);
    let from_even = backslashes & !backslashes.wrapping_add(first & EVEN);
    backslashes & (!EVEN ^ from_even)
}

/// The whole numbers of an array that begin a block, each with a comma after it and one space at most before it, as token
/// ids are written.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Numbers {
    pub(super) count: u32,
    /// How many bytes they are, with their commas.
    pub(super) len: usize,
}

/// All that end in the block, if there is nothing else in it.
#[inline]
pub(super) fn numbers(block: &[u8; BLOCK]) -> Option<Numbers> {
    if any(block, |byte| !matches!(byte, b'0'..=b'9' | b',' | b' ')) {
        return None;
    }
    let [commas, spaces, zeros] = [b',', b' ', b'0'].map(|wanted| Laid::of(block, |byte| byte == wanted));
    // The first byte follows a comma, too.
    let after_comma = commas.following().0 | 1;
    let between = Laid(commas.0 | spaces.0);
    let first = (between.following().0 | 1) & !between.0;
    let digits = !between.0;
    let leading_zeros = Laid(zeros.0 & first).following().0 & digits;
    let odd = commas.0 & !Laid(digits).following().0 | spaces.0 & !after_comma | leading_zeros;
    let [in_order, _] = Laid::in_order([commas, commas]);
    (odd == 0).then(|| Numbers {
        count: commas.0.count_ones(),
        len: BLOCK - in_order.leading_zeros() as usize,
    })
}

/// Whether any byte is such.
#[inline]
fn any(block: &[u8; BLOCK], is: impl Fn(u8) -> bool) -> bool {
    let found: [bool; VECTOR] = array::from_fn(|at| {
        is(block[at]) | is(block[at + VECTOR]) | is(block[at + 2 * VECTOR]) | is(block[at + 3 * VECTOR])
    });
    found != [false; VECTOR]
}

// These two stand alone, since English text needs neither, and mixed with the rest they would not become vectors.
#[inline(never)]
fn has_controls(block: &[u8; BLOCK]) -> bool {
    any(block, |byte| byte < 0x20)
}

#[inline(never)]
fn controls(block: &[u8; BLOCK]) -> u64 {
    let [controls, _] = Laid::in_order([Laid::of(block, |byte| byte < 0x20), Laid(0)]);
    controls
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bits of those places where something is.
    fn bits(is: impl Fn(usize) -> bool) -> u64 {
        (0..BLOCK).map(|at| u64::from(is(at)) << at).sum()
    }

    fn check(block: &[u8; BLOCK]) {
        let mut begins = [false; BLOCK];
        for at in 0..BLOCK {
            begins[at] = block[at] == b'\\' && (at == 0 || !begins[at - 1]);
        }
        let escaped = |at: usize| at > 0 && begins[at - 1];
        let text = block.escape_ascii();
        let special = Special::of(block);
        let odd = block.iter().any(|byte| !(0x20..0x80).contains(byte));
        assert_eq!(special.odd, odd, "{text}");
        let marks = special.marks(block);
        assert_eq!(marks.escapes, bits(|at| begins[at]), "{text}");
        let ends = bits(|at| (block[at] == b'"' && !escaped(at)) || block[at] < 0x20);
        assert_eq!(marks.ends, ends, "{text}");
        let looked_at = bits(|at| escaped(at) && !matches!(block[at], b'"' | b'\\'));
        assert_eq!(marks.escaped, looked_at, "{text}");
        let whole = ends == 0 && !begins[BLOCK - 1];
        assert_eq!(marks.whole().is_some(), whole, "{text}");
        let in_runs = block.windows(2).any(|pair| pair == b"\\\\");
        let simple = special.simple();
        assert_eq!(simple.is_some(), ends == 0 && !in_runs, "{text}");
        if let Some(simple) = simple {
            let count = begins[..BLOCK - 1].iter().filter(|begins| **begins).count();
            assert_eq!(simple.count as usize, count, "{text}");
            let places = simple.escaped.map(|at| 1 << at).sum::<u64>();
            assert_eq!(places, looked_at, "{text}");
        }
    }

    #[test]
    fn a_block_is_plain_but_for_its_special_bytes() {
        for byte in 0..=255u8 {
            for at in 0..BLOCK {
                let mut block = [b'x'; BLOCK];
                block[at] = byte;
                let Plain { special, high } = plain(&block);
                let expected = byte < 0x20 || matches!(byte, b'"' | b'\\');
                assert_eq!((special, high), (expected, !byte.is_ascii()), "{byte:#x} at {at}");
            }
        }
    }

    #[test]
    fn marks_are_where_the_bytes_are() {
        for byte in 0..=255 {
            for at in 0..BLOCK {
                for filling in [b'x', b'"', b'\\', 0xE9] {
                    let mut block = [filling; BLOCK];
                    block[at] = byte;
                    check(&block);
                    let mut pairs = *b"x\\";
                    pairs.rotate_left(at % 2);
                    let mut block: [u8; BLOCK] = array::from_fn(|at| pairs[at % 2]);
                    block[at] = byte;
                    check(&block);
                }
            }
        }
    }

    #[test]
    fn backslashes_count_from_the_start_of_their_run() {
        for start in 0..BLOCK {
            for len in 1..=BLOCK - start {
                for filling in [*b"xy", *b"\\n", *b"\\\"", *b"x\\"] {
                    let mut block: [u8; BLOCK] = array::from_fn(|at| filling[at % 2]);
                    block[start..start + len].fill(b'\\');
                    check(&block);
                }
            }
        }
    }

    /// The same, by what stands before each byte.
    fn numbers_slowly(block: &[u8; BLOCK]) -> Option<Numbers> {
        let (mut count, mut len, mut before) = (0, 0, [b',', b',']);
        for (at, byte) in block.iter().enumerate() {
            let fits = match (byte, before) {
                (b' ', [_, b',']) | (b',', [_, b'0'..=b'9']) => true,
                (b'0'..=b'9', [b',' | b' ', b'0']) => false,
                (b'0'..=b'9', _) => true,
                _ => false,
            };
            if !fits {
                return None;
            }
            if *byte == b',' {
                (count, len) = (count + 1, at + 1);
            }
            before = [before[1], *byte];
        }
        Some(Numbers { count, len })
    }

    #[test]
    fn whole_numbers_are_counted_where_nothing_else_is() {
        for text in [
            "12,90311,7,0,128000,",
            "1, 20, 300, 0, 5000,",
            "0,10,100,0,",
            "12345678901234567890",
        ] {
            for start in 0..text.len() {
                let text: Vec<u8> = text.bytes().cycle().skip(start).take(BLOCK).collect();
                for at in 0..BLOCK {
                    for byte in *b",  0917-.e]\"\n/:\x80" {
                        let mut block = *text.first_chunk().unwrap();
                        block[at] = byte;
                        assert_eq!(
                            numbers(&block),
                            numbers_slowly(&block),
                            "{}",
                            block.escape_ascii()
                        );
                    }
                }
            }
        }
    }
}
