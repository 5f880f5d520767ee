//! What can be set, in which unit, and why is the default what it is?
//!
//! ```yaml
//! listen: 127.0.0.1:8080
//! management: 127.0.0.1:8081        # or off
//! upstreams:
//!   - id: gpu-1                     # default: host:port of the url
//!     url: http://10.0.0.3:8080
//!     engine: auto                  # or llamacpp, vllm, sglang, trtllm, triton, ollama, openai, anthropic, paddler
//!     metrics_url: http://10.0.0.3:9400/metrics   # where they do not stand where this engine has them
//!     labels: {zone: a}
//!     models: [llama-3, {id: sql, aliases: [text2sql], parent: llama-3}]   # or any; default: ask the engine
//!     capabilities: [chat, vision]  # and nothing else; default: all that it does not deny
//!     context: 8192                 # tokens of a prompt and its answer; default: ask the engine
//!     max_in_flight: 4
//!     max_sequences: 256
//!     traffic: all                  # or named, fallback
//!     api_key_file: /run/secrets/gpu-1
//!     http2: auto                   # or never, always
//!     host: rewrite                 # or keep
//!     tls: {ca: ca.pem, certificate: own.pem, key: own.key, server_name: gpu-1}   # with an https url
//!     timeouts: {connect: 500ms, first_byte: 30m, idle: 2m}
//! upstreams_file: upstreams.yaml    # more of them
//! models: {gpt-4o: llama-3, gpt-*: llama-3, big: {fallback: [small], patience: 5s}, chat: {targets: [{model: llama-3, weight: 90}, {model: llama-4, weight: 10}]}}
//! tree: gateway                     # or nodes, with signals beside them
//! queue: {max_requests: 30, max_wait: 10s, max_wait_starting: 60s, min_shares: {standard: 25%, sheddable: 5%}}
//! limits: {body: 64MiB, buffered_bodies: 1GiB, headers: 64KiB, connections: 4096, streams: 128, header_timeout: 75s,
//!          body_idle: 30s}
//! timeouts:
//!   connect: 2s
//!   first_byte: 10m
//!   idle: 60s
//!   whole: off                      # or a time
//!   client_idle: 60s
//!   tunnel_idle: 5m
//!   models: {big: {first_byte: 30m, idle: 2m, whole: 2h}}
//! poll: {interval: 1s, timeout: 3s, concurrency: 64}
//! health: {eject_after: 3, eject_time: 5s, unreachable_time: 1s, longest_time: 5m, largest_share: 0.5, interval: 1m, slow_start: 30s}
//! retry: {attempts: 16, share: 0.2, per_second: 10}
//! api_key_file: /run/secrets/keys
//! management_key_file: /run/secrets/management-keys
//! management_origins: []            # of web pages, such as [https://ops.example.com]
//! agents: {access: auto, key_file: /run/secrets/agents}   # auto, open or off
//! admin_paths: closed               # or open
//! trusted_peers: []                 # such as [10.0.0.0/8, "::1"]
//! forwarding: {forwarded: off, traceparent: pass, name_upstream: on_demand}   # off, x-forwarded, forwarded or both; pass or make; always
//! websockets: closed                # or open
//! tls: {certificate: tls.crt, key: tls.key, client_ca: clients.crt, client_certificates: required, handshake_timeout: 10s,
//!       handshakes: 256, management: plain}
//! server_names: [llm.example.com]
//! decisions: {keep: 1000, per_second: 100, log: /var/log/paddler/decisions.jsonl, log_size: 1GiB}
//! access_log: {file: access.jsonl, format: json}   # default off; or file: stderr; json or text
//! count_tokens: charged             # or always
//! statsd: {address: "127.0.0.1:8125", prefix: paddler, interval: 10s}   # default off
//! otlp: {endpoint: "http://127.0.0.1:4318", headers_file: otlp.txt, sample: 1.0}   # default off
//! shutdown: {settle: 0s, grace: 30s}
//! ```
//!
//! Every key may be left out.

