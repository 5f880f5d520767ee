//! What does a form with a file say that matters for routing?
//!
//! `multipart/form-data` (RFC 7578), as audio and images are sent. It is read as it arrives; files are gone over, not kept.
//! Servers read forms leniently, and each in another way, so that a name could be one thing here and another there: whatever
//! two of them could read in two ways is refused. No client that is in use writes such a form.

mod part;

use std::ops::Range;

use memchr::memchr2;

use super::capture::MAX_MODEL_KEYS;
use super::error::{ScanError, ScanErrorKind};
use super::field::{Field, PROMPT};
use super::{AskedAdapter, AskedModel, ScanLimits, Scanned};
use part::{Part, boundary};

/// The most parts of a form: python's readers take as many.
const MOST_PARTS: u32 = 1_000;

/// The most bytes of the headers of one part.
const MOST_HEADERS: usize = 8 * 1024;

/// The longest value of `n` or `stream` that can mean something.
const SHORT: usize = 24;

/// What the form is in the middle of.
#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    /// Its first line: so many bytes of the delimiter were seen.
    First(usize),
    /// Behind a delimiter.
    Behind,
    /// Behind a delimiter and `\r`.
    BehindReturn,
    /// Behind a delimiter and `-`.
    BehindDash,
    /// In the headers of a part.
    Header,
    /// In the headers of a part, behind `\r`.
    HeaderReturn,
    /// In a part's value: so many bytes of a delimiter were seen.
    Value(usize),
    /// Behind the last delimiter.
    End,
    /// The same, and `\r`.
    EndReturn,
    /// The same, and the whole end of a line.
    Over,
}

/// Reads a form.
#[derive(Debug)]
pub(super) struct Form {
    state: State,
    /// What separates parts, from the `\r\n` before it.
    delimiter: Vec<u8>,
    /// How much of the boundary was seen in a value, wherever it stands.
    inside: Inside,
    taken: u64,
    max_captured: usize,
    parts: u32,
    line: Vec<u8>,
    headers: usize,
    part: Part,
    field: Field,
    /// Where the value began.
    from: u64,
    kept: Vec<u8>,
    model: Option<AskedModel>,
    model_spans: Vec<Range<u64>>,
    adapter: AskedAdapter,
    stream: bool,
    n: Option<u32>,
    user: Option<String>,
    prompts: Option<u32>,
    prompt_bytes: u64,
    media: u32,
}

type Read<T> = Result<T, Box<ScanError>>;

