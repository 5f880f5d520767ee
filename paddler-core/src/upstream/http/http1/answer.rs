//! How does the body of an answer come?
//!
//! Whoever polls it reads it, on the stack first: while nothing comes, nothing is held but a small block, out of which
//! events are cut without a copy. An answer that fills the stack is a large one, and is read straight into large blocks,
//! until it pauses.

use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncReadExt as _, ReadBuf};

use super::framing::{Framing, Step};
use super::sending::Sending;
use super::{AT_ONCE, Error};
use crate::upstream::http::pool::Pooled;

/// The block that events are cut out of, in bytes: room for one or two of the usual size. The same block is used for the
/// next ones as soon as these have been written.
const BLOCK: usize = 512;

/// What large answers are read into, in bytes. Beyond 128 KiB allocators ask the system for each.
const LARGE: usize = 64 * 1024;

/// The body of a response, with the connection that it comes over. Dropped before its end, it closes that.
pub(super) struct Answer {
    /// Until the answer is over.
    pooled: Option<Pooled>,
    /// What is left of the request.
    sending: Option<Box<Sending>>,
    framing: Framing,
    /// Bytes of the body for whoever asks next.
    ready: BytesMut,
    /// Bytes as they came, of a large answer.
    raw: BytesMut,
    is_large: bool,
    /// Its length was not told beforehand.
    is_streamed: bool,
    trailers: Option<Box<HeaderMap>>,
    /// What is wrong behind what is ready.
    failed: Option<Error>,
}

impl Answer {
    /// An answer of which so much has come.
    pub(super) fn new(pooled: Pooled, sending: Option<Sending>, framing: Framing, bytes: &[u8]) -> Self {
        let mut answer = Self {
            pooled: Some(pooled),
            sending: sending.map(Box::new),
            is_streamed: framing.left().is_none(),
            framing,
            ready: BytesMut::new(),
            raw: BytesMut::new(),
            is_large: false,
            trailers: None,
            failed: None,
        };
        answer.take_in(bytes);
        answer.let_go();
        answer
    }

    /// Takes in what has come.
    fn take_in(&mut self, mut bytes: &[u8]) {
        while !self.framing.is_over() && !bytes.is_empty() {
            match self.framing.step(bytes) {
                Ok(Step::Frame(read)) => bytes = &bytes[read..],
                Ok(Step::Data(read)) => {
                    let (data, rest) = bytes.split_at(read);
                    if self.ready.capacity() - self.ready.len() < read {
                        let is_last = self.framing.left() == Some(0);
                        let room = if is_last { read } else { bytes.len().max(BLOCK) };
                        self.ready.reserve(room);
                    }
                    self.ready.extend_from_slice(data);
                    bytes = rest;
                }
                Err(malformed) => return self.fail(malformed.into()),
            }
        }
        self.look_for_the_end(!bytes.is_empty());
    }

    /// `more`: bytes came that belong to no answer.
    fn look_for_the_end(&mut self, more: bool) {
        if !self.framing.is_over() {
            return;
        }
        if let Framing::Chunked(chunks) = &mut self.framing {
            self.trailers = chunks.take_trailers().map(Box::new);
        }
        let unsent = self.sending.take().is_some();
        if let Some(pooled) = &mut self.pooled {
            pooled.is_answered(more, unsent);
        }
    }

    /// Gives the connection back once the last piece has been taken.
    fn let_go(&mut self) {
        let is_over = self.framing.is_over() && self.ready.is_empty() && self.trailers.is_none();
        if let Some(pooled) = self.pooled.take_if(|_| is_over) {
            pooled.put(self.is_streamed);
        }
    }

    fn fail(&mut self, error: Error) {
        self.pooled = None;
        self.sending = None;
        self.raw = BytesMut::new();
        self.failed = Some(error);
    }