mod agents;
mod decisions;
mod files;
mod fill;
mod health;
mod limits;
mod models;
mod queue;
mod telemetry;
mod timeouts;
mod tls;
mod told;
mod upstream;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub use self::agents::{AgentAccess, AgentRules};
pub use self::decisions::DecisionRules;
pub use self::files::{FilePurpose, NamedFile};
pub(super) use self::fill::config as read_over;
pub use self::health::{HealthRules, Retry};
pub use self::limits::Limits;
pub use self::queue::Queue;
pub use self::telemetry::{AccessLog, CountTokens, LogFormat, LogTarget, Otlp, Statsd, Telemetry};
pub use self::timeouts::{ModelTimeouts, Timeouts};
pub use self::tls::{ClientCertificates, ListenerTls};
pub(super) use self::upstream::models;
use super::fault::{ConfigFaults, Faults};
use super::network::Network;
use super::read::At;
use super::registry::Registry;
use super::value::Value;
use crate::request::ModelRules;
use crate::schedule::{Tree, trees};
use crate::upstream::UpstreamSpec;
#[cfg(feature = "proxy")]
use crate::upstream::http::UpstreamKey;

/// The least head of a request that is read, in bytes: hyper reads no less at once.
pub(crate) const LEAST_HEAD: u32 = 8 << 10;

/// What the defaults are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Several models on engines of any kind: the tree is [`trees::gateway`].
    #[default]
    Gateway,
    /// Machines with llama.cpp that serve one model: the tree is [`trees::balancer`].
    Balancer,
}

/// All settings of a router.
///
/// ```
/// use paddler_core::config::{Config, Mode};
/// use std::time::Duration;
///
/// let mut config = Config::default_for(Mode::Balancer);
/// config.queue.max_wait = Duration::from_secs(30);
/// assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Config {
    /// Where requests come in. Default `127.0.0.1:8080`: nobody else reaches it unless told so.
    pub listen: SocketAddr,
    /// Where health and metrics are told; `None`: nowhere. Default `127.0.0.1:8081`: apart from `listen`, so that who may
    /// send requests need not see how many others do.
    pub management: Option<SocketAddr>,
    /// The upstreams that are known from the start. Default none: they may register later.
    pub upstreams: Vec<UpstreamConfig>,
    /// A file that lists more of them and says nothing else ([`UpstreamConfig::read_list`]), for whatever else makes such lists.
    /// Default `None`. As it is written: `paddler` looks for a relative path beside the config file, reads it again when it
    /// changes, and those that it lists come after `upstreams`, whose word counts first.
    pub upstreams_file: Option<PathBuf>,
    /// What is meant by the names of models that clients ask for. Default: each name is what it says.
    pub models: ModelRules,
    /// Who gets a request. The default depends on the [`Mode`].
    pub tree: Tree,
    /// Requests that must wait.
    pub queue: Queue,
    /// How much of our own memory and sockets clients can take.
    pub limits: Limits,
    /// How long each step may take.
    pub timeouts: Timeouts,
    /// How engines are asked how they are.
    pub poll: Poll,
    /// When an upstream that fails is left out.
    pub health: HealthRules,
    /// When a request is sent again.
    pub retry: Retry,
    /// A file with the keys of which clients must present one: one a line, or a list with what each may do. Default `None`:
    /// whoever reaches `listen` may send requests. As it is written: `paddler` looks for a relative path beside the config file.
    pub api_key_file: Option<PathBuf>,
    /// A file with the keys for the management listener's API, one a line. Default `None`: then that API changes something
    /// only for programs on this machine, and only where `management` is on loopback. Health and metrics need no key.
    pub management_key_file: Option<PathBuf>,
    /// The web pages whose browsers may ask the management listener, each as `scheme://host[:port]`. Default none.
    pub management_origins: Vec<String>,
    /// Who may tell of engines.
    pub agents: AgentRules,
    /// Whether the paths that read or change the inside of an engine are open. Default closed: slots and caches hold other
    /// people's prompts.
    pub admin_paths: AdminPaths,
    /// Whether WebSockets are passed on. Default closed: what is asked inside of one is neither judged, nor counted, nor
    /// limited, and it holds its place for as long as either end speaks.
    pub websockets: WebSockets,
    /// How connections from clients are encrypted. Default `None`: they are not.
    pub tls: Option<ListenerTls>,
    /// Host names under which requests in absolute form (`GET http://name/path`) are for this router, besides loopback's.
    /// Default none: others are refused with 421, since this is no forward proxy. On a loopback address without keys, `Host`
    /// is held to them as well: a web page could else reach it by a name of its own that leads there (DNS rebinding).
    pub server_names: Vec<String>,
    /// Peers whose word counts: from them a request's priority and tenant (`x-paddler-priority`, `x-paddler-tenant`) and whom
    /// they forward for are taken; from all others these headers are removed. A peer is the other end of the connection, so
    /// these are gateways in front. Default none, not even loopback: every user of this machine would be trusted, and
    /// whatever else forwards from here.
    pub trusted_peers: Vec<Network>,
    /// What upstreams are told of where a request comes from.
    pub forwarding: Forwarding,
    /// Which decisions are kept to be looked at.
    pub decisions: DecisionRules,
    /// Who is told what becomes of requests, besides those who scrape.
    pub telemetry: Telemetry,
    /// How it ends.
    pub shutdown: Shutdown,
}

