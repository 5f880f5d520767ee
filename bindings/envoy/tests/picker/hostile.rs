//! What Envoy never says, and what others may.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response as Heard;
use envoy_types::pb::envoy::service::ext_proc::v3::{ProcessingRequest, ProcessingResponse};
use paddler_core::forward::Served;
use tokio_stream::StreamExt as _;
use tonic::Code;

use super::envoy::*;
use super::world::{Setup, channel, eventually, one};

#[tokio::test]
async fn a_stream_that_is_cut_at_any_step_holds_nothing() {
    let world = Setup::new().start(one()).await;
    let steps: [fn() -> ProcessingRequest; 6] = [
        || request_headers("POST", CHAT, &[], false),
        || request_body(&BODY[..9], false),
        || request_body(&BODY[9..], true),
        || response_headers("200", &[], false),
        || response_body("half", false),
        || response_body("", true),
    ];
    for many in 0..=steps.len() {
        for half_closes in [false, true] {
            let mut stream = world.open().await;
            for step in &steps[..many] {
                if many > 3 && step().request == response_headers("200", &[], false).request {
                    stream.placed().await;
                    stream.body().await;
                }
                stream.say(step()).await;
            }
            if many == 3 {
                stream.placed().await;
                assert_eq!(world.open_at("a"), 1);
            }
            if half_closes {
                stream.close();
                while let Ok(Some(_)) = stream.hear().await {}
            }
            drop(stream);
            world.quiet().await;
            eventually("no stream is open", || {
                world.metric("paddler_picker_streams") == 0.0
            })
            .await;
        }
    }
}

#[tokio::test]
async fn one_that_leaves_while_it_waits_leaves_the_queue() {
    let world = Setup::new().start(one().map(|spec| spec.max_in_flight(1))).await;
    let mut first = world.open().await;
    first.ask((DUPLEX, DUPLEX), &[]).await;
    first.placed().await;
    let second = world.open().await;
    second.ask((DUPLEX, DUPLEX), &[]).await;
    eventually("it waits", || world.metric("paddler_waiting_requests") == 1.0).await;
    drop(second);
    eventually("it waits no more", || {
        world.metric("paddler_waiting_requests") == 0.0
    })
    .await;
    drop(first);
    world.quiet().await;
    // Who leaves is no fault of the upstream's.
    assert_eq!(world.metric("paddler_upstream_ejected"), 0.0);
}

#[tokio::test]
async fn what_is_out_of_order_ends_the_stream_with_a_word() {
    let world = Setup::new().start(one()).await;
    let head = || request_headers("POST", CHAT, &[], false);
    let mut looks_on = head();
    looks_on.observability_mode = true;
    for (messages, word) in [
        (vec![request_body(BODY, true)], "begins with"),
        (vec![ProcessingRequest::default()], "begins with"),
        (vec![looks_on], "observability_mode"),
        (vec![with_modes(head(), 5, DUPLEX)], "body mode"),
        (vec![head(), head()], "twice"),
        (vec![head(), response_body("x", true)], "before its headers"),
        (vec![head(), response_trailers()], "before its headers"),
        (
            vec![with_modes(head(), NONE, DUPLEX), request_body(BODY, true)],
            "would not",
        ),
    ] {
        let mut stream = world.open().await;
        for message in messages {
            stream.try_say(message).await;
        }
        let status = loop {
            match stream.hear().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("no word: {word}"),
                Err(status) => break status,
            }
        };
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(word), "{}", status.message());
    }
    assert_eq!(world.metric("paddler_picker_faults_total"), 8.0);
    world.quiet().await;
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_however_it_comes() {
    let setup = Setup::new().with(|setup| {
        setup.router.max_body = 1 << 20;
        setup.picker.max_message = 1 << 19;
    });
    let world = setup.start(one()).await;
    // In pieces: nobody keeps more than may be.
    let mut stream = world.open().await;
    stream.say(request_headers("POST", CHAT, &[], false)).await;
    let pouring = async {
        for _ in 0..40 {
            stream.try_say(request_body(vec![b' '; 60_000], false)).await;
        }
    };
    tokio::time::timeout(HANG, pouring).await.unwrap();
    let (status, headers, _) = stream.immediate().await;
    assert_eq!(
        (status, headers["x-paddler-reason"].as_str()),
        (413, "body_too_large")
    );
    // In one message.
    let mut stream = world.open().await;
    stream
        .say(with_modes(
            request_headers("POST", CHAT, &[], false),
            BUFFERED,
            DUPLEX,
        ))
        .await;
    stream.hear().await.unwrap();
    stream.say(request_body(vec![b' '; 1 << 20], true)).await;
    let (status, headers, _) = stream.immediate().await;
    assert_eq!(
        (status, headers["x-paddler-reason"].as_str()),
        (413, "body_too_large")
    );
    assert_eq!(
        world.metric("paddler_refusals_total"),
        2.0,
        "wherever they are refused"
    );
    // An answer is its engine's.
    let mut stream = world.open().await;
    stream.ask((DUPLEX, BUFFERED), &[]).await;
    stream.placed().await;
    stream.body().await;
    stream.say(response_headers("200", &[], false)).await;
    stream.response_head().await;
    stream.say(response_body(vec![b' '; 1 << 20], true)).await;
    let (status, headers, _) = stream.immediate().await;
    assert_eq!(
        (status, headers["x-paddler-reason"].as_str()),
        (502, "answer_too_large")
    );
    world.quiet().await;
}

