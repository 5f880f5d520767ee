//! Does a stream come through as it was written, as soon as it is there, and is it none before it is one?

use std::sync::Arc;

use http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use paddler_core::forward::{Annotate, Body, Keys, Served};
use paddler_core::request::RequestFacts;
use paddler_core::schedule::{Node, Signals, Tree, filter_fn};

use super::client::{CHAT, Client, End, HANG, ask, chat, eventually, post, stream};
use super::stub::{Do, Stub};
use super::world::{Setup, engine, of, slow, spec};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

fn chunk(bytes: &[u8]) -> Vec<u8> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend(bytes);
    chunk.extend(b"\r\n");
    chunk
}

/// Events that quote the marker of the end, and in which characters have one to four bytes.
const EVENTS: &str = "data: {\"delta\":\"it ends with data: [DONE]\"}\n\n\
                      data: {\"delta\":\"\\n\\ndata: [DONE]\\n\\n\"}\n\n\
                      data: {\"delta\":\"é 東京 😀\"}\n\ndata: {\"delta\":\"more\"}\n\ndata: [DONE]\n\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_answer_quotes_ends_no_stream_wherever_its_bytes_are_parted() {
    let events = EVENTS.as_bytes();
    let parted = |at: usize| {
        let (first, second) = events.split_at(at);
        let first = [HEAD.as_bytes(), &chunk(first)].concat();
        Do::SayInPieces(vec![first, [chunk(second), b"0\r\n\r\n".to_vec()].concat()])
    };
    let stub = Stub::start((1..events.len()).map(parted)).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let mut client = Client::connect(world.addr).await;
    for at in 1..events.len() {
        client.post(CHAT, &stream(9)).await;
        let answer = client.answer().await;
        assert_eq!(
            (answer.text(), answer.end),
            (EVENTS, End::Whole),
            "parted at {at}"
        );
    }
    assert_eq!(world.router.metrics().truncations(), []);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_without_a_last_word_leaves_no_load_behind() {
    let ends = [HEAD.as_bytes(), &chunk(b"data: {}\n\n"), b"0\r\n\r\n"].concat();
    let stub = Stub::start([Do::Say(ends)]).await;
    let world = Setup::new().start([spec("a", &stub.url).max_in_flight(1)]).await;
    let mut client = Client::connect(world.addr).await;
    for _ in 0..1_000 {
        client.post(CHAT, &stream(9)).await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.text()), (200, "data: {}\n\n"));
    }
    world.quiet().await;
}

/// A host that looks at each request.
#[derive(Debug)]
struct Looks;

impl Annotate for Looks {
    fn annotate(&self, _: &HeaderMap, facts: &mut RequestFacts) {
        facts.priority = 1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_event_is_passed_on_before_there_is_a_second_whatever_a_host_adds() {
    let engine = engine(slow()).await;
    let everybody = Node::require(filter_fn("everybody", |_, _| true));
    let setup = Setup::new().with(|setup| {
        setup.options.keys = Some(Arc::new(Keys::read("sk-1").unwrap()));
        setup.options.annotate = Some(Arc::new(Looks));
        setup.tree = Tree::new(Signals::Corrected, Node::list([everybody, Node::random()])).unwrap();
    });
    let world = setup.start([of("a", &engine)]).await;
    let mut client = Client::connect(world.addr).await;
    let headers = "authorization: Bearer sk-1\r\n";
    client
        .send("POST", CHAT, headers, stream(1_000).to_string())
        .await;
    // The next token takes a quarter of an hour.
    client.until("data: {").await;
    assert_eq!(engine.stats().running, 1);
    drop(client);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_holds_all_that_it_needs_and_outlives_the_server() {
    let begins = [HEAD.as_bytes(), &chunk(b"data: 1\n\n")].concat();
    let ends = [chunk(b"data: [DONE]\n\n"), b"0\r\n\r\n".to_vec()].concat();
    let stub = Stub::start([Do::SayRestToTwo(begins, ends), Do::ok("{}")]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let request = Request::post(CHAT)
        .body(Body::full(stream(2).to_string()))
        .unwrap();
    let response = world.router.handle(request).await;
    world.stop();
    // Router, statuses and listener are gone.
    assert_eq!(world.served().await, Served::Whole);
    let mut other = Client::connect(stub.url.strip_prefix("http://").unwrap().parse().unwrap()).await;
    other.send("GET", "/", "", "").await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "data: 1\n\ndata: [DONE]\n\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_a_stream_and_is_refused_gets_a_status_and_no_stream() {
    let engine = engine(slow().slots(1)).await;
    let world = Setup::new().queue(0, HANG).start([of("a", &engine)]).await;
    let mut held = Client::connect(world.addr).await;
    held.post(CHAT, &stream(1_000)).await;
    eventually("it runs", || engine.stats().running == 1).await;
    let answer = post(world.addr, CHAT, &stream(1)).await;
    assert_eq!((answer.status, answer.end), (429, End::Whole));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(answer.json()["error"]["message"].is_string());
    drop(held);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_is_told_while_hundreds_of_streams_are_open() {
    let engine = engine(slow().slots(150)).await;
    let world = Setup::new().queue(150, HANG).start([of("a", &engine)]).await;
    let mut clients = Vec::new();
    for _ in 0..300 {
        let mut client = Client::connect(world.addr).await;
        client.post(CHAT, &stream(1_000)).await;
        clients.push(client);
    }
    eventually("all are there", || {
        engine.stats().running == 150 && world.waiting() == 150
    })
    .await;
    for _ in 0..20 {
        assert_eq!(ask(world.addr, "GET", "/health", "", "").await.status, 200);
    }
    assert_eq!(
        post(world.addr, CHAT, &chat(1)).await.status,
        429,
        "and nobody else"
    );
    drop(clients);
    world.quiet().await;
}
