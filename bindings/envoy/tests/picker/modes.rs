//! Other modes than both ways at once.

use envoy_types::pb::envoy::service::ext_proc::v3::CommonResponse;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response as Heard;
use paddler_core::upstream::{ModelEntry, Models, UpstreamSpec};
use paddler_envoy::GatewayHeaders;

use super::envoy::*;
use super::world::{Setup, one};

#[tokio::test]
async fn a_body_in_one_piece_is_placed_by_the_answer_to_it_and_stays_as_it_is() {
    let world = Setup::new().start(one()).await;
    let mut stream = world.open().await;
    stream
        .say(with_modes(
            request_headers("POST", CHAT, &[], false),
            BUFFERED,
            BUFFERED,
        ))
        .await;
    let Some(Heard::RequestHeaders(passed)) = stream.hear().await.unwrap() else {
        panic!()
    };
    assert!(
        passed
            .response
            .unwrap()
            .header_mutation
            .unwrap()
            .set_headers
            .is_empty()
    );
    stream.say(request_body(BODY, true)).await;
    let placed = stream.placed().await;
    assert_eq!((placed.endpoints.len(), placed.body), (1, None));
    assert!(placed.clears_route_cache && !placed.set.contains_key("content-length"));
    stream.say(response_headers("200", &[], false)).await;
    stream.response_head().await;
    assert_eq!(world.open_at("a"), 1);
    stream.say(response_body("all", true)).await;
    let Some(Heard::ResponseBody(passed)) = stream.hear().await.unwrap() else {
        panic!()
    };
    assert!(passed.response.unwrap().body_mutation.is_none());
    world.quiet().await;
}

#[tokio::test]
async fn a_body_that_is_not_shown_is_placed_by_the_headers_and_by_the_model_that_they_name() {
    let world = Setup::new().start(one()).await;
    let more = [
        ("x-gateway-model-name", "m\"1\\\t"),
        ("content-type", "multipart/x"),
        ("content-encoding", "gzip"),
    ];
    for more in [&more[..], &[]] {
        for mode in [NONE, STREAMED] {
            let mut stream = world.open().await;
            stream
                .say(with_modes(
                    request_headers("POST", CHAT, more, false),
                    mode,
                    STREAMED,
                ))
                .await;
            let placed = stream.placed().await;
            assert_eq!(placed.endpoints.len(), 1);
            let named = more.first().map(|(_, model)| *model);
            assert_eq!(
                placed.set.get("x-gateway-base-model-name").map(|name| &**name),
                named
            );
            // What is in the body is the client's to say.
            let names = ["content-type", "content-encoding", "content-length"];
            assert!(names.iter().all(|name| !placed.set.contains_key(*name)));
            assert!(
                names
                    .iter()
                    .all(|name| !placed.removed.contains(&(*name).to_owned()))
            );
            if mode == STREAMED {
                for ends in [false, true] {
                    stream.say(request_body("..", ends)).await;
                    let Some(Heard::RequestBody(_)) = stream.hear().await.unwrap() else {
                        panic!()
                    };
                }
            }
            stream.say(response_headers("200", &[], false)).await;
            stream.response_head().await;
            for ends in [false, true] {
                stream.say(response_body("..", ends)).await;
                let Some(Heard::ResponseBody(_)) = stream.hear().await.unwrap() else {
                    panic!()
                };
            }
        }
    }
    world.quiet().await;
}

#[tokio::test]
async fn an_answer_whose_end_is_not_shown_is_not_followed_and_that_is_said() {
    let world = Setup::new().start(one()).await;
    for _ in 0..2 {
        let mut stream = world.open().await;
        stream.ask((DUPLEX, NONE), &[]).await;
        stream.placed().await;
        stream.body().await;
        stream.say(response_headers("200", &[], false)).await;
        stream.response_head().await;
        assert_eq!(world.open_at("a"), 0);
    }
    assert_eq!(world.metric("paddler_picker_unfollowed_streams_total"), 2.0);
    world.quiet().await;
}

#[tokio::test]
async fn trailers_in_other_modes_are_answered_at_once() {
    let world = Setup::new().start(one()).await;
    let mut stream = world.open().await;
    stream
        .say(with_modes(
            request_headers("POST", CHAT, &[], false),
            BUFFERED,
            STREAMED,
        ))
        .await;
    stream.hear().await.unwrap();
    // Trailers follow, so that this is not the end.
    stream.say(request_body(BODY, false)).await;
    stream.placed().await;
    stream.say(request_trailers()).await;
    let Some(Heard::RequestTrailers(_)) = stream.hear().await.unwrap() else {
        panic!()
    };
    stream.say(response_headers("200", &[], false)).await;
    stream.response_head().await;
    stream.say(response_body("..", false)).await;
    let Some(Heard::ResponseBody(_)) = stream.hear().await.unwrap() else {
        panic!()
    };
    stream.say(response_trailers()).await;
    let Some(Heard::ResponseTrailers(_)) = stream.hear().await.unwrap() else {
        panic!()
    };
    world.quiet().await;
}

