//! How are bytes read again that were read too early?

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream whose first bytes are read again.
pub(crate) struct Again<I> {
    unread: Bytes,
    /// What went wrong behind them.
    failed: Option<io::Error>,
    io: I,
}

impl<I> Again<I> {
    /// The stream out of which these bytes were read.
    pub(crate) fn new(unread: Bytes, io: I) -> Self {
        Self {
            unread,
            failed: None,
            io,
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Again<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(error) = this.failed.take() {
            return Poll::Ready(Err(error));
        }
        if this.unread.is_empty() {
            return Pin::new(&mut this.io).poll_read(cx, buf);
        }
        let taken = this.unread.len().min(buf.remaining());
        buf.put_slice(&this.unread[..taken]);
        this.unread.advance(taken);
        if !this.unread.is_empty() {
            return Poll::Ready(Ok(()));
        }
        this.unread = Bytes::new();
        // In the same read as what follows: hyper doubles the buffer of a head that comes in two, and keeps it.
        if buf.remaining() > 0
            && let Poll::Ready(Err(error)) = Pin::new(&mut this.io).poll_read(cx, buf)
        {
            this.failed = Some(error);
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Again<I> {
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
