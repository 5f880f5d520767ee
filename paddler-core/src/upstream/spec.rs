//! What is an upstream, apart from how it is right now?

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::address::{InvalidUrl, is_of_paddler, parse};
use super::{Abilities, Extensions, Protocol};

/// The stable name of an upstream. It comes from the user, and outlives restarts, reloads and snapshots.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Arc<str>", into = "Arc<str>")]
pub struct UpstreamId(Arc<str>);

/// Why a text cannot name an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidId(String);

impl fmt::Display for InvalidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} cannot name an upstream: use 1 to {} characters, none of them white space or control",
            self.0,
            UpstreamId::MAX_LEN
        )
    }
}

impl std::error::Error for InvalidId {}

impl UpstreamId {
    /// The longest id, in bytes: ids become metric labels and header values.
    pub const MAX_LEN: usize = 256;

    /// Takes a name of 1 to [`MAX_LEN`](Self::MAX_LEN) bytes without white space or control characters.
    ///
    /// # Errors
    /// [`InvalidId`] for anything else.
    pub fn new(name: impl Into<Arc<str>>) -> Result<Self, InvalidId> {
        let name = name.into();
        let fits = (1..=Self::MAX_LEN).contains(&name.len());
        if fits && !name.chars().any(|c| c.is_whitespace() || c.is_control()) {
            Ok(Self(name))
        } else {
            Err(InvalidId(name.chars().take(64).collect()))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<Arc<str>> for UpstreamId {
    type Error = InvalidId;

    fn try_from(name: Arc<str>) -> Result<Self, InvalidId> {
        Self::new(name)
    }
}

impl From<UpstreamId> for Arc<str> {
    fn from(id: UpstreamId) -> Self {
        id.0
    }
}

impl Borrow<str> for UpstreamId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UpstreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for UpstreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The place of an upstream in one snapshot: its row in the ledger and in each column, and its bit in each set. (An
/// engine's *slots* are something else: how many requests it works on at once.)
///
/// An upstream keeps its place while it is there and while something is open on it. Then the place is given to another
/// one, so never store it: keep the [`UpstreamId`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UpstreamIndex(pub(crate) u32);

impl UpstreamIndex {
    /// The place as a number, to index columns of one's own that were made for the same snapshot.
    pub fn get(self) -> usize {
        self.0 as usize
    }
}

/// What kind of server answers at an upstream's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Engine {
    /// Find out by asking it. A server that has none of the paths that are asked is taken for no engine, and is not ready: one
    /// that tells nothing of itself is [`Openai`](Self::Openai) where that is said.
    #[default]
    Auto,
    /// llama.cpp's `llama-server`: slots, one request each.
    Llamacpp,
    /// vLLM: continuous batching, KV-cache usage, adapters.
    Vllm,
    /// SGLang: continuous batching, KV-cache usage.
    Sglang,
    /// TensorRT-LLM's `trtllm-serve`: continuous batching, KV-cache usage.
    Trtllm,
    /// Triton Inference Server: its metrics stand at a port of their own, and its own API names the model in the path.
    Triton,
    /// Ollama: it lists its models, and tells no load.
    Ollama,
    /// Any other OpenAI-compatible endpoint: only what we send there ourselves is known.
    Openai,
    /// Anthropic's API, and what speaks as it does: its key is sent as `x-api-key`, with an `anthropic-version` where the client says
    /// none; by its paths that are OpenAI's, as a bearer token.
    Anthropic,
    /// Another Paddler, with upstreams of its own: as if it were one engine with all their room.
    Paddler,
}

/// Which requests reach an upstream. An endpoint of the kind [`Engine::Openai`] that does not get all counts as
/// [somebody else's API](UpstreamSpec::is_hosted).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Traffic {
    /// All.
    #[default]
    All,
    /// Those that name a model, and so none that any engine could answer, such as for what is stored there.
    Named,
    /// Those alone whose own model has no place for them, and that [fall back](crate::request::Fallback) to one that it has.
    Fallback,
}

/// A model that an upstream serves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelEntry {
    /// The name that requests use.
    pub id: Arc<str>,
    /// Other names for the same model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<Arc<str>>,
    /// The base model, if this is an adapter (LoRA).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Arc<str>>,
}

impl ModelEntry {
    /// A base model without other names.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self {
            id: id.into(),
            aliases: Vec::new(),
            parent: None,
        }
    }

    /// An adapter over the base model `parent`.
    pub fn adapter(id: impl Into<Arc<str>>, parent: impl Into<Arc<str>>) -> Self {
        Self {
            id: id.into(),
            aliases: Vec::new(),
            parent: Some(parent.into()),
        }
    }
}

