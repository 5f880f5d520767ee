//! Is a model that the path names judged, meant and answered for as one that the body names?

use std::sync::Arc;

use paddler_core::forward::{Authorise, Client};
use paddler_core::request::{ModelRule, ModelRules};
use paddler_core::upstream::{ModelEntry, Models};
use serde_json::json;

use super::client::{ask, get, post};
use super::stub::{Do, Stub};
use super::world::{Setup, World, spec};

const GENERATE: &str = "/v2/models/llama/generate";

/// Triton with `llama`, and another one with `tiny`.
async fn two(rule: ModelRule, setup: Setup, answers: impl Fn() -> Do) -> ([Stub; 2], World) {
    let rules = ModelRules::new([("chat".to_owned(), rule)]).unwrap();
    let stubs = [Stub::start([answers()]).await, Stub::start([answers()]).await];
    let listed = |name: &str| Models::Listed([ModelEntry::new(name)].into());
    let upstreams = [
        spec("a", &stubs[0].url).models(listed("llama")),
        spec("b", &stubs[1].url).models(listed("tiny")),
    ];
    let setup = setup.with(|setup| setup.options.models = Arc::new(rules));
    (stubs, setup.start(upstreams).await)
}

fn answer() -> Do {
    let body = r#"{"model_name":"llama","model_version":"1","text_output":"model_name"}"#;
    Do::say(&format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))
}

