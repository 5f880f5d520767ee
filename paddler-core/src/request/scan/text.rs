//! Which characters does a string stand for, when its bytes come in pieces?

use std::str;

use super::utf8;

/// `0x01` and `0x80` in each byte of a word.
const ONES: u64 = u64::MAX / 255;
const HIGHS: u64 = ONES << 7;

/// Bytes that have no meaning of their own inside a string: all but `"`, `\` and control characters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Run {
    /// How many there are from the start.
    pub(super) len: usize,
    /// Whether they are known to be ASCII, so that they need no closer look.
    pub(super) ascii: bool,
}

/// The run at the start of some bytes.
#[inline]
pub(super) fn plain_run(bytes: &[u8]) -> Run {
    let known = ascii_run(bytes);
    // Here is the end of the run, or a byte that is not ASCII.
    let len = unmarked(&bytes[known..], |word| below(word) & !word, is_plain);
    Run {
        len: known + len,
        ascii: len == 0,
    }
}

/// How many bytes at the start have no meaning of their own, and are ASCII.
#[inline]
pub(super) fn ascii_run(bytes: &[u8]) -> usize {
    unmarked(bytes, below, |byte| is_plain(byte) && byte.is_ascii())
}

/// How many bytes there are before the first one with a mark, which is in the high bit of its byte in a word, or in what is
/// less than a word before the first that is not `fine`.
#[inline]
fn unmarked(bytes: &[u8], marks: impl Fn(u64) -> u64, fine: impl Fn(u8) -> bool) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let marks = marks(u64::from_le_bytes(*word)) & HIGHS;
        if marks != 0 {
            // The lowest mark is exact; those above it may be carried over from it.
            return at * 8 + marks.trailing_zeros() as usize / 8;
        }
    }
    bytes.len() - rest.len() + rest.iter().take_while(|byte| fine(**byte)).count()
}

/// Marks, in the high bit, the bytes of a word that are `"`, `\`, below 0x20 or not ASCII. Of ASCII bytes a difference has this
/// bit where it is below 0; of each other byte one of the first two has it.
#[inline]
fn below(word: u64) -> u64 {
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    quote.wrapping_sub(ONES) | backslash.wrapping_sub(ONES) | word.wrapping_sub(ONES * 0x20)
}

fn is_plain(byte: u8) -> bool {
    byte >= 0x20 && byte != b'"' && byte != b'\\'
}

/// What is left over between two pieces of a string: part of a UTF-8 character, and the first half of a surrogate pair.
#[derive(Clone, Debug, Default)]
pub(super) struct Decoder {
    partial: [u8; 4],
    partial_len: usize,
    high: Option<u16>,
}

/// The bytes are not UTF-8; the offset is relative to the piece, and negative when the character began before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct BadUtf8(pub(super) i64);

impl Decoder {
    /// Takes a run of plain bytes and hands on what is decoded. `last`: the run ends the chunk, so that its last
    /// character may be cut.
    #[inline]
    pub(super) fn plain(
        &mut self,
        run: &[u8],
        ascii: bool,
        last: bool,
        mut emit: impl FnMut(&[u8]),
    ) -> Result<(), BadUtf8> {
        if !run.is_empty() {
            self.flush_surrogate(&mut emit);
        }
        if ascii && self.partial_len == 0 {
            emit(run);
            return Ok(());
        }
        self.checked(run, last, emit)
    }

    fn checked(&mut self, run: &[u8], last: bool, mut emit: impl FnMut(&[u8])) -> Result<(), BadUtf8> {
        let taken = self.complete(run, &mut emit)?;
        if self.partial_len > 0 {
            return if last {
                Ok(())
            } else {
                Err(self.bad_partial(taken))
            };
        }
        let run = &run[taken..];
        let Err(bad) = utf8::check(run) else {
            emit(run);
            return Ok(());
        };
        let (good, tail) = run.split_at(bad.good);
        if !bad.cut || !last {
            return Err(BadUtf8((taken + good.len()) as i64));
        }
        emit(good);
        self.partial[..tail.len()].copy_from_slice(tail);
        self.partial_len = tail.len();
        Ok(())
    }

