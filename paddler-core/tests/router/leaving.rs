//! Does a client that leaves take its request with it, at every stage?

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::Request;
use paddler_core::Clock;
use paddler_core::forward::{Body, Router, RouterOptions};
use paddler_core::schedule::trees;
use paddler_core::status::{FixedList, StatusBoard, StatusLoop};
use paddler_core::upstream::UpstreamSpec;
use paddler_core::upstream::http::{Dial, HttpConnect, Io};
use paddler_engine::{EngineConfig, Fault};

use super::client::{CHAT, Client, HANG, chat, eventually, get, post, stream};
use super::stub::{Do, Stub};
use super::world::{Setup, World, engine, of, quick, slow, spec};

/// Waits until the engine is rid of `cancelled` requests, and the slot is free once more.
async fn settles(world: &World, engine: &paddler_engine::Engine, cancelled: u64) {
    eventually("the engine is rid of it", || {
        engine.stats().cancelled == cancelled && engine.stats().running == 0
    })
    .await;
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_sends_the_body() {
    let engine = engine(quick()).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    let mut client = Client::connect(world.addr).await;
    client
        .write(format!(
            "POST {CHAT} HTTP/1.1\r\nhost: r\r\ncontent-length: 1000\r\n\r\n{{\"messages\""
        ))
        .await;
    eventually("its bytes are held", || {
        world.metric("paddler_buffered_bytes") == 11.0
    })
    .await;
    drop(client);
    world.quiet().await;
    assert_eq!(engine.stats().requests, 0);
}

/// A network that swallows whoever wants a connection.
#[derive(Debug)]
struct Swallows;

#[async_trait]
impl Dial for Swallows {
    async fn dial(&self, _: SocketAddr) -> io::Result<Box<dyn Io>> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_connection_is_made_and_the_place_is_free_at_once() {
    let clock = Clock::new();
    let statuses = StatusLoop::start(
        StatusBoard::new(trees::gateway()),
        vec![Box::new(FixedList::new([spec("a", "http://127.0.0.1:9")]))],
        Arc::new(HttpConnect::default().dial(Arc::new(Swallows))),
        None,
        clock,
    );
    let published = statuses.published();
    eventually("it has joined", || published.load().len() == 1).await;
    let router = Router::new(published.clone(), clock, RouterOptions::default());
    let request = Request::post(CHAT).body(Body::full(chat(1).to_string())).unwrap();
    let mut asks = Box::pin(router.handle(request));
    let holds = |weight: u32| {
        let line = format!("paddler_upstream_open_weight{{upstream=\"a\"}} {weight}\n");
        router.metrics_page().contains(&line)
    };
    let hangs = tokio::time::timeout(Duration::from_millis(100), &mut asks).await;
    assert!(hangs.is_err() && holds(1));
    drop(asks);
    assert!(holds(0), "no engine has seen it");
    assert_eq!(published.load().ledger().settling_weight(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_the_first_byte() {
    // Neither a stream nor a plain answer has begun: llama.cpp sends no head before it has a token.
    let config = EngineConfig::llamacpp("tiny")
        .prefill_tokens_per_second(0.01)
        .slots(1);
    let engine = engine(config).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    for (cancelled, body) in [(1, chat(1)), (2, stream(1))] {
        let mut client = Client::connect(world.addr).await;
        client.post(CHAT, &body).await;
        eventually("it runs", || engine.stats().running == 1).await;
        drop(client);
        settles(&world, &engine, cancelled).await;
    }
    assert_eq!(world.router.metrics().cancellations(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_an_answer() {
    let engine = engine(slow().slots(1)).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, &stream(100)).await;
    client.until("data:").await;
    drop(client);
    settles(&world, &engine, 1).await;
    assert_eq!(world.router.metrics().cancellations(), 1);

    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, &chat(100)).await;
    eventually("it runs", || engine.stats().running == 1).await;
    drop(client);
    settles(&world, &engine, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_its_own_direction_alone() {
    let engine = engine(slow().slots(1)).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    for (cancelled, body) in [(1, stream(100)), (2, chat(100))] {
        let mut client = Client::connect(world.addr).await;
        client.post(CHAT, &body).await;
        eventually("it runs", || engine.stats().running == 1).await;
        client.says_no_more().await;
        let (_, answer) = client.rest().await;
        let answer = String::from_utf8(answer).unwrap();
        assert!(
            !answer.contains("[DONE]") && !answer.contains("usage"),
            "{answer}"
        );
        settles(&world, &engine, cancelled).await;
    }
    assert_eq!(world.router.metrics().cancellations(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_next_request_on_the_wire() {
    let engine = engine(slow().slots(1)).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    let next = "GET /health HTTP/1.1\r\nhost: r\r\n\r\n";
    for (cancelled, body) in [(1, chat(100)), (2, stream(100))] {
        let mut client = Client::connect(world.addr).await;
        client.post(CHAT, &body).await;
        client.write(next).await;
        eventually("it runs", || engine.stats().running == 1).await;
        if body["stream"] == true {
            client.until("data:").await;
        }
        client.write(next).await;
        drop(client);
        settles(&world, &engine, cancelled).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_waits_with_a_next_request_on_the_wire() {
    let engine = engine(slow().slots(1)).await;
    let world = Setup::new().queue(9, HANG).start([of("a", &engine)]).await;
    let mut first = Client::connect(world.addr).await;
    first.post(CHAT, &stream(100)).await;
    eventually("it runs", || engine.stats().running == 1).await;
    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, &chat(1)).await;
    client.write("GET /health HTTP/1.1\r\nhost: r\r\n\r\n").await;
    eventually("it waits", || world.waiting() == 1).await;
    drop(client);
    eventually("it waits no more", || world.waiting() == 0).await;
    drop(first);
    settles(&world, &engine, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_connection_is_being_made() {
    // Nobody takes this connection; the client does not wait for that to be found out.
    let setup = Setup::new().with(|setup| setup.http.connect_timeout = HANG);
    let world = setup.start([spec("a", "http://192.0.2.1:9")]).await;
    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, &chat(1)).await;
    eventually("it is handled", || {
        world.metric("paddler_in_flight_requests") == 1.0
    })
    .await;
    drop(client);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_settles_until_a_report_shows_the_room() {
    let engine = engine(slow().slots(1)).await;
    let world = Setup::polled()
        .queue(9, HANG)
        .start([UpstreamSpec::new("a", engine.url()).unwrap()])
        .await;
    engine.set_fault(Some(Fault::HangOnDisconnect)).unwrap();
    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, &stream(100)).await;
    client.until("data:").await;
    drop(client);
    eventually("its weight settles", || world.settling() == 1).await;
    engine.set_fault(None).unwrap();
    let mut next = Client::connect(world.addr).await;
    next.post(CHAT, &chat(1)).await;
    eventually("the next one waits", || world.waiting() == 1).await;
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert_eq!(
            (world.waiting(), engine.stats().waiting),
            (1, 0),
            "the engine is still at it, and says so"
        );
    }
    drop(next);
    eventually("nobody waits", || world.waiting() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_comes_back_with_the_next_report() {
    let engine = engine(slow().slots(1)).await;
    let world = Setup::polled()
        .queue(9, HANG)
        .start([UpstreamSpec::new("a", engine.url()).unwrap()])
        .await;
    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, &stream(100)).await;
    client.until("data:").await;
    let mut next = Client::connect(world.addr).await;
    next.post(CHAT, &chat(1)).await;
    eventually("it waits", || world.waiting() == 1).await;
    drop(client);
    assert_eq!(next.answer().await.status, 200);
    assert_eq!(engine.stats().max_waiting, 0);
    settles(&world, &engine, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_takes_nothing_is_cut() {
    let text = "x".repeat(16 << 20);
    let stub = Stub::start([Do::ok(&text)]).await;
    let setup = Setup::new().with(|setup| setup.serve.client_idle = Duration::from_millis(100));
    let world = setup.start([spec("a", &stub.url).max_in_flight(1)]).await;
    let mut client = Client::deaf(world.addr).await;
    client.post(CHAT, &chat(1)).await;
    eventually("it has begun", || world.open_weight() == 1).await;
    eventually("it is cut", || world.metric("paddler_in_flight_requests") == 0.0).await;
    world.quiet().await;
    assert_eq!(get(world.addr, "/health").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_that_leave_anywhere_leave_nothing_behind() {
    let engine = engine(quick().slots(2).decode_tokens_per_second(3_000.0)).await;
    let world = Setup::new().queue(1_000, HANG).start([of("a", &engine)]).await;
    for round in 0..50u64 {
        let mut clients = Vec::new();
        for number in 0..20 {
            let mut client = Client::connect(world.addr).await;
            client
                .post(CHAT, &if number % 2 == 0 { chat(4) } else { stream(4) })
                .await;
            clients.push(client);
        }
        tokio::time::sleep(Duration::from_micros(round * 100)).await;
    }
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    world.quiet().await;
}
