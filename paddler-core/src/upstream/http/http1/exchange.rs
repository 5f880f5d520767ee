//! How does a request come to its answer?
//!
//! The answer is listened for while the request is still being written: an upstream may refuse it by its head alone. What
//! is left to write then goes on beside the answer's body.

#[cfg(test)]
mod tests;

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{Method, Response, StatusCode};
use hyper::ext::ReasonPhrase;
use tokio::io::ReadBuf;

use super::answer::Answer;
use super::framing::Framing;
use super::head::{self, Head};
use super::lines::Lines;
use super::sending::Sending;
use super::{AT_ONCE, Error};
use crate::forward::{Again, Body, lists};
use crate::upstream::http::outbound::Outbound;
use crate::upstream::http::pool::Pooled;
use crate::upstream::http::spare;
use crate::upstream::transport::Upgraded;

/// The most answers before the answer (1xx): they cost time, and each starts it anew.
const MOST_INTERIM: u8 = 16;

/// A request that came to no answer.
#[derive(Debug)]
pub(in super::super) struct Broken {
    pub(in super::super) error: Error,
    /// A byte came back.
    pub(in super::super) answered: bool,
}

/// A request that waits for its answer.
pub(in super::super) struct Exchange {
    /// Until the answer has it.
    pooled: Option<Pooled>,
    /// Until all of the request has been taken.
    sending: Option<Sending>,
    /// Why the rest of it was not.
    unsent: Option<io::Error>,
    method: Method,
    has_body: bool,
    /// It asks for another protocol.
    upgrade: bool,
    /// It says that the connection ends with it.
    closes: bool,
    /// Its answer is taken at once.
    at_once: bool,
    /// A head of which the end is missing.
    partial: Vec<u8>,
    lines: Lines,
    interim: u8,
    answered: bool,
}

impl Exchange {
    /// A request that is to be sent over a connection of which it is known that nothing has come yet. Dropped, it closes the
    /// connection.
    pub(in super::super) fn begin(
        pooled: Pooled,
        request: &Outbound<'_>,
        body: Body,
    ) -> Result<Self, Broken> {
        let has_body = !http_body::Body::is_end_stream(&body);
        let sending = Sending::new(request, body).map_err(|error| Broken {
            error: Error::Request(error),
            answered: false,
        })?;
        Ok(Self {
            pooled: Some(pooled),
            sending: Some(sending),
            unsent: None,
            has_body,
            upgrade: request.headers.contains_key(UPGRADE),
            closes: lists(&request.headers, &CONNECTION, "close"),
            at_once: request.at_once,
            method: request.method.clone(),
            partial: Vec::new(),
            lines: Lines::default(),
            interim: 0,
            answered: false,
        })
    }

    /// What became of it, which has failed so.
    pub(in super::super) fn broken(&self, error: Error) -> Broken {
        Broken {
            error,
            answered: self.answered,
        }
    }

    /// Ready once the head of the answer is here.
    pub(in super::super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<Body>, Error>> {
        loop {
            self.poll_send(cx)?;
            let Some(pooled) = &mut self.pooled else {
                return Poll::Ready(Err(Error::Closed));
            };
            let mut room = [MaybeUninit::uninit(); AT_ONCE];
            let mut room = ReadBuf::uninit(&mut room);
            ready!(Pin::new(pooled.io()).poll_read(cx, &mut room)).map_err(Error::Io)?;
            if room.filled().is_empty() {
                let closed = if self.answered {
                    Error::CutOff
                } else {
                    Error::Closed
                };
                let error = self.unsent.take().map_or(closed, Error::Io);
                return Poll::Ready(Err(error));
            }
            self.answered = true;
            if let Some(response) = self.hear(room.filled())? {
                return Poll::Ready(Ok(response));
            }
        }
    }

    /// Writes what can be written. Where it is not taken there may be an answer all the same, which says why.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        let (Some(sending), Some(pooled)) = (&mut self.sending, &mut self.pooled) else {
            return Ok(());
        };
        match sending.poll(pooled.io(), cx) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(Error::Io(error))) => {
                self.unsent = Some(error);
                pooled.ends();
            }
            Poll::Ready(Err(error)) => return Err(error),
        }
        self.sending = None;
        Ok(())
    }

    /// Takes in what has come.
    fn hear(&mut self, new: &[u8]) -> Result<Option<Response<Body>>, Error> {
        let mut all = std::mem::take(&mut self.partial);
        let bytes = if all.is_empty() {
            new
        } else {
            all.extend_from_slice(new);
            &all
        };
        let mut read = 0;
        while let Some((head, length)) = self.head(&bytes[read..])? {
            read += length;
            if !is_interim(head.status) {
                return self.answer(head, &bytes[read..]).map(Some);
            }
            self.interim += 1;
            if self.interim > MOST_INTERIM {
                return Err(Error::Malformed("answers of 1xx, and no other".into()));
            }
        }
        self.partial = if all.is_empty() {
            new[read..].to_vec()
        } else {
            all.drain(..read);
            all
        };
        Ok(None)
    }

    /// The next head, if it is whole, and how long it is.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<(Head, usize)>, Error> {
        if !head::may_begin(bytes) {
            return Err(match self.interim {
                0 => Error::NotHttp,
                _ => Error::Malformed("what follows an answer of 1xx is none".into()),
            });
        }
        let Some(end) = self.lines.end(bytes)? else {
            return Ok(None);
        };
        let lines = std::mem::take(&mut self.lines);
        Ok(Some((
            head::read(&bytes[..end], lines.count(), spare::take())?,
            end,
        )))
    }

    /// The answer, of whose body so much has come.
    fn answer(&mut self, head: Head, bytes: &[u8]) -> Result<Response<Body>, Error> {
        let (framing, goes_on) = Framing::of(&head, &self.method)?;
        let Some(mut pooled) = self.pooled.take() else {
            return Err(Error::Closed);
        };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = head.status;
        *response.version_mut() = head.version;
        *response.headers_mut() = head.headers;
        if let Some(reason) = head.reason.and_then(|reason| ReasonPhrase::try_from(reason).ok()) {
            response.extensions_mut().insert(reason);
        }
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            if !self.upgrade {
                return Err(Error::Malformed("it switches to another protocol unasked".into()));
            }
            if self.sending.is_some() {
                let why = "it switches to another protocol before it has the whole request";
                return Err(Error::Malformed(why.into()));
            }
            let io = Again::new(Bytes::copy_from_slice(bytes), pooled.into_io());
            response.extensions_mut().insert(Upgraded::new(io));
            return Ok(response);
        }
        // An error may have been answered from the head alone: then the body would be read as the next request.
        if !goes_on || self.closes || (self.has_body && head.status.as_u16() >= 400) {
            pooled.ends();
        }
        *response.body_mut() = match framing.whole(bytes).filter(|_| self.at_once) {
            Some((whole, more)) => {
                pooled.is_answered(more, self.sending.is_some());
                pooled.put(false);
                Body::full(Bytes::copy_from_slice(whole))
            }
            None => Body::new(Answer::new(pooled, self.sending.take(), framing, bytes)),
        };
        Ok(response)
    }
}

fn is_interim(status: StatusCode) -> bool {
    status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS
}
