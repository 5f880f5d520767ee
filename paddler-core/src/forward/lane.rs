//! How does an event of a stream get to its client, past the server that has written the head of its answer?
//!
//! Half of an event's work was hyper's, which lays out as for large bodies what is one small write. Once it has written all that
//! it had of an answer in chunks, and waits for more, small pieces go straight onto the line, as the chunks that it would have
//! made of them. All else is left to it: a large piece, trailers, the end, an error. It misses nothing, since each chunk stands
//! by itself.

use std::future::{Future, poll_fn};
use std::io;
use std::mem::{MaybeUninit, take};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http::{Response, Version};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::ReadBuf;
use tokio::net::TcpStream;

use super::body::{Body, BoxError};
use super::line::{Line, Stall, poll_tcp};
use super::woken::Woken;

/// The largest piece that goes past the server, in bytes: it is copied, to be written in one go with what stands around it.
const SMALL: usize = 2 * 1024;

/// What stands around a chunk: three digits, and the ends of two lines.
const AROUND: usize = 7;

/// How many pieces are gathered in one go, also such as have no bytes.
const MOST: usize = 32;

/// How many bytes go in one write, of pieces that are there together. Then others have their turn.
const BLOCK: usize = 2 * SMALL;

type Next = Option<Result<Frame<Bytes>, BoxError>>;

/// The way past the server of one connection.
#[derive(Default)]
pub(super) struct Lane {
    way: Mutex<Way>,
    /// The server waits for more of an answer in chunks.
    waits: AtomicBool,
    /// It has written all that it has.
    wrote_all: AtomicBool,
    /// The line has not taken all of what it wrote last.
    behind: AtomicBool,
}

/// The answer that comes in chunks, if there is one.
#[derive(Default)]
struct Way {
    body: Option<Body>,
    /// Its pieces go past the server.
    open: bool,
    /// What the line did not take of a chunk.
    unsent: BytesMut,
    stall: Stall,
    /// What is left to the server.
    left: Option<Next>,
}

impl Lane {
    fn way(&self) -> MutexGuard<'_, Way> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server has written something, and the line has taken all of it or not.
    pub(super) fn wrote(&self, all: bool) {
        self.behind.store(!all, Relaxed);
    }

    /// The server has written all that it has, if what it wrote last was taken.
    pub(super) fn wrote_all(&self) {
        self.wrote_all.store(!self.behind.load(Relaxed), Relaxed);
    }

    /// Opens where the server has nothing to do but to wait.
    fn opens(&self) -> bool {
        let opens = self.waits.load(Relaxed) && self.wrote_all.load(Relaxed);
        if opens {
            self.way().open = true;
        }
        opens
    }

    /// The next piece for the server.
    fn poll_server(&self, cx: &mut Context<'_>) -> Poll<Next> {
        let mut way = self.way();
        if way.open {
            return Poll::Pending;
        }
        let polled = match (way.left.take(), &mut way.body) {
            (Some(left), _) => Poll::Ready(left),
            (None, Some(body)) => Pin::new(body).poll_frame(cx),
            // An end would say that the answer is whole.
            (None, None) => Poll::Ready(Some(Err("another answer has begun".into()))),
        };
        self.waits.store(polled.is_pending(), Relaxed);
        if polled.is_ready() {
            self.wrote_all.store(false, Relaxed);
        }
        polled
    }

    fn begin(&self, body: Body) {
        self.waits.store(false, Relaxed);
        // The head is still to be written.
        self.wrote_all.store(false, Relaxed);
        *self.way() = Way {
            body: Some(body),
            ..Way::default()
        };
    }

    fn end(&self) {
        self.waits.store(false, Relaxed);
        // It is dropped without the lock.
        let over = take(&mut *self.way());
        drop(over);
    }
}

/// What `server` comes to, while what can goes past it. `None`: the connection is broken, or its client takes nothing.
pub(super) async fn beside<T>(line: &Line, mut server: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let Some(tcp) = line.tcp() else {
        return Some(server.await);
    };
    // Once there was a lane, what wakes the server is its own: while the lane is open it is seldom heard of.
    let (mut woken, mut open) = (None::<Woken>, false);
    poll_fn(|cx| {
        loop {
            let polled = match &mut woken {
                Some(woken) => woken.poll(cx, |cx| server.as_mut().poll(cx)),
                None => server.as_mut().poll(cx),
            };
            if let Poll::Ready(done) = polled {
                return Poll::Ready(Some(done));
            }
            if !open {
                open = line.lane.opens();
                if !open {
                    return Poll::Pending;
                }
                if woken.is_none() {
                    woken = Some(Woken::new());
                    continue;
                }
            }
            if let Err(error) = ready!(pass(line, tcp, cx)) {
                tracing::debug!(%error, "a client's connection has ended");
                return Poll::Ready(None);
            }
            open = false;
            // There is something for it.
            if let Some(woken) = &mut woken {
                woken.ask_again();
            }
        }
    })
    .await
}

