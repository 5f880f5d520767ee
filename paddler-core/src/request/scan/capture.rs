//! Which values of a body do we keep, and what do they add up to?

use std::ops::Range;
use std::sync::Arc;

use super::error::ScanErrorKind;
use super::field::{
    CONTENT, DOCUMENTS, Field, INPUT, KEPT, KeyBuffer, Literal, MEDIA_KEYS, MESSAGES, Number, PROMPT, Part,
    TEXT_2, TEXT_INPUT, TEXT_KEYS, TEXTS, Tally, Value, names_adapter,
};
use super::{AskedAdapter, AskedModel, ScanLimits, Scanned};

/// Every spelling of `model` that is kept track of. More than a few is no accident.
pub(super) const MAX_MODEL_KEYS: usize = 8;

/// Where a value stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Containers around it: 1 for the value of a top-level key.
    pub(super) depth: usize,
    /// Whether the innermost of them is an array.
    pub(super) in_array: bool,
}

/// A value that no fact can be read from.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) kind: ScanErrorKind,
    pub(super) offset: u64,
}

/// One value of a `model` key.
#[derive(PartialEq, Debug)]
enum Given {
    Null,
    Text(String),
    TooLong(u64),
}

/// Gathers the facts of one body while the machine walks over it.
#[derive(Debug)]
pub(super) struct Capture {
    max_captured: usize,
    key: KeyBuffer,
    field: Field,
    media: bool,
    /// What the value of the current key is.
    part: Part,
    images: bool,
    sounds: bool,
    truncates: bool,
    /// How deep the current key stands that names an adapter, within one that holds such.
    adapter_within: Option<usize>,
    /// Whether the text of the current string is kept, and not its length alone.
    keeps: bool,
    /// Decoded bytes of the current string.
    length: u64,
    kept: Vec<u8>,
    model: Option<Given>,
    model_spans: Vec<Range<u64>>,
    stream: bool,
    n: [Option<u32>; 2],
    store: Option<bool>,
    background: bool,
    previous_response: bool,
    refers: Option<String>,
    /// It builds on what an upstream keeps.
    builds: bool,
    file: Option<String>,
    user: Option<String>,
    adapter: AskedAdapter,
    tallies: [Tally; TEXT_KEYS.len()],
}

impl Capture {
    pub(super) fn new(limits: ScanLimits) -> Self {
        Self {
            max_captured: limits.max_captured,
            key: KeyBuffer::default(),
            field: Field::Ignored,
            media: false,
            part: Part::Other,
            images: false,
            sounds: false,
            truncates: false,
            adapter_within: None,
            keeps: false,
            length: 0,
            kept: Vec::new(),
            model: None,
            model_spans: Vec::new(),
            stream: false,
            n: [None; 2],
            store: None,
            background: false,
            previous_response: false,
            refers: None,
            builds: false,
            file: None,
            user: None,
            adapter: AskedAdapter::None,
            tallies: [Tally::default(); TEXT_KEYS.len()],
        }
    }

    pub(super) fn key_begins(&mut self) {
        self.key.clear();
    }

    pub(super) fn key_ends(&mut self, depth: usize) {
        let key = self.key;
        self.key(depth, key.as_bytes());
    }

    /// A whole key, decoded; of a long one at least the first [`KEPT`] bytes.
    pub(super) fn key(&mut self, depth: usize, key: &[u8]) {
        let key = &key[..key.len().min(KEPT)];
        if depth == 1 {
            self.part = Part::Other;
            self.field = Field::of(key);
            self.media = false;
            if let Field::Text(index) = self.field {
                self.tallies[index] = Tally::default();
            }
        } else if matches!(self.field, Field::Text(MESSAGES | PROMPT | INPUT | CONTENT)) {
            self.media = MEDIA_KEYS.iter().any(|name| name.as_bytes() == key);
            self.part = Part::of(key);
        } else if self.field == Field::Conversation {
            self.part = if depth == 2 && key == b"id" {
                Part::Kept
            } else {
                Part::Other
            };
        } else if self.field == Field::Holding {
            self.adapter_within = names_adapter(key).then_some(depth);
        }
    }

    /// Whether a value in this place names an adapter, or is the list of such. Those of a list are one deeper.
    fn is_adapter(&self, place: Place) -> bool {
        let top = match (self.field, self.adapter_within) {
            (Field::Adapter, _) => 1,
            (Field::Holding, Some(depth)) => depth,
            _ => return false,
        };
        place.depth == top || (place.depth == top + 1 && place.in_array)
    }

    pub(super) fn string_begins(&mut self, place: Place) {
        self.length = 0;
        self.keeps = match self.field {
            Field::Text(_) => self.part == Part::Kept,
            Field::Conversation => place.depth == 1 || self.part == Part::Kept,
            Field::Model | Field::User | Field::PreviousResponse | Field::Refers if place.depth == 1 => true,
            _ => self.is_adapter(place),
        };
        if self.keeps {
            self.kept.clear();
        }
    }

