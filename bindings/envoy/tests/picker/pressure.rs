//! Does it go on when one side does not take, or takes late?

use std::sync::Arc;

use http::HeaderMap;
use paddler_core::forward::Annotate;
use paddler_core::request::RequestFacts;
use tonic::transport::{Channel, Endpoint};

use super::envoy::*;
use super::world::{Setup, World, eventually, one};

/// Who takes no more of a stream at once than HTTP/2 makes everybody take, and so much of all.
async fn narrow(world: &World, all: u32) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", world.addr)).unwrap();
    let endpoint = endpoint
        .initial_stream_window_size(65_535)
        .initial_connection_window_size(all);
    endpoint.connect().await.unwrap()
}

async fn none_open(world: &World) {
    world.quiet().await;
    eventually("no stream is open", || {
        world.metric("paddler_picker_streams") == 0.0
    })
    .await;
}

#[tokio::test]
async fn mebibytes_both_ways_at_once_pass_narrow_windows_though_nothing_is_taken_at_first() {
    let world = Setup::new().start(one()).await;
    let channel = narrow(&world, 65_535).await;
    let big = format!(r#"{{"model":"tiny","prompt":"{}"}}"#, "x".repeat(1 << 20));
    let mut stream = Stream::open(channel).await;
    stream
        .say(request_headers("POST", "/v1/completions", &[], false))
        .await;
    for piece in big.as_bytes().chunks(60_000) {
        stream.say(request_body(piece, false)).await;
    }
    stream.say(request_body("", true)).await;
    eventually("it is placed", || world.open_at("a") == 1).await;
    // An engine that answers at once, while the body that comes back is not taken.
    stream.say(response_headers("200", &[], false)).await;
    let (say, answer) = (stream.sender(), big.clone());
    let saying = tokio::spawn(async move {
        for piece in answer.into_bytes().chunks(60_000) {
            say.send(response_body(piece, false)).await.unwrap();
        }
        say.send(response_body("", true)).await.unwrap();
    });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    stream.placed().await;
    assert!(stream.body().await == big.as_bytes());
    stream.response_head().await;
    assert!(stream.body().await == big.as_bytes());
    saying.await.unwrap();
    stream.close();
    assert!(stream.hear().await.unwrap().is_none());
    none_open(&world).await;
}

#[tokio::test]
async fn one_stream_that_leaves_while_nothing_is_taken_holds_nothing_and_its_connection_goes_on() {
    let world = Setup::new().start(one()).await;
    let channel = narrow(&world, 65_535).await;
    let stream = Stream::open(channel.clone()).await;
    stream.ask((DUPLEX, DUPLEX), &[]).await;
    eventually("it is placed", || world.open_at("a") == 1).await;
    stream.say(response_headers("200", &[], false)).await;
    for _ in 0..4 {
        stream.say(response_body(vec![b'a'; 60_000], false)).await;
    }
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    drop(stream);
    none_open(&world).await;
    let mut other = Stream::open(channel).await;
    other.ask((DUPLEX, DUPLEX), &[]).await;
    other.placed().await;
}

#[tokio::test]
async fn streams_that_are_taken_back_cost_no_connection() {
    let world = Setup::new().start(one()).await;
    let mut kept = world.open().await;
    kept.ask((DUPLEX, DUPLEX), &[]).await;
    kept.placed().await;
    for _ in 0..400 {
        let stream = world.open().await;
        stream.say(request_headers("POST", CHAT, &[], false)).await;
        drop(stream);
    }
    kept.body().await;
    kept.say(response_headers("200", &[], true)).await;
    kept.response_head().await;
    kept.close();
    assert!(kept.hear().await.unwrap().is_none());
    none_open(&world).await;
    // As many at once, and then none.
    let mut many = Vec::new();
    for _ in 0..300 {
        let stream = world.open().await;
        stream.ask((DUPLEX, DUPLEX), &[]).await;
        many.push(stream);
    }
    eventually("all are placed", || world.open_at("a") == 300).await;
    drop(many);
    none_open(&world).await;
}

#[derive(Debug)]
struct Panics;

impl Annotate for Panics {
    fn annotate(&self, headers: &HeaderMap, _: &mut RequestFacts) {
        assert!(!headers.contains_key("x-panic"), "as it was asked to");
    }
}

#[tokio::test]
async fn a_stream_that_panics_ends_with_an_error_and_alone() {
    let setup = Setup::new().with(|setup| setup.router.annotate = Some(Arc::new(Panics)));
    let world = setup.start(one()).await;
    let mut other = world.open().await;
    other.ask((DUPLEX, DUPLEX), &[]).await;
    other.placed().await;
    let mut stream = world.open().await;
    stream.ask((DUPLEX, DUPLEX), &[("x-panic", "1")]).await;
    let status = stream.hear().await.unwrap_err();
    assert_ne!(status.code(), tonic::Code::Ok);
    other.body().await;
    other.say(response_headers("200", &[], true)).await;
    other.response_head().await;
    other.close();
    assert!(matches!(other.hear().await, Ok(None)));
    none_open(&world).await;
}

#[tokio::test]
async fn what_an_engine_says_after_its_event_stream_was_ended_here_goes_nowhere() {
    let idle = |setup: &mut Setup| setup.router.timeouts.idle = std::time::Duration::from_millis(30);
    let world = Setup::new().with(idle).start(one()).await;
    for trailers in [false, true] {
        let mut stream = world.open().await;
        stream.ask((DUPLEX, DUPLEX), &[]).await;
        stream.placed().await;
        stream.body().await;
        let kind = ("content-type", "text/event-stream");
        stream.say(response_headers("200", &[kind], false)).await;
        stream.response_head().await;
        stream.say(response_body("data: 1\n\n", false)).await;
        stream.body().await;
        for _ in 0..20 {
            stream.say(response_body(vec![b'a'; 60_000], false)).await;
        }
        if trailers {
            stream.say(response_trailers()).await;
        } else {
            stream.say(response_body("", true)).await;
        }
        stream.close();
        match stream.hear().await {
            Ok(None) => {}
            other => panic!("it was said already: {other:?}"),
        }
        none_open(&world).await;
    }
}

#[tokio::test]
async fn one_who_leaves_after_an_event_stream_was_ended_here_hears_no_error() {
    let idle = |setup: &mut Setup| setup.router.timeouts.idle = std::time::Duration::from_millis(30);
    let world = Setup::new().with(idle).start(one()).await;
    let mut stream = world.open().await;
    stream.ask((DUPLEX, DUPLEX), &[]).await;
    stream.placed().await;
    stream.body().await;
    let kind = ("content-type", "text/event-stream");
    stream.say(response_headers("200", &[kind], false)).await;
    stream.response_head().await;
    stream.say(response_body("data: 1\n\n", false)).await;
    stream.body().await;
    stream.close();
    let heard = stream.hear().await;
    assert!(matches!(heard, Ok(None)), "{heard:?}");
}

#[tokio::test]
async fn an_event_stream_that_goes_silent_where_envoy_has_its_own_copy_is_broken_off() {
    let idle = |setup: &mut Setup| setup.router.timeouts.idle = std::time::Duration::from_millis(30);
    let world = Setup::new().with(idle).start(one()).await;
    let mut stream = world.open().await;
    stream.ask((DUPLEX, STREAMED), &[]).await;
    stream.placed().await;
    stream.body().await;
    let kind = ("content-type", "text/event-stream");
    stream.say(response_headers("200", &[kind], false)).await;
    stream.response_head().await;
    stream.say(response_body("data: 1\n\n", false)).await;
    stream.hear().await.unwrap().unwrap();
    // What is said in its place reaches nobody, so it must not look whole.
    assert_eq!(stream.hear().await.unwrap_err().code(), tonic::Code::Aborted);
    none_open(&world).await;
}

#[tokio::test]
async fn streams_of_which_nothing_is_taken_hold_up_no_other_on_their_connection() {
    let world = Setup::new().start(one()).await;
    let channel = narrow(&world, 16 << 20).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut stream = Stream::open(channel.clone()).await;
        stream.ask((DUPLEX, DUPLEX), &[]).await;
        stream.placed().await;
        stream.body().await;
        stream.say(response_headers("200", &[], false)).await;
        let say = stream.sender();
        let pouring = async { while say.send(response_body(vec![b'a'; 60_000], false)).await.is_ok() {} };
        let poured = tokio::time::timeout(std::time::Duration::from_millis(200), pouring).await;
        assert!(poured.is_err());
        held.push(stream);
    }
    let mut other = Stream::open(channel).await;
    other.ask((DUPLEX, DUPLEX), &[]).await;
    other.placed().await;
    assert_eq!(other.body().await, BODY.as_bytes());
}