#[tokio::test]
async fn a_first_message_beyond_the_limit_is_refused_and_fails_no_stream() {
    let small = |setup: &mut Setup| setup.picker.max_message = 4096;
    let world = Setup::new().with(small).start(one()).await;
    let mut stream = world.open().await;
    let large = "a".repeat(5_000);
    stream
        .say(request_headers("POST", CHAT, &[("x-a", &large)], false))
        .await;
    let (status, headers, _) = stream.immediate().await;
    assert_eq!((status, &*headers["x-paddler-reason"]), (413, "body_too_large"));
    assert_eq!(world.metric("paddler_picker_faults_total"), 0.0);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let setup = Setup::new().with(|setup| setup.router.timeouts.body_idle = Duration::from_millis(30));
    let world = setup.start(one()).await;
    let mut stream = world.open().await;
    stream.say(request_headers("POST", CHAT, &[], false)).await;
    let (status, headers, _) = stream.immediate().await;
    assert_eq!((status, headers["x-paddler-reason"].as_str()), (408, "slow_body"));
    world.quiet().await;
}

#[tokio::test]
async fn one_stream_more_than_may_be_is_answered() {
    let world = Setup::new()
        .with(|setup| setup.picker.max_streams = 2)
        .start(one())
        .await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = world.open().await;
        stream.ask((DUPLEX, DUPLEX), &[]).await;
        stream.placed().await;
        held.push(stream);
    }
    // Over a connection of its own, since each keeps to as many.
    let mut third = Stream::open(channel(world.addr).await).await;
    third.try_say(request_headers("POST", CHAT, &[], false)).await;
    let (status, headers, body) = third.immediate().await;
    assert_eq!(
        (status, headers["x-paddler-reason"].as_str()),
        (429, "too_many_streams")
    );
    assert_eq!(
        (
            headers["retry-after"].as_str(),
            headers["x-should-retry"].as_str()
        ),
        ("2", "true")
    );
    assert!(
        body.contains("too_many_streams") && body.contains("rate_limit_error"),
        "{body}"
    );
    drop(held);
    world.quiet().await;
    eventually("no stream is open", || {
        world.metric("paddler_picker_streams") == 0.0
    })
    .await;
    let mut stream = world.open().await;
    stream.ask((DUPLEX, DUPLEX), &[]).await;
    stream.placed().await;
}