#[tokio::test]
async fn an_answer_of_envoys_own_that_comes_before_a_place_passes_as_it_is() {
    let upstream = one().map(|spec| spec.max_in_flight(0));
    let world = Setup::new().start(upstream).await;
    let mut stream = world.open().await;
    stream.ask((DUPLEX, DUPLEX), &[]).await;
    assert!(stream.is_silent().await);
    stream.say(response_headers("413", &[], false)).await;
    let Some(Heard::ResponseHeaders(_)) = stream.hear().await.unwrap() else {
        panic!()
    };
    stream.say(response_body("too large", true)).await;
    assert_eq!(stream.body().await, b"too large");
    world.quiet().await;
}

#[tokio::test]
async fn what_comes_after_the_head_of_an_answer_without_body_phase_passes_at_once() {
    let world = Setup::new().start(one()).await;
    let mut stream = world.open().await;
    stream.ask((DUPLEX, NONE), &[]).await;
    stream.placed().await;
    stream.body().await;
    stream.say(response_headers("200", &[], false)).await;
    stream.response_head().await;
    stream.say(response_trailers()).await;
    assert!(matches!(
        stream.hear().await,
        Ok(Some(Heard::ResponseTrailers(_)))
    ));
    let mut stream = world.open().await;
    let head = request_headers("POST", CHAT, &[], false);
    stream.say(with_modes(head, STREAMED, NONE)).await;
    stream.placed().await;
    stream.say(response_headers("200", &[], false)).await;
    stream.response_head().await;
    stream.say(request_body("more", false)).await;
    assert!(matches!(stream.hear().await, Ok(Some(Heard::RequestBody(_)))));
    stream.say(request_trailers()).await;
    assert!(matches!(stream.hear().await, Ok(Some(Heard::RequestTrailers(_)))));
}

#[tokio::test]
async fn an_answer_of_envoys_own_passes_in_the_mode_in_which_it_is_shown() {
    for (request, response) in [(BUFFERED, STREAMED), (BUFFERED, BUFFERED), (DUPLEX, STREAMED)] {
        let world = Setup::new().start(one()).await;
        let mut stream = world.open().await;
        let head = request_headers("POST", CHAT, &[], false);
        stream.say(with_modes(head, request, response)).await;
        if request == BUFFERED {
            stream.hear().await.unwrap();
        }
        stream.say(response_headers("413", &[], false)).await;
        stream.response_head().await;
        for (piece, ends) in [("", false), ("too large", true)] {
            stream.say(response_body(piece, ends)).await;
            let Ok(Some(Heard::ResponseBody(answer))) = stream.hear().await else {
                panic!("a piece is not answered");
            };
            assert_eq!(answer.response.unwrap_or_default(), CommonResponse::default());
        }
    }
}

#[tokio::test]
async fn a_header_that_does_not_count_names_no_model() {
    for (headers, model) in [(GatewayHeaders::Believed, 404), (GatewayHeaders::Ignored, 0)] {
        let set = |setup: &mut Setup| setup.picker.gateway_headers = headers;
        let small = UpstreamSpec::new("a", "http://10.0.0.1:8000").unwrap();
        let small = small.models(Models::Listed(vec![ModelEntry::new("small")]));
        let world = Setup::new().with(set).start([small]).await;
        let mut stream = world.open().await;
        let head = request_headers("POST", CHAT, &[("x-gateway-model-name", "big")], false);
        stream.say(with_modes(head, NONE, DUPLEX)).await;
        let refused = stream.placed_or_refused().await.err();
        assert_eq!(refused.map_or(0, |refused| refused.0), model);
    }
}

#[tokio::test]
async fn what_is_passed_before_its_body_is_seen_goes_nowhere_that_a_client_names() {
    let world = Setup::new().start(one()).await;
    let destination = ("x-gateway-destination-endpoint", "127.0.0.1:22");
    for ends in [request_trailers(), request_body(BODY, true)] {
        let mut stream = world.open().await;
        let head = request_headers("POST", CHAT, &[destination], false);
        stream.say(with_modes(head, BUFFERED, DUPLEX)).await;
        let Ok(Some(Heard::RequestHeaders(passed))) = stream.hear().await else {
            panic!("the headers do not pass");
        };
        let mutation = passed.response.unwrap().header_mutation.unwrap();
        assert!(mutation.remove_headers.iter().any(|name| name == destination.0));
        let refused = ends.request == request_trailers().request;
        stream.say(ends).await;
        let answer = stream.placed_or_refused().await;
        // Envoy shows no empty body, and would go on with what it has.
        assert_eq!(
            answer
                .err()
                .is_some_and(|refusal| refusal == (400, "trailers".to_owned())),
            refused
        );
    }
}

#[tokio::test]
async fn what_envoy_refuses_before_it_tells_of_the_request_passes_as_it_is() {
    let world = Setup::new().start(one()).await;
    let mut stream = world.open().await;
    stream.say(response_headers("431", &[], false)).await;
    stream.response_head().await;
    stream.say(response_body("too large", true)).await;
    assert_eq!(stream.body().await, b"too large");
    assert_eq!(world.metric("paddler_picker_faults_total"), 0.0);
}

#[tokio::test]
async fn after_an_answer_of_its_own_nothing_more_is_said() {
    let world = Setup::new().start(one()).await;
    let mut stream = world.open().await;
    let head = request_headers("POST", "/slots", &[], false);
    stream.say(with_modes(head, STREAMED, DUPLEX)).await;
    assert_eq!(stream.immediate().await.0, 403);
    stream.say(request_body("late", true)).await;
    assert!(stream.is_silent().await);
}
