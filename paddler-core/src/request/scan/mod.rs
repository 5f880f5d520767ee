//! What does a body say that matters for routing?
//!
//! A [`Scanner`] reads a JSON body as it arrives, in chunks cut anywhere, and keeps a handful of facts. It builds no
//! tree of values, copies no body and does not recurse: its memory is bounded by [`ScanLimits`], whatever is sent.
//!
//! It checks the whole grammar, so that what passes is JSON to every engine. It is more lenient than `serde_json` in
//! four places, and stricter in one:
//!
//! - a UTF-8 byte order mark at the start is skipped;
//! - half of a surrogate pair (`"\ud83d"`) is accepted, since engines accept it; in what is kept it becomes U+FFFD;
//! - numbers may be of any magnitude (`1e999`): nothing is computed with them here;
//! - the limit of depth is configurable, and 128 means that 128 containers may be open at once (one more than there);
//! - the body must be an object.
//!
//! Of the top-level keys it reads the value, with the key's escapes decoded. A key that comes twice counts as it came
//! last, as it does for engines; `model` is the exception, see [`AskedModel`].

mod block;
mod capture;
mod error;
mod field;
mod form;
mod machine;
mod skim;
mod text;
mod utf8;

use std::ops::Range;
use std::sync::Arc;

use capture::Capture;
pub use error::{ScanError, ScanErrorKind};
use form::Form;
use machine::Machine;

/// How much of a body is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ScanLimits {
    /// The most containers (objects and arrays) that may be open at once. At least 1: the body itself. 128 unless set.
    pub max_depth: usize,
    /// The longest string that is kept (`model`, `user`), in bytes after decoding. 1,024 unless set.
    pub max_captured: usize,
}

impl Default for ScanLimits {
    fn default() -> Self {
        Self {
            max_depth: 128,
            max_captured: 1024,
        }
    }
}

impl ScanLimits {
    /// Sets the most containers that may be open at once.
    #[must_use]
    pub fn max_depth(mut self, containers: usize) -> Self {
        self.max_depth = containers;
        self
    }

    /// Sets the longest string that is kept, in bytes after decoding.
    #[must_use]
    pub fn max_captured(mut self, bytes: usize) -> Self {
        self.max_captured = bytes;
        self
    }
}

/// Which model a body asks for.
///
/// Any spelling of the top-level key counts that equals `model` ignoring ASCII case, because engines disagree: some
/// ignore case, some do not. Several of them with the same value are one; different values are an error of the scan,
/// so that what was judged here is what every engine reads.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AskedModel {
    /// None is named: the key is absent, null or empty.
    Any,
    /// This one.
    Named(Arc<str>),
    /// A name longer than [`ScanLimits::max_captured`]. No upstream has it.
    TooLong {
        /// Its length in bytes, after decoding.
        bytes: u64,
    },
}

impl AskedModel {
    /// The name, where one is given and kept.
    pub fn name(&self) -> Option<&Arc<str>> {
        match self {
            Self::Named(name) => Some(name),
            Self::Any | Self::TooLong { .. } => None,
        }
    }
}

/// Which adapter a body asks for in a key of its own, beside its model. Those who serve adapters as models need no such key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AskedAdapter {
    /// None.
    None,
    /// The one of this name, as in SGLang's `lora_path`.
    Named(Arc<str>),
    /// Which cannot be told: there are several, it goes by a number (llama.cpp's `lora`), or its name is longer than
    /// [`ScanLimits::max_captured`].
    Unclear,
}

