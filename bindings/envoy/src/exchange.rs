//! What do the reader of a stream and the router's transport share?
//!
//! The reader hands on what Envoy says; the transport, called somewhere within the router, answers Envoy and waits for the
//! head of the response. Each body is a channel of one piece: who does not take holds Envoy up, and nothing piles up here.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::service::ext_proc::v3::ProcessingResponse;
use http::{HeaderMap, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use paddler_core::forward::BoxError;
use paddler_core::upstream::UpstreamId;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;
use tokio_stream::Stream;
use tonic::Status;

use crate::addresses::Map;
use crate::heads::RequestHead;
use crate::modes::Modes;

/// How long Envoy may take nothing while something waits for it: what the gateway allows a client.
const STALLED: Duration = Duration::from_secs(60);

/// How many answers wait for Envoy to take them, on each stream.
const WAITING: usize = 4;

type Answer = Result<ProcessingResponse, Status>;

/// The way to Envoy.
#[derive(Debug, Clone)]
pub(crate) struct Out {
    to: mpsc::Sender<Answer>,
    was_gone: Arc<Notify>,
    all_said: Arc<AtomicBool>,
}

/// What Envoy hears. It ends with an error unless all was said: Envoy takes a plain end for leave to go on, whoever was to
/// decide, so nothing that breaks off here may look like one.
#[derive(Debug)]
pub(crate) struct Said {
    answers: mpsc::Receiver<Answer>,
    all_said: Arc<AtomicBool>,
}

impl Stream for Said {
    type Item = Answer;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Answer>> {
        let answer = std::task::ready!(self.answers.poll_recv(cx));
        if answer.is_none() && !self.all_said.swap(true, Relaxed) {
            let broken_off = Status::aborted("the picker broke off before all was said");
            return Poll::Ready(Some(Err(broken_off)));
        }
        Poll::Ready(answer)
    }
}

/// Envoy has ended the stream, or takes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

impl Out {
    /// With what comes out at the other end.
    pub(crate) fn new() -> (Self, Said) {
        let (to, answers) = mpsc::channel(WAITING);
        let all_said = Arc::<AtomicBool>::default();
        let said = Said {
            answers,
            all_said: all_said.clone(),
        };
        let out = Self {
            to,
            was_gone: Arc::default(),
            all_said,
        };
        (out, said)
    }

    /// Nothing is left to say: the stream may end.
    pub(crate) fn all_said(&self) {
        self.all_said.store(true, Relaxed);
    }

    /// Done once something could not be sent, or nobody is there any more who would take it.
    pub(crate) async fn gone(&self) {
        tokio::select! {
            () = self.was_gone.notified() => {}
            () = self.to.closed() => {}
        }
    }

    pub(crate) async fn send(&self, answer: ProcessingResponse) -> Result<(), Gone> {
        self.push(Ok(answer)).await
    }

    /// Ends the stream with an error: what comes next is for Envoy's failure mode to say.
    pub(crate) async fn fail(&self, status: Status) {
        if self.push(Err(status)).await.is_err() {
            tracing::debug!("nobody hears why the stream ends");
        }
    }

    async fn push(&self, item: Answer) -> Result<(), Gone> {
        if matches!(timeout(STALLED, self.to.send(item)).await, Ok(Ok(()))) {
            return Ok(());
        }
        self.was_gone.notify_one();
        Err(Gone)
    }
}

/// A piece of a body.
#[derive(Debug)]
pub(crate) enum Piece {
    Data(Bytes),
    End,
}

/// The head of the response that Envoy has got.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Who may have answered, if it is said: all that listen at that address.
    pub(crate) served: Vec<UpstreamId>,
    pub(crate) body: PieceBody,
}

/// What both know of a stream.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) modes: Modes,
    pub(crate) request: RequestHead,
    /// The request has no body.
    pub(crate) is_bare: bool,
    pub(crate) out: Out,
    pub(crate) map: Map,
    /// Envoy has been told where to go, or is being told.
    placed: AtomicBool,
    pub(crate) response_trailers: AtomicBool,
    /// All of the response has come from Envoy.
    pub(crate) response_ended: AtomicBool,
    head: Mutex<Option<oneshot::Receiver<ResponseHead>>>,
    /// The headers of the response as Envoy has them, and whether a body comes after them.
    response: OnceLock<(HeaderMap, bool)>,
}

impl Exchange {
    /// With where the head of the response is to be put.
    pub(crate) fn new(
        modes: Modes,
        (request, is_bare): (RequestHead, bool),
        out: Out,
        map: Map,
    ) -> (Arc<Self>, oneshot::Sender<ResponseHead>) {
        let (put, head) = oneshot::channel();
        let exchange = Self {
            modes,
            request,
            is_bare,
            out,
            map,
            placed: AtomicBool::new(false),
            response_trailers: AtomicBool::new(false),
            response_ended: AtomicBool::new(false),
            head: Mutex::new(Some(head)),
            response: OnceLock::new(),
        };
        (Arc::new(exchange), put)
    }

    /// Envoy's headers of the response, and whether a body comes after them.
    pub(crate) fn response(&self) -> Option<&(HeaderMap, bool)> {
        self.response.get()
    }

    pub(crate) fn keep_response(&self, headers: HeaderMap, has_body: bool) {
        self.response.get_or_init(|| (headers, has_body));
    }

    pub(crate) fn is_placed(&self) -> bool {
        self.placed.load(Relaxed)
    }

    /// From now on Envoy may be on its way. Gives where the head of the response will be, to the first who asks.
    pub(crate) fn place(&self) -> Option<oneshot::Receiver<ResponseHead>> {
        self.placed.store(true, Relaxed);
        self.head.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A body whose pieces come from the reader. Without an end it is cut short.
#[derive(Debug)]
pub(crate) struct PieceBody {
    /// `None`: it has ended.
    pieces: Option<mpsc::Receiver<Piece>>,
}

impl PieceBody {
    /// With where its pieces are to be put.
    pub(crate) fn new() -> (mpsc::Sender<Piece>, Self) {
        let (put, pieces) = mpsc::channel(1);
        (put, Self { pieces: Some(pieces) })
    }

    pub(crate) fn empty() -> Self {
        Self { pieces: None }
    }
}

impl HttpBody for PieceBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(pieces) = &mut self.pieces else {
            return Poll::Ready(None);
        };
        let piece = std::task::ready!(pieces.poll_recv(cx));
        Poll::Ready(match piece {
            Some(Piece::Data(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Piece::End) => {
                self.pieces = None;
                None
            }
            None => {
                self.pieces = None;
                Some(Err("Envoy ended the stream before its end".into()))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_end_stream() {
            SizeHint::with_exact(0)
        } else {
            SizeHint::default()
        }
    }
}
