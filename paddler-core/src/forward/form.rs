//! How is an answer made up?

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use super::headers::begins;

/// Media types that have an object in each line.
const LINES: [&str; 3] = ["application/x-ndjson", "application/ndjson", "application/jsonl"];

/// What an answer that can be read is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// One object.
    Whole,
    /// An object in each line: Ollama.
    Lines,
    /// Server-sent events.
    Events,
}

impl Form {
    /// Of an answer with these headers; `None` where it is encoded, or of another kind.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        if headers.contains_key(CONTENT_ENCODING) {
            return None;
        }
        let kind = headers.get(CONTENT_TYPE)?.as_bytes();
        let is = |prefix: &&str| begins(kind, prefix);
        if is(&"text/event-stream") {
            Some(Self::Events)
        } else if LINES.iter().any(is) {
            Some(Self::Lines)
        } else {
            is(&"application/json").then_some(Self::Whole)
        }
    }
}
