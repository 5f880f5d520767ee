//! What do the reader of a stream and the router's transport share?
//!
//! The reader hands on what Envoy says; the transport, called somewhere within the router, answers Envoy and waits for the
//! head of the response. Each body is a channel of one piece: who does not take holds Envoy up, and nothing piles up here.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use envoy_types::pb::envoy::service::ext_proc::v3::ProcessingResponse;
use futures_core::Stream;
use http::{HeaderMap, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use paddler_core::forward::BoxError;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use crate::addresses::{Allowed, Listening, allows};
use crate::heads::RequestHead;
use crate::modes::Modes;

/// How many answers wait for Envoy to take them, on each stream.
const WAITING: usize = 4;

/// The way to Envoy, for messages of one kind.
#[derive(Debug)]
pub(crate) struct Out<T = ProcessingResponse>(mpsc::Sender<T>);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Out<T> {
    /// Done once it is on its way. Who waits here is dropped when Envoy leaves.
    pub(crate) async fn send(&self, answer: T) {
        self.0.send(answer).await.ok();
    }
}

type Serving = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;

/// What Envoy hears, and who says it: both end together, whichever ends first. Envoy takes a plain end for leave to go on,
/// whoever was to decide, so there is none unless all was said.
pub(crate) struct Said<T = ProcessingResponse> {
    /// `None`: it is done.
    serving: Option<Serving>,
    answers: mpsc::Receiver<T>,
    failed: Option<Status>,
}

impl<T> Said<T> {
    /// What is said by whoever serves a stream.
    pub(crate) fn by<F>(serve: impl FnOnce(Out<T>) -> F) -> Self
    where
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let (to, answers) = mpsc::channel(WAITING);
        Self {
            serving: Some(Box::pin(serve(Out(to)))),
            answers,
            failed: None,
        }
    }
}

impl<T> Stream for Said<T> {
    type Item = Result<T, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Some(serving) = &mut this.serving
            && let Poll::Ready(ended) = serving.as_mut().poll(cx)
        {
            this.serving = None;
            this.failed = ended.err();
            this.answers.close();
        }
        let answer = ready!(this.answers.poll_recv(cx));
        Poll::Ready(answer.map(Ok).or_else(|| this.failed.take().map(Err)))
    }
}

/// A piece of a body.
#[derive(Debug)]
pub(crate) enum Piece {
    Data(Bytes),
    /// The body ends with trailers, which stay with Envoy.
    Trailers,
    End,
}

/// The head of the response that Envoy has got.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Where it was answered, if that is said.
    pub(crate) served: Option<SocketAddr>,
    pub(crate) has_body: bool,
    pub(crate) body: PieceBody,
}

/// What both know of a stream.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) modes: Modes,
    pub(crate) request: RequestHead,
    /// The only addresses that the request may go to, if that is said.
    pub(crate) subset: Option<Vec<Allowed>>,
    pub(crate) out: Out,
    pub(crate) listening: Listening,
    /// All of the response has come from Envoy.
    pub(crate) response_ended: AtomicBool,
    /// Where the head of the response will be. `None` once Envoy has been told where to go, or is being told.
    pub(crate) awaited: Mutex<Option<oneshot::Receiver<ResponseHead>>>,
}

impl Exchange {
    fn awaited(&self) -> MutexGuard<'_, Option<oneshot::Receiver<ResponseHead>>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_placed(&self) -> bool {
        self.awaited().is_none()
    }

    /// From now on Envoy may be on its way. Gives where the head of the response will be, to the first who asks.
    pub(crate) fn place(&self) -> Option<oneshot::Receiver<ResponseHead>> {
        self.awaited().take()
    }

    /// Of the addresses of an upstream, the one that Envoy is told.
    pub(crate) fn choose(&self, addresses: Vec<SocketAddr>) -> Option<SocketAddr> {
        let may = |at: &SocketAddr| self.subset.as_ref().is_none_or(|subset| allows(subset, *at));
        addresses.into_iter().find(may)
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
        let piece = ready!(pieces.poll_recv(cx));
        Poll::Ready(match piece {
            Some(Piece::Data(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Piece::Trailers) => {
                self.pieces = None;
                Some(Ok(Frame::trailers(HeaderMap::new())))
            }
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
