//! What is held of a request while it is sent, and is it told of which one the log speaks when it is given up?

use std::fmt::{Debug, Write as _};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use http::{Request, Response};
use paddler_core::Clock;
use paddler_core::forward::{Body, BoxError, Router, RouterOptions};
use paddler_core::schedule::trees;
use paddler_core::status::{BoardOptions, FixedList, StatusBoard, StatusLoop};
use paddler_core::upstream::{Connect, Upstream, UpstreamSpec};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::client::{CHAT, HANG, eventually};
use super::world::spec;

const OURS: &str = "an upstream of the test";

/// Its requests are never answered, and say so when they are given up.
#[derive(Debug)]
struct Never;

impl Connect for Never {
    fn connect(&self, _: &UpstreamSpec) -> Result<Arc<dyn Upstream>, BoxError> {
        Ok(Arc::new(Self))
    }
}

#[async_trait]
impl Upstream for Never {
    async fn call(&self, _: Request<Body>) -> Result<Response<Body>, BoxError> {
        let _says = Says;
        tracing::warn!(target: OURS, "called");
        std::future::pending().await
    }
}

struct Says;

impl Drop for Says {
    fn drop(&mut self) {
        tracing::warn!(target: OURS, "given up");
    }
}

async fn router() -> (Router, StatusLoop) {
    let mut board = BoardOptions::default();
    board.settle = HANG;
    let clock = Clock::new();
    let statuses = StatusLoop::start(
        StatusBoard::with_options(trees::balancer(), board),
        vec![Box::new(FixedList::new([spec("a", "http://127.0.0.1:9")]))],
        Arc::new(Never),
        None,
        clock,
    );
    let published = statuses.published();
    eventually("it has joined", || published.load().len() == 1).await;
    (Router::new(published, clock, RouterOptions::default()), statuses)
}

fn request(id: &'static str) -> Request<Body> {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let request = Request::post(CHAT).header("x-request-id", id);
    request.body(Body::full(body)).unwrap()
}

/// Sends it until it waits for its answer, and gives it up after this.
fn given_up(router: &Router, request: Request<Body>, then: impl FnOnce()) {
    let mut handled = pin!(router.handle(request));
    let polled = handled.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Pending));
    then();
}

#[tokio::test]
async fn what_came_with_a_request_is_not_held_while_it_is_sent() {
    let (router, _statuses) = router().await;
    let (came, mut asked) = (Arc::new(()), request("held"));
    asked.extensions_mut().insert(came.clone());
    given_up(&router, asked, || assert_eq!(Arc::strong_count(&came), 1));
}

#[tokio::test]
async fn what_a_transport_was_given_settles_when_it_is_given_up() {
    let (router, _statuses) = router().await;
    given_up(&router, request("settles"), || ());
    // The upstream may still be working on it.
    assert_eq!(router.published().load().ledger().settling_weight(), 1);
}

#[tokio::test]
async fn what_is_said_of_a_request_that_is_given_up_has_its_id() {
    let (router, _statuses) = router().await;
    // The places in the code that speak are known before somebody listens.
    given_up(&router, request("unheard"), || ());
    let log = Log::default();
    let _listening = tracing::subscriber::set_default(Listener(log.clone()));
    given_up(&router, request("mine"), || ());
    given_up(&router, request("other"), || ());
    let lines = std::mem::take(&mut log.0.lock().unwrap().lines);
    let said = ["mine called", "mine given up", "other called", "other given up"];
    assert_eq!(lines, said);
}

/// What upstreams of the test have said, each with the request in whose span it was.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Said>>);

#[derive(Default)]
struct Said {
    spans: Vec<String>,
    entered: Vec<Id>,
    lines: Vec<String>,
}

struct Listener(Log);

/// The one field that tells.
struct Named(&'static str, String);

impl Visit for Named {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == self.0 {
            write!(self.1, "{value:?}").unwrap();
        }
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() || metadata.target() == OURS
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut id = Named("id", String::new());
        attributes.record(&mut id);
        let spans = &mut self.0.0.lock().unwrap().spans;
        spans.push(id.1);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Named("message", String::new());
        event.record(&mut message);
        let said = &mut *self.0.0.lock().unwrap();
        let span = said.entered.last();
        let span = span.map_or("nobody", |id| &said.spans[id.into_u64() as usize - 1]);
        said.lines.push(format!("{span} {}", message.1));
    }

    fn enter(&self, span: &Id) {
        self.0.0.lock().unwrap().entered.push(span.clone());
    }

    fn exit(&self, _: &Id) {
        self.0.0.lock().unwrap().entered.pop();
    }
}
