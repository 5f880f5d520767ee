//! What does each real engine say, and in which words?
//!
//! Everything here is a choice between the two faces; what they say is in [`llamacpp`] and [`vllm`], and what
//! they say alike is in [`common`].

mod common;
mod llamacpp;
mod vllm;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};

use crate::ask::{Ask, AskError, Kind};
use crate::config::Face;
use crate::core::Core;
use crate::inference::{Job, Made};
use crate::reply::{Content, Reply};
use crate::serve::{Call, Effects};
use crate::wire::body::{AtLimit, Shape, ShapedBody, Source};
use crate::wire::line::Turn;
use crate::work::Event;

/// What a request's method and path lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Work(Kind),
    Health,
    Slots,
    Props,
    Models,
    Metrics,
    Adapters,
    ScaleAdapters,
    LoadAdapter,
    UnloadAdapter,
    Tokenize,
    Version,
    ServerLoad,
    Unknown,
    /// The path exists for another method.
    WrongMethod,
}

/// Puts the events of a streamed answer into words.
pub(crate) trait Voice: Send {
    /// What is sent because of an event.
    fn say(&mut self, job: &Job, event: &Event, out: &mut VecDeque<Bytes>);
    /// What is sent when all tasks are done.
    fn end(&mut self, job: &Job, out: &mut VecDeque<Bytes>);
}

pub(crate) fn route(face: Face, method: &Method, path: &str) -> Route {
    match face {
        Face::Llamacpp => llamacpp::route(method, path),
        Face::Vllm => vllm::route(method, path),
    }
}

/// Whether a route needs no key.
pub(crate) fn is_open(face: Face, route: &Route) -> bool {
    match face {
        Face::Llamacpp => matches!(route, Route::Health),
        Face::Vllm => matches!(
            route,
            Route::Health | Route::Metrics | Route::ServerLoad | Route::Version
        ),
    }
}

/// Answers every route that needs no work of the model.
pub(crate) fn status(core: &Core, call: &Call, route: &Route, effects: &Effects) -> Reply {
    match core.config.face {
        Face::Llamacpp => llamacpp::status(core, call, *route, effects),
        Face::Vllm => vllm::status(core, call, *route, effects),
    }
}

/// An error in the face's shape.
pub(crate) fn error(face: Face, status: StatusCode, text: &str) -> Reply {
    match face {
        Face::Llamacpp => llamacpp::error(status, text),
        Face::Vllm => vllm::error(status, None, text),
    }
}

pub(crate) fn unauthorized(face: Face) -> Reply {
    match face {
        Face::Llamacpp => llamacpp::error(StatusCode::UNAUTHORIZED, "Invalid API Key"),
        Face::Vllm => vllm::unauthorized(),
    }
}

pub(crate) fn loading(face: Face) -> Reply {
    error(face, StatusCode::SERVICE_UNAVAILABLE, "Loading model")
}

pub(crate) fn queue_full(face: Face) -> Reply {
    error(
        face,
        StatusCode::SERVICE_UNAVAILABLE,
        "The queue is full, try again later or elsewhere.",
    )
}

/// What is sent in a stream that fails on the way, up to and with its end.
pub(crate) fn error_event(face: Face) -> Bytes {
    let error = match face {
        Face::Llamacpp => llamacpp::error_value(StatusCode::INTERNAL_SERVER_ERROR, "failed on command"),
        Face::Vllm => vllm::error_value(StatusCode::INTERNAL_SERVER_ERROR, None, "failed on command"),
    };
    Bytes::from(format!("\n\ndata: {error}\n\n{}", common::DONE))
}

pub(crate) fn bad_body(face: Face, error: &AskError) -> Box<Reply> {
    Box::new(match face {
        Face::Llamacpp => llamacpp::error(StatusCode::BAD_REQUEST, &error.to_string()),
        Face::Vllm => vllm::bad_body(error),
    })
}

pub(crate) fn check_media_type(face: Face, call: &Call) -> Result<(), Box<Reply>> {
    match face {
        Face::Llamacpp => Ok(()),
        Face::Vllm => vllm::check_media_type(call),
    }
}

