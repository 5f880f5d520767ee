//! Is whoever asks for life and readiness told, however much there is to do?

use paddler_engine::{Engine, EngineConfig};

use crate::path;
use crate::support::client::{Client, ask, chat, eventually, get, post, streamed};
use crate::support::program::Gateway;

/// An engine whose streams have a first event and then none for a quarter of an hour.
async fn engine() -> Engine {
    let config = EngineConfig::llamacpp("m").prefill_tokens_per_second(f64::INFINITY);
    Engine::start(config.decode_tokens_per_second(0.001))
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn management_answers_while_no_client_can_connect_any_more() {
    let engine = engine().await;
    let config = path("probes-full.yaml", "limits: {connections: 2}\n");
    let gateway = Gateway::start("gateway", &[engine.url()], &["--config", &config]);
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut client = Client::to(gateway.address);
        let mut reply = client
            .send(post("/v1/chat/completions", &streamed(chat("m", 60))))
            .await;
        reply.more().await.unwrap().unwrap();
        streams.push((client, reply));
    }
    let third = tokio::spawn(ask(gateway.address, get("/health")));
    for path in ["/healthz", "/readyz", "/metrics"] {
        for _ in 0..20 {
            assert_eq!(ask(gateway.management, get(path)).await.status, 200, "{path}");
        }
    }
    assert!(!third.is_finished(), "there is room for two");
    streams.pop();
    assert_eq!(third.await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn told_to_stop_it_says_so_and_serves_until_nobody_sends_any_more() {
    let engine = engine().await;
    let config = path("probes-settle.yaml", "shutdown: {settle: 1h, grace: 1h}\n");
    let gateway = Gateway::start("gateway", &[engine.url()], &["--config", &config]);
    eventually("it is ready", async || {
        ask(gateway.management, get("/readyz")).await.status == 200
    })
    .await;
    gateway.program.signal("TERM");
    eventually("it is not ready", async || {
        ask(gateway.management, get("/readyz")).await.status == 503
    })
    .await;
    assert_eq!(ask(gateway.address, get("/health")).await.status, 503);
    for _ in 0..5 {
        let answer = ask(gateway.address, post("/v1/chat/completions", &chat("m", 1))).await;
        assert!(answer.is_good(), "{answer:?}");
    }
    gateway.program.signal("TERM");
    let ended = gateway.program.ended().await;
    assert_eq!(ended.status.code(), Some(0), "nothing was under way: {ended:?}");
}