/// Which models an upstream answers for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Models {
    /// Whatever is asked of it: it ignores the name, or has no list to tell.
    Any,
    /// These and no others.
    Listed(Vec<ModelEntry>),
}

/// How much an upstream may be given at once.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Limits {
    /// The most weight open at once, in requests of weight one. `None`: what the engine reports as its slots; without slots
    /// twice `max_sequences`, where that is known; else there is no limit. [`Entry::limit`](crate::status::Entry::limit)
    /// says why.
    pub max_in_flight: Option<u32>,
    /// How many sequences the engine runs at once, where it does not report that itself (vLLM does not).
    pub max_sequences: Option<u32>,
}

/// How long steps may take at one upstream, where that is different from what the router has for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct UpstreamTimeouts {
    /// To connect to it.
    pub connect: Option<Duration>,
    /// From sending a request to the first byte of its answer.
    pub first_byte: Option<Duration>,
    /// Between two bytes of an answer.
    pub idle: Option<Duration>,
}

/// What an upstream is: identity, address, labels, models, limits. Data, without behaviour.
///
/// ```
/// use paddler_core::upstream::UpstreamSpec;
///
/// let spec = UpstreamSpec::new("gpu-1", "http://127.0.0.1:8080").unwrap().label("zone", "a");
/// assert_eq!(spec.id.as_str(), "gpu-1");
/// assert_eq!(spec.labels["zone"], "a");
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UpstreamSpec {
    /// The stable name.
    pub id: UpstreamId,
    /// Where it listens, such as `http://10.0.0.3:8080`. A path behind that, such as `/openai/v1`, stands where requests have `/v1`. The transport reads it; the decision does not.
    pub url: String,
    /// Where its metrics stand, if that is neither the page that its engine has for them below [`url`](Self::url) nor, of
    /// [Triton](Engine::Triton), port 8002 of the same host: `http://10.0.0.3:9400/metrics`. Whoever polls reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_url: Option<String>,
    /// What is spoken there.
    #[serde(default)]
    pub protocol: Protocol,
    /// What kind of server it is.
    #[serde(default)]
    pub engine: Engine,
    /// Free labels that filters can match.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The models it serves, if the user says so. `None`: ask the engine.
    #[serde(default)]
    pub models: Option<Models>,
    /// What it can do, if the user says so; what is not said, the engine may tell.
    #[serde(default, skip_serializing_if = "Abilities::is_unknown")]
    pub abilities: Abilities,
    /// Which requests reach it, whatever the tree says.
    #[serde(default)]
    pub traffic: Traffic,
    /// How much it may be given at once.
    #[serde(default)]
    pub limits: Limits,
    /// How long steps may take there, where that is different.
    #[serde(default)]
    pub timeouts: UpstreamTimeouts,
    /// What an embedder knows beyond that.
    #[serde(skip)]
    pub extensions: Extensions,
}

impl UpstreamSpec {
    /// An upstream with this name and address, and nothing else said of it, but that it is a Paddler where the URL begins with
    /// `paddler://` (or `paddlers://`, over TLS).
    ///
    /// # Errors
    /// [`InvalidId`] when the name cannot be an [`UpstreamId`].
    pub fn new(id: impl Into<Arc<str>>, url: impl Into<String>) -> Result<Self, InvalidId> {
        let url = url.into();
        Ok(Self {
            id: UpstreamId::new(id)?,
            protocol: Protocol::default(),
            engine: if is_of_paddler(&url) {
                Engine::Paddler
            } else {
                Engine::Auto
            },
            url,
            metrics_url: None,
            labels: BTreeMap::new(),
            models: None,
            abilities: Abilities::default(),
            traffic: Traffic::default(),
            limits: Limits::default(),
            timeouts: UpstreamTimeouts::default(),
            extensions: Extensions::default(),
        })
    }

    /// The host of its URL, as a resolver takes it, and the port: 80, or 443 with https, unless it is written.
    ///
    /// ```
    /// use paddler_core::upstream::UpstreamSpec;
    ///
    /// let host_and_port = |url: &str| UpstreamSpec::new("gpu-1", url).unwrap().host_and_port();
    /// assert_eq!(host_and_port("http://[::1]:8080"), Ok(("::1".into(), 8080)));
    /// assert_eq!(host_and_port("https://GPU-1.lan"), Ok(("gpu-1.lan".into(), 443)));
    /// assert!(host_and_port("gpu-1:8080").is_err());
    /// ```
    ///
    /// # Errors
    /// [`InvalidUrl`] when the URL cannot be an upstream's.
    pub fn host_and_port(&self) -> Result<(String, u16), InvalidUrl> {
        let address = parse(&self.url)?;
        let (host, port) = address.target();
        Ok((host.to_owned(), port))
    }

