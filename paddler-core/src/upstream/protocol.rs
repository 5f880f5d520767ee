//! What is spoken with an upstream?

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What is spoken with an upstream, beyond what its URL says.
///
/// ```
/// use paddler_core::upstream::{Http2, UpstreamSpec};
///
/// let mut spec = UpstreamSpec::new("gpu-1", "https://gpu-1.lan:8443").unwrap();
/// spec.protocol.http2 = Http2::Never;
/// spec.protocol.tls.ca = Some("/etc/paddler/ca.pem".into());
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Protocol {
    /// Whether HTTP/2 is spoken.
    pub http2: Http2,
    /// Which `Host` it is asked for.
    pub host: HostHeader,
    /// Whom it is believed to be, where its URL begins with `https://`.
    pub tls: Tls,
}

/// Whether HTTP/2 is spoken with an upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Http2 {
    /// Over TLS if the upstream offers it (ALPN), and never in clear: engines speak HTTP/1.1 there.
    #[default]
    Auto,
    /// Never.
    Never,
    /// Always, in clear too, without asking first (prior knowledge).
    Always,
}

/// The `Host` that a request carries on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HostHeader {
    /// The upstream's own, from its URL: what it knows itself by.
    #[default]
    Rewrite,
    /// The client's, for an upstream that tells its tenants apart by it. The router's own questions carry the upstream's.
    Keep,
}

/// How an upstream proves who it is, and how we do. All files are PEM, and are read again when they change.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Tls {
    /// The CAs of which its certificate may be, instead of those that this machine trusts: who names one means that CA
    /// and nobody else's.
    pub ca: Option<PathBuf>,
    /// Our certificate, with what leads to its CA, for an upstream that wants one (mTLS). `key` goes with it.
    pub certificate: Option<PathBuf>,
    /// The private key of `certificate`.
    pub key: Option<PathBuf>,
    /// The name that its certificate is for. `None`: the host of the URL.
    pub server_name: Option<String>,
}
