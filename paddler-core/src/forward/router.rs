//! How does one request go from end to end?

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::HOST;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body::Body as HttpBody;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{Instrument as _, Span, warn_span};

use super::accept::OverTls;
use super::admission::{admit, check_body};
use super::asked::{Standing, Times};
use super::attempt::{Answered, Outgoing};
use super::body::{Body, BoxError};
use super::forwarded::{Hop, Via};
use super::headers::{announces_body, for_upstream, strip_hop_by_hop, takes_trailers};
use super::held::Budget;
use super::intake;
use super::local;
use super::options::RouterOptions;
use super::peer::Origin;
use super::permit;
use super::refusal::Refusal;
use super::relay::{self, Relay};
use super::rights::{Client, InUse};
use super::sending::{Means, Outcome, Sending};
use super::timeouts::Allowed;
use super::trace::{self, REQUEST_ID};
use super::upgrade;
use super::waiting::Places;
use crate::clock::Clock;
use crate::observe::{InFlight, Metrics, Page};
use crate::queue::{Charge, RetryBudget};
use crate::request::path::{PathError, normalise};
use crate::request::{Dialect, RequestClass, RequestFacts, Route};
use crate::status::Published;

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
    /// Loaded once by each request, which goes on with what it has found.
    options: ArcSwap<RouterOptions>,
    places: Arc<Places>,
    budget: Arc<Budget>,
    retries: RetryBudget,
    metrics: Arc<Metrics>,
    stopping: AtomicBool,
    via: Via,
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
            options: ArcSwap::from_pointee(options),
            places,
            budget: Arc::default(),
            retries: RetryBudget::default(),
            metrics: Arc::default(),
            stopping: AtomicBool::new(false),
            via: Via::new(entropy()),
            handing_out,
        }))
    }

    /// Puts other options in force, for the requests that come from now on. Those that are here go on with the options
    /// that they came under. The seed stays as it is. Other limits of the queue hold from now on; whoever waits already
    /// stays, for as long as he was told.
    ///
    /// ```
    /// use paddler_core::Clock;
    /// use paddler_core::config::AdminPaths;
    /// use paddler_core::forward::{Body, Router, RouterOptions};
    /// use paddler_core::schedule::trees;
    /// use paddler_core::status::StatusBoard;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let board = StatusBoard::new(trees::gateway());
    /// let router = Router::new(board.published(), Clock::new(), RouterOptions::default());
    /// let ask = || http::Request::get("/slots").body(Body::empty());
    /// assert_eq!(router.handle(ask()?).await.status(), 403, "admin paths are closed");
    ///
    /// let mut options = router.options();
    /// options.admin = AdminPaths::Open;
    /// router.reconfigure(options);
    /// assert_eq!(router.handle(ask()?).await.status(), 503, "they are open, and there is no upstream");
    /// # Ok(()) }
    /// ```
    pub fn reconfigure(&self, mut options: RouterOptions) {
        let before = self.0.options.load();
        options.seed = before.seed;
        drop(before);
        self.0.places.set_queue(options.queue.clone());
        self.0.options.store(Arc::new(options));
    }

    /// The options in force.
    pub fn options(&self) -> RouterOptions {
        RouterOptions::clone(&self.0.options.load())
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
        let now = inner.clock.now();
        let page = Page {
            metrics: &inner.metrics,
            snapshot: &inner.published.load_full(),
            waits: inner.places.waiting(),
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
        let body = Body::new(body);
        let is_bare = body.is_end_stream();
        let metrics = &self.0.metrics;
        let id = trace::request_id(&parts.headers, || self.0.places.next_seed());
        // A warning is what it is for, so it is there wherever warnings are.
        let span = warn_span!("request", id = id.to_str().unwrap_or_default());
        let mut arrival = Arrival {
            metrics: metrics.clone(),
            in_flight: Some(metrics.arrived()),
            began: Instant::now(),
            id: id.clone(),
            span: span.clone(),
            in_use: None,
        };
        let route = path(&parts.uri).and_then(|path| Ok((Route::of(parts.method.as_str(), &path)?, path)));
        let (result, route) = match route {
            Err(error) => (
                Err(Refusal::bad_request("bad_path", error.to_string()).closing()),
                None,
            ),
            Ok((route, path)) => (
                self.route(parts, &path, &route, body, &mut arrival)
                    .instrument(span)
                    .await,
                Some(route),
            ),
        };
        let mut response = result.unwrap_or_else(|mut refusal| {
            metrics.refused(&refusal.reason);
            // Where there was no body, all of the request was read.
            refusal.close &= !is_bare;
            let dialect = route.as_ref().map_or(Dialect::Openai, |route| match route.class {
                RequestClass::Local => local::HEALTH_DIALECT,
                _ => route.dialect,
            });
            refusal.into_response(dialect)
        });
        trace::answer_with(response.headers_mut(), &id);
        arrival.in_flight = None;
        metrics.answered(route.as_ref(), response.status().as_u16());
        response
    }

    async fn route(
        &self,
        mut parts: Parts,
        path: &str,
        route: &Route,
        body: Body,
        arrival: &mut Arrival,
    ) -> Result<Response<Body>, Refusal> {
        let published = &self.0.published;
        let options = self.0.options.load_full();
        let client = admit(&parts, path, route, &options)?;
        if route.class == RequestClass::Local {
            let stopping = self.0.stopping.load(Relaxed);
            return local::answer(path, &published.load(), stopping, client.as_deref());
        }
        self.0.via.check(&parts.headers)?;
        let websocket = upgrade::Asked::by(&parts, options.websockets)?;
        let client = client.as_deref();
        let mut in_use = client
            .map(|client| permit::begin(client, &options, self.0.clock.now()))
            .transpose()?;
        let uri = upstream_uri(path, &parts.uri)?;
        let announced = announces_body(&parts.headers);
        let with_trailers = takes_trailers(&parts.headers);
        strip_hop_by_hop(&mut parts.headers, &[]);
        let origin = Origin::of(&parts.extensions, &options.trusted_peers);
        let asked = Asked {
            times: Times::read(&parts.headers)?,
            standing: Standing::take(&mut parts.headers, origin.trusted)?,
            began: arrival.began,
            client,
        };
        let intake = intake::read(&parts.headers, route.body, body, &options, self.0.budget.clone()).await?;
        let (mut facts, allowed) = self.facts(&options, &parts.headers, route, &intake, asked)?;
        if websocket.is_some() {
            // It is room that is taken for as long as it is open, whatever its path is good for otherwise.
            facts.weight = facts.weight.max(1);
            facts.model = facts.model.or_else(|| upgrade::model(uri.query()));
            facts.replayable = false;
        }
        if let (Some(client), Some(in_use)) = (client, &mut in_use) {
            let known = (&*options, &**published.load(), self.0.clock.now());
            permit::permit(client, in_use, (path, uri.query()), &facts, known)?;
        }
        let bytes = intake.held.bytes();
        if bytes > 0 {
            check_body(&parts.method)?;
        }
        self.say_whence(&options, &mut parts, origin, &arrival.id);
        let body = (announced || bytes > 0).then_some(bytes);
        for_upstream(&mut parts.headers, body, options.keys.is_some(), with_trailers);
        let outgoing = Outgoing {
            method: parts.method,
            uri,
            headers: parts.headers,
            held: intake.held,
            allowed,
            websocket: websocket.is_some(),
        };
        match Sending::new(self.means(&options, client), &facts, &outgoing)
            .run()
            .await?
        {
            // What its tokens come to is not seen.
            Outcome::Live(answered, _) if answered.response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                arrival.in_use = in_use;
                Ok(self.tunnel(answered, websocket, options.timeouts.tunnel_idle, arrival))
            }
            Outcome::Live(answered, charge) => {
                arrival.in_use = in_use;
                Ok(self.relay(answered, charge, route.dialect, arrival))
            }
            Outcome::Kept(response) => Ok(response),
        }
    }

    /// Tells the upstream which request it is, and where it comes from.
    fn say_whence(&self, options: &RouterOptions, parts: &mut Parts, from: Origin, id: &HeaderValue) {
        let Inner { via, places, .. } = &*self.0;
        let over_tls = parts.extensions.get::<OverTls>().is_some();
        let Parts { headers, uri, .. } = parts;
        let asked_by = headers.get(HOST).cloned();
        let hop = Hop {
            from,
            host: uri
                .authority()
                .map(Authority::as_str)
                .or(asked_by.as_ref().and_then(|host| host.to_str().ok())),
            scheme: if over_tls { "https" } else { "http" },
        };
        hop.say(headers, options.forwarding.forwarded);
        via.say(headers, parts.version);
        headers.insert(REQUEST_ID, id.clone());
        trace::settle_trace(headers, options.forwarding.traceparent, || places.next_seed());
    }

    fn means<'a>(&'a self, options: &'a RouterOptions, client: Option<&'a Client>) -> Means<'a> {
        let Inner {
            published,
            clock,
            places,
            retries,
            metrics,
            ..
        } = &*self.0;
        Means {
            places,
            retries,
            published,
            clock: *clock,
            options,
            metrics,
            client,
        }
    }

    fn facts(
        &self,
        options: &RouterOptions,
        headers: &HeaderMap,
        route: &Route,
        intake: &intake::Intake,
        asked: Asked<'_>,
    ) -> Result<(RequestFacts, Allowed), Refusal> {
        let inner = &*self.0;
        let (now, seed) = (inner.clock.now(), inner.places.next_seed());
        let mut facts = match &intake.scanned {
            None => RequestFacts::from_route(route, intake.held.bytes(), now, seed),
            Some(scanned) => RequestFacts::from_scan(route, scanned, now, seed)
                .map_err(|error| Refusal::new(StatusCode::NOT_FOUND, "model_not_found", error.to_string()))?,
        };
        let Asked {
            times,
            standing,
            began,
            client,
        } = asked;
        let allowed = Allowed::new(&options.timeouts, facts.model.as_deref(), times, began);
        // How long anybody waits is for the queue to say. A client may want less, and what is left of the whole counts.
        let left = allowed
            .ends
            .map(|ends| ends.saturating_duration_since(Instant::now()));
        let wait = [times.max_wait, left].into_iter().flatten().min();
        facts.deadline = wait.map(|wait| now.saturating_add(wait));
        if let Some(client) = client {
            client.annotate(&mut facts);
        }
        // Whoever is trusted to say so knows better.
        facts.priority = standing.priority.unwrap_or(facts.priority);
        if let Some(tenant) = standing.tenant {
            // The weight of a gateway's own key is not that of each tenant behind it.
            (facts.tenant, facts.tenant_weight) = (Some(tenant), 1);
        }
        if let Some(host) = &options.annotate {
            host.annotate(headers, &mut facts);
        }
        Ok((facts, allowed))
    }

    fn tunnel(
        &self,
        answered: Answered,
        asked: Option<upgrade::Asked>,
        idle: Duration,
        arrival: &mut Arrival,
    ) -> Response<Body> {
        let Answered { response, lease, .. } = answered;
        let metrics = self.0.metrics.clone();
        let in_flight = arrival.in_flight.take().unwrap_or_else(|| metrics.arrived());
        let tunnel = upgrade::Tunnel {
            lease,
            idle,
            metrics,
            in_flight,
            _in_use: arrival.in_use.take(),
        };
        match asked {
            Some(asked) => asked.tunnel(response, tunnel),
            None => response,
        }
    }

    fn relay(
        &self,
        answered: Answered,
        charge: Option<Charge>,
        dialect: Dialect,
        arrival: &mut Arrival,
    ) -> Response<Body> {
        let Answered {
            response,
            lease,
            sent,
            stages,
            hurried,
        } = answered;
        let in_flight = arrival
            .in_flight
            .take()
            .unwrap_or_else(|| self.0.metrics.arrived());
        let (head, body) = response.into_parts();
        let request = relay::Request {
            lease,
            charge: charge.map(|charge| (self.0.places.clone(), charge)),
            sent,
            stages,
            hurried,
            span: arrival.span.clone(),
            dialect,
            clock: self.0.clock,
            metrics: self.0.metrics.clone(),
            in_flight,
            in_use: arrival.in_use.take(),
        };
        let relay = Relay::new(body, &head.headers, request);
        Response::from_parts(head, Body::new(relay))
    }
}

