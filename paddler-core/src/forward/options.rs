//! How does a router behave?
//!
//! Its defaults are those of the config file, which gives their reasons.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use super::rights::Authorise;
use crate::config::{AdminPaths, Forwarding, Limits, Network, Retry, WebSockets};
use crate::observe::Telemetry;
use crate::queue::QueueLimits;
use crate::request::{ModelRules, RequestFacts, ScanLimits};

/// How a router behaves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RouterOptions {
    /// How many requests wait, and how long.
    pub queue: QueueLimits,
    /// How long each stage of a request may take.
    pub timeouts: Timeouts,
    /// The largest body, in bytes: [`Limits::body`].
    pub max_body: u64,
    /// The most bytes of bodies held at once, over all requests: [`Limits::buffered_bodies`].
    pub max_buffered: u64,
    /// How often a request is sent again.
    pub retry: Retry,
    /// How deep a body is looked at.
    pub scan: ScanLimits,
    /// Whether engines' own admin paths are passed on. Default closed.
    pub admin: AdminPaths,
    /// Whether WebSockets are passed on. Default closed.
    pub websockets: WebSockets,
    /// Who may use the router. Default `None`: everybody who can connect.
    pub keys: Option<Arc<dyn Authorise>>,
    /// What is meant by the names of models that clients ask for, and what is special about each. Default: each name is what it
    /// says.
    pub models: Arc<ModelRules>,
    /// Adds what the host knows of a request: priority, tenant, session. Default `None`: every request is standard.
    pub annotate: Option<Arc<dyn Annotate>>,
    /// Who is told what becomes of each request. Default `None`: nobody, which costs nothing.
    pub telemetry: Option<Arc<dyn Telemetry>>,
    /// Host names under which this router is asked in absolute form, besides loopback's. Others are refused.
    pub server_names: Vec<String>,
    /// Only loopback's names and [`server_names`](Self::server_names) may be asked for by `Host`, too, unless there are keys:
    /// for listeners on loopback, which a web page could else reach by a name of its own that leads there (DNS rebinding). Default false; of a config: whether it listens on loopback.
    pub own_names_only: bool,
    /// Peers whose word on priority, tenant and origin counts: [`Config::trusted_peers`](crate::config::Config::trusted_peers).
    /// Default none.
    pub trusted_peers: Vec<Network>,
    /// What upstreams are told of where a request comes from. Default: nothing but that it came through here.
    pub forwarding: Forwarding,
    /// What clients that are refused for now are told to wait where nothing is known that says it better: how fast the queue
    /// moves, when an upstream wants work again, when an allowance has grown. Default 2 s: about the time in which a place
    /// comes free, and long enough not to be hammered.
    pub retry_after: Duration,
    /// How many upstreams a transport is told besides the one that a request goes to, if the host's request came with
    /// [`Carried`](crate::upstream::Carried): 0 to 3, ranked. Default 0.
    pub alternatives: usize,
    /// Where chance comes from; `None`: another place each time.
    pub seed: Option<u64>,
}

impl Default for RouterOptions {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            queue: QueueLimits::default(),
            timeouts: Timeouts::default(),
            max_body: limits.body,
            max_buffered: limits.buffered_bodies,
            retry: Retry::default(),
            scan: ScanLimits::default(),
            admin: AdminPaths::default(),
            websockets: WebSockets::default(),
            keys: None,
            models: Arc::default(),
            annotate: None,
            telemetry: None,
            server_names: Vec::new(),
            own_names_only: false,
            trusted_peers: Vec::new(),
            forwarding: Forwarding::default(),
            retry_after: Duration::from_secs(2),
            alternatives: 0,
            seed: None,
        }
    }
}

/// How long each stage of a request may take. [`ModelSettings`](crate::request::ModelSettings) may say otherwise for a model. An [`UpstreamSpec`](crate::upstream::UpstreamSpec) may say otherwise for its
/// upstream, and a client may shorten `first_byte`, `idle` and `whole` by header.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// From sending the request to the first byte of the answer's body: [`crate::config::Timeouts::first_byte`].
    pub first_byte: Duration,
    /// From one byte of the answer to the next: [`crate::config::Timeouts::idle`].
    pub idle: Duration,
    /// From the head of the request to the last byte of the answer: [`crate::config::Timeouts::whole`].
    pub whole: Option<Duration>,
    /// From one piece of the client's body to the next: [`Limits::body_idle`].
    pub body_idle: Duration,
    /// From one piece to the next, in either direction of a WebSocket: [`crate::config::Timeouts::tunnel_idle`].
    pub tunnel_idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let timeouts = crate::config::Timeouts::default();
        Self {
            first_byte: timeouts.first_byte,
            idle: timeouts.idle,
            whole: timeouts.whole,
            body_idle: Limits::default().body_idle,
            tunnel_idle: timeouts.tunnel_idle,
        }
    }
}

/// Adds to the facts of a request what its body does not say and the host knows: from headers that it trusts, or from the
/// key's owner. A model that it sets is the one that is asked for, by the body too: see
/// [`annotate`](Self::annotate). What it sets decides who is shed and who is kept together, so it must not believe just anybody.
///
/// ```
/// use http::HeaderMap;
/// use paddler_core::forward::Annotate;
/// use paddler_core::request::RequestFacts;
///
/// /// What a proxy in front of us has checked says which team pays.
/// #[derive(Debug)]
/// struct Team;
///
/// impl Annotate for Team {
///     fn annotate(&self, headers: &HeaderMap, facts: &mut RequestFacts) {
///         facts.tenant = headers.get("x-team").and_then(|team| team.to_str().ok()).map(Into::into);
///         facts.priority = if facts.tenant.is_some() { 0 } else { -1 };
///     }
/// }
///
/// let (mut headers, mut facts) = (HeaderMap::new(), RequestFacts::default());
/// headers.insert("x-team", "search".parse()?);
/// Team.annotate(&headers, &mut facts);
/// assert_eq!((facts.tenant.as_deref(), facts.priority), (Some("search"), 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Annotate: fmt::Debug + Send + Sync + 'static {
    /// Changes the facts before a place is looked for.
    ///
    /// Where another model stands in them afterwards, it takes the place of the one that the body names: of those bytes and
    /// no others. A body that names none stays as it is. One that is compressed is refused with 415. The client's key has to
    /// open the new model.
    fn annotate(&self, headers: &HeaderMap, facts: &mut RequestFacts);
}
