//! What does vLLM's server say?

mod answer;
mod metrics;
mod pages;

use std::sync::Arc;

use http::header::{ALLOW, CONNECTION, DATE, SERVER, VARY};
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};

use super::Route;
use crate::ask::{Ask, AskError, Kind};
use crate::core::Core;
use crate::effects::Effects;
use crate::reply::Reply;
use crate::serve::Call;

pub(crate) use answer::{VllmVoice, answer_id, whole};

const GETS: &[(&str, Route)] = &[
    ("/health", Route::Health),
    ("/ping", Route::Health),
    ("/version", Route::Version),
    ("/load", Route::ServerLoad),
    ("/metrics", Route::Metrics),
    ("/v1/models", Route::Models),
];

const POSTS: &[(&str, Route)] = &[
    ("/v1/chat/completions", Route::Work(Kind::Chat)),
    ("/v1/completions", Route::Work(Kind::Completions)),
    ("/v1/messages", Route::Work(Kind::Messages)),
    ("/v1/responses", Route::Work(Kind::Responses)),
    ("/v1/embeddings", Route::Work(Kind::Embeddings)),
    ("/rerank", Route::Work(Kind::Rerank)),
    ("/v1/rerank", Route::Work(Kind::Rerank)),
    ("/tokenize", Route::Tokenize),
    ("/v1/load_lora_adapter", Route::LoadAdapter),
    ("/v1/unload_lora_adapter", Route::UnloadAdapter),
];

pub(crate) fn route(method: &Method, path: &str) -> Route {
    let find = |table: &[(&str, Route)]| {
        table
            .iter()
            .find(|(known, _)| *known == path)
            .map(|(_, route)| *route)
    };
    let (get, post) = (find(GETS), find(POSTS));
    let wanted = match *method {
        Method::GET => get,
        Method::POST => post,
        _ => None,
    };
    let known = get.is_some() || post.is_some();
    wanted.unwrap_or(if known { Route::WrongMethod } else { Route::Unknown })
}

pub(crate) fn status(core: &Core, call: &Call, route: Route, effects: &Effects) -> Reply {
    match route {
        Route::Health => Reply::empty(),
        Route::Version => Reply::ok(&json!({ "version": "0.32.0" })),
        Route::ServerLoad => {
            let load = core.scheduler.load();
            Reply::ok(&json!({ "server_load": load.running + load.waiting() }))
        }
        Route::Metrics => metrics::page(core, effects),
        Route::Models => Reply::ok(&pages::models(core, effects.models.as_deref())),
        Route::Tokenize => pages::tokenize(core, &call.body),
        Route::LoadAdapter if core.config.max_loras > 0 => pages::load_adapter(core, &call.body),
        Route::UnloadAdapter if core.config.max_loras > 0 => pages::unload_adapter(core, &call.body),
        Route::WrongMethod => {
            let allowed = if POSTS.iter().any(|(path, _)| *path == call.path()) {
                "POST"
            } else {
                "GET"
            };
            Reply::json(
                StatusCode::METHOD_NOT_ALLOWED,
                &json!({ "detail": "Method Not Allowed" }),
            )
            .header(ALLOW, HeaderValue::from_static(allowed))
        }
        _ => Reply::json(StatusCode::NOT_FOUND, &json!({ "detail": "Not Found" })),
    }
}

/// The word that an error's status goes by.
fn error_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        404 => "NotFoundError",
        503 => "Service Unavailable",
        code if code < 500 => "BadRequestError",
        _ => "InternalServerError",
    }
}

pub(crate) fn error_value(status: StatusCode, param: Option<&str>, text: &str) -> Value {
    let kind = error_type(status);
    json!({ "error": { "message": text, "type": kind, "param": param, "code": status.as_u16() } })
}

pub(crate) fn error(status: StatusCode, param: Option<&str>, text: &str) -> Reply {
    Reply::json(status, &error_value(status, param, text))
}

pub(crate) fn unauthorized() -> Reply {
    Reply::json(StatusCode::UNAUTHORIZED, &json!({ "error": "Unauthorized" }))
}

/// What does not pass vLLM's check of its fields has a type of its own.
fn invalid(param: Option<String>, text: &str) -> Reply {
    let mut value = error_value(
        StatusCode::BAD_REQUEST,
        None,
        &format!("1 validation error:\n  {text}"),
    );
    value["error"]["type"] = json!("Bad Request");
    value["error"]["param"] = json!(param);
    Reply::json(StatusCode::BAD_REQUEST, &value)
}

pub(crate) fn bad_body(fault: &AskError) -> Reply {
    let param = match fault {
        AskError::Json(_) => "body".to_owned(),
        AskError::Missing(field) | AskError::Wrong(field, _) => format!("body.{field}"),
    };
    invalid(Some(param), &fault.to_string())
}

pub(crate) fn check_media_type(call: &Call) -> Result<(), Box<Reply>> {
    let media_type = call
        .parts
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let essence = media_type
        .and_then(|value| value.split(';').next())
        .unwrap_or_default()
        .trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Box::new(invalid(
        None,
        "Unsupported Media Type: only 'application/json' is taken",
    )))
}

pub(crate) fn resolve_model(core: &Core, ask: &Ask) -> Result<(String, Option<Arc<str>>), Box<Reply>> {
    let base = &core.config.model;
    match &ask.model {
        None => Ok((base.clone(), None)),
        Some(name) if name == base => Ok((base.clone(), None)),
        Some(name)
            if core.config.max_loras > 0 && core.adapters().iter().any(|known| known.name == *name) =>
        {
            Ok((name.clone(), Some(Arc::from(name.as_str()))))
        }
        Some(name) => {
            let text = format!("The model `{name}` does not exist. Valid aliases: {base}.");
            Err(Box::new(error(StatusCode::NOT_FOUND, Some("model"), &text)))
        }
    }
}

pub(crate) fn check_length(ask: &Ask, longest: usize, most: usize) -> Result<(), Box<Reply>> {
    let (param, text) = match ask.max_tokens {
        _ if longest >= most => (
            "input_tokens",
            format!("{longest} input tokens do not fit into a context of {most} tokens."),
        ),
        Some(limit) if limit > most => (
            "max_tokens",
            format!("max_tokens={limit} cannot be greater than max_model_len={most}."),
        ),
        _ => return Ok(()),
    };
    Err(Box::new(error(StatusCode::BAD_REQUEST, Some(param), &text)))
}

pub(crate) fn headers_before(core: &Core) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = vec![(SERVER, HeaderValue::from_static("uvicorn"))];
    if let Ok(date) = HeaderValue::try_from(core.clock.http_date()) {
        headers.insert(0, (DATE, date));
    }
    headers
}

/// The header that says what becomes of the connection, where one is needed; else the last of vLLM's own.
pub(crate) fn keep_alive(last: bool) -> (HeaderName, HeaderValue) {
    if last {
        (CONNECTION, HeaderValue::from_static("close"))
    } else {
        (VARY, HeaderValue::from_static("Origin"))
    }
}