/// What a body says, as far as it matters for routing.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Scanned {
    /// `model`.
    pub model: AskedModel,
    /// Where the values of `model` stand in the body, quotes included: bytes from and to (exclusive), in order. To ask
    /// for another model, replace all of them. Empty when the key is absent.
    pub model_spans: Vec<Range<u64>>,
    /// The body is a form, whose values stand there as they are, without quotes and escapes.
    pub is_form: bool,
    /// `stream`. Something else than a bool or null is an error, since engines disagree on what it means.
    pub stream: bool,
    /// `n`, or llama.cpp's name for it, `n_cmpl`: the greater. How many answers to each prompt. Something else than a
    /// whole number or null is an error, since the weight of the request depends on it; saturates.
    pub n: Option<u32>,
    /// How many prompts `prompt` holds, or else `text_input` (Triton). A string is one; an array of strings or of arrays is one for each; an array with
    /// a token id (a whole number) in it is one as a whole. `None`: absent or null.
    pub prompts: Option<u32>,
    /// How many inputs `input` holds, or else `content` (llama.cpp), counted like `prompts`. For the Responses API
    /// these are the items of one conversation.
    pub inputs: Option<u32>,
    /// How many documents a rerank or score has: the items of `documents`, or else of `texts`, or else of `text_2`.
    pub documents: Option<u32>,
    /// `store`. What is neither a bool nor null counts as true, because some engine may take it so.
    pub store: Option<bool>,
    /// `background`, in the same way.
    pub background: bool,
    /// Whether `previous_response_id` is there and not null.
    pub previous_response: bool,
    /// What another request has made, by its id: `previous_response_id`, `conversation` or its `id`, `input_file_id` or, without
    /// these, a `file_id` inside of `messages`, `prompt`, `input` or `content`, where it is a string, not empty and not longer than
    /// [`ScanLimits::max_captured`].
    pub refers: Option<Arc<str>>,
    /// Whether any of these is there and not null, be it no string: what it builds on is kept at one upstream.
    pub builds_on_kept: bool,
    /// `user`: a string, not empty, not longer than [`ScanLimits::max_captured`]; else `None`.
    pub user: Option<Arc<str>>,
    /// What stands under keys that begin with `lora`, `adapter` or `peft`, such as `lora_path`, ignoring ASCII case, `-` and
    /// `_`: at the top, or anywhere in `parameters` or `extra_body`. A name, or a list of names. All of them count, since
    /// engines differ in what they believe, and so does what is no name, except null, false and nothing at all.
    pub adapter: AskedAdapter,
    /// How much text the prompt has, in bytes of UTF-8 after decoding: all strings (not keys) under `messages`,
    /// `prompt`, `text_input`, `input`, `content`, `documents`, `texts`, `text_1`, `text_2`, `query`, `system`, `instructions`,
    /// `tools`, `functions`, `input_prefix`, `input_suffix` and `input_extra`, without media.
    pub prompt_bytes: u64,
    /// How many token ids stand in arrays under `prompt` and `input`.
    pub token_ids: u64,
    /// How many images, sounds and files the prompt has: strings under the keys `url`, `image_url`, `data`, `file_data`
    /// or `multimodal_data` inside of `messages`, `prompt`, `input` or `content`. They may be megabytes of base64, which
    /// says nothing of how many tokens they become.
    pub media: u32,
    /// Whether there are images among them: something stands under the key `image_url` of a prompt.
    pub images: bool,
    /// The same of sounds: `input_audio`.
    pub sounds: bool,
    /// Whether the engine is asked to cut what is too long: something else than null, false or 0 under a key that begins with
    /// `truncat`.
    pub truncates: bool,
    /// The length of the body, in bytes.
    pub body_bytes: u64,
}

/// What the body is.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "hardly any body is a form, and none of the others should pay for it"
)]
enum Grammar {
    Json(Machine, Capture),
    Form(Box<Form>),
}

