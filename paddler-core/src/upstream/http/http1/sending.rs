//! How does a request get onto a connection?
//!
//! The head with the first piece of the body in one write, and each piece after it as it comes. A body that is here as a whole, as
//! most are, goes many pieces at a time: each write of its own would wake the engine.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use http_body::Body as _;

use super::Error;
use super::request::{self, Coding};
use crate::forward::{Body, BoxError};
use crate::upstream::http::dial::Io;
use crate::upstream::http::outbound::Outbound;

/// A request on its way.
pub(super) struct Sending {
    /// What is to be written next: the head, a chunk's length, a piece of the body, and what ends it.
    next: [Bytes; 4],
    /// And after that, where the body is here as a whole.
    held: VecDeque<Bytes>,
    body: Body,
    coding: Coding,
    /// The body has come to its end.
    ended: bool,
}

// The head is the first.
const LENGTH: usize = 1;
const DATA: usize = 2;
const END: usize = 3;

/// How many pieces are written at once.
const PIECES: usize = 16;

impl Sending {
    pub(super) fn new(request: &Outbound<'_>, mut body: Body) -> Result<Self, BoxError> {
        let (head, coding) = request::write(request, &body)?;
        // One piece goes with the head in any case.
        let held = match coding {
            Coding::Length(announced) => body.take_held(announced),
            Coding::Chunked => None,
        };
        Ok(Self {
            next: [Bytes::from(head), Bytes::new(), Bytes::new(), Bytes::new()],
            ended: held.is_some(),
            held: held.unwrap_or_default(),
            body,
            coding,
        })
    }

