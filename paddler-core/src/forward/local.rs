//! What is answered here?

use std::collections::BTreeMap;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::body::Body;
use super::refusal::Refusal;
use super::rights::Client;
use crate::request::Dialect;
use crate::status::{ModelRow, Snapshot};

/// The answer to a path of class local, in its one form.
pub(super) fn answer(
    path: &str,
    snapshot: &Snapshot,
    stopping: bool,
    client: Option<&Client>,
) -> Result<Response<Body>, Refusal> {
    match path {
        "/health" | "/v1/health" => health(snapshot, stopping),
        _ => Ok(json_response(&models(snapshot, client))),
    }
}

/// The union of what the upstreams list, by name: what is listed can be asked for, by this client.
fn models(snapshot: &Snapshot, client: Option<&Client>) -> Value {
    let his = |name: &str| client.is_none_or(|client| client.may_use(Some(name), snapshot));
    let rows: BTreeMap<&str, &ModelRow> = snapshot.models().filter(|(name, _)| his(name)).collect();
    let entry = |(name, row): (&str, &ModelRow)| {
        let mut entry = json!({"id": name, "object": "model", "created": 0, "owned_by": "paddler"});
        if let Some(parent) = row.parent() {
            entry["parent"] = parent.into();
        }
        entry
    };
    json!({"object": "list", "data": rows.into_iter().map(entry).collect::<Vec<_>>()})
}

/// Whether anyone can serve.
fn health(snapshot: &Snapshot, stopping: bool) -> Result<Response<Body>, Refusal> {
    let unavailable =
        |reason, message: &str| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, reason, message.to_owned());
    if stopping {
        Err(unavailable("stopping", "the router is shutting down"))
    } else if snapshot.is_empty() {
        Err(unavailable("no_upstream", "no upstream is known"))
    } else if snapshot.all_draining() {
        Err(unavailable(
            "draining",
            "every upstream is drained: let one back in",
        ))
    } else if !snapshot.anyone_able() {
        Err(unavailable("unhealthy", "no upstream is able to serve"))
    } else {
        Ok(json_response(&json!({"status": "ok"})))
    }
}

/// llama.cpp's form, since its clients are the ones that read the body of a failed health check.
pub(super) const HEALTH_DIALECT: Dialect = Dialect::Llamacpp;

fn json_response(value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
