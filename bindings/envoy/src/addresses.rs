//! Where does an upstream listen, as Envoy names it?
//!
//! By IP and port, which its transport tells ([`Upstream::addresses`](paddler_core::upstream::Upstream::addresses)). Of several
//! addresses the first counts that the request may go to. A name is waited for only where nothing else can be done.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll, Waker};

use paddler_core::status::Published;
use paddler_core::upstream::{Transport, UpstreamId};

/// An address of a subset; without a port, all of that machine.
pub(crate) type Allowed = (IpAddr, Option<u16>);

/// The upstreams that are there.
#[derive(Debug, Clone)]
pub(crate) struct Listening(pub(crate) Published);

impl Listening {
    /// Where this upstream listens, as far as that is known by now.
    pub(crate) fn known_of(&self, id: &UpstreamId) -> Vec<SocketAddr> {
        let snapshot = self.0.load_full();
        let entry = snapshot.find(id.as_str());
        let Some(transport) = entry.and_then(|entry| entry.spec().extensions.get::<Transport>()) else {
            return Vec::new();
        };
        let mut asked = transport.0.addresses();
        match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(found) => found.unwrap_or_default(),
            Poll::Pending => Vec::new(),
        }
    }

    /// Who listens at an address such as that. All are asked at once. `all` have to have an answer, or those count of whom it is
    /// known.
    pub(crate) async fn at(&self, all: bool, wanted: impl Fn(SocketAddr) -> bool + Send) -> Vec<UpstreamId> {
        let snapshot = self.0.load_full();
        let ask = snapshot.iter().filter_map(|(_, entry)| {
            let spec = entry.spec();
            Some((&spec.id, spec.extensions.get::<Transport>()?.0.addresses()))
        });
        let mut asked: Vec<_> = ask.collect();
        let mut at = Vec::new();
        poll_fn(|cx| {
            asked.retain_mut(|(id, addresses)| {
                let Poll::Ready(found) = addresses.as_mut().poll(cx) else {
                    return true;
                };
                if found.is_ok_and(|found| found.into_iter().any(&wanted)) {
                    at.push((*id).clone());
                }
                false
            });
            if asked.is_empty() || !all {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        at
    }
}

/// Whether it is one address, however each is written.
pub(crate) fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
}

/// Whether a request that may go to these alone may go there. An address is the same however it is written.
pub(crate) fn allows(subset: &[Allowed], at: SocketAddr) -> bool {
    let ip = at.ip().to_canonical();
    let mut allowed = subset.iter();
    allowed.any(|(allowed, port)| *allowed == ip && port.is_none_or(|port| port == at.port()))
}