#[tokio::test]
async fn one_that_takes_nothing_of_an_answer_is_sent_no_more_than_it_holds() {
    let world = Setup::new().start(one()).await;
    // Its connection is driven apart, so that it can end at once.
    let apart = tokio::runtime::Runtime::new().unwrap();
    let connected = apart.spawn(channel(world.addr));
    let mut stream = Stream::open(connected.await.unwrap()).await;
    stream.ask((DUPLEX, DUPLEX), &[]).await;
    stream.placed().await;
    stream.body().await;
    stream.say(response_headers("200", &[], false)).await;
    stream.response_head().await;
    // Envoy reads nothing and goes on to send: it is held up.
    let mut sent = 0;
    let piece = || response_body(vec![b'a'; 60_000], false);
    while tokio::time::timeout(Duration::from_millis(200), stream.say(piece()))
        .await
        .is_ok()
    {
        sent += 60_000;
        assert!(sent < 8 << 20, "it takes all, and gives nothing back");
    }
    assert!(sent > 0, "it was held up before anything was sent");
    apart.shutdown_background();
    drop(stream);
    world.quiet().await;
}

#[tokio::test]
async fn a_head_that_a_client_can_have_caused_is_refused_and_fails_no_stream() {
    let world = Setup::new().start(one()).await;
    let get = |path: &str, more: &[(&str, &str)]| request_headers("GET", path, more, true);
    for head in [
        get("", &[]),
        request_headers("", CHAT, &[], false),
        get("/slots?<", &[]),
        get("/a`b", &[]),
        get(&format!("/{}", "a".repeat(65_535)), &[]),
        get("/v1/models", &[("a", "\u{7f}")]),
        get("/v1/models", &[("ä", "1")]),
        get("/v1/models", &[("", "1")]),
    ] {
        let mut stream = world.open().await;
        stream.say(head).await;
        let (status, headers, _) = stream.immediate().await;
        assert_eq!((status, &*headers["x-paddler-reason"]), (400, "bad_header"));
    }
    assert_eq!(world.metric("paddler_picker_faults_total"), 0.0);
}

#[tokio::test]
async fn one_that_leaves_after_an_early_answer_holds_nothing() {
    let world = Setup::new().start(one()).await;
    for ends in [true, false] {
        // Its connection breaks as a whole.
        let apart = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let channel = apart.spawn(channel(world.addr)).await.unwrap();
        let mut stream = Stream::open(channel).await;
        stream.say(request_headers("POST", CHAT, &[], false)).await;
        stream.say(request_body(BODY, false)).await;
        for _ in 0..50 {
            stream.say(request_body(vec![b' '; 60_000], false)).await;
        }
        stream.say(request_body("", true)).await;
        stream.placed().await;
        // Of the body that comes back nothing is taken.
        stream.say(response_headers("413", &[], ends)).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(world.open_at("a"), 1);
        drop(stream);
        apart.shutdown_background();
        world.quiet().await;
        eventually("no stream is open", || {
            world.metric("paddler_picker_streams") == 0.0
        })
        .await;
    }
}

#[tokio::test]
async fn what_is_open_ends_with_a_cut() {
    let world = Setup::new().start(one()).await;
    let picker = world.picker.clone();
    let (mut placed, mut silent) = (world.open().await, world.open().await);
    placed.ask((DUPLEX, DUPLEX), &[]).await;
    placed.placed().await;
    placed.body().await;
    world.stop();
    world.cut();
    assert_eq!(world.served().await, Served::Cut(1), "there is one connection");
    silent.try_say(request_headers("POST", CHAT, &[], false)).await;
    for stream in [&mut placed, &mut silent] {
        // A plain end would let what was not decided go on.
        stream.hear().await.unwrap_err();
    }
    let none = "paddler_picker_streams 0";
    eventually("no stream is open", || picker.metrics_page().contains(none)).await;
}

