//! How does a request get to an upstream?

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use http::{Request, Response};

use super::http::{HttpUpstream, Io};
use super::{Extensions, UpstreamId, UpstreamSpec};
use crate::forward::{Body, BoxError};

/// Somewhere a request can be sent: an engine, another balancer, a third-party API.
///
/// Who it is, which models it serves and how much it may be given is data, in [`UpstreamSpec`]. The request's URI has
/// path and query only; its `Host` is the client's, to be kept or replaced, and the router's own questions have none.
#[async_trait]
pub trait Upstream: fmt::Debug + Send + Sync + 'static {
    /// Sends the request; answers when the head of the response is here. Dropping the future, or the response's body
    /// before its end, must end the request at the upstream.
    ///
    /// Where there is a [`Progress`] among the request's extensions, it can be told there that the upstream has seen nothing
    /// of it yet.
    ///
    /// A request with `Upgrade` asks for another protocol. Where the upstream agrees (101), the response carries
    /// [`Upgraded`] among its extensions, and the connection belongs to whoever takes it.
    ///
    /// # Errors
    /// Best a [`CallError`], which says how far the request had come; any other error counts as
    /// [`Sent::Yes`](Sent::Yes).
    async fn call(&self, request: Request<Body>) -> Result<Response<Body>, BoxError>;

    /// Whether a request that was sent here is never sent to another upstream: the answer is passed on, even where it is a
    /// refusal. It is so where the call only tells whoever asks where to go. Default: it may be sent again. What was
    /// [not sent](Sent::No) goes elsewhere in any case.
    fn sends_once(&self) -> bool {
        false
    }

    /// Where it listens, the best address first: for hosts that say where a request goes and do not send it. What is known is
    /// told at once; who has to look a name up takes no longer for it than for a connection.
    ///
    /// Provided: none is known.
    ///
    /// # Errors
    /// Where no address is known or found.
    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let text = "nothing says where this upstream listens";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    /// Itself, where it is our own: it sends a request without a copy of it. Provided: it is another's.
    #[doc(hidden)]
    fn as_http(&self) -> Option<&HttpUpstream> {
        None
    }
}

/// The connection of an answer with status 101, as an extension of that: what is spoken over it is no longer HTTP.
///
/// ```
/// use http::{Response, StatusCode};
/// use paddler_core::forward::Body;
/// use paddler_core::upstream::Upgraded;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let (ours, _theirs) = tokio::io::duplex(64);
/// let mut response = Response::new(Body::empty());
/// *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
/// response.extensions_mut().insert(Upgraded::new(ours));
///
/// let upgraded = response.extensions().get::<Upgraded>().unwrap();
/// assert!(upgraded.take().is_some());
/// assert!(upgraded.take().is_none(), "there is one connection");
/// # }
/// ```
#[derive(Clone)]
pub struct Upgraded(Arc<Mutex<Option<Box<dyn Io>>>>);

impl Upgraded {
    /// This connection, from its first byte after the answer's head.
    pub fn new(io: impl Io) -> Self {
        Self(Arc::new(Mutex::new(Some(Box::new(io)))))
    }

    /// The connection, once. Nobody who takes it: it is closed with the last clone.
    pub fn take(&self) -> Option<Box<dyn Io>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upgraded(..)")
    }
}

/// How far a request has come, as an extension of it: so that one which is given up before it was sent leaves its place free
/// at once. Until a transport says otherwise it is on its way. Clones are about the same request.
///
/// ```
/// use paddler_core::upstream::Progress;
///
/// let progress = Progress::default();
/// assert!(progress.is_sending());
/// progress.clone().set_sending(false);
/// assert!(!progress.is_sending(), "there is no connection yet");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Progress {
    held_back: Arc<AtomicBool>,
}

impl Progress {
    /// From now on the upstream may see it; or not after all, since another connection is made first.
    pub fn set_sending(&self, sending: bool) {
        self.held_back.store(!sending, Relaxed);
    }