/// Reads a JSON body, or a form, as it arrives. The result is the same however the body is cut into chunks.
///
/// ```
/// use paddler_core::request::{ScanLimits, Scanner};
///
/// let mut scanner = Scanner::new(ScanLimits::default());
/// scanner.feed(br#"{"stream": true, "mod"#)?;
/// scanner.feed(br#"el": "llama", "prompt": ["Hi", "Ho"]}"#)?;
/// let scanned = scanner.finish()?;
/// assert_eq!(scanned.model.name().map(|name| &**name), Some("llama"));
/// assert_eq!((scanned.stream, scanned.prompts), (true, Some(2)));
/// # Ok::<(), paddler_core::request::ScanError>(())
/// ```
#[derive(Debug)]
pub struct Scanner {
    grammar: Grammar,
    failed: Option<ScanError>,
}

impl Scanner {
    /// Waits for the first byte of a body.
    pub fn new(limits: ScanLimits) -> Self {
        Self {
            grammar: Grammar::Json(Machine::new(limits.max_depth.max(1)), Capture::new(limits)),
            failed: None,
        }
    }

    /// Waits for the first byte of a form (`multipart/form-data`). Its text fields count as the keys of a JSON body do; each file
    /// counts as media. What two servers could read in two ways is an error.
    ///
    /// ```
    /// use paddler_core::request::{ScanLimits, Scanner};
    ///
    /// let mut scanner = Scanner::of_form("multipart/form-data; boundary=x", ScanLimits::default())?;
    /// scanner.feed(b"--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n--x\r\nContent-")?;
    /// scanner.feed(b"Disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--x--\r\n")?;
    /// let scanned = scanner.finish()?;
    /// assert_eq!(scanned.model.name().map(|name| &**name), Some("whisper"));
    /// assert_eq!((scanned.media, scanned.model_spans[0].end - scanned.model_spans[0].start), (1, 7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ScanErrorKind::NoBoundary`] if the `Content-Type` does not say what the parts are separated by.
    pub fn of_form(content_type: &str, limits: ScanLimits) -> Result<Self, ScanErrorKind> {
        let form = Form::new(content_type, limits)?;
        Ok(Self {
            grammar: Grammar::Form(Box::new(form)),
            failed: None,
        })
    }

    /// Scans a whole form that lies here without its headers: by the boundary that it begins with.
    pub(super) fn scan_form(body: &[u8], limits: ScanLimits) -> Result<Scanned, ScanError> {
        let line = body.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let boundary = line.strip_prefix(b"--").unwrap_or_default();
        let content_type = format!(
            "multipart/form-data; boundary={}",
            String::from_utf8_lossy(boundary)
        );
        let mut scanner = Self::of_form(&content_type, limits).map_err(|kind| ScanError {
            kind,
            offset: 0,
            line: 0,
            column: 0,
        })?;
        scanner.feed(body)?;
        scanner.finish()
    }

    /// Scans a whole body.
    ///
    /// # Errors
    /// As [`feed`](Self::feed) and [`finish`](Self::finish).
    pub fn scan(body: &[u8], limits: ScanLimits) -> Result<Scanned, ScanError> {
        let mut scanner = Self::new(limits);
        scanner.feed(body)?;
        scanner.finish()
    }

    /// Takes the next chunk, which may be of any length and be cut anywhere.
    ///
    /// # Errors
    /// The first thing that is wrong with the body, as soon as its bytes are here. From then on the scanner takes
    /// nothing more and says the same again.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<(), ScanError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let fed = match &mut self.grammar {
            Grammar::Json(machine, capture) => machine.feed(chunk, capture),
            Grammar::Form(form) => form.feed(chunk),
        };
        fed.map_err(|error| {
            self.failed = Some((*error).clone());
            *error
        })
    }

    /// Says that the body is complete, and what it holds.
    ///
    /// # Errors
    /// What [`feed`](Self::feed) said, or that the body ends too early.
    pub fn finish(self) -> Result<Scanned, ScanError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        match self.grammar {
            Grammar::Json(machine, capture) => {
                machine.finish().map_err(|error| *error)?;
                Ok(capture.into_scanned(machine.taken()))
            }
            Grammar::Form(form) => form.finish().map_err(|error| *error),
        }
    }
}
