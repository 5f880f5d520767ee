//! Which addresses does an upstream's host have now, and which of them answers?
//!
//! A name is looked up when a connection is made and the last answer is older than the TTL, after no address has
//! answered, and, while connections are kept and used, beside the requests. Connections to an address that the name has no
//! longer are let go: a process that was replaced may stay reachable for long, or leave its address to another one.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as Waits;
use tokio::time::{Instant, timeout_at};

use super::dial::{Dial, Io};
use super::files::OutOfFiles;
use crate::clock::after;
use crate::upstream::UpstreamId;
use crate::upstream::address::Address;

/// How long the last answer stands in where the resolver has none. Long enough for a resolver to be restarted.
pub(crate) const STANDS_IN: Duration = Duration::from_secs(300);

/// For so long one who only wants to know is told the last answer, while the name is looked up beside: who makes no connection
/// finds nothing out by waiting for it.
const TOLD_FOR: Duration = Duration::from_secs(300);

/// How long one who only wants to know is told that there was no answer, before the name is looked up again: it would be for
/// each request.
const NONE_FOR: Duration = Duration::from_secs(2);

/// The way to one host and port.
#[derive(Debug)]
pub(super) struct Route {
    /// Whose it is, for the log.
    upstream: UpstreamId,
    host: String,
    port: u16,
    ttl: Duration,
    dial: Arc<dyn Dial>,
    /// `None` where the host is an address, which does not change.
    known: Option<Mutex<Resolved>>,
    /// Held while the name is looked up for those who only want to know.
    telling: Arc<Waits<()>>,
}

#[derive(Debug, Default)]
struct Resolved {
    addresses: Vec<SocketAddr>,
    /// When they were told.
    told: Option<Instant>,
    /// They are being looked up beside the requests, or were, without an answer, at this time.
    asked: Option<Instant>,
    /// There was no answer, at this time, and why.
    none: Option<(Instant, String)>,
    /// No address has answered: look them up before the next connection.
    doubted: bool,
    /// The one that answered last: tried first, so that a dead one costs its time once.
    answered: Option<SocketAddr>,
}

/// A connection, and whom it leads to.
pub(super) struct Dialled {
    pub(super) io: Box<dyn Io>,
    pub(super) peer: SocketAddr,
}

impl Route {
    pub(super) fn new(address: &Address, upstream: &UpstreamId, ttl: Duration, dial: Arc<dyn Dial>) -> Self {
        let (host, port) = address.target();
        let literal = host.parse::<IpAddr>().is_ok();
        Self {
            upstream: upstream.clone(),
            host: host.to_owned(),
            port,
            ttl,
            dial,
            known: (!literal).then(Mutex::default),
            telling: Arc::default(),
        }
    }

