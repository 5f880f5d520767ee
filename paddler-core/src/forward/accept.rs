//! Where do clients' connections come from, and what is known of who is at the other end?
//!
//! From tokio's listener in the usual case. Whoever has another network, a simulated one or a Unix socket, implements
//! [`Accept`] for its listener.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// Lets clients in, one after the other.
///
/// ```
/// use std::net::SocketAddr;
/// use paddler_core::forward::{Accept, Connection};
///
/// /// Clients that live in this process.
/// struct InProcess(tokio::sync::mpsc::Receiver<tokio::io::DuplexStream>);
///
/// impl Accept for InProcess {
///     async fn accept(&mut self) -> std::io::Result<(Connection, SocketAddr)> {
///         match self.0.recv().await {
///             Some(stream) => Ok((Connection::new(stream), SocketAddr::from(([127, 0, 0, 1], 0)))),
///             None => std::future::pending().await,
///         }
///     }
/// }
/// ```
pub trait Accept: Send + 'static {
    /// The next connection, and the address of who made it. May be dropped before it is ready; no connection may be lost
    /// by that.
    ///
    /// # Errors
    /// When one connection, or for the time being none, can be accepted: it is called again, after a while.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Connection, SocketAddr)>> + Send;
}

impl Accept for TcpListener {
    async fn accept(&mut self) -> io::Result<(Connection, SocketAddr)> {
        let (stream, address) = Self::accept(self).await?;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a client has left while it was let in");
        }
        Ok((stream.into(), address))
    }
}

/// A client's connection.
///
/// Of a [`TcpStream`] (`Connection::from`) more is seen than of any other stream (`Connection::new`): that the client has hung
/// up while bytes of a next request lie unread; and an answer that ends with the connection, as in HTTP/1.0, can be seen to be
/// cut short.
pub struct Connection(pub(super) Kind);

pub(super) enum Kind {
    Tcp(TcpStream),
    Other(Box<dyn Io>),
}

/// What bytes come from and go to.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Connection {
    /// A connection over any stream.
    pub fn new(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        Self(Kind::Other(Box::new(stream)))
    }

    /// Its stream, for a server of the host's own.
    pub fn into_stream(self) -> impl AsyncRead + AsyncWrite + Send + Unpin + 'static {
        let stream: Box<dyn Io> = match self.0 {
            Kind::Tcp(stream) => Box::new(stream),
            Kind::Other(stream) => stream,
        };
        stream
    }
}

/// The next connection, and who made it. What goes wrong with the listener is waited out, such as that there are no file
/// descriptors.
pub async fn let_in(listener: &mut impl Accept) -> (Connection, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
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
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

impl From<TcpStream> for Connection {
    fn from(stream: TcpStream) -> Self {
        Self(Kind::Tcp(stream))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Tcp(stream) => f.debug_tuple("Connection").field(stream).finish(),
            Kind::Other(_) => f.write_str("Connection(..)"),
        }
    }
}

/// Who is at the other end of the connection, as an extension of each request that [`serve`](super::serve) hands on: the
/// client, or the proxy in front of us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer(pub SocketAddr);

/// An extension of each request that came over TLS, as [`serve`](super::serve) found it; who serves connections himself
/// adds it. By it upstreams are told the scheme ([`Forwarded`](crate::config::Forwarded)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OverTls;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn small_messages_of_tcp_do_not_wait_for_each_other() {
        let mut listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (connection, _) = let_in(&mut listener).await;
        assert!(matches!(&connection.0, Kind::Tcp(stream) if stream.nodelay().unwrap()));
    }
}
