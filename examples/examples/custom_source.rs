//! A status source of one's own: upstreams come and go as something else says, here a channel that stands for it.
//!
//! A registry, a watched file or a bus of messages is the same: `next` waits for news and says one event at a time.

use std::error::Error;
use std::sync::Arc;

use http::Request;
use paddler_core::Clock;
use paddler_core::forward::{Body, Router, RouterOptions};
use paddler_core::schedule::trees;
use paddler_core::status::{PollOptions, StatusBoard, StatusEvent, StatusLoop, StatusSource};
use paddler_core::upstream::UpstreamSpec;
use paddler_core::upstream::http::HttpConnect;
use paddler_engine::{Engine, EngineConfig};
use tokio::sync::mpsc;

/// What the registry says, as events. Who exists is enough: how they are, polls find out.
#[derive(Debug)]
struct Registry(mpsc::Receiver<StatusEvent>);

#[async_trait::async_trait]
impl StatusSource for Registry {
    async fn next(&mut self) -> Option<StatusEvent> {
        self.0.recv().await
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let (old, new) = (
        Engine::start(EngineConfig::llamacpp("tiny").instant()).await?,
        Engine::start(EngineConfig::llamacpp("tiny").instant()).await?,
    );
    let (registry, news) = mpsc::channel(16);
    let clock = Clock::new();
    let statuses = StatusLoop::start(
        StatusBoard::new(trees::gateway()),
        vec![Box::new(Registry(news))],
        Arc::new(HttpConnect::default()),
        Some(PollOptions::default()),
        clock,
    );
    let router = Router::new(statuses.published(), clock, RouterOptions::default());
    let ask = || {
        let body = Body::full(r#"{"model":"tiny","prompt":"Hello","max_tokens":4}"#);
        Request::post("/v1/completions")
            .header("content-type", "application/json")
            .body(body)
    };

    // Asked before anybody is there, a request waits, and is served when somebody joins.
    let first = tokio::spawn({
        let (router, request) = (router.clone(), ask()?);
        async move { router.handle(request).await.status() }
    });
    let spec = UpstreamSpec::new("old", old.url())?;
    let id = spec.id.clone();
    registry.send(StatusEvent::Upsert(spec)).await?;
    assert_eq!(first.await?, 200);

    // One joins, one leaves. The router never has to be told.
    registry
        .send(StatusEvent::Upsert(UpstreamSpec::new("new", new.url())?))
        .await?;
    registry.send(StatusEvent::Remove(id)).await?;
    while statuses.published().load().find("old").is_some() {
        tokio::task::yield_now().await;
    }
    assert_eq!(router.handle(ask()?).await.status(), 200);

    println!(
        "the old one answered {}, the new one {}",
        old.stats().completed,
        new.stats().completed
    );
    assert_eq!((old.stats().completed, new.stats().completed), (1, 1));
    Ok(())
}
