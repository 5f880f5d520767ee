//! The router behind a hyper server: a request comes in, goes to the engine that is free, and its answer goes back.

use std::error::Error;
use std::sync::Arc;

use http::Request;
use http_body_util::BodyExt;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use paddler_core::Clock;
use paddler_core::forward::{Body, Router, RouterOptions};
use paddler_core::schedule::trees;
use paddler_core::status::{FixedList, PollOptions, StatusBoard, StatusLoop};
use paddler_core::upstream::http::{HttpConnect, HttpOptions, HttpUpstream};
use paddler_core::upstream::{Extensions, Upstream, UpstreamSpec};
use paddler_engine::{Engine, EngineConfig};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    // Two machines, as llama.cpp would run on them. Yours are there already.
    let one = Engine::start(EngineConfig::llamacpp("tiny").instant()).await?;
    let two = Engine::start(EngineConfig::llamacpp("tiny").instant()).await?;

    // What there is, asked once a second how it is.
    let upstreams = FixedList::new([
        UpstreamSpec::new("one", one.url())?,
        UpstreamSpec::new("two", two.url())?,
    ]);
    let clock = Clock::new();
    let statuses = StatusLoop::start(
        StatusBoard::new(trees::gateway()),
        vec![Box::new(upstreams)],
        Arc::new(HttpConnect::default()),
        Some(PollOptions::default()),
        clock,
    );

    // The router is hyper's service, and tower's. Clones of it share one queue, so each connection gets a clone.
    let router = Router::new(statuses.published(), clock, RouterOptions::default());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), router.clone()));
        }
    });

    // Any client will do; the library's own transport is one.
    let client = HttpUpstream::new(
        &format!("http://{address}"),
        &Extensions::default(),
        HttpOptions::default(),
    )?;
    let ask = r#"{"model":"tiny","messages":[{"role":"user","content":"Hello"}],"max_tokens":8}"#;
    let request = Request::post("/v1/chat/completions").header("content-type", "application/json");
    let response = client.call(request.body(Body::full(ask))?).await?;
    let status = response.status();
    let answer = response.into_body().collect().await?.to_bytes();
    println!("{status}: {}", String::from_utf8_lossy(&answer));

    assert_eq!(status, 200);
    assert_eq!(
        one.stats().completed + two.stats().completed,
        1,
        "one of the two has answered"
    );
    Ok(())
}
