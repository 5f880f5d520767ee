//! How is an upstream reached over HTTP?
//!
//! Over small pools of connections, one for HTTP/1.1, which is spoken here (`http1`), and one for HTTP/2, which hyper
//! speaks. A client library would do the sending, but not tell whether a request was sent, whether its connection had been
//! used before, or whether a byte came back, and that is what decides whether a request may be sent again.

mod client;
mod connect;
mod dial;
mod files;
mod hosted;
mod http1;
#[cfg(feature = "http2")]
mod multiplex;
mod outbound;
mod pool;
mod route;
pub(crate) mod spare;
mod srv;
#[cfg(feature = "tls")]
mod tls;

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

use super::transport::{Connect, Upstream};
use super::{UpstreamId, UpstreamSpec};
use crate::forward::BoxError;

pub use client::HttpUpstream;
pub(crate) use client::X_API_KEY;
pub use dial::{Dial, Io, Tcp};
pub(crate) use files::OutOfFiles;
pub(crate) use hosted::passes_clients_key;
pub(crate) use outbound::Outbound;
pub(crate) use route::STANDS_IN;
#[cfg(feature = "tls")]
pub use tls::check_tls;

/// How connections to upstreams are made and kept.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpOptions {
    /// The longest that making a connection may take. Default 2 s: a machine on the same network answers in
    /// milliseconds, and one that does not is better left for another.
    pub connect_timeout: Duration,
    /// How long an unused connection of HTTP/1.1 is kept; one of HTTP/2 says itself when it ends. Default 4 s, under the
    /// 5 s after which llama.cpp and vLLM close theirs.
    pub idle_timeout: Duration,
    /// How long a connection rests after a streamed answer before it is used again. Default 50 ms: llama.cpp closes the
    /// connection right after a stream, without having said so, and a request sent into that is lost.
    pub rest_after_stream: Duration,
    /// The most unused connections kept to one upstream. Default 256: as many sequences as vLLM has at once unless told
    /// otherwise, so that a burst as large as an engine takes leaves its connections for the next one.
    pub max_idle: usize,
    /// How long the addresses of a host name are believed before it is looked up again; after no address has answered it
    /// is looked up at once. Default 30 s: what Kubernetes' DNS says of its answers.
    pub address_ttl: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connect_timeout: crate::config::Timeouts::default().connect,
            idle_timeout: Duration::from_secs(4),
            rest_after_stream: Duration::from_millis(50),
            max_idle: 256,
            address_ttl: Duration::from_secs(30),
        }
    }
}

/// As much of a file as is read for a key, in bytes.
const LONGEST_KEY: u64 = 1 << 16;

/// How a key begins that is a bearer token.
const BEARER: &str = "Bearer ";

/// The key that an upstream wants, as an extension of its spec. It is sent as a bearer token, in place of whatever key the
/// client sent, and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamKey(HeaderValue);

impl UpstreamKey {
    /// A key of visible ASCII characters; `None` for anything else, or nothing.
    pub fn new(key: &str) -> Option<Self> {
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let mut value = HeaderValue::from_str(&format!("{BEARER}{key}")).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
    }

    /// The key that stands in a file as its one line, for this upstream.
    ///
    /// # Errors
    /// Which file, what it was for, what is wrong with it and what to do.
    pub fn read(file: &Path, upstream: &UpstreamId) -> Result<Self, String> {
        let file_name = format!("{} (the key for the upstream {upstream})", file.display());
        let mut text = String::new();
        let read = File::open(file).and_then(|file| file.take(LONGEST_KEY).read_to_string(&mut text));
        read.map_err(|error| {
            let why = match error.kind() {
                ErrorKind::NotFound => {
                    "there is no such file; make it, with the key as its one line".to_owned()
                }
                ErrorKind::PermissionDenied => "who runs this may not read it".to_owned(),
                ErrorKind::InvalidData => "it is not text in UTF-8: save it as UTF-8".to_owned(),
                _ => error.to_string(),
            };
            format!("{file_name} cannot be read: {why}")
        })?;
        let key = text.strip_prefix('\u{feff}').unwrap_or(&text).trim();
        let invalid = || format!("{file_name} holds no key: one line of visible characters");
        Self::new(key).ok_or_else(invalid)
    }

