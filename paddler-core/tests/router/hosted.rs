//! Does what a fallback to somebody else's API has stored stay there, and the operator's key with the operator?

use std::sync::Arc;

use http::Request;
use paddler_core::forward::Body;
use paddler_core::request::{ModelRule, ModelRules};
use paddler_core::upstream::http::UpstreamKey;
use paddler_core::upstream::{Engine, ModelEntry, Models, Only, Traffic, UpstreamId, UpstreamSpec};
use serde_json::{Value, json};

use super::client::{Answer, CHAT, HANG, ask, of_model, post};
use super::stub::{Do, Stub};
use super::world::{Setup, World, spec};

const RESPONSES: &str = "/v1/responses";

fn serves(id: &str, url: &str) -> UpstreamSpec {
    let models = Models::Listed([ModelEntry::new(id)].into());
    spec(id, url).models(models)
}

/// Somebody else's API, with the operator's key.
fn hosted(stub: &Stub, traffic: Traffic) -> UpstreamSpec {
    let mut spec = serves("hosted", &stub.url);
    (spec.engine, spec.traffic) = (Engine::Openai, traffic);
    spec.extensions.insert(UpstreamKey::new("sk-own").unwrap());
    spec
}

/// `big` falls back to these.
async fn world<const N: usize>(models: [&'static str; N], specs: impl Into<Vec<UpstreamSpec>>) -> World {
    let rules = ModelRules::new([("big", ModelRule::default().or_else(models))]).unwrap();
    Setup::new()
        .queue(9, HANG)
        .with(|setup| setup.options.models = Arc::new(rules))
        .start(specs.into())
        .await
}

fn fallback(answer: &Answer) -> Option<&str> {
    answer.header("x-paddler-fallback")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_builds_on_kept_things_does_not_fall_back_where_nobody_knows_who_keeps_them() {
    let api = Stub::start([Do::ok("{}")]).await;
    let world = world(["hosted"], [hosted(&api, Traffic::Fallback)]).await;
    let file = json!([{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}]);
    let in_chat = json!([{"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}]);
    for (path, key, value, stays) in [
        (RESPONSES, "previous_response_id", json!("resp_1"), true),
        (RESPONSES, "conversation", json!("conv_1"), true),
        (RESPONSES, "conversation", json!({"id": "conv_1"}), true),
        (RESPONSES, "conversation", json!({}), true),
        (RESPONSES, "conversation", Value::Null, false),
        (RESPONSES, "input", file, true),
        (
            RESPONSES,
            "input",
            json!([{"role": "user", "content": "file_id"}]),
            false,
        ),
        (CHAT, "messages", in_chat, true),
    ] {
        let mut body = json!({"model": "big", "input": "Hi"});
        body[key] = value;
        let before = api.seen().len();
        let answer = post(world.addr, path, &body).await;
        let expected = if stays { (404, None) } else { (200, Some("hosted")) };
        assert_eq!((answer.status, fallback(&answer)), expected, "{body}");
        assert_eq!(api.seen().len() - before, usize::from(!stays), "{body}");
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_builds_on_kept_things_goes_to_whoever_keeps_them() {
    let stub = |id: &str| Stub::start([Do::ok(&format!(r#"{{"id":"{id}"}}"#))]);
    let stubs = [stub("thing_a").await, stub("thing_b").await];
    let specs = [spec("thing_a", &stubs[0].url), spec("thing_b", &stubs[1].url)];
    let world = world(["hosted"], specs).await;
    let made = post(world.addr, "/v1/files", &json!({})).await.json()["id"].clone();
    for (key, value) in [
        ("conversation", json!({"id": made})),
        (
            "input",
            json!([{"role": "user", "content": [{"type": "input_file", "file_id": made}]}]),
        ),
    ] {
        for _ in 0..8 {
            let mut body = json!({"input": "Hi"});
            body[key] = value.clone();
            assert_eq!(
                post(world.addr, RESPONSES, &body).await.json()["id"],
                made,
                "{body}"
            );
        }
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_fallback_has_stored_is_read_and_cancelled_there() {
    let own = Stub::start([Do::ok("{}")]).await;
    for traffic in [Traffic::All, Traffic::Named, Traffic::Fallback] {
        let api = Stub::start([Do::ok(r#"{"id":"resp_h","status":"queued"}"#)]).await;
        let world = world(["hosted"], [hosted(&api, traffic), serves("own", &own.url)]).await;
        let body = json!({"model": "big", "input": "Hi", "background": true});
        let made = post(world.addr, RESPONSES, &body).await;
        assert_eq!((made.status, fallback(&made)), (200, Some("hosted")));
        let headers = "content-type: application/json\r\n";
        for (method, path, body) in [
            ("GET", "/v1/responses/resp_h", ""),
            ("POST", "/v1/responses/resp_h/cancel", "{}"),
            ("DELETE", "/v1/responses/resp_h", ""),
            (
                "POST",
                RESPONSES,
                r#"{"input":"And?","previous_response_id":"resp_h"}"#,
            ),
        ] {
            let before = api.seen().len();
            let answer = ask(world.addr, method, path, headers, body).await;
            assert_eq!(
                answer.status,
                200,
                "{traffic:?} {method} {path}: {}",
                answer.text()
            );
            assert_eq!(api.seen().len() - before, 1, "{traffic:?} {method} {path}");
        }
        // What nobody has stored, and what a host alone sends there, is no reason.
        let unknown = ask(world.addr, "GET", "/v1/responses/resp_x", headers, "").await;
        assert_eq!(unknown.status, 200);
        let mut request = Request::get("/v1/files").body(Body::empty()).unwrap();
        let only = Only([UpstreamId::new("hosted").unwrap()].into());
        request.extensions_mut().insert(only);
        let status = world.router.handle(request).await.status().as_u16();
        assert_eq!(status == 200, traffic == Traffic::All, "{traffic:?}: {status}");
        world.quiet().await;
    }
    assert!(own.seen().iter().all(|request| !request.contains("resp_h")));
}

fn refuses(status: &str) -> Do {
    let body = r#"{"error":"Incorrect API key: sk-own***wxyz"}"#;
    let head = format!(
        "HTTP/1.1 {status}\r\nopenai-organization: acme\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    Do::say(&format!("{head}{body}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_operators_key_is_wrong_the_next_one_is_asked_and_the_client_sees_nothing_of_it() {
    let small = Stub::start([Do::ok("{}")]).await;
    for status in ["401 Unauthorized", "403 Forbidden"] {
        let api = Stub::start([refuses(status)]).await;
        let specs = [hosted(&api, Traffic::Fallback), serves("small", &small.url)];
        let world = world(["hosted", "small"], specs).await;
        let answer = post(world.addr, CHAT, &of_model("big")).await;
        assert_eq!(
            (answer.status, fallback(&answer)),
            (200, Some("small")),
            "{status}"
        );
        assert_eq!(api.seen().len(), 1, "{status}");
        world.quiet().await;
        drop(world);
        let world = self::world(["hosted"], [hosted(&api, Traffic::Fallback)]).await;
        let answer = post(world.addr, CHAT, &of_model("big")).await;
        assert_eq!(
            (answer.status, answer.reason()),
            (502, "upstream_key"),
            "{status}"
        );
        let text = answer.text();
        assert!(text.contains("hosted") && text.contains("api_key_file"), "{text}");
        assert!(!text.contains("sk-own") && answer.header("openai-organization").is_none());
        assert_eq!(answer.header("x-should-retry"), Some("false"));
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_with_the_clients_own_key_is_answered_as_it_is() {
    for (status, code) in [("401 Unauthorized", 401), ("403 Forbidden", 403)] {
        let api = Stub::start([refuses(status)]).await;
        let mut spec = hosted(&api, Traffic::Named);
        spec.extensions.remove::<UpstreamKey>();
        let world = world(["hosted"], [spec]).await;
        let answer = post(world.addr, CHAT, &of_model("hosted")).await;
        assert_eq!((answer.status, answer.header("x-paddler-reason")), (code, None));
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_upstream_of_the_same_model_serves_it_and_the_first_is_left_alone_soon() {
    let (wrong, right) = (
        Stub::start([refuses("401 Unauthorized")]).await,
        Stub::start([Do::ok("{}")]).await,
    );
    let with_key = |id: &str, stub: &Stub| {
        let mut spec = spec(id, &stub.url);
        spec.extensions.insert(UpstreamKey::new("sk-own").unwrap());
        spec
    };
    let world = world(["hosted"], [with_key("wrong", &wrong), with_key("right", &right)]).await;
    for n in 0..40 {
        let answer = post(world.addr, CHAT, &json!({"messages": [], "seed": n})).await;
        assert_eq!(answer.status, 200, "{n}: {}", answer.text());
    }
    assert!((1..20).contains(&wrong.seen().len()), "{}", wrong.seen().len());
    world.quiet().await;
}
