//! What does Envoy say, and in which order may it?
//!
//! Headers of the request first, then its body and trailers, then the same of the response. A response may overtake the rest
//! of a request. A second end of a body is nothing; anything else out of order ends the stream with an error.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request as Kind;
use envoy_types::pb::envoy::service::ext_proc::v3::{HttpBody, HttpHeaders, ProcessingRequest};
use http::StatusCode;
use paddler_core::forward::Refusal;
use tokio::sync::{mpsc, oneshot};
use tonic::{Code, Status, Streaming};

use crate::answers::{self, About};
use crate::exchange::{Exchange, Piece, PieceBody, ResponseHead};
use crate::gateway;
use crate::heads::read_response;
use crate::modes::{RequestBody, ResponseBody};

/// Why no more is read.
#[derive(Debug)]
pub(crate) enum End {
    /// Envoy has ended the stream.
    Closed,
    /// Envoy has an answer already, though it was not told where to go: this is its head, and how its body is shown.
    Overtaken(Box<HttpHeaders>, ResponseBody),
    /// A client's request that the router does not get to see.
    Refused(Refusal),
    /// Nothing more is said of it here, and this is why.
    Cut(Status),
    /// What Envoy said may not be said, or cannot be read.
    Fault(Status),
}

fn fault(what: impl Into<String>) -> End {
    End::Fault(Status::invalid_argument(what))
}

/// Of a message that no client has seen to be one.
fn unreadable() -> Refusal {
    let message = "what Envoy told of the request cannot be read";
    Refusal::new(StatusCode::BAD_REQUEST, "bad_header", message)
}

/// Of a message that has no room here: of the request's, or of its answer's.
fn too_large(is_answer: bool) -> Refusal {
    let message = "a message is larger than may be";
    if is_answer {
        return Refusal::new(StatusCode::BAD_GATEWAY, "answer_too_large", message);
    }
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
}

fn trailers() -> Refusal {
    let message = "fields come after the body: send it without";
    Refusal::new(StatusCode::BAD_REQUEST, "trailers", message)
}

/// What Envoy says next. `placed`: it was told where to go.
pub(crate) async fn next(
    inbound: &mut Streaming<ProcessingRequest>,
    placed: bool,
) -> Result<ProcessingRequest, End> {
    match inbound.message().await {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(End::Closed),
        Err(status) if status.code() == Code::OutOfRange => Err(End::Refused(too_large(placed))),
        // What ends without a word goes on unjudged.
        Err(_) if !placed => Err(End::Refused(unreadable())),
        Err(_) => Err(End::Closed),
    }
}

/// Where what Envoy says is put.
#[derive(Debug)]
pub(crate) struct Reader {
    exchange: Arc<Exchange>,
    /// `None`: the body has ended, or nobody takes it.
    request_body: Option<mpsc::Sender<Piece>>,
    response_head: Option<oneshot::Sender<ResponseHead>>,
    response_body: Option<mpsc::Sender<Piece>>,
}

impl Reader {
    pub(crate) fn new(
        exchange: Arc<Exchange>,
        request_body: Option<mpsc::Sender<Piece>>,
        response_head: oneshot::Sender<ResponseHead>,
    ) -> Self {
        Self {
            exchange,
            request_body,
            response_head: Some(response_head),
            response_body: None,
        }
    }

    /// Reads to the end of the response.
    pub(crate) async fn read(&mut self, inbound: &mut Streaming<ProcessingRequest>) -> Result<(), End> {
        loop {
            let message = next(inbound, self.exchange.is_placed()).await?;
            self.take(message).await?;
            if self.exchange.response_ended.load(Relaxed) {
                return Ok(());
            }
        }
    }

    async fn take(&mut self, message: ProcessingRequest) -> Result<(), End> {
        let ProcessingRequest {
            request,
            metadata_context,
            attributes,
            ..
        } = message;
        match request {
            Some(Kind::RequestHeaders(_)) => Err(fault("the headers of a request came twice")),
            Some(Kind::RequestBody(body)) => self.request_body(body).await,
            Some(Kind::RequestTrailers(_)) => self.request_trailers().await,
            Some(Kind::ResponseHeaders(head)) => {
                let attributes = attributes.values().chain(head.attributes.values());
                let served = gateway::served(metadata_context.as_ref(), attributes);
                self.response_head(head, served)
            }
            Some(Kind::ResponseBody(body)) => self.response_body(body).await,
            Some(Kind::ResponseTrailers(_)) => self.response_trailers().await,
            // What a later Envoy may say.
            None => Ok(()),
        }
    }

