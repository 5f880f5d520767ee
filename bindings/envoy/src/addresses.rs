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
use paddler_core::upstream::UpstreamId;
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
        let url = &snapshot.find(id.as_str())?.spec().url;
        self.addresses.find(url).await.ok()
    }

    /// Who listens where `wanted` says.
    pub(crate) async fn who(&self, wanted: impl Fn(SocketAddr) -> bool) -> Vec<UpstreamId> {
        let snapshot = self.published.load_full();
        let mut who = Vec::new();
        for (_, entry) in snapshot.iter() {
            let spec = entry.spec();
            if self.addresses.find(&spec.url).await.is_ok_and(&wanted) {
                who.push(spec.id.clone());
            }
        }
        who
    }
}

/// The host and the port of an upstream's URL.
pub(crate) fn authority(url: &str) -> io::Result<(&str, u16)> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, format!("{url:?} names no host"));
    let (scheme, rest) = url.split_once("://").ok_or_else(invalid)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // Colons within brackets belong to an IPv6 address.
    let after_host = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    let (host, port) = match authority[after_host..].find(':') {
        Some(colon) => authority.split_at(after_host + colon),
        None => (authority, ""),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().map_err(|_| invalid())?,
        None if scheme.eq_ignore_ascii_case("https") => 443,
        None => 80,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        Err(invalid())
    } else {
        Ok((host, port))
    }
}

impl Addresses {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Found>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where this URL leads.
    pub(crate) async fn find(&self, url: &str) -> io::Result<SocketAddr> {
        let (host, port) = authority(url)?;
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

    #[test]
    fn hosts_and_ports_of_urls() {
        for (url, host, port) in [
            ("http://10.0.0.3:8080", "10.0.0.3", 8080),
            ("http://[::1]:8080/", "::1", 8080),
            ("https://gpu-1", "gpu-1", 443),
            ("http://[fe80::1]", "fe80::1", 80),
        ] {
            assert_eq!(authority(url).unwrap(), (host, port));
        }
        for url in ["", "10.0.0.3:80", "http://", "http://:80", "http://a:b"] {
            assert!(authority(url).is_err(), "{url}");
        }
    }

    #[tokio::test]
    async fn an_address_is_itself_and_a_name_is_looked_up_once() {
        let addresses = Addresses::default();
        let found = addresses.find("http://[::1]:81").await.unwrap();
        assert_eq!(found.to_string(), "[::1]:81");
        assert!(addresses.known().is_empty());
        let found = addresses.find("http://localhost:82").await.unwrap();
        assert!(found.ip().is_loopback() && found.port() == 82);
        assert_eq!(addresses.known().len(), 1);
        assert!(addresses.find("http://nobody.invalid:82").await.is_err());
    }
}
