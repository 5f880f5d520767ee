//! What becomes of one attempt, and may there be another?
//!
//! | what happened | again? |
//! |---|---|
//! | the request was not sent | always, elsewhere |
//! | it went into a connection that had been used before, and no byte came back | once, if it may be replayed |
//! | the upstream refused the work before it began (503, 429) | elsewhere, or there later |
//! | it was sent and no byte came back; the first byte took too long; any other answer | no |
//!
//! After the first byte of the answer: never.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, RETRY_AFTER, TRAILER};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Limited};
use tokio::time::{Instant, timeout};

use super::body::{Body, BoxError};
use super::headers::{ABOUT_THE_ANSWER, settle_length, strip_hop_by_hop};
use super::intake::Held;
use super::timeouts::{Allowed, Stages};
use super::upgrade;
use super::waiting::Place;
use crate::upstream::{CallError, Lease, NewConnection, Sent, UpstreamId};

/// The longest body of a refusal that is read: it is kept, in case that nobody else takes the request.
const MAX_REFUSAL: usize = 64 * 1024;

/// The longest that it is read. It is a few hundred bytes that were ready with the head.
const READ_REFUSAL: Duration = Duration::from_secs(2);

/// The request as each attempt sends it.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) held: Held,
    pub(super) allowed: Allowed,
    /// It asks for a WebSocket.
    pub(super) websocket: bool,
}

impl Outgoing {
    fn request(&self, replay: bool) -> Request<Body> {
        let mut request = Request::new(self.held.body());
        if replay {
            request.extensions_mut().insert(NewConnection);
        }
        request.method_mut().clone_from(&self.method);
        request.uri_mut().clone_from(&self.uri);
        request.headers_mut().clone_from(&self.headers);
        *request.version_mut() = Version::HTTP_11;
        if self.websocket {
            upgrade::ask(request.headers_mut());
        }
        request
    }
}

/// An attempt that got an answer to pass on.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) response: Response<Body>,
    pub(super) lease: Lease,
    pub(super) sent: Instant,
    pub(super) stages: Stages,
}

/// An attempt that did not.
#[derive(Debug)]
pub(super) enum Failed {
    /// It was not sent.
    NotSent { upstream: UpstreamId, error: String },
    /// It was lost in a connection that the upstream had closed, most likely.
    Lost { upstream: UpstreamId, error: String },
    /// The upstream refused the work before it began. Its answer is kept, unless it could not be read; it may ask to be
    /// left alone for some time.
    Refused {
        upstream: UpstreamId,
        answer: Result<Response<Bytes>, String>,
        wait: Option<Duration>,
    },
    /// It was sent, and no byte came back.
    Broken { upstream: UpstreamId, error: String },
    /// It was sent, and no byte came back in time, or not before all of it had to be over: as the word says.
    Late {
        upstream: UpstreamId,
        after: Duration,
        word: &'static str,
    },
}

impl Failed {
    /// Whether no engine has worked on it.
    pub(super) fn was_no_work(&self) -> bool {
        matches!(
            self,
            Self::NotSent { .. } | Self::Lost { .. } | Self::Refused { .. }
        )
    }
}

/// Sends the request to the place. `replay`: it may have been sent before, and is not sent again after this.
pub(super) async fn attempt(place: Place, outgoing: &Outgoing, replay: bool) -> Result<Answered, Failed> {
    let Place {
        mut lease,
        upstream,
        timeouts,
        ..
    } = place;
    let id = lease.upstream().clone();
    lease.sent();
    let sent = Instant::now();
    let stages = outgoing.allowed.at(&timeouts);
    let (after, word) = stages.head(sent);
    // Dropped by the time limit, the call ends the request at the upstream; the lease settles.
    let Ok(result) = timeout(after, upstream.call(outgoing.request(replay))).await else {
        return Err(Failed::Late {
            upstream: id,
            after,
            word,
        });
    };
    let mut response = match result {
        Ok(response) => response,
        Err(error) => return Err(failed(id, lease, &error)),
    };
    let sound = settle_length(response.headers_mut());
    let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if !sound || (switches && !(outgoing.websocket && upgrade::agrees(&response))) {
        // No such upgrade was asked for, and an answer of two lengths is two answers.
        let error = format!("its answer, {}, is none of HTTP", response.status());
        return Err(Failed::Broken { upstream: id, error });
    }
    strip_hop_by_hop(response.headers_mut(), &ABOUT_THE_ANSWER);
    // What is spoken to the client is for our server to say, not for the upstream's.
    *response.version_mut() = Version::HTTP_11;
    match response.status() {
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
            let is_head = outgoing.method == Method::HEAD;
            Err(refused(id, response, is_head, lease).await)
        }
        _ => Ok(Answered {
            response,
            lease,
            sent,
            stages,
        }),
    }
}

fn failed(upstream: UpstreamId, lease: Lease, error: &BoxError) -> Failed {
    let sent = error
        .downcast_ref::<CallError>()
        .map_or(Sent::Yes, CallError::sent);
    let error = chain(&**error);
    match sent {
        Sent::No => {
            // The engine never saw it.
            lease.complete();
            Failed::NotSent { upstream, error }
        }
        Sent::Reused => {
            lease.complete();
            Failed::Lost { upstream, error }
        }
        Sent::Yes => Failed::Broken { upstream, error },
    }
}

/// A refusal is short, and read to its end, so that the request can go elsewhere or the answer be passed on.
async fn refused(upstream: UpstreamId, response: Response<Body>, is_head: bool, lease: Lease) -> Failed {
    let (mut head, body) = response.into_parts();
    if !is_head {
        // What is kept is sent with its own length, and so without trailers.
        head.headers.remove(CONTENT_LENGTH);
    }
    head.headers.remove(TRAILER);
    let asked = retry_after(&head.headers);
    // An engine that loads says when it is done by taking requests; one that limits who asks it is not asked again
    // before its time.
    let limits = head.status == StatusCode::TOO_MANY_REQUESTS;
    let wait = asked.or(limits.then_some(Duration::MAX));
    let answer = match timeout(READ_REFUSAL, Limited::new(body, MAX_REFUSAL).collect()).await {
        Ok(Ok(body)) => Ok(Response::from_parts(head, body.to_bytes())),
        Ok(Err(error)) => Err(format!("it answered {} and broke off: {error}", head.status)),
        Err(_) => Err(format!("it answered {} and went silent", head.status)),
    };
    // Whatever became of its words, it does no work for this request.
    lease.complete();
    Failed::Refused {
        upstream,
        answer,
        wait,
    }
}

/// Seconds. The other form, a date, would compare two clocks: it counts as not said.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
