//! What is in the request?
//!
//! The body is read to its end before a place is looked for, so that a slow upload holds no slot. It is scanned as it
//! comes, or once it is whole where it is compressed, and kept as it came.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::time::Instant;

use super::body::Body;
#[cfg(feature = "decompress")]
use super::decode::{self, Coding, Unread};
use super::held::{Budget, Held};
use super::options::RouterOptions;
use super::pace::{GIVING_WAY, Gone, Late, Pace};
use super::refusal::Refusal;
use crate::clock::after;
use crate::request::{BodyKind, ScanError, ScanErrorKind, Scanned, Scanner};

/// Pieces smaller than this are put together: each would hold a read buffer of several KiB alive.
const SMALL: usize = 16 * 1024;

/// What was read.
#[derive(Debug)]
pub(super) struct Intake {
    pub(super) held: Held,
    pub(super) scanned: Option<Scanned>,
}

/// Whether the body is looked at, and whether it has to be what it should be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// It has to be a JSON object.
    Must,
    /// It has to be a form.
    Form,
    /// If it is one, good.
    May,
    Not,
}

/// Reads the body of a request, which began to come at that time.
pub(super) async fn read(
    headers: &HeaderMap,
    kind: BodyKind,
    (body, began): (Body, Instant),
    options: &RouterOptions,
    budget: Arc<Budget>,
) -> Result<Intake, Refusal> {
    let (look, coding) = look(headers, kind)?;
    let scanner = scanner(headers, (look, coding.is_some()), options)?;
    if body.size_hint().lower() > options.max_body {
        return Err(too_large(options.max_body));
    }
    let mut scan = Scan { look, scanner };
    // Before what holds its bytes, so that it is dropped after that.
    let mut upload = Upload {
        gone: None,
        pace: Pace::new(options.timeouts.body_idle, began),
        body,
        budget: budget.clone(),
        options,
    };
    let mut held = Held::new(budget);
    let mut chunks = Vec::new();
    let mut small = BytesMut::new();
    while let Some(chunk) = upload.next(held.bytes()).await? {
        upload.make_room(chunk.len() as u64, &mut held).await?;
        scan.feed(&chunk)?;
        keep(&mut chunks, &mut small, chunk);
    }
    if chunks.is_empty() {
        held.fill_one(small.freeze());
    } else {
        chunks.extend((!small.is_empty()).then(|| small.freeze()));
        held.fill(chunks);
    }
    if let Some(coding) = coding {
        // Hardly any body is, so the others hold no room for it.
        let scanned = Box::pin(decoded(coding, &held, look, options)).await?;
        return Ok(Intake { held, scanned });
    }
    let scanned = scan.finish()?;
    Ok(Intake { held, scanned })
}

/// A body is looked at as it comes in; no more once it is seen to be none that is understood.
struct Scan {
    look: Look,
    scanner: Option<Scanner>,
}

impl Scan {
    fn feed(&mut self, chunk: &[u8]) -> Result<(), Refusal> {
        if let Some(scanner) = &mut self.scanner
            && let Err(error) = scanner.feed(chunk)
        {
            if must_refuse(self.look, &error) {
                return Err(malformed(&error).closing());
            }
            self.scanner = None;
        }
        Ok(())
    }

    fn finish(self) -> Result<Option<Scanned>, Refusal> {
        match self.scanner.map(Scanner::finish).transpose() {
            Ok(scanned) => Ok(scanned),
            Err(error) if must_refuse(self.look, &error) => Err(malformed(&error)),
            Err(_) => Ok(None),
        }
    }
}

/// What a compressed body says. One that is not compressed as it says is refused wherever it goes: an engine might read it
/// otherwise.
#[cfg(feature = "decompress")]
async fn decoded(
    coding: Coding,
    held: &Held,
    look: Look,
    options: &RouterOptions,
) -> Result<Option<Scanned>, Refusal> {
    match decode::scan(coding, &held.pieces(), options.max_body, options.scan).await {
        Ok(scanned) => Ok(Some(scanned)),
        Err(Unread::TooLarge(most)) => {
            let message =
                format!("the body becomes more than {most} bytes once it is decoded: send it uncompressed");
            Err(Refusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "body_too_large",
                message,
            ))
        }
        Err(Unread::Broken(error)) => {
            let message = format!("the body is not compressed as its Content-Encoding says: {error}");
            Err(Refusal::bad_request("malformed_body", message))
        }
        Err(Unread::Malformed(error)) if must_refuse(look, &error) => Err(malformed(&error)),
        Err(Unread::Malformed(_)) => Ok(None),
    }
}

