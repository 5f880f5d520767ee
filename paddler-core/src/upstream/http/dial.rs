//! How does a connection to an upstream come about?
//!
//! Over TCP, with the names that the operating system knows. A host that has networks, resolvers or tunnels of its own,
//! or none at all (a simulation), puts a [`Dial`] in its place.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};

use super::srv::Resolver;
use crate::upstream::address::service_domain;

/// What a connection is made of: bytes in both directions.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// Makes connections. TLS and HTTP are spoken over what it makes.
///
/// ```
/// use async_trait::async_trait;
/// use paddler_core::upstream::http::{Dial, HttpConnect, Io};
/// use std::{io, net::SocketAddr, sync::Arc};
///
/// /// Whatever the name, there is one machine.
/// #[derive(Debug)]
/// struct Loopback;
///
/// #[async_trait]
/// impl Dial for Loopback {
///     async fn resolve(&self, _host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
///         Ok(vec![([127, 0, 0, 1], port).into()])
///     }
///     async fn dial(&self, address: SocketAddr) -> io::Result<Box<dyn Io>> {
///         Ok(Box::new(tokio::net::TcpStream::connect(address).await?))
///     }
/// }
///
/// let connect = HttpConnect::default().dial(Arc::new(Loopback));
/// assert!(format!("{connect:?}").contains("Loopback"));
/// ```
#[async_trait]
pub trait Dial: fmt::Debug + Send + Sync + 'static {
    /// The addresses that a host name has now, the best first. Not asked where the URL has an address. What it answers is
    /// used for a while ([`HttpOptions::address_ttl`](super::HttpOptions::address_ttl)), so it need not keep anything.
    ///
    /// Provided: the operating system's answer.
    ///
    /// # Errors
    /// Where there is no answer.
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(lookup_host((host, port)).await?.collect())
    }

    /// A connection to an address. The caller limits the time; dropped, the attempt must end.
    ///
    /// # Errors
    /// Where none comes about. Nothing has been sent then.
    async fn dial(&self, address: SocketAddr) -> io::Result<Box<dyn Io>>;
}

/// TCP, and the operating system's resolver. A name of a service (`_http._tcp.engines`) leads to where its SRV records say that it
/// listens: to the targets of the lowest priority, at their ports.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp;

#[async_trait]
impl Dial for Tcp {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if service_domain(host).is_some() {
            return Resolver::of_this_machine().await.addresses(host).await;
        }
        Ok(lookup_host((host, port)).await?.collect())
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<Box<dyn Io>> {
        let stream = TcpStream::connect(address).await?;
        // A request is one write, and is not to wait for another.
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}
