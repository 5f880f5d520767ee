//! What is below HTTP?
//!
//! A [`Wire`] is the socket of a connection. It can end with a reset and can carry bytes that no HTTP library would send.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::line::Line;
use super::rewrite::Rewriting;

/// The socket of a connection.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    line: Arc<Line>,
    rewriting: Option<Rewriting>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, line: Arc<Line>) -> Self {
        Self {
            stream,
            line,
            rewriting: None,
        }
    }

    /// Writes what a rewritten answer has ready.
    fn poll_rewritten(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(rewriting) = &mut self.rewriting else {
            return Poll::Ready(Ok(()));
        };
        loop {
            let bytes = ready!(rewriting.poll_ready(cx));
            if bytes.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
            rewriting.written(written);
        }
    }

    /// Writes what was left over after an answer.
    fn poll_surplus(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let pending = self.line.surplus();
            if pending.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &pending))?;
            self.line.surplus_written(written);
        }
    }

    fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_rewritten(cx))?;
        self.poll_surplus(cx)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.line.ends_with_reset() {
            // Where the socket is already gone there is nothing left to reset.
            self.stream.set_zero_linger().ok();
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(next) = self.line.begin_rewriting() {
            self.rewriting = Some(next);
        }
        ready!(self.poll_rewritten(cx))?;
        match &mut self.rewriting {
            Some(rewriting) => {
                rewriting.take(bytes);
                Poll::Ready(Ok(bytes.len()))
            }
            None => Pin::new(&mut self.stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_left(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_left(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(next) = self.line.begin_rewriting() {
            self.rewriting = Some(next);
        }
        if self.rewriting.is_none() {
            return Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        }
        let first = slices.iter().find(|slice| !slice.is_empty());
        self.poll_write(cx, first.map_or(&[], |slice| slice))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
