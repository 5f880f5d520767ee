//! How does one request become one answer?

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;

use crate::core::Core;
use crate::effects::{Effects, Looks};
use crate::face::{self, Route};
use crate::journal::{End, Note};
use crate::reply::Reply;
use crate::wire::body::{AtLimit, Cut, ShapedBody};
use crate::wire::line::Turn;
use crate::{control, inference};

/// A request that has arrived in full.
pub(crate) struct Call {
    pub(crate) parts: http::request::Parts,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn path(&self) -> &str {
        self.parts.uri.path()
    }
}

/// Answers a request. An error means that the connection ends without a byte of an answer.
pub(crate) async fn answer(
    core: Arc<Core>,
    turn: Turn,
    request: Request<Incoming>,
) -> Result<Response<ShapedBody>, Cut> {
    let (parts, body) = request.into_parts();
    let mut looks = Looks {
        close: says_close(&parts.headers),
        checksum: core.config.checksums || parts.headers.contains_key("x-sim-checksum"),
        ..Looks::default()
    };
    let body = match Limited::new(body, core.config.max_body_bytes).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            looks.close = true;
            let reply = refusal(&core, StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
            return Ok(face::dress(&core, reply, looks, None, turn));
        }
        Err(_) => return Err(Cut),
    };
    let call = Call { parts, body };
    if call.path().starts_with("/sim/") {
        let reply = control::answer(&core, &call.parts.method, call.path(), &call.body);
        looks.checksum = false;
        return Ok(face::dress(&core, reply, looks, None, turn));
    }
    core.ledger.record(&call.parts, &call.body);
    let route = face::route(core.config.face, &call.parts.method, call.path());
    let mut effects = match Effects::gather(&core, &call, &route, looks) {
        Ok(effects) => effects,
        Err(error) => {
            let reply = refusal(&core, StatusCode::BAD_REQUEST, &error.to_string());
            return Ok(face::dress(&core, reply, Looks::default(), None, turn));
        }
    };
    let note = note(&core, &call, &route, &effects);
    if let Some(end) = effects.end.take() {
        return Err(cut(end, &turn, note));
    }
    if !effects.delay.is_zero() {
        tokio::time::sleep(effects.delay).await;
    }
    let looks = std::mem::take(&mut effects.looks);
    let reply = match effects.instead.take() {
        Some(reply) => reply,
        None => respond(&core, &call, route, effects).await,
    };
    Ok(face::dress(&core, reply, looks, note, turn))
}

fn refusal(core: &Core, status: StatusCode, message: &str) -> Reply {
    face::error(core.config.face, status, message)
}

/// The connection ends without an answer.
fn cut(end: AtLimit, turn: &Turn, note: Option<Note>) -> Cut {
    if end == AtLimit::Reset {
        turn.line().reset_at_end();
    }
    if let Some(mut note) = note {
        note.ended(End::Cut);
    }
    Cut
}

/// Notes are taken of what makes the model work, and of whatever else has an id: polls would fill the journal.
fn note(core: &Core, call: &Call, route: &Route, effects: &Effects) -> Option<Note> {
    let id = call
        .parts
        .headers
        .get("x-request-id")
        .and_then(|id| id.to_str().ok());
    if id.is_none() && !matches!(route, Route::Work(_)) {
        return None;
    }
    let faults = effects.names.clone();
    Some(core.journal.begin(id.unwrap_or_default(), call.path(), faults))
}

fn says_close(headers: &HeaderMap) -> bool {
    let values = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|option| option.trim().eq_ignore_ascii_case("close"))
}

async fn respond(core: &Arc<Core>, call: &Call, route: Route, effects: Effects) -> Reply {
    if !face::is_open(core.config.face, &route) && !core.is_authorized(&call.parts.headers) {
        return face::unauthorized(core.config.face);
    }
    match route {
        Route::Work(kind) => inference::answer(core, call, kind, effects.manner).await,
        route => {
            if effects.manner.stall {
                std::future::pending::<()>().await;
            }
            face::status(core, call, &route, &effects)
        }
    }
}
