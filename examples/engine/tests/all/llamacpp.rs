//! Is the face of llama.cpp like the real one?

use paddler_engine::{Engine, EngineConfig};
use serde_json::{Value, json};

use crate::client::{chat, endless, eventually, families, get, metric, post, post_with, slow, start};

/// The families on the page of the real server (b11434).
const FAMILIES: [&str; 15] = [
    "llamacpp:prompt_tokens_total",
    "llamacpp:prompt_tokens_cached_total",
    "llamacpp:prompt_seconds_total",
    "llamacpp:tokens_predicted_total",
    "llamacpp:tokens_predicted_seconds_total",
    "llamacpp:n_decode_total",
    "llamacpp:n_tokens_max",
    "llamacpp:spec_decode_num_draft_tokens_total",
    "llamacpp:spec_decode_num_accepted_tokens_total",
    "llamacpp:spec_decode_num_drafts_total",
    "llamacpp:prompt_tokens_seconds",
    "llamacpp:predicted_tokens_seconds",
    "llamacpp:requests_processing",
    "llamacpp:requests_deferred",
    "llamacpp:n_busy_slots_per_decode",
];

fn quick() -> EngineConfig {
    EngineConfig::llamacpp("tiny").instant()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

async fn busy_slots(engine: &Engine) -> usize {
    let slots = get(engine, "/slots").await.json();
    slots
        .as_array()
        .unwrap()
        .iter()
        .filter(|slot| slot["is_processing"] == true)
        .count()
}

#[tokio::test]
async fn pages_about_itself() {
    let engine = start(quick().adapters(["lora-a"])).await;
    let health = get(&engine, "/health").await;
    assert_eq!((health.status(), health.text()), (200, r#"{"status":"ok"}"#));
    for line in [
        "Server: llama.cpp",
        "Content-Type: application/json; charset=utf-8",
        "Content-Length: 15",
    ] {
        assert!(health.head.contains(&format!("\r\n{line}\r\n")), "{line}");
    }
    let slots = get(&engine, "/slots").await.json();
    let idle = json!({ "id": 3, "n_ctx": 8192, "speculative": false, "is_processing": false });
    assert_eq!((slots.as_array().unwrap().len(), &slots[3]), (4, &idle));
    let props = get(&engine, "/props").await.json();
    assert_eq!(
        (&props["total_slots"], &props["model_alias"]),
        (&json!(4), &json!("tiny"))
    );
    assert_eq!(props["is_sleeping"], false);
    let models = get(&engine, "/v1/models").await;
    assert_eq!(models.json()["data"][0]["id"], "tiny");
    assert_eq!(models.json()["models"][0]["name"], "tiny");
    assert_eq!(
        get(&engine, "/models").await.json()["data"][0]["owned_by"],
        "llamacpp"
    );
    assert_eq!(
        get(&engine, "/lora-adapters").await.json()[0]["path"],
        "/models/lora-a.gguf"
    );
    assert_eq!(post(&engine, "/lora-adapters", &json!({})).await.status(), 400);
    let scaled = post(&engine, "/lora-adapters", &json!([{ "id": 0, "scale": 0.5 }])).await;
    assert_eq!(scaled.json(), json!({ "success": true }));
    assert_eq!(get(&engine, "/lora-adapters").await.json()[0]["scale"], 0.5);
    let tokens = post(&engine, "/tokenize", &json!({ "content": "12345678" }))
        .await
        .json();
    assert_eq!(tokens["tokens"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn the_page_of_metrics_has_the_real_names() {
    let engine = start(quick()).await;
    post(&engine, "/v1/chat/completions", &chat("12345678")).await;
    let page = get(&engine, "/metrics").await;
    assert_eq!(page.header("content-type"), Some("text/plain; version=0.0.4"));
    assert!(page.header("process-start-time-unix").is_some());
    assert_eq!(families(page.text()), FAMILIES);
    assert_eq!(metric(page.text(), "llamacpp:prompt_tokens_total "), Some(2.0));
    assert_eq!(metric(page.text(), "llamacpp:tokens_predicted_total "), Some(8.0));
    assert_eq!(metric(page.text(), "llamacpp:n_tokens_max "), Some(10.0));
}

#[tokio::test]
async fn slots_and_deferred_requests_are_counted() {
    let engine = start(slow(quick()).slots(2)).await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(endless(&engine, "/v1/chat/completions", chat("hello")).await);
    }
    eventually("two run, three wait", || {
        (engine.stats().running, engine.stats().waiting) == (2, 3)
    })
    .await;
    assert_eq!(busy_slots(&engine).await, 2);
    let page = get(&engine, "/metrics").await;
    assert_eq!(metric(page.text(), "llamacpp:requests_processing "), Some(2.0));
    assert_eq!(metric(page.text(), "llamacpp:requests_deferred "), Some(3.0));
    assert_eq!(get(&engine, "/slots?fail_on_no_slot=1").await.status(), 503);
    drop(clients);
    eventually("none is left", || {
        (engine.stats().running, engine.stats().waiting) == (0, 0)
    })
    .await;
    assert_eq!(get(&engine, "/slots?fail_on_no_slot=1").await.status(), 200);
    let stats = engine.stats();
    assert_eq!((stats.max_running, stats.max_waiting, stats.completed), (2, 3, 0));
}

#[tokio::test]
async fn deferred_requests_run_in_the_order_they_came() {
    let engine = start(quick().slots(1).decode_tokens_per_second(200.0)).await;
    let first = endless(&engine, "/completion", json!({ "prompt": "first" })).await;
    eventually("one runs", || engine.stats().running == 1).await;
    let mut waiting = Vec::new();
    for prompt in ["second", "third"] {
        waiting.push(
            endless(
                &engine,
                "/completion",
                json!({ "prompt": prompt, "stream": true }),
            )
            .await,
        );
        eventually("it waits", || engine.stats().waiting == waiting.len()).await;
    }
    drop(first);
    eventually("one waits", || engine.stats().waiting == 1).await;
    waiting[0].fill_to(1).await;
    assert_eq!(engine.stats().running, 1);
}

#[tokio::test]
async fn each_answer_and_each_prompt_takes_a_slot() {
    let engine = start(slow(quick())).await;
    let mut several = chat("hello");
    several["n"] = json!(3);
    let prompts = json!({ "prompt": ["a", "b"] });
    for (path, body, tasks) in [
        ("/v1/chat/completions", several, 3),
        ("/v1/completions", prompts.clone(), 2),
        ("/completion", prompts, 2),
    ] {
        let client = endless(&engine, path, body).await;
        eventually("all run", || engine.stats().running == tasks).await;
        drop(client);
        eventually("none runs", || engine.stats().running == 0).await;
    }
    let inputs = json!({ "input": ["a", "b", "c", "d", "e", "f"] });
    let answer = post(&engine, "/v1/embeddings", &inputs).await.json();
    assert_eq!(answer["data"].as_array().unwrap().len(), 6);
    assert_eq!(engine.stats().completed, 6);
}

#[tokio::test]
async fn chat_whole_and_streamed() {
    let engine = start(quick()).await;
    let whole = post(&engine, "/v1/chat/completions", &chat("hello the world"))
        .await
        .json();
    let wanted = [
        "choices",
        "created",
        "id",
        "model",
        "object",
        "system_fingerprint",
        "timings",
        "usage",
    ]
    .as_slice();
    assert_eq!(keys(&whole), wanted);
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    assert_eq!(whole["usage"]["completion_tokens"], 8);
    assert_eq!(whole["usage"]["prompt_tokens"], 4);
    let mut body = chat("hello the world");
    body["stream"] = json!(true);
    let streamed = post(&engine, "/chat/completions", &body).await;
    assert_eq!(streamed.header("content-type"), Some("text/event-stream"));
    assert_eq!(streamed.header("x-accel-buffering"), Some("no"));
    let events = streamed.events();
    assert_eq!((events.len(), events[10]), (11, "[DONE]"));
    let events: Vec<Value> = events[..10]
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    assert_eq!(
        events[0]["choices"][0]["delta"],
        json!({ "role": "assistant", "content": null })
    );
    let text: String = events[1..9]
        .iter()
        .map(|e| e["choices"][0]["delta"]["content"].as_str().unwrap())
        .collect();
    assert_eq!(whole["choices"][0]["message"]["content"], json!(text));
    assert_eq!(events[9]["choices"][0]["finish_reason"], "length");
    assert!(events[9]["timings"].is_object());
    body["stream_options"] = json!({ "include_usage": true });
    let streamed = post(&engine, "/v1/chat/completions", &body).await;
    let last: Value = serde_json::from_str(streamed.events()[10]).unwrap();
    assert_eq!(
        (&last["choices"], &last["usage"]["total_tokens"]),
        (&json!([]), &json!(12))
    );
}

#[tokio::test]
async fn its_own_completions_stream_without_a_last_word() {
    let engine = start(quick()).await;
    let body = json!({ "prompt": "hello", "n_predict": 3, "stream": true });
    for path in ["/completion", "/completions"] {
        let answer = post(&engine, path, &body).await;
        let events: Vec<Value> = answer
            .events()
            .iter()
            .map(|event| serde_json::from_str(event).unwrap())
            .collect();
        assert_eq!(
            events
                .iter()
                .map(|event| event["stop"] == true)
                .collect::<Vec<_>>(),
            [false, false, false, true]
        );
        assert_eq!(events[3]["tokens_predicted"], 3);
    }
    let whole = post(
        &engine,
        "/completion",
        &json!({ "prompt": "hello", "n_predict": 3 }),
    )
    .await
    .json();
    assert_eq!(
        (&whole["stop"], &whole["stop_type"]),
        (&json!(true), &json!("limit"))
    );
    let several = post(
        &engine,
        "/completion",
        &json!({ "prompt": ["a", "b"], "n_predict": 3 }),
    )
    .await
    .json();
    assert_eq!(several.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn the_other_dialects() {
    let engine = start(quick()).await;
    let completion = post(
        &engine,
        "/v1/completions",
        &json!({ "prompt": "a", "max_tokens": 2 }),
    )
    .await
    .json();
    assert_eq!(completion["object"], "text_completion");
    let message = post(&engine, "/v1/messages", &chat("hello")).await.json();
    assert_eq!(
        (&message["type"], &message["stop_reason"]),
        (&json!("message"), &json!("max_tokens"))
    );
    let mut body = chat("hello");
    body["stream"] = json!(true);
    let stream = post(&engine, "/v1/messages", &body).await;
    let names: Vec<_> = stream
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix("event: "))
        .collect();
    assert_eq!(
        (names[0], *names.last().unwrap()),
        ("message_start", "message_stop")
    );
    assert_eq!(
        names
            .iter()
            .filter(|name| **name == "content_block_delta")
            .count(),
        8
    );
    let ask = json!({ "input": "hello", "max_output_tokens": 2 });
    let response = post(&engine, "/v1/responses", &ask).await.json();
    assert_eq!(
        (&response["object"], &response["usage"]["output_tokens"]),
        (&json!("response"), &json!(2))
    );
    let native = post(&engine, "/embedding", &json!({ "content": "hello" }))
        .await
        .json();
    assert_eq!(native[0]["embedding"][0].as_array().unwrap().len(), 64);
    let ask = json!({ "query": "q", "documents": ["a", "b"] });
    for path in ["/rerank", "/v1/rerank"] {
        assert_eq!(
            post(&engine, path, &ask).await.json()["results"]
                .as_array()
                .unwrap()
                .len(),
            2
        );
    }
}

#[tokio::test]
async fn errors() {
    let engine = start(quick().context_tokens(16).api_key("sekret")).await;
    let key = "Authorization: Bearer sekret\r\n";
    let refused = get(&engine, "/v1/models").await;
    assert_eq!(
        (refused.status(), &refused.json()["error"]["type"]),
        (401, &json!("authentication_error"))
    );
    assert_eq!(get(&engine, "/health").await.status(), 200);
    let long = post_with(&engine, "/v1/chat/completions", key, &chat(&"x".repeat(400))).await;
    assert_eq!(long.status(), 400);
    assert_eq!(long.json()["error"]["type"], "exceed_context_size_error");
    assert_eq!(long.json()["error"]["n_prompt_tokens"], 100);
    for body in [
        json!({}),
        json!({ "messages": "x" }),
        json!({ "messages": [], "max_tokens": "many" }),
    ] {
        let answer = post_with(&engine, "/v1/chat/completions", key, &body).await;
        assert_eq!(
            (answer.status(), &answer.json()["error"]["type"]),
            (400, &json!("invalid_request_error"))
        );
    }
    let missing = get(&engine, "/v1/chat/completions").await;
    assert_eq!(missing.status(), 401);
    // What does not fit into the context is cut off.
    let cut = post_with(
        &engine,
        "/completion",
        key,
        &json!({ "prompt": "abcd", "n_predict": 99 }),
    )
    .await;
    assert_eq!(cut.json()["tokens_predicted"], 15);
}

#[tokio::test]
async fn any_model_name_is_taken() {
    let engine = start(quick()).await;
    let mut body = chat("hello");
    body["model"] = json!("no-such");
    assert_eq!(
        post(&engine, "/v1/chat/completions", &body).await.json()["model"],
        "tiny"
    );
}
