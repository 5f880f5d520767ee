//! How long may an engine think before it begins to answer?

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{Request, Response};
use paddler_core::Clock;
use paddler_core::forward::{Body, BoxError, Router, RouterOptions};
use paddler_core::schedule::trees;
use paddler_core::status::{FixedList, StatusBoard, StatusLoop};
use paddler_core::upstream::{Connect, Upstream, UpstreamSpec};

use super::client::{CHAT, chat, eventually};
use super::world::spec;

/// An upstream whose first byte takes this long.
#[derive(Debug, Clone)]
struct Thinks(Duration);

#[async_trait]
impl Upstream for Thinks {
    async fn call(&self, _: Request<Body>) -> Result<Response<Body>, BoxError> {
        tokio::time::sleep(self.0).await;
        Ok(Response::new(Body::full("{}")))
    }
}

impl Connect for Thinks {
    fn connect(&self, _: &UpstreamSpec) -> Result<Arc<dyn Upstream>, BoxError> {
        Ok(Arc::new(self.clone()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_prompt_may_take_minutes_and_an_engine_that_hangs_ends_all_the_same() {
    for (seconds, status) in [(0, 200), (90, 200), (599, 200), (601, 504)] {
        let clock = Clock::new();
        let statuses = StatusLoop::start(
            StatusBoard::new(trees::gateway()),
            vec![Box::new(FixedList::new([spec("a", "http://127.0.0.1:9")]))],
            Arc::new(Thinks(Duration::from_secs(seconds))),
            None,
            clock,
        );
        let published = statuses.published();
        eventually("it has joined", || published.load().len() == 1).await;
        let router = Router::new(published, clock, RouterOptions::default());
        let request = Request::post(CHAT).body(Body::full(chat(1).to_string())).unwrap();
        let response = router.handle(request).await;
        assert_eq!(response.status(), status, "after {seconds} s");
    }
}
