//! What do a host and its own transport say to each other past the router?

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use paddler_core::Clock;
use paddler_core::forward::{Annotate, Body, BoxError, Router, RouterOptions};
use paddler_core::request::RequestFacts;
use paddler_core::schedule::trees;
use paddler_core::status::{BoardOptions, FixedList, StatusBoard, StatusLoop};
use paddler_core::upstream::{
    CallError, Carried, Connect, Dispatch, Extensions, Only, ServedBy, Upstream, UpstreamId, UpstreamSpec,
};

use super::client::{CHAT, HANG, eventually};
use super::world::spec;

/// What an upstream that the test plays does with a request.
#[derive(Debug, Clone, Copy)]
enum Play {
    Status(u16),
    ServedBy(&'static str),
    NotSent,
    Broken,
}

/// Who was called, what the router said of the request, and what its host did.
type Call = (String, Option<Dispatch>, Option<u32>);

/// A transport that sends nothing and keeps what it was given.
#[derive(Debug, Clone)]
struct Stage {
    plays: Arc<[(&'static str, Play)]>,
    once: bool,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Connect for Stage {
    fn connect(&self, spec: &UpstreamSpec) -> Result<Arc<dyn Upstream>, BoxError> {
        Ok(Arc::new(Actor {
            id: spec.id.to_string(),
            stage: self.clone(),
        }))
    }
}

#[derive(Debug)]
struct Actor {
    id: String,
    stage: Stage,
}

#[async_trait]
impl Upstream for Actor {
    async fn call(&self, mut request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let extensions = request.extensions_mut();
        let carried: Option<Carried> = extensions.remove();
        let number = carried.and_then(|carried| carried.0.get::<u32>().copied());
        let call = (self.id.clone(), extensions.remove(), number);
        self.stage.calls.lock().unwrap().push(call);
        let play = self.stage.plays.iter().find(|(id, _)| *id == self.id).unwrap().1;
        let mut response = Response::new(Body::full(format!("from {}", self.id)));
        match play {
            Play::Status(status) => *response.status_mut() = status.try_into()?,
            Play::ServedBy(id) => drop(response.extensions_mut().insert(ServedBy(UpstreamId::new(id)?))),
            Play::NotSent => return Err(CallError::unreachable("nobody is there").into()),
            Play::Broken => return Err("broken".into()),
        }
        Ok(response)
    }

    fn sends_once(&self) -> bool {
        self.stage.once
    }
}

struct World {
    router: Router,
    stage: Stage,
    statuses: StatusLoop,
}

/// A router over upstreams that do this, none of which is limited.
async fn world(once: bool, plays: &[(&'static str, Play)], options: RouterOptions) -> World {
    let stage = Stage {
        plays: plays.into(),
        once,
        calls: Arc::default(),
    };
    let mut board = BoardOptions::default();
    board.settle = HANG;
    let clock = Clock::new();
    let statuses = StatusLoop::start(
        StatusBoard::with_options(trees::balancer(), board),
        vec![Box::new(FixedList::new(
            plays.iter().map(|(id, _)| spec(id, "http://127.0.0.1:9")),
        ))],
        Arc::new(stage.clone()),
        None,
        clock,
    );
    let published = statuses.published();
    eventually("all have joined", || published.load().len() == plays.len()).await;
    World {
        router: Router::new(published, clock, options),
        stage,
        statuses,
    }
}

impl World {
    async fn ask(&self, change: impl FnOnce(&mut http::Extensions)) -> Response<Body> {
        let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
        let mut request = Request::post(CHAT).body(Body::full(body)).unwrap();
        change(request.extensions_mut());
        self.router.handle(request).await
    }

    fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.stage.calls.lock().unwrap())
    }

    fn open(&self, id: &str) -> u32 {
        let snapshot = self.router.published().load_full();
        snapshot.ledger().own_load(snapshot.index(id).unwrap()).weight
    }
}

fn ids(names: &[&'static str]) -> Arc<[UpstreamId]> {
    names.iter().map(|name| UpstreamId::new(*name).unwrap()).collect()
}

fn reason(response: &Response<Body>) -> (u16, String) {
    let reason = response
        .headers()
        .get("x-paddler-reason")
        .map_or("", |reason| reason.to_str().unwrap());
    (response.status().as_u16(), reason.to_owned())
}

/// Nobody waits.
fn hasty() -> RouterOptions {
    let mut options = RouterOptions::default();
    options.queue.max_wait = Duration::from_millis(1);
    options.queue.max_wait_starting = Duration::from_millis(1);
    options
}

const ABC: [(&str, Play); 3] = [
    ("a", Play::Status(200)),
    ("b", Play::Status(200)),
    ("c", Play::Status(200)),
];

#[tokio::test]
async fn a_request_goes_nowhere_but_where_its_host_allows() {
    let world = world(false, &ABC, RouterOptions::default()).await;
    for _ in 0..8 {
        let response = world.ask(|with| drop(with.insert(Only(ids(&["b", "x"]))))).await;
        assert_eq!(response.status(), 200);
        assert_eq!(world.calls()[0].0, "b");
    }
    for nobody in [&[][..], &["x"]] {
        let response = world.ask(|with| drop(with.insert(Only(ids(nobody))))).await;
        assert_eq!(reason(&response), (503, "not_in_subset".to_owned()));
    }
    assert!(world.calls().is_empty());
}

#[tokio::test]
async fn who_may_only_go_where_nobody_answers_is_not_sent_elsewhere() {
    let plays = [("a", Play::NotSent), ("b", Play::Status(200))];
    let world = world(false, &plays, hasty()).await;
    let response = world.ask(|with| drop(with.insert(Only(ids(&["a"]))))).await;
    assert_eq!(reason(&response), (503, "unreachable".to_owned()));
    assert!(world.calls().iter().all(|(id, ..)| id == "a"));
}

#[tokio::test]
async fn a_transport_hears_who_comes_next_and_what_its_host_has_put_in() {
    let mut options = RouterOptions::default();
    options.alternatives = 2;
    let world = world(false, &ABC, options).await;
    let mut extensions = Extensions::default();
    extensions.insert(7_u32);
    let carried = Carried(extensions);
    world.ask(|with| drop(with.insert(carried.clone()))).await;
    let (id, dispatch, number) = world.calls().pop().unwrap();
    let dispatch = dispatch.unwrap();
    assert_eq!(
        (dispatch.model.as_deref(), dispatch.rewritten, number),
        (Some("m"), false, Some(7))
    );
    let mut all: Vec<_> = dispatch.alternatives.iter().map(UpstreamId::as_str).collect();
    all.push(&id);
    all.sort_unstable();
    assert_eq!(all, ["a", "b", "c"]);

    let mut options = world.router.options();
    options.alternatives = 0;
    world.router.reconfigure(options);
    world.ask(|with| drop(with.insert(carried))).await;
    assert!(world.calls().pop().unwrap().1.unwrap().alternatives.is_empty());
    // Nobody asked for it.
    world.ask(|_| ()).await;
    assert_eq!(world.calls().pop().unwrap().1, None);
}

#[tokio::test]
async fn a_request_counts_where_it_was_answered() {
    let plays = [("a", Play::ServedBy("b")), ("b", Play::Status(200))];
    let world = world(true, &plays, RouterOptions::default()).await;
    let response = world.ask(|with| drop(with.insert(Only(ids(&["a"]))))).await;
    assert_eq!((world.open("a"), world.open("b")), (0, 1));
    response.into_body().collect().await.unwrap();
    assert_eq!((world.open("a"), world.open("b")), (0, 0));

    let plays = [("a", Play::ServedBy("gone"))];
    let world = self::world(true, &plays, RouterOptions::default()).await;
    let response = world.ask(|_| ()).await;
    assert_eq!((response.status().as_u16(), world.open("a")), (200, 1));
}

#[tokio::test]
async fn what_is_sent_once_is_answered_by_whoever_got_it() {
    for status in [503, 429, 502] {
        let plays = [("a", Play::Status(status)), ("b", Play::Status(status))];
        let world = world(true, &plays, RouterOptions::default()).await;
        let response = world.ask(|_| ()).await;
        assert_eq!(reason(&response), (status, String::new()));
        let calls = world.calls();
        assert_eq!(calls.len(), 1, "{status}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, format!("from {}", calls[0].0));
        assert_eq!(world.open("a") + world.open("b"), 0);
    }
    let world = world(
        true,
        &[("a", Play::Broken), ("b", Play::Broken)],
        RouterOptions::default(),
    )
    .await;
    assert_eq!(
        reason(&world.ask(|_| ()).await),
        (502, "upstream_broke".to_owned())
    );
    assert_eq!(world.calls().len(), 1);
}

#[tokio::test]
async fn what_was_not_sent_goes_elsewhere_also_where_it_is_sent_once() {
    let world = world(true, &[("a", Play::NotSent), ("b", Play::NotSent)], hasty()).await;
    assert_eq!(world.ask(|_| ()).await.status(), 503);
    let mut asked: Vec<_> = world.calls().into_iter().map(|(id, ..)| id).collect();
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(asked, ["a", "b"]);
}

/// Asks for another model than the client.
#[derive(Debug)]
struct Other;

impl Annotate for Other {
    fn annotate(&self, headers: &HeaderMap, facts: &mut RequestFacts) {
        if let Some(model) = headers.get("x-model") {
            facts.model = Some(model.to_str().unwrap().into());
        }
    }
}

/// Answers with the body that it gets.
#[derive(Debug)]
struct Echo;

impl Connect for Echo {
    fn connect(&self, _: &UpstreamSpec) -> Result<Arc<dyn Upstream>, BoxError> {
        Ok(Arc::new(Self))
    }
}

#[async_trait]
impl Upstream for Echo {
    async fn call(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let mut response = Response::new(());
        *response.headers_mut() = request.headers().clone();
        response.headers_mut().insert(
            "x-rewritten",
            match request.extensions().get::<Dispatch>() {
                Some(dispatch) if dispatch.rewritten => "yes".parse()?,
                _ => "no".parse()?,
            },
        );
        Ok(response.map(|()| request.into_body()))
    }
}

#[tokio::test]
async fn another_model_takes_the_place_of_the_one_that_the_body_names() {
    let clock = Clock::new();
    let statuses = StatusLoop::start(
        StatusBoard::new(trees::balancer()),
        vec![Box::new(FixedList::new([spec("a", "http://127.0.0.1:9")]))],
        Arc::new(Echo),
        None,
        clock,
    );
    let mut options = RouterOptions::default();
    options.annotate = Some(Arc::new(Other));
    let router = Router::new(statuses.published(), clock, options);
    for (body, model, expected) in [
        (
            r#"{ "model" : "a",  "temperature":1e0 , "prompt":"é"}"#,
            "b\"c",
            r#"{ "model" : "b\"c",  "temperature":1e0 , "prompt":"é"}"#,
        ),
        (
            r#"{"Model":"a","prompt":"x","model":"a"}"#,
            "b",
            r#"{"Model":"b","prompt":"x","model":"b"}"#,
        ),
        (
            r#"{"model":"b","prompt":"x"}"#,
            "b",
            r#"{"model":"b","prompt":"x"}"#,
        ),
        (r#"{"prompt":"x"}"#, "b", r#"{"prompt":"x"}"#),
    ] {
        let mut request = Request::post("/v1/completions").header("x-model", model);
        let carried = request.extensions_mut().unwrap();
        carried.insert(Carried::default());
        let response = router.handle(request.body(Body::full(body)).unwrap()).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-length"], expected.len().to_string());
        let rewritten = if body == expected { "no" } else { "yes" };
        assert_eq!(response.headers()["x-rewritten"], rewritten);
        let sent = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(sent, expected);
    }
}

#[cfg(feature = "decompress")]
#[tokio::test]
async fn a_compressed_body_cannot_be_made_to_ask_for_another_model() {
    use std::io::Write as _;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(br#"{"model":"a","prompt":"x"}"#).unwrap();
    let body = gzip.finish().unwrap();
    let mut options = RouterOptions::default();
    options.annotate = Some(Arc::new(Other));
    let world = world(false, &ABC, options).await;
    let ask = |model: &str| {
        let request = Request::post("/v1/completions")
            .header("content-encoding", "gzip")
            .header("x-model", model);
        request.body(Body::full(body.clone())).unwrap()
    };
    assert_eq!(world.router.handle(ask("a")).await.status(), 200);
    let refused = world.router.handle(ask("b")).await;
    assert_eq!(reason(&refused), (415, "content_encoding".to_owned()));
}

#[tokio::test]
async fn who_may_only_go_where_nobody_is_let_in_now_waits_for_him() {
    let world = world(false, &ABC, RouterOptions::default()).await;
    let only = Only(ids(&["a"]));
    world
        .statuses
        .set_draining(UpstreamId::new("a").unwrap(), true)
        .await
        .unwrap();
    let asked = world.ask(|with| drop(with.insert(only.clone())));
    let lets_in = async {
        let waits = |line: &str| line.starts_with("paddler_waiting_requests{") && line.ends_with(" 1");
        eventually("it waits", || world.router.metrics_page().lines().any(waits)).await;
        world
            .statuses
            .set_draining(UpstreamId::new("a").unwrap(), false)
            .await
            .unwrap();
    };
    let (response, ()) = tokio::join!(asked, lets_in);
    assert_eq!(response.status(), 200);
    assert_eq!(world.calls()[0].0, "a");
}