/// The name that an answer gives its model, and the adapter that makes it.
pub(crate) fn resolve_model(core: &Core, ask: &Ask) -> Result<(String, Option<Arc<str>>), Box<Reply>> {
    match core.config.face {
        // Outside of its router mode llama.cpp pays no attention to the name.
        Face::Llamacpp => Ok((core.config.model.clone(), None)),
        Face::Vllm => vllm::resolve_model(core, ask),
    }
}

pub(crate) fn check_length(core: &Core, ask: &Ask) -> Result<(), Box<Reply>> {
    let most = core.config.longest_sequence();
    let longest = ask
        .prompts
        .iter()
        .map(|prompt| prompt.tokens)
        .max()
        .unwrap_or_default();
    match core.config.face {
        Face::Llamacpp if longest >= most => Err(Box::new(llamacpp::too_long(longest, most))),
        Face::Vllm => vllm::check_length(ask, longest, most),
        Face::Llamacpp => Ok(()),
    }
}

/// The answer to a request that is not streamed.
pub(crate) fn whole(face: Face, job: &Job, made: &[Made]) -> Reply {
    Reply::ok(&match (face, job.kind) {
        (_, Kind::Messages) => common::messages(face, job, made),
        (_, Kind::Responses) => common::responses(face, job, made),
        (_, Kind::Embeddings) => common::embeddings(face, job),
        (_, Kind::NativeEmbeddings) => common::native_embeddings(job),
        (_, Kind::Rerank) => common::rerank(job),
        (Face::Llamacpp, _) => llamacpp::whole(job, made),
        (Face::Vllm, _) => vllm::whole(job, made),
    })
}

/// The words for a streamed answer.
pub(crate) fn voice(face: Face, kind: Kind) -> Box<dyn Voice> {
    match (face, kind) {
        (_, Kind::Messages) => Box::new(common::MessagesVoice::new(face)),
        (_, Kind::Responses) => Box::new(common::ResponsesVoice::new(face)),
        (Face::Llamacpp, _) => Box::new(llamacpp::LlamacppVoice),
        (Face::Vllm, _) => Box::new(vllm::VllmVoice::default()),
    }
}

/// The id of an answer.
fn answer_id(face: Face, job: &Job) -> String {
    match face {
        Face::Llamacpp => llamacpp::answer_id(job),
        Face::Vllm => vllm::answer_id(job),
    }
}

/// Adds what the face adds to every answer, and lets faults at the body.
pub(crate) fn dress(
    core: &Core,
    reply: Reply,
    mut shape: Shape,
    mut turn: Turn,
    close: bool,
) -> Response<ShapedBody> {
    let is_stream = matches!(reply.content, Content::Stream(_));
    let last = close
        || core.config.face == Face::Llamacpp
            && (turn.number >= core.config.keep_alive_requests || reply.status.as_u16() >= 400);
    let mut response = Response::builder().status(reply.status);
    let before = match core.config.face {
        Face::Llamacpp => llamacpp::headers_before(is_stream),
        Face::Vllm => vllm::headers_before(core),
    };
    for (name, value) in before.into_iter().chain(reply.headers) {
        response = response.header(name, value);
    }
    if let Some(content_type) = reply.content_type {
        response = response.header(CONTENT_TYPE, full_type(core.config.face, content_type));
    }
    let source: Box<dyn Source> = match reply.content {
        Content::Stream(source) => source,
        Content::Whole(bytes) => {
            response = response.header(CONTENT_LENGTH, mislead(&bytes, &mut shape, &turn));
            Box::new(Some(bytes))
        }
    };
    let (name, value) = match core.config.face {
        Face::Llamacpp => llamacpp::keep_alive(core, last),
        Face::Vllm => vllm::keep_alive(last),
    };
    response = response.header(name, value);
    if is_stream && core.config.face == Face::Llamacpp {
        turn.close_after();
    }
    // All names and values above are valid; were one not, the answer would be an empty 200.
    let (parts, ()) = response.body(()).unwrap_or_default().into_parts();
    Response::from_parts(parts, ShapedBody::new(source, shape, turn))
}

/// The length to declare, which a fault may have put wrong.
fn mislead(bytes: &Bytes, shape: &mut Shape, turn: &Turn) -> u64 {
    let length = bytes.len();
    if matches!(&shape.limit, Some((_, AtLimit::EndWith(_)))) {
        // An event has no place in a body that is not a stream.
        shape.limit = None;
    }
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