/// No coding is known.
#[cfg(not(feature = "decompress"))]
#[derive(Clone, Copy)]
enum Coding {}

#[cfg(not(feature = "decompress"))]
impl Coding {
    fn of(_: &str) -> Option<Self> {
        None
    }
}

#[cfg(not(feature = "decompress"))]
async fn decoded(coding: Coding, _: &Held, _: Look, _: &RouterOptions) -> Result<Option<Scanned>, Refusal> {
    match coding {}
}

/// A body that comes in.
struct Upload<'o> {
    body: Body,
    pace: Pace,
    /// Whoever wants its room is told with this that it is free.
    gone: Option<Gone>,
    budget: Arc<Budget>,
    options: &'o RouterOptions,
}

impl Upload<'_> {
    /// The next piece, where so many bytes are held.
    async fn next(&mut self, held: u64) -> Result<Option<Bytes>, Refusal> {
        match self.pace.wait(self.body.frame(), held, &self.budget.behind).await {
            Ok(None) => Ok(None),
            Ok(Some(Ok(frame))) => {
                let bytes = frame.into_data().map_err(|_| trailers())?;
                // After the last of them nothing is waited for.
                if !self.body.is_end_stream() {
                    self.pace.came(bytes.len(), Instant::now());
                }
                Ok(Some(bytes))
            }
            Ok(Some(Err(error))) => {
                let message = format!("the body could not be read: {error}");
                Err(Refusal::bad_request("broken_body", message).closing())
            }
            Err(Late::TooSlow) => {
                let message = "the body came too slowly";
                Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "slow_body", message).closing())
            }
            Err(Late::GivesWay(gone)) => {
                self.gone = Some(gone);
                let message = "the body came too slowly to be kept while others want its room";
                Err(self.no_memory(message))
            }
        }
    }

    /// Adds so many bytes to what is held, if need be in the place of bodies that are further behind.
    async fn make_room(&mut self, bytes: u64, held: &mut Held) -> Result<(), Refusal> {
        if held.bytes() + bytes > self.options.max_body {
            return Err(too_large(self.options.max_body));
        }
        let most = self.options.max_buffered;
        let mut until = None;
        while !held.charge(bytes, most) {
            let until = *until.get_or_insert_with(|| after(Instant::now(), GIVING_WAY));
            let missing = self.budget.held().saturating_add(bytes).saturating_sub(most);
            if !self.budget.behind.make_room(&self.pace, missing, until).await {
                let message =
                    "the bodies of the requests that are being handled take all the memory meant for them";
                return Err(self.no_memory(message));
            }
        }
        Ok(())
    }

    fn no_memory(&self, message: &'static str) -> Refusal {
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, "buffers_full", message)
            .retry_after(self.options.retry_after)
            .closing()
    }
}

/// hyper takes all up to the next empty line for trailers, also what is none: another reader could find a request there. They
/// would go no further, so nothing that works is lost.
fn trailers() -> Refusal {
    let message = "fields after the body are not passed on: send them before it";
    Refusal::bad_request("trailers", message).closing()
}

fn keep(chunks: &mut Vec<Bytes>, small: &mut BytesMut, chunk: Bytes) {
    if chunk.len() < SMALL {
        small.extend_from_slice(&chunk);
        if small.len() < SMALL {
            return;
        }
    }
    if !small.is_empty() {
        chunks.push(small.split().freeze());
    }
    if chunk.len() >= SMALL {
        chunks.push(chunk);
    }
}

