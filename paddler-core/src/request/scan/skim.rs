//! How long is a string that nobody keeps, and where does it end?
//!
//! Almost all of a body is such strings: prompts and images, of which only the length is asked. They are gone through by
//! blocks. In a block without escapes there is nothing to do, in one with escapes as text has them little: how
//! many there are, and what those come to that are written in digits. What is rare, and the end of a string, is gone through
//! escape by escape.

use super::block::{BLOCK, Escapes, Special, plain};
use super::text::{Run, ascii_run};

/// Most strings are shorter, and for them a block is much.
const SHORT: usize = 16;

/// So many bytes of escapes are taken in one go: many, so that going back to the blocks costs next to nothing for each, and few
/// enough that what is counted of them fits the 32 bits that are quick.
const RUN: u32 = 1 << 12;

/// For so many blocks after an escape, and at the start, something special is expected in each.
const EXPECTED: u32 = 8;

/// The values of hex digits. All else has a bit above the lowest sixteen, also when it is shifted as the first of four.
const HEX: [u32; 256] = {
    let mut values = [0x1_0000; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value] as usize] = value as u32;
        values[b"0123456789ABCDEF"[value] as usize] = value as u32;
        value += 1;
    }
    values
};

/// The start of a string, or of what is left of it, as far as it could be skimmed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Skimmed {
    /// How many bytes these are. The next one, if there is one, is a `"`, a control character, or a backslash whose
    /// escape is wrong, half of a surrogate pair, or not here as a whole.
    pub(super) len: usize,
    /// What the bytes come to with their escapes decoded.
    pub(super) decoded: usize,
    /// Whether they are known to be ASCII, so that they need no closer look.
    pub(super) ascii: bool,
}

/// Skims what follows a `"`, or an escape.
#[inline]
pub(super) fn skim(bytes: &[u8]) -> Skimmed {
    let near = &bytes[..bytes.len().min(SHORT)];
    let len = ascii_run(near);
    if near.get(len) == Some(&b'"') {
        return Skimmed {
            len,
            decoded: len,
            ascii: true,
        };
    }
    blocks(bytes, len)
}

/// Goes on after so many bytes of text. All that it knows is in registers.
#[inline(never)]
fn blocks(bytes: &[u8], first: usize) -> Skimmed {
    let (mut at, mut saved, mut high, mut expected) = (first, 0, false, EXPECTED);
    loop {
        let rest = &bytes[at..];
        if expected == 0 {
            let run = plain_blocks(rest);
            at += run.len;
            high |= !run.ascii;
            if run.len > 0 {
                continue;
            }
        }
        let last;
        let block = if let Some(block) = rest.first_chunk() {
            block
        } else {
            last = padded(rest);
            &last
        };
        let special = Special::of(block);
        expected = if special.has_backslashes() {
            EXPECTED
        } else {
            expected.saturating_sub(1)
        };
        // By now most are done. An escape that begins with the last byte begins the next block.
        let simple = special.simple();
        let tried = simple.is_some();
        if let Some(less) = simple.and_then(|simple| less(simple, block, rest)) {
            at += BLOCK - usize::from(block[BLOCK - 1] == b'\\');
            saved += less as usize;
            high |= special.odd;
            continue;
        }
        let crossed = cross(special, tried, block, rest);
        let len = crossed.len as usize;
        at += len;
        saved += crossed.less as usize;
        high |= special.odd && (len >= BLOCK || !rest[..len].is_ascii());
        if !crossed.goes_on {
            return Skimmed {
                len: at,
                decoded: at - saved,
                ascii: !high,
            };
        }
    }
}

/// The blocks at the start that hold nothing but text.
#[inline]
fn plain_blocks(bytes: &[u8]) -> Run {
    let (mut len, mut ascii) = (0, true);
    for block in bytes.as_chunks().0 {
        let plain = plain(block);
        if plain.special {
            break;
        }
        len += BLOCK;
        ascii &= !plain.high;
    }
    Run { len, ascii }
}

/// What is left of all, and control characters, at which it ends: with them, a block is not [`simple`](Special::simple).
#[cold]
fn padded(rest: &[u8]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..rest.len()].copy_from_slice(rest);
    block
}

