//! Do faults that a router of this kind was seen to have stay away?
//!
//! Eleven faults, each brought about on an earlier balancer for llama.cpp and each told in the comment of its test: what
//! was seen there, and then the rule that keeps it away here.

use std::time::Duration;

use paddler_core::config::{Registry, tree_from_yaml};
use paddler_core::forward::Served;
use paddler_core::status::{Report, StatusEvent};
use paddler_core::upstream::{ModelEntry, Models, UpstreamId, UpstreamSpec};
use paddler_engine::{Engine, Fault, FaultRule, Scope};
use serde_json::json;

use super::client::{CHAT, Client, End, HANG, ask, chat, eventually, get, post, stream};
use super::stub::{Do, Stub};
use super::world::{Setup, World, engine, nowhere, of, quick, slow, spec};

const SHORT: Duration = Duration::from_millis(80);

fn id(name: &str) -> UpstreamId {
    UpstreamId::new(name).unwrap()
}

fn listed(name: &str) -> Models {
    Models::Listed([ModelEntry::new(name)].into())
}

/// Takes one place and keeps it until the client is dropped.
async fn hold(world: &World) -> Client {
    let before = world.open_weight();
    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, &stream(1_000)).await;
    eventually("a place is taken", || world.open_weight() == before + 1).await;
    client
}

async fn send(world: &World, body: &serde_json::Value) -> Client {
    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, body).await;
    client
}

/// The best peer was dead, the next one did the work, and the client got a 500; the dead one's slot was never given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_best_upstream_costs_neither_the_answer_nor_a_slot() {
    let works = engine(slow().slots(3)).await;
    let world = Setup::new().start([of("works", &works)]).await;
    let held = hold(&world).await;
    let dead = spec("dead", nowhere().await).max_in_flight(8);
    world.statuses.apply(StatusEvent::Upsert(dead)).await.unwrap();
    eventually("it is in", || world.router.published().load().len() == 2).await;
    // Nothing is open on the dead one, and so it is the best.
    let second = send(&world, &stream(1_000)).await;
    eventually("both run", || works.stats().running == 2).await;
    assert!(
        world.metric("paddler_retries_total") >= 1.0,
        "the dead one was tried"
    );
    let ledger = world.router.published().load().ledger().clone();
    let dead = world.router.published().load().index("dead").unwrap();
    assert_eq!(ledger.own_load(dead).weight, 0);
    drop((held, second));
    world.quiet().await;
}

/// A slot in use when its agent reported stayed in use until the next report, however soon it came free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_is_free_when_its_answer_ends_and_not_at_the_next_report() {
    let body = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_vec();
    let stub = Stub::start([Do::SayToTwo(body), Do::ok("{}")]).await;
    // What is not known to have ended keeps its slot for longer than this test takes.
    let setup = Setup::new().with(|setup| setup.board.settle = HANG * 100);
    let world = setup
        .queue(9, HANG)
        .start([spec("a", &stub.url).max_in_flight(1)])
        .await;
    let mut first = send(&world, &chat(1)).await;
    eventually("it is there", || stub.seen().len() == 1).await;
    // What is on its way for less than 20 ms counts as not yet seen there.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut report = Report::new();
    (report.slots_busy, report.slots_total) = (Some(1), Some(1));
    let says = StatusEvent::Report {
        id: id("a"),
        report,
        sample: None,
    };
    world.statuses.apply(says).await.unwrap();
    let mut second = send(&world, &chat(1)).await;
    eventually("the second one waits", || world.waiting() == 1).await;
    // What weighs nothing passes, and by this the first one is answered. No report comes any more.
    assert_eq!(get(world.addr, "/page").await.status, 200);
    assert_eq!(first.answer().await.status, 200);
    assert_eq!(second.answer().await.status, 200);
    world.quiet().await;
}

/// Only three paths were counted: eight completions at once all went to one of two machines with two slots each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_path_that_makes_an_engine_work_is_counted_and_spread() {
    for (path, body) in [
        (
            "/v1/completions",
            json!({ "prompt": "a", "max_tokens": 1_000, "stream": true }),
        ),
        (
            "/completion",
            json!({ "prompt": "a", "n_predict": 1_000, "stream": true }),
        ),
        (
            "/v1/responses",
            json!({ "input": "a", "max_output_tokens": 1_000, "stream": true }),
        ),
        (
            "/v1/messages",
            json!({ "messages": [{ "role": "user", "content": "a" }], "max_tokens": 1_000, "stream": true }),
        ),
    ] {
        let both = [engine(slow().slots(2)).await, engine(slow().slots(2)).await];
        let world = Setup::new()
            .queue(9, HANG)
            .start([of("a", &both[0]), of("b", &both[1])])
            .await;
        let mut clients = Vec::new();
        for _ in 0..8 {
            let mut client = Client::connect(world.addr).await;
            client.post(path, &body).await;
            clients.push(client);
        }
        let running = || {
            both.iter()
                .map(|engine| engine.stats().running)
                .collect::<Vec<_>>()
        };
        eventually("four run", || running() == [2, 2]).await;
        eventually("and four wait", || world.waiting() == 4).await;
        assert!(
            both.iter().all(|engine| engine.stats().max_waiting == 0),
            "{path}"
        );
        drop(clients);
        world.quiet().await;
    }
}