    /// Whether the text of the current value is kept, and not its length alone.
    pub(super) fn keeps(&self) -> bool {
        self.keeps
    }

    /// Part of the current string, by its length: so many bytes when decoded.
    pub(super) fn count(&mut self, decoded: usize) {
        self.length += decoded as u64;
    }

    /// Part of the current string, decoded: whole characters.
    #[inline]
    pub(super) fn text(&mut self, in_key: bool, text: &[u8]) {
        if in_key {
            self.key.push(text);
            return;
        }
        self.length += text.len() as u64;
        if self.keeps && self.length <= self.max_captured as u64 {
            self.kept.extend_from_slice(text);
        }
    }

    pub(super) fn string_ends(&mut self, place: Place, span: Range<u64>) -> Result<(), Box<Fault>> {
        if let Field::Text(index) = self.field {
            let tally = &mut self.tallies[index];
            if self.media {
                tally.media = tally.media.saturating_add(1);
            } else {
                tally.bytes += self.length;
            }
        }
        self.value(place, Value::String, span)
    }

    pub(super) fn number(
        &mut self,
        place: Place,
        number: Number,
        span: Range<u64>,
    ) -> Result<(), Box<Fault>> {
        let value = match number.as_count() {
            Some(count) => Value::Count(count),
            None if number.integer => Value::Negative,
            None => Value::Fractional,
        };
        self.value(place, value, span)
    }

    /// So many more after a whole number in the same array: but for their count they say what it said.
    pub(super) fn more_numbers(&mut self, place: Place, count: u32) {
        if let Field::Text(index) = self.field {
            self.tally(index, place, Value::Count(0), count);
        }
    }

    pub(super) fn literal(
        &mut self,
        place: Place,
        literal: Literal,
        span: Range<u64>,
    ) -> Result<(), Box<Fault>> {
        let value = match literal {
            Literal::Null => Value::Null,
            Literal::True => Value::Bool(true),
            Literal::False => Value::Bool(false),
        };
        self.value(place, value, span)
    }

    pub(super) fn opens(&mut self, place: Place, array: bool, at: u64) -> Result<(), Box<Fault>> {
        self.value(place, if array { Value::Array } else { Value::Object }, at..at)
    }

    pub(super) fn closes(&mut self) {
        self.media = false;
    }

    #[inline]
    fn value(&mut self, place: Place, value: Value, span: Range<u64>) -> Result<(), Box<Fault>> {
        if let Field::Text(index) = self.field {
            if self.part != Part::Other {
                self.part(value);
            }
            self.tally(index, place, value, 1);
            return Ok(());
        }
        self.other(place, value, span)
    }

    /// The value of a key that says what it is: null is none.
    #[inline(never)]
    fn part(&mut self, value: Value) {
        let given = matches!(value, Value::String | Value::Object);
        match std::mem::replace(&mut self.part, Part::Other) {
            Part::Image => self.images |= given,
            Part::Sound => self.sounds |= given,
            Part::Kept => {
                self.builds |= value != Value::Null;
                if value == Value::String {
                    self.file = self.take_kept();
                }
            }
            Part::Other => {}
        }
    }

    /// A value that stands nowhere in a prompt.
    #[inline(never)]
    fn other(&mut self, place: Place, value: Value, span: Range<u64>) -> Result<(), Box<Fault>> {
        if self.is_adapter(place) {
            self.adapter(place, value);
        }
        if place.depth != 1 {
            if std::mem::replace(&mut self.part, Part::Other) == Part::Kept {
                self.refers(value);
            }
            return Ok(());
        }
        match self.field {
            Field::Model => return self.model(value, span),
            Field::Stream => {
                self.stream = value
                    .as_flag()
                    .ok_or_else(|| wrong("stream", "true or false", &span))?;
            }
            Field::N => self.n[0] = value.as_count().ok_or_else(|| wrong("n", COUNT, &span))?,
            Field::NCmpl => self.n[1] = value.as_count().ok_or_else(|| wrong("n_cmpl", COUNT, &span))?,
            // Engines coerce what is no bool, each in its own way: only what none reads as false is false.
            Field::Store => self.store = (value != Value::Null).then_some(value != Value::Bool(false)),
            Field::Background => self.background = !matches!(value, Value::Null | Value::Bool(false)),
            Field::PreviousResponse => {
                self.previous_response = value != Value::Null;
                self.refers(value);
            }
            Field::Refers | Field::Conversation => self.refers(value),
            Field::User => {
                self.user = if value == Value::String {
                    self.take_kept()
                } else {
                    None
                }
            }
            Field::Truncates => {
                self.truncates |= !matches!(value, Value::Null | Value::Bool(false) | Value::Count(0));
            }
            // It begins anew, should it come twice.
            Field::Holding => self.adapter_within = None,
            Field::Adapter | Field::Text(_) | Field::Ignored => {}
        }
        Ok(())
    }

