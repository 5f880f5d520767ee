//! How does one stream go from end to end?
//!
//! What Envoy says is read while the router handles the request; whichever ends first says what becomes of the other. When
//! Envoy ends the stream, all of it is dropped, and with it whatever the request held.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request as Kind;
use envoy_types::pb::envoy::service::ext_proc::v3::{HeaderMutation, HttpHeaders, ProcessingRequest};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use paddler_core::forward::{Body, BoxError, Peer, Refusal, Router, drop_look_alikes};
use paddler_core::request::Dialect;
use paddler_core::upstream::{Carried, Extensions, Only};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tonic::{Status, Streaming};

use crate::addresses::{Listening, allows};
use crate::answers::{self, About};
use crate::counts::Counts;
use crate::exchange::{Exchange, Out, Piece, PieceBody};
use crate::gateway::{self, MODEL, REWRITE, SYSTEM_OWNED};
use crate::heads::{RequestHead, difference};
use crate::modes::{Modes, RequestBody, ResponseBody};
use crate::reader::{End, Reader, next};
use crate::transport::{FromEnvoy, Rider, give};

/// How long a stream may be open without a word: Envoy opens one when it has something to say.
const SILENT: Duration = Duration::from_secs(10);

/// How long Envoy may take to end a stream on which all has been said.
const LINGER: Duration = Duration::from_secs(5);

/// What all streams share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) router: Router,
    pub(crate) listening: Listening,
    pub(crate) counts: Counts,
    /// The gateway's headers count.
    pub(crate) believes_headers: bool,
}

/// What has become of a response.
enum Passed {
    /// It was Envoy's, and has gone back to it.
    Through,
    /// It was the router's own.
    Immediate,
}

/// Serves a stream to its end. What comes after an error is for Envoy's failure mode to say.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    mut inbound: Streaming<ProcessingRequest>,
    peer: Option<Peer>,
    out: Out,
) -> Result<(), Status> {
    let _open = shared.counts.opened();
    match run(&shared, &mut inbound, peer, &out).await {
        Ok(()) => {}
        Err(End::Closed) => return Err(Status::aborted("the stream ended before all was said")),
        Err(End::Overtaken(head, shown)) => echo(&mut inbound, &out, *head, shown).await,
        Err(End::Refused(refusal)) => refuse(&shared, &out, refusal).await,
        Err(End::Cut(status)) => return Err(status),
        Err(End::Fault(status)) => {
            shared.counts.faults.add();
            tracing::warn!(error = status.message(), "a stream that is none of ext_proc");
            return Err(status);
        }
    }
    Ok(())
}

/// Answers one that the router does not get to see, in its words. Whose path is not known is told as most clients hear it.
pub(crate) async fn refuse(shared: &Shared, out: &Out, refusal: Refusal) {
    immediate(shared.router.refuse(refusal, Dialect::Openai), out).await;
}

async fn run(
    shared: &Shared,
    inbound: &mut Streaming<ProcessingRequest>,
    peer: Option<Peer>,
    out: &Out,
) -> Result<(), End> {
    let first = timeout(SILENT, next(inbound, false)).await;
    let silent = |_| {
        Err(End::Cut(Status::deadline_exceeded(
            "nothing was said of a request for 10 s",
        )))
    };
    let first = first.unwrap_or_else(silent)?;
    let (request, exchange, mut reader) = begin(shared, first, peer, out).await?;
    if exchange.modes.response == ResponseBody::Hidden {
        shared.counts.unfollowed();
    }
    if exchange.modes.request == RequestBody::Whole {
        // Or the body would not come. What else comes of it, it goes nowhere that its client names.
        let remove_headers = SYSTEM_OWNED.map(|name| name.to_string()).into();
        let mutation = HeaderMutation {
            remove_headers,
            ..HeaderMutation::default()
        };
        out.send(answers::change_headers(About::Request, mutation)).await;
    }
    let passed = {
        let mut reading = pin!(reader.read(inbound));
        let mut handling = pin!(handle(&shared.router, request, &exchange));
        tokio::select! {
            read = &mut reading => {
                read?;
                handling.await?
            }
            passed = &mut handling => {
                let passed = passed?;
                // Its last word may not have been answered yet. Both ways at once nothing is, and all has been said.
                if matches!(passed, Passed::Through) && exchange.modes.response == ResponseBody::Answered {
                    reading.await?;
                }
                passed
            }
        }
    };
    // Envoy ends it: it could still be saying something.
    let rest = rest(inbound, out, exchange.modes, passed);
    if timeout(LINGER, rest).await.is_err() {
        tracing::debug!("a stream on which all has been said is ended here");
    }
    Ok(())
}

