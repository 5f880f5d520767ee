//! What does a client do besides sending a request and reading its answer?
//!
//! It may take nothing, hang up, or be still sending when it has been answered. hyper sees some of that by itself; here is
//! what it does not see.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Version;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Sleep, sleep, timeout};

use super::accept::{Connection, Io, Kind};
use super::lane::Lane;
use super::woken::Woken;

/// How often a client is looked at where the system does not tell by itself that it has hung up, or tells too much.
const LOOK: Duration = Duration::from_millis(250);

/// How long what a client is still sending is taken after it was answered: if its bytes were met by a closed socket, the
/// answer could be lost on the way.
const LINGER: Duration = Duration::from_secs(1);

/// A client's line: its connection, seen from beside the one who serves it.
pub(super) struct Line {
    wire: Wire,
    /// Its last request was HTTP/1.0, where an answer without a length ends when the connection does.
    is_old: AtomicBool,
    /// Its last answer said that the connection ends with it, perhaps before all of the request was read.
    closes: AtomicBool,
    /// It is to end with an error.
    breaks_off: AtomicBool,
    /// How long the client may take nothing.
    pub(super) idle: Duration,
    /// What goes past the one who serves it.
    pub(super) lane: Lane,
}

/// What the bytes go over.
enum Wire {
    Tcp(OwnedReadHalf),
    /// Whoever serves it and whoever lingers on it, in turn.
    Other(Mutex<Box<dyn Io>>),
}

impl Wire {
    fn lock(other: &Mutex<Box<dyn Io>>) -> MutexGuard<'_, Box<dyn Io>> {
        other.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// The connection, and its stream for the one who serves it, which breaks when the client takes nothing for `idle`.
    pub(super) fn new(connection: Connection, idle: Duration) -> (Arc<Self>, LineIo) {
        let (wire, closer) = match connection.0 {
            Kind::Tcp(stream) => {
                let (reads, closer) = stream.into_split();
                (Wire::Tcp(reads), Some(closer))
            }
            Kind::Other(stream) => (Wire::Other(Mutex::new(stream)), None),
        };
        let line = Arc::new(Self {
            wire,
            is_old: AtomicBool::new(false),
            closes: AtomicBool::new(false),
            breaks_off: AtomicBool::new(false),
            idle,
            lane: Lane::default(),
        });
        let io = LineIo {
            line: line.clone(),
            closer,
            stall: Stall::default(),
            reads: Woken::new(),
        };
        (line, io)
    }

    /// Notes a request and what it speaks.
    pub(super) fn asked(&self, version: Version) {
        self.is_old.store(version < Version::HTTP_11, Relaxed);
    }

    /// Whether its last request was HTTP/1.0.
    pub(super) fn is_old(&self) -> bool {
        self.is_old.load(Relaxed)
    }

    /// The stream, where it is one of TCP.
    pub(super) fn tcp(&self) -> Option<&TcpStream> {
        match &self.wire {
            Wire::Tcp(half) => Some(half.as_ref()),
            Wire::Other(_) => None,
        }
    }

    /// Notes an answer and whether it says that the connection ends.
    pub(super) fn answered(&self, closes: bool) {
        self.closes.store(closes, Relaxed);
    }

    pub(super) fn was_told_to_close(&self) -> bool {
        self.closes.load(Relaxed)
    }

    /// Whether [`hung_up`](Self::hung_up) hears of each hang-up at once, so that nobody has to read ahead for it: the system tells of
    /// it, and the end of the stream is the end of what is spoken over it.
    pub(super) fn tells_hang_up(&self, in_clear: bool) -> bool {
        in_clear && self.tcp().is_some() && cfg!(any(target_os = "linux", target_os = "android"))
    }

    /// Ready once the client has hung up. Where that is not told, hyper reads ahead to see it, but not while bytes of a next request lie
    /// unread.
    pub(super) async fn hung_up(&self) {
        let Wire::Tcp(stream) = &self.wire else {
            return std::future::pending().await;
        };
        loop {
            match stream.ready(hang_up()).await {
                Ok(ready) if !ready.is_read_closed() => {}
                // Whoever reads or writes is told what is wrong.
                Ok(_) | Err(_) => return,
            }
            sleep(LOOK).await;
        }
    }

    /// Whether the client has sent what nobody reads any more, such as a next request behind its last.
    pub(super) fn has_unread(&self) -> bool {
        self.tcp()
            .is_some_and(|stream| stream.try_read(&mut [0]).is_ok_and(|bytes| bytes > 0))
    }

    /// An answer was cut short: makes the end of the connection an error where a plain end would say that it is whole.
    pub(super) fn break_off(&self) {
        if let (true, Some(stream)) = (self.is_old(), self.tcp()) {
            match stream.set_zero_linger() {
                Ok(()) => self.breaks_off.store(true, Relaxed),
                Err(error) => tracing::debug!(%error, "an answer that was cut short ends like a whole one"),
            }
        }
    }

    /// Takes what the client is still sending, for a while, so that it can read its answer.
    pub(super) async fn linger(&self) {
        let mut unread = vec![0; 16 * 1024];
        let to_its_end = async { while matches!((&*self).read(&mut unread).await, Ok(1..)) {} };
        // If it sends for longer than that, its answer may be lost.
        if timeout(LINGER, to_its_end).await.is_err() {
            tracing::debug!("a client was still sending when its connection was closed");
        }
    }
}