    /// The last one that says something counts: all of them are at one upstream.
    fn refers(&mut self, value: Value) {
        self.builds |= value != Value::Null;
        if value == Value::String {
            self.refers = self.take_kept();
        }
    }

    /// So many values of one kind.
    #[inline]
    fn tally(&mut self, index: usize, place: Place, value: Value, count: u32) {
        let tally = &mut self.tallies[index];
        let integer = matches!(value, Value::Count(_) | Value::Negative);
        if place.depth == 1 {
            tally.present = value != Value::Null;
            tally.items = u32::from(value != Value::Array);
        } else if place.depth == 2 && place.in_array {
            tally.items = tally.items.saturating_add(count);
            tally.has_integers |= integer;
        }
        if integer && place.in_array && matches!(index, PROMPT | INPUT) {
            tally.token_ids += u64::from(count);
        }
    }

    /// All that a body says of adapters counts, since engines differ in what they believe.
    fn adapter(&mut self, place: Place, value: Value) {
        let is_list = value == Value::Array && !place.in_array;
        if is_list || matches!(value, Value::Null | Value::Bool(false)) {
            return;
        }
        let name = (value == Value::String).then(|| self.take_kept()).flatten();
        self.adapter = match (name, &self.adapter) {
            (Some(name), _) if name.is_empty() => return,
            (Some(name), AskedAdapter::None) => AskedAdapter::Named(name.into()),
            (Some(name), AskedAdapter::Named(before)) if **before == *name => return,
            _ => AskedAdapter::Unclear,
        };
    }

    fn model(&mut self, value: Value, span: Range<u64>) -> Result<(), Box<Fault>> {
        let fault = |kind| {
            Box::new(Fault {
                kind,
                offset: span.start,
            })
        };
        let given = match value {
            Value::Null => Given::Null,
            Value::String => self.take_kept().map_or(Given::TooLong(self.length), Given::Text),
            _ => return Err(wrong("model", "a string", &span)),
        };
        if self.model.as_ref().is_some_and(|first| *first != given) {
            return Err(fault(ScanErrorKind::AmbiguousModel));
        }
        if self.model_spans.len() == MAX_MODEL_KEYS {
            return Err(fault(ScanErrorKind::RepeatedModel {
                limit: MAX_MODEL_KEYS,
            }));
        }
        self.model = Some(given);
        self.model_spans.push(span);
        Ok(())
    }

    /// Takes the string that just ended, unless it is too long to keep.
    fn take_kept(&mut self) -> Option<String> {
        let kept = std::mem::take(&mut self.kept);
        (self.length <= self.max_captured as u64).then(|| String::from_utf8(kept).unwrap_or_default())
    }

    pub(super) fn into_scanned(self, body_bytes: u64) -> Scanned {
        let prompts = |index: usize| self.tallies[index].prompts();
        let said = |text: Option<String>| text.filter(|text| !text.is_empty()).map(Arc::from);
        let model = match self.model {
            Some(Given::Text(name)) if !name.is_empty() => AskedModel::Named(Arc::from(name)),
            Some(Given::TooLong(bytes)) => AskedModel::TooLong { bytes },
            Some(Given::Null | Given::Text(_)) | None => AskedModel::Any,
        };
        Scanned {
            model,
            stream: self.stream,
            n: self.n[0].max(self.n[1]),
            prompts: prompts(PROMPT).or(prompts(TEXT_INPUT)),
            inputs: prompts(INPUT).or(prompts(CONTENT)),
            documents: prompts(DOCUMENTS).or(prompts(TEXTS)).or(prompts(TEXT_2)),
            store: self.store,
            background: self.background,
            previous_response: self.previous_response,
            refers: said(self.refers).or(said(self.file)),
            builds_on_kept: self.builds,
            user: said(self.user),
            adapter: self.adapter,
            prompt_bytes: self.tallies.iter().map(|tally| tally.bytes).sum(),
            token_ids: self.tallies.iter().map(|tally| tally.token_ids).sum(),
            media: self
                .tallies
                .iter()
                .fold(0, |sum: u32, tally| sum.saturating_add(tally.media)),
            model_spans: self.model_spans,
            is_form: false,
            images: self.images,
            sounds: self.sounds,
            truncates: self.truncates,
            body_bytes,
        }
    }
}

const COUNT: &str = "a whole number, 0 or more, without fraction or exponent";

#[cold]
fn wrong(key: &'static str, expected: &'static str, span: &Range<u64>) -> Box<Fault> {
    Box::new(Fault {
        kind: ScanErrorKind::WrongType { key, expected },
        offset: span.start,
    })
}
