//! Is the port open, and how is it closed so that callers are refused?

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;

/// A listening port that can be closed and opened again.
///
/// Next to the listener lies a socket that is bound to the same port and never listens: while the listener
/// is gone, it keeps others from taking the port, and the kernel refuses whoever calls.
#[derive(Debug)]
pub(crate) struct Door {
    address: SocketAddr,
    _reserved: TcpSocket,
    listener: Mutex<Listener>,
    moved: Notify,
}

#[derive(Debug)]
enum Listener {
    Closed,
    /// Bound and listening, but not yet known to tokio.
    Opened(StdListener),
    Open(TcpListener),
}

impl Door {
    /// Takes the port; nobody is let in yet.
    pub(crate) fn reserve(address: SocketAddr) -> io::Result<Self> {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        Ok(Self {
            address: socket.local_addr()?,
            _reserved: socket,
            listener: Mutex::new(Listener::Closed),
            moved: Notify::new(),
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn listener(&self) -> MutexGuard<'_, Listener> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets callers in from now on.
    pub(crate) fn open(&self) -> io::Result<()> {
        let mut listener = self.listener();
        if matches!(*listener, Listener::Closed) {
            let opened = StdListener::bind(self.address)?;
            opened.set_nonblocking(true)?;
            *listener = Listener::Opened(opened);
            drop(listener);
            self.moved.notify_one();
        }
        Ok(())
    }

    /// Refuses callers from now on; those in the kernel's queue are reset.
    pub(crate) fn close(&self) {
        *self.listener() = Listener::Closed;
        self.moved.notify_one();
    }

    /// Waits until the door was opened or closed.
    pub(crate) async fn moved(&self) {
        self.moved.notified().await;
    }

    /// The next caller; pending while the door is closed.
    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        let mut listener = self.listener();
        if let Listener::Opened(_) = *listener
            && let Listener::Opened(opened) = std::mem::replace(&mut *listener, Listener::Closed)
        {
            *listener = Listener::Open(TcpListener::from_std(opened)?);
        }
        match &*listener {
            Listener::Open(open) => open.poll_accept(cx).map_ok(|(stream, _)| stream),
            Listener::Opened(_) | Listener::Closed => Poll::Pending,
        }
    }
}