/// With every slot in use the list of models and the page of the server were not to be had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_takes_no_slot_is_answered_while_all_are_taken() {
    let engine = engine(slow().slots(1)).await;
    let world = Setup::new().queue(1, HANG).start([of("a", &engine)]).await;
    let held = hold(&world).await;
    let waits = send(&world, &chat(1)).await;
    eventually("it waits", || world.waiting() == 1).await;
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.reason(), "queue_full");
    for path in ["/v1/models", "/health"] {
        assert_eq!(get(world.addr, path).await.status, 200, "{path}");
    }
    for path in ["/", "/page"] {
        let before = engine.stats().requests;
        get(world.addr, path).await;
        assert_eq!(engine.stats().requests, before + 1, "{path} reaches the engine");
    }
    let tokens = ask(world.addr, "POST", "/tokenize", "", r#"{"content":"Hi"}"#).await;
    assert_eq!(tokens.status, 200);
    assert_eq!((world.waiting(), world.open_weight()), (1, 1));
    drop((held, waits));
    world.quiet().await;
}

/// A client that left while it waited kept its place in the queue, and the next one got a 429.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_the_queue_makes_room_in_it() {
    let engine = engine(slow().slots(1)).await;
    let world = Setup::new().queue(1, HANG).start([of("a", &engine)]).await;
    let held = hold(&world).await;
    for _ in 0..5 {
        let waits = send(&world, &chat(1)).await;
        eventually("it waits", || world.waiting() == 1).await;
        drop(waits);
        eventually("it is out", || world.waiting() == 0).await;
    }
    assert_eq!(world.router.metrics().refusals(), [], "nobody found it full");
    drop(held);
    world.quiet().await;
}

/// A machine that froze kept its last figures for ever, and requests were sent to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_freezes_is_passed_over_until_it_moves_again() {
    let (frozen, works) = (engine(quick()).await, engine(quick()).await);
    let text = "tree: [prefer: {fresh: {max_age: 300ms}}, require: slot, pick: {least: in_flight_share}]";
    let setup = Setup::polled().with(|setup| {
        setup.tree = tree_from_yaml(text, "test", &Registry::new()).unwrap();
        setup.poll.as_mut().unwrap().timeout = SHORT;
    });
    let own = |id, engine: &Engine| UpstreamSpec::new(id, engine.url()).unwrap();
    let world = setup.start([own("frozen", &frozen), own("works", &works)]).await;
    frozen
        .add_fault(FaultRule::new(Fault::Stall).on(Scope::All))
        .unwrap();
    let published = world.router.published().clone();
    let reported = || published.load().find("frozen").unwrap().reported_at();
    let failures = || published.load().find("frozen").unwrap().failures();
    // Three polls without an answer: its last word is old.
    eventually("it is asked in vain", || failures() >= 3).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = frozen.stats().by_path.get(CHAT).copied();
    for _ in 0..20 {
        assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    }
    assert_eq!(frozen.stats().by_path.get(CHAT).copied(), before);
    let last = reported();
    frozen.set_fault(None).unwrap();
    eventually("it speaks", || reported() > last).await;
    let served = || frozen.stats().by_path.get(CHAT).copied().unwrap_or(0);
    for _ in 0..200 {
        assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
        if served() > before.unwrap_or(0) {
            break;
        }
    }
    assert!(served() > before.unwrap_or(0), "it is used again");
    world.quiet().await;
}

/// When an agent left, the streams of its engine came without their end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_goes_on_to_its_end_when_its_upstream_is_taken_out() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let begins = format!("{head}9\r\ndata: 1\n\n\r\n");
    let ends = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
    let stub = Stub::start([Do::SayRestToTwo(begins.into(), ends.into()), Do::ok("{}")]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let mut client = send(&world, &stream(2)).await;
    client.until("data: 1").await;
    world.statuses.apply(StatusEvent::Remove(id("a"))).await.unwrap();
    eventually("it is out", || world.router.published().load().is_empty()).await;
    let mut other = Client::connect(stub.url.strip_prefix("http://").unwrap().parse().unwrap()).await;
    other.send("GET", "/", "", "").await;
    let answer = client.answer().await;
    assert_eq!(
        (answer.text(), answer.end),
        ("data: 1\n\ndata: [DONE]\n\n", End::Whole)
    );
    world.quiet().await;
}

/// An engine that died in the middle of a stream ended it without a word; before the head it was a 502 and nobody else was
/// asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_dies_is_told_in_the_stream_and_replaced_before_it() {
    let dies = engine(quick()).await;
    let world = Setup::new().start([of("dies", &dies)]).await;
    for fault in [Fault::EofAfter { bytes: 90 }, Fault::ResetAfter { bytes: 90 }] {
        dies.set_fault(Some(fault)).unwrap();
        let answer = post(world.addr, CHAT, &stream(9)).await;
        let text = answer.text();
        assert_eq!((answer.status, answer.end), (200, End::Whole));
        assert!(
            text.contains("upstream_broke") && !text.contains("[DONE]"),
            "{text}"
        );
    }
    // Before the head, on connections that are used and on ports that are closed.
    let dies = Stub::start([Do::ok("{}"), Do::Close]).await;
    let world = Setup::new().start([spec("dies", &dies.url)]).await;
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    let works = engine(quick()).await;
    world
        .statuses
        .apply(StatusEvent::Upsert(of("works", &works)))
        .await
        .unwrap();
    drop(dies);
    for _ in 0..20 {
        assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    }
    world.quiet().await;
}