/// Hears what Envoy still says of a request whose answer we do not see to its end, and lets it pass: it would wait for that.
async fn rest(inbound: &mut Streaming<ProcessingRequest>, out: &Out, modes: Modes, passed: Passed) {
    while let Ok(Some(message)) = inbound.message().await {
        let answer = match message.request {
            _ if matches!(passed, Passed::Immediate) => continue,
            Some(Kind::RequestBody(_)) if modes.request == RequestBody::Late => {
                answers::pass_body(About::Request)
            }
            Some(Kind::RequestTrailers(_)) if !modes.request.is_read() => {
                answers::pass_trailers(About::Request)
            }
            Some(Kind::ResponseTrailers(_)) if modes.response == ResponseBody::Hidden => {
                answers::pass_trailers(About::Response)
            }
            _ => continue,
        };
        out.send(answer).await;
    }
}

/// Makes a request of the first message.
async fn begin(
    shared: &Shared,
    first: ProcessingRequest,
    peer: Option<Peer>,
    out: &Out,
) -> Result<(Request<Body>, Arc<Exchange>, Reader), End> {
    let fault = |what: String| End::Fault(Status::invalid_argument(what));
    if first.observability_mode {
        return Err(fault(
            "a picker that may only look on cannot pick: leave observability_mode out".to_owned(),
        ));
    }
    let mut modes = Modes::of(first.protocol_config.as_ref()).map_err(fault)?;
    let sent = match first.request {
        Some(Kind::RequestHeaders(sent)) => sent,
        // Envoy has refused the request by itself, before it told of it.
        Some(Kind::ResponseHeaders(head)) => return Err(End::Overtaken(Box::new(head), modes.response)),
        _ => {
            let message = "a stream begins with the headers of a request: set request_header_mode: SEND";
            return Err(fault(message.to_owned()));
        }
    };
    if sent.end_of_stream {
        modes.request = RequestBody::Empty;
    }
    // A client can have caused it, and a stream that fails is let through where Envoy's failure mode allows it.
    let head = RequestHead::read(&sent.headers.unwrap_or_default())
        .map_err(|malformed| End::Refused(Refusal::new(StatusCode::BAD_REQUEST, "bad_header", malformed)))?;
    let subset = gateway::subset(first.metadata_context.as_ref());
    let only = match &subset {
        Some(subset) => Some(Only(
            shared.listening.at(true, |at| allows(subset, at)).await.into(),
        )),
        None => None,
    };
    let (mut request, to) = request(shared, &head, modes.request);
    let (response_head, head_here) = oneshot::channel();
    let exchange = Arc::new(Exchange {
        modes,
        request: head,
        subset,
        out: out.clone(),
        listening: shared.listening.clone(),
        response_ended: AtomicBool::new(false),
        awaited: Mutex::new(Some(head_here)),
    });
    drop_look_alikes(request.headers_mut());
    let mut rider = Extensions::default();
    rider.insert(Rider(exchange.clone()));
    let extensions = request.extensions_mut();
    extensions.insert(Carried(rider));
    if let Some(only) = only {
        extensions.insert(only);
    }
    if let Some(peer) = peer {
        extensions.insert(peer);
    }
    let reader = Reader::new(exchange.clone(), to, response_head);
    Ok((request, exchange, reader))
}

