//! When are connections kept, and when are they closed?

use std::time::Duration;

use paddler_engine::{Engine, EngineConfig};
use serde_json::json;

use crate::client::{Client, End, chat, endless, eventually, get, slow, start};

fn quick() -> EngineConfig {
    EngineConfig::llamacpp("tiny").instant()
}

#[tokio::test]
async fn the_hundredth_answer_closes() {
    let engine = start(quick()).await;
    let mut client = Client::connect(&engine).await;
    for _ in 1..100 {
        client.send("GET", "/health", "", "").await;
        assert!(
            client
                .answer()
                .await
                .head
                .contains("\r\nKeep-Alive: timeout=5, max=100\r\n")
        );
    }
    client.send("GET", "/health", "", "").await;
    let last = client.answer().await;
    assert!(last.head.contains("\r\nConnection: close\r\n"));
    assert_eq!(last.header("keep-alive"), None);
    assert_eq!(client.rest().await, (End::Eof, Vec::new()));
    assert_eq!(engine.stats().connections, 1);
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    for config in [quick(), EngineConfig::vllm("tiny")] {
        let engine = start(config.keep_alive(Duration::from_millis(30))).await;
        let mut silent = Client::connect(&engine).await;
        let mut used = Client::connect(&engine).await;
        used.send("GET", "/health", "", "").await;
        assert_eq!(used.answer().await.status(), 200);
        assert_eq!(used.rest().await.0, End::Eof);
        assert_eq!(silent.rest().await.0, End::Eof);
    }
}

#[tokio::test]
async fn a_connection_with_a_request_under_way_is_not_idle() {
    let config = quick()
        .keep_alive(Duration::from_millis(5))
        .decode_tokens_per_second(20.0);
    let engine = start(config).await;
    let mut client = Client::connect(&engine).await;
    client.post("/v1/chat/completions", "", &chat("hello")).await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.end), (200, End::Whole));
}

#[tokio::test]
async fn llamacpp_closes_after_a_stream_and_does_not_say_so() {
    let engine = start(quick()).await;
    let mut client = Client::connect(&engine).await;
    let mut body = chat("hello");
    body["stream"] = json!(true);
    client.post("/v1/chat/completions", "", &body).await;
    let answer = client.answer().await;
    assert_eq!(answer.end, End::Whole);
    assert!(answer.head.contains("\r\nKeep-Alive: timeout=5, max=100\r\n"));
    assert_eq!(answer.header("connection"), None);
    assert_eq!(client.rest().await, (End::Eof, Vec::new()));
}

#[tokio::test]
async fn vllm_keeps_the_connection_after_a_stream() {
    let engine = start(EngineConfig::vllm("tiny").instant()).await;
    let mut client = Client::connect(&engine).await;
    let mut body = chat("hello");
    body["stream"] = json!(true);
    for _ in 0..3 {
        client.post("/v1/chat/completions", "", &body).await;
        assert_eq!(client.answer().await.events().last(), Some(&"[DONE]"));
    }
    assert_eq!(engine.stats().connections, 1);
}

#[tokio::test]
async fn errors_of_llamacpp_close() {
    let engine = start(quick()).await;
    let mut client = Client::connect(&engine).await;
    client.send("GET", "/no/such/path", "", "").await;
    let answer = client.answer().await;
    assert_eq!(
        (answer.status(), answer.header("connection")),
        (404, Some("close"))
    );
    assert_eq!(client.rest().await.0, End::Eof);
}

#[tokio::test]
async fn a_client_that_asks_for_close_gets_it() {
    for config in [quick(), EngineConfig::vllm("tiny")] {
        let engine = start(config).await;
        let mut client = Client::connect(&engine).await;
        client.send("GET", "/health", "Connection: close\r\n", "").await;
        assert_eq!(client.answer().await.header("connection"), Some("close"));
        assert_eq!(client.rest().await.0, End::Eof);
    }
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_slot() {
    let engine = start(slow(quick()).slots(1)).await;
    for stream in [false, true] {
        let mut body = chat("hello");
        body["stream"] = json!(stream);
        let running = endless(&engine, "/v1/chat/completions", body.clone()).await;
        eventually("one runs", || engine.stats().running == 1).await;
        let queued = endless(&engine, "/v1/chat/completions", body).await;
        eventually("one waits", || engine.stats().waiting == 1).await;
        drop(queued);
        eventually("none waits", || engine.stats().waiting == 0).await;
        assert_eq!(engine.stats().running, 1);
        drop(running);
        eventually("none runs", || engine.stats().running == 0).await;
    }
    assert_eq!(engine.stats().cancelled, 4);
    assert_eq!(engine.stats().max_running, 1);
}

#[tokio::test]
async fn shutdown_ends_everything() {
    let engine = start(slow(quick())).await;
    let mut client = endless(&engine, "/v1/chat/completions", chat("hello")).await;
    eventually("one runs", || engine.stats().running == 1).await;
    let address = engine.addr();
    engine.shutdown().await;
    assert_ne!(client.rest().await.0, End::Whole);
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn dropping_an_engine_stops_it() {
    let engine = start(quick()).await;
    let mut client = Client::connect(&engine).await;
    client.send("GET", "/health", "", "").await;
    client.answer().await;
    drop(engine);
    assert_eq!(client.rest().await.0, End::Eof);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_stream_of_an_engine_that_stops_looks_whole() {
    let mut body = chat("hello");
    body["stream"] = json!(true);
    for _ in 0..20 {
        let engine = start(slow(quick())).await;
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(endless(&engine, "/v1/chat/completions", body.clone()).await);
        }
        eventually("all run", || engine.stats().running == 4).await;
        drop(engine);
        for mut client in clients {
            assert_ne!(client.answer().await.end, End::Whole);
        }
    }
}

#[tokio::test]
async fn what_arrived_can_be_read() {
    let engine = start(quick().log_capacity(2)).await;
    let mut client = Client::connect(&engine).await;
    client
        .send("POST", "/tokenize?x=1", "X-Own: 7\r\n", r#"{"content":"abc"}"#)
        .await;
    assert_eq!(client.answer().await.status(), 200);
    let seen = engine.last_request().unwrap();
    assert_eq!(
        (seen.method.as_str(), seen.path.as_str()),
        ("POST", "/tokenize?x=1")
    );
    assert_eq!(seen.headers["x-own"], "7");
    assert_eq!(seen.body.as_ref(), br#"{"content":"abc"}"#);
    for _ in 0..3 {
        get(&engine, "/health").await;
    }
    get(&engine, "/sim/stats").await;
    assert_eq!(engine.requests().len(), 2);
    let stats = engine.stats();
    assert_eq!(
        (
            stats.requests,
            stats.by_path["/health"],
            stats.by_path["/tokenize"]
        ),
        (4, 3, 1)
    );
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_refused() {
    for config in [
        quick().slots(0),
        quick().decode_tokens_per_second(0.0),
        quick().prefill_tokens_per_second(f64::NAN),
        quick().decode_slowdown(-1.0),
        quick().context_tokens(1),
        EngineConfig::vllm("tiny").block_size(0),
    ] {
        assert_eq!(
            Engine::start(config).await.unwrap_err().kind(),
            std::io::ErrorKind::InvalidInput
        );
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let engine = start(quick().max_body_bytes(10)).await;
    let answer = crate::client::post(&engine, "/v1/chat/completions", &chat("hello")).await;
    assert_eq!(answer.status(), 413);
}
