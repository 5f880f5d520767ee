//! Is it JSON? The grammar as a machine that can stop after any byte.
//!
//! It has no recursion and no tree: a counter, one bit for each open container, and a state. What the values mean is
//! [`Capture`]'s business.

use super::capture::{Capture, Fault, Place};
use super::error::{ScanError, ScanErrorKind};
use super::field::{Literal, Number};
use super::skim::skim;
use super::text::{BadUtf8, Decoder, plain_run};

const BOM: [u8; 3] = [0xEF, 0xBB, 0xBF];

const VALUE: &str = "a value";
const FIRST_ITEM: &str = "a value or `]`";
const KEY: &str = "a key in double quotes";
const FIRST_KEY: &str = "a key in double quotes, or `}`";
const NEXT_ITEM: &str = "`,` or `]`";
const NEXT_KEY: &str = "`,` or `}`";

/// What the machine is in the middle of.
#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    /// The first bytes: this many of a byte order mark were seen.
    Mark(u8),
    /// Before the object that is the body.
    Top,
    Value,
    FirstItem,
    Key,
    FirstKey,
    Colon,
    /// After a value inside a container.
    After,
    /// After the body's object.
    Done,
    String,
    Escape,
    /// In the hex digits of a `\u` escape: how many were seen, and their value.
    Unicode(u8, u16),
    Number(Numeral),
    /// In `true`, `false` or `null`: how many of its letters were seen.
    Literal(Literal, u8),
}

/// Where in a number.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Numeral {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

/// The state of the grammar between two bytes.
#[derive(Debug)]
pub(super) struct Machine {
    state: State,
    /// Bytes of the chunks before this one.
    base: u64,
    line: u64,
    line_start: u64,
    depth: usize,
    max_depth: usize,
    /// One bit for each open container: set for arrays.
    arrays: Vec<u64>,
    /// Where the current string, number or literal began.
    token: u64,
    in_key: bool,
    decoder: Decoder,
    number: Number,
}

type Step = Result<usize, ScanError>;

impl Machine {
    pub(super) fn new(max_depth: usize) -> Self {
        Self {
            state: State::Mark(0),
            base: 0,
            line: 1,
            line_start: 0,
            depth: 0,
            max_depth,
            arrays: Vec::new(),
            token: 0,
            in_key: false,
            decoder: Decoder::default(),
            number: Number::default(),
        }
    }

