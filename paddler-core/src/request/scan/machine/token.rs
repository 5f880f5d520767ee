//! What stands in a string, a number or a literal, and is it whole?

use super::super::block::{BLOCK, numbers};
use super::super::capture::Capture;
use super::super::error::{ScanError, ScanErrorKind};
use super::super::field::{Literal, Number};
use super::super::skim::{Skimmed, skim};
use super::super::text::{BadUtf8, plain_run};
use super::{Machine, Numeral, State, Step};

impl Machine {
    /// Takes a whole string, if all of it is here, is ASCII and is not kept, or else what is here of it.
    pub(super) fn begin_string(&mut self, bytes: &[u8], at: usize, capture: &mut Capture) -> Step {
        self.token = self.position(at);
        self.in_key = false;
        self.state = State::String;
        capture.string_begins(self.place());
        if capture.keeps() {
            return self.string(bytes, at + 1, capture);
        }
        let rest = &bytes[at + 1..];
        let skimmed = skim(rest);
        let end = at + 1 + skimmed.len;
        if skimmed.ascii && bytes.get(end) == Some(&b'"') {
            capture.count(skimmed.decoded);
            return self.end_value(end, capture);
        }
        let at = self.counted_text(bytes, at + 1, skimmed, capture)?;
        self.after_text(bytes, at, capture)
    }

    /// Goes on in a string whose start is known.
    pub(super) fn string(&mut self, bytes: &[u8], at: usize, capture: &mut Capture) -> Step {
        let at = if self.in_key || capture.keeps() {
            self.kept_text(bytes, at, capture)?
        } else {
            self.counted_text(bytes, at, skim(&bytes[at..]), capture)?
        };
        self.after_text(bytes, at, capture)
    }

    fn after_text(&mut self, bytes: &[u8], at: usize, capture: &mut Capture) -> Step {
        match bytes.get(at) {
            None => Ok(at),
            Some(b'"') => self.end_string(at, capture),
            Some(b'\\') => {
                self.state = State::Escape;
                Ok(at + 1)
            }
            Some(&found) => Err(self.error_at(ScanErrorKind::ControlCharacter { found }, at)),
        }
    }

    /// Goes on to what is special in a string whose text is needed. Says where it is.
    fn kept_text(&mut self, bytes: &[u8], at: usize, capture: &mut Capture) -> Step {
        let rest = &bytes[at..];
        let run = plain_run(rest);
        let (in_key, last) = (self.in_key, run.len == rest.len());
        let plain = self.decoder.plain(&rest[..run.len], run.ascii, last, |text| {
            capture.text(in_key, text);
        });
        plain.map_err(|bad| self.bad_utf8(at, bad))?;
        Ok(at + run.len)
    }

    /// Goes over what was skimmed of a string whose length alone is asked, to what is special and no usual escape. Says
    /// where it is.
    fn counted_text(&mut self, bytes: &[u8], at: usize, skimmed: Skimmed, capture: &mut Capture) -> Step {
        let rest = &bytes[at..];
        if skimmed.len > 0 {
            self.decoder.end(|text| capture.text(false, text));
        }
        let (text, last) = (&rest[..skimmed.len], skimmed.len == rest.len());
        // Escapes are ASCII, so that the text is UTF-8 if it is with them.
        let plain = self.decoder.plain(text, skimmed.ascii, last, |_| {});
        plain.map_err(|bad| self.bad_utf8(at, bad))?;
        capture.count(skimmed.decoded);
        Ok(at + skimmed.len)
    }

    fn bad_utf8(&self, at: usize, BadUtf8(relative): BadUtf8) -> Box<ScanError> {
        let offset = self.position(at).saturating_add_signed(relative);
        self.error(ScanErrorKind::InvalidUtf8, offset)
    }

    fn end_string(&mut self, at: usize, capture: &mut Capture) -> Step {
        let in_key = self.in_key;
        self.decoder.end(|text| capture.text(in_key, text));
        if !in_key {
            return self.end_value(at, capture);
        }
        capture.key_ends(self.depth);
        self.state = State::Colon;
        Ok(at + 1)
    }

    /// Ends a string that is a value.
    #[inline]
    fn end_value(&mut self, at: usize, capture: &mut Capture) -> Step {
        let span = self.token..self.position(at) + 1;
        capture
            .string_ends(self.place(), span)
            .map_err(|fault| self.fault(*fault))?;
        self.after_value();
        Ok(at + 1)
    }

