//! What the endpoint picker protocol adds.

use std::sync::Arc;

use paddler_core::upstream::http::UpstreamKey;
use paddler_core::upstream::{ModelEntry, Models};
use paddler_envoy::GatewayHeaders;

use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response as Heard;

use super::envoy::*;
use super::world::{Setup, abc, one, spec};

fn within(
    value: envoy_types::pb::google::protobuf::Value,
) -> envoy_types::pb::envoy::service::ext_proc::v3::ProcessingRequest {
    let head = request_headers("POST", CHAT, &[], false);
    with_metadata(
        head,
        "envoy.lb.subset_hint",
        "x-gateway-destination-endpoint-subset",
        value,
    )
}

#[tokio::test]
async fn a_request_goes_only_where_the_subset_allows() {
    let world = Setup::new().start(abc()).await;
    for (subset, expected) in [
        (&["10.0.0.2:8000"][..], &["10.0.0.2:8000"][..]),
        (
            &["10.0.0.2:8000", "10.0.0.3:8000", "10.9.9.9:1"],
            &["10.0.0.2:8000", "10.0.0.3:8000"],
        ),
        (&["10.0.0.1"], &["10.0.0.1:8000"]),
        (&["::ffff:10.0.0.1"], &["10.0.0.1:8000"]),
    ] {
        let mut stream = world.open().await;
        stream.say(within(list(subset))).await;
        stream.say(request_body(BODY, true)).await;
        let mut endpoints = stream.placed().await.endpoints;
        endpoints.sort_unstable();
        assert_eq!(endpoints, expected);
    }
    for nobody in [&[][..], &["10.0.0.2:8001"], &["gpu-1"]] {
        let mut stream = world.open().await;
        stream.say(within(list(nobody))).await;
        stream.say(request_body(BODY, true)).await;
        let (status, headers, _) = stream.immediate().await;
        assert_eq!(
            (status, headers["x-paddler-reason"].as_str()),
            (503, "not_in_subset")
        );
    }
    world.quiet().await;
}

#[tokio::test]
async fn so_many_fallbacks_are_named_as_are_wanted() {
    for fallbacks in 0..3 {
        let world = Setup::new()
            .with(|setup| setup.picker.fallbacks = fallbacks)
            .start(abc())
            .await;
        let mut stream = world.open().await;
        stream.ask((DUPLEX, DUPLEX), &[]).await;
        assert_eq!(stream.placed().await.endpoints.len(), 1 + fallbacks);
    }
}

#[tokio::test]
async fn the_lease_is_where_the_request_was_served() {
    let world = Setup::new().start(abc()).await;
    let told = |head| {
        let value = text("10.0.0.3:8000");
        with_metadata(head, "envoy.lb", "x-gateway-destination-endpoint-served", value)
    };
    for _ in 0..6 {
        let mut stream = world.open().await;
        stream.ask((DUPLEX, DUPLEX), &[]).await;
        stream.placed().await;
        stream.body().await;
        stream.say(told(response_headers("200", &[], false))).await;
        stream.response_head().await;
        assert_eq!(
            [world.open_at("a"), world.open_at("b"), world.open_at("c")],
            [0, 0, 1]
        );
        stream.say(response_body("", true)).await;
        stream.body().await;
        world.quiet().await;
    }
}

#[tokio::test]
async fn another_model_is_put_in_the_place_of_the_one_that_the_body_names() {
    let models = Models::Listed(vec![
        ModelEntry::new("llama"),
        ModelEntry::adapter("sql", "llama"),
    ]);
    let upstream = spec("a", "http://10.0.0.1:8000").models(models);
    let world = Setup::new().start([upstream]).await;
    let rewritten = BODY.replace("tiny", "sql");
    let more = [
        ("x-gateway-model-name-rewrite", "sql"),
        ("x-gateway-inference-objective", "critical"),
        ("x-gateway-destination-endpoint", "6.6.6.6:6"),
        ("x-gateway-destination-endpoint-served", "6.6.6.6:6"),
    ];
    let mut stream = world.open().await;
    stream.ask((DUPLEX, DUPLEX), &more).await;
    let mut placed = stream.placed().await;
    assert_eq!(placed.endpoints, ["10.0.0.1:8000"]);
    assert_eq!(placed.set["x-gateway-model-name"], "sql");
    assert_eq!(placed.set["x-gateway-base-model-name"], "llama");
    assert_eq!(placed.set["content-length"], rewritten.len().to_string());
    placed.removed.sort_unstable();
    // What belongs to the gateway goes no further; the destination is another one.
    assert!(
        placed
            .removed
            .contains(&"x-gateway-inference-objective".to_owned())
    );
    assert!(
        placed
            .removed
            .contains(&"x-gateway-model-name-rewrite".to_owned())
    );
    assert!(
        placed
            .removed
            .contains(&"x-gateway-destination-endpoint-served".to_owned())
    );
    assert_eq!(stream.body().await, rewritten.as_bytes());

    // In one piece it is given whole, and only if it is another one.
    for (more, body) in [(&more[..], Some(rewritten.into_bytes())), (&[], None)] {
        let mut stream = world.open().await;
        stream
            .say(with_modes(
                request_headers("POST", CHAT, more, false),
                BUFFERED,
                DUPLEX,
            ))
            .await;
        stream.hear().await.unwrap();
        let asked = if more.is_empty() {
            BODY.replace("tiny", "llama")
        } else {
            BODY.to_owned()
        };
        stream.say(request_body(asked, true)).await;
        assert_eq!(stream.placed().await.body, body);
    }
}

