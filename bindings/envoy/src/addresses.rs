//! Where does an upstream listen, as Envoy names it?
//!
//! By IP and port. A host name in an upstream's URL is looked up here, by the system's resolver, since Envoy takes none; of
//! several addresses the first counts. What was found is believed for a while, and for as long as nothing better is found;
//! that nothing was found, for a shorter one.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use paddler_core::status::Published;
use paddler_core::upstream::{UpstreamId, UpstreamSpec};
use tokio::net::lookup_host;
use tokio::time::{Instant, timeout};

/// How long an address is believed: what Kubernetes' DNS says of its answers.
const BELIEVED: Duration = Duration::from_secs(30);

/// The longest that a look-up may take: a request waits for it, and there may be other upstreams.
const LOOK_UP: Duration = Duration::from_secs(2);

/// How long a name without an address is not looked up again: a request would wait for it.
const NOT_FOUND: Duration = Duration::from_secs(2);

/// What was found, and until when it is believed.
type Found = (Option<SocketAddr>, Instant);

/// The addresses of names, by `host:port`.
#[derive(Debug, Default)]
pub(crate) struct Addresses(Mutex<HashMap<String, Found>>);

/// The upstreams that are there, and their addresses.
#[derive(Debug, Clone)]
pub(crate) struct Map {
    pub(crate) published: Published,
    pub(crate) addresses: Arc<Addresses>,
}

impl Map {
    /// Where this upstream listens.
    pub(crate) async fn address(&self, id: &UpstreamId) -> Option<SocketAddr> {
        let snapshot = self.published.load_full();
        self.addresses.of(snapshot.find(id.as_str())?.spec()).await.ok()
    }

    /// Who listens where `wanted` says.
    pub(crate) async fn who(&self, wanted: impl Fn(SocketAddr) -> bool) -> Vec<UpstreamId> {
        let snapshot = self.published.load_full();
        let mut who = Vec::new();
        for (_, entry) in snapshot.iter() {
            let spec = entry.spec();
            if self.addresses.of(spec).await.is_ok_and(&wanted) {
                who.push(spec.id.clone());
            }
        }
        who
    }
}

impl Addresses {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Found>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where this upstream's URL leads.
    pub(crate) async fn of(&self, spec: &UpstreamSpec) -> io::Result<SocketAddr> {
        let (host, port) = spec.host_and_port().map_err(io::Error::other)?;
        self.find(&host, port).await
    }

    async fn find(&self, host: &str, port: u16) -> io::Result<SocketAddr> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(SocketAddr::new(ip, port));
        }
        let name = format!("{host}:{port}");
        let known = self.known().get(&name).copied();
        let none = || io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
        let before = known.and_then(|(address, _)| address);
        if known.is_some_and(|(_, until)| Instant::now() < until) {
            return before.ok_or_else(none);
        }
        let found = match timeout(LOOK_UP, lookup_host(&name)).await {
            Ok(found) => found.and_then(|mut all| all.next().ok_or_else(none)),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        if let Err(error) = &found {
            tracing::warn!(host, %error, "the name of an upstream could not be looked up");
        }
        let long = if found.is_ok() { BELIEVED } else { NOT_FOUND };
        let address = found.ok().or(before);
        self.known().insert(name, (address, Instant::now() + long));
        address.ok_or_else(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_is_itself_and_a_name_is_looked_up_once() {
        let addresses = Addresses::default();
        let found = addresses.find("::1", 81).await.unwrap();
        assert_eq!(found.to_string(), "[::1]:81");
        assert!(addresses.known().is_empty());
        let found = addresses.find("localhost", 82).await.unwrap();
        assert!(found.ip().is_loopback() && found.port() == 82);
        assert_eq!(addresses.known().len(), 1);
        assert!(addresses.find("nobody.invalid", 82).await.is_err());
    }
}
