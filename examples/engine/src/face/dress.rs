//! What is added to an answer before it goes out, by its face and by faults?

use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, SERVER, TRAILER};
use http::{HeaderName, HeaderValue, Response};

use super::{common, llamacpp, vllm};
use crate::checksum::{self, Summed};
use crate::config::Face;
use crate::core::Core;
use crate::effects::Looks;
use crate::gzip;
use crate::journal::Note;
use crate::reply::{Content, Reply};
use crate::wire::body::{AtLimit, Shape, ShapedBody, Source};
use crate::wire::line::Turn;

/// Puts an answer on its way.
pub(crate) fn dress(
    core: &Core,
    reply: Reply,
    mut looks: Looks,
    mut note: Option<Note>,
    mut turn: Turn,
) -> Response<ShapedBody> {
    let face = core.config.face;
    let is_stream = matches!(reply.content, Content::Stream(_));
    if let Some(note) = &note {
        note.answered(reply.status.as_u16());
    }
    let mut headers = before(core, is_stream);
    headers.extend(reply.headers);
    if let Some(content_type) = reply.content_type.filter(|_| !looks.untyped) {
        headers.push((CONTENT_TYPE, full_type(face, content_type)));
    }
    let source: Box<dyn Source> = match reply.content {
        Content::Stream(source) => changed(source, &looks),
        Content::Whole(bytes) => whole(bytes, &mut looks, &mut headers, note.as_mut(), &turn),
    };
    headers.extend(by_fault(&looks));
    headers.push(keep_alive(core, &turn, &looks, reply.status.as_u16()));
    if looks.close_after || looks.rewrite.instead.is_some() || (is_stream && face == Face::Llamacpp) {
        turn.close_after();
    }
    turn.line().rewrite(std::mem::take(&mut looks.rewrite));
    let doubles: Vec<_> = headers
        .iter()
        .filter(|(name, _)| looks.double && [SERVER, CONTENT_TYPE].contains(name))
        .cloned()
        .collect();
    let mut response = Response::builder().status(reply.status);
    for (name, value) in headers.into_iter().chain(doubles) {
        response = response.header(name, value);
    }
    // All names and values above are valid; were one not, the answer would be an empty 200.
    let (parts, ()) = response.body(()).unwrap_or_default().into_parts();
    Response::from_parts(parts, ShapedBody::new(source, looks.shape, note, turn))
}

fn before(core: &Core, is_stream: bool) -> Vec<(HeaderName, HeaderValue)> {
    match core.config.face {
        Face::Llamacpp => llamacpp::headers_before(is_stream),
        Face::Vllm => vllm::headers_before(core),
    }
}

/// The header that says what becomes of the connection.
fn keep_alive(core: &Core, turn: &Turn, looks: &Looks, status: u16) -> (HeaderName, HeaderValue) {
    let is_last = turn.number >= core.config.keep_alive_requests || status >= 400;
    match core.config.face {
        Face::Llamacpp => llamacpp::keep_alive(core, looks.close || is_last),
        Face::Vllm => vllm::keep_alive(looks.close),
    }
}

/// The headers that faults add.
fn by_fault(looks: &Looks) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers: Vec<_> = (0..looks.more_headers)
        .filter_map(|number| {
            let name = HeaderName::try_from(format!("x-sim-more-{number}")).ok()?;
            Some((name, HeaderValue::from(number)))
        })
        .collect();
    if looks.label_gzip {
        headers.push((CONTENT_ENCODING, HeaderValue::from_static("gzip")));
    }
    if !looks.rewrite.trailers.is_empty() {
        headers.push((TRAILER, HeaderValue::from_static("x-sim-trailer")));
    }
    headers
}

/// A stream as faults and its client want it.
fn changed(mut source: Box<dyn Source>, looks: &Looks) -> Box<dyn Source> {
    if looks.padding > 0 {
        source = Box::new(Padded::new(source, b": ", looks.padding, b"\n\n"));
    }
    if looks.no_done {
        source = Box::new(WithoutEnd(source));
    }
    if looks.checksum {
        source = Box::new(Summed::new(source));
    }
    source
}

