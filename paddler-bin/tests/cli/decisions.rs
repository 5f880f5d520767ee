//! Is it told where each request went, and why?

use paddler_engine::EngineConfig;
use serde_json::{Value, json};

use crate::api::{engine, ready, with};
use crate::path;
use crate::support::client::{Ask, Client, ask, chat, eventually, get, post, streamed};
use crate::support::program::Gateway;

fn chat_as(id: &str, model: &str) -> Ask {
    let mut asked = post("/v1/chat/completions", &chat(model, 2));
    asked.headers_mut().insert("x-request-id", id.parse().unwrap());
    asked
}

async fn told(gateway: &Gateway, path: &str) -> Value {
    ask(gateway.management, get(path)).await.json()
}

fn ids(told: &Value) -> Vec<&str> {
    let all = told["decisions"].as_array().unwrap().iter();
    all.map(|one| one["id"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_is_told_with_its_way_and_its_end() {
    let (one, two) = (
        engine(EngineConfig::llamacpp("m")).await,
        engine(EngineConfig::llamacpp("n")).await,
    );
    let upstreams = [format!("one={}", one.url()), format!("two={}", two.url())];
    let gateway = Gateway::start("gateway", &upstreams, &[]);
    ready(&gateway, 2).await;
    for (id, model) in [("r-1", "m"), ("r-2", "n"), ("r-3", "nobody")] {
        ask(gateway.address, chat_as(id, model)).await;
    }
    eventually("the last has ended", async || {
        told(&gateway, "/api/v1/decisions/r-2").await["state"] == "complete"
    })
    .await;
    let first = told(&gateway, "/api/v1/decisions/r-1").await;
    assert_eq!(
        (&first["model"], &first["status"], &first["class"]),
        (&json!("m"), &json!(200), &json!("chat"))
    );
    let why = &first["attempts"][0]["why"];
    assert_eq!(why["picked"], json!(["one"]));
    assert_eq!(why["nodes"][1]["title"], "require model");
    assert_eq!(
        (&why["nodes"][1]["before"], &why["nodes"][1]["removed"]),
        (&json!(2), &json!([["two", null]]))
    );
    let times =
        ["answered_seconds", "first_byte_seconds", "ended_seconds"].map(|time| first[time].as_f64().unwrap());
    assert!(times.is_sorted(), "{times:?}");
    let lost = told(&gateway, "/api/v1/decisions/r-3").await;
    assert_eq!(
        (&lost["status"], &lost["reason"], &lost["state"]),
        (&json!(404), &json!("model_not_found"), &json!("here"))
    );
    assert_eq!(lost["unplaced"]["outcome"], "never");

    let all = told(&gateway, "/api/v1/decisions").await;
    assert_eq!(ids(&all), ["r-3", "r-2", "r-1"]);
    assert_eq!((&all["seen"], &all["recorded"]), (&json!(3), &json!(3)));
    for (query, wanted) in [
        ("limit=1", &["r-3"][..]),
        ("model=n", &["r-2"]),
        ("upstream=one", &["r-1"]),
        ("model=n&upstream=one", &[]),
    ] {
        assert_eq!(
            ids(&told(&gateway, &format!("/api/v1/decisions?{query}")).await),
            wanted,
            "{query}"
        );
    }
    assert!(!all.to_string().contains("Say something"), "no prompts");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_still_answered_is_told_and_no_more_are_kept_than_may() {
    let slow = EngineConfig::llamacpp("m").prefill_tokens_per_second(f64::INFINITY);
    let slow = paddler_engine::Engine::start(slow.decode_tokens_per_second(20.0))
        .await
        .unwrap();
    let config = |rules: &str| {
        format!(
            "upstreams: [{{id: a, url: '{}'}}]\ndecisions: {{{rules}}}\n",
            slow.url()
        )
    };
    let file = path("decisions.yaml", &config("keep: 2"));
    let gateway = Gateway::by(&file);
    ready(&gateway, 1).await;
    for id in ["r-1", "r-2"] {
        ask(gateway.address, chat_as(id, "m")).await;
    }
    let mut stream = post("/v1/chat/completions", &streamed(chat("m", 100)));
    stream
        .headers_mut()
        .insert("x-request-id", "r-3".parse().unwrap());
    let mut client = Client::to(gateway.address);
    let mut reply = client.send(stream).await;
    reply.more().await.unwrap().unwrap();
    let running = told(&gateway, "/api/v1/decisions/r-3").await;
    assert_eq!(
        (&running["state"], &running["attempts"][0]["upstream"]),
        (&json!("running"), &json!("a"))
    );
    assert_eq!(ids(&told(&gateway, "/api/v1/decisions").await), ["r-3", "r-2"]);
    drop((reply, client));
    eventually("it has left", async || {
        told(&gateway, "/api/v1/decisions/r-3").await["state"] == "left"
    })
    .await;
    assert_eq!(
        ids(&told(&gateway, "/api/v1/decisions").await),
        ["r-3", "r-2"],
        "it stands there once"
    );

    // None are recorded any more; what was, stays for as long as it may.
    std::fs::write(&file, config("keep: 1, per_second: 0")).unwrap();
    assert_eq!(
        ask(gateway.management, with(http::Method::POST, "/api/v1/reload", ""))
            .await
            .status,
        200
    );
    ask(gateway.address, chat_as("r-4", "m")).await;
    let all = told(&gateway, "/api/v1/decisions").await;
    assert_eq!(
        (ids(&all), &all["seen"], &all["recorded"]),
        (vec!["r-3"], &json!(4), &json!(3))
    );
}