    fn known(&self) -> Option<MutexGuard<'_, Resolved>> {
        let known = self.known.as_ref()?;
        Some(known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a connection to this peer leads where a new one would.
    pub(super) fn leads_to(&self, peer: SocketAddr) -> bool {
        let told = |known: MutexGuard<'_, Resolved>| known.addresses.contains(&peer);
        self.known().is_none_or(told)
    }

    /// The name is to be looked up before the next connection.
    pub(super) fn doubt(&self) {
        if let Some(mut known) = self.known() {
            known.doubted = true;
        }
    }

    /// Whether the name is to be looked up beside the requests, since the last answer has grown old. Who asks has to do
    /// it: nobody else is told so for a while.
    pub(super) fn due(&self) -> bool {
        let Some(mut known) = self.known() else {
            return false;
        };
        let now = Instant::now();
        let old = |since: Option<Instant>| since.is_some_and(|since| after(since, self.ttl) <= now);
        let due = old(known.told) && (known.asked.is_none() || old(known.asked));
        if due {
            known.asked = Some(now);
        }
        due
    }

    /// Looks the name up. True: an address is there no longer.
    pub(super) async fn look_up_again(&self) -> bool {
        self.look_up().await.unwrap_or_else(|error| {
            tracing::debug!(upstream = %self.upstream, host = self.host, %error, "no answer about its addresses; the last one stands");
            false
        })
    }

    /// Asks the resolver. True: an address is there no longer.
    async fn look_up(&self) -> io::Result<bool> {
        let addresses = self.dial.resolve(&self.host, self.port).await?;
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        let Some(mut known) = self.known() else {
            return Ok(false);
        };
        let left = known.addresses.iter().any(|address| !addresses.contains(address));
        if left {
            tracing::info!(upstream = %self.upstream, host = self.host, before = ?known.addresses, now = ?addresses, "its addresses have changed");
        }
        known.addresses = addresses;
        known.told = Some(Instant::now());
        known.none = None;
        known.doubted = false;
        Ok(left)
    }

    /// The addresses to try, in this order, and whether they were asked for just now.
    async fn addresses(&self) -> io::Result<(Vec<SocketAddr>, bool)> {
        let Some(fresh) = self.known().map(|known| known.fresh(self.ttl)) else {
            let address = self.host.parse().map_err(io::Error::other)?;
            return Ok((vec![SocketAddr::new(address, self.port)], true));
        };
        if !fresh && let Err(error) = self.look_up().await {
            if !self.known().is_some_and(|known| known.fresh_for(STANDS_IN)) {
                if let Some(ours) = OutOfFiles::of(&error) {
                    return Err(ours);
                }
                let text = format!("no address of {} could be found: {error}", self.host);
                return Err(io::Error::new(error.kind(), text));
            }
            tracing::debug!(upstream = %self.upstream, host = self.host, %error, "no answer about its addresses; the last one stands in");
        }
        Ok((
            self.known().map_or_else(Vec::new, |known| known.in_order()),
            !fresh,
        ))
    }

    /// Tells the addresses to one who makes no connection. A name is looked up for him only where nothing is known of it:
    /// once for all who ask, and to its end also where they wait no longer, or it would begin anew with each of them.
    pub(super) async fn tell(self: &Arc<Self>, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
        if self.known.is_none() {
            return Ok(self.addresses().await?.0);
        }
        let at_once = || self.known().and_then(|known| known.at_once(&self.host));
        if let Some(known) = at_once() {
            return known;
        }
        if let Ok(alone) = self.telling.clone().try_lock_owned() {
            let route = self.clone();
            tokio::spawn(async move {
                route.look_up_by(deadline).await;
                drop(alone);
            });
        }
        timeout_at(deadline, self.telling.lock()).await.ok();
        at_once().unwrap_or_else(|| Err(late()))
    }

    async fn look_up_by(&self, deadline: Instant) {
        let found = timeout_at(deadline, self.look_up()).await;
        if let Err(error) = found.unwrap_or_else(|_| Err(late())) {
            tracing::debug!(upstream = %self.upstream, host = self.host, %error, "no answer about its addresses");
            if let Some(mut known) = self.known() {
                known.none = Some((Instant::now(), error.to_string()));
            }
        }
    }

    /// Connects to the first address that answers. Where none of those does that were told before, the name is looked up,
    /// and what is new is tried.
    pub(super) async fn connect(&self, deadline: Instant) -> io::Result<Dialled> {
        let addresses = || async { timeout_at(deadline, self.addresses()).await.map_err(|_| late())? };
        let (mut addresses_now, new) = addresses().await?;
        let mut failed = Vec::new();
        if let Some(dialled) = self.first_of(&addresses_now, deadline, &mut failed).await {
            return Ok(dialled);
        }
        let ours =
            |failed: &[(SocketAddr, io::Error)]| failed.iter().find_map(|(_, error)| OutOfFiles::of(error));
        if let Some(ours) = ours(&failed) {
            return Err(ours);
        }
        self.doubt();
        if !new && Instant::now() < deadline {
            let tried = addresses_now;
            (addresses_now, _) = addresses().await?;
            addresses_now.retain(|address| !tried.contains(address));
            if let Some(dialled) = self.first_of(&addresses_now, deadline, &mut failed).await {
                return Ok(dialled);
            }
        }
        Err(ours(&failed).unwrap_or_else(|| none_of(&failed)))
    }

    /// Each address has its share of the time that is left, so that one that is silent does not use up that of the others.
    async fn first_of(
        &self,
        addresses: &[SocketAddr],
        deadline: Instant,
        failed: &mut Vec<(SocketAddr, io::Error)>,
    ) -> Option<Dialled> {
        for (number, peer) in addresses.iter().copied().enumerate() {
            let now = Instant::now();
            let left = u32::try_from(addresses.len() - number).unwrap_or(u32::MAX);
            let share = deadline.saturating_duration_since(now) / left;
            let dialled = timeout_at(now + share, self.dial.dial(peer)).await;
            match dialled.unwrap_or_else(|_| Err(late())) {
                Ok(io) => {
                    if let Some(mut known) = self.known() {
                        known.answered = Some(peer);
                    }
                    return Some(Dialled { io, peer });
                }
                Err(error) => failed.push((peer, error)),
            }
        }
        None
    }
}

impl Resolved {
    fn fresh(&self, ttl: Duration) -> bool {
        !self.doubted && self.fresh_for(ttl)
    }

    fn fresh_for(&self, ttl: Duration) -> bool {
        self.told.is_some_and(|told| Instant::now() < after(told, ttl))
    }

    /// What can be told without a look-up.
    fn at_once(&self, host: &str) -> Option<io::Result<Vec<SocketAddr>>> {
        if self.fresh_for(TOLD_FOR) {
            return Some(Ok(self.in_order()));
        }
        let (since, why) = self.none.as_ref()?;
        let text = || format!("no address of {host} was found a moment ago: {why}");
        (Instant::now() < after(*since, NONE_FOR))
            .then(|| Err(io::Error::new(io::ErrorKind::NotFound, text())))
    }

    /// The one that answered last goes first.
    fn in_order(&self) -> Vec<SocketAddr> {
        let mut addresses = self.addresses.clone();
        let first = |first| addresses.iter().position(|address| *address == first);
        if let Some(place) = self.answered.and_then(first) {
            addresses[..=place].rotate_right(1);
        }
        addresses
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
}

/// One error of all that were tried; its kind is the last one's.
fn none_of(failed: &[(SocketAddr, io::Error)]) -> io::Error {
    let kind = failed
        .last()
        .map_or(io::ErrorKind::NotFound, |(_, error)| error.kind());
    let tried: Vec<_> = failed
        .iter()
        .map(|(peer, error)| format!("{peer}: {error}"))
        .collect();
    io::Error::new(kind, tried.join("; "))
}
