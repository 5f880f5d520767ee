//! Are connections used again, and never when they are gone?

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use paddler_core::forward::Body;
use paddler_core::upstream::http::{HttpOptions, HttpUpstream};
use paddler_core::upstream::{Extensions, NewConnection, Upstream as _, UpstreamId};
use paddler_engine::EngineConfig;
use tokio::task::JoinSet;

use super::client::{CHAT, Client, End, HANG, chat, post, stream};
use super::stub::{Do, Stub};
use super::world::{Setup, engine, of, quick, spec};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_used_again() {
    let config = EngineConfig::vllm("tiny").instant();
    let engine = engine(config).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    let mut client = Client::connect(world.addr).await;
    for _ in 0..100 {
        client.post(CHAT, &chat(1)).await;
        assert_eq!(client.answer().await.status, 200);
    }
    let connections = engine.stats().connections;
    assert!(
        connections <= 5,
        "{connections} connections for 100 requests, one after the other"
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn llamacpps_ways_with_connections_cost_no_request() {
    // It closes after each stream, though it says otherwise; after 100 requests; and soon when idle.
    let engine = engine(quick().keep_alive(Duration::from_millis(250)).slots(8)).await;
    let world = Setup::new().queue(1_000, HANG).start([of("a", &engine)]).await;
    let mut clients = JoinSet::new();
    for number in 0..8u32 {
        let addr = world.addr;
        clients.spawn(async move {
            let mut client = Client::connect(addr).await;
            for round in 0..250 {
                client
                    .post(
                        CHAT,
                        &if (number + round) % 3 == 0 {
                            stream(2)
                        } else {
                            chat(2)
                        },
                    )
                    .await;
                let answer = client.answer().await;
                assert_eq!(
                    (answer.status, answer.end),
                    (200, End::Whole),
                    "{}",
                    answer.text()
                );
                if round % 125 == 124 {
                    tokio::time::sleep(Duration::from_millis(245 + u64::from(number))).await;
                }
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    let stats = engine.stats();
    assert_eq!((stats.completed, stats.max_waiting), (2_000, 0));
    assert!(
        stats.connections < 1_400,
        "{} connections, of which 667 streams closed theirs",
        stats.connections
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_lost_takes_its_siblings_along() {
    // Two connections are kept, and the process behind them is another one now: the first loss must not lead into the
    // second.
    let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_vec();
    let stub = Stub::start([
        Do::SayToTwo(ok.clone()),
        Do::SayToTwo(ok.clone()),
        Do::SayOnFresh(ok),
    ])
    .await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let (one, two) = (chat(1), chat(1));
    let both = tokio::join!(post(world.addr, CHAT, &one), post(world.addr, CHAT, &two));
    assert_eq!((both.0.status, both.1.status, stub.connections()), (200, 200, 2));
    assert_eq!(
        (post(world.addr, CHAT, &chat(1)).await.status, stub.connections()),
        (200, 3)
    );
    world.quiet().await;
}

/// It is sent no third time, so the second time has to count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_lost_waits_for_room_elsewhere_and_does_not_go_back() {
    let stub = Stub::start([Do::ok("{}"), Do::Close]).await;
    let other = engine(EngineConfig::vllm("tiny").decode_tokens_per_second(40.0)).await;
    let mut busy = of("b", &other);
    busy.limits.max_in_flight = Some(1);
    let world = Setup::new()
        .queue(10, HANG)
        .start([spec("a", &stub.url), busy])
        .await;
    let drain = async |id: &str, draining| {
        let id = UpstreamId::new(id).unwrap();
        assert_eq!(world.statuses.set_draining(id, draining).await, Ok(true));
    };
    drain("b", true).await;
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    // The other's one place is taken, for longer than the shortest pause.
    drain("a", true).await;
    drain("b", false).await;
    let mut long = Client::connect(world.addr).await;
    long.post(CHAT, &stream(40)).await;
    long.until("data:").await;
    drain("a", false).await;
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    assert_eq!(stub.seen().len(), 2, "it came here once");
    assert_eq!(long.answer().await.status, 200);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_rests_after_a_stream() {
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    let stub = Stub::start([Do::say(chunks), Do::say(chunks), Do::ok("{}")]).await;
    let world = Setup::new()
        .with(|setup| setup.http.rest_after_stream = HANG)
        .start([spec("a", &stub.url)])
        .await;
    for connections in [1, 2, 3] {
        assert_eq!(
            (post(world.addr, CHAT, &chat(1)).await.status, stub.connections()),
            (200, connections)
        );
    }
    world.quiet().await;
}

#[tokio::test]
async fn what_was_lost_in_a_used_connection_goes_over_a_new_one() {
    let engine = engine(EngineConfig::vllm("tiny").instant()).await;
    let upstream = HttpUpstream::new(&engine.url(), &Extensions::default(), HttpOptions::default()).unwrap();
    let mut connections = Vec::new();
    for new in [false, false, true, false] {
        let mut request = Request::get("/health").body(Body::empty()).unwrap();
        if new {
            request.extensions_mut().insert(NewConnection);
        }
        let response = upstream.call(request).await.unwrap();
        response.into_body().collect().await.unwrap();
        connections.push(engine.stats().connections);
    }
    assert_eq!(connections, [1, 1, 2, 2]);
}
