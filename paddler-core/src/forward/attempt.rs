//! What becomes of one attempt, and may there be another?
//!
//! | what happened | again? |
//! |---|---|
//! | the request was not sent | always, elsewhere |
//! | it went into a connection that had been used before, and no byte came back | once, if it may be replayed |
//! | the upstream refused the work (503) before it began | elsewhere |
//! | it was sent and no byte came back; the first byte took too long; any other answer | no |
//!
//! After the first byte of the answer: never.

use std::error::Error;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Limited};
use tokio::time::{Instant, timeout};

use super::body::{Body, BoxError};
use super::headers::for_client;
use super::intake::Held;
use super::waiting::Place;
use crate::upstream::{CallError, Lease, Sent, UpstreamId};

/// The longest body of a 503 that is read.
const MAX_REFUSAL: usize = 64 * 1024;

/// The request as each attempt sends it.
#[derive(Debug)]
pub(super) struct Outgoing {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    pub(super) held: Held,
}

impl Outgoing {
    pub(super) fn new(parts: &Parts, uri: Uri, headers: HeaderMap, held: Held) -> Self {
        Self { method: parts.method.clone(), uri, headers, held }
    }

    fn request(&self) -> Request<Body> {
        let mut request = Request::new(self.held.body());
        request.method_mut().clone_from(&self.method);
        request.uri_mut().clone_from(&self.uri);
        request.headers_mut().clone_from(&self.headers);
        *request.version_mut() = Version::HTTP_11;
        request
    }
}

/// An attempt that got an answer to pass on.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) response: Response<Body>,
    pub(super) lease: Lease,
    pub(super) sent: Instant,
}

/// An attempt that did not.
#[derive(Debug)]
pub(super) enum Failed {
    /// It was not sent.
    NotSent { upstream: UpstreamId, error: String },
    /// It was lost in a connection that the upstream had closed, most likely.
    Lost { upstream: UpstreamId, error: String },
    /// The upstream refused the work before it began.
    Refused { upstream: UpstreamId, response: Response<Bytes> },
    /// It was sent, and no byte came back.
    Broken { upstream: UpstreamId, error: String },
    /// It was sent, and no byte came back in time.
    Late { upstream: UpstreamId },
}

/// Sends the request to the place.
pub(super) async fn attempt(
    place: Place,
    outgoing: &Outgoing,
    first_byte: std::time::Duration,
) -> Result<Answered, Failed> {
    let Place { mut lease, upstream } = place;
    let id = lease.upstream().clone();
    lease.sent();
    let sent = Instant::now();
    // Dropped by the time limit, the call ends the request at the upstream; the lease settles.
    let Ok(result) = timeout(first_byte, upstream.call(outgoing.request())).await else {
        return Err(Failed::Late { upstream: id });
    };
    let mut response = match result {
        Ok(response) => response,
        Err(error) => return Err(failed(id, lease, &error)),
    };
    for_client(response.headers_mut());
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        return Err(refused(id, response, lease).await);
    }
    Ok(Answered { response, lease, sent })
}

fn failed(upstream: UpstreamId, lease: Lease, error: &BoxError) -> Failed {
    let sent = error.downcast_ref::<CallError>().map_or(Sent::Yes, CallError::sent);
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

/// A 503 is short, and read to its end, so that the request can go elsewhere or the answer be passed on.
async fn refused(upstream: UpstreamId, response: Response<Body>, lease: Lease) -> Failed {
    let (head, body) = response.into_parts();
    match Limited::new(body, MAX_REFUSAL).collect().await {
        Ok(body) => {
            lease.complete();
            Failed::Refused { upstream, response: Response::from_parts(head, body.to_bytes()) }
        }
        Err(error) => Failed::Broken { upstream, error: format!("its 503 could not be read: {error}") },
    }
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
