//! Does a client that waits as long as it is told get its answer, however many there are?
//!
//! On a paused clock, without sockets: each run is the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use paddler_core::Clock;
use paddler_core::forward::{Body, BoxError, Router, RouterOptions};
use paddler_core::schedule::trees;
use paddler_core::status::{FixedList, StatusBoard, StatusLoop};
use paddler_core::upstream::{Connect, Models, Upstream, UpstreamSpec};
use tokio::time::{Instant, sleep};

use super::client::{CHAT, chat};

/// Takes two seconds for each answer.
#[derive(Debug)]
struct Simulated;

#[async_trait]
impl Upstream for Simulated {
    async fn call(&self, _request: Request<Body>) -> Result<Response<Body>, BoxError> {
        sleep(Duration::from_secs(2)).await;
        Ok(Response::new(Body::from("{}".to_owned())))
    }
}

impl Connect for Simulated {
    fn connect(&self, _spec: &UpstreamSpec) -> Result<Arc<dyn Upstream>, BoxError> {
        Ok(Arc::new(Self))
    }
}

/// Asks until it is served, or two minutes have passed. Returns how often it asked.
async fn patient(router: Router, served: Arc<AtomicU64>) -> u32 {
    let began = Instant::now();
    for asked in 1.. {
        let request = Request::post(CHAT).body(Body::from(chat(1).to_string())).unwrap();
        let answer = router.handle(request).await;
        if answer.status() == 200 {
            answer.into_body().collect().await.unwrap();
            served.fetch_add(1, SeqCst);
            return asked;
        }
        assert_eq!(answer.status(), 429, "contention, and nothing else");
        let after = answer.headers()["retry-after-ms"].to_str().unwrap();
        let after = Duration::from_millis(after.parse().unwrap());
        if began.elapsed() + after > Duration::from_secs(120) {
            return asked;
        }
        sleep(after).await;
    }
    0
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_as_long_as_it_is_told_is_served_in_an_overload() {
    let clock = Clock::new();
    let upstreams = ["a", "b"].map(|id| {
        let spec = UpstreamSpec::new(id, "http://simulated").unwrap();
        spec.models(Models::Any).max_in_flight(4)
    });
    let statuses = StatusLoop::start(
        StatusBoard::new(trees::gateway()),
        vec![Box::new(FixedList::new(upstreams))],
        Arc::new(Simulated),
        None,
        clock,
    );
    let mut options = RouterOptions::default();
    options.seed = Some(1);
    let router = Router::new(statuses.published(), clock, options);
    let served = Arc::new(AtomicU64::new(0));
    // Four a second can be served; ten a second come, for half a minute.
    let mut clients = Vec::new();
    for _ in 0..300 {
        clients.push(tokio::spawn(patient(router.clone(), served.clone())));
        sleep(Duration::from_millis(100)).await;
    }
    let mut asked = 0;
    for client in clients {
        asked += client.await.unwrap();
    }
    let served = served.load(SeqCst);
    println!("{served} of 300 were served, having asked {asked} times");
    // Nothing here is left to chance, so it is all of them each time.
    assert_eq!(served, 300);
}
