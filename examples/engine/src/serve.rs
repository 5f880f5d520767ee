//! How does one request become one answer?

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;

use crate::core::Core;
use crate::face::{self, Route};
use crate::fault::{Fault, FaultParseError};
use crate::reply::Reply;
use crate::wire::body::{AtLimit, Cut, Shape, ShapedBody};
use crate::wire::line::Turn;
use crate::work::Manner;
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

/// What faults do to a request.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) manner: Manner,
    pub(crate) slots_off: bool,
    pub(crate) renames: Option<BTreeMap<String, Option<String>>>,
    shape: Shape,
    delay: Duration,
    end: Option<AtLimit>,
    instead: Option<Reply>,
}

/// Answers a request. An error means that the connection ends without a byte of an answer.
pub(crate) async fn answer(
    core: Arc<Core>,
    turn: Turn,
    request: Request<Incoming>,
) -> Result<Response<ShapedBody>, Cut> {
    let (parts, body) = request.into_parts();
    let close = says_close(&parts.headers);
    let body = match Limited::new(body, core.config.max_body_bytes).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            let reply = face::error(
                core.config.face,
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body is too large",
            );
            return Ok(face::dress(&core, reply, Shape::default(), turn, true));
        }
        Err(_) => return Err(Cut),
    };
    let call = Call { parts, body };
    if call.path().starts_with("/sim/") {
        let reply = control::answer(&core, &call.parts.method, call.path(), &call.body);
        return Ok(face::dress(&core, reply, Shape::default(), turn, close));
    }
    core.ledger.record(&call.parts, &call.body);
    let route = face::route(core.config.face, &call.parts.method, call.path());
    let mut effects = match effects(&core, &call, &route) {
        Ok(effects) => effects,
        Err(error) => {
            let reply = face::error(core.config.face, StatusCode::BAD_REQUEST, &error.to_string());
            return Ok(face::dress(&core, reply, Shape::default(), turn, close));
        }
    };
    if effects.end == Some(AtLimit::Reset) {
        turn.line().reset_at_end();
    }
    if effects.end.is_some() {
        return Err(Cut);
    }
    if !effects.delay.is_zero() {
        tokio::time::sleep(effects.delay).await;
    }
    let shape = std::mem::take(&mut effects.shape);
    let reply = match effects.instead.take() {
        Some(reply) => reply,
        None => respond(&core, &call, route, effects).await,
    };
    Ok(face::dress(&core, reply, shape, turn, close))
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

/// Gathers what the rules in force and the request's own header do to it.
fn effects(core: &Core, call: &Call, route: &Route) -> Result<Effects, FaultParseError> {
    let mut faults = core.faults.take(matches!(route, Route::Work(_)), call.path());
    for value in call.parts.headers.get_all("x-sim-fault") {
        for text in String::from_utf8_lossy(value.as_bytes()).split(',') {
            faults.push(text.trim().parse()?);
        }
    }
    let mut effects = Effects::default();
    for fault in faults {
        effects.add(core, fault);
    }
    Ok(effects)
}

impl Effects {
    fn add(&mut self, core: &Core, fault: Fault) {
        let face = core.config.face;
        match fault {
            // The listener sees to this one; a single request has already got past it.
            Fault::Refuse => {}
            Fault::Reset => self.end = Some(AtLimit::Reset),
            Fault::Close => self.end = Some(AtLimit::Eof),
            Fault::ResetAfter { bytes } => self.shape.limit = Some((bytes, AtLimit::Reset)),
            Fault::EofAfter { bytes } => self.shape.limit = Some((bytes, AtLimit::Eof)),
            Fault::StallAfter { bytes } => self.shape.limit = Some((bytes, AtLimit::Stall)),
            Fault::ErrorEventAfter { bytes } => {
                self.shape.limit = Some((bytes, AtLimit::EndWith(face::error_event(face))));
            }
            Fault::Stall => self.manner.stall = true,
            Fault::Drip { every } => self.shape.drip = Some(every),
            Fault::Loading => self.instead = Some(face::loading(face)),
            Fault::Status { code, retry_after } => self.instead = Some(failure(core, code, retry_after)),
            Fault::Html => self.instead = Some(html()),
            Fault::WrongLength { by } => self.shape.length_off_by = by,
            Fault::HangOnDisconnect => self.manner.deaf = true,
            Fault::MetricNames { names } => self.renames.get_or_insert_default().extend(names),
            Fault::SlotsOff => self.slots_off = true,
            Fault::SlowStatus { delay } => self.delay += delay,
        }
    }
}

fn failure(core: &Core, code: u16, retry_after: Option<u64>) -> Reply {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let text = status.canonical_reason().unwrap_or("failed on command");
    let reply = face::error(core.config.face, status, text);
    match retry_after {
        Some(seconds) => reply.header(header::RETRY_AFTER, HeaderValue::from(seconds)),
        None => reply,
    }
}

fn html() -> Reply {
    const PAGE: &str =
        "<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Please sign in.</body></html>\n";
    Reply::new(StatusCode::OK, "text/html; charset=utf-8", PAGE)
}
