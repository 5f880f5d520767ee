//! A request from end to end.

use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response as Heard;

use paddler_core::forward::Served;

use super::envoy::*;
use super::world::{Setup, abc, one, spec};

#[tokio::test]
async fn a_request_goes_where_it_is_told_with_its_body_and_its_lease_ends_with_the_answer() {
    let world = Setup::new().start(abc()).await;
    let mut stream = world.open().await;
    stream
        .ask((DUPLEX, DUPLEX), &[("content-type", "application/json")])
        .await;
    let placed = stream.placed().await;
    let mut endpoints = placed.endpoints.clone();
    endpoints.sort_unstable();
    assert_eq!(endpoints, ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"]);
    assert_eq!(placed.metadata, placed.endpoints.join(","));
    assert!(placed.clears_route_cache);
    assert_eq!(placed.set["content-length"], BODY.len().to_string());
    assert_eq!(placed.set["x-gateway-model-name"], "tiny");
    assert_eq!(placed.set["x-gateway-base-model-name"], "tiny");
    assert_eq!(stream.body().await, BODY.as_bytes());
    assert_eq!(world.metric("paddler_upstream_open_weight"), 1.0);

    stream
        .say(response_headers(
            "200",
            &[("content-type", "text/event-stream")],
            false,
        ))
        .await;
    let head = stream.response_head().await;
    assert!(head.contains_key("x-request-id"));
    for event in ["data: 1\n\n", "data: [DONE]\n\n"] {
        stream.say(response_body(event, false)).await;
        let Some(Heard::ResponseBody(answer)) = stream.hear().await.unwrap() else {
            panic!("each event comes back at once")
        };
        assert!(format!("{answer:?}").contains("end_of_stream: false"));
    }
    assert_eq!(world.metric("paddler_upstream_open_weight"), 1.0);
    stream.say(response_body("", true)).await;
    assert_eq!(stream.body().await, b"");
    stream.close();
    assert!(stream.hear().await.unwrap().is_none());
    world.quiet().await;
    assert_eq!(world.metric("paddler_requests_total"), 1.0);
    assert_eq!(world.metric("paddler_cancellations_total"), 0.0);
}

#[tokio::test]
async fn a_request_without_a_body_is_placed_by_its_headers() {
    let world = Setup::new().start(one()).await;
    let mut stream = world.open().await;
    stream.say(request_headers("GET", "/v1/unknown", &[], true)).await;
    assert_eq!(stream.placed().await.endpoints, ["10.0.0.1:8000"]);
    assert!(stream.is_silent().await);
    stream.say(response_headers("404", &[], true)).await;
    stream.response_head().await;
    stream.close();
    assert!(stream.hear().await.unwrap().is_none());
    world.quiet().await;
}

#[tokio::test]
async fn a_body_of_a_mebibyte_comes_back_byte_for_byte_and_so_does_one_in_pieces_of_one_byte() {
    let world = Setup::new().start(one()).await;
    let big = format!(r#"{{"model":"tiny","prompt":"{}"}}"#, "äß".repeat(300_000));
    for (body, piece) in [(big.as_str(), 60_000), (BODY, 1)] {
        let mut stream = world.open().await;
        stream
            .say(request_headers("POST", "/v1/completions", &[], false))
            .await;
        for piece in body.as_bytes().chunks(piece) {
            stream.say(request_body(piece, false)).await;
        }
        stream.say(request_body("", true)).await;
        // A second end is nothing.
        stream.say(request_body("", true)).await;
        stream.placed().await;
        assert_eq!(stream.body().await, body.as_bytes());
        stream.say(response_headers("200", &[], false)).await;
        stream.response_head().await;
        for piece in body.as_bytes().chunks(piece) {
            stream.say(response_body(piece, false)).await;
            stream.hear().await.unwrap().unwrap();
        }
        stream.say(response_body("", true)).await;
        stream.body().await;
    }
    world.quiet().await;
}

#[tokio::test]
async fn trailers_of_a_request_are_refused_and_those_of_an_answer_come_after_its_body() {
    let world = Setup::new().start(one()).await;
    let mut stream = world.open().await;
    stream
        .say(request_headers("POST", CHAT, &[("content-length", "3")], false))
        .await;
    stream.say(request_body(BODY, false)).await;
    stream.say(request_trailers()).await;
    // The client's own length would stay beside a body of another.
    assert_eq!(
        stream.placed_or_refused().await.unwrap_err(),
        (400, "trailers".to_owned())
    );
    let mut stream = world.open().await;
    stream.ask((DUPLEX, DUPLEX), &[]).await;
    stream.placed().await;
    stream.body().await;
    stream.say(response_headers("200", &[], false)).await;
    stream.response_head().await;
    stream.say(response_body("all", false)).await;
    stream.say(response_trailers()).await;
    let Some(Heard::ResponseBody(_)) = stream.hear().await.unwrap() else {
        panic!()
    };
    let Some(Heard::ResponseTrailers(_)) = stream.hear().await.unwrap() else {
        panic!()
    };
    stream.close();
    assert!(stream.hear().await.unwrap().is_none(), "once");
    world.quiet().await;
}

#[tokio::test]
async fn what_the_router_refuses_is_answered_in_its_words() {
    let world = Setup::new().start(one()).await;
    for (path, body, status, reason) in [
        (CHAT, "{", 400, "malformed_body"),
        ("/slots", "{}", 403, "admin_path"),
        ("/v1/../%zz", "{}", 400, "bad_path"),
    ] {
        let mut stream = world.open().await;
        stream.say(request_headers("POST", path, &[], false)).await;
        stream.say(request_body(body, true)).await;
        let (got, headers, text) = stream.immediate().await;
        assert_eq!((got, headers["x-paddler-reason"].as_str()), (status, reason));
        assert!(text.starts_with('{') && headers["content-type"] == "application/json");
    }
    let nobody = Setup::new()
        .with(|setup| setup.router.queue.max_wait_starting = std::time::Duration::from_millis(1))
        .start([])
        .await;
    let mut stream = nobody.open().await;
    stream.ask((DUPLEX, DUPLEX), &[]).await;
    let (status, headers, _) = stream.immediate().await;
    assert_eq!(
        (status, headers["x-paddler-reason"].as_str()),
        (503, "no_upstream")
    );
    assert!(headers.contains_key("retry-after"));
    world.quiet().await;
    nobody.quiet().await;
}

#[tokio::test]
async fn what_the_router_answers_itself_needs_no_upstream() {
    let world = Setup::new().start(one()).await;
    let mut stream = world.open().await;
    stream.say(request_headers("GET", "/v1/models", &[], true)).await;
    let (status, _, body) = stream.immediate().await;
    assert_eq!(status, 200);
    assert!(body.contains(r#""object":"list""#));
}

#[tokio::test]
async fn one_who_finds_no_room_waits_until_another_answer_has_ended() {
    let upstream = spec("a", "http://10.0.0.1:8000").max_in_flight(1);
    let world = Setup::new().start([upstream]).await;
    let mut first = world.open().await;
    first.ask((DUPLEX, DUPLEX), &[]).await;
    first.placed().await;
    first.body().await;
    let mut second = world.open().await;
    second.ask((DUPLEX, DUPLEX), &[]).await;
    assert!(second.is_silent().await);
    assert_eq!(world.metric("paddler_waiting_requests"), 1.0);
    first.say(response_headers("200", &[], true)).await;
    first.response_head().await;
    assert_eq!(second.placed().await.endpoints, ["10.0.0.1:8000"]);
    drop((first, second));
    world.quiet().await;
}

#[tokio::test]
async fn an_address_of_six_is_in_brackets_and_a_name_is_looked_up() {
    for (url, endpoint) in [
        ("http://[::1]:8000", "[::1]:8000"),
        ("https://10.0.0.9", "10.0.0.9:443"),
        ("http://localhost:81", ":81"),
    ] {
        let world = Setup::new().start([spec("a", url)]).await;
        let mut stream = world.open().await;
        stream.ask((DUPLEX, DUPLEX), &[]).await;
        let endpoints = stream.placed().await.endpoints;
        assert!(endpoints[0].ends_with(endpoint) && endpoints[0].parse::<std::net::SocketAddr>().is_ok());
    }
}

#[tokio::test]
async fn a_name_that_leads_nowhere_is_passed_over() {
    let world = Setup::new()
        .start([
            spec("a", "http://nobody.invalid:1"),
            spec("b", "http://10.0.0.2:8000"),
        ])
        .await;
    for _ in 0..4 {
        let mut stream = world.open().await;
        stream.ask((DUPLEX, DUPLEX), &[]).await;
        assert_eq!(stream.placed().await.endpoints, ["10.0.0.2:8000"]);
    }
}

#[tokio::test]
async fn an_upstreams_answer_is_final_whatever_it_is() {
    let world = Setup::new().start(abc()).await;
    for status in ["503", "429", "502", "500"] {
        let mut stream = world.open().await;
        stream.ask((DUPLEX, DUPLEX), &[]).await;
        stream.placed().await;
        stream.body().await;
        stream.say(response_headers(status, &[], false)).await;
        stream.response_head().await;
        stream.say(response_body("no", true)).await;
        assert_eq!(stream.body().await, b"no");
    }
    assert_eq!(world.metric("paddler_retries_total"), 0.0);
    world.quiet().await;
}

#[tokio::test]
async fn an_event_stream_that_goes_silent_ends_with_an_event_that_says_so() {
    let setup = Setup::new().with(|setup| setup.router.timeouts.idle = std::time::Duration::from_millis(30));
    let world = setup.start(one()).await;
    let mut stream = world.open().await;
    stream.ask((DUPLEX, DUPLEX), &[]).await;
    stream.placed().await;
    stream.body().await;
    stream
        .say(response_headers(
            "200",
            &[("content-type", "text/event-stream")],
            false,
        ))
        .await;
    stream.response_head().await;
    stream.say(response_body("data: 1\n\n", false)).await;
    let body = String::from_utf8(stream.body().await).unwrap();
    assert!(
        body.starts_with("data: 1\n\n") && body.contains("upstream_idle"),
        "{body}"
    );
    drop(stream);
    world.quiet().await;
}

#[tokio::test]
async fn any_other_answer_that_goes_silent_is_broken_off() {
    let setup = Setup::new().with(|setup| setup.router.timeouts.idle = std::time::Duration::from_millis(30));
    let world = setup.start(one()).await;
    let mut stream = world.open().await;
    stream.ask((DUPLEX, DUPLEX), &[]).await;
    stream.placed().await;
    stream.body().await;
    stream.say(response_headers("200", &[], false)).await;
    stream.response_head().await;
    stream.say(response_body("half", false)).await;
    stream.hear().await.unwrap().unwrap();
    assert_eq!(stream.hear().await.unwrap_err().code(), tonic::Code::Aborted);
    world.quiet().await;
}

#[tokio::test]
async fn an_upstream_that_never_answers_is_told_as_a_504() {
    let setup =
        Setup::new().with(|setup| setup.router.timeouts.first_byte = std::time::Duration::from_millis(30));
    let world = setup.start(one()).await;
    let mut stream = world.open().await;
    stream.ask((DUPLEX, DUPLEX), &[]).await;
    stream.placed().await;
    stream.body().await;
    let (status, headers, _) = stream.immediate().await;
    assert_eq!(
        (status, headers["x-paddler-reason"].as_str()),
        (504, "first_byte_timeout")
    );
    world.quiet().await;
}

#[tokio::test]
async fn stopping_lets_streams_end_and_cutting_does_not() {
    let world = Setup::new().start(one()).await;
    let mut stream = world.open().await;
    stream.ask((DUPLEX, DUPLEX), &[]).await;
    stream.placed().await;
    world.stop();
    stream.body().await;
    stream.say(response_headers("200", &[], true)).await;
    stream.response_head().await;
    stream.close();
    assert!(stream.hear().await.unwrap().is_none());
    assert_eq!(world.served().await, Served::Whole);

    let world = Setup::new().start(one()).await;
    let mut stream = world.open().await;
    stream.ask((DUPLEX, DUPLEX), &[]).await;
    stream.placed().await;
    world.stop();
    world.cut();
    assert_eq!(world.served().await, Served::Cut(1));
}