    /// Whether its URL leads to the machine on which it is used, whichever that is: `localhost`, loopback, or no address at all.
    ///
    /// ```
    /// use paddler_core::upstream::UpstreamSpec;
    ///
    /// let leads_here = |url: &str| UpstreamSpec::new("a", url).unwrap().leads_here();
    /// assert!(leads_here("http://localhost:8080") && leads_here("http://[::ffff:127.0.0.1]:80"));
    /// assert!(leads_here("http://0.0.0.0:8080") && !leads_here("http://10.0.0.3:8080"));
    /// ```
    pub fn leads_here(&self) -> bool {
        let Ok((host, _)) = self.host_and_port() else {
            return false;
        };
        let name = host.trim_end_matches('.');
        let by_name = name == "localhost" || name.ends_with(".localhost");
        let by_address = |ip: IpAddr| ip.to_canonical().is_loopback() || ip.to_canonical().is_unspecified();
        by_name || host.parse().is_ok_and(by_address)
    }

    /// Whether it is somebody else's API: an [`Openai`](Engine::Openai) that does not get [all](Traffic::All), and any
    /// [`Anthropic`](Engine::Anthropic). It is not asked how it is, and counts as ready; for its models only where they are not written
    /// here. It gets no headers that tell where a client is (`Forwarded`, `X-Forwarded-*`, `X-Real-IP`), nor those for routers
    /// (`x-paddler-*`).
    pub fn is_hosted(&self) -> bool {
        match self.engine {
            Engine::Anthropic => true,
            Engine::Openai => self.traffic != Traffic::All,
            _ => false,
        }
    }

    /// Whether it is asked nothing at all: what it would be asked is written here.
    pub(crate) fn is_never_asked(&self) -> bool {
        self.is_hosted() && self.models.is_some()
    }

    /// Whether its URL says that it speaks TLS.
    pub fn speaks_tls(&self) -> bool {
        parse(&self.url).is_ok_and(|address| address.tls())
    }

    /// Where it listens, in the form in which two are compared: those with one place are one upstream. `None`: its URL is none.
    ///
    /// ```
    /// use paddler_core::upstream::UpstreamSpec;
    ///
    /// let place = |url: &str| UpstreamSpec::new("a", url).unwrap().place();
    /// assert_eq!(place("https://host:443/v1"), place("http://HOST:443"));
    /// assert_ne!(place("http://host/a/v1"), place("http://host/b/v1"));
    /// ```
    pub fn place(&self) -> Option<String> {
        parse(&self.url).ok().map(|address| address.place().to_string())
    }

    /// Whether both listen at one host and port, below one path, and so are one upstream.
    pub fn same_place(&self, other: &Self) -> bool {
        self.place().is_some_and(|place| other.place() == Some(place))
    }

    /// Whether nothing is different; of extensions, whether they are the very same values.
    pub fn same_as(&self, other: &Self) -> bool {
        let Self {
            id,
            url,
            metrics_url,
            protocol,
            engine,
            labels,
            models,
            abilities,
            traffic,
            limits,
            timeouts,
            extensions,
        } = self;
        (
            (id, url, metrics_url, protocol),
            (engine, labels, models, abilities, traffic, limits, timeouts),
        ) == (
            (&other.id, &other.url, &other.metrics_url, &other.protocol),
            (
                &other.engine,
                &other.labels,
                &other.models,
                &other.abilities,
                &other.traffic,
                &other.limits,
                &other.timeouts,
            ),
        ) && extensions.same_as(&other.extensions)
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// Says which models it serves.
    #[must_use]
    pub fn models(mut self, models: Models) -> Self {
        self.models = Some(models);
        self
    }

    /// Says what it can do.
    #[must_use]
    pub fn abilities(mut self, abilities: Abilities) -> Self {
        self.abilities = abilities;
        self
    }

    /// Sets the most weight that may be open on it at once.
    #[must_use]
    pub fn max_in_flight(mut self, weight: u32) -> Self {
        self.limits.max_in_flight = Some(weight);
        self
    }
}
