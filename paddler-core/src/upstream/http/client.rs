//! How is a request sent to one upstream, and how far had it come when it failed?
//!
//! Over a connection that is kept, or else a new one. A request that is known not to have been read is sent over another
//! connection here; whatever else fails is told with how far it had come.

use std::borrow::Cow;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use http::header::{HOST, UPGRADE};
use http::request::Parts;
use http::uri::InvalidUri;
#[cfg(feature = "http2")]
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Request, Response};
#[cfg(feature = "http2")]
use http::{Uri, Version};
use tokio::time::Instant;
#[cfg(feature = "http2")]
use tokio::time::timeout_at;

use super::HttpOptions;
use super::connect::Connector;
use super::dial::{Dial, Tcp};
use super::files::OutOfFiles;
use super::hosted::Hosted;
use super::http1::{self, Broken, Exchange, for_http1};
#[cfg(feature = "http2")]
use super::multiplex::{self, Multiplex};
use super::outbound::Outbound;
use super::pool::{Pool, Pooled};
use crate::forward::{Body, BoxError};
use crate::upstream::address::{self, Address};
use crate::upstream::transport::{CallError, Instead, NewConnection, Progress, Sent, Upstream};
use crate::upstream::{Extensions, HostHeader, InvalidUrl, UpstreamSpec};

/// Where Anthropic's clients put their key, and some engines look for one.
pub(crate) const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// How soon a connection that had been closed already says so to whoever writes into it: within a round trip, or some if
/// packets are lost, of which each costs Linux 0.2 s at first. An engine that ends later than that may have worked until then.
const LOST_WITHIN: Duration = Duration::from_secs(1);

/// An upstream over HTTP.
pub struct HttpUpstream {
    address: Address,
    host: HeaderValue,
    keep_host: bool,
    hosted: Hosted,
    connector: Connector,
    pool: Arc<Pool>,
    /// `None` where HTTP/2 is never spoken.
    #[cfg(feature = "http2")]
    multiplex: Option<Arc<Multiplex>>,
}

/// A request that was not answered.
enum Failed {
    /// It has not been read, and may be sent over another connection to the same upstream. With its body.
    NotSent(Body, BoxError),
    Sent(CallError),
}

type Answer = Result<Response<Body>, Failed>;

impl HttpUpstream {
    /// The upstream at this URL, over TCP. An [`UpstreamKey`](super::UpstreamKey) among the extensions is sent with each request.
    ///
    /// # Errors
    /// [`InvalidUrl`], for anything but `http://host[:port][/path]` and `https://host[:port][/path]`, or where a feature is missing.
    pub fn new(url: &str, extensions: &Extensions, options: HttpOptions) -> Result<Self, InvalidUrl> {
        let invalid = |error: crate::upstream::InvalidId| InvalidUrl {
            problem: error.to_string(),
            mend: "name it otherwise",
        };
        let mut spec = UpstreamSpec::new("upstream", url).map_err(invalid)?;
        spec.extensions = extensions.clone();
        Self::over(Arc::new(Tcp), &spec, options)
    }

