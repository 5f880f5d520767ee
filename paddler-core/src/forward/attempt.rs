//! What becomes of one attempt?
//!
//! What it means for the upstream is told to the lease: [`health`](crate::health) makes of it what it will. Whether there may be
//! another is for [`sending`](super::sending).

use std::borrow::Cow;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, RETRY_AFTER, TRAILER};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Limited};
use tokio::time::{Instant, timeout, timeout_at};

use super::body::{Body, BoxError};
use super::headers::{ABOUT_THE_ANSWER, set_length, settle_length, strip_hop_by_hop};
use super::held::Held;
use super::refusal::{REASON, Refusal, is_of_the_router};
use super::rewrite::Naming;
use super::timeouts::{Allowed, Stages, WHOLE};
use super::trace;
use super::upgrade;
use super::upstream_key;
use super::waiting::Place;
use crate::clock::{self, Clock};
use crate::health::{Fault, FaultReceipt, Verdict};
use crate::status::Published;
use crate::upstream::http::Outbound;
use crate::upstream::{
    CallError, Carried, Dispatch, Lease, Progress, Sent, ServedBy, UpstreamId, UpstreamSpec,
};

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
    /// What a host gives its transport, and what it is told of the request then.
    pub(super) carried: Option<(Carried, Dispatch)>,
    /// Where its body says for which model it is.
    pub(super) naming: Naming,
    /// The model that it asks for. `None`: any.
    pub(super) model: Option<Arc<str>>,
}

impl Outgoing {
    /// Makes it ask for this model, wherever it says so.
    pub(super) fn ask_for(&mut self, model: &Arc<str>) -> Result<(), Refusal> {
        if self.model.as_ref() == Some(model) {
            return Ok(());
        }
        let changed = self.naming.ask_for(model, &mut self.held)?;
        if changed {
            set_length(&mut self.headers, self.held.bytes());
        }
        self.uri = self.naming.in_uri(std::mem::take(&mut self.uri), model)?;
        self.model = Some(model.clone());
        if let Some((_, dispatch)) = &mut self.carried {
            dispatch.model = Some(model.clone());
            dispatch.rewritten |= changed;
        }
        Ok(())
    }

    /// Its head, for an upstream that we speak to ourselves.
    fn outbound(&self, how: &How<'_>) -> Outbound<'_> {
        let mut outbound = Outbound::new(&self.method, &self.uri, Cow::Borrowed(&self.headers));
        if self.websocket {
            upgrade::ask(outbound.headers.to_mut());
        }
        if let Some(traceparent) = how.traceparent {
            trace::set_parent(outbound.headers.to_mut(), traceparent.clone());
        }
        outbound.over_new = how.replay;
        outbound.instead = how.instead;
        outbound.at_once = true;
        outbound
    }

    /// A copy of it, for a transport of the host's.
    fn request(&self, how: &How<'_>, alternatives: Vec<UpstreamId>, progress: Progress) -> Request<Body> {
        let mut request = self.outbound(how).into_request(self.held.body());
        let extensions = request.extensions_mut();
        extensions.insert(progress);
        if let Some((carried, dispatch)) = &self.carried {
            extensions.insert(Dispatch {
                alternatives,
                ..dispatch.clone()
            });
            extensions.insert(carried.clone());
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
    /// Its client asks for less time than others get.
    pub(super) hurried: bool,
}

/// An attempt that did not.
#[derive(Debug)]
pub(super) enum Failed {
    /// It was not sent.
    NotSent { upstream: UpstreamId, error: String },
    /// It was lost in a connection that the upstream had closed, most likely.
    Lost { upstream: UpstreamId, error: String },
    /// The upstream refused the work before it began. Its answer is kept, unless it could not be read.
    Refused {
        upstream: UpstreamId,
        answer: Result<Response<Bytes>, String>,
        says: Says,
    },
    /// The upstream refused the key that it gets from us, with this status.
    Key {
        upstream: UpstreamId,
        status: StatusCode,
    },
    /// It was sent, and no head that can be read came back, or the 502 of one who had the same happen to him.
    Broken {
        upstream: UpstreamId,
        error: String,
        /// It did answer, with what cannot be read.
        answered: bool,
        /// That it counts against the upstream, to be taken back if it was the request's own fault.
        receipt: Option<FaultReceipt>,
        answer: Option<Response<Bytes>>,
    },
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
            Self::NotSent { .. } | Self::Lost { .. } | Self::Refused { .. } | Self::Key { .. }
        )
    }
}

/// What the refusal of an upstream says to the request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Says {
    /// For how long it asks to be left alone.
    pub(super) asked: Option<Duration>,
    /// It limits what it is sent: 429.
    pub(super) limits: bool,
}

