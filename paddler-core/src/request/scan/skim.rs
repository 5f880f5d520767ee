//! How long is a string that nobody keeps, and where does it end?
//!
//! Almost all of a body is such strings: prompts and images, of which only the length is asked. Two passes over blocks of
//! bytes do the work, each a loop without branches that the compiler turns into vector instructions. The blocks that
//! they leave, with an end or a rare escape in them, are gone through by words and byte by byte.

use super::text::plain_run;

/// How many bytes a pass looks at in one go: enough to be worth the answer at its end.
const BLOCK: usize = 64;

/// For so many blocks after an escape another one is expected.
const EXPECTED: u32 = 8;

/// The values of hex digits, and 0xFF for all else.
const HEX: [u8; 256] = {
    let mut values = [0xFF; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value] as usize] = value as u8;
        values[b"0123456789ABCDEF"[value] as usize] = value as u8;
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
pub(super) fn skim(bytes: &[u8]) -> Skimmed {
    let mut skim = Skim::default();
    while skim.step(bytes) {
        skim.blocks(bytes);
    }
    Skimmed {
        len: skim.at,
        decoded: skim.at - skim.saved,
        ascii: !skim.high,
    }
}

#[derive(Default)]
struct Skim {
    at: usize,
    /// How much shorter the text is than what stands for it.
    saved: usize,
    /// Whether there was a byte that is not ASCII.
    high: bool,
    /// Blocks that are likely to have escapes in them.
    expected: u32,
}

impl Skim {
    /// Goes on by up to a block, or to what is special there, and over the escapes that stand there. Whether it goes on.
    #[inline]
    fn step(&mut self, bytes: &[u8]) -> bool {
        let rest = &bytes[self.at..];
        let near = &rest[..rest.len().min(BLOCK)];
        let run = plain_run(near);
        self.at += run.len;
        self.high |= !run.ascii;
        if run.len == near.len() {
            return run.len < rest.len();
        }
        while let Some(escape) = escape(&bytes[self.at..]) {
            self.at += escape.len;
            self.saved += escape.len - escape.decoded;
            self.expected = EXPECTED;
        }
        bytes
            .get(self.at)
            .is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20))
    }

    /// Goes on by whole blocks, as long as there is nothing in them but text and the usual escapes.
    fn blocks(&mut self, bytes: &[u8]) {
        loop {
            let rest = &bytes[self.at..];
            let Some(block) = rest.first_chunk() else { return };
            if self.expected == 0 {
                let plain = plain(block);
                if !plain.special {
                    self.at += BLOCK;
                    self.high |= plain.high;
                    continue;
                }
            }
            let Some(block) = rest.first_chunk() else { return };
            let pairs = pairs(block);
            // That a string begins with a `"` which no pair has as its second byte, is its end.
            if pairs.odd || block[0] == b'"' {
                return;
            }
            // An escape may reach over the end of the block: its second byte has been seen too.
            self.at += BLOCK + usize::from(block[BLOCK - 1] == b'\\');
            self.saved += usize::from(pairs.escapes);
            self.high |= pairs.high;
            self.expected = if pairs.escapes > 0 {
                EXPECTED
            } else {
                self.expected.saturating_sub(1)
            };
        }
    }
}

struct Plain {
    special: bool,
    high: bool,
}

/// Whether there are special bytes in a block: `"`, `\` or control characters. Flipping the second bit makes `"` the next
/// one after the control characters, and so both are one comparison (D. Lemire, "Quickly checking whether a string needs
/// escaping", 2024).
#[inline]
fn plain(block: &[u8; BLOCK]) -> Plain {
    let (mut special, mut high) = (false, false);
    for &byte in block {
        special |= (byte ^ 2 < 0x21) | (byte == b'\\');
        high |= byte >= 0x80;
    }
    Plain { special, high }
}

struct Pairs {
    /// Whether there is anything but text and usual escapes.
    odd: bool,
    escapes: u8,
    high: bool,
}

/// Looks at each byte of a block together with the next one: a backslash must begin a usual escape, and a `"` must follow
/// a backslash. As one backslash after another is not usual here, each of them does begin an escape.
#[inline]
fn pairs(block: &[u8; BLOCK + 1]) -> Pairs {
    let (mut odd, mut escapes, mut high) = (false, 0, false);
    for at in 0..BLOCK {
        let (byte, next) = (block[at], block[at + 1]);
        let (escape, quote) = (byte == b'\\', next == b'"');
        let usual = quote | (next == b'n') | (next == b't') | (next == b'r') | (next == b'/');
        odd |= (byte < 0x20) | (escape & !usual) | (quote & !escape);
        escapes += u8::from(escape);
        high |= byte >= 0x80;
    }
    Pairs { odd, escapes, high }
}

struct Escape {
    len: usize,
    decoded: usize,
}

/// The escape at the start, if it is right and whole.
#[inline]
fn escape(bytes: &[u8]) -> Option<Escape> {
    let (len, decoded) = match bytes {
        [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => (2, 1),
        [b'\\', b'u', rest @ ..] => match unit(rest)? {
            0..0x80 => (6, 1),
            0x80..0x800 => (6, 2),
            0xD800..0xDC00 => match rest.get(4..)? {
                [b'\\', b'u', low @ ..] if matches!(unit(low)?, 0xDC00..0xE000) => (12, 4),
                _ => return None,
            },
            0xDC00..0xE000 => return None,
            _ => (6, 3),
        },
        _ => return None,
    };
    Some(Escape { len, decoded })
}

/// The value of the four hex digits at the start.
#[inline]
fn unit(bytes: &[u8]) -> Option<u32> {
    let digits = bytes.first_chunk::<4>()?.map(|digit| HEX[usize::from(digit)]);
    let [a, b, c, d] = digits.map(u32::from);
    // A byte that is no digit has bits above the lowest four.
    ((a | b | c | d) < 16).then_some(a << 12 | b << 8 | c << 4 | d)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, a byte at a time.
    fn slowly(bytes: &[u8]) -> Skimmed {
        let (mut len, mut saved) = (0, 0);
        while let Some(&byte) = bytes.get(len) {
            let taken = match byte {
                b'\\' => escape(&bytes[len..]).map(|escape| (escape.len, escape.decoded)),
                b'"' | 0..0x20 => None,
                _ => Some((1, 1)),
            };
            let Some((from, to)) = taken else { break };
            len += from;
            saved += from - to;
        }
        Skimmed {
            len,
            decoded: len - saved,
            ascii: bytes[..len].is_ascii(),
        }
    }

    #[test]
    fn what_is_special_is_found_wherever_it_stands_in_a_block() {
        let pieces = [
            "\"",
            "\\",
            "\\\"",
            "\\\\",
            "\\\\\"",
            "\\n",
            "\\b",
            "\\x",
            "\\u",
            "\\u00e9",
            "\\ud83d\\ude00",
            "\\ud83d",
            "\\ude00",
            "\n",
            "\u{1f}",
            " ",
            "!",
            "#",
            "]",
            "\u{7f}",
            "é",
        ];
        // Blocks that are plain, that have an escape each, and that have one which is not usual.
        for filling in ["some text", "a line\\n", "a \\\\ sign"] {
            let text = filling.repeat(4 * BLOCK / filling.len() + 1);
            for before in 0..3 * BLOCK {
                for piece in pieces {
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
