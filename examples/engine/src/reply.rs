//! What is answered, before it is put on the wire?

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::Value;

use crate::wire::body::Source;

/// An answer without what its face adds to it.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) content: Content,
}

/// The body of an answer.
pub(crate) enum Content {
    Whole(Bytes),
    Stream(Box<dyn Source>),
}

impl Reply {
    pub(crate) fn new(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let content = Content::Whole(body.into());
        Self {
            status,
            content_type: Some(content_type),
            headers: Vec::new(),
            content,
        }
    }

    pub(crate) fn json(status: StatusCode, value: &Value) -> Self {
        Self::new(status, "application/json", value.to_string())
    }

    pub(crate) fn ok(value: &Value) -> Self {
        Self::json(StatusCode::OK, value)
    }

    pub(crate) fn empty() -> Self {
        Self {
            content_type: None,
            ..Self::new(StatusCode::OK, "", "")
        }
    }

    pub(crate) fn stream(source: Box<dyn Source>) -> Self {
        Self {
            status: StatusCode::OK,
            content_type: Some("text/event-stream"),
            headers: Vec::new(),
            content: Content::Stream(source),
        }
    }

    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }
}
