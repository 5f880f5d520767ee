//! How is an upstream reached over HTTP/1.1?
//!
//! A small pool over hyper's connections. A client library's pool would do the sending, but not tell whether a request
//! was sent, whether its connection had been used before, or whether a byte came back, and that is what decides whether
//! a request may be sent again.

mod connection;
mod dial;
mod pool;
mod route;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderName, HeaderValue, Request, Response};
use http_body::Body as _;

use super::address::{self, Address};
use super::transport::{CallError, Connect, NewConnection, Sent, Upstream};
use super::{Extensions, InvalidUrl, UpstreamSpec};
use crate::forward::{Body, BoxError};
pub use dial::{Dial, Io, Tcp};
use pool::{Pool, Pooled};
use route::Route;

/// Where Anthropic's clients put their key, and some engines look for one.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// How connections to upstreams are made and kept.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpOptions {
    /// The longest that making a connection may take. Default 2 s: a machine on the same network answers in
    /// milliseconds, and one that does not is better left for another.
    pub connect_timeout: Duration,
    /// How long an unused connection is kept. Default 4 s, under the 5 s after which llama.cpp and vLLM close theirs.
    pub idle_timeout: Duration,
    /// How long a connection rests after a streamed answer before it is used again. Default 50 ms: llama.cpp closes the
    /// connection right after a stream, without having said so, and a request sent into that is lost.
    pub rest_after_stream: Duration,
    /// The most unused connections kept to one upstream. Default 256.
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

/// The key that an upstream wants, as an extension of its spec. It is sent as a bearer token, in place of whatever key the
/// client sent, and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamKey(HeaderValue);

impl UpstreamKey {
    /// A key of visible ASCII characters; `None` for anything else.
    pub fn new(key: &str) -> Option<Self> {
        let mut value = HeaderValue::from_str(&format!("Bearer {key}")).ok()?;
        value.set_sensitive(true);
        Some(Self(value))
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
        Ok(Arc::new(HttpUpstream::over(
            self.dial.clone(),
            &spec.url,
            &spec.extensions,
            self.options.clone(),
        )?))
    }
}

/// An upstream over HTTP/1.1.
pub struct HttpUpstream {
    address: Address,
    host: HeaderValue,
    key: Option<UpstreamKey>,
    pool: Arc<Pool>,
}

impl HttpUpstream {
    /// The upstream at this URL, over TCP. An [`UpstreamKey`] among the extensions is sent with each request.
    ///
    /// # Errors
    /// [`InvalidUrl`], for anything but `http://host[:port]`.
    pub fn new(url: &str, extensions: &Extensions, options: HttpOptions) -> Result<Self, InvalidUrl> {
        Self::over(Arc::new(Tcp), url, extensions, options)
    }

    /// The same with connections that are made by other means.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn over(
        dial: Arc<dyn Dial>,
        url: &str,
        extensions: &Extensions,
        options: HttpOptions,
    ) -> Result<Self, InvalidUrl> {
        let address = address::parse(url)?;
        let invalid = |_| InvalidUrl {
            problem: "the host cannot stand in a header".to_owned(),
            mend: "name it otherwise",
        };
        let host = HeaderValue::from_str(&address.host_header()).map_err(invalid)?;
        let key = extensions.get::<UpstreamKey>().cloned();
        let route = Arc::new(Route::new(&address, options.address_ttl, dial));
        Ok(Self {
            address,
            host,
            key,
            pool: Arc::new(Pool::new(options, route)),
        })
    }

    /// Sends over one connection, used before or new. Hands the request back where it is known not to have been sent.
    async fn send(&self, mut pooled: Pooled, request: Request<Body>) -> Result<Response<Body>, Failed> {
        let reused = pooled.reused();
        let before = pooled.bytes_read();
        let has_body = !request.body().is_end_stream();
        match pooled.sender().try_send_request(request).await {
            Ok(response) => {
                // An error may have been answered from the head alone: then the body would be read as the next request.
                let whole = !(has_body && response.status().as_u16() >= 400);
                Ok(response.map(|body| Body::new(pooled.hold(body, whole))))
            }
            Err(mut error) => match error.take_message() {
                Some(request) => Err(Failed::NotSent(Box::new(request), error.into_error().into())),
                None => {
                    // Bytes that are no answer were left behind by the answer before, so this is no better than silence.
                    let error = error.into_error();
                    let unanswered = pooled.bytes_read() == before || error.is_parse();
                    let sent = if reused && unanswered {
                        Sent::Reused
                    } else {
                        Sent::Yes
                    };
                    if sent == Sent::Reused {
                        // The others lead to the same process, which may be gone.
                        self.pool.clear();
                    }
                    Err(Failed::Sent(CallError::new(sent, error)))
                }
            },
        }
    }
}

enum Failed {
    NotSent(Box<Request<Body>>, BoxError),
    Sent(CallError),
}

#[async_trait]
impl Upstream for HttpUpstream {
    async fn call(&self, mut request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let new = request.extensions().get::<NewConnection>().is_some();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        if let Some(key) = &self.key {
            headers.insert(AUTHORIZATION, key.0.clone());
            headers.remove(X_API_KEY);
        }
        let kept = || if new { None } else { self.pool.take() };
        // A kept connection may be found closed; then the request was not sent, and another one is tried.
        while let Some(pooled) = kept() {
            match self.send(pooled, request).await {
                Ok(response) => return Ok(response),
                Err(Failed::NotSent(back, _)) => request = *back,
                Err(Failed::Sent(error)) => return Err(error.into()),
            }
        }
        let unreachable =
            |error| CallError::new(Sent::No, format!("no connection to {}: {error}", self.address));
        let fresh = Pool::connect(&self.pool).await.map_err(unreachable)?;
        match self.send(fresh, request).await {
            Ok(response) => Ok(response),
            Err(Failed::NotSent(_, error)) => Err(CallError::new(Sent::No, error).into()),
            Err(Failed::Sent(error)) => Err(error.into()),
        }
    }
}

impl fmt::Debug for HttpUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpUpstream")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_shown() {
        let key = UpstreamKey::new("sk-secret").unwrap();
        assert!(!format!("{key:?}").contains("secret"));
        assert!(UpstreamKey::new("line\nbreak").is_none());
    }
}
