//! What does the client see when an upstream misbehaves, and how often is it asked?

use std::time::Duration;

use paddler_core::status::StatusEvent;
use paddler_core::upstream::{UpstreamId, UpstreamSpec};
use paddler_engine::{Engine, EngineConfig, Fault, FaultRule};
use serde_json::{Value, json};

use super::client::{Answer, CHAT, Client, End, HANG, ask, chat, eventually, post, stream};
use super::stub::{Do, Stub};
use super::world::{Setup, World, engine, nowhere, of, quick, slow, spec};

const SHORT: Duration = Duration::from_millis(80);

/// A world of this engine alone.
async fn alone(setup: Setup, config: EngineConfig) -> (Engine, World) {
    let engine = engine(config).await;
    let world = setup.start([of("a", &engine)]).await;
    (engine, world)
}

fn error(answer: &Answer) -> Value {
    answer.json()["error"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cannot_be_reached_is_passed_over() {
    let engine = engine(quick()).await;
    let gone: Vec<UpstreamSpec> = vec![
        spec("x", nowhere().await),
        spec("y", nowhere().await),
        of("z", &engine),
    ];
    let world = Setup::new().start(gone).await;
    for _ in 0..20 {
        assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
        // Not replayable, and not sent: it makes no difference.
        let answer = ask(
            world.addr,
            "POST",
            "/v1/responses",
            "",
            r#"{"input":"a","max_output_tokens":1}"#,
        )
        .await;
        assert_eq!(answer.status, 200);
    }
    assert_eq!(engine.stats().requests, 40);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_nobody_can_be_reached_it_waits_and_then_says_so() {
    let (engine, world) = alone(Setup::new().queue(9, Duration::from_millis(400)), quick()).await;
    engine.set_fault(Some(Fault::Refuse)).unwrap();
    let answer = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!(
        (answer.status, answer.reason(), answer.header("retry-after")),
        (503, "unreachable", Some("2"))
    );

    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, &chat(1)).await;
    eventually("it waits", || world.waiting() == 1).await;
    engine.set_fault(None).unwrap();
    assert_eq!(client.answer().await.status, 200, "there again within the wait");
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_one_beside_a_busy_one_is_contention() {
    let busy = engine(slow().slots(1)).await;
    let setup = Setup::new().queue(9, Duration::from_millis(400));
    let world = setup
        .start([of("busy", &busy), spec("gone", nowhere().await)])
        .await;
    let mut first = Client::connect(world.addr).await;
    first.post(CHAT, &stream(1_000)).await;
    eventually("it runs", || busy.stats().running == 1).await;
    let answer = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!(
        (answer.status, answer.reason()),
        (429, "slots_busy"),
        "there is one who could serve it"
    );
    drop(first);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_connection_that_breaks_is_a_502_and_asked_once() {
    for fault in [Fault::Reset, Fault::Close] {
        let (engine, world) = alone(Setup::new(), quick()).await;
        engine.set_fault(Some(fault)).unwrap();
        let answer = post(world.addr, CHAT, &chat(1)).await;
        assert_eq!(
            (answer.status, answer.reason(), engine.stats().requests),
            (502, "upstream_broke", 1)
        );
        assert_eq!(error(&answer)["type"], "server_error");
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_used_connection_that_breaks_is_no_fault_of_the_request() {
    for path_and_body in [
        (CHAT, chat(1)),
        ("/v1/responses", json!({ "input": "a", "store": false })),
    ] {
        let stub = Stub::start([Do::ok("{}"), Do::Close, Do::ok("{}")]).await;
        let world = Setup::new().start([spec("a", &stub.url)]).await;
        let (path, body) = path_and_body;
        assert_eq!(post(world.addr, path, &body).await.status, 200);
        assert_eq!(post(world.addr, path, &body).await.status, 200, "{path}");
        assert_eq!(stub.seen().len(), 3);
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_sent_once_more_and_not_twice() {
    let stub = Stub::start([Do::ok("{}"), Do::Close]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    let answer = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!(
        (answer.status, answer.reason(), stub.seen().len()),
        (502, "suspect_request", 3)
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_is_it_sent_a_third_time_elsewhere() {
    // Each has a connection that was used before, and is lost.
    for _ in 0..8 {
        let stubs = [
            Stub::start([Do::ok("{}"), Do::Close]).await,
            Stub::start([Do::ok("{}"), Do::Close]).await,
        ];
        let world = Setup::new().start([spec("a", &stubs[0].url)]).await;
        assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
        let both = StatusEvent::Upsert(spec("b", &stubs[1].url));
        world.statuses.apply(both).await.unwrap();
        assert_eq!(
            world
                .statuses
                .set_draining(UpstreamId::new("a").unwrap(), true)
                .await,
            Ok(true)
        );
        assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
        assert_eq!(
            world
                .statuses
                .set_draining(UpstreamId::new("a").unwrap(), false)
                .await,
            Ok(true)
        );
        assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 502);
        assert_eq!(stubs[0].seen().len() + stubs[1].seen().len(), 4);
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_leave_traces_is_never_sent_twice() {
    let bodies = [
        (CHAT, json!({ "messages": [], "store": true })),
        ("/v1/responses", json!({ "input": "a" })),
        (
            "/v1/responses",
            json!({ "input": "a", "store": false, "previous_response_id": "r" }),
        ),
        ("/custom", json!({ "model": "tiny" })),
        ("/v1/audio/speech", json!({ "input": "a" })),
    ];
    for (path, body) in bodies {
        let stub = Stub::start([Do::ok("{}"), Do::Close, Do::ok("{}")]).await;
        let world = Setup::new().start([spec("a", &stub.url)]).await;
        assert_eq!(post(world.addr, path, &body).await.status, 200);
        assert_eq!(post(world.addr, path, &body).await.status, 502, "{path} {body}");
        assert_eq!(stub.seen().len(), 2);
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_breaks_in_its_head_was_seen() {
    // The connection was used before, but bytes of an answer came: the engine has worked on it.
    let stub = Stub::start([Do::ok("{}"), Do::SayAndClose(b"HTTP/1.1 200 OK\r\nx-".to_vec())]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    assert_eq!(
        (post(world.addr, CHAT, &chat(1)).await.status, stub.seen().len()),
        (502, 2)
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_refuses_the_work_is_passed_over() {
    let (loads, works) = (engine(quick()).await, engine(quick()).await);
    let world = Setup::new()
        .start([of("loads", &loads), of("works", &works)])
        .await;
    for fault in [
        Fault::Loading,
        Fault::Status {
            code: 429,
            retry_after: None,
        },
    ] {
        loads.set_fault(Some(fault)).unwrap();
        for _ in 0..10 {
            assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
        }
    }
    assert!(loads.stats().requests > 0, "it was asked, too");
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loading_is_waited_out() {
    let (engine, world) = alone(Setup::new().queue(9, HANG), quick()).await;
    engine.add_fault(FaultRule::new(Fault::Loading).times(3)).unwrap();
    assert_eq!(
        (
            post(world.addr, CHAT, &chat(1)).await.status,
            engine.stats().requests
        ),
        (200, 4)
    );

    let (engine, world) = alone(Setup::new().queue(9, Duration::from_millis(300)), quick()).await;
    engine.set_fault(Some(Fault::Loading)).unwrap();
    let answer = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!(
        (answer.status, &error(&answer)["message"]),
        (503, &json!("Loading model")),
        "in the engine's own words"
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_that_was_asked_for_is_left_to_the_client_if_it_is_too_long() {
    for code in [503, 429] {
        let (engine, world) = alone(Setup::new().queue(9, HANG), quick()).await;
        engine
            .set_fault(Some(Fault::Status {
                code,
                retry_after: Some(3_600),
            }))
            .unwrap();
        let answer = post(world.addr, CHAT, &chat(1)).await;
        assert_eq!((answer.status, engine.stats().requests), (code, 1));
        assert_eq!(answer.header("retry-after"), Some("3600"));
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_cannot_be_read_is_still_one() {
    let long = format!(
        "HTTP/1.1 503 Busy\r\ncontent-length: 1000000\r\n\r\n{}",
        "x".repeat(1_000_000)
    );
    let broken = "HTTP/1.1 503 Busy\r\ncontent-length: 10\r\n\r\nabc";
    for first in [Do::say(&long), Do::SayAndClose(broken.into())] {
        let stub = Stub::start([first.clone(), Do::ok("{}")]).await;
        let world = Setup::new().start([spec("a", &stub.url)]).await;
        assert_eq!(
            (post(world.addr, CHAT, &chat(1)).await.status, stub.seen().len()),
            (200, 2)
        );
        world.quiet().await;

        let stub = Stub::start([first]).await;
        let world = Setup::new().queue(9, SHORT).start([spec("a", &stub.url)]).await;
        let answer = post(world.addr, CHAT, &chat(1)).await;
        assert_eq!(
            (answer.status, answer.reason(), answer.end),
            (503, "upstream_refused", End::Whole)
        );
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_that_goes_silent_does_not_hold_the_request() {
    let stub = Stub::start([
        Do::say("HTTP/1.1 503 Busy\r\ncontent-length: 10\r\n\r\nabc"),
        Do::ok("{}"),
    ])
    .await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_before_the_head_is_a_504() {
    let setup = Setup::new().with(|setup| setup.options.timeouts.first_byte = SHORT);
    let (engine, world) = alone(setup, quick()).await;
    engine.set_fault(Some(Fault::Stall)).unwrap();
    let answer = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!(
        (answer.status, answer.reason(), engine.stats().requests),
        (504, "first_byte_timeout", 1)
    );
    eventually("the engine is rid of it", || engine.stats().cancelled == 1).await;
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_after_the_head_and_before_a_byte_is_told_in_the_stream() {
    let setup = Setup::new().with(|setup| setup.options.timeouts.first_byte = SHORT);
    let (engine, world) = alone(setup, EngineConfig::vllm("tiny").instant()).await;
    engine.set_fault(Some(Fault::StallAfter { bytes: 0 })).unwrap();
    let answer = post(world.addr, CHAT, &stream(2)).await;
    assert_eq!((answer.status, answer.end), (200, End::Whole));
    let event: Value = serde_json::from_str(answer.text().strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(event["error"]["code"], "first_byte_timeout");
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_in_the_middle_is_told_though_the_first_byte_had_more_time() {
    let setup = Setup::new().with(|setup| setup.options.timeouts.idle = SHORT);
    let (engine, world) = alone(setup, quick()).await;
    engine.set_fault(Some(Fault::StallAfter { bytes: 40 })).unwrap();
    let answer = post(world.addr, CHAT, &stream(9)).await;
    assert_eq!(answer.end, End::Whole);
    let (cut, event) = answer.text().split_at(40);
    assert!(
        cut.starts_with("data: {") && event.starts_with("\n\ndata: {\"error\":"),
        "{event}"
    );
    assert!(event.contains("upstream_idle") && event.ends_with("\n\n"));

    let answer = post(world.addr, CHAT, &chat(9)).await;
    assert_eq!(
        (answer.body.len(), answer.end),
        (40, End::Eof),
        "short of its length"
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_went_silent_may_still_be_at_it() {
    // Its slot is not given to the next one before a report shows that it is free; here there are none.
    for (fault, status) in [(Fault::Stall, 504), (Fault::StallAfter { bytes: 40 }, 200)] {
        let setup = Setup::new().with(|setup| {
            setup.options.timeouts.first_byte = SHORT;
            setup.options.timeouts.idle = SHORT;
            setup.board.settle = HANG;
        });
        let (engine, world) = alone(setup.queue(9, SHORT), quick().slots(1)).await;
        engine.set_fault(Some(fault)).unwrap();
        assert_eq!(post(world.addr, CHAT, &stream(9)).await.status, status);
        eventually("its weight settles", || world.settling() == 1).await;
        assert_eq!(post(world.addr, CHAT, &chat(1)).await.reason(), "slots_busy");
        assert_eq!((world.open_weight(), engine.stats().requests), (1, 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_is_not_silent() {
    let setup = Setup::new().with(|setup| setup.options.timeouts.idle = Duration::from_millis(250));
    let (engine, world) = alone(setup, quick()).await;
    let whole = post(world.addr, CHAT, &chat(1)).await;
    engine
        .set_fault(Some(Fault::Drip {
            every: Duration::from_millis(2),
        }))
        .unwrap();
    let dripped = post(world.addr, CHAT, &chat(1)).await;
    assert!(whole.body.len() > 250, "longer in all than between two bytes");
    assert_eq!((dripped.text(), dripped.end), (whole.text(), End::Whole));
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_cut_short_ends_with_an_error_of_its_dialect() {
    let (engine, world) = alone(Setup::new(), quick()).await;
    let native = json!({ "prompt": "a", "n_predict": 9, "stream": true });
    let messages =
        json!({ "messages": [{ "role": "user", "content": "a" }], "max_tokens": 9, "stream": true });
    for fault in [Fault::ResetAfter { bytes: 60 }, Fault::EofAfter { bytes: 60 }] {
        engine.set_fault(Some(fault)).unwrap();
        for (path, body, begins) in [
            (CHAT, stream(9), "data: {\"error\":{"),
            ("/completion", native.clone(), "data: {\"error\":{\"code\":502"),
            (
                "/v1/messages",
                messages.clone(),
                "event: error\ndata: {\"error\":{",
            ),
        ] {
            let answer = post(world.addr, path, &body).await;
            assert_eq!((answer.status, answer.end), (200, End::Whole));
            let event = answer.text()[60..].trim_start_matches('\n');
            assert!(
                event.starts_with(begins) && event.ends_with("}\n\n"),
                "{path}: {event}"
            );
            assert!(!answer.text().contains("[DONE]"));
        }
    }
    assert_eq!(
        world
            .router
            .metrics()
            .truncations()
            .iter()
            .map(|(_, count)| count)
            .sum::<u64>(),
        6
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_the_engines_own_passes_as_it_is() {
    let (engine, world) = alone(Setup::new(), quick()).await;
    engine
        .set_fault(Some(Fault::ErrorEventAfter { bytes: 300 }))
        .unwrap();
    let direct = post(engine.addr(), CHAT, &stream(9)).await;
    assert_eq!(post(world.addr, CHAT, &stream(9)).await.text(), direct.text());
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_other_answer_cut_short_is_broken_off() {
    let (engine, world) = alone(Setup::new(), quick()).await;
    for fault in [
        Fault::ResetAfter { bytes: 30 },
        Fault::EofAfter { bytes: 30 },
        Fault::WrongLength { by: 5 },
    ] {
        engine.set_fault(Some(fault.clone())).unwrap();
        let answer = post(world.addr, CHAT, &chat(2)).await;
        assert_eq!((answer.status, answer.end), (200, End::Eof), "{fault:?}");
    }
    // In chunks, and no stream of events.
    let chunks = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n";
    let stub = Stub::start([Do::SayAndClose(chunks.into())]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let answer = post(world.addr, CHAT, &chat(2)).await;
    assert_eq!((answer.text(), answer.end), ("abc", End::Eof));

    let body = chat(2).to_string();
    let mut old = Client::connect(world.addr).await;
    old.write(format!(
        "POST {CHAT} HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))
    .await;
    assert_eq!(
        old.answer().await.end,
        End::Reset,
        "where an end alone would look like a whole answer"
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_behind_an_answer_go_to_nobody() {
    let (engine, world) = alone(Setup::new(), quick()).await;
    engine.set_fault(Some(Fault::WrongLength { by: -5 })).unwrap();
    for _ in 0..5 {
        let direct = post(engine.addr(), CHAT, &chat(2)).await;
        let answer = post(world.addr, CHAT, &chat(2)).await;
        assert_eq!((answer.text(), answer.end), (direct.text(), End::Whole));
    }
    engine.set_fault(None).unwrap();
    for _ in 0..5 {
        let answer = post(world.addr, CHAT, &chat(2)).await;
        assert!(answer.status == 200 && answer.json()["choices"].is_array());
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_hung_upstream_does_not_hold_up_the_others() {
    let (hung, works) = (engine(quick().slots(1)).await, engine(quick()).await);
    hung.set_fault(Some(Fault::Stall)).unwrap();
    let world = Setup::new().start([of("hung", &hung), of("works", &works)]).await;
    let mut stuck = Client::connect(world.addr).await;
    while hung.stats().running == 0 {
        stuck = Client::connect(world.addr).await;
        stuck.post(CHAT, &chat(1)).await;
        eventually("it is somewhere", || {
            world.open_weight() == 0 || hung.stats().running == 1
        })
        .await;
    }
    for _ in 0..20 {
        assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    }
    drop(stuck);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn polled_engines_come_and_go_by_their_own_word() {
    let (a, b) = (engine(quick()).await, engine(quick()).await);
    let world = Setup::polled()
        .start([
            UpstreamSpec::new("a", a.url()).unwrap(),
            UpstreamSpec::new("b", b.url()).unwrap(),
        ])
        .await;
    a.set_fault(Some(Fault::Loading)).unwrap();
    let able = || world.metric("paddler_upstream_able");
    eventually("one says that it loads", || able() == 1.0).await;
    let before = a.stats().by_path.get(CHAT).copied();
    for _ in 0..5 {
        assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    }
    assert_eq!(a.stats().by_path.get(CHAT).copied(), before, "not even tried");
    b.set_fault(Some(Fault::Loading)).unwrap();
    eventually("both load", || able() == 0.0).await;
    assert!(!world.router.is_ready());
    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, &chat(1)).await;
    eventually("it waits", || world.waiting() == 1).await;
    a.set_fault(None).unwrap();
    assert_eq!(client.answer().await.status, 200);
    world.quiet().await;
}