/// The first line and the body of the last request.
fn last(stub: &Stub) -> (String, String) {
    let request = stub.seen().pop().unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_goes_where_the_model_is_under_its_own_name_and_with_the_body_as_it_came() {
    let (stubs, world) = two(ModelRule::alias("llama"), Setup::new(), answer).await;
    // The key is a tensor here, and no second model.
    let body = json!({"text_input": "Hi", "model": "tiny", "stream": false});
    for (asked, at, path) in [
        (GENERATE, 0, GENERATE),
        (
            "/v2/models/%6clama//generate?x=chat",
            0,
            "/v2/models/llama/generate?x=chat",
        ),
        ("/v2/models/chat/generate", 0, GENERATE),
        (
            "/v2/models/chat/generate_stream?x=1",
            0,
            "/v2/models/llama/generate_stream?x=1",
        ),
        (
            "/v2/models/chat/versions/3/infer",
            0,
            "/v2/models/llama/versions/3/infer",
        ),
        ("/v2/models/tiny/infer", 1, "/v2/models/tiny/infer"),
    ] {
        let response = post(world.addr, asked, &body).await;
        assert_eq!(response.status, 200, "{asked}: {}", response.text());
        assert_eq!(response.json()["model_name"], "llama");
        assert_eq!(
            last(&stubs[at]),
            (format!("POST {path} HTTP/1.1"), body.to_string()),
            "{asked}"
        );
    }
    for path in ["", "/config", "/ready", "/versions/1"] {
        let response = get(world.addr, &format!("/v2/models/chat{path}")).await;
        assert_eq!(response.status, 200, "{path}");
        assert_eq!(last(&stubs[0]).0, format!("GET /v2/models/llama{path} HTTP/1.1"));
    }
    // Tensors as bytes, behind what says what they are.
    let binary = "content-type: application/octet-stream\r\ninference-header-content-length: 2\r\n";
    let response = ask(world.addr, "POST", "/v2/models/chat/infer", binary, "{}\0\u{1}").await;
    assert_eq!(response.status, 200);
    assert_eq!(last(&stubs[0]).1, "{}\0\u{1}");
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_closed_or_no_json_is_refused_in_its_own_words() {
    let (stubs, world) = two(ModelRule::alias("llama"), Setup::new(), answer).await;
    let body = json!({"text_input": "Hi"});
    let unknown = post(world.addr, "/v2/models/gone/generate", &body).await;
    assert_eq!((unknown.status, unknown.reason()), (404, "model_not_found"));
    assert!(
        unknown.json()["error"].as_str().unwrap().contains("\"gone\""),
        "{}",
        unknown.text()
    );
    for path in [
        "/v2/repository/index",
        "/v2/repository/models/llama/unload",
        "/v2/models/llama/trace/setting",
        "/v2/systemsharedmemory/region/x/register",
        "/v2/logging",
    ] {
        let closed = post(world.addr, path, &body).await;
        assert_eq!(closed.status, 403, "{path}");
        assert!(closed.json()["error"].is_string(), "{}", closed.text());
    }
    let malformed = ask(
        world.addr,
        "POST",
        GENERATE,
        "content-type: application/json\r\n",
        "{",
    )
    .await;
    assert_eq!((malformed.status, malformed.reason()), (400, "malformed_body"));
    assert_eq!(stubs.each_ref().map(|stub| stub.seen().len()), [0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_name_what_was_asked_for_where_that_is_wished() {
    let mut rule = ModelRule::alias("llama");
    rule.settings.rewrite_response = Some(true);
    let (_stubs, world) = two(rule.clone(), Setup::new(), answer).await;
    let response = post(
        world.addr,
        "/v2/models/chat/generate",
        &json!({"text_input": "Hi"}),
    )
    .await;
    let expected = json!({"model_name": "chat", "model_version": "1", "text_output": "model_name"});
    assert_eq!(response.json(), expected);
    let events = "data: {\"model_name\":\"llama\",\"text_output\":\"a\"}\n\n";
    let streams = move || {
        Do::say(&format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncontent-length: {}\r\n\r\n{events}{events}",
            2 * events.len()
        ))
    };
    let (_stubs, world) = two(rule, Setup::new(), streams).await;
    let path = "/v2/models/chat/generate_stream";
    let response = post(world.addr, path, &json!({"text_input": "Hi"})).await;
    assert_eq!(response.text(), events.replace("llama", "chat").repeat(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_cut_short_ends_with_an_error_in_its_own_words() {
    let event = "data: {\"model_name\":\"llama\",\"text_output\":\"a\"}\n\n";
    let cut = move || {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        Do::SayAndClose(format!("{head}{:x}\r\n{event}\r\n", event.len()).into_bytes())
    };
    let (_stubs, world) = two(ModelRule::alias("llama"), Setup::new(), cut).await;
    let path = "/v2/models/chat/generate_stream";
    let mut client = super::client::Client::connect(world.addr).await;
    client.post(path, &json!({"text_input": "Hi"})).await;
    client
        .until("data: {\"error\":\"the upstream's answer was cut short")
        .await;
    drop(client);
    world.quiet().await;
}

/// Everybody may use `llama` alone.
#[derive(Debug)]
struct OnlyLlama;

impl Authorise for OnlyLlama {
    fn client(&self, _key: &[u8]) -> Option<Arc<Client>> {
        let mut client = Client::new("a");
        client.models = Some([Arc::from("llama")].into());
        Some(Arc::new(client))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_path_is_a_way_round_a_keys_models() {
    let setup = Setup::new().with(|setup| setup.options.keys = Some(Arc::new(OnlyLlama)));
    let (stubs, world) = two(ModelRule::alias("tiny"), setup, answer).await;
    let key = "authorization: Bearer k\r\ncontent-type: application/json\r\n";
    // What the body says is no permission.
    let body = r#"{"model":"llama","text_input":"Hi"}"#;
    for (path, status) in [
        (GENERATE, 200),
        ("/v2/models/tiny/generate", 403),
        ("/v2/models/%74iny/infer", 403),
        ("/v2/models/x/../tiny/infer", 403),
        ("/v2/models/chat/generate_stream", 403),
    ] {
        let response = ask(world.addr, "POST", path, key, body).await;
        assert_eq!(response.status, status, "{path}: {}", response.text());
    }
    assert_eq!(
        ask(world.addr, "GET", "/v2/models/tiny/config", key, "")
            .await
            .status,
        403
    );
    assert_eq!(stubs.each_ref().map(|stub| stub.seen().len()), [1, 0]);
}