/// An upstream, with what only the transport is to know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UpstreamConfig {
    /// What it is.
    pub spec: UpstreamSpec,
    /// A file that holds the key that is sent to it as a bearer token. Default `None`: what the client sent stays out.
    /// As it is written: `paddler` looks for a relative path beside the config file.
    pub api_key_file: Option<PathBuf>,
    /// Whether it is one upstream for each address of the host in its URL, which is looked up again and again
    /// ([`DnsList`](crate::status)): `dns+http://name:port`. Default: it is one, whatever its name leads to.
    pub dns: bool,
    /// Which of the list it was, from 0: before it in the text may stand others that are faulty.
    number: Option<usize>,
}

impl UpstreamConfig {
    /// This upstream, without a key.
    pub fn new(spec: UpstreamSpec) -> Self {
        Self {
            spec,
            api_key_file: None,
            dns: false,
            number: None,
        }
    }

    /// Reads one upstream in the words of a config, for a host that has a list of its own. `name` is that of the file, or of
    /// whatever it was, for the faults.
    ///
    /// ```
    /// use paddler_core::config::{UpstreamConfig, Value};
    ///
    /// let read = |json| UpstreamConfig::from_value(&Value::from_json(&json).unwrap(), "");
    /// let gpu = read(serde_json::json!({"id": "gpu-1", "url": "http://10.0.0.3:8080", "models": ["llama-3"]})).unwrap();
    /// assert_eq!(gpu.spec.id.as_str(), "gpu-1");
    ///
    /// let faults = read(serde_json::json!({"url": "10.0.0.3:8080", "max_in_flihgt": 4})).unwrap_err();
    /// assert_eq!(faults.faults.len(), 2);
    /// assert_eq!(faults.faults[1].to_string(), "max_in_flihgt: unknown key; did you mean \"max_in_flight\"?");
    /// ```
    ///
    /// # Errors
    /// Every fault at once, each with its path and, where the value has places, its place.
    pub fn from_value(value: &Value, name: &str) -> Result<Self, ConfigFaults> {
        let mut faults = Faults::default();
        let upstream = upstream::upstream(&At::root(value), 0, &mut Default::default(), &mut faults);
        faults.finish(name, upstream)
    }

    /// Reads a file that lists upstreams under the key `upstreams`, in the words of a config, and says nothing else. `name` is that of
    /// the file, for the faults.
    ///
    /// ```
    /// use paddler_core::config::UpstreamConfig;
    ///
    /// let list = UpstreamConfig::read_list("upstreams: [{url: 'http://10.0.0.3:8080'}]", "list.yaml").unwrap();
    /// assert_eq!(list[0].spec.id.as_str(), "10.0.0.3:8080");
    /// // Half of a file is no list that has become short.
    /// assert!(UpstreamConfig::read_list("", "list.yaml").is_err());
    /// ```
    ///
    /// # Errors
    /// Every fault at once, each with its path and place.
    #[cfg(feature = "yaml")]
    pub fn read_list(text: &str, name: &str) -> Result<Vec<Self>, ConfigFaults> {
        let mut faults = Faults::default();
        let list = super::yaml::read(text, &mut faults).and_then(|value| {
            let mut fields = At::root(&value).fields(&mut faults)?;
            let list = fields.need("upstreams", &mut faults);
            let list = list.map(|at| upstream::upstreams(&at, &mut faults));
            fields.end(&mut faults);
            list
        });
        faults.finish(name, list)
    }

