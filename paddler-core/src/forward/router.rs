//! How does one request go from end to end?

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body::Body as HttpBody;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::attempt::{Failed, Outgoing, attempt};
use super::body::{Body, BoxError};
use super::headers::{for_upstream, presented_key};
use super::intake::{self, Budget};
use super::options::RouterOptions;
use super::refusal::Refusal;
use super::relay::{self, Relay};
use super::waiting::{NoPlace, Places};
use super::local;
use crate::clock::Clock;
use crate::config::AdminPaths;
use crate::observe::{InFlight, Metrics, Page};
use crate::queue::QueueFull;
use crate::request::path::normalise;
use crate::request::{BodyKind, Dialect, RequestClass, RequestFacts, Route};
use crate::schedule::Reason;
use crate::status::Published;
use crate::upstream::UpstreamId;

/// The pause before upstreams that refused are asked once more, when no other is left.
const PAUSE: Duration = Duration::from_millis(250);

/// How often a request is sent at most.
const ATTEMPTS: u32 = 64;

/// Routes requests: a service for hyper, tower and axum, over whatever [`Published`] state it is given.
///
/// Cheap to clone; clones share the queue and the counts. It answers every request: what cannot be served gets an error
/// response, so the service's own error never occurs.
///
/// ```
/// use std::sync::Arc;
/// use paddler_core::Clock;
/// use paddler_core::forward::{Body, Router, RouterOptions};
/// use paddler_core::schedule::trees;
/// use paddler_core::status::{FixedList, StatusBoard, StatusLoop};
/// use paddler_core::upstream::{UpstreamSpec, http::HttpConnect};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = Clock::new();
/// let upstreams = FixedList::new([UpstreamSpec::new("gpu-1", "http://127.0.0.1:8080")?]);
/// let statuses = StatusLoop::start(
///     StatusBoard::new(trees::gateway()),
///     vec![Box::new(upstreams)],
///     Arc::new(HttpConnect::default()),
///     None,
///     clock,
/// );
/// let router = Router::new(statuses.published(), clock, RouterOptions::default());
/// let response = router.handle(http::Request::get("/slots").body(Body::empty())?).await;
/// assert_eq!(response.status(), 403, "admin paths are closed");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Router(Arc<Inner>);

struct Inner {
    published: Published,
    clock: Clock,
    options: RouterOptions,
    places: Arc<Places>,
    budget: Arc<Budget>,
    metrics: Arc<Metrics>,
    stopping: AtomicBool,
    handing_out: AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.handing_out.abort();
    }
}

impl Router {
    /// A router over the published state, with a queue of its own. Make one for each state: what becomes free is told to
    /// one router alone.
    ///
    /// # Panics
    /// When there is no tokio runtime.
    pub fn new(published: Published, clock: Clock, options: RouterOptions) -> Self {
        let seed = options.seed.unwrap_or_else(entropy);
        let places = Arc::new(Places::new(published.clone(), clock, options.queue.clone(), seed));
        let handing_out = tokio::spawn(places.clone().keep_handing_out()).abort_handle();
        Self(Arc::new(Inner {
            published,
            clock,
            options,
            places,
            budget: Arc::default(),
            metrics: Arc::default(),
            stopping: AtomicBool::new(false),
            handing_out,
        }))
    }

    /// What is counted.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }

    /// The published state that it routes by.
    pub fn published(&self) -> &Published {
        &self.0.published
    }

    /// All figures, as a page for Prometheus.
    pub fn metrics_page(&self) -> String {
        let inner = &*self.0;
        let (waiting, oldest) = inner.places.waiting();
        let now = inner.clock.now();
        let page = Page {
            metrics: &inner.metrics,
            snapshot: &inner.published.load_full(),
            waiting,
            oldest_wait: oldest.map(|since| now.since(since)),
            buffered: inner.budget.held(),
            now,
        };
        page.to_string()
    }

    /// From now on `/health` says that the router is going away, so that no new work is sent here. What is sent all the
    /// same is served.
    pub fn stop(&self) {
        self.0.stopping.store(true, Relaxed);
    }

