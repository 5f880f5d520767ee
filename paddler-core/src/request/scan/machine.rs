//! Is it JSON? The grammar as a machine that can stop after any byte.
//!
//! It has no recursion and no tree: a counter, one bit for each open container, and a state. What the values mean is
//! [`Capture`]'s business. Keys, numbers and literals that lie here as a whole, as most do, are taken in one go; the states
//! within them are for those that are cut.

mod token;

use super::capture::{Capture, Fault, Place};
use super::error::{ScanError, ScanErrorKind};
use super::field::{Literal, Number};
use super::text::{Decoder, ascii_run};

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
    /// One bit for each open container, the innermost the lowest: set for arrays.
    arrays: u64,
    /// The bits that are pushed out of there: 64 in each, outermost first.
    outer: Vec<u64>,
    /// Where the current string, number or literal began.
    token: u64,
    in_key: bool,
    decoder: Decoder,
    number: Number,
    /// Before this byte no block is looked at for numbers, since something else is near, or the end of the chunk. Starts
    /// over with each array.
    numbers_from: u64,
}

/// Where it goes on if there is one space here, as many put it after `,` and `:`.
#[inline]
fn after_space(bytes: &[u8], at: usize) -> usize {
    at + usize::from(bytes.get(at) == Some(&b' '))
}

/// Where to go on. Errors are boxed, so that what goes well fits in registers.
type Step = Result<usize, Box<ScanError>>;

impl Machine {
    pub(super) fn new(max_depth: usize) -> Self {
        Self {
            state: State::Mark(0),
            base: 0,
            line: 1,
            line_start: 0,
            depth: 0,
            max_depth,
            arrays: 0,
            outer: Vec::new(),
            token: 0,
            in_key: false,
            decoder: Decoder::default(),
            number: Number::default(),
            numbers_from: 0,
        }
    }

