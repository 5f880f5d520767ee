//! Which connections carry many requests at once?
//!
//! Over HTTP/2 there are as few connections as the upstream's limit on streams allows. A connection is used once the
//! upstream has said its settings: so the limit is kept from the first request on, and an upstream that does not speak
//! HTTP/2 is found out before anything was sent.

mod greeting;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, Connection as Driver, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::timeout_at;

use super::connect::Link;
use super::route::Route;
use crate::forward::Body;
use greeting::{Greeted, Greeting};

/// The most that is read ahead of what the client takes, per request, in bytes.
const READ_AHEAD: usize = 256 * 1024;

/// The most streams on one connection, whatever the upstream allows: what is read ahead for slow clients counts against
/// the connection too, and must not hold up the others.
const STREAMS: usize = 128;

/// A connection that says nothing for so long is asked whether it is there.
const PING_AFTER: Duration = Duration::from_secs(30);

/// How long it may take to answer that: an engine may be busy with a prompt.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The longest head of an answer, in bytes.
const HEAD: u32 = 64 * 1024;

/// The connections to one upstream.
#[derive(Debug)]
pub(super) struct Multiplex {
    route: Arc<Route>,
    connections: Mutex<Vec<Arc<Connection>>>,
    /// Held by whoever makes a connection, so that many requests at once make one.
    opening: tokio::sync::Mutex<()>,
    /// What was last agreed upon was HTTP/1.1: those who wait for each other would wait for nothing.
    http1: AtomicBool,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Body>,
    peer: SocketAddr,
    read: Arc<AtomicU64>,
    open: AtomicUsize,
    /// How many the upstream allows, as last heard.
    room: Arc<AtomicUsize>,
    used: AtomicBool,
    /// It takes no more requests, as it said.
    retired: AtomicBool,
}

/// The right to one stream.
#[derive(Debug)]
pub(super) struct Stream {
    connection: Arc<Connection>,
    reused: bool,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.connection.open.fetch_sub(1, Relaxed);
    }
}

impl Connection {
    fn takes_more(&self) -> bool {
        !self.retired.load(Relaxed) && !self.sender.is_closed() && self.room.load(Relaxed) > 0
    }

    /// A stream, if there is room for one.
    fn stream(self: &Arc<Self>) -> Option<Stream> {
        let room = self.room.load(Relaxed);
        let one_more = |open| (open < room).then_some(open + 1);
        self.open.fetch_update(Relaxed, Relaxed, one_more).ok()?;
        Some(Stream {
            connection: self.clone(),
            reused: self.used.swap(true, Relaxed),
        })
    }
}

