//! What is a body, to us?
//!
//! Bytes that are passed on as they come. [`Body`] is a type of our own so that neither hyper's nor axum's stands in the
//! way of embedding, and so that a body which is held as chunks can be sent again without a copy.

use std::any::Any;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use tokio::sync::mpsc;

use super::spurious::DeferWake;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A stream of bytes, and perhaps trailers.
#[derive(Default)]
pub struct Body(Kind);

#[derive(Default)]
enum Kind {
    #[default]
    Empty,
    /// One piece, as of most requests and answers that are whole.
    One(Bytes),
    Chunks {
        chunks: VecDeque<Bytes>,
        left: u64,
    },
    /// What a client of ours sends, as it comes.
    Incoming(Incoming),
    Stream(UnsyncBoxBody<Bytes, BoxError>),
}

impl Body {
    /// Nothing.
    pub fn empty() -> Self {
        Self::default()
    }

    /// These bytes, in one piece.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        if bytes.is_empty() {
            Self::empty()
        } else {
            Self(Kind::One(bytes))
        }
    }

    /// These pieces, one after the other. They are shared, not copied.
    pub fn chunks(chunks: impl IntoIterator<Item = Bytes>) -> Self {
        let mut chunks = chunks.into_iter().filter(|chunk| !chunk.is_empty());
        let (Some(first), second) = (chunks.next(), chunks.next()) else {
            return Self::empty();
        };
        let Some(second) = second else {
            return Self(Kind::One(first));
        };
        let chunks: VecDeque<_> = [first, second].into_iter().chain(chunks).collect();
        let left = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        Self(Kind::Chunks { chunks, left })
    }

    /// The same bytes once more, where they are held; `None` for a stream.
    #[cfg(feature = "http2")]
    pub(crate) fn again(&self) -> Option<Self> {
        match &self.0 {
            Kind::Empty => Some(Self::empty()),
            Kind::One(bytes) => Some(Self(Kind::One(bytes.clone()))),
            Kind::Chunks { chunks, .. } => Some(Self::chunks(chunks.iter().cloned())),
            Kind::Incoming(_) | Kind::Stream(_) => None,
        }
    }

    /// All of it, if it is here in one piece or none.
    pub(super) fn take_whole(&mut self) -> Option<Bytes> {
        match &mut self.0 {
            Kind::Empty => Some(Bytes::new()),
            Kind::One(bytes) => {
                let whole = std::mem::take(bytes);
                self.0 = Kind::Empty;
                Some(whole)
            }
            _ => None,
        }
    }

    /// Takes all of it, if it is held in many pieces and has so many bytes.
    pub(crate) fn take_held(&mut self, length: u64) -> Option<VecDeque<Bytes>> {
        match &mut self.0 {
            Kind::Chunks { chunks, left } if *left == length => {
                *left = 0;
                Some(std::mem::take(chunks))
            }
            _ => None,
        }
    }

    /// What comes through a channel, until its senders are gone: for a body that somebody writes while it is sent.
    pub fn from_channel(pieces: mpsc::Receiver<Bytes>) -> Self {
        Self::new(Pieces(pieces))
    }

    /// Any other body.
    pub fn new<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let mut body = Some(body);
        // What nearly all requests come with needs no memory of its own.
        let incoming = (&mut body as &mut dyn Any).downcast_mut::<Option<Incoming>>();
        match (incoming.and_then(Option::take), body) {
            (Some(incoming), _) => Self(Kind::Incoming(incoming)),
            (None, Some(body)) => Self(Kind::Stream(body.map_err(Into::into).boxed_unsync())),
            (None, None) => Self::empty(),
        }
    }
}

struct Pieces(mpsc::Receiver<Bytes>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.0.poll_recv(cx);
        piece.map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        match &mut this.0 {
            Kind::Empty => Poll::Ready(None),
            Kind::One(bytes) => {
                let whole = std::mem::take(bytes);
                this.0 = Kind::Empty;
                Poll::Ready(Some(Ok(Frame::data(whole))))
            }
            Kind::Incoming(body) => {
                // Of one without a length it is not seen which piece is the last.
                let deferred = body.size_hint().exact().map(|_| DeferWake::begin());
                let frame = Pin::new(&mut *body).poll_frame(cx);
                if let (Some(deferred), Poll::Ready(Some(Ok(_)))) = (deferred, &frame)
                    && body.is_end_stream()
                {
                    deferred.discard();
                }
                frame.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
            }
            Kind::Chunks { chunks, left } => {
                let chunk = chunks.pop_front();
                *left -= chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
                Poll::Ready(chunk.map(|chunk| Ok(Frame::data(chunk))))
            }
            Kind::Stream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty => true,
            Kind::One(_) => false,
            Kind::Incoming(body) => body.is_end_stream(),
            Kind::Chunks { chunks, .. } => chunks.is_empty(),
            Kind::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::One(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Incoming(body) => body.size_hint(),
            Kind::Chunks { left, .. } => SizeHint::with_exact(*left),
            Kind::Stream(body) => body.size_hint(),
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::full(bytes)
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self::full(text)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Empty => f.write_str("Body(empty)"),
            Kind::One(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            Kind::Chunks { left, .. } => write!(f, "Body({left} bytes)"),
            Kind::Incoming(_) | Kind::Stream(_) => f.write_str("Body(stream)"),
        }
    }
}