/// Told to stop, it closed its port at once and then lingered for minutes with nothing to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn told_to_stop_it_ends_with_its_last_answer_and_not_with_its_grace() {
    let engine = engine(quick().decode_tokens_per_second(100.0)).await;
    let setup = Setup::new().with(|setup| setup.serve.grace = HANG * 1_000);
    let world = setup.start([of("a", &engine)]).await;
    let mut client = send(&world, &stream(30)).await;
    client.until("data:").await;
    // First it says so, and whoever still comes is served.
    world.router.stop();
    assert_eq!(get(world.addr, "/health").await.reason(), "stopping");
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    world.stop();
    let answer = client.answer().await;
    assert_eq!(answer.end, End::Whole);
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(world.served().await, Served::Whole);
}

/// Refusals had no body, and came as a reset where the request was not read to its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_refusal_has_a_body_and_comes_whole_though_the_request_was_not_read() {
    let engine = engine(slow().slots(1)).await;
    let setup = Setup::new().queue(1, SHORT).with(|setup| {
        setup.options.timeouts.first_byte = HANG;
        setup.options.max_buffered = 1 << 20;
    });
    let world = setup.start([of("a", &engine)]).await;
    let held = hold(&world).await;
    let large = json!({ "messages": [], "pad": "x".repeat(8 << 20) }).to_string();
    for (body, status, reason) in [
        (chat(1).to_string(), 429, "slots_busy"),
        // All of it is written before anything is read.
        (large, 429, "buffers_full"),
    ] {
        let answer = ask(world.addr, "POST", CHAT, "", body).await;
        assert_eq!(
            (answer.status, answer.reason(), answer.end),
            (status, reason, End::Whole)
        );
        assert_eq!(answer.json()["error"]["code"], reason);
        assert!(answer.header("retry-after").is_some());
    }
    drop(held);
    world.quiet().await;

    let setup = Setup::new().with(|setup| setup.options.timeouts.first_byte = SHORT);
    let world = setup.start([of("a", &engine)]).await;
    engine.set_fault(Some(Fault::Stall)).unwrap();
    let answer = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!((answer.status, answer.end), (504, End::Whole));
    assert_eq!(answer.json()["error"]["code"], "first_byte_timeout");
}

/// A body that came in two pieces was a 400, a nested name was taken for the model, and an empty body ended the task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_is_the_bodys_own_however_it_comes() {
    let (right, wrong) = (engine(quick()).await, engine(quick()).await);
    let upstreams = [
        of("right", &right).models(listed("right")),
        of("wrong", &wrong).models(listed("wrong")),
    ];
    let world = Setup::new().start(upstreams).await;
    let pad = "x".repeat(100_000);
    let nested = json!({ "metadata": { "model": "wrong", "pad": pad }, "max_tokens": 1 }).to_string();
    let nested = nested.strip_suffix('}').unwrap();
    let body = format!(r#"{nested},"messages":[{{"role":"user","content":"a"}}],"model":"right"}}"#);
    let mut client = Client::connect(world.addr).await;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: r\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.write(head).await;
    let (first, second) = body.split_at(90_000);
    client.write(first).await;
    eventually("the first piece is here", || {
        world.metric("paddler_buffered_bytes") == 90_000.0
    })
    .await;
    client.write(second).await;
    assert_eq!(client.answer().await.status, 200);
    assert_eq!((right.stats().requests, wrong.stats().requests), (1, 0));
    for framing in ["content-length: 0\r\n", "transfer-encoding: chunked\r\n"] {
        let mut client = Client::connect(world.addr).await;
        client
            .write(format!("POST {CHAT} HTTP/1.1\r\nhost: r\r\n{framing}\r\n"))
            .await;
        client
            .write(if framing.starts_with('t') { "0\r\n\r\n" } else { "" })
            .await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.reason()), (400, "malformed_body"));
    }
    assert_eq!((right.stats().requests, wrong.stats().requests), (1, 0));
    world.quiet().await;
}

/// Before the first machine had come every model was a 404, and whoever scaled from nothing lost each request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_is_waited_for_until_the_first_upstream_has_come() {
    let world = Setup::new().queue(9, HANG).start([]).await;
    let mut client = send(&world, &super::client::of_model("right")).await;
    eventually("it waits", || world.waiting() == 1).await;
    let right = engine(quick()).await;
    let upstream = of("right", &right).models(listed("right"));
    world.statuses.apply(StatusEvent::Upsert(upstream)).await.unwrap();
    assert_eq!(client.answer().await.status, 200);
    world.quiet().await;
}