    /// The upstream of this spec, over connections that are made by these means.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn over(dial: Arc<dyn Dial>, spec: &UpstreamSpec, options: HttpOptions) -> Result<Self, InvalidUrl> {
        let address = address::parse(&spec.url)?;
        let invalid = |_| InvalidUrl {
            problem: "the host cannot stand in a header".to_owned(),
            mend: "name it otherwise",
        };
        let host = HeaderValue::from_str(&address.host_header()).map_err(invalid)?;
        let (ttl, limit) = (options.address_ttl, options.connect_timeout);
        let connector = Connector::new(&address, spec, dial, ttl, limit)?;
        Ok(Self {
            host,
            keep_host: spec.protocol.host == HostHeader::Keep,
            hosted: Hosted::of(spec),
            pool: Arc::new(Pool::new(options, connector.route.clone())),
            #[cfg(feature = "http2")]
            multiplex: connector
                .may_speak_http2()
                .then(|| Arc::new(Multiplex::new(connector.route.clone()))),
            address,
            connector,
        })
    }

    /// Looks the host's name up beside the requests, when it is time.
    fn follow(&self) {
        if !self.connector.route.due() {
            return;
        }
        let (route, pool) = (self.connector.route.clone(), Arc::downgrade(&self.pool));
        #[cfg(feature = "http2")]
        let multiplex = self.multiplex.as_ref().map(Arc::downgrade);
        tokio::spawn(async move {
            if !route.look_up_again().await {
                return;
            }
            if let Some(pool) = pool.upgrade() {
                pool.leave();
            }
            #[cfg(feature = "http2")]
            if let Some(multiplex) = multiplex.and_then(|multiplex| multiplex.upgrade()) {
                multiplex.leave();
            }
        });
    }

    /// Keeps no connection: they lead to a process that may be gone, or to where the name does no longer.
    fn clear(&self) {
        self.pool.clear();
        #[cfg(feature = "http2")]
        if let Some(multiplex) = &self.multiplex {
            multiplex.clear();
        }
        self.connector.route.doubt();
    }

    /// # Errors
    /// The path cannot stand below that of the URL.
    fn prepare<'r>(&'r self, request: &mut Outbound<'r>) -> Result<(), CallError> {
        // There is one, whatever came.
        let keep = self.keep_host && request.headers.contains_key(HOST);
        request.host = (!keep).then_some(&self.host);
        if let Some(path) = self.address.path_for(request.path_and_query()) {
            let path = path.parse();
            request.uri = Cow::Owned(path.map_err(|error: InvalidUri| CallError::new(Sent::No, error))?);
        }
        let is_native = self.hosted.is_native(request.uri.path());
        if !self.hosted.gets_all(is_native, request.instead) {
            let headers = request.headers.to_mut();
            self.hosted.prepare(is_native, headers, request.instead);
        }
        Ok(())
    }

    /// Sends over a connection that is kept, while there is one, or else over a new one. Meanwhile `held_back` says whether the
    /// upstream can have seen nothing of it yet.
    pub(crate) async fn ask(
        &self,
        mut request: Outbound<'_>,
        mut body: Body,
        held_back: &AtomicBool,
    ) -> Result<Response<Body>, CallError> {
        self.follow();
        self.prepare(&mut request)?;
        if !request.over_new {
            let http1 = request.headers.contains_key(UPGRADE);
            // A kept connection may be found closed; then the request was not sent, and another one is tried.
            while let Some(way) = self.kept(http1) {
                held_back.store(false, Relaxed);
                match self.send(way, &request, body).await {
                    Ok(response) => return Ok(response),
                    Err(Failed::NotSent(back, _)) => body = back,
                    Err(Failed::Sent(error)) => return Err(error),
                }
            }
        }
        // Most find one that is kept, and hold no room for what it takes to make one.
        Box::pin(self.ask_anew(&request, body, held_back)).await
    }

    /// Sends over a new connection.
    async fn ask_anew(
        &self,
        request: &Outbound<'_>,
        body: Body,
        held_back: &AtomicBool,
    ) -> Result<Response<Body>, CallError> {
        held_back.store(true, Relaxed);
        let http1 = request.headers.contains_key(UPGRADE);
        let way = self.fresh(http1, request.over_new).await;
        let way = way.map_err(|error| self.unreachable(&*error))?;
        held_back.store(false, Relaxed);
        match self.send(way, request, body).await {
            Ok(response) => Ok(response),
            Err(Failed::NotSent(_, error)) => Err(CallError::new(Sent::No, error)),
            Err(Failed::Sent(error)) => Err(error),
        }
    }

    #[cfg_attr(
        not(feature = "http2"),
        expect(unused_variables, reason = "there is one kind")
    )]
    fn kept(&self, http1: bool) -> Option<Way> {
        #[cfg(feature = "http2")]
        if let Some(multiplex) = self.multiplex.as_ref().filter(|_| !http1)
            && let Some(stream) = multiplex.take()
        {
            return Some(Way::Http2(stream));
        }
        self.pool.take().map(Way::Http1)
    }

    /// A new connection, or what others came to have while we waited for them.
    #[cfg_attr(
        not(feature = "http2"),
        expect(unused_variables, reason = "there is one kind")
    )]
    async fn fresh(&self, http1: bool, new: bool) -> Result<Way, BoxError> {
        let deadline = self.connector.deadline();
        #[cfg(feature = "http2")]
        if let Some(multiplex) = self.multiplex.as_ref().filter(|_| !http1) {
            return self.fresh_of_either(multiplex, new, deadline).await;
        }
        let link = self.connector.connect(http1, deadline).await?;
        Ok(Way::Http1(self.pool.lend_new(link)))
    }

    #[cfg(feature = "http2")]
    async fn fresh_of_either(
        &self,
        multiplex: &Multiplex,
        new: bool,
        deadline: Instant,
    ) -> Result<Way, BoxError> {
        let turn = timeout_at(deadline, multiplex.turn()).await;
        let turn = turn.map_err(|_| "others wait for one, and none came in time")?;
        // Those before may have come to know that there is nothing to share: then all open theirs at once.
        let turn = turn.filter(|_| !multiplex.is_http1());
        if !new
            && turn.is_some()
            && let Some(stream) = multiplex.take()
        {
            return Ok(Way::Http2(stream));
        }
        let link = self.connector.connect(false, deadline).await?;
        multiplex.speaks(link.http2);
        Ok(if link.http2 {
            Way::Http2(multiplex.add(link).await?)
        } else {
            Way::Http1(self.pool.lend_new(link))
        })
    }

    #[cfg_attr(
        not(feature = "http2"),
        expect(clippy::infallible_destructuring_match, reason = "there is one kind")
    )]
    async fn send(&self, way: Way, request: &Outbound<'_>, body: Body) -> Answer {
        let pooled = match way {
            Way::Http1(pooled) => pooled,
            #[cfg(feature = "http2")]
            Way::Http2(stream) => return Box::pin(self.send_http2(stream, request, body)).await,
        };
        let reused = pooled.reused();
        let mut exchange = self.begin_http1(pooled, request, body)?;
        let begun = Instant::now();
        let result = poll_fn(|cx| exchange.poll(cx)).await;
        result.map_err(|error| self.failed_http1(exchange.broken(error), reused, begun))
    }

    fn begin_http1(
        &self,
        mut pooled: Pooled,
        request: &Outbound<'_>,
        body: Body,
    ) -> Result<Exchange, Failed> {
        // The last look before the first byte: what is found now is known not to have been read.
        if let Err(error) = pooled.is_quiet() {
            return Err(match super::words_of(&error) {
                _ if pooled.reused() => Failed::NotSent(body, error.into()),
                Some(text) => self.kept_out(&text),
                None => Failed::Sent(self.unreachable(&error)),
            });
        }
        let request = for_http1(request);
        let reused = pooled.reused();
        let begun = Exchange::begin(pooled, &request, body);
        begun.map_err(|broken| self.failed_http1(broken, reused, Instant::now()))
    }

    /// What it says that an exchange came to no end which began then.
    fn failed_http1(&self, broken: Broken, reused: bool, begun: Instant) -> Failed {
        let Broken { error, answered } = broken;
        if !reused
            && !answered
            && let Some(text) = super::words_of(&error)
        {
            return self.kept_out(&text);
        }
        if !reused
            && !self.address.tls()
            && let http1::Error::NotHttp = error
        {
            let text = format!(
                "{}: {error}: if it speaks TLS there, write https:// in its url",
                self.address
            );
            return Failed::Sent(CallError::new(Sent::Begun, text));
        }
        let lost = match error {
            // Bytes that do not even begin as an answer were left behind by the one before: no better than silence.
            http1::Error::NotHttp => true,
            http1::Error::Request(_) => false,
            _ => !answered && begun.elapsed() < LOST_WITHIN,
        };
        if answered && !(reused && lost) && !matches!(error, http1::Error::Request(_)) {
            return Failed::Sent(CallError::new(Sent::Begun, error));
        }
        self.broken(reused && lost, error)
    }

    #[cfg(feature = "http2")]
    async fn send_http2(&self, stream: multiplex::Stream, request: &Outbound<'_>, body: Body) -> Answer {
        let reused = stream.reused();
        let before = stream.bytes_read();
        let begun = Instant::now();
        // What came too late on a connection is sent over another one; hyper does not hand it back.
        let spare = body.again();
        let request = self.for_http2(request, body);
        let mut error = match stream.sender().try_send_request(request).await {
            Ok(response) => return Ok(response.map(|body| Body::new(stream.hold(body)))),
            Err(error) => error,
        };
        let back = error.take_message().map(Request::into_body);
        let error = error.into_error();
        let unread = back.is_some() || multiplex::came_too_late(&error);
        if unread {
            stream.retire();
            return Err(match back.or(spare) {
                Some(body) => Failed::NotSent(body, error.into()),
                None => Failed::Sent(CallError::new(Sent::No, error)),
            });
        }
        if multiplex::was_refused(&error) {
            return Err(Failed::Sent(CallError::new(Sent::No, error)));
        }
        let lost = reused && stream.bytes_read() == before && begun.elapsed() < LOST_WITHIN;
        Err(self.broken(lost, error))
    }

    fn unreachable(&self, why: &(dyn std::error::Error + 'static)) -> CallError {
        let text = format!("no connection to {}: {why}", self.address);
        if OutOfFiles::is(why) {
            return CallError::new(Sent::No, OutOfFiles::in_words(text));
        }
        CallError::unreachable(text)
    }

    fn kept_out(&self, why: &str) -> Failed {
        Failed::Sent(CallError::unreachable(format!("{}: {why}", self.address)))
    }

    /// `lost`: most likely the connection was closed already.
    fn broken(&self, lost: bool, error: impl Into<BoxError>) -> Failed {
        if !lost {
            return Failed::Sent(CallError::new(Sent::Yes, error));
        }
        // The others lead to the same process, which may be gone.
        self.clear();
        Failed::Sent(CallError::new(Sent::Reused, error))
    }

    /// HTTP/2 has the host in the URI, and no `Host`.
    #[cfg(feature = "http2")]
    fn for_http2(&self, request: &Outbound<'_>, body: Body) -> Request<Body> {
        let host = request.host();
        let kept = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let authority = kept.or_else(|| Authority::try_from(self.host.as_bytes()).ok());
        let scheme = if self.address.tls() {
            Scheme::HTTPS
        } else {
            Scheme::HTTP
        };
        let mut request = request.clone().into_request(body);
        request.headers_mut().remove(HOST);
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
        parts.scheme = Some(scheme);
        parts.authority = parts.authority.or(authority);
        // It fails only without an authority, and one was made of what is a host.
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
        *request.version_mut() = Version::HTTP_2;
        request
    }
}

#[async_trait]
impl Upstream for HttpUpstream {
    async fn call(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let Parts {
            method,
            uri,
            headers,
            extensions,
            ..
        } = parts;
        let mut outbound = Outbound::new(&method, &uri, Cow::Owned(headers));
        outbound.over_new = extensions.get::<NewConnection>().is_some();
        outbound.instead = extensions.get::<Instead>().is_some();
        let progress = extensions.get::<Progress>().cloned().unwrap_or_default();
        Ok(self.ask(outbound, body, progress.held_back()).await?)
    }

    fn as_http(&self) -> Option<&HttpUpstream> {
        Some(self)
    }

    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.follow();
        self.connector.addresses().await
    }
}

impl fmt::Debug for HttpUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpUpstream")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// What a request is sent over.
enum Way {
    Http1(Pooled),
    #[cfg(feature = "http2")]
    Http2(multiplex::Stream),
}
