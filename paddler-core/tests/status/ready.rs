//! From when on is a router ready, and for whose sake?

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{Request, Response, StatusCode};
use paddler_core::config::Queue;
use paddler_core::forward::{Body, BoxError, Router, RouterOptions};
use paddler_core::schedule::trees;
use paddler_core::status::{
    FixedList, Health, MemberList, PollOptions, Report, Snapshot, StatusEvent, StatusSource, Unpolled,
};
use paddler_core::upstream::{Connect, Engine, ModelEntry, Models, Traffic, Upstream, UpstreamSpec};
use tokio::time::{Instant, sleep};

use super::fake::{Fake, Net, Reply, llama};
use super::rig::{Rig, id, spec};

/// How long the first answer of those here takes that are slow.
const SLOW: Duration = Duration::from_millis(500);

fn listed(name: &str) -> Models {
    Models::Listed(vec![ModelEntry::new(name)])
}

/// A llama.cpp that is slow to say how it is, each time.
fn slow() -> Arc<Fake> {
    Fake::new(|path, _| match (path, llama(path, 0, 4, "m")) {
        ("/health", Reply::Says(status, body)) => Reply::Late(SLOW, status, body),
        (_, reply) => reply,
    })
}

/// A router over these, in whatever way they are asked.
fn router(
    net: Arc<dyn Connect>,
    sources: Vec<Box<dyn StatusSource>>,
    poll: Option<PollOptions>,
) -> (Rig, Router) {
    let rig = Rig::start(trees::gateway(), sources, net, poll);
    let router = Router::new(rig.published.clone(), rig.clock, RouterOptions::default());
    (rig, router)
}

fn fixed(specs: impl IntoIterator<Item = UpstreamSpec>) -> Vec<Box<dyn StatusSource>> {
    vec![Box::new(FixedList::new(specs))]
}

/// Whether it is ready, by each of those who say it.
async fn is_ready(router: &Router) -> bool {
    let health = Request::get("/health").body(Body::empty()).unwrap();
    let health = router.handle(health).await.status() == StatusCode::OK;
    let snapshot = router.published().load_full();
    let told = snapshot.aggregate(0).health == Some(Health::Ready);
    let each = [router.is_ready(), health, told, snapshot.anyone_able()];
    assert_eq!(each, [router.is_ready(); 4], "they say the same");
    router.is_ready()
}

#[tokio::test(start_paused = true)]
async fn it_is_ready_once_somebody_was_heard() {
    let net = Net::of([("http://a", slow()), ("http://b", slow())]);
    let specs = [spec("a", "http://a"), spec("b", "http://b").models(listed("m"))];
    let (rig, router) = router(net, fixed(specs), Some(PollOptions::default()));
    let start = Instant::now();
    rig.until("both have joined", |snapshot| snapshot.len() == 2)
        .await;
    while Instant::now() + Duration::from_millis(20) < start + SLOW {
        assert!(!is_ready(&router).await, "{:?}", Instant::now() - start);
        sleep(Duration::from_millis(10)).await;
    }
    rig.report("a", "what it says", |_| true).await;
    assert!(is_ready(&router).await);
    assert!(rig.snapshot().models_complete(), "and their models are known");
}