    /// Bytes taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.base
    }

    pub(super) fn feed(&mut self, bytes: &[u8], capture: &mut Capture) -> Result<(), Box<ScanError>> {
        let mut at = 0;
        while at < bytes.len() {
            at = match self.state {
                State::After => self.after(bytes, at, capture)?,
                State::Value | State::FirstItem => self.value(bytes, at, capture)?,
                State::Key | State::FirstKey => self.key(bytes, at, capture)?,
                State::Colon | State::Top | State::Done => self.between(bytes, at, capture)?,
                State::String => self.string(bytes, at, capture)?,
                State::Escape => self.escape(bytes, at, capture)?,
                State::Unicode(seen, value) => self.unicode(bytes, at, seen, value, capture)?,
                State::Number(numeral) => self.number(bytes, at, numeral, capture)?,
                State::Literal(literal, seen) => self.literal(bytes, at, literal, seen, capture)?,
                State::Mark(seen) => self.mark(bytes, at, seen)?,
            };
        }
        self.base += bytes.len() as u64;
        Ok(())
    }

    /// Whether the body's object is complete.
    pub(super) fn finish(&self) -> Result<(), Box<ScanError>> {
        match self.state {
            State::Done => Ok(()),
            State::Mark(0) | State::Top => Err(self.error(ScanErrorKind::Empty, self.base)),
            _ => Err(self.error(ScanErrorKind::Truncated, self.base)),
        }
    }

    #[inline]
    fn after(&mut self, bytes: &[u8], at: usize, capture: &mut Capture) -> Step {
        match bytes[at] {
            b',' => return self.next(bytes, after_space(bytes, at + 1), capture),
            b']' if self.in_array() => self.close(capture),
            b'}' if !self.in_array() => self.close(capture),
            _ => return self.white_space(bytes, at),
        }
        Ok(at + 1)
    }

    /// Goes on after a comma.
    #[inline]
    fn next(&mut self, bytes: &[u8], at: usize, capture: &mut Capture) -> Step {
        if self.in_array() {
            self.state = State::Value;
            return Ok(at);
        }
        self.state = State::Key;
        // As this state would, without the way to it.
        if bytes.get(at) == Some(&b'"') {
            return self.key(bytes, at, capture);
        }
        Ok(at)
    }

    #[inline]
    fn value(&mut self, bytes: &[u8], at: usize, capture: &mut Capture) -> Step {
        match bytes[at] {
            b'"' => self.begin_string(bytes, at, capture),
            b'{' => self.open(false, at, capture),
            b'[' => self.open(true, at, capture),
            b'0'..=b'9' | b'-' => self.begin_number(bytes, at, capture),
            b't' => self.begin_literal(Literal::True, bytes, at, capture),
            b'f' => self.begin_literal(Literal::False, bytes, at, capture),
            b'n' => self.begin_literal(Literal::Null, bytes, at, capture),
            b']' if self.state == State::FirstItem => {
                self.close(capture);
                Ok(at + 1)
            }
            b'+' | b'.' => Err(self.error_at(ScanErrorKind::InvalidNumber, at)),
            _ => self.white_space(bytes, at),
        }
    }

    /// Takes a whole key, if all of it is here and it has no escapes, or else its first byte.
    #[inline]
    fn key(&mut self, bytes: &[u8], at: usize, capture: &mut Capture) -> Step {
        match bytes[at] {
            b'"' => {}
            b'}' if self.state == State::FirstKey => {
                self.close(capture);
                return Ok(at + 1);
            }
            _ => return self.white_space(bytes, at),
        }
        let rest = &bytes[at + 1..];
        let len = ascii_run(rest);
        if rest.get(len) == Some(&b'"') {
            capture.key(self.depth, &rest[..len]);
            return self.colon(bytes, at + len + 2, capture);
        }
        self.in_key = true;
        self.state = State::String;
        capture.key_begins();
        Ok(at + 1)
    }

    /// Goes on after a key: over the colon and to the end of a string, if they follow at once, as they nearly always do.
    #[inline]
    fn colon(&mut self, bytes: &[u8], at: usize, capture: &mut Capture) -> Step {
        if bytes.get(at) != Some(&b':') {
            self.state = State::Colon;
            return Ok(at);
        }
        self.state = State::Value;
        let at = after_space(bytes, at + 1);
        if bytes.get(at) == Some(&b'"') {
            return self.begin_string(bytes, at, capture);
        }
        Ok(at)
    }

    /// After a key, before the body's object, and after it.
    #[inline]
    fn between(&mut self, bytes: &[u8], at: usize, capture: &mut Capture) -> Step {
        match (self.state, bytes[at]) {
            (State::Colon, b':') => {
                self.state = State::Value;
                Ok(at + 1)
            }
            (State::Top, b'{') => self.open(false, at, capture),
            _ => self.white_space(bytes, at),
        }
    }

    /// Goes over white space. Anything else cannot stand here.
    fn white_space(&mut self, bytes: &[u8], start: usize) -> Step {
        let mut at = start;
        while let Some(&byte) = bytes.get(at) {
            match byte {
                b' ' | b'\t' | b'\r' => {}
                b'\n' => {
                    self.line += 1;
                    self.line_start = self.position(at) + 1;
                }
                _ => break,
            }
            at += 1;
        }
        if at == start {
            return Err(self.unexpected(self.state, bytes[at], at));
        }
        Ok(at)
    }

    fn open(&mut self, array: bool, at: usize, capture: &mut Capture) -> Step {
        if self.depth >= self.max_depth {
            let limit = self.max_depth;
            return Err(self.error_at(ScanErrorKind::TooDeep { limit }, at));
        }
        let position = self.position(at);
        capture
            .opens(self.place(), array, position)
            .map_err(|fault| self.fault(*fault))?;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.outer.push(self.arrays);
        }
        self.arrays = self.arrays << 1 | u64::from(array);
        self.depth += 1;
        self.numbers_from = 0;
        self.state = if array { State::FirstItem } else { State::FirstKey };
        Ok(at + 1)
    }

    fn close(&mut self, capture: &mut Capture) {
        self.depth -= 1;
        self.arrays >>= 1;
        if self.depth > 0 && self.depth.is_multiple_of(64) {
            self.arrays = self.outer.pop().unwrap_or_default();
        }
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
        self.arrays & 1 == 1
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

    #[cold]
    fn fault(&self, fault: Fault) -> Box<ScanError> {
        self.error(fault.kind, fault.offset)
    }

    #[cold]
    fn error_at(&self, kind: ScanErrorKind, at: usize) -> Box<ScanError> {
        self.error(kind, self.position(at))
    }

    #[cold]
    fn error(&self, kind: ScanErrorKind, offset: u64) -> Box<ScanError> {
        // A token never spans lines, so that what began earlier began on this line.
        let column = offset.saturating_sub(self.line_start) + 1;
        Box::new(ScanError {
            kind,
            offset,
            line: self.line,
            column,
        })
    }

    #[cold]
    fn unexpected(&self, state: State, found: u8, at: usize) -> Box<ScanError> {
        let expected = match state {
            State::Top => return self.error_at(ScanErrorKind::NotAnObject, at),
            State::Done => return self.error_at(ScanErrorKind::TrailingData, at),
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