    /// Whether anyone can serve and the router is not going away.
    pub fn is_ready(&self) -> bool {
        let snapshot = self.0.published.load();
        !self.0.stopping.load(Relaxed) && snapshot.anyone_able()
    }

    /// Answers a request.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let mut arrival = Arrival { metrics: self.0.metrics.clone(), in_flight: Some(self.0.metrics.arrived()) };
        let route = path(&parts.uri).and_then(|path| Ok((Route::of(parts.method.as_str(), &path)?, path)));
        let (result, route) = match route {
            Err(error) => (Err(Refusal::bad_request("bad_path", error.to_string())), None),
            Ok((route, path)) => (self.route(&parts, &path, &route, Body::new(body), &mut arrival).await, Some(route)),
        };
        let response = result.unwrap_or_else(|refusal| {
            self.0.metrics.refused(&refusal.reason);
            let dialect = route.as_ref().map_or(Dialect::Openai, |route| match route.class {
                RequestClass::Local => local::HEALTH_DIALECT,
                _ => route.dialect,
            });
            refusal.into_response(dialect)
        });
        arrival.in_flight = None;
        self.0.metrics.answered(route.as_ref(), response.status().as_u16());
        response
    }

    async fn route(
        &self,
        parts: &Parts,
        path: &str,
        route: &Route,
        body: Body,
        arrival: &mut Arrival,
    ) -> Result<Response<Body>, Refusal> {
        let inner = &*self.0;
        self.check_target(parts)?;
        let is_health = route.class == RequestClass::Local && path.ends_with("/health");
        if !is_health {
            self.check_key(parts)?;
        }
        match route.class {
            RequestClass::Local => {
                return local::answer(path, &inner.published.load(), inner.stopping.load(Relaxed));
            }
            RequestClass::Admin if inner.options.admin == AdminPaths::Closed => {
                let message = format!("{path} shows or changes the inside of an engine, and is closed here");
                return Err(Refusal::new(StatusCode::FORBIDDEN, "admin_path", message).closing());
            }
            RequestClass::Generate(_) if route.body == BodyKind::Opaque => {
                let message = format!("the body of {path} cannot be read here, so its model is not known");
                return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type", message).closing());
            }
            _ => {}
        }
        let intake =
            intake::read(&parts.headers, route.body, body, &inner.options, inner.budget.clone()).await?;
        let facts = self.facts(route, &intake)?;
        let own_keys = inner.options.keys.is_some();
        let headers = for_upstream(&parts.headers, intake.held.bytes(), own_keys);
        let outgoing = Outgoing::new(parts, upstream_uri(path, parts.uri.query())?, headers, intake.held);
        self.forward(&facts, &outgoing, route.dialect, arrival).await
    }

    /// Only this server's own paths are served.
    fn check_target(&self, parts: &Parts) -> Result<(), Refusal> {
        if parts.method == Method::CONNECT {
            let message = "this is no forward proxy: CONNECT is not served";
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "connect", message).closing());
        }
        let Some(host) = parts.uri.host() else { return Ok(()) };
        let loopback = |address: std::net::IpAddr| address.is_loopback();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let ours = bare.eq_ignore_ascii_case("localhost")
            || bare.parse().is_ok_and(loopback)
            || self.0.options.server_names.iter().any(|name| name.eq_ignore_ascii_case(host));
        if ours {
            return Ok(());
        }
        let message = format!("this is no forward proxy: {host:?} is not served here");
        Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, "foreign_host", message).closing())
    }

    fn check_key(&self, parts: &Parts) -> Result<(), Refusal> {
        let Some(keys) = &self.0.options.keys else { return Ok(()) };
        let message = match presented_key(&parts.headers) {
            Some(key) if keys.allows(key) => return Ok(()),
            Some(_) => "the API key is not known here",
            None => "an API key is needed: send it as Authorization: Bearer KEY",
        };
        Err(Refusal::new(StatusCode::UNAUTHORIZED, "api_key", message).closing())
    }

    fn facts(&self, route: &Route, intake: &intake::Intake) -> Result<RequestFacts, Refusal> {
        let inner = &*self.0;
        let (now, seed) = (inner.clock.now(), inner.places.next_seed());
        let mut facts = match &intake.scanned {
            None => RequestFacts::from_route(route, intake.held.bytes(), now, seed),
            Some(scanned) => RequestFacts::from_scan(route, scanned, now, seed)
                .map_err(|error| Refusal::new(StatusCode::NOT_FOUND, "model_not_found", error.to_string()))?,
        };
        // All waits together are no longer than one.
        facts.deadline = Some(now.saturating_add(inner.options.queue.max_wait));
        Ok(facts)
    }

    /// Finds a place and sends, as often as it is safe and of use.
    async fn forward(
        &self,
        facts: &RequestFacts,
        outgoing: &Outgoing,
        dialect: Dialect,
        arrival: &mut Arrival,
    ) -> Result<Response<Body>, Refusal> {
        let mut tried = Tried::default();
        for _ in 0..ATTEMPTS {
            let place = match self.0.places.place(facts, &tried.except).await {
                Ok(place) => place,
                Err(no_place) => {
                    if self.all_tried(&no_place, &mut tried, facts).await {
                        continue;
                    }
                    return tried.last.take().unwrap_or_else(|| Err(self.no_place(facts, no_place)));
                }
            };
            self.0.metrics.waited(self.0.clock.now().since(facts.arrived));
            match attempt(place, outgoing, self.0.options.timeouts.first_byte).await {
                Ok(answered) => return Ok(self.relay(answered, dialect, arrival)),
                Err(failed) => self.judge(failed, facts, &mut tried)?,
            }
        }
        let nothing = || Err(self.unavailable("attempts", "every attempt to send the request failed".to_owned()));
        tried.last.take().unwrap_or_else(nothing)
    }

    /// Whether every upstream has been tried and there is time to try them once more.
    async fn all_tried(&self, no_place: &NoPlace, tried: &mut Tried, facts: &RequestFacts) -> bool {
        let excluded = matches!(no_place, NoPlace::Ending { ending, .. } if ending.reason == Reason::Excluded);
        let in_time = facts.deadline.is_some_and(|deadline| self.0.clock.now() < deadline);
        // A request that takes no room never waits.
        if !(excluded && in_time) || facts.weight == 0 {
            return false;
        }
        sleep(PAUSE).await;
        tried.except.clear();
        true
    }

    fn judge(&self, failed: Failed, facts: &RequestFacts, tried: &mut Tried) -> Result<(), Refusal> {
        let again = |reason: &'static str| self.0.metrics.retried(reason);
        match failed {
            Failed::NotSent { upstream, error } => {
                tracing::debug!(%upstream, %error, "not sent; trying elsewhere");
                again("not_sent");
                let message = format!("no upstream could be reached; the last was {upstream}: {error}");
                tried.last = Some(Err(self.unavailable("unreachable", message)));
                tried.except.push(upstream);
                Ok(())
            }
            Failed::Lost { upstream, error } if facts.replayable && !tried.replayed => {
                tracing::debug!(%upstream, %error, "lost in a closed connection; sending once more");
                again("closed_connection");
                tried.replayed = true;
                Ok(())
            }
            Failed::Refused { upstream, response } => {
                tracing::debug!(%upstream, "refused the work; trying elsewhere");
                again("refused");
                tried.last = Some(Ok(response.map(Body::full)));
                tried.except.push(upstream);
                Ok(())
            }
            Failed::Lost { upstream, error } | Failed::Broken { upstream, error } => {
                tracing::warn!(%upstream, %error, "no answer");
                let message = format!("{upstream} took the request and gave no answer: {error}");
                Err(Refusal::new(StatusCode::BAD_GATEWAY, "upstream_broke", message))
            }
            Failed::Late { upstream } => {
                tracing::warn!(%upstream, "no answer in time");
                let message = format!("{upstream} gave no answer in {:?}", self.0.options.timeouts.first_byte);
                Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, "first_byte_timeout", message))
            }
        }
    }

    fn relay(&self, answered: super::attempt::Answered, dialect: Dialect, arrival: &mut Arrival) -> Response<Body> {
        let super::attempt::Answered { response, lease, sent } = answered;
        let in_flight = arrival.in_flight.take().unwrap_or_else(|| self.0.metrics.arrived());
        let timeouts = &self.0.options.timeouts;
        let (head, body) = response.into_parts();
        let request = relay::Request {
            lease,
            sent,
            first_byte: timeouts.first_byte,
            idle: timeouts.idle,
            dialect,
            metrics: self.0.metrics.clone(),
            in_flight,
        };
        let relay = Relay::new(body, &head.headers, request);
        Response::from_parts(head, Body::new(relay))
    }

    fn unavailable(&self, reason: &'static str, message: String) -> Refusal {
        let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, reason, message);
        refusal.retry_after(self.0.options.retry_after)
    }

    fn no_place(&self, facts: &RequestFacts, no_place: NoPlace) -> Refusal {
        let after = self.0.options.retry_after;
        let model = facts.model.as_deref();
        match no_place {
            NoPlace::Ending { ending, waited } => {
                let mut refusal = Refusal::of_ending(&ending, model, after);
                if waited {
                    let waited = self.0.clock.now().since(facts.arrived);
                    refusal.message = format!("{} after waiting {:.1} s", refusal.message, waited.as_secs_f64());
                }
                if refusal.status == StatusCode::NOT_FOUND {
                    refusal.message = format!("{}; known: {}", refusal.message, self.known_models());
                }
                refusal
            }
            NoPlace::Full { full, ending } if ending.reason.is_contention() => {
                let what = match full {
                    QueueFull::Bytes => "the bodies of the requests that wait take all the memory meant for them",
                    _ => "as many requests wait as may",
                };
                let message = format!("{what}, since every upstream is busy ({})", ending.reason);
                Refusal::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message).retry_after(after)
            }
            NoPlace::Full { ending, .. } => Refusal::of_ending(&ending, model, after),
        }
    }

    /// The names that could have been asked for, as many as a person would read.
    fn known_models(&self) -> String {
        let snapshot = self.0.published.load();
        let mut names: Vec<_> = snapshot.models().map(|(name, _)| name).collect();
        names.sort_unstable();
        let more = names.len().saturating_sub(20);
        names.truncate(20);
        let listed = names.join(", ");
        if more > 0 { format!("{listed} and {more} more") } else { listed }
    }
}