/// The codings of a body, as one: more than one over the other are not undone here.
fn encoding(headers: &HeaderMap) -> Encoding {
    let mut found = Encoding::None;
    for value in headers.get_all(CONTENT_ENCODING) {
        let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
        for name in text.split(',').map(str::trim) {
            found = match (found, name) {
                (found, "" | "identity") => found,
                (Encoding::None, name) => Coding::of(name).map_or(Encoding::Unknown, Encoding::Known),
                _ => Encoding::Unknown,
            };
        }
    }
    found
}

/// How a body is encoded.
enum Encoding {
    None,
    Known(Coding),
    Unknown,
}

fn look(headers: &HeaderMap, kind: BodyKind) -> Result<(Look, Option<Coding>), Refusal> {
    let coding = match encoding(headers) {
        Encoding::None => None,
        Encoding::Known(coding) => Some(coding),
        Encoding::Unknown if matches!(kind, BodyKind::Json | BodyKind::Form) => {
            let message =
                "the body is compressed in a way that is not known here: send it without Content-Encoding";
            return Err(
                Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_encoding", message).closing(),
            );
        }
        Encoding::Unknown => return Ok((Look::Not, None)),
    };
    match look_plain(headers, kind)? {
        Look::Not => Ok((Look::Not, None)),
        Look::Form if coding.is_some() => {
            let message = "a form that is compressed cannot be read here: send it without Content-Encoding";
            Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_encoding", message).closing())
        }
        look => Ok((look, coding)),
    }
}

/// What looks at a body while it comes in, unless it has to be decoded first.
fn scanner(
    headers: &HeaderMap,
    (look, encoded): (Look, bool),
    options: &RouterOptions,
) -> Result<Option<Scanner>, Refusal> {
    match look {
        Look::Form => {
            let mut types = headers.get_all(CONTENT_TYPE).iter();
            let only = types.next().filter(|_| types.next().is_none());
            let text = only.and_then(|value| value.to_str().ok()).unwrap_or_default();
            let scanner = Scanner::of_form(text, options.scan);
            let malformed = |kind: ScanErrorKind| Refusal::bad_request("malformed_body", kind.to_string());
            scanner.map(Some).map_err(|kind| malformed(kind).closing())
        }
        Look::Must | Look::May if !encoded => Ok(Some(Scanner::new(options.scan))),
        Look::Must | Look::May | Look::Not => Ok(None),
    }
}

/// As if the body were not encoded.
fn look_plain(headers: &HeaderMap, kind: BodyKind) -> Result<Look, Refusal> {
    let content_type = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let content_type = content_type.split(|byte| *byte == b';').next();
    let content_type = content_type.unwrap_or_default().trim_ascii();
    let is = |name: &str| content_type.eq_ignore_ascii_case(name.as_bytes());
    let suffix = content_type.iter().rposition(|byte| *byte == b'+');
    let json =
        is("application/json") || suffix.is_some_and(|at| content_type[at..].eq_ignore_ascii_case(b"+json"));
    match kind {
        BodyKind::Opaque => Ok(Look::Not),
        BodyKind::Form if is("multipart/form-data") => Ok(Look::Form),
        BodyKind::Form if json => Ok(Look::Must),
        BodyKind::Unknown => Ok(if json { Look::Must } else { Look::May }),
        // Without a type, or with what curl says when nothing else is said, it may well be JSON.
        BodyKind::Json if json || is("") || is("text/plain") || is("application/x-www-form-urlencoded") => {
            Ok(Look::Must)
        }
        BodyKind::Json | BodyKind::Form => {
            let content_type = String::from_utf8_lossy(content_type).to_ascii_lowercase();
            let form = kind == BodyKind::Form;
            let wanted = if form {
                "multipart/form-data"
            } else {
                "application/json"
            };
            let message = format!("{content_type:?} cannot be routed: send {wanted}");
            Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type", message).closing())
        }
    }
}

/// Whether this error is refused even where the body may be anything: two readings of who is asked for.
fn must_refuse(look: Look, error: &ScanError) -> bool {
    matches!(look, Look::Must | Look::Form) || error.is_ambiguous()
}

fn malformed(error: &ScanError) -> Refusal {
    Refusal::bad_request("malformed_body", error.to_string())
}

fn too_large(limit: u64) -> Refusal {
    let message = format!("the body is larger than {limit} bytes, the limit here");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message).closing()
}

#[cfg(test)]
mod tests;
