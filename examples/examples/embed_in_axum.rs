//! The router beside the routes of an axum application: what the application does not answer itself goes to an engine.

use std::error::Error;
use std::sync::Arc;

use axum::routing::get;
use http::Request;
use http_body_util::BodyExt;
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
    let engine = Engine::start(
        EngineConfig::vllm("base")
            .adapters(["sql"])
            .max_loras(1)
            .instant(),
    )
    .await?;

    let clock = Clock::new();
    let statuses = StatusLoop::start(
        StatusBoard::new(trees::gateway()),
        vec![Box::new(FixedList::new([UpstreamSpec::new(
            "gpu-1",
            engine.url(),
        )?]))],
        Arc::new(HttpConnect::default()),
        Some(PollOptions::default()),
        clock,
    );
    let router = Router::new(statuses.published(), clock, RouterOptions::default());

    // The application keeps its own routes, and adds what can be seen of the router.
    let figures = router.clone();
    let application = axum::Router::new()
        .route("/", get(|| async { "welcome" }))
        .route("/figures", get(move || async move { figures.metrics_page() }))
        .fallback_service(router);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, application).await });

    let client = HttpUpstream::new(
        &format!("http://{address}"),
        &Extensions::default(),
        HttpOptions::default(),
    )?;
    let welcome = client.call(Request::get("/").body(Body::empty())?).await?;
    assert_eq!(
        welcome.into_body().collect().await?.to_bytes(),
        "welcome",
        "the application's own"
    );

    // The adapter is asked for by its name, and found where it is loaded.
    let ask = r#"{"model":"sql","prompt":"select","max_tokens":8}"#;
    let request = Request::post("/v1/completions").header("content-type", "application/json");
    let response = client.call(request.body(Body::full(ask))?).await?;
    assert_eq!(response.status(), 200, "the engine's");
    let answer = response.into_body().collect().await?.to_bytes();
    println!("{}", String::from_utf8_lossy(&answer));

    let figures = client.call(Request::get("/figures").body(Body::empty())?).await?;
    let figures = String::from_utf8(figures.into_body().collect().await?.to_bytes().to_vec())?;
    let counted = figures
        .lines()
        .find(|line| line.starts_with("paddler_requests_total{"));
    println!("{}", counted.unwrap_or("nothing was counted"));
    assert_eq!(
        counted,
        Some(r#"paddler_requests_total{class="completion",status="200"} 1"#)
    );
    Ok(())
}
