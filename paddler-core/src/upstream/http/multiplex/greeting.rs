//! Has the upstream answered in HTTP/2, and how many bytes has it brought?
//!
//! The first that a server says is its settings, and the first that a client writes after that is that it has taken them
//! over.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::super::dial::Io;

/// Says how the upstream has answered, once it has.
pub(super) type Greeted = oneshot::Receiver<io::Result<()>>;

/// A connection that counts what is read from it, and whose first words are listened to.
pub(super) struct Greeting {
    io: Box<dyn Io>,
    read: Arc<AtomicU64>,
    heard: bool,
    tell: Option<oneshot::Sender<io::Result<()>>>,
}

/// What stands in a frame's head for settings.
const SETTINGS: u8 = 4;

impl Greeting {
    pub(super) fn new(io: Box<dyn Io>, read: Arc<AtomicU64>) -> (Self, Greeted) {
        let (tell, greeted) = oneshot::channel();
        let tell = Some(tell);
        let greeting = Self {
            io,
            read,
            heard: false,
            tell,
        };
        (greeting, greeted)
    }

    fn tell(&mut self, how: io::Result<()>) {
        // Nobody may wait any more.
        if let Some(Err(_)) = self.tell.take().map(|tell| tell.send(how)) {
            tracing::trace!("nobody waits for this connection");
        }
    }

    fn hear(&mut self, result: &Poll<io::Result<()>>, read: &[u8]) {
        match result {
            Poll::Ready(Err(error)) => {
                let how = super::super::words_of(error).unwrap_or_else(|| error.to_string());
                self.tell(Err(io::Error::new(error.kind(), how)));
            }
            Poll::Ready(Ok(())) if !read.is_empty() => {
                self.heard = true;
                if read.get(3).is_some_and(|kind| *kind != SETTINGS) {
                    let kind = io::ErrorKind::InvalidData;
                    self.tell(Err(io::Error::new(
                        kind,
                        "it does not speak HTTP/2: leave `http2` at auto",
                    )));
                }
            }
            _ => {}
        }
    }
}

impl AsyncRead for Greeting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.io).poll_read(cx, buf);
        self.read.fetch_add((buf.filled().len() - before) as u64, Relaxed);
        if self.tell.is_some() && !self.heard {
            self.hear(&result, &buf.filled()[before..]);
        }
        result
    }
}

impl AsyncWrite for Greeting {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.heard {
            self.tell(Ok(()));
        }
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.heard {
            self.tell(Ok(()));
        }
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
