//! How does one connection stand, and how will it end?
//!
//! A [`Line`] is what the parts that serve one connection know together: how many requests it has carried,
//! since when it is idle, whether it must close. A [`Wire`] is the socket below, which can end with a reset
//! and can carry bytes that no HTTP library would send.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Line {
    state: Mutex<LineState>,
    changed: Notify,
}

#[derive(Debug)]
struct LineState {
    requests: u32,
    open_turns: u32,
    idle_since: Instant,
    close: bool,
    reset: bool,
    surplus: Bytes,
}

impl Line {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(LineState {
                requests: 0,
                open_turns: 0,
                idle_since: Instant::now(),
                close: false,
                reset: false,
                surplus: Bytes::new(),
            }),
            changed: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request; the connection is not idle while the turn lives.
    pub(crate) fn begin(self: &Arc<Self>) -> Turn {
        let mut state = self.state();
        state.requests = state.requests.saturating_add(1);
        state.open_turns += 1;
        let number = state.requests;
        drop(state);
        self.changed.notify_one();
        Turn {
            line: self.clone(),
            number,
            close_after: false,
        }
    }

    /// Makes the connection end with a reset instead of a clean close.
    pub(crate) fn reset_at_end(&self) {
        self.state().reset = true;
    }

    /// Sends these bytes behind the answer that is being written.
    pub(crate) fn send_surplus(&self, bytes: Bytes) {
        self.state().surplus = bytes;
    }

    /// Whether the connection must close once its answer is out.
    pub(crate) fn must_close(&self) -> bool {
        self.state().close
    }

    /// When an idle connection is to be closed; `None` while a request is open.
    pub(crate) fn idle_deadline(&self, keep_alive: Duration) -> Option<Instant> {
        let state = self.state();
        (state.open_turns == 0)
            .then(|| state.idle_since.checked_add(keep_alive))
            .flatten()
    }

    /// Waits until something about the connection has changed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// One request and its answer on a connection; dropped when the answer is over.
#[derive(Debug)]
pub(crate) struct Turn {
    line: Arc<Line>,
    /// The how manyth request of its connection this is, from 1.
    pub(crate) number: u32,
    close_after: bool,
}

impl Turn {
    pub(crate) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// Closes the connection after this answer, whatever its headers say.
    pub(crate) fn close_after(&mut self) {
        self.close_after = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.line.state();
        state.open_turns = state.open_turns.saturating_sub(1);
        state.idle_since = Instant::now();
        state.close |= self.close_after;
        drop(state);
        self.line.changed.notify_one();
    }
}

/// The socket of a connection.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: TcpStream,
    line: Arc<Line>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, line: Arc<Line>) -> Self {
        Self { stream, line }
    }

    /// Writes what was left over after an answer.
    fn poll_surplus(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let pending = self.line.state().surplus.clone();
            if pending.is_empty() {
                return Poll::Ready(Ok(()));
            }
            match Pin::new(&mut self.stream).poll_write(cx, &pending) {
                Poll::Ready(Ok(written)) => self.line.state().surplus.advance(written.min(pending.len())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.line.state().reset {
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
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.poll_surplus(cx) {
            Poll::Ready(Ok(())) => Pin::new(&mut self.stream).poll_flush(cx),
            other => other,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
