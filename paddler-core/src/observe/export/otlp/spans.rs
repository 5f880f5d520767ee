//! How does a request look as spans?
//!
//! As one of a server, with one of a client below it for each attempt, and one for the time in which it waited. Names and
//! attributes are those of OpenTelemetry's conventions for HTTP and for generative AI, where these have one; the JSON is that of
//! OTLP: ids in hexadecimal, 64-bit numbers as text.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::wall::since_1970;
use crate::Moment;
use crate::observe::{End, TraceSpan, Trail, TrailAttempt};

/// The kinds of spans.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;

/// The status of a span that has failed.
const ERROR: u8 = 2;

/// The longest text of an attribute, in bytes: a client may ask for a model with any name.
const LONGEST: usize = 256;

/// Says when it was, on the clock on the wall.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wall {
    /// Nanoseconds since 1970, and the moment that this was.
    now: (u64, Moment),
}

impl Wall {
    /// For moments up to this one, which is now.
    pub(super) fn at(now: Moment) -> Self {
        let wall = since_1970().as_nanos();
        Self {
            now: (u64::try_from(wall).unwrap_or(u64::MAX), now),
        }
    }

    /// In nanoseconds since 1970, as text.
    fn nanos(&self, moment: Moment) -> Value {
        let (wall, now) = self.now;
        let ago: Duration = now.since(moment);
        let nanos = wall.saturating_sub(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX));
        nanos.to_string().into()
    }
}

/// What the conventions call the operation.
fn operation(class: &'static str) -> Option<&'static str> {
    match class {
        "chat" | "responses" | "messages" => Some("chat"),
        "completion" | "infill" => Some("text_completion"),
        "embedding" => Some("embeddings"),
        "control" | "local" | "admin" | "unreadable" => None,
        other => Some(other),
    }
}

fn text(text: &str) -> Value {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    json!({ "stringValue": text[..end] })
}

fn number(number: u64) -> Value {
    json!({ "intValue": number.to_string() })
}

/// Attributes, without those that are not known.
fn attributes<const N: usize>(all: [(&str, Option<Value>); N]) -> Value {
    let known = all.into_iter();
    known
        .filter_map(|(key, value)| Some(json!({ "key": key, "value": value? })))
        .collect()
}

fn event(name: &str, at: Value) -> Value {
    json!({ "name": name, "timeUnixNano": at })
}

/// The trail of a request, whose span this is.
pub(super) struct Spans<'a> {
    pub(super) trail: &'a Trail,
    pub(super) span: &'a TraceSpan,
    pub(super) wall: Wall,
}

impl Spans<'_> {
    /// All spans of the request, its own first.
    pub(super) fn all(&self) -> Vec<Value> {
        let mut all = vec![self.request()];
        all.extend(self.wait());
        for (number, sent) in self.trail.attempts.iter().enumerate() {
            all.extend(self.attempt(number, sent));
        }
        all
    }

    fn ended(&self) -> Moment {
        self.trail.ended.unwrap_or(self.trail.arrived)
    }

    /// What all spans have. `from`, `to`: from when to when it was.
    fn span(
        &self,
        (id, parent): (u64, Option<u64>),
        name: &str,
        kind: u8,
        (from, to): (Moment, Moment),
    ) -> Value {
        let mut span = json!({
            "traceId": format!("{:032x}", self.span.trace_id),
            "spanId": format!("{id:016x}"),
            "name": name,
            "kind": kind,
            "startTimeUnixNano": self.wall.nanos(from),
            "endTimeUnixNano": self.wall.nanos(to),
        });
        if let Some(parent) = parent {
            span["parentSpanId"] = format!("{parent:016x}").into();
        }
        if let Some(state) = &self.span.state {
            span["traceState"] = (&**state).into();
        }
        span
    }

    fn model(&self) -> Option<&str> {
        self.trail.facts.as_ref()?.model.as_deref()
    }

    /// `chat llama-3`; the method alone where no model is asked.
    fn name(&self) -> String {
        let trail = self.trail;
        match (operation(trail.class), self.model()) {
            (Some(operation), Some(model)) => {
                let model = model.chars().take(LONGEST / 4).collect::<String>();
                format!("{operation} {model}")
            }
            (Some(operation), None) => operation.to_owned(),
            (None, _) => trail.method.to_string(),
        }
    }

    fn request(&self) -> Value {
        let (trail, ids) = (self.trail, (self.span.span_id, self.span.parent_id));
        let mut span = self.span(ids, &self.name(), SERVER, (trail.arrived, self.ended()));
        let failed = trail.status.is_some_and(|status| status >= 500) || trail.end == Some(End::CutShort);
        let error = trail
            .reason
            .as_deref()
            .filter(|_| failed || trail.status.is_some_and(|status| status >= 400));
        span["attributes"] = attributes([
            ("http.request.method", Some(text(&trail.method))),
            ("url.path", Some(text(&trail.path))),
            (
                "http.response.status_code",
                trail.status.map(|status| number(status.into())),
            ),
            ("error.type", error.map(text)),
            (
                "client.address",
                trail.address.map(|address| text(&address.to_string())),
            ),
            ("gen_ai.operation.name", operation(trail.class).map(text)),
            ("gen_ai.request.model", self.model().map(text)),
            ("gen_ai.usage.input_tokens", trail.prompt_tokens.map(number)),
            ("gen_ai.usage.output_tokens", trail.output_tokens.map(number)),
            ("paddler.request.id", Some(text(&trail.id))),
            ("paddler.client", trail.client.as_deref().map(text)),
            ("paddler.upstream", trail.upstream().map(|id| text(id.as_str()))),
            ("paddler.end", trail.end.map(|end| text(end.as_str()))),
        ]);
        let first_byte = trail
            .first_byte
            .map(|at| event("first byte", self.wall.nanos(at)));
        span["events"] = first_byte.into_iter().collect();
        if failed {
            span["status"] = json!({ "code": ERROR, "message": error.unwrap_or_default() });
        }
        span
    }

    /// From when it was read until it had a place, or was refused one.
    fn wait(&self) -> Option<Value> {
        let began = self.trail.began?;
        let placed = self.trail.attempts.first().map(|sent| sent.at);
        let until = placed.or(self.trail.answered).unwrap_or(self.ended());
        // Another than its own, and the same each time.
        let id = self.span.span_id.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15;
        let ids = (id.max(1), Some(self.span.span_id));
        Some(self.span(ids, "find a place", INTERNAL, (began, until)))
    }

    fn attempt(&self, resent: usize, sent: &TrailAttempt) -> Option<Value> {
        let answered = sent.ended == Some("answered");
        // Whose answer was passed on is busy with it until the end.
        let until = sent.ended_at.filter(|_| !answered).unwrap_or(self.ended());
        let ids = (sent.span_id?, Some(self.span.span_id));
        let mut span = self.span(ids, &self.name(), CLIENT, (sent.at, until));
        let failed = sent.ended.filter(|_| !answered);
        let resent = Some(resent as u64).filter(|resent| *resent > 0);
        span["attributes"] = attributes([
            ("http.request.method", Some(text(&self.trail.method))),
            ("http.request.resend_count", resent.map(number)),
            ("gen_ai.operation.name", operation(self.trail.class).map(text)),
            ("gen_ai.request.model", self.model().map(text)),
            ("paddler.upstream", Some(text(sent.upstream.as_str()))),
            ("error.type", failed.map(text)),
        ]);
        if let Some(failed) = failed {
            span["status"] = json!({ "code": ERROR, "message": failed });
        }
        Some(span)
    }
}