/// How much less the escapes of a block come to than they are, if they are right and each is a character of its own, or half of
/// a pair of which both are here.
#[inline]
fn less(escapes: Escapes<impl Iterator<Item = usize>>, block: &[u8; BLOCK], rest: &[u8]) -> Option<u32> {
    let (mut less, mut pairs, mut second_halves) = (escapes.count, 0, 0);
    for at in escapes.escaped {
        match block[at] {
            b'n' | b't' | b'r' | b'/' | b'b' | b'f' => {}
            b'u' => {
                let unit = unit(rest.get(at + 1..at + 5)?)?;
                let followed = rest.get(at + 5..at + 7) == Some(b"\\u");
                match (encoded(unit), followed) {
                    (Some(encoded), false) => less += 5 - encoded,
                    (None, false) if unit >= 0xDC00 => second_halves += 1,
                    (None, true) if at + 6 < BLOCK && is_pair(unit, &rest[at + 5..]) => {
                        less += 2 * 5 - 4;
                        pairs += 1;
                    }
                    // Where one follows another there are many, for `cross`.
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
    // Each pair has a second half of its own, so that none is left over.
    (pairs == second_halves).then_some(less)
}

/// How far it goes in a block, or a little over its end.
struct Crossed {
    len: u32,
    /// How much less these bytes come to.
    less: u32,
    /// Whether the string goes on.
    goes_on: bool,
}

/// Goes over a block in which backslashes follow each other or something is rare, or to the end of the string if that is in it.
/// `tried`: what its escapes come to was asked already.
// JSON within JSON is here all the time, and a call is much for it.
#[inline(always)]
fn cross(special: Special, tried: bool, block: &[u8; BLOCK], rest: &[u8]) -> Crossed {
    let marks = special.marks(block);
    let whole = if tried { None } else { marks.whole() };
    if let Some(less) = whole.and_then(|whole| less(whole, block, rest)) {
        return Crossed {
            len: BLOCK as u32,
            less,
            goes_on: true,
        };
    }
    let text = !marks.ends & marks.ends.wrapping_sub(1);
    let mut crossed = Crossed {
        len: text.trailing_ones(),
        less: 0,
        goes_on: marks.ends == 0,
    };
    let mut escapes = marks.escapes & text;
    while escapes != 0 {
        let at = escapes.trailing_zeros();
        let Some(escape) = escape(&rest[at as usize..]) else {
            crossed.len = at;
            crossed.goes_on = false;
            break;
        };
        let end = at + escape.len;
        crossed.less += escape.less;
        crossed.len = crossed.len.max(end);
        escapes &= u64::MAX.checked_shl(end).unwrap_or(0);
    }
    crossed
}

struct Escape {
    len: u32,
    less: u32,
}

/// The escape at the start, if it is right and whole, and if it is in digits all escapes that follow it.
#[inline]
fn escape(bytes: &[u8]) -> Option<Escape> {
    if is_short(bytes) {
        return Some(Escape { len: 2, less: 1 });
    }
    let (mut len, mut less) = (0, 0);
    while len < RUN {
        let rest = &bytes[len as usize..];
        let (from, to) = match in_digits(rest).map(|first| (first, encoded(first))) {
            Some((_, Some(encoded))) => (6, encoded),
            Some((first, None)) if is_pair(first, &rest[6..]) => (12, 4),
            None if is_short(rest) => (2, 1),
            _ => break,
        };
        len += from;
        less += from - to;
    }
    (len > 0).then_some(Escape { len, less })
}

/// Whether one without digits is at the start.
#[inline]
fn is_short(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..]
    )
}

/// The value of the `\u` escape at the start.
#[inline]
fn in_digits(bytes: &[u8]) -> Option<u32> {
    match bytes.first_chunk::<6>()? {
        [b'\\', b'u', digits @ ..] => unit(digits),
        _ => None,
    }
}

/// The value of the four hex digits at the start.
#[inline]
fn unit(bytes: &[u8]) -> Option<u32> {
    let [a, b, c, d] = bytes.first_chunk::<4>()?.map(|digit| HEX[usize::from(digit)]);
    let unit = a << 12 | b << 8 | c << 4 | d;
    (unit < 0x1_0000).then_some(unit)
}

/// Whether half of a surrogate pair is the first, and the second follows.
#[inline]
fn is_pair(half: u32, following: &[u8]) -> bool {
    half < 0xDC00 && matches!(in_digits(following), Some(0xDC00..0xE000))
}

/// How many bytes a character has in UTF-8, unless it is half of a surrogate pair.
#[inline]
fn encoded(unit: u32) -> Option<u32> {
    let len = 1 + u32::from(unit >= 0x80) + u32::from(unit >= 0x800);
    (unit & 0xF800 != 0xD800).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, a byte at a time.
    fn slowly(bytes: &[u8]) -> Skimmed {
        let (mut len, mut decoded) = (0, 0);
        while let Some(&byte) = bytes.get(len) {
            let taken = match byte {
                b'\\' => escape_slowly(&bytes[len..]),
                b'"' | 0..0x20 => None,
                _ => Some((1, 1)),
            };
            let Some((from, to)) = taken else { break };
            len += from;
            decoded += to;
        }
        Skimmed {
            len,
            decoded,
            ascii: bytes[..len].is_ascii(),
        }
    }

    /// How long the escape at the start is, and what it comes to.
    fn escape_slowly(bytes: &[u8]) -> Option<(usize, usize)> {
        if bytes.get(1).is_some_and(|byte| b"\"\\/bfnrt".contains(byte)) {
            return Some((2, 1));
        }
        let unit = |at: usize| {
            let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
            u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
        };
        let decoded = |units: &[u16]| char::decode_utf16(units.iter().copied()).next()?.ok();
        let (first, second) = (unit(0)?, unit(6));
        let alone = decoded(&[first]).map(|character| (6, character.len_utf8()));
        alone.or_else(|| Some((12, decoded(&[first, second?])?.len_utf8())))
    }

    #[test]
    fn what_is_special_is_found_wherever_it_stands_in_a_block() {
        let escapes = r#"" \ \" \\ \\" \\\ \\\" \\n \\\n \\u \n \b \/ \x \é \u \u00e \u00e9 \u2014 \u0022 \u000a \u20"4 \u20\n4 \u201g
            \u4e2d\u6587 \ud83d\ude00 \ud83d\ude00\u00e9 \ud83d \ud83d\n \ud83d\u0041 \ude00 \ud83d\ud83d \ud83d\ud83d\ude00
            \ud83d\ude0 \\ud83d\ude00 \ude00\ude00 \ud83d\ue000 \ud83d\uffff"#;
        let others = [
            "\\\n",
            "\n",
            "\u{1f}",
            " ",
            "!",
            "#",
            "]",
            "\u{7f}",
            "é",
            "中",
            "😀",
            // A second half alone in the block in which a pair begins.
            "\\ude00 and words until close to the end of it: \\ud83d\\ude00",
        ];
        let pieces: Vec<&str> = escapes.split_whitespace().chain(others).collect();
        // Blocks that are plain, that have escapes of each kind, and that are not ASCII.
        for filling in [
            "some text",
            "a line\\n",
            "a \\\\ sign",
            "a \\\"word\\\"",
            "a dash \\u2014",
            "\\u4e2d\\u6587",
            "\\\\\\\"",
            "words é",
        ] {
            let text = filling.repeat(12 * BLOCK / filling.len() + 1);
            // After so many blocks without escapes, none is expected any more.
            let many = if filling.contains('\\') {
                0..0
            } else {
                9 * BLOCK..10 * BLOCK
            };
            let places = (0..2 * BLOCK).chain(many);
            for before in places.filter(|before| text.is_char_boundary(*before)) {
                for piece in &pieces {
                    for after in [
                        "",
                        "n",
                        "\"",
                        "\\n and the rest of it, which is longer than a block is, and so on to its end.\"",
                    ] {
                        let bytes = [&text[..before], piece, after].concat().into_bytes();
                        assert_eq!(skim(&bytes), slowly(&bytes), "{}", bytes.escape_ascii());
                    }
                }
            }
        }
    }

    /// Where one block follows another in all ways: with a new rule for each, from the same few pieces.
    #[test]
    fn long_strings_are_skimmed_as_they_are_read_slowly() {
        let pieces = [
            "text ",
            "a long run of text without anything special in it, and so on. ",
            "\\n",
            "\\\"",
            "\\\\",
            "\\u2014",
            "\\ud83d\\ude00",
            "é",
            "\\/",
            "\\u4e2d\\u6587\\u4e2d",
        ];
        let mut state: u64 = 1;
        for _ in 0..2000 {
            let mut text = String::new();
            // The more often one is drawn, the more of its kind follow each other.
            while text.len() < 1500 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let piece = pieces[(state >> 33) as usize % pieces.len()];
                text.push_str(&piece.repeat(1 + (state >> 60) as usize));
            }
            text.push('"');
            let bytes = text.as_bytes();
            assert_eq!(skim(bytes), slowly(bytes), "{text}");
            assert_eq!(skim(bytes).len, bytes.len() - 1, "{text}");
        }
    }

    #[test]
    fn an_escape_counts_as_the_character_it_stands_for() {
        for (text, decoded) in [
            (r"\n\t\/", 3),
            (r"\u0041", 1),
            (r"\u007f\u0080\u07FF\u0800\uffff", 1 + 2 + 2 + 3 + 3),
            (r"\uD83D\uDE00", 4),
        ] {
            let long = text.repeat(100);
            let expected = Skimmed {
                len: long.len(),
                decoded: decoded * 100,
                ascii: true,
            };
            assert_eq!(skim(long.as_bytes()), expected, "{text}");
        }
        // What is not here as a whole, or half of a pair.
        for text in [
            r"\",
            r"\u",
            r"\u004",
            r"\ud83d",
            r"\ud83d\u0041",
            r"\ude00",
            r"\x",
            r"\u00g0",
        ] {
            assert_eq!(skim(text.as_bytes()).len, 0, "{text}");
        }
    }
}