#[tokio::test]
async fn an_engine_that_falls_silent_is_no_fault_of_envoys() {
    let silent = |setup: &mut Setup| setup.router.timeouts.idle = Duration::from_millis(50);
    let world = Setup::new().with(silent).start(one()).await;
    let mut stream = world.open().await;
    stream.ask((DUPLEX, DUPLEX), &[]).await;
    stream.placed().await;
    stream.body().await;
    let json = ("content-type", "application/json");
    stream.say(response_headers("200", &[json], false)).await;
    stream.response_head().await;
    stream.say(response_body("{", false)).await;
    while let Ok(Some(_)) = stream.hear().await {}
    world.quiet().await;
    assert_eq!(world.metric("paddler_picker_faults_total"), 0.0);
}

#[tokio::test]
async fn one_who_speaks_something_else_is_told_so() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let world = Setup::new().start(one()).await;
    let mut client = tokio::net::TcpStream::connect(world.addr).await.unwrap();
    let request = b"GET /v1/models HTTP/1.1\r\nHost: picker\r\nConnection: close\r\n\r\n";
    client.write_all(request).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 415 ") && answer.contains("grpc_alone"),
        "{answer}"
    );
    let mut grpc = tonic::client::Grpc::new(world.channel.clone());
    grpc.ready().await.unwrap();
    let path = "/envoy.service.auth.v3.Authorization/Check".parse().unwrap();
    let codec = tonic_prost::ProstCodec::<ProcessingRequest, ProcessingRequest>::default();
    let asked = grpc
        .unary(tonic::Request::new(ProcessingRequest::default()), path, codec)
        .await;
    let status = asked.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("ExternalProcessor"), "{status}");
}

#[tokio::test]
async fn a_body_that_does_not_end_goes_nowhere() {
    let world = Setup::new().start(one()).await;
    let mut stream = world.open().await;
    stream.say(request_headers("POST", CHAT, &[], false)).await;
    stream.say(request_body(BODY, false)).await;
    stream.close();
    assert!(
        stream.hear().await.is_err(),
        "it is neither placed nor let through"
    );
    world.quiet().await;
}

/// A stream on which bytes are said that are no message: fields 2 and 3 of this are heads of a request and of a response.
async fn unreadable(world: &super::world::World, heads: Vec<HeaderValue>) -> (i32, String) {
    let mut grpc = tonic::client::Grpc::new(world.channel.clone());
    grpc.ready().await.unwrap();
    let path = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";
    let codec = tonic_prost::ProstCodec::<HeaderValue, ProcessingResponse>::default();
    let said = tonic::Request::new(tokio_stream::iter(heads).chain(tokio_stream::pending()));
    let heard = grpc.streaming(said, path.parse().unwrap(), codec).await;
    let heard = tokio::time::timeout(HANG, heard.unwrap().into_inner().message()).await;
    match heard.unwrap().unwrap().unwrap().response.unwrap() {
        Heard::ImmediateResponse(answer) => (answer.status.unwrap().code, answer.details),
        other => panic!("it is not refused: {other:?}"),
    }
}

#[tokio::test]
async fn what_cannot_be_read_before_a_place_is_named_is_refused_and_fails_no_stream() {
    let world = Setup::new().start(one()).await;
    let broken = || HeaderValue {
        raw_value: vec![0xff],
        ..HeaderValue::default()
    };
    // The head of a `POST /v1/chat/completions`.
    let head = |name: &str, value: &str| {
        let pair = format!("\u{a}{}{name}\u{1a}{}{value}", sized(name), sized(value));
        format!("\u{a}{}{pair}", sized(&pair))
    };
    let all = head(":method", "POST") + &head(":path", CHAT);
    let first = HeaderValue {
        value: format!("\u{a}{}{all}", sized(&all)),
        ..HeaderValue::default()
    };
    for heads in [vec![broken()], vec![first, broken()]] {
        let refused = unreadable(&world, heads).await;
        assert_eq!(refused, (400, "paddler_bad_header".to_owned()));
    }
    world.quiet().await;
}

/// A length as protobuf has it, where it is a short one.
fn sized(text: &str) -> char {
    assert!(text.len() < 128);
    char::from(u8::try_from(text.len()).unwrap())
}