    /// Whether the upstream may have seen any of it.
    pub fn is_sending(&self) -> bool {
        !self.held_back.load(Relaxed)
    }

    /// The same, for our own transport: whether nothing of it was seen.
    pub(crate) fn held_back(&self) -> &AtomicBool {
        &self.held_back
    }
}

/// Turns a spec into an upstream. Called when an upstream joins, and again when its spec changes.
pub trait Connect: fmt::Debug + Send + Sync + 'static {
    /// Makes the upstream; connections are for later.
    ///
    /// # Errors
    /// When the spec cannot be one, such as for a URL that is none.
    fn connect(&self, spec: &UpstreamSpec) -> Result<Arc<dyn Upstream>, BoxError>;
}

/// An extension of a request that an upstream may have seen already, and that is not sent again where it is lost this time: it
/// has to go over a new connection, since one that was used before may just have been closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewConnection;

/// An extension of a request that another model serves than its own: a key of the client's is not for whoever has that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instead;

/// The only upstreams that a request may go to: an extension of the request that the router gets. None that is
/// known, or an empty list: 503 at once. Who is known and lets nobody in for now is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Only(pub Arc<[UpstreamId]>);

/// What a host gives its own transport with a request, past the router: an extension of the request that the router gets,
/// and of each that [`Upstream::call`] gets for it. Beside it the router then puts a [`Dispatch`].
#[derive(Debug, Clone, Default)]
pub struct Carried(pub Extensions);

/// What the router says of a request that came with [`Carried`]: an extension of what [`Upstream::call`] gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dispatch {
    /// The model or adapter that is asked for. `None`: any.
    pub model: Option<Arc<str>>,
    /// Who comes next, the best first: as many as [`RouterOptions::alternatives`](crate::forward::RouterOptions::alternatives)
    /// says, or as there are. Nothing is reserved there.
    pub alternatives: Vec<UpstreamId>,
    /// The body is another one than that which came: it names another model.
    pub rewritten: bool,
}

/// Another upstream has answered than the one that was called: an extension of the response of [`Upstream::call`]. What the
/// request takes, and how it went, counts there from then on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedBy(pub UpstreamId);

/// How far a failed request had come: what decides whether it may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sent {
    /// Not at all: sending it again, elsewhere, is always safe.
    No,
    /// Perhaps, and nothing of an answer came back. The connection had been used before and ended at once (over HTTP: within
    /// 1 s), so most likely the upstream had closed it and never saw the request.
    Reused,
    /// It was, and no byte came back: the upstream may have worked on it.
    Yes,
    /// It was, and what came back is no whole head of an answer, or none that can be read: as [`Yes`](Self::Yes) otherwise.
    Begun,
}

/// A request that got no response.
#[derive(Debug)]
pub struct CallError {
    sent: Sent,
    reached: bool,
    source: BoxError,
}

impl CallError {
    /// The request had come so far when this happened.
    pub fn new(sent: Sent, source: impl Into<BoxError>) -> Self {
        Self {
            sent,
            reached: true,
            source: source.into(),
        }
    }

    /// No connection could be made, or it was of no use from the beginning: the request was not sent, and the next one had
    /// better not be sent there either.
    pub fn unreachable(source: impl Into<BoxError>) -> Self {
        Self {
            sent: Sent::No,
            reached: false,
            source: source.into(),
        }
    }

    /// Whether there was a connection at all that could be used, or none for want of something of our own.
    pub fn reached(&self) -> bool {
        self.reached
    }

    /// How far it had come.
    pub fn sent(&self) -> Sent {
        self.sent
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.sent {
            Sent::No => "the request could not be sent",
            Sent::Reused => "the upstream closed a connection that had been used before",
            Sent::Yes => "the upstream broke off before it answered",
            Sent::Begun => "what the upstream answered cannot be read",
        })
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

/// The transport of an upstream that is in force, as it rides on the spec's extensions.
#[derive(Debug, Clone)]
pub struct Transport(pub Arc<dyn Upstream>);
