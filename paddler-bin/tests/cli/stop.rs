//! How does it end?

use std::net::SocketAddr;

use paddler_engine::{Engine, EngineConfig};
use tokio::net::TcpStream;

use crate::path;
use crate::support::client::{Client, Reply, ask, chat, eventually, get, post, streamed, total};
use crate::support::program::Gateway;

const SIGNALS: [&str; 2] = ["TERM", "INT"];

/// An engine whose answers of one token are there at once, and in which the next token takes as long as is said.
async fn engine(tokens_per_second: f64) -> Engine {
    let config = EngineConfig::llamacpp("m").prefill_tokens_per_second(f64::INFINITY);
    Engine::start(config.decode_tokens_per_second(tokens_per_second))
        .await
        .unwrap()
}

/// A gateway in front of it that has a stream under way.
async fn busy(engine: &Engine, more: &[&str]) -> (Gateway, Client, Reply) {
    let gateway = Gateway::start("gateway", &[engine.url()], more);
    let mut client = Client::to(gateway.address);
    let mut reply = client
        .send(post("/v1/chat/completions", &streamed(chat("m", 60))))
        .await;
    assert_eq!(reply.status, 200);
    reply.more().await.unwrap().unwrap();
    (gateway, client, reply)
}

async fn takes_no_connection(address: SocketAddr) {
    eventually("no connection is taken", async || {
        TcpStream::connect(address).await.is_err()
    })
    .await;
}

fn is_stopping(line: &str) -> bool {
    line.contains("stopping")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_under_way_comes_to_its_end() {
    for signal in SIGNALS {
        // The stream takes about 4 s.
        let engine = engine(15.0).await;
        let (gateway, _client, reply) = busy(&engine, &[]).await;
        assert_eq!(ask(gateway.management, get("/readyz")).await.status, 200);
        gateway.program.signal(signal);
        gateway.program.logs(is_stopping);
        eventually("it is not ready", async || {
            ask(gateway.management, get("/readyz")).await.status == 503
        })
        .await;
        takes_no_connection(gateway.address).await;
        // It is alive all the while, and its figures can be read.
        assert_eq!(ask(gateway.management, get("/healthz")).await.status, 200);
        let answer = reply.whole().await;
        assert!(answer.is_good(), "{answer:?}");
        let ended = gateway.program.ended().await;
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_it_at_once() {
    for signal in SIGNALS {
        let engine = engine(0.001).await;
        let (gateway, _client, reply) = busy(&engine, &["--grace=1h"]).await;
        gateway.program.signal(signal);
        gateway.program.logs(is_stopping);
        gateway.program.signal(signal);
        let ended = gateway.program.ended().await;
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(
            ended
                .log
                .ends_with("stopped before every answer had ended: 1 connections cut"),
            "{ended:?}"
        );
        let answer = reply.whole().await;
        assert!(!answer.is_good(), "{answer:?}");
        eventually("the engine's slot is free", async || engine.stats().running == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_grace_is_not_exceeded() {
    let engine = engine(0.001).await;
    let (gateway, _client, reply) = busy(&engine, &["--grace=100ms"]).await;
    gateway.program.signal("TERM");
    let ended = gateway.program.ended().await;
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(!reply.whole().await.is_good());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_holds_nothing_up() {
    let engine = engine(f64::INFINITY).await;
    let gateway = Gateway::start("balancer", &[engine.url()], &["--grace=1h"]);
    let mut client = Client::to(gateway.address);
    assert!(
        client
            .ask(post("/v1/chat/completions", &chat("m", 4)))
            .await
            .is_good()
    );
    gateway.program.signal("TERM");
    let ended = gateway.program.ended().await;
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    drop(client);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_settles_it_is_not_ready_and_serves_whoever_comes() {
    let engine = engine(f64::INFINITY).await;
    let config = path("stop-settle.yaml", "shutdown: {settle: 1h, grace: 1h}\n");
    let gateway = Gateway::start("gateway", &[engine.url()], &["--config", &config]);
    eventually("it is ready", async || {
        ask(gateway.management, get("/readyz")).await.status == 200
    })
    .await;
    gateway.program.signal("TERM");
    gateway.program.logs(is_stopping);
    eventually("it is not ready", async || {
        ask(gateway.management, get("/readyz")).await.status == 503
    })
    .await;
    assert_eq!(ask(gateway.address, get("/health")).await.status, 503);
    for _ in 0..3 {
        let answer = ask(gateway.address, post("/v1/chat/completions", &chat("m", 4))).await;
        assert!(
            answer.is_good(),
            "a connection that comes now is served: {answer:?}"
        );
    }
    gateway.program.signal("TERM");
    let ended = gateway.program.ended().await;
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_when_it_is_to_stop_is_served_within_the_grace() {
    let config = EngineConfig::llamacpp("m")
        .slots(1)
        .prefill_tokens_per_second(f64::INFINITY);
    let engine = Engine::start(config.decode_tokens_per_second(30.0))
        .await
        .unwrap();
    let (gateway, _client, reply) = busy(&engine, &["--grace=1h", "--max-wait=2m"]).await;
    let address = gateway.address;
    let waits = tokio::spawn(async move { ask(address, post("/v1/chat/completions", &chat("m", 2))).await });
    eventually("one waits", async || {
        let page = ask(gateway.management, get("/metrics")).await;
        total(page.text(), "paddler_waiting_requests") == 1.0
    })
    .await;
    gateway.program.signal("TERM");
    gateway.program.logs(is_stopping);
    takes_no_connection(gateway.address).await;
    let answer = reply.whole().await;
    assert!(answer.is_good(), "{answer:?}");
    let answer = waits.await.unwrap();
    assert!(answer.is_good(), "{answer:?}");
    let ended = gateway.program.ended().await;
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}
