//! What is a router, and how is it called?
//!
//! A service that answers every request. How it comes to its answer is in [`passage`].

mod in_span;
mod passage;

use std::any::Any;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response};
use http_body::Body as HttpBody;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{Span, warn_span};

use super::accept::Peer;
use super::body::{Body, BoxError};
use super::forwarded::Via;
use super::held::Budget;
use super::local;
use super::options::RouterOptions;
use super::owners::Owners;
use super::refusal::Refusal;
use super::shown::Shown;
use super::story::Story;
use super::trace;
use super::upstream_key;
use super::waiting::Places;
use crate::clock::Clock;
use crate::observe::{End, Metrics, MetricsPage, guarded};
use crate::queue::RetryBudget;
use crate::request::{Dialect, RequestClass, RequestFacts, Route};
use crate::schedule::{Explained, NodeId};
use crate::status::Published;
use in_span::InSpan;
use passage::{Arrival, Came};

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
pub struct Router(
    Arc<Inner>,
    /// Who is at the other end of the one connection that this clone serves.
    Option<Peer>,
);

struct Inner {
    published: Published,
    clock: Clock,
    /// Loaded once by each request, which goes on with what it has found.
    options: ArcSwap<RouterOptions>,
    /// Whoever changes them holds this, so that all of one change is in force and not parts of two.
    changing: Mutex<()>,
    places: Arc<Places>,
    budget: Arc<Budget>,
    retries: RetryBudget,
    metrics: Arc<Metrics>,
    owners: Arc<Owners>,
    said_of_keys: upstream_key::Said,
    stopping: AtomicBool,
    via: Via,
    handing_out: AbortHandle,
}

impl Inner {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }
}

/// A part of a tree that is the host's own has panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePanicked(pub NodeId);

impl fmt::Display for NodePanicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "node {} of the tree panicked: the log says where",
            self.0.get()
        )
    }
}