/// A request from its arrival to its answer. Dropped before that, its client has left.
struct Arrival {
    metrics: Arc<Metrics>,
    in_flight: Option<InFlight>,
    began: Instant,
    id: HeaderValue,
    span: Span,
    /// What the client uses of its allowance.
    in_use: Option<InUse>,
}

/// What its client, and the peer that it came by, ask for.
struct Asked<'a> {
    times: Times,
    standing: Standing,
    began: Instant,
    /// Who asks, if that is known.
    client: Option<&'a Client>,
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if self.in_flight.is_some() {
            self.metrics.cancelled();
        }
    }
}

fn path(uri: &Uri) -> Result<String, PathError> {
    let path = if uri.path().is_empty() { "/" } else { uri.path() };
    // The asterisk of OPTIONS is about the server, not a path.
    if path == "*" {
        Ok("/".to_owned())
    } else {
        normalise(path).map(std::borrow::Cow::into_owned)
    }
}

/// The path in the form in which it was judged, and the query as it came.
fn upstream_uri(path: &str, uri: &Uri) -> Result<Uri, Refusal> {
    match uri.path_and_query() {
        Some(as_it_came) if as_it_came.path() == path => return Ok(as_it_came.clone().into()),
        _ => {}
    }
    let text = uri
        .query()
        .map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
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
        f.debug_struct("Router")
            .field("published", &self.0.published)
            .finish_non_exhaustive()
    }
}