/// What has been tried for one request.
#[derive(Default)]
struct Tried {
    except: Vec<UpstreamId>,
    /// It was sent once more though it may have been seen.
    replayed: bool,
    /// What the client gets if nobody else is left.
    last: Option<Result<Response<Body>, Refusal>>,
}

/// A request from its arrival to its answer. Dropped before that, its client has left.
struct Arrival {
    metrics: Arc<Metrics>,
    in_flight: Option<InFlight>,
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if self.in_flight.is_some() {
            self.metrics.cancelled();
        }
    }
}

fn path(uri: &Uri) -> Result<String, crate::request::path::PathError> {
    let path = if uri.path().is_empty() { "/" } else { uri.path() };
    // The asterisk of OPTIONS is about the server, not a path.
    if path == "*" { Ok("/".to_owned()) } else { normalise(path).map(std::borrow::Cow::into_owned) }
}

/// The path in the form in which it was judged, and the query as it came.
fn upstream_uri(path: &str, query: Option<&str>) -> Result<Uri, Refusal> {
    let text = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let parsed = text.parse::<PathAndQuery>().map(Uri::from);
    parsed.map_err(|error| Refusal::bad_request("bad_path", format!("the path cannot be sent on: {error}")))
}

/// A seed that differs from process to process.
fn entropy() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0u8)
}

/// The future of a [`Router`] as a service.
pub type RouterFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<B> tower_service::Service<Request<B>> for Router
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = RouterFuture;

    /// Always ready: whether there is room is decided for each request, since it depends on its model.
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> RouterFuture {
        hyper::service::Service::call(self, request)
    }
}

impl<B> hyper::service::Service<Request<B>> for Router
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = RouterFuture;

    fn call(&self, request: Request<B>) -> RouterFuture {
        let router = self.clone();
        Box::pin(async move { Ok(router.handle(request).await) })
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("published", &self.0.published).finish_non_exhaustive()
    }
}
