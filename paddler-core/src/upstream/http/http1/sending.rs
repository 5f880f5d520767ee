//! How does a request get onto a connection?
//!
//! The head with the first piece of the body in one write, and each piece after it as it comes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, Request};
use http_body::Body as _;

use super::Error;
use super::request::{self, Coding};
use crate::forward::{Body, BoxError};
use crate::upstream::http::dial::Io;

/// A request on its way.
pub(super) struct Sending {
    /// What is to be written next: the head, a chunk's length, a piece of the body, and what ends it.
    next: [Bytes; 4],
    body: Body,
    coding: Coding,
    /// The body has come to its end.
    ended: bool,
}

// The head is the first.
const LENGTH: usize = 1;
const DATA: usize = 2;
const END: usize = 3;

impl Sending {
    /// Takes the body out of the request.
    pub(super) fn new(request: &mut Request<Body>) -> Result<Self, BoxError> {
        let (head, coding) = request::write(request)?;
        Ok(Self {
            next: [Bytes::from(head), Bytes::new(), Bytes::new(), Bytes::new()],
            body: std::mem::take(request.body_mut()),
            coding,
            ended: false,
        })
    }

    /// Ready once all of it has been taken.
    pub(super) fn poll(&mut self, io: &mut dyn Io, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        loop {
            let is_spent = self.next[LENGTH..].iter().all(Bytes::is_empty);
            let waits = is_spent && !self.ended && self.poll_body(cx)?.is_pending();
            if self.next.iter().all(Bytes::is_empty) {
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
        let slices: [IoSlice<'_>; 4] = std::array::from_fn(|part| IoSlice::new(&self.next[part]));
        let mut written = if io.is_write_vectored() {
            ready!(Pin::new(io).poll_write_vectored(cx, &slices))?
        } else {
            let first = self.next.iter().find(|part| !part.is_empty());
            ready!(Pin::new(io).poll_write(cx, first.map_or(&[], |first| &first[..])))?
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        for part in &mut self.next {
            let of_it = written.min(part.len());
            part.advance(of_it);
            written -= of_it;
            if part.is_empty() {
                // It may hold what others wait for.
                *part = Bytes::new();
            }
        }
        Poll::Ready(Ok(()))
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