    /// Adds bytes to a character that an earlier chunk began, until it is whole. Says how many it took.
    fn complete(&mut self, run: &[u8], emit: &mut impl FnMut(&[u8])) -> Result<usize, BadUtf8> {
        let mut taken = 0;
        while self.partial_len > 0 && taken < run.len() {
            self.partial[self.partial_len] = run[taken];
            self.partial_len += 1;
            taken += 1;
            match str::from_utf8(&self.partial[..self.partial_len]) {
                Ok(text) => {
                    emit(text.as_bytes());
                    self.partial_len = 0;
                }
                Err(error) if error.error_len().is_none() => {}
                Err(_) => return Err(self.bad_partial(taken)),
            }
        }
        Ok(taken)
    }

    fn bad_partial(&self, taken: usize) -> BadUtf8 {
        BadUtf8(taken as i64 - self.partial_len as i64)
    }

    /// Takes the character of a short escape, such as `\n`.
    #[inline]
    pub(super) fn escaped(&mut self, byte: u8, mut emit: impl FnMut(&[u8])) {
        self.flush_surrogate(&mut emit);
        emit(&[byte]);
    }

    /// Takes the value of a `\u` escape. Half a surrogate pair without its other half stands for U+FFFD.
    pub(super) fn unicode(&mut self, unit: u16, mut emit: impl FnMut(&[u8])) {
        let character = match (unit, self.high) {
            (0xD800..=0xDBFF, _) => {
                self.flush_surrogate(&mut emit);
                self.high = Some(unit);
                return;
            }
            (0xDC00..=0xDFFF, Some(high)) => {
                self.high = None;
                let (high, low) = (u32::from(high) - 0xD800, u32::from(unit) - 0xDC00);
                char::from_u32(0x1_0000 + (high << 10) + low)
            }
            _ => {
                self.flush_surrogate(&mut emit);
                char::from_u32(u32::from(unit))
            }
        };
        let character = character.unwrap_or(char::REPLACEMENT_CHARACTER);
        emit(character.encode_utf8(&mut [0; 4]).as_bytes());
    }

    /// Ends the string.
    pub(super) fn end(&mut self, mut emit: impl FnMut(&[u8])) {
        self.flush_surrogate(&mut emit);
    }

    fn flush_surrogate(&mut self, emit: &mut impl FnMut(&[u8])) {
        if self.high.take().is_some() {
            emit("\u{FFFD}".as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_at_each_special_byte_and_nowhere_else() {
        for length in 0..40 {
            for byte in 0..=255u8 {
                for at in 0..length {
                    let mut bytes = vec![0xE4; length];
                    bytes[at] = byte;
                    let expected = if is_plain(byte) { length } else { at };
                    let ascii = bytes[..expected].is_ascii();
                    assert_eq!(
                        plain_run(&bytes),
                        Run { len: expected, ascii },
                        "{byte:#x} at {at} of {length}"
                    );
                    bytes.fill(b'x');
                    bytes[at] = byte;
                    let ascii = bytes[..expected].is_ascii();
                    assert_eq!(
                        plain_run(&bytes),
                        Run { len: expected, ascii },
                        "{byte:#x} at {at} of {length}"
                    );
                    let expected = if is_plain(byte) && byte.is_ascii() {
                        length
                    } else {
                        at
                    };
                    assert_eq!(ascii_run(&bytes), expected, "{byte:#x} at {at} of {length}");
                }
            }
        }
    }

    #[test]
    fn bytes_of_a_word_are_not_mistaken_for_what_stands_before_them() {
        for first in 0..=255u8 {
            for second in 0..=255u8 {
                for filling in [b'x', 0xE4] {
                    let mut bytes = [filling; 16];
                    bytes[3..5].copy_from_slice(&[first, second]);
                    let len = bytes.iter().position(|byte| !is_plain(*byte)).unwrap_or(16);
                    let ascii = bytes[..len].is_ascii();
                    assert_eq!(plain_run(&bytes), Run { len, ascii }, "{bytes:x?}");
                    let len = bytes[..len].iter().position(|byte| !byte.is_ascii());
                    if let Some(len) = len {
                        assert_eq!(ascii_run(&bytes), len, "{bytes:x?}");
                    }
                }
            }
        }
    }
}
