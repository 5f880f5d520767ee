//! What becomes of a client that speaks plain HTTP where TLS is spoken?
//!
//! Its first bytes give it away, since no record of TLS begins with a letter. It gets an answer that it can read and that says
//! what to write; left to TLS it would get an alert, which most clients show as noise.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

/// What requests begin with. HTTP/2 without TLS begins with the last one.
const METHODS: [&[u8]; 10] = [
    b"GET ",
    b"POST ",
    b"PUT ",
    b"HEAD ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
    b"PRI ",
];

const ANSWER: &str = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 36\r\n\
                      connection: close\r\n\r\nthis port speaks TLS: use https://\r\n";

/// The client speaks plain HTTP.
#[derive(Debug)]
struct PlainHttp;

impl fmt::Display for PlainHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it speaks plain HTTP: its url should begin with https://")
    }
}

impl Error for PlainHttp {}

/// Whether an error is that of a client that speaks plain HTTP.
pub(in crate::forward) fn is_plain(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<PlainHttp>())
}

/// Answers such a client. What else it sends is not read.
pub(super) async fn answer(mut io: impl AsyncWrite + Unpin) -> io::Result<()> {
    io.write_all(ANSWER.as_bytes()).await?;
    io.shutdown().await
}

/// A stream that fails when plain HTTP is the first that is read from it.
#[derive(Debug)]
pub(in crate::forward) struct NoPlain<I> {
    io: I,
    is_first: bool,
}

impl<I> NoPlain<I> {
    pub(super) fn new(io: I) -> Self {
        Self { io, is_first: true }
    }
}

/// As far as it goes: a first piece may end anywhere.
fn begins_request(bytes: &[u8]) -> bool {
    let begins = |method: &[u8]| {
        let length = bytes.len().min(method.len());
        bytes[..length] == method[..length]
    };
    !bytes.is_empty() && METHODS.into_iter().any(begins)
}

impl<I: AsyncRead + Unpin> AsyncRead for NoPlain<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buf);
        if self.is_first && read.is_ready() {
            self.is_first = false;
            if begins_request(&buf.filled()[before..]) {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, PlainHttp)));
            }
        }
        read
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for NoPlain<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_has_the_length_that_it_says() {
        let (head, body) = ANSWER.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{}",
            body.len()
        );
    }

    #[test]
    fn requests_are_told_from_records_of_tls_by_their_first_bytes() {
        for plain in [
            "G",
            "GET",
            "GET / HTTP/1.1\r\n",
            "POST /v1",
            "PRI * HTTP/2.0",
            "P",
        ] {
            assert!(begins_request(plain.as_bytes()), "{plain}");
        }
        for other in [&b""[..], b"\x16\x03\x01\x02", b"GETS", b"SSH-2.0", b"get / "] {
            assert!(!begins_request(other), "{other:?}");
        }
    }
}
