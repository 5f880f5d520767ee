//! How is a router put behind a listener?

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};

use super::body::Body;
use crate::config::{Limits, Shutdown, Timeouts};

/// How often a client is looked at while its request is handled, besides what its connection says by itself.
const LOOK_AFTER_CLIENT: Duration = Duration::from_millis(250);

/// How a listener is served.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServeOptions {
    /// The most connections at once; more wait to be accepted. Default 4,096.
    pub max_connections: usize,
    /// The largest head of a request, in bytes; 8 KiB at least. Default 64 KiB.
    pub max_header_bytes: usize,
    /// How long a head may take, from the first byte of the connection or the end of the last answer. Default 60 s: it
    /// is also how long an idle connection is kept.
    pub header_timeout: Duration,
    /// How long a client may take nothing while bytes wait for it. Default 60 s.
    pub client_idle: Duration,
    /// How long requests that are being handled may go on once the server is to stop. Default 30 s.
    pub grace: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            max_connections: limits.connections,
            max_header_bytes: usize::try_from(limits.headers).unwrap_or(usize::MAX),
            header_timeout: limits.header_timeout,
            client_idle: Timeouts::default().client_idle,
            grace: Shutdown::default().grace,
        }
    }
}

/// How serving has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Served {
    /// Every request has been answered to its end.
    Whole,
    /// The grace time was over, or it was cut; so many connections were broken off.
    Cut(usize),
}

/// Serves `service`, such as a [`Router`](super::Router), until `stop` is ready. Then no connection is accepted any more, idle ones are closed, and requests that
/// are being handled go on for the grace time, or until `cut` is ready.
///
/// # Errors
/// When the listener breaks; that it is out of file descriptors is no such error, and is waited out.
pub async fn serve<S>(
    listener: TcpListener,
    service: S,
    options: ServeOptions,
    stop: impl Future<Output = ()>,
    cut: impl Future<Output = ()>,
) -> io::Result<Served>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let (going, stopping) = watch::channel(false);
    let places = Arc::new(Semaphore::new(options.max_connections));
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            // Those that have ended are let go of as we go.
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &places) => accepted?,
        };
        let (stream, place) = accepted;
        let connection = connection(stream, service.clone(), options.clone(), stopping.clone());
        connections.spawn(async move {
            connection.await;
            drop(place);
        });
    }
    drop(listener);
    going.send_replace(true);
    let whole = async { while connections.join_next().await.is_some() {} };
    let in_time = tokio::select! {
        done = timeout(options.grace, whole) => done.is_ok(),
        () = cut => false,
    };
    Ok(if in_time { Served::Whole } else { Served::Cut(connections.len()) })
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let closed = || io::Error::other("the limit of connections is gone");
    let place = places.clone().acquire_owned().await.map_err(|_| closed())?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                stream.set_nodelay(true)?;
                return Ok((stream, place));
            }
            // About one connection, which is gone.
            Err(error) if is_of_one_connection(&error) => {}
            // Out of descriptors or memory: others end and give theirs back.
            Err(error) => {
                tracing::error!(%error, "no connection can be accepted; trying again in a second");
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

async fn connection<S>(stream: TcpStream, service: S, options: ServeOptions, mut stopping: watch::Receiver<bool>)
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>,
{
    let stream = Arc::new(stream);
    let io = TokioIo::new(ClientIo::new(stream.clone(), options.client_idle));
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = service.call(request);
        let stream = stream.clone();
        async move {
            tokio::select! {
                biased;
                answer = answer => answer.map_err(|never| match never {}),
                // The answer is dropped with the request, and nobody is there to miss it.
                () = gone(&stream) => Err(io::Error::from(io::ErrorKind::ConnectionReset)),
            }
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.header_timeout)
        .max_buf_size(options.max_header_bytes.max(8 * 1024))
        .serve_connection(io, service);
    let mut serving = pin!(serving);
    let stop = async { stopping.wait_for(|stop| *stop).await.map(drop) };
    let result = tokio::select! {
        result = serving.as_mut() => result,
        // Without a server there is nothing to go on for, either.
        _ = stop => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a client's connection has ended");
    }
}

/// Ready once the client has hung up. hyper sees that by itself, but not while bytes of a next request lie unread.
async fn gone(stream: &TcpStream) {
    loop {
        sleep(LOOK_AFTER_CLIENT).await;
        if let Poll::Ready(Ok(ready)) = poll_once(stream.ready(Interest::READABLE)).await
            && ready.is_read_closed()
        {
            return;
        }
    }
}

/// What the future says when it is asked once.
async fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// A client's stream, which breaks when the client takes nothing for too long.
struct ClientIo {
    stream: Arc<TcpStream>,
    idle: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl ClientIo {
    fn new(stream: Arc<TcpStream>, idle: Duration) -> Self {
        Self { stream, idle, stalled: None }
    }

    fn poll_io(
        &mut self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.stream.poll_write_ready(cx) {
                Poll::Ready(ready) => ready?,
                Poll::Pending => {
                    let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(self.idle)));
                    ready!(stalled.as_mut().poll(cx));
                    let message = "the client took nothing for too long";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)));
                }
            }
            match write(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => {
                    self.stalled = None;
                    return Poll::Ready(result);
                }
            }
        }
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(buf.initialize_unfilled()) {
                Ok(bytes) => {
                    buf.advance(bytes);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_io(cx, |stream| stream.try_write(buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_io(cx, |stream| stream.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The stream is closed when the last who holds it lets go; a half close is not to be had through `&`.
        Poll::Ready(Ok(()))
    }
}