    /// Ready once all of it has been taken.
    pub(super) fn poll(&mut self, io: &mut dyn Io, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            let is_spent = self.next[LENGTH..].iter().all(Bytes::is_empty);
            let waits = is_spent && !self.ended && self.poll_body(cx)?.is_pending();
            if self.next.iter().all(Bytes::is_empty) && self.held.is_empty() {
                if self.ended || waits {
                    ready!(Pin::new(&mut *io).poll_flush(cx)).map_err(Error::Io)?;
                }
                if self.ended {
                    return Poll::Ready(Ok(()));
                }
                if waits {
                    return Poll::Pending;
                }
            } else {
                ready!(self.poll_write(io, cx)).map_err(Error::Io)?;
            }
        }
    }

    fn poll_write(&mut self, io: &mut dyn Io, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut slices = [IoSlice::new(&[]); PIECES];
        let mut parts = self.next.iter().chain(&self.held).filter(|part| !part.is_empty());
        let mut count = 0;
        for (slice, part) in slices.iter_mut().zip(&mut parts) {
            *slice = IoSlice::new(part);
            count += 1;
        }
        let written = if io.is_write_vectored() {
            ready!(Pin::new(io).poll_write_vectored(cx, &slices[..count]))?
        } else {
            ready!(Pin::new(io).poll_write(cx, &slices[0]))?
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.take_away(written);
        Poll::Ready(Ok(()))
    }

    /// Lets go of what has been written: it may hold what others wait for.
    fn take_away(&mut self, mut written: usize) {
        for part in &mut self.next {
            let of_it = written.min(part.len());
            part.advance(of_it);
            written -= of_it;
            if part.is_empty() {
                *part = Bytes::new();
            }
        }
        while let Some(first) = self.held.front_mut() {
            let of_it = written.min(first.len());
            first.advance(of_it);
            written -= of_it;
            if !first.is_empty() {
                return;
            }
            self.held.pop_front();
        }
    }

    /// Fetches the next piece of the body, or its end.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Error> {
        let broken = |why: &'static str| Error::Request(why.into());
        // Where the body does not say that it is over, there may be more of it than was announced.
        if self.coding == Coding::Length(0) && self.body.is_end_stream() {
            self.ended = true;
            return Ok(Poll::Ready(()));
        }
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(frame) => frame.transpose().map_err(Error::Request)?,
        };
        let Some(frame) = frame else {
            match self.coding {
                Coding::Length(0) => self.ended = true,
                Coding::Length(_) => return Err(broken("it is shorter than was announced")),
                Coding::Chunked => self.end(&HeaderMap::new()),
            }
            return Ok(Poll::Ready(()));
        };
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => {
                // Where its length was told, there is no place for them.
                if let (Ok(trailers), Coding::Chunked) = (frame.into_trailers(), self.coding) {
                    self.end(&trailers);
                }
                return Ok(Poll::Ready(()));
            }
        };
        match &mut self.coding {
            Coding::Length(left) => {
                let rest = left.checked_sub(data.len() as u64);
                *left = rest.ok_or_else(|| broken("it is longer than was announced"))?;
            }
            // One of length 0 would be the last.
            Coding::Chunked if data.is_empty() => {}
            Coding::Chunked => {
                self.next[LENGTH] = Bytes::from(format!("{:x}\r\n", data.len()));
                self.next[END] = Bytes::from_static(b"\r\n");
            }
        }
        self.next[DATA] = data;
        Ok(Poll::Ready(()))
    }

    /// The last chunk, with trailers.
    fn end(&mut self, trailers: &HeaderMap) {
        let mut end = b"0\r\n".to_vec();
        for (name, value) in trailers {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                end.extend_from_slice(part);
            }
        }
        end.extend_from_slice(b"\r\n");
        self.next[END] = end.into();
        self.ended = true;
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::task::Waker;

    use http::header::CONTENT_LENGTH;
    use http::{Method, Uri};
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::*;

    /// Takes at most so many bytes at once.
    struct Taker {
        most: usize,
        vectored: bool,
        writes: usize,
        taken: Vec<u8>,
    }

    impl AsyncRead for Taker {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Taker {
        fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            let taken = bytes.len().min(self.most);
            self.taken.extend_from_slice(&bytes[..taken]);
            self.writes += 1;
            Poll::Ready(Ok(taken))
        }

        fn is_write_vectored(&self) -> bool {
            self.vectored
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn sending(headers: &HeaderMap, body: Body) -> Sending {
        let uri = Uri::from_static("/");
        let request = Outbound::new(&Method::POST, &uri, Cow::Borrowed(headers));
        Sending::new(&request, body).unwrap()
    }

    /// Sends these pieces, and says in how many writes.
    fn sent(pieces: &[Bytes], most: usize, vectored: bool) -> (Vec<u8>, usize) {
        let mut sending = sending(&HeaderMap::new(), Body::chunks(pieces.to_vec()));
        let mut taker = Taker {
            most,
            vectored,
            writes: 0,
            taken: Vec::new(),
        };
        let mut cx = Context::from_waker(Waker::noop());
        assert!(matches!(sending.poll(&mut taker, &mut cx), Poll::Ready(Ok(()))));
        (taker.taken, taker.writes)
    }

    #[test]
    fn a_body_that_is_held_goes_as_it_is_whatever_is_taken_at_once() {
        let pieces: Vec<Bytes> = (0..40_u8)
            .map(|piece| vec![piece; 1 + usize::from(piece)].into())
            .collect();
        let (whole, writes) = sent(&pieces, usize::MAX, true);
        // The head is a piece, too.
        assert_eq!(writes, 41_usize.div_ceil(PIECES));
        assert!(whole.ends_with(&pieces.concat()));
        assert!(whole.starts_with(b"POST / HTTP/1.1\r\n"));
        assert_eq!(sent(&pieces, usize::MAX, false), (whole.clone(), 41));
        for most in [1, 2, 7, 40, 41, 100, whole.len() - 1] {
            assert_eq!(sent(&pieces, most, true).0, whole, "{most}");
            assert_eq!(sent(&pieces, most, false).0, whole, "{most}");
        }
    }

    #[test]
    fn a_body_that_is_not_as_long_as_announced_is_not_sent_as_if_it_were() {
        for (announced, why) in [("2", "longer"), ("4", "shorter")] {
            let announced_length = HeaderMap::from_iter([(CONTENT_LENGTH, announced.parse().unwrap())]);
            let mut sending = sending(&announced_length, Body::full("abc"));
            let mut taker = Taker {
                most: usize::MAX,
                vectored: true,
                writes: 0,
                taken: Vec::new(),
            };
            let result = sending.poll(&mut taker, &mut Context::from_waker(Waker::noop()));
            let Poll::Ready(Err(Error::Request(error))) = result else {
                panic!("{announced} was sent");
            };
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
