//! What does each real engine say, and in which words?
//!
//! Everything here is a choice between the two faces; what they say is in [`llamacpp`] and [`vllm`], and what
//! they say alike is in [`common`]; how an answer goes out is in [`dress`].

mod common;
mod dress;
mod llamacpp;
mod vllm;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};

use crate::ask::{Ask, AskError, Kind};
use crate::config::Face;
use crate::core::Core;
use crate::effects::Effects;
use crate::inference::{Job, Made};
use crate::reply::Reply;
use crate::serve::Call;
use crate::work::Event;

pub(crate) use dress::dress;

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
