//! Does the listener keep its limits, and does it end well?

use std::time::Duration;

use paddler_core::forward::Served;
use paddler_engine::EngineConfig;

use super::client::{CHAT, Client, End, HANG, chat, eventually, get, post, stream};
use super::world::{Setup, engine, of, quick, slow};

fn some_time() -> EngineConfig {
    EngineConfig::llamacpp("tiny")
        .prefill_tokens_per_second(f64::INFINITY)
        .decode_tokens_per_second(100.0)
        .fixed_ids(true)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_connections_than_may_be_wait_to_be_let_in() {
    let engine = engine(quick()).await;
    let world = Setup::new()
        .with(|setup| setup.serve.max_connections = 2)
        .start([of("a", &engine)])
        .await;
    let mut held = vec![
        Client::connect(world.addr).await,
        Client::connect(world.addr).await,
    ];
    for client in &mut held {
        client.send("GET", "/health", "", "").await;
        assert_eq!(client.answer().await.status, 200);
    }
    let third = tokio::spawn(get_health(world.addr));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!third.is_finished());
    held.pop();
    assert_eq!(third.await.unwrap(), 200);
}

async fn get_health(addr: std::net::SocketAddr) -> u16 {
    get(addr, "/health").await.status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_are_slow_or_large_are_cut() {
    let engine = engine(quick()).await;
    let setup = Setup::new().with(|setup| {
        setup.serve.header_timeout = Duration::from_millis(100);
        setup.serve.max_header_bytes = 0;
    });
    let world = setup.start([of("a", &engine)]).await;
    let mut slow = Client::connect(world.addr).await;
    slow.write("GET /health HTTP/1.1\r\nhost: r\r\nx-").await;
    assert_eq!(slow.rest().await, (End::Eof, Vec::new()));
    let mut idle = Client::connect(world.addr).await;
    idle.send("GET", "/health", "", "").await;
    assert_eq!(idle.answer().await.status, 200);
    assert_eq!(idle.rest().await, (End::Eof, Vec::new()));
    let mut large = Client::connect(world.addr).await;
    large
        .send("GET", "/health", &format!("x-a: {}\r\n", "a".repeat(100_000)), "")
        .await;
    let answer = large.answer().await;
    assert_eq!((answer.status, answer.end), (431, End::Whole), "8 KiB at least");
    let mut garbage = Client::connect(world.addr).await;
    garbage.write("\u{16}\u{3}\u{1} no HTTP\r\n\r\n").await;
    assert_eq!(garbage.answer().await.status, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_on_is_finished_and_what_waits_is_served() {
    let engine = engine(some_time().slots(1)).await;
    let world = Setup::new().queue(9, HANG).start([of("a", &engine)]).await;
    let addr = world.addr;
    let mut idle = Client::connect(addr).await;
    idle.send("GET", "/health", "", "").await;
    assert_eq!(idle.answer().await.status, 200);
    let mut unused = Client::connect(addr).await;
    let mut streams = Client::connect(addr).await;
    streams.post(CHAT, &stream(30)).await;
    streams.until("data:").await;
    let mut waits = Client::connect(addr).await;
    waits.post(CHAT, &chat(2)).await;
    eventually("it waits", || world.waiting() == 1).await;

    world.stop();
    assert_eq!(idle.rest().await, (End::Eof, Vec::new()));
    assert_eq!(unused.rest().await, (End::Eof, Vec::new()));
    let refused = eventually_refused(addr).await;
    assert!(refused, "the listener is closed");
    let streamed = streams.answer().await;
    assert_eq!((streamed.status, streamed.end), (200, End::Whole));
    assert!(streamed.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(
        streams.rest().await,
        (End::Eof, Vec::new()),
        "no connection is kept"
    );
    let waited = waits.answer().await;
    assert_eq!(
        (waited.status, waited.header("connection"), waited.end),
        (200, Some("close"), End::Whole)
    );
    world.quiet().await;
    assert_eq!(world.served().await, Served::Whole);
}

async fn eventually_refused(addr: std::net::SocketAddr) -> bool {
    for _ in 0..1_000 {
        if tokio::net::TcpStream::connect(addr).await.is_err() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_grace_is_over_what_goes_on_is_cut() {
    for by_hand in [false, true] {
        let engine = engine(slow().slots(9)).await;
        let grace = if by_hand {
            HANG * 100
        } else {
            Duration::from_millis(100)
        };
        let world = Setup::new()
            .with(|setup| setup.serve.grace = grace)
            .start([of("a", &engine)])
            .await;
        let mut clients = Vec::new();
        for _ in 0..3 {
            let mut client = Client::connect(world.addr).await;
            client.post(CHAT, &stream(100)).await;
            client.until("data:").await;
            clients.push(client);
        }
        let _idle = Client::connect(world.addr).await;
        world.stop();
        if by_hand {
            eventually("it stops", || std::net::TcpStream::connect(world.addr).is_err()).await;
            world.cut();
        }
        let router = world.router.clone();
        assert_eq!(world.served().await, Served::Cut(3));
        for mut client in clients {
            let answer = client.answer().await;
            assert_ne!(answer.end, End::Whole);
        }
        eventually("the engine is rid of them", || engine.stats().cancelled == 3).await;
        eventually("nothing goes on", || router.metrics().in_flight() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_bytes_arrive_before_a_plain_end() {
    let engine = engine(quick()).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    let body = chat(4).to_string();
    for _ in 0..50 {
        let mut client = Client::connect(world.addr).await;
        client.send("POST", CHAT, "connection: close\r\n", &body).await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.end), (200, End::Whole));
        assert_eq!(client.rest().await, (End::Eof, Vec::new()));
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_without_clients_ends_at_once() {
    let engine = engine(quick()).await;
    let world = Setup::new()
        .with(|setup| setup.serve.grace = HANG * 100)
        .start([of("a", &engine)])
        .await;
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    world.stop();
    assert_eq!(world.served().await, Served::Whole);
}
