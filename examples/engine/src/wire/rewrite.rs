//! How does an answer go out that no HTTP library would send?
//!
//! What the library writes passes through here on its way to the socket, and is changed as faults want it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::time::{Sleep, sleep};

/// How one answer is changed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rewrite {
    /// Comes before it.
    pub(crate) prefix: Bytes,
    /// Comes in its place.
    pub(crate) instead: Option<Bytes>,
    /// Lines that follow the last chunk.
    pub(crate) trailers: Bytes,
    /// The head goes out byte by byte, with this time between two.
    pub(crate) drip_head: Option<Duration>,
}

impl Rewrite {
    /// Whether anything is to be changed.
    pub(crate) fn is_some(&self) -> bool {
        !self.prefix.is_empty()
            || self.instead.is_some()
            || !self.trailers.is_empty()
            || self.drip_head.is_some()
    }
}

/// The last chunk and the end of the trailers.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// An answer that is being changed.
#[derive(Debug)]
pub(crate) struct Rewriting {
    rewrite: Rewrite,
    begun: bool,
    ready: BytesMut,
    /// How much of the blank line after the head has gone out.
    matched: usize,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Rewriting {
    pub(crate) fn new(rewrite: Rewrite) -> Self {
        Self {
            rewrite,
            begun: false,
            ready: BytesMut::new(),
            matched: 0,
            timer: None,
        }
    }

    /// Takes what the library writes.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        if !std::mem::replace(&mut self.begun, true) {
            self.ready.extend_from_slice(&self.rewrite.prefix);
            if let Some(instead) = &self.rewrite.instead {
                self.ready.extend_from_slice(instead);
            }
        }
        if self.rewrite.instead.is_some() {
            return;
        }
        match bytes.strip_suffix(LAST_CHUNK) {
            Some(before) if !self.rewrite.trailers.is_empty() => {
                self.ready.extend_from_slice(before);
                self.ready.extend_from_slice(b"0\r\n");
                self.ready.extend_from_slice(&self.rewrite.trailers);
                self.ready.extend_from_slice(b"\r\n");
            }
            _ => self.ready.extend_from_slice(bytes),
        }
    }

    /// The bytes that may go out now; empty when all have. Pending between two that drip.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<&[u8]> {
        if let Some(timer) = &mut self.timer {
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.timer = None;
        }
        let drips = self.rewrite.drip_head.is_some() && self.matched < 4;
        let length = if drips {
            self.ready.len().min(1)
        } else {
            self.ready.len()
        };
        Poll::Ready(&self.ready[..length])
    }

    /// So many bytes have gone out.
    pub(crate) fn written(&mut self, length: usize) {
        if let Some(every) = self.rewrite.drip_head
            && self.matched < 4
            && let Some(byte) = self.ready.first()
        {
            let expected = b"\r\n\r\n"[self.matched];
            self.matched = match *byte {
                byte if byte == expected => self.matched + 1,
                b'\r' => 1,
                _ => 0,
            };
            self.timer = Some(Box::pin(sleep(every)));
        }
        self.ready.advance(length.min(self.ready.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(rewrite: Rewrite, writes: &[&[u8]]) -> String {
        let mut rewriting = Rewriting::new(rewrite);
        writes.iter().for_each(|bytes| rewriting.take(bytes));
        String::from_utf8(rewriting.ready.to_vec()).unwrap()
    }

    #[test]
    fn trailers_come_between_the_last_chunk_and_the_end() {
        let rewrite = Rewrite {
            trailers: Bytes::from_static(b"x: 1\r\n"),
            ..Rewrite::default()
        };
        let writes: [&[u8]; 2] = [b"HTTP/1.1 200 OK\r\n\r\n1\r\na\r\n", b"0\r\n\r\n"];
        let sent = pass(rewrite, &writes);
        assert_eq!(sent, "HTTP/1.1 200 OK\r\n\r\n1\r\na\r\n0\r\nx: 1\r\n\r\n");
    }

    #[test]
    fn what_comes_instead_comes_once() {
        let rewrite = Rewrite {
            prefix: Bytes::from_static(b"first "),
            instead: Some(Bytes::from_static(b"mine")),
            ..Rewrite::default()
        };
        assert_eq!(pass(rewrite, &[b"theirs", b"theirs"]), "first mine");
    }
}