    async fn request_body(&mut self, body: HttpBody) -> Result<(), End> {
        let HttpBody {
            body, end_of_stream, ..
        } = body;
        match self.exchange.modes.request {
            RequestBody::Duplex => {
                put(&mut self.request_body, body, end_of_stream.then_some(Piece::End)).await;
            }
            // Where it says that this is not the end, trailers follow, which it keeps until it has been answered.
            RequestBody::Whole => put(&mut self.request_body, body, Some(Piece::End)).await,
            RequestBody::Late => self.exchange.out.send(answers::pass_body(About::Request)).await,
            RequestBody::Hidden | RequestBody::Empty => {
                return Err(fault("a body came, of which it was said that it would not"));
            }
        }
        Ok(())
    }

    async fn request_trailers(&mut self) -> Result<(), End> {
        let Exchange { modes, out, .. } = &*self.exchange;
        if modes.request.is_read() && self.request_body.is_some() {
            // As in front of the gateway: what comes after a body has no length that Envoy could say, and where the body is
            // empty Envoy shows none and would go on without a place.
            return Err(End::Refused(trailers()));
        }
        out.send(answers::pass_trailers(About::Request)).await;
        Ok(())
    }

    fn response_head(&mut self, head: HttpHeaders, served: Option<SocketAddr>) -> Result<(), End> {
        let Some(put) = self.response_head.take() else {
            return Err(fault("the headers of a response came twice"));
        };
        if !self.exchange.is_placed() {
            return Err(End::Overtaken(Box::new(head), self.exchange.modes.response));
        }
        let (status, headers) = read_response(&head.headers.unwrap_or_default()).map_err(fault)?;
        let ended = head.end_of_stream || self.exchange.modes.response == ResponseBody::Hidden;
        let body = if ended {
            self.exchange.response_ended.store(true, Relaxed);
            PieceBody::empty()
        } else {
            let (to, body) = PieceBody::new();
            self.response_body = Some(to);
            body
        };
        let head = ResponseHead {
            status,
            headers,
            served,
            has_body: !ended,
            body,
        };
        // Whoever waits for it no more is about to answer otherwise, and the body goes nowhere.
        put.send(head).ok();
        Ok(())
    }

    async fn response_body(&mut self, body: HttpBody) -> Result<(), End> {
        if self.response_head.is_some() {
            return Err(fault("the body of a response came before its headers"));
        }
        if body.end_of_stream {
            self.exchange.response_ended.store(true, Relaxed);
        }
        let end = body.end_of_stream.then_some(Piece::End);
        put(&mut self.response_body, body.body, end).await;
        if self.exchange.modes.response == ResponseBody::Answered {
            self.exchange.out.send(answers::pass_body(About::Response)).await;
        }
        Ok(())
    }

    async fn response_trailers(&mut self) -> Result<(), End> {
        if self.response_head.is_some() {
            return Err(fault("the trailers of a response came before its headers"));
        }
        let Exchange { modes, out, .. } = &*self.exchange;
        self.exchange.response_ended.store(true, Relaxed);
        put(&mut self.response_body, Vec::new(), Some(Piece::Trailers)).await;
        if modes.response != ResponseBody::Duplex {
            out.send(answers::pass_trailers(About::Response)).await;
        }
        Ok(())
    }
}

/// Hands a piece on, and what it ends with, and waits until it is taken. After an end there is nothing, and where nobody takes
/// it, it goes nowhere.
async fn put(to: &mut Option<mpsc::Sender<Piece>>, bytes: Vec<u8>, end: Option<Piece>) {
    let Some(sender) = to else { return };
    let ends = end.is_some();
    let mut taken = bytes.is_empty() || sender.send(Piece::Data(Bytes::from(bytes))).await.is_ok();
    if taken && let Some(end) = end {
        taken = sender.send(end).await.is_ok();
    }
    if ends || !taken {
        *to = None;
    }
}