    /// Bytes taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.base
    }

    pub(super) fn feed(&mut self, bytes: &[u8], capture: &mut Capture) -> Result<(), ScanError> {
        let mut at = 0;
        while at < bytes.len() {
            at = match self.state {
                State::String => self.string(bytes, at, capture)?,
                State::Escape => self.escape(bytes, at, capture)?,
                State::Unicode(seen, value) => self.unicode(bytes, at, seen, value, capture)?,
                State::Number(numeral) => self.number(bytes, at, numeral, capture)?,
                State::Literal(literal, seen) => self.literal(bytes, at, literal, seen, capture)?,
                State::Mark(seen) => self.mark(bytes, at, seen)?,
                _ => self.structure(bytes, at, capture)?,
            };
        }
        self.base += bytes.len() as u64;
        Ok(())
    }

    /// Whether the body's object is complete.
    pub(super) fn finish(&self) -> Result<(), ScanError> {
        match self.state {
            State::Done => Ok(()),
            State::Mark(0) | State::Top => Err(self.error(ScanErrorKind::Empty, self.base)),
            _ => Err(self.error(ScanErrorKind::Truncated, self.base)),
        }
    }

    /// White space, brackets, colons, commas, and the first byte of every value.
    fn structure(&mut self, bytes: &[u8], at: usize, capture: &mut Capture) -> Step {
        let byte = bytes[at];
        match byte {
            b' ' | b'\t' | b'\r' => return Ok(at + 1),
            b'\n' => {
                self.line += 1;
                self.line_start = self.position(at) + 1;
                return Ok(at + 1);
            }
            _ => {}
        }
        match (self.state, byte) {
            (State::Top, b'{') => self.open(false, at, capture)?,
            (State::Top, _) => return Err(self.error_at(ScanErrorKind::NotAnObject, at)),
            (State::Value | State::FirstItem, b'{') => self.open(false, at, capture)?,
            (State::Value | State::FirstItem, b'[') => self.open(true, at, capture)?,
            (State::FirstItem, b']') => self.close(capture),
            (State::Value | State::FirstItem, _) => self.scalar(byte, at, capture)?,
            (State::Key | State::FirstKey, b'"') => {
                self.in_key = true;
                self.state = State::String;
                capture.key_begins();
            }
            (State::FirstKey, b'}') => self.close(capture),
            (State::Colon, b':') => self.state = State::Value,
            (State::After, b',') => self.state = if self.in_array() { State::Value } else { State::Key },
            (State::After, b']') if self.in_array() => self.close(capture),
            (State::After, b'}') if !self.in_array() => self.close(capture),
            (State::Done, _) => return Err(self.error_at(ScanErrorKind::TrailingData, at)),
            (state, _) => return Err(self.unexpected(state, byte, at)),
        }
        Ok(at + 1)
    }

    fn scalar(&mut self, byte: u8, at: usize, capture: &mut Capture) -> Result<(), ScanError> {
        self.token = self.position(at);
        self.state = match byte {
            b'"' => {
                self.in_key = false;
                capture.string_begins(self.place());
                State::String
            }
            b'-' => {
                self.number = Number {
                    negative: true,
                    ..Number::default()
                };
                State::Number(Numeral::Minus)
            }
            b'0'..=b'9' => {
                self.number = Number {
                    magnitude: u64::from(byte - b'0'),
                    ..Number::default()
                };
                State::Number(if byte == b'0' {
                    Numeral::Zero
                } else {
                    Numeral::Integer
                })
            }
            b'+' | b'.' => return Err(self.error_at(ScanErrorKind::InvalidNumber, at)),
            b't' => State::Literal(Literal::True, 1),
            b'f' => State::Literal(Literal::False, 1),
            b'n' => State::Literal(Literal::Null, 1),
            _ => return Err(self.unexpected(self.state, byte, at)),
        };
        Ok(())
    }

    fn open(&mut self, array: bool, at: usize, capture: &mut Capture) -> Result<(), ScanError> {
        if self.depth >= self.max_depth {
            return Err(self.error_at(
                ScanErrorKind::TooDeep {
                    limit: self.max_depth,
                },
                at,
            ));
        }
        let position = self.position(at);
        capture
            .opens(self.place(), array, position)
            .map_err(|fault| self.fault(fault))?;
        let (word, bit) = (self.depth / 64, self.depth % 64);
        if word == self.arrays.len() {
            self.arrays.push(0);
        }
        self.arrays[word] = self.arrays[word] & !(1 << bit) | u64::from(array) << bit;
        self.depth += 1;
        self.state = if array { State::FirstItem } else { State::FirstKey };
        Ok(())
    }

    fn close(&mut self, capture: &mut Capture) {
        self.depth -= 1;
        capture.closes();
        self.after_value();
    }

    fn after_value(&mut self) {
        self.state = if self.depth == 0 {
            State::Done
        } else {
            State::After
        };
    }

    fn string(&mut self, bytes: &[u8], at: usize, capture: &mut Capture) -> Step {
        let at = if self.in_key || capture.keeps() {
            self.kept_text(bytes, at, capture)?
        } else {
            self.counted_text(bytes, at, capture)?
        };
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

    /// Goes on to what is special, and no usual escape, in a string whose length alone is asked. Says where it is.
    fn counted_text(&mut self, bytes: &[u8], at: usize, capture: &mut Capture) -> Step {
        let rest = &bytes[at..];
        let skimmed = skim(rest);
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

    fn bad_utf8(&self, at: usize, BadUtf8(relative): BadUtf8) -> ScanError {
        let offset = self.position(at).saturating_add_signed(relative);
        self.error(ScanErrorKind::InvalidUtf8, offset)
    }

    fn end_string(&mut self, at: usize, capture: &mut Capture) -> Step {
        let in_key = self.in_key;
        self.decoder.end(|text| capture.text(in_key, text));
        if in_key {
            capture.key_ends(self.depth);
            self.state = State::Colon;
        } else {
            let span = self.token..self.position(at) + 1;
            capture
                .string_ends(self.place(), span)
                .map_err(|fault| self.fault(fault))?;
            self.after_value();
        }
        Ok(at + 1)
    }

    fn escape(&mut self, bytes: &[u8], at: usize, capture: &mut Capture) -> Step {
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

    fn unicode(&mut self, bytes: &[u8], at: usize, seen: u8, value: u16, capture: &mut Capture) -> Step {
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

    fn number(&mut self, bytes: &[u8], at: usize, numeral: Numeral, capture: &mut Capture) -> Step {
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
                    self.number.integer = matches!(numeral, Zero | Integer);
                    let span = self.token..self.position(at);
                    let ended = capture.number(self.place(), self.number, span);
                    ended.map_err(|fault| self.fault(fault))?;
                    self.after_value();
                    return Ok(at);
                }
            };
            at += 1;
        }
        self.state = State::Number(numeral);
        Ok(at)
    }

    fn literal(
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
            let span = self.token..self.position(at) + 1;
            capture
                .literal(self.place(), literal, span)
                .map_err(|fault| self.fault(fault))?;
            self.after_value();
        } else {
            self.state = State::Literal(literal, seen + 1);
        }
        Ok(at + 1)
    }

    fn mark(&mut self, bytes: &[u8], at: usize, seen: u8) -> Step {
        if bytes[at] == BOM[usize::from(seen)] {
            self.state = if seen == 2 {
                State::Top
            } else {
                State::Mark(seen + 1)
            };
            Ok(at + 1)
        } else if seen == 0 {
            self.state = State::Top;
            Ok(at)
        } else {
            Err(self.error_at(ScanErrorKind::NotAnObject, at))
        }
    }

    fn in_array(&self) -> bool {
        let Some(top) = self.depth.checked_sub(1) else {
            return false;
        };
        self.arrays[top / 64] >> (top % 64) & 1 == 1
    }

    fn place(&self) -> Place {
        Place {
            depth: self.depth,
            in_array: self.in_array(),
        }
    }

    fn position(&self, at: usize) -> u64 {
        self.base + at as u64
    }

    fn fault(&self, fault: Fault) -> ScanError {
        self.error(fault.kind, fault.offset)
    }

    fn error_at(&self, kind: ScanErrorKind, at: usize) -> ScanError {
        self.error(kind, self.position(at))
    }

    fn error(&self, kind: ScanErrorKind, offset: u64) -> ScanError {
        // A token never spans lines, so that what began earlier began on this line.
        let column = offset.saturating_sub(self.line_start) + 1;
        ScanError {
            kind,
            offset,
            line: self.line,
            column,
        }
    }

    fn unexpected(&self, state: State, found: u8, at: usize) -> ScanError {
        let expected = match state {
            State::FirstItem => FIRST_ITEM,
            State::Key => KEY,
            State::FirstKey => FIRST_KEY,
            State::Colon => "`:` after the key",
            State::After if self.in_array() => NEXT_ITEM,
            State::After => NEXT_KEY,
            State::Literal(literal, _) => literal.as_str(),
            _ => VALUE,
        };
        self.error_at(ScanErrorKind::Unexpected { found, expected }, at)
    }
}