/// How an attempt is to be made.
#[derive(Debug, Clone, Copy)]
pub(super) struct How<'a> {
    pub(super) clock: Clock,
    pub(super) published: &'a Published,
    /// Its transport sends it once: what comes back is passed on, whatever it is.
    pub(super) once: bool,
    /// It may be sent once more though an upstream has seen it, or was.
    pub(super) replayable: bool,
    /// It may have been seen, and is not sent again where it is lost: so not into a connection that was used before.
    pub(super) replay: bool,
    /// Another model serves it than its own.
    pub(super) instead: bool,
    /// What the upstream is told of the trace, if that is about this attempt.
    pub(super) traceparent: Option<&'a HeaderValue>,
}

/// Sends the request to the place.
pub(super) async fn attempt(place: Place, outgoing: &Outgoing, how: How<'_>) -> Result<Answered, Failed> {
    let Place {
        mut lease,
        upstream,
        spec,
        alternatives,
        ..
    } = place;
    let id = lease.upstream().clone();
    let fault = |lease: &mut Lease, fault| lease.report(Verdict::Fault(fault), how.clock.now());
    let sent = Instant::now();
    let stages = outgoing.allowed.at(&spec.timeouts);
    let (after, word) = stages.head(sent);
    let ends = clock::after(sent, after);
    let result = match upstream.as_http() {
        Some(http) => {
            let held_back = AtomicBool::new(false);
            let _mark = MarkSent {
                lease: &mut lease,
                held_back: &held_back,
            };
            let call = pin!(http.ask(outgoing.outbound(&how), outgoing.held.body(), &held_back));
            let result = timeout_at(ends, call).await;
            result.map(|answer| answer.map_err(BoxError::from))
        }
        None => {
            let progress = Progress::default();
            let _mark = MarkSent {
                lease: &mut lease,
                held_back: progress.held_back(),
            };
            let request = outgoing.request(&how, alternatives, progress.clone());
            timeout_at(ends, upstream.call(request)).await
        }
    };
    // Dropped by the time limit, the call ends the request at the upstream; the lease settles.
    let Ok(result) = result else {
        if word != WHOLE && !outgoing.allowed.is_hurried() {
            fault(&mut lease, Fault::Late);
        }
        return Err(Failed::Late {
            upstream: id,
            after,
            word,
        });
    };
    lease.sent();
    let mut response = match result {
        Ok(response) => response,
        Err(error) => return Err(failed(id, lease, &error, how.clock)),
    };
    if let Some(ServedBy(by)) = response.extensions_mut().remove() {
        move_to(&mut lease, &by, how.published);
    }
    if let Err(why) = is_sound(&mut response, outgoing) {
        return Err(Failed::Broken {
            receipt: fault(&mut lease, Fault::Broke),
            error: format!("it answered {}, {why}", response.status()),
            answered: true,
            upstream: id,
            answer: None,
        });
    }
    strip_hop_by_hop(response.headers_mut(), &ABOUT_THE_ANSWER);
    // What is spoken to the client is for our server to say, not for the upstream's.
    *response.version_mut() = Version::HTTP_11;
    let judged = judge(&response, &mut lease, &spec, outgoing, &how);
    let Judged::Good = judged else {
        // Hardly any is refused, so the others hold no room for it.
        let is_head = outgoing.method == Method::HEAD;
        return Err(Box::pin(refused(response, lease, (id, judged), is_head)).await);
    };
    Ok(Answered {
        response,
        lease,
        sent,
        stages,
        hurried: outgoing.allowed.is_hurried(),
    })
}

/// A call that may be given up at any time: the lease is told then whether any of the request was sent.
struct MarkSent<'a> {
    lease: &'a mut Lease,
    held_back: &'a AtomicBool,
}

impl Drop for MarkSent<'_> {
    fn drop(&mut self) {
        if !self.held_back.load(Relaxed) {
            self.lease.sent();
        }
    }
}

/// The request counts where it was answered. Of one who has left meanwhile nothing is counted.
fn move_to(lease: &mut Lease, by: &UpstreamId, published: &Published) {
    let snapshot = published.load();
    let moved = snapshot.index(by.as_str()).map(|at| lease.move_to(&snapshot, at));
    if !matches!(moved, Some(Ok(()))) {
        tracing::debug!(upstream = %by, picked = %lease.upstream(), "answered by one who is not there");
    }
}

/// Whether it answers what was asked, or what is wrong. An upgrade for which nobody asked does not, and an answer of two lengths is two answers.
fn is_sound(response: &mut Response<Body>, outgoing: &Outgoing) -> Result<(), &'static str> {
    if !settle_length(response.headers_mut()) {
        return Err("with a length that cannot be read, or two");
    }
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        if !outgoing.websocket {
            return Err("and nobody had asked for another protocol");
        }
        if !upgrade::agrees(response) {
            return Err("and to another protocol than was asked for");
        }
    }
    Ok(())
}