    /// The spec with its key, if it has one: this one, or that in the file that is named.
    ///
    /// # Errors
    /// What is wrong with the key, with its file, the upstream and what to do. Both are one too many.
    #[cfg(feature = "proxy")]
    pub fn with_key(&self, key: Option<&str>) -> Result<UpstreamSpec, String> {
        let mut spec = self.spec.clone();
        let key = match (key, &self.api_key_file) {
            (None, None) => return Ok(spec),
            (None, Some(file)) => UpstreamKey::read(file, &spec.id)?,
            (Some(key), None) => UpstreamKey::new(key).ok_or_else(|| {
                format!(
                    "the key for the upstream {} is not of visible ASCII characters",
                    spec.id
                )
            })?,
            (Some(_), Some(_)) => {
                let id = &spec.id;
                return Err(format!(
                    "the upstream {id} has `api_key` and `api_key_file`: keep one of them"
                ));
            }
        };
        spec.extensions.insert(key);
        Ok(spec)
    }
}

/// What upstreams are told of where a request comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub struct Forwarding {
    /// Whether they are told the client's address, and the scheme and host that it asked by.
    pub forwarded: Forwarded,
    /// What becomes of a request without a trace.
    pub traceparent: Traceparent,
    /// Whether clients are told which upstream has answered, by `x-paddler-upstream`.
    pub name_upstream: NameUpstream,
}

/// Whether clients are told which upstream has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum NameUpstream {
    /// Those who may ask for an explanation, and do. The default: how the pool is made need not be known to all.
    #[default]
    OnDemand,
    /// All.
    Always,
}

/// In which headers upstreams are told whom a request is forwarded for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum Forwarded {
    /// In none; what a trusted peer says passes as it came. The default: engines read none of them, and where a client is
    /// need not be known to third parties.
    #[default]
    Off,
    /// In `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`.
    XForwarded,
    /// In `Forwarded` (RFC 7239).
    Forwarded,
    /// In all of them.
    Both,
}

/// What becomes of a request without a trace. A `traceparent` (W3C Trace Context) that is valid passes as it came, unless
/// the request is recorded ([`Otlp`]): then the upstream is told of the span of this attempt; one that is
/// not is removed, with its `tracestate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum Traceparent {
    /// It goes without. The default: a trace that nobody records helps nobody.
    #[default]
    Pass,
    /// It gets one, not sampled, so that what upstreams record of it belongs together.
    Make,
}

/// How engines are asked how they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Poll {
    /// The time between two questions to one engine, 10 ms to 1 h. A built-in tree goes by reports of the last ten polls, at
    /// least 10 s. Default 1 s: our own load is known at once in any case,
    /// and questions cost a busy engine time.
    pub interval: Duration,
    /// How long an answer may take, 10 ms to 1 h, and longer than `timeouts.connect`. Default 3 s: llama.cpp answers between two batches.
    pub timeout: Duration,
    /// How many engines are asked at once, 1 to 10,000. Default 64: a thousand engines within a second, at 60 ms each.
    pub concurrency: usize,
}

/// Whether the paths that read or change the inside of an engine are open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum AdminPaths {
    /// They are refused.
    #[default]
    Closed,
    /// They are passed on.
    Open,
}

/// Whether WebSockets are passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum WebSockets {
    /// They are refused.
    #[default]
    Closed,
    /// Each one takes a place, as a request that generates does, until it ends.
    Open,
}

/// How it ends once it is told to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Shutdown {
    /// How long it goes on to accept connections while it says that it is not ready, 0 s to 1 h. Default 0 s; behind a
    /// balancer of one's own, as long as that takes to notice.
    pub settle: Duration,
    /// How long answers under way may take to end after that, 0 s to 24 h. Default 30 s: what Kubernetes grants.
    pub grace: Duration,
}

impl Default for Poll {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(3),
            concurrency: 64,
        }
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self {
            settle: Duration::ZERO,
            grace: Duration::from_secs(30),
        }
    }
}

impl Default for Config {
    /// The defaults for [`Mode::Gateway`].
    fn default() -> Self {
        Self::default_for(Mode::Gateway)
    }
}

