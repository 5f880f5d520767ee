//! What does llama.cpp's server say?

mod answer;
mod metrics;
mod pages;

use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CONNECTION, SERVER};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

use super::Route;
use crate::ask::Kind;
use crate::core::Core;
use crate::effects::Effects;
use crate::reply::Reply;
use crate::serve::Call;

pub(crate) use answer::{LlamacppVoice, answer_id, whole};

pub(crate) fn route(method: &Method, path: &str) -> Route {
    // A path that exists for another method only is not found, as any other.
    match (method.as_str(), path) {
        ("GET", "/health" | "/v1/health") => Route::Health,
        ("GET", "/slots") => Route::Slots,
        ("GET", "/props") => Route::Props,
        ("GET", "/models" | "/v1/models") => Route::Models,
        ("GET", "/metrics") => Route::Metrics,
        ("GET", "/lora-adapters") => Route::Adapters,
        ("POST", "/lora-adapters") => Route::ScaleAdapters,
        ("POST", "/tokenize") => Route::Tokenize,
        ("POST", "/chat/completions" | "/v1/chat/completions") => Route::Work(Kind::Chat),
        ("POST", "/v1/completions") => Route::Work(Kind::Completions),
        ("POST", "/completion" | "/completions") => Route::Work(Kind::Native),
        ("POST", "/v1/messages") => Route::Work(Kind::Messages),
        ("POST", "/responses" | "/v1/responses") => Route::Work(Kind::Responses),
        ("POST", "/v1/embeddings") => Route::Work(Kind::Embeddings),
        ("POST", "/embedding" | "/embeddings") => Route::Work(Kind::NativeEmbeddings),
        ("POST", "/rerank" | "/reranking" | "/v1/rerank" | "/v1/reranking") => Route::Work(Kind::Rerank),
        _ => Route::Unknown,
    }
}

pub(crate) fn status(core: &Core, call: &Call, route: Route, effects: &Effects) -> Reply {
    match route {
        Route::Health => Reply::ok(&json!({ "status": "ok" })),
        Route::Slots if effects.slots_off => error(
            StatusCode::NOT_IMPLEMENTED,
            "This server was started without its slots endpoint",
        ),
        Route::Slots => pages::slots(core, call.parts.uri.query().unwrap_or_default()),
        Route::Props => Reply::ok(&pages::props(core)),
        Route::Models => Reply::ok(&pages::models(core, effects.models.as_deref())),
        Route::Metrics => metrics::page(core, effects),
        Route::Adapters => Reply::ok(&pages::adapters(core)),
        Route::ScaleAdapters => pages::scale_adapters(core, &call.body),
        Route::Tokenize => pages::tokenize(core, &call.body),
        _ => error(StatusCode::NOT_FOUND, "File Not Found"),
    }
}

/// The word that an error's status goes by.
fn error_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        501 => "not_supported_error",
        503 => "unavailable_error",
        code if code < 500 => "invalid_request_error",
        _ => "server_error",
    }
}

pub(crate) fn error_value(status: StatusCode, text: &str) -> Value {
    json!({ "error": { "code": status.as_u16(), "message": text, "type": error_type(status) } })
}

pub(crate) fn error(status: StatusCode, text: &str) -> Reply {
    Reply::json(status, &error_value(status, text))
}

pub(crate) fn too_long(tokens: usize, context: usize) -> Reply {
    let text = format!("the request's {tokens} tokens do not fit into the context of {context} tokens");
    let mut value = error_value(StatusCode::BAD_REQUEST, &text);
    value["error"]["type"] = json!("exceed_context_size_error");
    value["error"]["n_prompt_tokens"] = json!(tokens);
    value["error"]["n_ctx"] = json!(context);
    Reply::json(StatusCode::BAD_REQUEST, &value)
}

pub(crate) fn headers_before(is_stream: bool) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = vec![
        (SERVER, HeaderValue::from_static("llama.cpp")),
        (ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("")),
    ];
    if is_stream {
        headers.push((
            HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ));
    }
    headers
}

/// The header that says what becomes of the connection.
pub(crate) fn keep_alive(core: &Core, last: bool) -> (HeaderName, HeaderValue) {
    if last {
        return (CONNECTION, HeaderValue::from_static("close"));
    }
    let text = format!(
        "timeout={}, max={}",
        core.config.keep_alive.as_secs(),
        core.config.keep_alive_requests
    );
    let value = HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("timeout=5"));
    (HeaderName::from_static("keep-alive"), value)
}