    /// The next piece, or `None` at the end, if either is here.
    fn next(&mut self) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if !self.ready.is_empty() {
            let is_last = self.framing.is_over();
            let data = if is_last {
                std::mem::take(&mut self.ready)
            } else {
                self.ready.split()
            };
            return Poll::Ready(Some(Ok(Frame::data(data.freeze()))));
        }
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        if !self.raw.is_empty()
            && let Some(piece) = self.cut()
        {
            return Poll::Ready(Some(piece));
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(*trailers))));
        }
        let is_over = self.pooled.is_none() || self.framing.is_over();
        if is_over { Poll::Ready(None) } else { Poll::Pending }
    }

    /// The next piece of a large answer.
    fn cut(&mut self) -> Option<Result<Frame<Bytes>, Error>> {
        let mut piece = None;
        while !self.framing.is_over() && !self.raw.is_empty() {
            match self.framing.step(&self.raw) {
                Ok(Step::Frame(read)) => self.raw.advance(read),
                Ok(Step::Data(read)) => {
                    piece = Some(self.raw.split_to(read).freeze());
                    break;
                }
                Err(malformed) => {
                    self.fail(malformed.into());
                    return self.failed.take().map(Err);
                }
            }
        }
        if self.framing.is_over() {
            let more = std::mem::take(&mut self.raw);
            self.look_for_the_end(!more.is_empty());
        }
        piece.map(|piece| Ok(Frame::data(piece)))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) {
        let (Some(sending), Some(pooled)) = (&mut self.sending, &mut self.pooled) else {
            return;
        };
        match sending.poll(pooled.io(), cx) {
            Poll::Pending => return,
            Poll::Ready(Ok(())) => {}
            // It takes no more of the request, and may go on answering.
            Poll::Ready(Err(Error::Io(error))) => {
                tracing::debug!(%error, "an upstream did not take all of a request that it answers");
                pooled.ends();
            }
            Poll::Ready(Err(error)) => return self.fail(error),
        }
        self.sending = None;
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(pooled) = &mut self.pooled else {
            return Poll::Ready(());
        };
        if self.is_large {
            // What is left of a block is used first, if it holds enough.
            if self.raw.capacity() - self.raw.len() < AT_ONCE {
                self.raw.reserve(LARGE);
            }
            let read = pin!(pooled.io().read_buf(&mut self.raw)).poll(cx);
            if read.is_pending() {
                self.raw = BytesMut::new();
                self.is_large = false;
                return Poll::Pending;
            }
            match ready!(read) {
                Ok(0) => self.closed(),
                Ok(read) => self.is_large = read >= AT_ONCE,
                Err(error) => self.fail(Error::Io(error)),
            }
            return Poll::Ready(());
        }
        let mut room = [MaybeUninit::uninit(); AT_ONCE];
        let mut room = ReadBuf::uninit(&mut room);
        match ready!(Pin::new(pooled.io()).poll_read(cx, &mut room)) {
            Ok(()) if room.filled().is_empty() => self.closed(),
            Ok(()) => {
                self.is_large = room.remaining() == 0;
                self.take_in(room.filled());
            }
            Err(error) => self.fail(Error::Io(error)),
        }
        Poll::Ready(())
    }

    /// Nothing more comes.
    fn closed(&mut self) {
        match self.framing {
            Framing::UntilClose => {
                self.pooled = None;
                self.sending = None;
                self.framing = Framing::Length(0);
            }
            _ => self.fail(Error::CutOff),
        }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        this.poll_send(cx);
        loop {
            if let Poll::Ready(next) = this.next() {
                this.let_go();
                return Poll::Ready(next);
            }
            ready!(this.poll_read(cx));
        }
    }

    fn is_end_stream(&self) -> bool {
        let rest = self.failed.is_some() || self.trailers.is_some();
        self.pooled.is_none() && self.ready.is_empty() && !rest
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing.left() {
            Some(left) if !self.is_streamed => SizeHint::with_exact(left + self.ready.len() as u64),
            _ => SizeHint::default(),
        }
    }
}
