//! Which connections to an upstream are open and free?
//!
//! Each is looked at when it is put, and again when it is used: one that has been closed, or has spoken unasked, is let go.
//! In between nobody looks, so those that their upstream closes stay, for as long as one may be unused and as many as may
//! be kept.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use tokio::io::ReadBuf;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep_until};

use super::HttpOptions;
use super::connect::Link;
use super::dial::Io;
use super::http1::Error;
use super::route::Route;
use crate::clock::after;

/// Free connections, the last used on top: it is the likeliest to be open still.
#[derive(Debug)]
pub(super) struct Pool {
    options: HttpOptions,
    route: Arc<Route>,
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    /// In the order in which they were put.
    all: Vec<Rested>,
    /// Who lets go of those that are too old. It ends with its runtime, whether or not there are any.
    sweeper: Option<AbortHandle>,
}

#[derive(Debug)]
struct Rested {
    connection: Connection,
    since: Instant,
    rests_until: Instant,
}

struct Connection {
    io: Box<dyn Io>,
    peer: SocketAddr,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Connection").field(&self.peer).finish()
    }
}

/// A connection that is in use for one request. Dropped, it is closed.
#[derive(Debug)]
pub(super) struct Pooled {
    pool: Arc<Pool>,
    connection: Connection,
    reused: bool,
    /// It is not used again.
    ends: bool,
}

impl Pool {
    pub(super) fn new(options: HttpOptions, route: Arc<Route>) -> Self {
        Self {
            options,
            route,
            free: Mutex::default(),
        }
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When one that is free since then has been so for too long.
    fn too_old(&self, since: Instant) -> Instant {
        after(since, self.options.idle_timeout)
    }

    /// The free connection that was used last. It may have been closed.
    pub(super) fn take(self: &Arc<Self>) -> Option<Pooled> {
        let now = Instant::now();
        let mut free = self.free();
        let old = self.too_old_of(&mut free, now);
        let position = free.all.iter().rposition(|one| one.rests_until <= now);
        let connection = position.map(|position| free.all.remove(position).connection);
        drop(free);
        drop(old);
        Some(self.in_use(connection?, true))
    }

    /// Those that are too old: nobody may have swept, where a runtime stands still. To be closed without the lock.
    fn too_old_of(&self, free: &mut Free, now: Instant) -> Vec<Rested> {
        let old = free.all.partition_point(|one| self.too_old(one.since) <= now);
        free.all.drain(..old).collect()
    }

    fn in_use(self: &Arc<Self>, connection: Connection, reused: bool) -> Pooled {
        Pooled {
            pool: self.clone(),
            connection,
            reused,
            ends: false,
        }
    }

    /// Lets go of all that are free.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut self.free().all);
        drop(all);
    }

    /// Lets go of those that lead where the name does no longer.
    pub(super) fn leave(&self) {
        let leads = |one: &Rested| self.route.leads_to(one.connection.peer);
        let mut free = self.free();
        let (stay, gone) = std::mem::take(&mut free.all).into_iter().partition(leads);
        free.all = stay;
        drop(free);
        // They are closed while nobody waits for it.
        drop::<Vec<_>>(gone);
    }

    /// A new connection, to be put back here.
    pub(super) fn lend_new(self: &Arc<Self>, link: Link) -> Pooled {
        let (io, peer) = (link.io, link.peer);
        self.in_use(Connection { io, peer }, false)
    }

    fn put(self: &Arc<Self>, connection: Connection, streamed: bool) {
        // Who lets go of it later needs one.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if !self.route.leads_to(connection.peer) {
            return;
        }
        let now = Instant::now();
        let rests_until = if streamed {
            after(now, self.options.rest_after_stream)
        } else {
            now
        };
        // Closed after the lock is released.
        let _old;
        let mut free = self.free();
        _old = self.too_old_of(&mut free, now);
        if free.all.len() >= self.options.max_idle {
            return;
        }
        free.all.push(Rested {
            connection,
            since: now,
            rests_until,
        });
        if free.sweeper.as_ref().is_none_or(AbortHandle::is_finished) {
            let first = free.all.first().map_or(now, |one| one.since);
            let sweeping = sweep(Arc::downgrade(self), self.too_old(first));
            free.sweeper = Some(runtime.spawn(sweeping).abort_handle());
        }
    }

    /// Lets go of those that are too old. Gives when that is to be done again, if there are others.
    fn let_go(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut free = self.free();
        let old = self.too_old_of(&mut free, now);
        let next = free.all.first().map(|one| self.too_old(one.since));
        if next.is_none() {
            free.sweeper = None;
        }
        drop(free);
        drop(old);
        next
    }
}

/// Lets go of connections that nobody uses, for as long as there are any.
async fn sweep(pool: Weak<Pool>, first: Instant) {
    let mut next = Some(first);
    while let Some(due) = next {
        sleep_until(due).await;
        next = pool.upgrade().and_then(|pool| pool.let_go());
    }
}

impl Pooled {
    pub(super) fn reused(&self) -> bool {
        self.reused
    }

    pub(super) fn io(&mut self) -> &mut dyn Io {
        &mut *self.connection.io
    }

    /// Whether it is open and nothing has come for which nobody asked: so nothing can be read from it now.
    pub(super) fn is_quiet(&mut self) -> Result<(), Error> {
        let mut byte = [0];
        let mut byte = ReadBuf::new(&mut byte);
        let mut nobody = Context::from_waker(Waker::noop());
        let read = poll_fn(|cx| Pin::new(&mut *self.connection.io).poll_read(cx, &mut byte));
        // A task that has done much is told that nothing is there, whatever is: the answer here has to be the true one.
        let read = pin!(unconstrained(read)).poll(&mut nobody);
        match read {
            Poll::Pending => Ok(()),
            Poll::Ready(Err(error)) => Err(Error::Io(error)),
            Poll::Ready(Ok(())) if byte.filled().is_empty() => Err(Error::Closed),
            Poll::Ready(Ok(())) => Err(Error::Unasked),
        }
    }

    /// It is closed at the end of the answer.
    pub(super) fn ends(&mut self) {
        self.ends = true;
    }

    /// All of its answer has come. `more`: with bytes behind it, which belong to no answer. `unsent`: before all of its request was
    /// sent, and the rest would be read as the beginning of the next. Either could give one client what is another's.
    pub(super) fn is_answered(&mut self, more: bool, unsent: bool) {
        if more || unsent {
            self.ends();
        }
    }

    /// It speaks something else from now on, and belongs to whoever takes it.
    pub(super) fn into_io(self) -> Box<dyn Io> {
        self.connection.io
    }

    /// Its answer is over: it is free again. `streamed`: that was of a length which was not told beforehand.
    pub(super) fn put(mut self, streamed: bool) {
        if !self.ends && self.is_quiet().is_ok() {
            self.pool.put(self.connection, streamed);
        }
    }
}