#[tokio::test]
async fn the_gateways_headers_can_be_left_out_of_account() {
    let world = Setup::new()
        .with(|setup| setup.picker.gateway_headers = GatewayHeaders::Ignored)
        .start(one())
        .await;
    let mut stream = world.open().await;
    stream
        .ask((DUPLEX, DUPLEX), &[("x-gateway-model-name-rewrite", "sql")])
        .await;
    let placed = stream.placed().await;
    assert_eq!(placed.removed, ["x-gateway-model-name-rewrite"]);
    assert_eq!(stream.body().await, BODY.as_bytes());
}

#[tokio::test]
async fn an_upstreams_key_takes_the_place_of_the_clients() {
    let mut upstream = spec("a", "http://10.0.0.1:8000");
    upstream.extensions.insert(UpstreamKey::new("secret").unwrap());
    let world = Setup::new().start([upstream]).await;
    let mut stream = world.open().await;
    stream
        .ask(
            (DUPLEX, DUPLEX),
            &[("authorization", "Bearer his"), ("x-api-key", "his")],
        )
        .await;
    let placed = stream.placed().await;
    assert_eq!(placed.set["authorization"], "Bearer secret");
    assert_eq!(placed.removed, ["x-api-key"]);
}

#[tokio::test]
async fn an_objective_says_who_waits_first() {
    let upstream = spec("a", "http://10.0.0.1:8000").max_in_flight(1);
    let world = Setup::new().start([upstream]).await;
    let ask = async |objective: &str| {
        let stream = world.open().await;
        stream
            .ask((DUPLEX, DUPLEX), &[("x-gateway-inference-objective", objective)])
            .await;
        stream
    };
    let mut first = ask("standard").await;
    first.placed().await;
    let mut last = ask("standard").await;
    assert!(last.is_silent().await);
    let mut urgent = ask("critical").await;
    assert!(urgent.is_silent().await);
    first.body().await;
    first.say(response_headers("200", &[], true)).await;
    urgent.placed().await;
    assert!(last.is_silent().await);
    drop(Arc::new((first, last, urgent)));
    world.quiet().await;
}

#[tokio::test]
async fn of_several_upstreams_at_one_address_the_one_that_was_picked_has_answered() {
    let world = Setup::new()
        .start(["a", "b"].map(|id| spec(id, "http://10.0.0.1:8000")))
        .await;
    for _ in 0..8 {
        let mut stream = world.open().await;
        stream.ask((DUPLEX, DUPLEX), &[]).await;
        stream.placed().await;
        stream.body().await;
        let open = || ["a", "b"].map(|id| world.open_at(id));
        let before = open();
        let served = "x-gateway-destination-endpoint-served";
        let head = response_headers("200", &[], false);
        stream
            .say(with_metadata(head, "envoy.lb", served, text("10.0.0.1:8000")))
            .await;
        stream.response_head().await;
        assert_eq!(open(), before);
        drop(stream);
        world.quiet().await;
    }
}

