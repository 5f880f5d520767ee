//! Does each key open what it should, and no more?

use std::sync::Arc;

use paddler_core::forward::{Keys, RouterOptions};
use paddler_core::upstream::{ModelEntry, Models};
use serde_json::json;

use super::client::{Answer, CHAT, Client, HANG, ask, chat, eventually, of_model, stream};
use super::stub::{Do, Stub};
use super::world::{Setup, World, engine, of, quick, slow, spec};

fn with_keys(options: &mut RouterOptions, list: &str) {
    options.keys = Some(Arc::new(Keys::read(list).unwrap()));
}

fn bearer(key: &str) -> String {
    format!("authorization: Bearer {key}\r\n")
}

async fn post_as(world: &World, key: &str, body: &serde_json::Value) -> Answer {
    ask(world.addr, "POST", CHAT, &bearer(key), body.to_string()).await
}

async fn get_as(world: &World, key: &str, path: &str) -> Answer {
    ask(world.addr, "GET", path, &bearer(key), "").await
}

fn names(list: &Answer) -> Vec<String> {
    let models = list.json()["data"].as_array().unwrap().clone();
    models
        .iter()
        .map(|model| model["id"].as_str().unwrap().to_owned())
        .collect()
}

/// One upstream with a base, its alias and its adapter, another with another model.
async fn two_models(keys: &str) -> (paddler_engine::Engine, World) {
    let engine = engine(quick()).await;
    let mut base = ModelEntry::new("llama-3");
    base.aliases.push("llama".into());
    let family = Models::Listed(vec![base, ModelEntry::adapter("sql", "llama-3")]);
    let other = Models::Listed(vec![ModelEntry::new("secret")]);
    let setup = Setup::new().with(|setup| with_keys(&mut setup.options, keys));
    let world = setup
        .start([
            of("a", &engine).models(family),
            spec("b", engine.url()).models(other),
        ])
        .await;
    (engine, world)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_with_a_list_of_models_opens_those_by_any_of_their_names() {
    let keys = "keys: [{name: few, key: sk-few, models: [llama-3]}, {name: all, key: sk-all}]";
    let (engine, world) = two_models(keys).await;
    for model in ["llama-3", "llama", "sql"] {
        assert_eq!(
            post_as(&world, "sk-few", &of_model(model)).await.status,
            200,
            "{model}"
        );
    }
    assert_eq!(
        names(&get_as(&world, "sk-few", "/v1/models").await),
        ["llama", "llama-3", "sql"]
    );
    assert_eq!(
        names(&get_as(&world, "sk-all", "/v1/models").await),
        ["llama", "llama-3", "secret", "sql"]
    );
    let before = engine.stats().requests;
    let mut unnamed = chat(1);
    unnamed.as_object_mut().unwrap().remove("model");
    let mut empty = chat(1);
    empty["model"] = json!("");
    // What is there and not allowed looks as what is not there.
    for body in [
        of_model("secret"),
        of_model("nobody"),
        of_model("LLAMA-3"),
        unnamed.clone(),
        empty,
    ] {
        let refused = post_as(&world, "sk-few", &body).await;
        assert_eq!(
            (refused.status, refused.reason()),
            (403, "model_not_allowed"),
            "{body}"
        );
        assert_eq!(refused.json()["error"]["type"], "permission_error");
        assert!(refused.text().contains("it may use: llama-3") && !refused.text().contains("\"secret\","));
    }
    for path in ["/v1/models/secret", "/version", "/v1/models/llama-3?model=secret"] {
        let refused = get_as(&world, "sk-few", path).await;
        assert_eq!(
            (refused.status, refused.reason()),
            (403, "model_not_allowed"),
            "{path}"
        );
    }
    let in_query = format!("{CHAT}?%6dodel=secret");
    let refused = ask(
        world.addr,
        "POST",
        &in_query,
        &bearer("sk-few"),
        of_model("llama").to_string(),
    )
    .await;
    assert_eq!(refused.status, 403);
    assert_eq!(engine.stats().requests, before, "nothing of that was sent");
    assert_ne!(get_as(&world, "sk-few", "/v1/models/llama-3").await.status, 403);
    assert_eq!(post_as(&world, "sk-all", &of_model("secret")).await.status, 200);
    assert_eq!(post_as(&world, "sk-all", &unnamed).await.status, 200);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adapter_that_is_asked_for_beside_the_model_has_to_be_listed_too() {
    let keys = "keys: [{name: base, key: sk-base, models: [llama-3]}, {name: one, key: sk-one, models: [sql]}, \
                {name: all, key: sk-all}]";
    let (engine, world) = two_models(keys).await;
    let beside = |model: &str, key: &str, adapter: serde_json::Value| {
        let mut body = of_model(model);
        body[key] = adapter;
        body
    };
    for (key, body) in [
        ("sk-one", beside("sql", "lora_path", json!("llama-3"))),
        ("sk-one", beside("sql", "lora_path", json!(["sql", "llama-3"]))),
        ("sk-base", beside("llama-3", "lora_path", json!("secret"))),
        ("sk-base", beside("llama-3", "lora_path", json!("unknown"))),
        ("sk-base", beside("llama-3", "Adapter_Name", json!("secret"))),
        (
            "sk-base",
            beside("llama-3", "lora", json!([{"id": 0, "scale": 1}])),
        ),
        (
            "sk-base",
            beside("llama-3", "parameters", json!({"adapter_id": "secret"})),
        ),
        (
            "sk-base",
            beside("llama-3", "Parameters", json!({"a": {"adapter_id": "secret"}})),
        ),
        ("sk-base", beside("llama-3", "lora_adapters", json!(["secret"]))),
        ("sk-base", beside("llama-3", "lora_task_id", json!(7))),
        ("sk-base", beside("llama-3", "loraPath", json!("secret"))),
        (
            "sk-base",
            beside("llama-3", "extra_body", json!({"peft-id": "secret"})),
        ),
    ] {
        let refused = post_as(&world, key, &body).await;
        assert_eq!(
            (refused.status, refused.reason()),
            (403, "model_not_allowed"),
            "{body}"
        );
    }
    assert_eq!(engine.stats().requests, 0, "nothing of that was sent");
    for (key, body) in [
        ("sk-one", beside("sql", "lora_path", json!("sql"))),
        ("sk-base", beside("llama", "lora_path", json!("sql"))),
        ("sk-base", beside("llama", "lora_path", json!(null))),
        ("sk-base", beside("llama", "lora", json!([]))),
        ("sk-base", beside("llama", "parameters", json!({"top_k": 1}))),
        ("sk-base", beside("llama", "extra_body", json!({"lora": "sql"}))),
        ("sk-all", beside("llama", "lora_path", json!("secret"))),
        (
            "sk-all",
            beside("llama", "extra_body", json!({"lora_task_id": 7})),
        ),
    ] {
        assert_eq!(post_as(&world, key, &body).await.status, 200, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_may_not_know_a_model_is_not_told_of_it() {
    let keys = "keys: [{name: few, key: sk-few, models: [llama-3, gone]}]";
    let (_engine, world) = two_models(keys).await;
    let unknown = post_as(&world, "sk-few", &of_model("gone")).await;
    assert_eq!(unknown.status, 404);
    assert!(
        unknown.text().contains("llama-3") && !unknown.text().contains("secret"),
        "{}",
        unknown.text()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_limit_of_a_key_is_its_own_and_says_when_to_come_again() {
    let keys = "keys:\n  - {name: a, key: sk-a, requests_per_minute: 2}\n  - {name: b, key: sk-b, tokens_per_minute: 1}\n  \
                - {name: c, key: sk-c}\n";
    let engine = engine(quick()).await;
    let setup = Setup::new().with(|setup| with_keys(&mut setup.options, keys));
    let world = setup.start([of("a", &engine)]).await;
    for (key, passed, reason) in [("sk-a", 2, "key_rate"), ("sk-b", 1, "key_tokens")] {
        for _ in 0..passed {
            assert_eq!(post_as(&world, key, &chat(1)).await.status, 200, "{key}");
        }
        let refused = post_as(&world, key, &chat(1)).await;
        assert_eq!((refused.status, refused.reason()), (429, reason));
        let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=300).contains(&after), "{after}");
        assert!(!refused.text().contains(key), "a key is never told");
        assert_eq!(
            get_as(&world, key, "/v1/models").await.status,
            200,
            "that costs nothing"
        );
    }
    assert_eq!(
        post_as(&world, "sk-c", &chat(1)).await.status,
        200,
        "others go on"
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_answers_count() {
    let keys = "keys: [{name: a, key: sk-a, tokens_per_minute: 100}]";
    let engine = engine(quick()).await;
    for body in [chat(400), stream(400)] {
        let setup = Setup::new().with(|setup| with_keys(&mut setup.options, keys));
        let world = setup.start([of("a", &engine)]).await;
        for _ in 0..3 {
            assert_eq!(post_as(&world, "sk-a", &chat(1)).await.status, 200);
            world.quiet().await;
        }
        assert_eq!(post_as(&world, "sk-a", &body).await.status, 200);
        world.quiet().await;
        assert_eq!(post_as(&world, "sk-a", &chat(1)).await.reason(), "key_tokens");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_a_stream_of_lines_before_its_last_has_used_what_came() {
    const LINE: &str = "{\"message\":{\"content\":\"a\"},\"done\":false}\n";
    // The last line, in which Ollama says what was used, never comes.
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
    let lines = LINE.repeat(600) + "{\"last\":";
    let stub = Stub::start([Do::say(&format!("{head}{:x}\r\n{lines}\r\n", lines.len()))]).await;
    let keys = "keys: [{name: a, key: sk-a, tokens_per_minute: 500}]";
    let setup = Setup::new().with(|setup| with_keys(&mut setup.options, keys));
    let world = setup.start([spec("a", &stub.url)]).await;
    let mut client = Client::connect(world.addr).await;
    let headers = format!("content-type: application/json\r\n{}", bearer("sk-a"));
    client
        .send("POST", "/api/chat", &headers, chat(1).to_string())
        .await;
    assert_eq!(client.head().await.unwrap().status, 200);
    client.until("{\"last\":").await;
    drop(client);
    world.quiet().await;
    let next = ask(world.addr, "POST", "/api/chat", &headers, chat(1).to_string()).await;
    assert_eq!((next.status, next.reason()), (429, "key_tokens"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_that_the_engine_refuses_costs_its_key_a_minutes_worth_at_most() {
    let wrong = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    let stub = Stub::start([Do::say(wrong)]).await;
    let keys = "keys: [{name: a, key: sk-a, tokens_per_minute: 100000}]";
    let setup = Setup::new().with(|setup| with_keys(&mut setup.options, keys));
    let world = setup.start([spec("a", &stub.url)]).await;
    // Ten million tokens, as they are estimated.
    let parts = vec![json!({"image_url": {"url": ""}}); 20_000];
    let body = json!({"messages": [{"role": "user", "content": parts}]});
    assert_eq!(post_as(&world, "sk-a", &body).await.status, 400);
    world.quiet().await;
    let next = post_as(&world, "sk-a", &body).await;
    assert_eq!(
        next.reason(),
        "key_tokens",
        "whoever sends what is refused does not ride free"
    );
    let after: u64 = next.header("retry-after").unwrap().parse().unwrap();
    assert!(after <= 60, "{after} s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_whose_tokens_count_is_asked_for_in_clear() {
    let keys = "keys: [{name: a, key: sk-a, tokens_per_minute: 1000}, {name: b, key: sk-b}]";
    let stub = Stub::start([Do::ok("{}")]).await;
    let setup = Setup::new().with(|setup| with_keys(&mut setup.options, keys));
    let world = setup.start([spec("a", &stub.url)]).await;
    for key in ["sk-a", "sk-b"] {
        let headers = format!("accept-encoding: gzip\r\n{}", bearer(key));
        let answer = ask(world.addr, "POST", CHAT, &headers, chat(1).to_string()).await;
        assert_eq!(answer.status, 200);
    }
    let asked = |number: usize| stub.seen()[number].to_ascii_lowercase();
    assert!(asked(0).contains("accept-encoding: identity\r\n") && !asked(0).contains("gzip"));
    assert!(asked(1).contains("accept-encoding: gzip\r\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_no_engine_has_taken_uses_no_tokens() {
    let keys = "keys: [{name: a, key: sk-a, tokens_per_minute: 1}]";
    let engine = engine(quick()).await;
    let loading = paddler_engine::Fault::Status {
        code: 503,
        retry_after: None,
    };
    engine.set_fault(Some(loading)).unwrap();
    let setup = Setup::new().with(|setup| with_keys(&mut setup.options, keys));
    let world = setup.start([of("a", &engine)]).await;
    // Nobody waits for it to be loaded.
    let headers = format!("x-paddler-max-wait: 0\r\n{}", bearer("sk-a"));
    for _ in 0..3 {
        let refused = ask(world.addr, "POST", CHAT, &headers, chat(1).to_string()).await;
        assert_eq!(refused.status, 503);
    }
    engine.set_fault(None).unwrap();
    assert_eq!(post_as(&world, "sk-a", &chat(1)).await.status, 200);
    assert_eq!(post_as(&world, "sk-a", &chat(1)).await.reason(), "key_tokens");
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_leaves_the_queue_before_an_engine_has_it_uses_no_tokens() {
    let keys = "keys: [{name: a, key: sk-a, tokens_per_minute: 1}, {name: b, key: sk-b}]";
    let engine = engine(slow().slots(1)).await;
    let setup = Setup::new()
        .queue(1, HANG)
        .with(|setup| with_keys(&mut setup.options, keys));
    let world = setup.start([of("a", &engine)]).await;
    let mut holds = Client::connect(world.addr).await;
    holds
        .send("POST", CHAT, &bearer("sk-b"), stream(1000).to_string())
        .await;
    eventually("it has the place", || world.open_weight() == 1).await;
    for _ in 0..3 {
        let mut leaves = Client::connect(world.addr).await;
        leaves
            .send("POST", CHAT, &bearer("sk-a"), chat(1).to_string())
            .await;
        eventually("it waits, with all tokens there are", || world.waiting() == 1).await;
        drop(leaves);
        eventually("it has left", || world.waiting() == 0).await;
        eventually("and is gone", || {
            world.metric("paddler_in_flight_requests") == 1.0
        })
        .await;
    }
    // Whom we refuse, neither.
    let mut waits = Client::connect(world.addr).await;
    waits
        .send("POST", CHAT, &bearer("sk-b"), chat(1).to_string())
        .await;
    eventually("another one waits", || world.waiting() == 1).await;
    for _ in 0..3 {
        let refused = post_as(&world, "sk-a", &chat(1)).await;
        assert_eq!((refused.status, refused.reason()), (429, "queue_full"));
    }
    drop((holds, waits));
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_under_way_are_counted_to_their_end_however_they_end() {
    let keys = "keys: [{name: a, key: sk-a, max_in_flight: 2}]";
    let engine = engine(slow().slots(1)).await;
    let setup = Setup::new()
        .queue(9, HANG)
        .with(|setup| with_keys(&mut setup.options, keys));
    let world = setup.start([of("a", &engine)]).await;
    let under_way = |requests: f64| world.metric("paddler_in_flight_requests") == requests;
    for _ in 0..3 {
        let mut clients = Vec::new();
        for number in 1..=2 {
            let mut client = Client::connect(world.addr).await;
            client
                .send("POST", CHAT, &bearer("sk-a"), stream(1000).to_string())
                .await;
            eventually("it is under way", || under_way(f64::from(number))).await;
            clients.push(client);
        }
        eventually("one has a place and one waits", || {
            world.waiting() == 1 && world.open_weight() == 1
        })
        .await;
        let refused = post_as(&world, "sk-a", &chat(1)).await;
        assert_eq!((refused.status, refused.reason()), (429, "key_concurrency"));
        assert!(refused.header("retry-after").is_some());
        drop(clients);
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_read_again_remember_what_was_used() {
    let engine = engine(quick()).await;
    let text = "keys: [{name: a, key: sk-a, requests_per_minute: 1}]";
    let before = Keys::read(text).unwrap();
    let setup = Setup::new().with(|setup| setup.options.keys = Some(Arc::new(before.clone())));
    let world = setup.start([of("a", &engine)]).await;
    assert_eq!(post_as(&world, "sk-a", &chat(1)).await.status, 200);
    let mut options = world.router.options();
    let again = "keys: [{name: b, key: sk-b}, {name: renamed, key: sk-a, requests_per_minute: 1}]";
    options.keys = Some(Arc::new(Keys::read(again).unwrap().continuing(&before)));
    world.router.reconfigure(options);
    assert_eq!(post_as(&world, "sk-a", &chat(1)).await.reason(), "key_rate");
    assert_eq!(post_as(&world, "sk-b", &chat(1)).await.status, 200);
    world.quiet().await;
}