    /// The key alone.
    fn bare(&self) -> HeaderValue {
        let bare = self.0.as_bytes().get(BEARER.len()..).unwrap_or_default();
        let mut value = HeaderValue::from_bytes(bare).unwrap_or(self.0.clone());
        value.set_sensitive(true);
        value
    }

    /// Puts it in the place of whatever key stands there, as each request gets it: for transports of one's own.
    pub fn put_into(&self, headers: &mut HeaderMap) {
        headers.insert(AUTHORIZATION, self.0.clone());
        headers.remove(X_API_KEY);
    }
}

impl fmt::Debug for UpstreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UpstreamKey(..)")
    }
}

/// Makes an [`HttpUpstream`] of each spec.
#[derive(Debug, Clone)]
pub struct HttpConnect {
    options: HttpOptions,
    dial: Arc<dyn Dial>,
}

impl Default for HttpConnect {
    fn default() -> Self {
        Self::new(HttpOptions::default())
    }
}

impl HttpConnect {
    /// With these options for every upstream, over TCP.
    pub fn new(options: HttpOptions) -> Self {
        Self {
            options,
            dial: Arc::new(Tcp),
        }
    }

    /// Makes the connections by other means.
    #[must_use]
    pub fn dial(mut self, dial: Arc<dyn Dial>) -> Self {
        self.dial = dial;
        self
    }
}

impl Connect for HttpConnect {
    fn connect(&self, spec: &UpstreamSpec) -> Result<Arc<dyn Upstream>, BoxError> {
        let mut options = self.options.clone();
        options.connect_timeout = spec.timeouts.connect.unwrap_or(options.connect_timeout);
        Ok(Arc::new(HttpUpstream::over(self.dial.clone(), spec, options)?))
    }
}

/// What an error of a connection says that the upstream meant, if it is known.
#[cfg_attr(
    not(feature = "tls"),
    expect(unused_variables, reason = "plain connections say nothing of it")
)]
fn words_of(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    #[cfg(feature = "tls")]
    return tls::refused_us(error);
    #[cfg(not(feature = "tls"))]
    return None;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_shown() {
        let key = UpstreamKey::new("sk-secret").unwrap();
        assert!(!format!("{key:?}").contains("secret"));
    }

    #[test]
    fn a_key_is_of_visible_ascii_characters() {
        for text in ["", "line\nbreak", "two words", "clé", "tab\t"] {
            assert!(UpstreamKey::new(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn a_file_that_holds_no_key_is_named_with_its_upstream() {
        let id = UpstreamId::new("gpu-1").unwrap();
        let folder = std::env::temp_dir().join(format!("paddler-upstream-key-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("key");
        let read = || UpstreamKey::read(&file, &id);
        let named = format!("{} (the key for the upstream gpu-1)", file.display());
        let missing =
            format!("{named} cannot be read: there is no such file; make it, with the key as its one line");
        assert_eq!(read(), Err(missing));
        for (bytes, why) in [
            (&b"one\ntwo\n"[..], "holds no key: one line of visible characters"),
            (&b"\n"[..], "holds no key: one line of visible characters"),
            (
                &b"\xff\xfe"[..],
                "cannot be read: it is not text in UTF-8: save it as UTF-8",
            ),
        ] {
            std::fs::write(&file, bytes).unwrap();
            assert_eq!(read(), Err(format!("{named} {why}")));
        }
        std::fs::write(&file, "\u{feff}sk-1\r\n").unwrap();
        assert_eq!(read().ok(), UpstreamKey::new("sk-1"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