/// What tells a hang-up and nothing else.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn hang_up() -> Interest {
    // Priority data is never asked of the system, but a closed end belongs to this interest, and what can be read does not.
    Interest::PRIORITY
}

/// What tells a hang-up, among other things.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn hang_up() -> Interest {
    Interest::READABLE
}

impl AsyncRead for &Line {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = match &self.wire {
            Wire::Tcp(half) => half.as_ref(),
            Wire::Other(stream) => return Pin::new(&mut **Wire::lock(stream)).poll_read(cx, buf),
        };
        loop {
            ready!(stream.poll_read_ready(cx))?;
            match read_all(stream, buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(result),
            }
        }
    }
}

/// Whether what has been read was all there was, if there was room for more: where the system tells each arrival anew.
const SHORT_IS_ALL: bool = cfg!(any(
    target_os = "linux",
    target_os = "android",
    target_os = "macos"
));

/// Reads what is there, and saves itself the call that would only tell that nothing more is.
fn read_all(stream: &TcpStream, buf: &mut ReadBuf<'_>) -> io::Result<()> {
    let (room, mut has_read) = (buf.remaining(), false);
    // What arrives after this has begun is not forgotten by an error.
    let result = stream.try_io(Interest::READABLE, || {
        let bytes = stream.try_read_buf(buf)?;
        has_read = true;
        if SHORT_IS_ALL && (1..room).contains(&bytes) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(())
    });
    if has_read { Ok(()) } else { result }
}

/// A client's stream, which breaks when the client takes nothing for too long.
pub(super) struct LineIo {
    line: Arc<Line>,
    /// What closes our direction of a TCP stream, at the latest when it is dropped.
    closer: Option<OwnedWriteHalf>,
    stall: Stall,
    /// hyper looks for a hang-up with each piece that it writes.
    reads: Woken,
}

impl LineIo {
    /// Writes, if the client takes it, and waits no longer than it may.
    fn poll_io<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(&mut Context<'_>, Pin<&mut dyn Io>) -> Poll<io::Result<T>>,
        write_tcp: impl FnOnce(&mut Context<'_>, &TcpStream) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let result = match &self.line.wire {
            Wire::Tcp(half) => write_tcp(cx, half.as_ref()),
            Wire::Other(stream) => write(cx, Pin::new(&mut **Wire::lock(stream))),
        };
        self.stall.poll(cx, self.line.idle, result)
    }

    /// Notes whether the line took all that was to be written.
    fn wrote(&self, written: &Poll<io::Result<usize>>, of: usize) {
        let all = matches!(written, Poll::Ready(Ok(taken)) if *taken == of);
        self.line.lane.wrote(all);
    }
}

/// Since when a client has taken nothing.
#[derive(Default)]
pub(super) struct Stall(Option<Pin<Box<Sleep>>>);

impl Stall {
    /// What a write has come to, or that the client has taken nothing for too long.
    pub(super) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        idle: Duration,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.0 = None;
            return written;
        }
        let stalled = self.0.get_or_insert_with(|| Box::pin(sleep(idle)));
        ready!(stalled.as_mut().poll(cx));
        let message = "the client took nothing for too long";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

/// Writes once that is possible.
pub(super) fn poll_tcp(
    cx: &mut Context<'_>,
    stream: &TcpStream,
    write: impl Fn(&TcpStream) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(cx))?;
        match write(stream) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result),
        }
    }
}

impl Drop for LineIo {
    fn drop(&mut self) {
        if self.line.breaks_off.load(Relaxed)
            && let Some(closer) = self.closer.take()
        {
            // Or the client would see a plain end before the error.
            closer.forget();
        }
    }
}

impl AsyncRead for LineIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { line, reads, .. } = &mut *self;
        reads.poll(cx, |cx| Pin::new(&mut &**line).poll_read(cx, buf))
    }
}

impl AsyncWrite for LineIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.poll_io(
            cx,
            |cx, io| io.poll_write(cx, buf),
            |cx, tcp| poll_tcp(cx, tcp, |tcp| tcp.try_write(buf)),
        );
        self.wrote(&written, buf.len());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.poll_io(
            cx,
            |cx, io| io.poll_write_vectored(cx, bufs),
            |cx, tcp| poll_tcp(cx, tcp, |tcp| tcp.try_write_vectored(bufs)),
        );
        self.wrote(&written, bufs.iter().map(|buf| buf.len()).sum());
        written
    }

    fn is_write_vectored(&self) -> bool {
        match &self.line.wire {
            Wire::Tcp(_) => true,
            Wire::Other(stream) => Wire::lock(stream).is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper (1.12) asks for this only once it has written all that it has. Should another version ask before, the lane stays
        // closed for as long as the line is behind.
        self.line.lane.wrote_all();
        self.poll_io(cx, |cx, io| io.poll_flush(cx), |_, _| Poll::Ready(Ok(())))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(closer) = &mut self.closer {
            return Pin::new(closer).poll_shutdown(cx);
        }
        self.poll_io(cx, |cx, io| io.poll_shutdown(cx), |_, _| Poll::Ready(Ok(())))
    }
}
