//! What does forwarding cost, and what would another client pool cost in its place?
//!
//! Every figure holds the simulated engine's own work, which is the same in each: compare them within one run.
//!
//! - `client/paddler`: one chat over our own pool.
//! - `client/hyper_util`: the same over hyper-util's client.
//! - `router/chat`: the same through the router: body read and scanned, place found, lease held.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use http::Request;
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use paddler_core::Clock;
use paddler_core::forward::{Body, Router, RouterOptions};
use paddler_core::schedule::trees;
use paddler_core::status::{FixedList, StatusBoard, StatusLoop};
use paddler_core::upstream::http::{HttpConnect, HttpOptions, HttpUpstream};
use paddler_core::upstream::{Extensions, Models, Upstream, UpstreamSpec};
use paddler_engine::{Engine, EngineConfig};
use tokio::runtime::Runtime;

const CHAT: &str = r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"Say one word."}]}"#;

fn chat(uri: String) -> Request<Body> {
    let request = Request::post(uri).header("content-type", "application/json");
    request
        .header("content-length", CHAT.len())
        .body(Body::from(CHAT.to_owned()))
        .expect("a sound request")
}

fn forwarding(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    // vLLM's face keeps its connections; llama.cpp's would close each hundredth.
    let config = EngineConfig::vllm("m").instant().keep_alive_requests(u32::MAX);
    let engine = runtime.block_on(Engine::start(config)).expect("an engine");

    let ours =
        HttpUpstream::new(&engine.url(), &Extensions::default(), HttpOptions::default()).expect("a URL");
    criterion.bench_function("client/paddler", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let response = ours
                    .call(chat("/v1/chat/completions".to_owned()))
                    .await
                    .expect("an answer");
                black_box(
                    response
                        .into_body()
                        .collect()
                        .await
                        .expect("a whole body")
                        .to_bytes(),
                )
            })
        });
    });

    let theirs: Client<_, Body> = Client::builder(TokioExecutor::new()).build_http();
    let uri = format!("{}/v1/chat/completions", engine.url());
    criterion.bench_function("client/hyper_util", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let response = theirs.request(chat(uri.clone())).await.expect("an answer");
                black_box(
                    response
                        .into_body()
                        .collect()
                        .await
                        .expect("a whole body")
                        .to_bytes(),
                )
            })
        });
    });

    let clock = Clock::new();
    let spec = UpstreamSpec::new("engine", engine.url())
        .expect("an id")
        .models(Models::Any);
    let (_statuses, router) = runtime.block_on(async {
        let board = StatusBoard::new(trees::gateway());
        let sources: Vec<Box<dyn paddler_core::status::StatusSource>> =
            vec![Box::new(FixedList::new([spec]))];
        let statuses = StatusLoop::start(board, sources, Arc::new(HttpConnect::default()), None, clock);
        let router = Router::new(statuses.published(), clock, RouterOptions::default());
        (statuses, router)
    });
    criterion.bench_function("router/chat", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let response = router.handle(chat("/v1/chat/completions".to_owned())).await;
                assert_eq!(response.status(), 200);
                black_box(
                    response
                        .into_body()
                        .collect()
                        .await
                        .expect("a whole body")
                        .to_bytes(),
                )
            })
        });
    });
}

criterion_group!(benches, forwarding);
criterion_main!(benches);
