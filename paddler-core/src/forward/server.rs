//! How is a router put behind a listener?

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::accept::{Accept, Connection, Peer, let_in};
use super::body::Body;
use super::router::Router;
use super::serving::{self, Serving};
#[cfg(feature = "tls")]
use super::tls::Tls;
use super::upgrade::Within;
use crate::config::{Limits, Shutdown, Timeouts};

/// How long idle connections have to notice that all is over.
const NOTICE: Duration = Duration::from_millis(250);

/// How a listener is served.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServeOptions {
    /// The most connections at once, at least 1; more wait to be accepted. Default 4,096.
    pub max_connections: usize,
    /// The largest head of a request, in bytes; 8 KiB at least. Default 64 KiB.
    pub max_header_bytes: usize,
    /// The most requests at once on one connection of HTTP/2, at least 1; more are refused, and can be sent again. Default
    /// 128.
    pub max_streams: u32,
    /// How much of a request's body may be under way over HTTP/2 and not read yet, in bytes: 65,535, which HTTP/2 begins with, to
    /// 2^31 - 1. Default 1 MiB.
    pub stream_window: u32,
    /// The same for all requests of a connection together. Where it is less than all of theirs, one whose body is not read may
    /// hold up the others. Default 1 MiB.
    pub connection_window: u32,
    /// So many more requests of a connection of HTTP/2 may be taken back than come to their end; then it is closed. Clients that
    /// cancel often stay well below the default of 100; who only does that (CVE-2023-44487) needs a new connection each time.
    /// [`u64::MAX`]: any number, for one that speaks for many clients.
    pub taken_back: u64,
    /// How long a head may take, from the first byte of the connection or the end of the last answer. Default 75 s: it
    /// is also how long an idle connection is kept.
    pub header_timeout: Duration,
    /// How long a client may take nothing while bytes wait for it. Default 60 s.
    pub client_idle: Duration,
    /// Connections are encrypted by this. Default `None`: they are not.
    #[cfg(feature = "tls")]
    pub tls: Option<Tls>,
    /// How long requests that are being handled may go on once the server is to stop. Default 30 s.
    pub grace: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            max_connections: limits.connections,
            max_header_bytes: usize::try_from(limits.headers).unwrap_or(usize::MAX),
            max_streams: limits.streams,
            stream_window: 1 << 20,
            connection_window: 1 << 20,
            taken_back: 100,
            header_timeout: limits.header_timeout,
            client_idle: Timeouts::default().client_idle,
            #[cfg(feature = "tls")]
            tls: None,
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

/// Serves `service`, such as a [`Router`](super::Router), until `stop` is ready. Then no connection is accepted any more,
/// idle ones are closed, and requests that are being handled go on for the grace time, or until `cut` is ready.
///
/// A client that hangs up is taken to want no answer, also when it closes only its own direction: what goes on for it ends
/// at once.
///
/// Each request carries its [`Peer`] as an extension; a router is told once for each connection.
///
/// # Errors
/// None that is known of: what goes wrong with the listener is waited out, such as that there are no file descriptors.
pub async fn serve<S>(
    mut listener: impl Accept,
    service: S,
    options: ServeOptions,
    stop: impl Future<Output = ()>,
    cut: impl Future<Output = ()>,
) -> io::Result<Served>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    let (going, stopping) = watch::channel(false);
    let places = Arc::new(Semaphore::new(places(options.max_connections)));
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut stop => break,
            // Before those that have ended: while many end at once, many may come.
            accepted = accept(&mut listener, &places) => accepted?,
            Some(_) = connections.join_next() => continue,
        };
        // They are let go of as we go.
        while connections.try_join_next().is_some() {}
        let (connection, peer, place) = accepted;
        let mut service = service.clone();
        let serving = Serving {
            knows_peer: Router::tell_peer(&mut service, peer),
            service,
            peer,
            options: options.clone(),
            stopping: stopping.clone(),
            within: Within::default(),
            #[cfg(feature = "tls")]
            over_tls: false,
        };
        connections.spawn(async move {
            serving::connection(connection, serving).await;
            drop(place);
        });
    }
    drop(listener);
    going.send_replace(true);
    Ok(to_their_ends(connections, options.grace, cut).await)
}

/// Connections go on until they end by themselves, the grace is over, or `cut` is done.
async fn to_their_ends(
    mut connections: JoinSet<()>,
    grace: Duration,
    cut: impl Future<Output = ()>,
) -> Served {
    let whole = async { while connections.join_next().await.is_some() {} };
    let in_time = tokio::select! {
        done = timeout(grace, whole) => done.is_ok(),
        () = cut => false,
    };
    if !in_time {
        // Connections on which nothing goes on have only to notice, and are not broken off.
        let noticed = async { while connections.join_next().await.is_some() {} };
        timeout(NOTICE, noticed).await.ok();
    }
    if in_time || connections.is_empty() {
        Served::Whole
    } else {
        Served::Cut(connections.len())
    }
}

/// As many as a semaphore has, whoever asks for none or for no limit.
pub(super) fn places(most: usize) -> usize {
    most.clamp(1, Semaphore::MAX_PERMITS)
}

async fn accept(
    listener: &mut impl Accept,
    places: &Arc<Semaphore>,
) -> io::Result<(Connection, Peer, OwnedSemaphorePermit)> {
    let closed = || io::Error::other("the limit of connections is gone");
    let place = places.clone().acquire_owned().await.map_err(|_| closed())?;
    let (connection, address) = let_in(listener).await;
    Ok((connection, Peer(address), place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_connections_is_one_at_least_and_may_be_none() {
        assert_eq!(places(0), 1);
        assert_eq!(places(7), 7);
        assert_eq!(
            Semaphore::new(places(usize::MAX)).available_permits(),
            Semaphore::MAX_PERMITS
        );
    }
}
