//! What do the faults in force do to one request?

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde_json::Value;

use crate::core::Core;
use crate::face::{self, Route};
use crate::fault::{Fault, FaultParseError};
use crate::reply::Reply;
use crate::serve::Call;
use crate::wire::body::{AtLimit, Shape};
use crate::wire::rewrite::Rewrite;
use crate::work::Manner;

/// What faults do to a request.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) manner: Manner,
    pub(crate) slots_off: bool,
    pub(crate) renames: Option<BTreeMap<String, Option<String>>>,
    pub(crate) odd_metrics: bool,
    pub(crate) models: Option<Vec<String>>,
    pub(crate) looks: Looks,
    pub(crate) delay: Duration,
    pub(crate) end: Option<AtLimit>,
    pub(crate) instead: Option<Reply>,
    /// The names of the faults.
    pub(crate) names: Vec<String>,
}

/// How an answer looks on its way out.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// The client wants the connection closed.
    pub(crate) close: bool,
    /// The client wants to know whether it has got all.
    pub(crate) checksum: bool,
    pub(crate) shape: Shape,
    pub(crate) rewrite: Rewrite,
    pub(crate) chunked: bool,
    pub(crate) double: bool,
    pub(crate) more_headers: u16,
    pub(crate) untyped: bool,
    pub(crate) label_gzip: bool,
    pub(crate) gzip: bool,
    pub(crate) padding: usize,
    pub(crate) no_done: bool,
    pub(crate) close_after: bool,
}

impl Effects {
    /// Gathers what the rules in force and the request's own header do to it.
    pub(crate) fn gather(
        core: &Core,
        call: &Call,
        route: &Route,
        looks: Looks,
    ) -> Result<Self, FaultParseError> {
        let mut faults = core.faults.take(matches!(route, Route::Work(_)), call.path());
        for value in call.parts.headers.get_all("x-sim-fault") {
            for text in String::from_utf8_lossy(value.as_bytes()).split(',') {
                faults.push(text.trim().parse()?);
            }
        }
        let mut effects = Self {
            looks,
            ..Self::default()
        };
        for fault in faults {
            effects.names.push(fault.name());
            effects.add(core, call, fault);
        }
        Ok(effects)
    }

    fn add(&mut self, core: &Core, call: &Call, fault: Fault) {
        match fault {
            // The listener sees to these; a single request has already got past it.
            Fault::Refuse | Fault::HangUp => {}
            Fault::Reset => self.end = Some(AtLimit::Reset),
            Fault::Close => self.end = Some(AtLimit::Eof),
            Fault::Stall => self.manner.stall = true,
            Fault::HangOnDisconnect => self.manner.deaf = true,
            Fault::CrashOnDisconnect => self.manner.fragile = true,
            Fault::Unicode => self.manner.speech = crate::text::Speech::Unicode,
            Fault::QuoteDone => self.manner.speech = crate::text::Speech::QuotesDone,
            Fault::MetricNames { names } => self.renames.get_or_insert_default().extend(names),
            Fault::OddMetrics => self.odd_metrics = true,
            Fault::ModelList { names } => self.models = Some(names),
            Fault::SlotsOff => self.slots_off = true,
            Fault::SlowStatus { delay } => self.delay += delay,
            fault => self.replace(core, call, fault),
        }
    }

    /// Faults that put another answer in the place of the right one.
    fn replace(&mut self, core: &Core, call: &Call, fault: Fault) {
        let face = core.config.face;
        let headers = &call.parts.headers;
        self.instead = Some(match fault {
            Fault::Loading => face::loading(face),
            Fault::Status { code, retry_after } => failure(core, code, retry_after),
            Fault::Html => page(200),
            Fault::HtmlError { code } => page(code),
            Fault::TextError { code } => Reply::new(status(code), "text/plain", "upstream connect error\n"),
            Fault::BodyNull => Reply::ok(&Value::Null),
            Fault::RefuseChunked if headers.contains_key(header::TRANSFER_ENCODING) => {
                failure(core, 411, None)
            }
            Fault::VirtualHost if !names_host(core, call) => failure(core, 404, None),
            Fault::RefuseChunked | Fault::VirtualHost => return,
            fault => return self.looks.add(core, fault),
        });
    }
}

impl Looks {
    /// Faults of how the right answer goes out.
    fn add(&mut self, core: &Core, fault: Fault) {
        match fault {
            Fault::ResetAfter { bytes } => self.shape.limit = Some((bytes, AtLimit::Reset)),
            Fault::EofAfter { bytes } => self.shape.limit = Some((bytes, AtLimit::Eof)),
            Fault::StallAfter { bytes } => self.shape.limit = Some((bytes, AtLimit::Stall)),
            Fault::ErrorEventAfter { bytes } => {
                let event = face::error_event(core.config.face);
                self.shape.limit = Some((bytes, AtLimit::EndWith(event)));
            }
            Fault::Drip { every } => self.shape.drip = Some(every),
            Fault::Pieces { bytes } => self.shape.piece = Some(bytes),
            Fault::WrongLength { by } => self.shape.length_off_by = by,
            Fault::SlowHead { every } => self.rewrite.drip_head = Some(every),
            Fault::Raw { text } => self.rewrite.instead = Some(Bytes::from(text)),
            Fault::Informational { code } => {
                let head = format!("HTTP/1.1 {code} Interim\r\nx-sim-interim: {code}\r\n\r\n");
                self.rewrite.prefix = Bytes::from(head);
            }
            Fault::Trailers => {
                self.chunked = true;
                self.rewrite.trailers = Bytes::from_static(b"x-sim-trailer: last\r\n");
            }
            Fault::Chunked => self.chunked = true,
            Fault::DuplicateHeaders => self.double = true,
            Fault::ManyHeaders { count } => self.more_headers = count,
            Fault::NoContentType => self.untyped = true,
            Fault::LabelGzip => self.label_gzip = true,
            Fault::Gzip => self.gzip = true,
            Fault::Padding { bytes } => self.padding = bytes,
            Fault::NoDone => self.no_done = true,
            Fault::CloseAfterAnswer => self.close_after = true,
            // All others were taken before they came here.
            _ => {}
        }
    }
}

/// Whether a request is addressed to this very server.
fn names_host(core: &Core, call: &Call) -> bool {
    let host = call.parts.headers.get(header::HOST);
    host.is_some_and(|host| host.as_bytes() == core.door.address().to_string().as_bytes())
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn failure(core: &Core, code: u16, retry_after: Option<u64>) -> Reply {
    let status = status(code);
    let text = status.canonical_reason().unwrap_or("failed on command");
    let reply = face::error(core.config.face, status, text);
    match retry_after {
        Some(seconds) => reply.header(header::RETRY_AFTER, HeaderValue::from(seconds)),
        None => reply,
    }
}

fn page(code: u16) -> Reply {
    const PAGE: &str =
        "<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Please sign in.</body></html>\n";
    Reply::new(status(code), "text/html; charset=utf-8", PAGE)
}