    pub(super) fn escape(&mut self, bytes: &[u8], at: usize, capture: &mut Capture) -> Step {
        let character = match bytes[at] {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 0x08,
            b'f' => 0x0C,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.state = State::Unicode(0, 0);
                return Ok(at + 1);
            }
            _ => return Err(self.error_at(ScanErrorKind::InvalidEscape, at)),
        };
        let in_key = self.in_key;
        self.decoder.escaped(character, |text| capture.text(in_key, text));
        self.state = State::String;
        Ok(at + 1)
    }

    pub(super) fn unicode(
        &mut self,
        bytes: &[u8],
        at: usize,
        seen: u8,
        value: u16,
        capture: &mut Capture,
    ) -> Step {
        let (mut at, mut seen, mut value) = (at, seen, value);
        while seen < 4 {
            let Some(&byte) = bytes.get(at) else {
                self.state = State::Unicode(seen, value);
                return Ok(at);
            };
            let Some(digit) = char::from(byte).to_digit(16) else {
                return Err(self.error_at(ScanErrorKind::InvalidEscape, at));
            };
            value = value << 4 | digit as u16;
            seen += 1;
            at += 1;
        }
        let in_key = self.in_key;
        self.decoder.unicode(value, |text| capture.text(in_key, text));
        self.state = State::String;
        Ok(at)
    }

    /// Takes a whole number, if all of it and the byte after it are here, or else what begins it.
    #[inline]
    pub(super) fn begin_number(&mut self, bytes: &[u8], at: usize, capture: &mut Capture) -> Step {
        self.token = self.position(at);
        self.number = Number::default();
        let numeral = match bytes[at] {
            b'-' => {
                self.number.negative = true;
                Numeral::Minus
            }
            b'0' => Numeral::Zero,
            _ => {
                let end = at + self.number.push_all(&bytes[at..]);
                if matches!(bytes.get(end), Some(b',' | b']' | b'}')) {
                    let end = self.end_number(true, end, capture)?;
                    return Ok(self.more_numbers(bytes, end, capture));
                }
                return self.number(bytes, end, Numeral::Integer, capture);
            }
        };
        self.number(bytes, at + 1, numeral, capture)
    }

    /// Goes on after a number in an array over those that are like it. Token ids come by the thousand.
    #[inline]
    fn more_numbers(&mut self, bytes: &[u8], at: usize, capture: &mut Capture) -> usize {
        if !self.in_array() || bytes[at] != b',' || self.position(at) < self.numbers_from {
            return at;
        }
        let (mut end, mut count) = (at + 1, 0);
        while let Some(numbers) = bytes[end..].first_chunk().and_then(numbers)
            && numbers.count > 0
        {
            end += numbers.len;
            count += numbers.count;
        }
        self.numbers_from = self.position(end + BLOCK);
        if count == 0 {
            return at;
        }
        capture.more_numbers(self.place(), count);
        self.state = State::Value;
        end
    }

    #[inline]
    fn end_number(&mut self, integer: bool, at: usize, capture: &mut Capture) -> Step {
        self.number.integer = integer;
        let span = self.token..self.position(at);
        let ended = capture.number(self.place(), self.number, span);
        ended.map_err(|fault| self.fault(*fault))?;
        self.after_value();
        Ok(at)
    }

    pub(super) fn number(
        &mut self,
        bytes: &[u8],
        at: usize,
        numeral: Numeral,
        capture: &mut Capture,
    ) -> Step {
        use Numeral::*;
        let (mut at, mut numeral) = (at, numeral);
        while let Some(&byte) = bytes.get(at) {
            if numeral == Integer && byte.is_ascii_digit() {
                self.number.push(byte);
                at += 1;
                continue;
            }
            numeral = match (numeral, byte) {
                (Minus, b'0') => Zero,
                (Minus, b'1'..=b'9') => {
                    self.number.push(byte);
                    Integer
                }
                (Zero | Integer, b'.') => Point,
                (Point | Fraction, b'0'..=b'9') => Fraction,
                (Zero | Integer | Fraction, b'e' | b'E') => Exponent,
                (Exponent, b'+' | b'-') => ExponentSign,
                (Exponent | ExponentSign | ExponentDigits, b'0'..=b'9') => ExponentDigits,
                (Zero, b'0'..=b'9') | (Minus | Point | Exponent | ExponentSign, _) => {
                    return Err(self.error_at(ScanErrorKind::InvalidNumber, at));
                }
                (Zero | Integer | Fraction | ExponentDigits, _) => {
                    return self.end_number(matches!(numeral, Zero | Integer), at, capture);
                }
            };
            at += 1;
        }
        self.state = State::Number(numeral);
        Ok(at)
    }

    /// Takes a literal, if all of it is here, or else its first byte.
    #[inline]
    pub(super) fn begin_literal(
        &mut self,
        literal: Literal,
        bytes: &[u8],
        at: usize,
        capture: &mut Capture,
    ) -> Step {
        self.token = self.position(at);
        let word = literal.as_str();
        if bytes[at..].starts_with(word.as_bytes()) {
            return self.end_literal(literal, at + word.len(), capture);
        }
        self.state = State::Literal(literal, 1);
        Ok(at + 1)
    }

    pub(super) fn literal(
        &mut self,
        bytes: &[u8],
        at: usize,
        literal: Literal,
        seen: u8,
        capture: &mut Capture,
    ) -> Step {
        let word = literal.as_str().as_bytes();
        if bytes[at] != word[usize::from(seen)] {
            return Err(self.unexpected(self.state, bytes[at], at));
        }
        if usize::from(seen) + 1 == word.len() {
            return self.end_literal(literal, at + 1, capture);
        }
        self.state = State::Literal(literal, seen + 1);
        Ok(at + 1)
    }

    fn end_literal(&mut self, literal: Literal, at: usize, capture: &mut Capture) -> Step {
        let span = self.token..self.position(at);
        let ended = capture.literal(self.place(), literal, span);
        ended.map_err(|fault| self.fault(*fault))?;
        self.after_value();
        Ok(at)
    }
}