#[tokio::test]
async fn a_body_that_names_no_model_is_not_said_to_ask_for_one() {
    let world = Setup::new().start(one()).await;
    let mut stream = world.open().await;
    let rewrite = [("x-gateway-model-name-rewrite", "small")];
    stream.say(request_headers("POST", CHAT, &rewrite, false)).await;
    stream.say(request_body(r#"{"messages":[]}"#, true)).await;
    let placed = stream.placed().await;
    assert!(!placed.set.contains_key("x-gateway-model-name"));
    assert_eq!(stream.body().await, br#"{"messages":[]}"#);
}

#[tokio::test]
async fn headers_that_some_servers_take_for_others_go_no_further() {
    let world = Setup::new().start(one()).await;
    let mut stream = world.open().await;
    let names = [
        "x-http-method-override",
        "x_api_key",
        "content_length",
        "x_forwarded_for",
    ];
    stream.ask((DUPLEX, DUPLEX), &names.map(|name| (name, "7"))).await;
    let placed = stream.placed().await;
    for name in names {
        assert!(placed.removed.iter().any(|removed| removed == name), "{name}");
    }
}

#[tokio::test]
async fn an_address_is_the_same_however_it_is_written_and_is_named_once() {
    let mapped = spec("mapped", "http://[::ffff:10.0.0.4]:8000");
    let world = Setup::new()
        .start([
            mapped,
            spec("plain", "http://10.0.0.5:8000"),
            spec("twin", "http://10.0.0.5:8000"),
        ])
        .await;
    let mut stream = world.open().await;
    stream.say(within(list(&["10.0.0.4:8000"]))).await;
    stream.say(request_body(BODY, true)).await;
    // Envoy's cluster knows it as it is written.
    assert_eq!(stream.placed().await.endpoints, ["[::ffff:10.0.0.4]:8000"]);
    stream.body().await;
    let served = with_metadata(
        response_headers("200", &[], false),
        "envoy.lb",
        "x-gateway-destination-endpoint-served",
        text("10.0.0.4:8000"),
    );
    stream.say(served).await;
    stream.response_head().await;
    assert_eq!(world.open_at("mapped"), 1);
    let mut stream = world.open().await;
    stream.ask((DUPLEX, DUPLEX), &[]).await;
    let mut endpoints = stream.placed().await.endpoints;
    endpoints.sort_unstable();
    assert_eq!(endpoints, ["10.0.0.5:8000", "[::ffff:10.0.0.4]:8000"]);
}

#[tokio::test]
async fn what_a_client_says_in_the_gateways_name_goes_no_further() {
    let world = Setup::new().start(one()).await;
    let names = [
        "x-gateway-inference-objective",
        "x-gateway-inference-fairness-id",
        "x-gateway-destination-endpoint-subset",
        "x-gateway-destination-endpoint-served",
        "x-gateway-model-name-rewrite",
        "x-gateway-model-name",
        "x-gateway-base-model-name",
        "x-gateway-destination-endpoint",
    ];
    let said = names.map(|name| (name, "10.9.9.9:1"));
    let mut stream = world.open().await;
    stream.say(request_headers("POST", CHAT, &said, false)).await;
    stream.say(request_body(r#"{"messages":[]}"#, true)).await;
    let placed = stream.placed().await;
    assert_eq!(placed.set["x-gateway-destination-endpoint"], "10.0.0.1:8000");
    for name in &names[..7] {
        assert!(placed.removed.iter().any(|removed| removed == name), "{name}");
    }
    // Before there is a place, in BUFFERED.
    let mut stream = world.open().await;
    stream
        .say(with_modes(
            request_headers("POST", CHAT, &said, false),
            BUFFERED,
            DUPLEX,
        ))
        .await;
    let Some(Heard::RequestHeaders(passed)) = stream.hear().await.unwrap() else {
        panic!()
    };
    let removed = passed.response.unwrap().header_mutation.unwrap().remove_headers;
    for name in [&names[..5], &names[7..]].concat() {
        assert!(removed.iter().any(|removed| removed == name), "{name}");
    }
}

#[tokio::test]
async fn what_was_judged_is_where_the_request_goes() {
    let world = Setup::new().start(one()).await;
    let mut stream = world.open().await;
    stream
        .say(request_headers("POST", "/v1//chat/completions?x=1", &[], false))
        .await;
    stream.say(request_body(BODY, true)).await;
    match stream.placed_or_refused().await {
        Ok(placed) => assert_eq!(placed.set[":path"], "/v1/chat/completions?x=1"),
        Err(refused) => panic!("{refused:?}"),
    }
    let mut stream = world.open().await;
    stream.say(request_headers("POST", CHAT, &[], false)).await;
    stream.say(request_body(BODY, true)).await;
    assert!(!stream.placed().await.set.contains_key(":path"));
}