/// Where the pieces of a body are put as they come, if they come.
type BodyTo = Option<mpsc::Sender<Piece>>;

/// The request as the router gets it.
fn request(shared: &Shared, head: &RequestHead, shown: RequestBody) -> (Request<Body>, BodyTo) {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = head.uri.clone();
    *request.headers_mut() = head.headers.clone();
    match shown {
        RequestBody::Empty => return (request, None),
        RequestBody::Duplex | RequestBody::Whole => {
            let (to, body) = PieceBody::new();
            *request.body_mut() = Body::new(body);
            return (request, Some(to));
        }
        RequestBody::Late | RequestBody::Hidden => {}
    }
    // What is in it is not known, but for the model, if whoever was asked before us has said it; nor can it be changed.
    let headers = request.headers_mut();
    for name in [REWRITE, CONTENT_LENGTH, CONTENT_ENCODING] {
        headers.remove(name);
    }
    if head.method == Method::POST {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let model = head.headers.get(MODEL).filter(|_| shared.believes_headers);
        let model = model.and_then(|model| model.to_str().ok());
        let body = model.map_or_else(|| json!({}), |model| json!({"model": model}));
        *request.body_mut() = Body::full(body.to_string());
    }
    (request, None)
}

/// Lets the router handle the request, and passes on what it makes of it.
async fn handle(router: &Router, request: Request<Body>, exchange: &Exchange) -> Result<Passed, End> {
    let mut response = router.handle(request).await;
    let out = &exchange.out;
    let Some(from_envoy) = response.extensions_mut().remove::<FromEnvoy>() else {
        immediate(response, out).await;
        return Ok(Passed::Immediate);
    };
    let (head, mut body) = response.into_parts();
    let mutation = difference(&from_envoy.headers, &head.headers, &[]);
    out.send(answers::change_headers(About::Response, mutation)).await;
    let cut = |error: BoxError| End::Cut(Status::aborted(format!("the answer was cut short: {error}")));
    if exchange.modes.response == ResponseBody::Duplex {
        if from_envoy.has_body {
            give(About::Response, body, out).await.map_err(cut)?;
        }
        return Ok(Passed::Through);
    }
    // What the router makes of it Envoy cannot be given in this mode: what goes silent is broken off.
    while let Some(frame) = body.frame().await {
        frame.map_err(cut)?;
    }
    if !exchange.response_ended.load(Relaxed) {
        return Err(cut("it took too long".into()));
    }
    Ok(Passed::Through)
}

/// Answers the client ourselves.
async fn immediate(response: Response<Body>, out: &Out) {
    let (head, body) = response.into_parts();
    // What is said here is here already.
    let body = body.collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    out.send(answers::immediate(head.status, &head.headers, body.into()))
        .await;
}

/// Envoy has an answer of its own before it was told where to go: it passes as it is.
async fn echo(inbound: &mut Streaming<ProcessingRequest>, out: &Out, head: HttpHeaders, shown: ResponseBody) {
    out.send(answers::pass_headers(About::Response)).await;
    let mut ended = head.end_of_stream;
    while !ended && let Ok(Some(message)) = inbound.message().await {
        match message.request {
            Some(Kind::ResponseBody(body)) => {
                ended = body.end_of_stream;
                if shown != ResponseBody::Duplex {
                    out.send(answers::pass_body(About::Response)).await;
                    continue;
                }
                for piece in answers::pieces(About::Response, body.body.into(), ended) {
                    out.send(piece).await;
                }
            }
            Some(Kind::ResponseTrailers(_)) => {
                ended = true;
                out.send(answers::pass_trailers(About::Response)).await;
            }
            _ => {}
        }
    }
}