#[tokio::test(start_paused = true)]
async fn requests_before_that_wait_for_it_as_long_as_a_start_may_take() {
    let engine = Fake::new(|_, _| Reply::Hangs);
    let net = Net::of([("http://a", engine.clone())]);
    let (rig, router) = router(net, fixed([spec("a", "http://a")]), Some(PollOptions::default()));
    rig.until("it has joined", |snapshot| snapshot.len() == 1).await;
    let request = Request::post("/v1/completions").header("content-type", "application/json");
    let request = request.body(Body::full(r#"{"model":"m","prompt":"x"}"#)).unwrap();
    let waits = tokio::spawn({
        let router = router.clone();
        async move { router.handle(request).await.status() }
    });
    sleep(2 * Queue::default().max_wait).await;
    assert!(!waits.is_finished());
    engine.becomes(|path, _| match path {
        "/v1/completions" => Reply::ok("{}"),
        _ => llama(path, 0, 4, "m"),
    });
    assert_eq!(waits.await.unwrap(), StatusCode::OK);
    assert!(is_ready(&router).await);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_there_or_fails_makes_nobody_ready() {
    let refuses = || Fake::new(|_, _| Reply::Refuses);
    let fails = || Fake::new(|_, _| Reply::Says(500, "{}".into()));
    let hangs = || Fake::new(|_, _| Reply::Hangs);
    for (fake, models) in [
        (refuses(), None),
        (refuses(), Some(listed("m"))),
        (fails(), None),
        (hangs(), None),
        (hangs(), Some(listed("m"))),
    ] {
        let net = Net::of([("http://a", fake.clone())]);
        let mut upstream = spec("a", "http://a");
        (upstream.engine, upstream.models) = (Engine::Llamacpp, models);
        let (rig, router) = router(net, fixed([upstream]), Some(PollOptions::default()));
        for _ in 0..200 {
            assert!(!is_ready(&router).await, "{:?}", rig.snapshot().record());
            sleep(Duration::from_millis(100)).await;
        }
        assert!(rig.snapshot().find("a").unwrap().has_answered());
        fake.becomes(|path, _| llama(path, 0, 4, "m"));
        rig.until("it is there", |_| router.is_ready()).await;
        assert!(is_ready(&router).await);
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_there_and_cannot_say_how_it_is_counts_if_its_models_are_written() {
    let net = Net::of([("http://a", Fake::new(|_, _| Reply::ok("<html>")))]);
    let upstream = spec("a", "http://a").models(listed("m"));
    let (rig, router) = router(net, fixed([upstream]), Some(PollOptions::default()));
    assert!(!is_ready(&router).await);
    rig.entry("a", "a poll in vain", |entry| entry.failures() > 0)
        .await;
    assert!(is_ready(&router).await, "nothing more will be known of it");
}

#[tokio::test(start_paused = true)]
async fn whoever_has_a_limit_speaks_for_nobody_else() {
    let net = Net::of([
        ("http://a", Fake::new(|_, _| Reply::Hangs)),
        ("http://b", Fake::new(|_, _| Reply::ok("<html>"))),
    ]);
    let specs = [
        spec("a", "http://a").max_in_flight(4),
        spec("b", "http://b").models(listed("m")),
    ];
    let (rig, router) = router(net, fixed(specs), Some(PollOptions::default()));
    rig.entry("b", "a poll in vain", |entry| entry.failures() > 0)
        .await;
    assert!(is_ready(&router).await, "b has answered, and a has not");
}

#[tokio::test(start_paused = true)]
async fn who_is_never_asked_is_not_waited_for() {
    let net = || Net::of([("http://a", slow())]);
    let mut hosted = spec("a", "http://a").models(listed("m"));
    (hosted.engine, hosted.traffic) = (Engine::Openai, Traffic::Named);
    let plain = spec("a", "http://a");
    for (upstream, poll) in [(hosted, Some(PollOptions::default())), (plain, None)] {
        let (rig, router) = router(net(), fixed([upstream]), poll);
        let joined = rig.until("it has joined", |snapshot| snapshot.len() == 1).await;
        assert!(joined.anyone_able() && is_ready(&router).await);
    }

    // Nor who was to be asked, once nobody is any more.
    let (rig, router) = router(
        net(),
        fixed([spec("a", "http://a")]),
        Some(PollOptions::default()),
    );
    rig.until("it has joined", |snapshot| snapshot.len() == 1).await;
    assert!(!is_ready(&router).await);
    rig.statuses.set_poll(None).await.unwrap();
    rig.statuses.publish().await.unwrap();
    assert!(is_ready(&router).await);
    rig.statuses.set_poll(Some(PollOptions::default())).await.unwrap();
    rig.statuses.publish().await.unwrap();
    assert!(!is_ready(&router).await);
    rig.report("a", "what it says", |_| true).await;
    assert!(is_ready(&router).await);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_tells_how_they_are_is_waited_for() {
    let mut upstream = spec("a", "http://a");
    upstream.extensions.insert(Unpolled);
    let (rig, router) = router(Net::of([("http://a", slow())]), fixed([upstream]), None);
    rig.until("it has joined", |snapshot| snapshot.len() == 1).await;
    assert!(!is_ready(&router).await);
    let says = async |health| {
        let mut report = Report::new();
        report.health = Some(health);
        let id = id("a");
        let event = StatusEvent::Report {
            id,
            report,
            sample: None,
        };
        rig.statuses.apply(event).await.unwrap();
        rig.statuses.publish().await.unwrap();
    };
    says(Health::Loading).await;
    assert!(!is_ready(&router).await);
    says(Health::Ready).await;
    assert!(is_ready(&router).await);
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_beside_those_that_were_heard_changes_nothing() {
    let net = Net::of([("http://a", slow()), ("http://b", slow()), ("http://c", slow())]);
    let (members, list) = MemberList::new([spec("a", "http://a")]);
    let (rig, router) = router(net, vec![Box::new(list)], Some(PollOptions::default()));
    rig.report("a", "what it says", |_| true).await;
    members.set([spec("a", "http://a").label("zone", "x"), spec("b", "http://b")]);
    rig.until("another has joined", |snapshot| snapshot.len() == 2)
        .await;
    assert!(is_ready(&router).await);
    rig.report("b", "what it says", |_| true).await;

    // Where all are others, nobody knows of one that he can serve before he has said so.
    members.set([spec("b", "http://a"), spec("c", "http://c")]);
    let moved = |snapshot: &Snapshot| snapshot.find("c").is_some() && snapshot.find("a").is_none();
    rig.until("those before have left", moved).await;
    assert!(!is_ready(&router).await);
    rig.report("c", "what it says", |_| true).await;
    assert!(is_ready(&router).await);
}

/// A router behind a router.
#[derive(Debug)]
struct Inner(Router);

#[async_trait]
impl Upstream for Inner {
    async fn call(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        Ok(self.0.handle(request).await)
    }
}

impl Connect for Inner {
    fn connect(&self, _: &UpstreamSpec) -> Result<Arc<dyn Upstream>, BoxError> {
        Ok(Arc::new(Self(self.0.clone())))
    }
}

#[tokio::test(start_paused = true)]
async fn a_router_in_front_is_ready_after_the_one_behind_it() {
    let net = Net::of([("http://a", slow())]);
    let (_rig, inner) = router(net, fixed([spec("a", "http://a")]), Some(PollOptions::default()));
    let mut fleet = spec("fleet", "http://fleet");
    fleet.engine = Engine::Paddler;
    let behind = Arc::new(Inner(inner.clone()));
    let (rig, front) = router(behind, fixed([fleet]), Some(PollOptions::default()));
    let loads = |report: &Report| report.health == Some(Health::Loading);
    rig.report("fleet", "that it has heard nobody", loads).await;
    assert!(!is_ready(&inner).await && !is_ready(&front).await);
    rig.until("it has heard somebody", |_| front.is_ready()).await;
    assert!(is_ready(&inner).await && is_ready(&front).await);
    assert!(rig.snapshot().models_complete(), "and knows the models there");
}
