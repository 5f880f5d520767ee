//! How do Envoy's connections come in?
//!
//! In clear, or over TLS as the core has it: certificates that are renewed while it runs, clients that show theirs. A
//! connection that takes its time to agree on TLS holds up no other.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use paddler_core::forward::{Accept, Connection, Tls, let_in};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// What bytes come from and go to.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection of Envoy's.
pub(crate) struct Line {
    io: Box<dyn Io>,
    peer: SocketAddr,
}

/// Lets connections in until nobody takes them any more.
pub(crate) fn incoming(listener: impl Accept, tls: Option<Tls>) -> ReceiverStream<io::Result<Line>> {
    let (to, coming) = mpsc::channel(1);
    tokio::spawn(accept(listener, tls, to));
    ReceiverStream::new(coming)
}

async fn accept(mut listener: impl Accept, tls: Option<Tls>, to: mpsc::Sender<io::Result<Line>>) {
    let mut greetings = JoinSet::new();
    loop {
        let (connection, peer) = tokio::select! {
            biased;
            () = to.closed() => return,
            // Those that have ended are let go of as we go.
            Some(_) = greetings.join_next() => continue,
            accepted = let_in(&mut listener) => accepted,
        };
        let (tls, to) = (tls.clone(), to.clone());
        greetings.spawn(async move {
            match greet(connection, peer, tls).await {
                // Where nobody takes it, the server stops.
                Ok(line) => drop(to.send(Ok(line)).await),
                Err(error) => tracing::debug!(%error, %peer, "no TLS with an Envoy"),
            }
        });
    }
}

async fn greet(connection: Connection, peer: SocketAddr, tls: Option<Tls>) -> io::Result<Line> {
    let stream = connection.into_stream();
    let io: Box<dyn Io> = match tls {
        None => Box::new(stream),
        // Whoever has not asked for HTTP/2 finds out that nothing else is spoken here.
        Some(tls) => Box::new(tls.accept(stream).await?.0),
    };
    Ok(Line { io, peer })
}

impl Connected for Line {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        TcpConnectInfo {
            local_addr: None,
            remote_addr: Some(self.peer),
        }
    }
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