impl Multiplex {
    pub(super) fn new(route: Arc<Route>) -> Self {
        Self {
            route,
            connections: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            http1: AtomicBool::new(false),
        }
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream on a connection that is open as far as is known.
    pub(super) fn take(&self) -> Option<Stream> {
        let mut connections = self.connections();
        connections.retain(|one| one.takes_more());
        // The first that has room, so that the others come to be unused.
        connections.iter().find_map(Connection::stream)
    }

    /// Waits for those who make a connection now. `None`: there is no use in waiting.
    pub(super) async fn turn(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        if self.http1.load(Relaxed) {
            return None;
        }
        Some(self.opening.lock().await)
    }

    /// Whether what was last agreed upon was HTTP/1.1.
    pub(super) fn is_http1(&self) -> bool {
        self.http1.load(Relaxed)
    }

    /// What a new connection has agreed upon.
    pub(super) fn speaks(&self, http2: bool) {
        self.http1.store(!http2, Relaxed);
    }

    /// Uses no connection any more for what comes; what is under way on them goes on.
    pub(super) fn clear(&self) {
        self.connections().clear();
    }

    /// The same for those that lead where the name does no longer.
    pub(super) fn leave(&self) {
        self.connections().retain(|one| self.route.leads_to(one.peer));
    }

    /// Speaks HTTP/2 over a new connection.
    pub(super) async fn add(&self, link: Link) -> io::Result<Stream> {
        let silent = |_| io::Error::new(io::ErrorKind::TimedOut, "it is silent: does it speak HTTP/2?");
        let connection = timeout_at(link.deadline, greet(link)).await.map_err(silent)??;
        let mut connections = self.connections();
        connections.retain(|one| one.takes_more());
        let stream = connection.stream();
        connections.push(connection);
        stream.ok_or_else(|| io::Error::other("it takes no request"))
    }
}

/// Begins to speak HTTP/2, and waits until the upstream has answered to that.
async fn greet(link: Link) -> io::Result<Arc<Connection>> {
    let read = Arc::new(AtomicU64::new(0));
    let (io, greeted) = Greeting::new(link.io, read.clone());
    let ahead = u32::try_from(READ_AHEAD).unwrap_or(u32::MAX);
    let all_ahead = ahead.saturating_mul(STREAMS as u32);
    let handshake = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(ahead)
        .initial_connection_window_size(all_ahead)
        .max_header_list_size(HEAD)
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(io));
    let (sender, driver) = handshake.await.map_err(io::Error::other)?;
    wait(greeted).await?;
    let room = Arc::new(AtomicUsize::new(room(&driver)));
    tokio::spawn(drive(driver, room.clone()));
    Ok(Arc::new(Connection {
        sender,
        peer: link.peer,
        read,
        open: AtomicUsize::new(0),
        room,
        used: AtomicBool::new(false),
        retired: AtomicBool::new(false),
    }))
}

async fn wait(greeted: Greeted) -> io::Result<()> {
    let closed = |_| {
        io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "it closed the connection: does it speak HTTP/2?",
        )
    };
    greeted.await.map_err(closed)?
}

type OurDriver = Driver<TokioIo<Greeting>, Body, TokioExecutor>;

/// How many streams the upstream allows now. Where it is none at all, requests would wait in the connection unseen.
fn room(driver: &OurDriver) -> usize {
    driver.current_max_send_streams().min(STREAMS)
}

/// Runs until the connection or all who use it are gone.
async fn drive(mut driver: OurDriver, room_now: Arc<AtomicUsize>) {
    let ended = std::future::poll_fn(|cx| {
        let polled = Pin::new(&mut driver).poll(cx);
        room_now.store(room(&driver), Relaxed);
        polled
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "a connection to an upstream has ended");
    }
}

impl Stream {
    pub(super) fn reused(&self) -> bool {
        self.reused
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.connection.read.load(Relaxed)
    }

    pub(super) fn sender(&self) -> SendRequest<Body> {
        self.connection.sender.clone()
    }

    /// Its connection takes no more requests.
    pub(super) fn retire(&self) {
        self.connection.retired.store(true, Relaxed);
    }

    pub(super) fn hold(self, body: Incoming) -> Held {
        let stream = (!body.is_end_stream()).then_some(self);
        Held { body, stream }
    }
}

/// The body of a response, with its place among the streams. Dropped before its end, it resets the stream.
#[derive(Debug)]
pub(super) struct Held {
    body: Incoming,
    stream: Option<Stream>,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) || self.body.is_end_stream() {
            self.stream = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// That a request has not been worked on, as an error says: it came after the last that the connection takes.
pub(super) fn came_too_late(error: &hyper::Error) -> bool {
    let error = of_http2(error);
    error.is_some_and(|error| error.is_go_away() && error.is_remote())
}

/// That a request has not been worked on, as an error says: the upstream takes no more of them.
pub(super) fn was_refused(error: &hyper::Error) -> bool {
    let error = of_http2(error).filter(|error| error.is_reset() && error.is_remote());
    error.and_then(h2::Error::reason) == Some(h2::Reason::REFUSED_STREAM)
}

fn of_http2(error: &hyper::Error) -> Option<&h2::Error> {
    std::error::Error::source(error)?.downcast_ref()
}