impl Config {
    /// The settings where nothing is said.
    pub fn default_for(mode: Mode) -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 8080).into(),
            management: Some((Ipv4Addr::LOCALHOST, 8081).into()),
            upstreams: Vec::new(),
            upstreams_file: None,
            models: ModelRules::default(),
            tree: match mode {
                Mode::Gateway => trees::gateway(),
                Mode::Balancer => trees::balancer(),
            },
            queue: Queue::default(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            poll: Poll::default(),
            health: HealthRules::default(),
            retry: Retry::default(),
            api_key_file: None,
            management_key_file: None,
            management_origins: Vec::new(),
            agents: AgentRules::default(),
            admin_paths: AdminPaths::default(),
            websockets: WebSockets::default(),
            tls: None,
            server_names: Vec::new(),
            trusted_peers: Vec::new(),
            forwarding: Forwarding::default(),
            decisions: DecisionRules::default(),
            telemetry: Telemetry::default(),
            shutdown: Shutdown::default(),
        }
    }

    /// Reads a file of YAML (or JSON) over the defaults. `name` is that of the file, for the faults.
    ///
    /// ```
    /// use paddler_core::config::{Config, Mode, Registry};
    ///
    /// let text = "upstreams:\n  - url: http://10.0.0.3:8080\n    max_in_fligth: 4\n";
    /// let faults = Config::read(text, "paddler.yaml", Mode::Gateway, &Registry::new()).unwrap_err();
    /// assert_eq!(
    ///     faults.to_string(),
    ///     "paddler.yaml:3:5: upstreams[0].max_in_fligth: unknown key; \
    ///      did you mean \"max_in_flight\"?"
    /// );
    /// ```
    ///
    /// # Errors
    /// Every fault at once, each with its path and place.
    #[cfg(feature = "yaml")]
    pub fn read(text: &str, name: &str, mode: Mode, registry: &Registry) -> Result<Self, ConfigFaults> {
        match Self::read_partly(text, name, mode, registry) {
            (_, Some(faults)) => Err(faults),
            (config, None) => Ok(config),
        }
    }

    /// The same, with what could be read where there are faults: a setting that is faulty has its default, and an upstream that
    /// is, is left out. It is there to be checked further, not to be served by.
    ///
    /// ```
    /// use paddler_core::config::{Config, Mode, Registry};
    ///
    /// let text = "listen: 8080\napi_key_file: keys.txt\n";
    /// let (config, faults) = Config::read_partly(text, "paddler.yaml", Mode::Gateway, &Registry::new());
    /// assert_eq!(faults.unwrap().faults.len(), 1);
    /// assert!(config.api_key_file.is_some());
    /// ```
    #[cfg(feature = "yaml")]
    pub fn read_partly(
        text: &str,
        name: &str,
        mode: Mode,
        registry: &Registry,
    ) -> (Self, Option<ConfigFaults>) {
        let mut faults = Faults::default();
        let config = super::yaml::read(text, &mut faults)
            .and_then(|value| fill::config(&value, Self::default_for(mode), registry, &mut faults));
        let whole = faults.finish(name, config.as_ref().map(|_| ()));
        (config.unwrap_or_else(|| Self::default_for(mode)), whole.err())
    }

    /// Reads a value over these settings: what it says counts, the rest stays. `name` says where the value comes from, for
    /// the faults.
    ///
    /// ```
    /// use paddler_core::config::{Config, Registry, Value};
    ///
    /// let flags = Value::from_json(&serde_json::json!({"queue": {"max_wait": "30s"}}))?;
    /// let config = Config::default().overlay(&flags, "command line", &Registry::new())?;
    /// assert_eq!((config.queue.max_wait.as_secs(), config.queue.max_requests), (30, 30));
    /// # Ok::<(), paddler_core::config::ConfigFaults>(())
    /// ```
    ///
    /// # Errors
    /// Every fault at once, each with its path and, where the value has places, its place.
    pub fn overlay(self, value: &Value, name: &str, registry: &Registry) -> Result<Self, ConfigFaults> {
        let mut faults = Faults::default();
        let config = fill::config(value, self, registry, &mut faults);
        faults.finish(name, config)
    }

    /// Reads a value over the defaults. `name` is that of the file, for the faults.
    ///
    /// # Errors
    /// Every fault at once, each with its path and, where the value has places, its place.
    pub fn from_value(
        value: &Value,
        name: &str,
        mode: Mode,
        registry: &Registry,
    ) -> Result<Self, ConfigFaults> {
        Self::default_for(mode).overlay(value, name, registry)
    }
}