/// What an answer is to the request.
enum Judged {
    /// To be passed on.
    Good,
    /// A refusal of the key that the upstream gets from us.
    Key,
    /// A refusal of the work.
    Refused { limits: bool },
    /// The 502 of one who has had no answer.
    Broken { receipt: Option<FaultReceipt> },
}

/// What the status says: of the upstream, to the lease, and of the request, whether it may do better elsewhere.
fn judge(
    response: &Response<Body>,
    lease: &mut Lease,
    spec: &UpstreamSpec,
    outgoing: &Outgoing,
    how: &How<'_>,
) -> Judged {
    let (now, status) = (how.clock.now(), response.status());
    if !how.once && upstream_key::is_refused(spec, how.instead, (status, response.headers())) {
        lease.report(upstream_key::verdict(status), now);
        return Judged::Key;
    }
    let verdict = verdict(status, response.headers(), outgoing);
    let receipt = lease.report(verdict, now);
    match status {
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS if !how.once => Judged::Refused {
            limits: status == StatusCode::TOO_MANY_REQUESTS,
        },
        StatusCode::BAD_GATEWAY if how.replayable => Judged::Broken { receipt },
        _ => Judged::Good,
    }
}

/// Reads an answer that is not passed on, for the next request on its connection too. Whatever became of its words, no work is
/// done for this request.
async fn refused(
    response: Response<Body>,
    lease: Lease,
    (upstream, judged): (UpstreamId, Judged),
    is_head: bool,
) -> Failed {
    let (status, asked) = (response.status(), retry_after(response.headers()));
    let answer = read_refusal(response, is_head).await;
    lease.complete();
    match judged {
        Judged::Key => Failed::Key { upstream, status },
        Judged::Broken { receipt } => {
            let error = answer.as_ref().err().cloned();
            Failed::Broken {
                error: error.unwrap_or_else(|| "it answered 502".to_owned()),
                answered: false,
                upstream,
                receipt,
                answer: answer.ok(),
            }
        }
        Judged::Good | Judged::Refused { .. } => Failed::Refused {
            upstream,
            answer,
            says: Says {
                asked,
                limits: matches!(judged, Judged::Refused { limits: true }),
            },
        },
    }
}

/// What an answer says of its upstream.
fn verdict(status: StatusCode, headers: &HeaderMap, outgoing: &Outgoing) -> Verdict {
    if status.is_success() {
        return Verdict::Answered;
    }
    // A router that says why it refuses a request is well, unless it says that of itself.
    if headers
        .get(REASON)
        .is_some_and(|reason| !is_of_the_router(reason))
    {
        return Verdict::Answered;
    }
    Verdict::of_status(status.as_u16(), retry_after(headers), || {
        outgoing.held.fingerprint()
    })
}

fn failed(upstream: UpstreamId, mut lease: Lease, error: &BoxError, clock: Clock) -> Failed {
    let call = error.downcast_ref::<CallError>();
    let reached = call.is_none_or(CallError::reached);
    let sent = call.map_or(Sent::Yes, CallError::sent);
    let error = match call.and_then(Error::source).filter(|_| sent == Sent::Begun) {
        Some(what_came) => chain(what_came),
        None => chain(&**error),
    };
    match sent {
        Sent::No => {
            if !reached {
                lease.report(Verdict::Fault(Fault::Unreachable), clock.now());
            }
            // The engine never saw it.
            lease.complete();
            Failed::NotSent { upstream, error }
        }
        Sent::Reused => {
            // Most likely it was idle for too long, which is nobody's fault.
            lease.complete();
            Failed::Lost { upstream, error }
        }
        Sent::Yes | Sent::Begun => Failed::Broken {
            receipt: lease.report(Verdict::Fault(Fault::Broke), clock.now()),
            answered: sent == Sent::Begun,
            upstream,
            error,
            answer: None,
        },
    }
}

/// A refusal is short, and read to its end, so that the request can go elsewhere or the answer be passed on.
async fn read_refusal(response: Response<Body>, is_head: bool) -> Result<Response<Bytes>, String> {
    let (mut head, body) = response.into_parts();
    if !is_head {
        // What is kept is sent with its own length, and so without trailers.
        head.headers.remove(CONTENT_LENGTH);
    }
    head.headers.remove(TRAILER);
    match timeout(READ_REFUSAL, Limited::new(body, MAX_REFUSAL).collect()).await {
        Ok(Ok(body)) => Ok(Response::from_parts(head, body.to_bytes())),
        Ok(Err(error)) => Err(format!("it answered {} and broke off: {error}", head.status)),
        Err(_) => Err(format!("it answered {} and went silent", head.status)),
    }
}

/// Seconds. The other form, a date, would compare two clocks: it counts as not said.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// An error with its causes, in a line.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