/// Lets pieces pass until something is left to the server.
fn pass(line: &Line, tcp: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    let mut way = line.lane.way();
    // The server may have let go of it.
    if !way.open {
        return Poll::Ready(Ok(()));
    }
    ready!(way.poll_unsent(line, tcp, cx))?;
    if way.left.is_none() {
        let mut room = [MaybeUninit::uninit(); BLOCK];
        let mut block = ReadBuf::uninit(&mut room);
        let gathered = way.gather(&mut block, cx);
        way.write(tcp, block.filled())?;
        // What the line did not take comes before anything else, whoever writes it.
        ready!(way.poll_unsent(line, tcp, cx))?;
        ready!(gathered);
    }
    way.open = false;
    Poll::Ready(Ok(()))
}

/// Its bytes, if it is small enough to go past the server.
fn small(next: &Next) -> Option<&Bytes> {
    let data = next.as_ref()?.as_ref().ok()?.data_ref()?;
    (data.len() <= SMALL).then_some(data)
}

impl Way {
    /// Gathers the pieces that are there, as chunks, while there is room. Ready once something is left to the server.
    fn gather(&mut self, block: &mut ReadBuf<'_>, cx: &mut Context<'_>) -> Poll<()> {
        for _ in 0..MOST {
            let Some(body) = &mut self.body else {
                return Poll::Ready(());
            };
            let next = ready!(Pin::new(&mut *body).poll_frame(cx));
            match small(&next) {
                Some(data) if !body.is_end_stream() => put_chunk(block, data),
                _ => {
                    self.left = Some(next);
                    return Poll::Ready(());
                }
            }
            if block.remaining() < SMALL + AROUND {
                break;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes what the line takes, and keeps the rest.
    fn write(&mut self, tcp: &TcpStream, block: &[u8]) -> io::Result<()> {
        if block.is_empty() {
            return Ok(());
        }
        let taken = match tcp.try_write(block) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            taken => taken?,
        };
        self.unsent.extend_from_slice(&block[taken..]);
        Ok(())
    }

    /// Ready once the line has taken all of each chunk.
    fn poll_unsent(&mut self, line: &Line, tcp: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let written = poll_tcp(cx, tcp, |tcp| tcp.try_write(&self.unsent));
            match ready!(self.stall.poll(cx, line.idle, written))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                taken => self.unsent.advance(taken),
            }
            if self.unsent.is_empty() {
                self.unsent = BytesMut::new();
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Adds a piece as a chunk.
fn put_chunk(block: &mut ReadBuf<'_>, data: &[u8]) {
    // A chunk of no bytes would be the last.
    if data.is_empty() {
        return;
    }
    let digits = [8, 4, 0].map(|shift| b"0123456789ABCDEF"[data.len() >> shift & 15]);
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    for part in [&digits[zeros..], b"\r\n", data, b"\r\n"] {
        block.put_slice(part);
    }
}

/// An answer, as the server has it.
pub(super) struct Answer(Kind);

enum Kind {
    /// All of it goes by the server, streams too where they are over TLS, HTTP/2 or HTTP/1.0. With a waker of its own, once a
    /// piece was waited for: the server asks more than once for each, and is told at once that nothing has come since.
    ByServer(Body, Option<Woken>),
    /// What is small of it goes past the server.
    Lane(Arc<Line>),
}

impl Answer {
    /// It may go past the server if it comes in chunks, and `in_clear`.
    pub(super) fn of(response: Response<Body>, line: &Arc<Line>, in_clear: bool) -> Response<Self> {
        // hyper makes chunks of a body in no other case, and of none if there may be no body.
        let in_chunks = in_clear
            && line.tcp().is_some()
            && !line.is_old()
            && response.version() == Version::HTTP_11
            && !response.headers().contains_key(CONTENT_LENGTH)
            && response.body().size_hint().exact().is_none();
        response.map(|body| {
            if in_chunks {
                line.lane.begin(body);
                Self(Kind::Lane(line.clone()))
            } else {
                Self(Kind::ByServer(body, None))
            }
        })
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Next> {
        match &mut self.get_mut().0 {
            Kind::ByServer(body, Some(woken)) => woken.poll(cx, |cx| Pin::new(body).poll_frame(cx)),
            Kind::ByServer(body, woken) => {
                let polled = Pin::new(body).poll_frame(cx);
                if polled.is_pending() {
                    *woken = Some(Woken::new());
                }
                polled
            }
            Kind::Lane(line) => line.lane.poll_server(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::ByServer(body, _) => body.is_end_stream(),
            Kind::Lane(line) => {
                let way = line.lane.way();
                way.left.is_none() && way.body.as_ref().is_none_or(HttpBody::is_end_stream)
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::ByServer(body, _) => body.size_hint(),
            Kind::Lane(_) => SizeHint::default(),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Kind::Lane(line) = &self.0 {
            line.lane.end();
        }
    }
}

#[cfg(test)]
mod tests;
