//! How does a connection come to speak HTTP, and which?

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::dial::{Dial, Io};
use super::route::{Dialled, Route};
#[cfg(feature = "tls")]
use super::tls::{Offer, TlsClient};
use crate::clock::after;
use crate::upstream::address::Address;
use crate::upstream::{Http2, InvalidUrl, UpstreamSpec};

/// Makes connections to one upstream.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) route: Arc<Route>,
    http2: Http2,
    #[cfg(feature = "tls")]
    tls: Option<Arc<TlsClient>>,
    limit: Duration,
}

/// A connection over which nothing has been said, but for what TLS needs.
#[cfg_attr(not(feature = "http2"), expect(dead_code, reason = "there is one kind"))]
pub(super) struct Link {
    pub(super) io: Box<dyn Io>,
    pub(super) peer: SocketAddr,
    pub(super) http2: bool,
    /// When it has to be in use.
    pub(super) deadline: Instant,
}

impl Connector {
    pub(super) fn new(
        address: &Address,
        spec: &UpstreamSpec,
        dial: Arc<dyn Dial>,
        ttl: Duration,
        limit: Duration,
    ) -> Result<Self, InvalidUrl> {
        let protocol = &spec.protocol;
        let without = |problem: &str| InvalidUrl {
            problem: format!("{address}: {problem}"),
            mend: "build paddler-core with it",
        };
        if cfg!(not(feature = "tls")) && address.tls() {
            return Err(without("https needs the feature `tls`, which this build has not"));
        }
        if cfg!(not(feature = "http2")) && protocol.http2 == Http2::Always {
            return Err(without(
                "HTTP/2 needs the feature `http2`, which this build has not",
            ));
        }
        #[cfg(feature = "tls")]
        let tls = match address.tls() {
            true => {
                let offer = offer(protocol.http2, false);
                Some(Arc::new(TlsClient::new(
                    &spec.id,
                    address.target().0,
                    &protocol.tls,
                    offer,
                )?))
            }
            false => None,
        };
        Ok(Self {
            route: Arc::new(Route::new(address, &spec.id, ttl, dial)),
            http2: protocol.http2,
            #[cfg(feature = "tls")]
            tls,
            limit,
        })
    }

    /// Whether a connection may come to speak HTTP/2.
    #[cfg(feature = "http2")]
    pub(super) fn may_speak_http2(&self) -> bool {
        match self.http2 {
            Http2::Never => false,
            Http2::Always => true,
            #[cfg(feature = "tls")]
            Http2::Auto => self.tls.is_some(),
            #[cfg(not(feature = "tls"))]
            Http2::Auto => false,
        }
    }

    /// When a connection that is begun now has to be in use.
    pub(super) fn deadline(&self) -> Instant {
        after(Instant::now(), self.limit)
    }

    /// Where a connection would lead.
    pub(super) async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.route.tell(self.deadline()).await
    }

    /// A new connection. `http1`: for what HTTP/2 cannot carry.
    pub(super) async fn connect(&self, http1: bool, deadline: Instant) -> io::Result<Link> {
        if http1 && self.http2 == Http2::Always {
            let text = "an upgrade is not possible over HTTP/2, and `http2` is always";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let late = || {
            let text = format!("it took longer than {:?}", self.limit);
            io::Error::new(io::ErrorKind::TimedOut, text)
        };
        timeout_at(deadline, self.link(http1, deadline))
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    async fn link(&self, http1: bool, deadline: Instant) -> io::Result<Link> {
        let Dialled { io, peer } = self.route.connect(deadline).await?;
        let always = !http1 && self.http2 == Http2::Always;
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let (io, http2) = tls.connect(io, offer(self.http2, http1)).await?;
            let http2 = http2 || always;
            return Ok(Link {
                io,
                peer,
                http2,
                deadline,
            });
        }
        Ok(Link {
            io,
            peer,
            http2: always,
            deadline,
        })
    }
}

/// What is offered to speak over TLS. `http1`: for what HTTP/2 cannot carry.
#[cfg(feature = "tls")]
#[cfg_attr(
    not(feature = "http2"),
    expect(unused_variables, reason = "there is one kind")
)]
fn offer(http2: Http2, http1: bool) -> Offer {
    match http2 {
        #[cfg(feature = "http2")]
        Http2::Auto if !http1 => Offer::Either,
        #[cfg(feature = "http2")]
        Http2::Always => Offer::Http2,
        _ => Offer::Http1,
    }
}