/// A body that is there from the start, with the headers about it.
fn whole(
    mut bytes: Bytes,
    looks: &mut Looks,
    headers: &mut Vec<(HeaderName, HeaderValue)>,
    note: Option<&mut Note>,
    turn: &Turn,
) -> Box<dyn Source> {
    if looks.padding > 0 {
        let mut padded = vec![b' '; looks.padding];
        padded.extend_from_slice(&bytes);
        bytes = padded.into();
    }
    if looks.gzip {
        bytes = gzip::compress(&bytes).into();
        headers.push((CONTENT_ENCODING, HeaderValue::from_static("gzip")));
    }
    if looks.checksum
        && let Ok(value) = HeaderValue::try_from(checksum::digest(&bytes))
    {
        headers.push((HeaderName::from_static("x-sim-digest"), value));
    }
    if matches!(&looks.shape.limit, Some((_, AtLimit::EndWith(_)))) {
        // An event has no place in a body that is not a stream.
        looks.shape.limit = None;
    }
    if !looks.chunked {
        let declared = mislead(&bytes, &mut looks.shape, turn);
        headers.push((CONTENT_LENGTH, HeaderValue::from(declared)));
        if let (Some(note), None) = (note, &looks.shape.limit) {
            note.has_length(bytes.len());
        }
    }
    Box::new(Some(bytes))
}

/// The length to declare, which a fault may have put wrong.
fn mislead(bytes: &Bytes, shape: &mut Shape, turn: &Turn) -> u64 {
    let length = bytes.len();
    let declared = (length as u64).saturating_add_signed(shape.length_off_by);
    if declared > length as u64 && shape.limit.is_none() {
        shape.limit = Some((length, AtLimit::Eof));
    }
    if declared < length as u64 {
        turn.line().send_surplus(bytes.slice(declared as usize..));
    }
    declared
}

/// The media type with the parameters that the face gives it.
fn full_type(face: Face, media_type: &'static str) -> HeaderValue {
    HeaderValue::from_static(match (face, media_type) {
        (Face::Llamacpp, "application/json") => "application/json; charset=utf-8",
        (Face::Vllm, "text/event-stream") => "text/event-stream; charset=utf-8",
        (_, other) => other,
    })
}

/// A stream that begins with bytes that mean nothing.
struct Padded {
    source: Box<dyn Source>,
    begun: Option<&'static [u8]>,
    left: usize,
    end: Option<&'static [u8]>,
}

impl Padded {
    fn new(source: Box<dyn Source>, begin: &'static [u8], bytes: usize, end: &'static [u8]) -> Self {
        Self {
            source,
            begun: Some(begin),
            left: bytes,
            end: Some(end),
        }
    }
}

impl Source for Padded {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        /// So much at a time, so that a long one is never there as a whole.
        const PIECE: [u8; 16 * 1024] = [b'.'; 16 * 1024];
        static DOTS: [u8; PIECE.len()] = PIECE;
        if let Some(begin) = self.begun.take() {
            return Poll::Ready(Some(Bytes::from_static(begin)));
        }
        if self.left > 0 {
            let length = self.left.min(DOTS.len());
            self.left -= length;
            return Poll::Ready(Some(Bytes::from_static(&DOTS[..length])));
        }
        match self.end.take() {
            Some(end) => Poll::Ready(Some(Bytes::from_static(end))),
            None => self.source.poll_next(cx),
        }
    }
}

/// A stream without the event that says it is complete.
struct WithoutEnd(Box<dyn Source>);

impl Source for WithoutEnd {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let ends: [&[u8]; 3] = [
            common::DONE.as_bytes(),
            b"event: message_stop",
            b"event: response.completed",
        ];
        loop {
            match self.0.poll_next(cx) {
                Poll::Ready(Some(piece)) if ends.iter().any(|end| piece.starts_with(end)) => {}
                other => return other,
            }
        }
    }
}