impl std::error::Error for NodePanicked {}

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
        let name = published.named(|| Via::name_of(entropy()));
        let places = Arc::new(Places::new(published.clone(), clock, options.queue.clone(), seed));
        places.set_alternatives(options.alternatives);
        let handing_out = tokio::spawn(places.clone().keep_handing_out()).abort_handle();
        let inner = Arc::new(Inner {
            published,
            clock,
            options: ArcSwap::from_pointee(options),
            changing: Mutex::default(),
            places,
            budget: Arc::default(),
            retries: RetryBudget::default(),
            metrics: Arc::default(),
            owners: Arc::default(),
            said_of_keys: upstream_key::Said::default(),
            stopping: AtomicBool::new(false),
            via: Via::new(name),
            handing_out,
        });
        Self(inner, None)
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
        let _changing = self.0.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.0.options.load();
        options.seed = before.seed;
        drop(before);
        self.0.places.set_queue(options.queue.clone());
        self.0.places.set_alternatives(options.alternatives);
        self.0.options.store(Arc::new(options));
    }

    /// The options in force.
    pub fn options(&self) -> RouterOptions {
        RouterOptions::clone(&self.0.options.load())
    }

    pub(super) fn options_in_force(&self) -> Arc<RouterOptions> {
        self.0.options.load_full()
    }

    pub(super) fn places(&self) -> &Places {
        &self.0.places
    }

    pub(super) fn clock(&self) -> Clock {
        self.0.clock
    }

    /// What is counted.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.0.metrics
    }

    /// The published state that it routes by.
    pub fn published(&self) -> &Published {
        &self.0.published
    }

    /// How many requests wait for a place.
    pub fn waiting(&self) -> u64 {
        let waits = self.0.places.waiting();
        waits.iter().map(|class| class.waiting as u64).sum()
    }

    /// All figures, as a page for Prometheus.
    pub fn metrics_page(&self) -> String {
        self.metrics_of(&[])
    }

    /// The figures of these families, as such a page; of all, where none is named. A name that no family has, is passed over.
    pub fn metrics_of(&self, families: &[String]) -> String {
        let inner = &*self.0;
        let now = inner.clock.now();
        let options = inner.options.load();
        let lost = options.telemetry.as_ref();
        let lost = lost.and_then(|telemetry| guarded(|| telemetry.lost()));
        let page = MetricsPage {
            lost: lost.unwrap_or_default(),
            metrics: &inner.metrics,
            snapshot: &inner.published.load_full(),
            waits: inner.places.waiting(),
            held_back: inner.places.held_back(),
            buffered: inner.budget.held(),
            walks: Some(inner.places.walks()),
            now,
            only: families,
        };
        page.to_string()
    }

    /// Who waits, counted by class and by model.
    #[cfg(feature = "manage")]
    pub fn queue_status(&self) -> crate::manage::QueueStatus {
        self.0.places.queue_status(&self.0.published.load())
    }

    /// Where a request would go now, and why; nothing is reserved, and nobody waits. `most`: how many upstreams each list names.
    /// A name that stands for others counts as what is drawn for it; where its model has no place, those that serve it otherwise are
    /// told too. What [`RequestFacts`] do not tell does not count: keys and what they open, and who waits already.
    ///
    /// ```
    /// use paddler_core::{Clock, Moment};
    /// use paddler_core::forward::{Router, RouterOptions};
    /// use paddler_core::request::RequestFacts;
    /// use paddler_core::schedule::trees;
    /// use paddler_core::status::StatusBoard;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let board = StatusBoard::new(trees::gateway());
    /// let router = Router::new(board.published(), Clock::new(), RouterOptions::default());
    /// let facts = RequestFacts::read("POST", "/v1/chat/completions", br#"{"model": "m"}"#, Moment::ZERO, 1)?;
    /// let why = router.explain(&facts, 10)?;
    /// assert_eq!((why.outcome, why.picked.len()), ("later", 0), "it would wait: nobody is there");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// A filter, cost or condition of the host's has panicked: in which node, and no more.
    pub fn explain(&self, facts: &RequestFacts, most: usize) -> Result<Explained, NodePanicked> {
        let mut facts = facts.clone();
        let options = self.0.options.load();
        options.models.resolve(&mut facts);
        let walk = |facts: &RequestFacts| self.0.places.explain(facts, most).map_err(NodePanicked);
        let others = options
            .models
            .fallback(&facts)
            .map_or(Vec::new(), |fallback| fallback.models);
        walk(&facts)?.of(&facts).or_else(&facts, &others, walk)
    }

    /// Answers a request that its host refuses before it gets here: counted and logged as the router's own refusals are.
    pub fn refuse(&self, refusal: Refusal, dialect: Dialect) -> Response<Body> {
        self.0.metrics.refused(&refusal.reason);
        refusal.say();
        refusal.into_response(dialect)
    }

    /// From now on `/health` says that the router is going away, so that no new work is sent here. What is sent all the
    /// same is served.
    pub fn stop(&self) {
        self.0.stopping.store(true, Relaxed);
    }

    /// Whether anyone can serve, as far as is known, and the router is not going away. So it is not ready before the first upstream
    /// was heard, unless it is one of those that are never asked: see [`Snapshot::anyone_able`](crate::status::Snapshot::anyone_able).
    /// Once ready it stays so for whoever joins beside those that were heard; where all are others at once, until one of them was.
    pub fn is_ready(&self) -> bool {
        self.unready().is_none()
    }

    /// Why it is not ready, if it is not, as `/health` says it: `stopping`, `no_upstream`, `draining` (all upstreams are) or
    /// `unhealthy`.
    pub fn unready(&self) -> Option<Refusal> {
        let options = self.0.options.load();
        let snapshot = self.0.published.load();
        local::unready(&snapshot, &options.models, self.0.is_stopping())
    }

    /// Tells a service who is at the other end of a connection that it alone serves, if it is a router: then no request has to
    /// carry that.
    pub(super) fn tell_peer<S: 'static>(service: &mut S, peer: Peer) -> bool {
        let router = (service as &mut dyn Any).downcast_mut::<Self>();
        router.map(|router| router.1 = Some(peer)).is_some()
    }

    /// A request that has just come.
    fn arrive(
        &self,
        options: &RouterOptions,
        (id, span): (&HeaderValue, &Span),
        method: &Method,
        peer: Option<&Peer>,
    ) -> Arrival {
        let Inner { metrics, clock, .. } = &*self.0;
        let name = id.to_str().unwrap_or_default();
        Arrival {
            metrics: metrics.clone(),
            in_flight: Some(metrics.arrived()),
            began: Instant::now(),
            id: id.clone(),
            span: span.clone(),
            story: Story::begin(options.telemetry.as_ref(), *clock, name, method, peer),
            shown: Shown::default(),
        }
    }

    /// Answers a request.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut parts, body) = request.into_parts();
        let body = super::rest::put_aside(&mut parts.extensions, body);
        let is_bare = body.is_end_stream();
        let peer = self.1.or_else(|| parts.extensions.get().copied());
        let metrics = &self.0.metrics;
        let options = self.0.options.load_full();
        let id = trace::request_id(&parts.headers, || self.0.places.next_seed());
        // A warning is what it is for, so it is there wherever warnings are.
        // The id is visible ASCII, and as it stands it is written at once: in quotes it would be so letter by letter.
        let span = warn_span!("request", id = %id.to_str().unwrap_or_default());
        let mut arrival = self.arrive(&options, (&id, &span), &parts.method, peer.as_ref());
        let route =
            passage::path(&parts.uri).and_then(|path| Ok((Route::of(parts.method.as_str(), &path)?, path)));
        if let Ok((route, path)) = &route {
            arrival.story.asks(path, route);
        }
        let (result, route) = match route {
            Err(error) => (
                Err(Refusal::bad_request("bad_path", error.to_string()).closing()),
                None,
            ),
            Ok((route, path)) => {
                let came = Came {
                    parts: &mut parts,
                    peer,
                    path: &path,
                    route: &route,
                    at_once: self.1.is_some(),
                };
                let routed = pin!(Some(self.route(came, body, (&options, &mut arrival))));
                (InSpan::new(&span, routed).await, Some(route))
            }
        };
        let mut refused = None;
        let mut response = result.unwrap_or_else(|mut refusal| {
            refused = Some(refusal.reason.clone());
            // Where there was no body, all of the request was read.
            refusal.close &= !is_bare;
            let dialect = route.as_ref().map_or(Dialect::Openai, dialect);
            span.in_scope(|| self.refuse(refusal, dialect))
        });
        trace::answer_with(response.headers_mut(), &id);
        arrival.shown.say(response.headers_mut());
        arrival.in_flight = None;
        arrival.story.status(response.status().as_u16(), refused);
        arrival.story.end(End::Here, None);
        metrics.answered(route.as_ref(), response.status().as_u16());
        response
    }
}

/// How it is told to those who ask this that they are refused.
fn dialect(route: &Route) -> Dialect {
    match route.class {
        RequestClass::Local => local::HEALTH_DIALECT,
        _ => route.dialect,
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::trees;
    use crate::status::StatusBoard;

    #[tokio::test]
    async fn of_two_who_change_the_options_at_once_one_comes_first() {
        let board = StatusBoard::new(trees::gateway());
        let router = Router::new(board.published(), Clock::new(), RouterOptions::default());
        let change = |many: usize| {
            let mut options = router.options();
            options.queue.max_requests = many;
            router.reconfigure(options);
        };
        for round in 0..5_000 {
            std::thread::scope(|scope| {
                scope.spawn(|| change(2 * round));
                change(2 * round + 1);
            });
            assert_eq!(router.0.places.limits(), router.options().queue);
        }
    }
}
