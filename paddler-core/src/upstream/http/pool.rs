//! Which connections to an upstream are open and free?

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::connect::Link;
use super::connection::Metered;
use super::route::Route;
use super::{HttpOptions, READ_AHEAD};
use crate::clock::after;
use crate::forward::Body;

/// Free connections, the last used on top: it is the likeliest to be open still.
#[derive(Debug)]
pub(super) struct Pool {
    options: HttpOptions,
    route: Arc<Route>,
    free: Mutex<Vec<Free>>,
}

#[derive(Debug)]
struct Free {
    connection: Connection,
    since: Instant,
    rests_until: Instant,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Body>,
    peer: SocketAddr,
    read: Arc<AtomicU64>,
    driver: Driver,
}

/// Whoever lets go of a connection closes it, also while a request is still being written to an upstream that does not
/// read it.
#[derive(Debug)]
struct Driver(Option<AbortHandle>);

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(driver) = &self.0 {
            driver.abort();
        }
    }
}

/// A connection that is in use for one request.
#[derive(Debug)]
pub(super) struct Pooled {
    pool: Arc<Pool>,
    connection: Connection,
    reused: bool,
}

impl Pool {
    pub(super) fn new(options: HttpOptions, route: Arc<Route>) -> Self {
        Self {
            options,
            route,
            free: Mutex::new(Vec::new()),
        }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<Free>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free connection that is open as far as is known.
    pub(super) fn take(self: &Arc<Self>) -> Option<Pooled> {
        let now = Instant::now();
        let mut free = self.free();
        // They lie in the order in which they were put.
        let old = free.partition_point(|one| after(one.since, self.options.idle_timeout) <= now);
        drop(free.drain(..old));
        for position in (0..free.len()).rev() {
            let one = &free[position];
            if one.connection.sender.is_closed() {
                free.remove(position);
            } else if one.rests_until <= now && one.connection.sender.is_ready() {
                let connection = free.remove(position).connection;
                return Some(Pooled {
                    pool: self.clone(),
                    connection,
                    reused: true,
                });
            }
        }
        None
    }

    /// Lets go of all that are free.
    pub(super) fn clear(&self) {
        self.free().clear();
    }

    /// Lets go of those that lead where the name does no longer.
    pub(super) fn leave(&self) {
        self.free().retain(|one| self.route.leads_to(one.connection.peer));
    }

    /// Speaks HTTP/1.1 over a new connection.
    pub(super) async fn add(self: &Arc<Self>, link: Link) -> hyper::Result<Pooled> {
        let read = Arc::new(AtomicU64::new(0));
        let io = TokioIo::new(Metered::new(link.io, read.clone()));
        let (sender, driver) = http1::Builder::new()
            .max_buf_size(READ_AHEAD)
            .handshake(io)
            .await?;
        let driver = tokio::spawn(async move {
            // Whoever uses the connection is told by the sender.
            if let Err(error) = driver.with_upgrades().await {
                tracing::debug!(%error, "a connection to an upstream has ended");
            }
        });
        let connection = Connection {
            sender,
            peer: link.peer,
            read,
            driver: Driver(Some(driver.abort_handle())),
        };
        Ok(Pooled {
            pool: self.clone(),
            connection,
            reused: false,
        })
    }

    fn put(&self, connection: Connection, streamed: bool) {
        let now = Instant::now();
        let rests_until = if streamed {
            after(now, self.options.rest_after_stream)
        } else {
            now
        };
        if !self.route.leads_to(connection.peer) {
            return;
        }
        let mut free = self.free();
        if free.len() < self.options.max_idle && !connection.sender.is_closed() {
            free.push(Free {
                connection,
                since: now,
                rests_until,
            });
        }
    }
}

impl Pooled {
    pub(super) fn reused(&self) -> bool {
        self.reused
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.connection.read.load(Relaxed)
    }

    pub(super) fn sender(&mut self) -> &mut SendRequest<Body> {
        &mut self.connection.sender
    }

    /// The upstream has agreed to speak something else over this connection. From now on it belongs to whoever takes it
    /// out of the response, and ends with that.
    pub(super) fn leave_to_upgrade(mut self) {
        // Its driver hands it over, and may not have done so yet.
        self.connection.driver.0 = None;
    }

    /// The connection is free again when this body has come to its end. Dropped before, it is closed; and at its end, too,
    /// unless it is `reusable`.
    pub(super) fn hold(self, body: Incoming, reusable: bool) -> Held {
        let streamed = body.size_hint().exact().is_none();
        let mut held = Held {
            body,
            streamed,
            reusable,
            pooled: Some(self),
        };
        if held.body.is_end_stream() {
            held.release();
        }
        held
    }
}

/// The body of a response, with the connection that it comes over.
#[derive(Debug)]
pub(super) struct Held {
    body: Incoming,
    streamed: bool,
    reusable: bool,
    pooled: Option<Pooled>,
}

impl Held {
    fn release(&mut self) {
        if let Some(Pooled { pool, connection, .. }) = self.pooled.take()
            && self.reusable
        {
            pool.put(connection, self.streamed);
        }
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            None => self.release(),
            Some(Ok(_)) if self.body.is_end_stream() => self.release(),
            _ => {}
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