impl Form {
    pub(super) fn new(content_type: &str, limits: ScanLimits) -> Result<Self, ScanErrorKind> {
        let delimiter = [b"\r\n--", boundary(content_type)?.as_bytes()].concat();
        Ok(Self {
            state: State::First(2),
            inside: Inside::new(&delimiter[2..]),
            delimiter,
            taken: 0,
            max_captured: limits.max_captured,
            parts: 0,
            line: Vec::new(),
            headers: 0,
            part: Part::default(),
            field: Field::Ignored,
            from: 0,
            kept: Vec::new(),
            model: None,
            model_spans: Vec::new(),
            adapter: AskedAdapter::None,
            stream: false,
            n: None,
            user: None,
            prompts: None,
            prompt_bytes: 0,
            media: 0,
        })
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) -> Read<()> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            at += match self.state {
                State::Value(0) if self.inside.seen == 0 => self.run(&bytes[at..]),
                _ => {
                    self.step(byte, at)?;
                    1
                }
            };
        }
        self.taken += bytes.len() as u64;
        Ok(())
    }

    /// Takes what of a value cannot begin a boundary, or the byte that can.
    fn run(&mut self, rest: &[u8]) -> usize {
        let plain = memchr2(b'\r', b'-', rest).unwrap_or(rest.len());
        if let Some(first) = rest.first().filter(|_| plain == 0) {
            if *first == b'\r' {
                self.state = State::Value(1);
            } else {
                self.inside.seen = 1;
                self.value(&rest[..1]);
            }
            return 1;
        }
        self.value(&rest[..plain]);
        plain
    }

    fn step(&mut self, byte: u8, at: usize) -> Read<()> {
        self.state = match (self.state, byte) {
            (State::First(seen), _) if self.delimiter[seen] == byte => self.seen(State::First, seen + 1),
            (State::First(_), _) => return self.fault("it does not begin with its boundary", at),
            (State::Behind, b'\r') => State::BehindReturn,
            (State::Behind, b'-') => State::BehindDash,
            (State::BehindReturn, b'\n') => self.part_begins(at)?,
            (State::BehindDash, b'-') => State::End,
            (State::Behind | State::BehindReturn | State::BehindDash, _) => {
                return self.fault("behind a boundary comes the end of the line, or `--`", at);
            }
            (State::Header, b'\r') => State::HeaderReturn,
            (State::HeaderReturn, b'\n') => self.header_ends(at)?,
            (State::Header, b'\t' | b' '..=b'~' | 0x80..) => {
                self.headers += 1;
                if self.headers > MOST_HEADERS {
                    return self.fault("the headers of a part are longer than 8 KiB", at);
                }
                self.line.push(byte);
                State::Header
            }
            (State::Header | State::HeaderReturn, _) => {
                return self.fault("a header of a part is not text that ends with \\r\\n", at);
            }
            (State::Value(seen), _) => {
                let state = self.delimited(seen, byte, at)?;
                if self.inside.holds(byte) && state != State::Behind {
                    return self.fault("the value of a part holds the boundary", at);
                }
                state
            }
            (State::End, b'\r') => State::EndReturn,
            (State::EndReturn, b'\n') => State::Over,
            (State::End | State::EndReturn | State::Over, _) => {
                return self.fault("something follows its last boundary", at);
            }
        };
        Ok(())
    }

    /// So many bytes of a delimiter were seen.
    fn seen(&self, state: impl Fn(usize) -> State, seen: usize) -> State {
        if seen == self.delimiter.len() {
            State::Behind
        } else {
            state(seen)
        }
    }

    fn part_begins(&mut self, at: usize) -> Read<State> {
        self.parts += 1;
        if self.parts > MOST_PARTS {
            return self.fault("it has more than 1,000 parts", at);
        }
        self.part = Part::default();
        self.headers = 0;
        Ok(State::Header)
    }

    /// At the end of a line: a header, or the empty line before the value.
    fn header_ends(&mut self, at: usize) -> Read<State> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.inside.seen = 0;
            if line.iter().any(|byte| self.inside.holds(*byte)) {
                return self.fault("a header of a part holds the boundary", at);
            }
            if let Err(problem) = self.part.header(&line) {
                return self.fault(problem, at);
            }
            return Ok(State::Header);
        }
        let Some(name) = &self.part.name else {
            return self.fault("a part has no name in a Content-Disposition", at);
        };
        self.field = Field::of(name.as_bytes());
        if self.field == Field::Model && self.part.is_file {
            return self.fault("`model` is a file: send it as text", at);
        }
        self.from = self.taken + at as u64 + 1;
        self.kept.clear();
        self.inside.seen = 0;
        // As if the line before were the end of a value: a boundary that follows at once is one to some readers alone.
        Ok(State::Value(2))
    }

    /// In a value, where so many bytes may be those of a delimiter.
    fn delimited(&mut self, seen: usize, byte: u8, at: usize) -> Read<State> {
        let position = self.taken + at as u64;
        if self.delimiter[seen] == byte {
            let state = self.seen(State::Value, seen + 1);
            if state == State::Behind {
                let end = (position + 1).saturating_sub(self.delimiter.len() as u64);
                if end < self.from {
                    return self.fault("a part has no value, not even an empty one", at);
                }
                self.value_ends(end, at)?;
            }
            return Ok(state);
        }
        // What looked like one belongs to the value. The line before the value does not.
        let own = usize::try_from(position - self.from)
            .unwrap_or(usize::MAX)
            .min(seen);
        let delimiter = std::mem::take(&mut self.delimiter);
        self.value(&delimiter[seen - own..seen]);
        self.delimiter = delimiter;
        Ok(if byte == b'\r' {
            State::Value(1)
        } else {
            self.value(&[byte]);
            State::Value(0)
        })
    }

    /// Part of a value.
    fn value(&mut self, bytes: &[u8]) {
        let most = match self.field {
            Field::Model | Field::User | Field::Adapter => self.max_captured + 1,
            Field::Stream | Field::N => SHORT,
            _ => return,
        };
        let room = most.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn value_ends(&mut self, end: u64, at: usize) -> Read<()> {
        let (span, kept) = (self.from..end, std::mem::take(&mut self.kept));
        let bytes = end - self.from;
        if self.part.is_file {
            self.media = self.media.saturating_add(1);
        }
        match self.field {
            Field::Model => return self.model(&kept, span, at),
            Field::Adapter => self.adapter(&kept),
            Field::Stream => {
                // As pydantic has it; what is none of these is refused there.
                let words = [&b"true"[..], b"1", b"on", b"yes", b"y", b"t"];
                self.stream = words.iter().any(|word| word.eq_ignore_ascii_case(&kept));
            }
            Field::N => {
                let number = str::from_utf8(&kept)
                    .ok()
                    .map(str::trim)
                    .filter(|_| bytes < SHORT as u64);
                let read = number.and_then(|number| {
                    if number.is_empty() {
                        Some(0)
                    } else {
                        number.parse().ok()
                    }
                });
                let Some(n) = read else {
                    let expected = "a whole number, 0 or more";
                    return Err(self.error(ScanErrorKind::WrongType { key: "n", expected }, self.from));
                };
                self.n = Some(n).filter(|n| *n > 0);
            }
            Field::User => {
                let fits = kept.len() <= self.max_captured;
                self.user = String::from_utf8(kept)
                    .ok()
                    .filter(|user| fits && !user.is_empty());
            }
            Field::Text(index) if !self.part.is_file => {
                self.prompt_bytes += bytes;
                if index == PROMPT {
                    self.prompts = Some(1);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn model(&mut self, kept: &[u8], span: Range<u64>, at: usize) -> Read<()> {
        let bytes = span.end - span.start;
        let model = match str::from_utf8(kept) {
            _ if kept.len() > self.max_captured => AskedModel::TooLong { bytes },
            Err(_) => return Err(self.error(ScanErrorKind::InvalidUtf8, span.start)),
            Ok(name) if name.contains(char::is_control) => {
                return self.fault("`model` holds a control character", at);
            }
            Ok("") => AskedModel::Any,
            Ok(name) => AskedModel::Named(name.into()),
        };
        if self.model.as_ref().is_some_and(|first| *first != model) {
            return Err(self.error(ScanErrorKind::AmbiguousModel, span.start));
        }
        if self.model_spans.len() == MAX_MODEL_KEYS {
            let limit = MAX_MODEL_KEYS;
            return Err(self.error(ScanErrorKind::RepeatedModel { limit }, span.start));
        }
        self.model = Some(model);
        self.model_spans.push(span);
        Ok(())
    }

    fn adapter(&mut self, kept: &[u8]) {
        self.adapter = match (str::from_utf8(kept), &self.adapter) {
            (Ok(""), _) => return,
            (Ok(name), AskedAdapter::None) if kept.len() <= self.max_captured => {
                AskedAdapter::Named(name.into())
            }
            (Ok(name), AskedAdapter::Named(before)) if **before == *name => return,
            _ => AskedAdapter::Unclear,
        };
    }

    pub(super) fn finish(self) -> Read<Scanned> {
        if !matches!(self.state, State::End | State::Over) {
            return self.fault("it ends before its last boundary: was it cut short?", 0);
        }
        Ok(Scanned {
            model: self.model.unwrap_or(AskedModel::Any),
            model_spans: self.model_spans,
            is_form: true,
            stream: self.stream,
            n: self.n,
            prompts: self.prompts,
            inputs: None,
            documents: None,
            store: None,
            background: false,
            previous_response: false,
            user: self.user.map(Into::into),
            adapter: self.adapter,
            prompt_bytes: self.prompt_bytes,
            token_ids: 0,
            media: self.media,
            refers: None,
            builds_on_kept: false,
            images: false,
            sounds: false,
            truncates: false,
            body_bytes: self.taken,
        })
    }

    fn fault<T>(&self, problem: &'static str, at: usize) -> Read<T> {
        Err(self.error(ScanErrorKind::MalformedForm { problem }, self.taken + at as u64))
    }

    #[cold]
    fn error(&self, kind: ScanErrorKind, offset: u64) -> Box<ScanError> {
        Box::new(ScanError {
            kind,
            offset,
            line: 0,
            column: 0,
        })
    }
}

/// A boundary that does not stand behind a whole `\r\n` is one to some readers: to those that end a line at `\n`, or look for it
/// anywhere.
#[derive(Debug)]
struct Inside {
    /// `--` and the boundary.
    boundary: Vec<u8>,
    /// For each beginning of it: how long the longest one is that this one ends with, beside itself.
    again: Vec<usize>,
    seen: usize,
}

impl Inside {
    fn new(boundary: &[u8]) -> Self {
        let mut inside = Self {
            boundary: boundary.to_vec(),
            again: vec![0; boundary.len() + 1],
            seen: 0,
        };
        // It is looked for in itself, from its second byte on.
        for (at, byte) in boundary.iter().enumerate().skip(1) {
            inside.holds(*byte);
            inside.again[at + 1] = inside.seen;
        }
        inside.seen = 0;
        inside
    }

    /// Takes a byte. Whether it is the last one of a boundary.
    fn holds(&mut self, byte: u8) -> bool {
        while self.boundary.get(self.seen) != Some(&byte) {
            if self.seen == 0 {
                return false;
            }
            self.seen = self.again[self.seen];
        }
        self.seen += 1;
        self.seen == self.boundary.len()
    }
}
