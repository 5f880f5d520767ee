//! Is the face of vLLM like the real one?

use paddler_engine::{Engine, EngineConfig};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::client::{
    Client, HANG, chat, endless, eventually, families, get, metric, post, post_with, slow, start,
};

/// Families on the page of the real server (0.32.0) that routers and dashboards read.
const FAMILIES: [&str; 24] = [
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:num_requests_waiting_by_reason",
    "vllm:engine_sleep_state",
    "vllm:kv_cache_usage_perc",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:num_preemptions_total",
    "vllm:prompt_tokens_total",
    "vllm:prompt_tokens_by_source_total",
    "vllm:generation_tokens_total",
    "vllm:request_success_total",
    "vllm:admission_rejections_total",
    "vllm:request_prompt_tokens",
    "vllm:request_generation_tokens",
    "vllm:time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:request_time_per_output_token_seconds",
    "vllm:e2e_request_latency_seconds",
    "vllm:request_queue_time_seconds",
    "vllm:request_prefill_time_seconds",
    "vllm:request_decode_time_seconds",
    "vllm:lora_requests_info",
    "vllm:cache_config_info",
];

fn quick() -> EngineConfig {
    EngineConfig::vllm("tiny").instant()
}

fn ask(model: &str) -> Value {
    let mut body = chat("hello the world!");
    body["model"] = json!(model);
    body
}

async fn page(engine: &Engine) -> String {
    get(engine, "/metrics").await.text().to_owned()
}

fn gauge(page: &str, name: &str) -> f64 {
    metric(page, &format!("vllm:{name}{{engine=\"0\",model_name=\"tiny\"")).unwrap()
}

fn waiting(page: &str, reason: &str) -> f64 {
    let name = "vllm:num_requests_waiting_by_reason";
    metric(
        page,
        &format!("{name}{{engine=\"0\",model_name=\"tiny\",reason=\"{reason}\"}}"),
    )
    .unwrap()
}

/// The series of adapters: who runs, who waits, and since when.
fn adapter_series(page: &str) -> Vec<(String, f64)> {
    let lines = page
        .lines()
        .filter(|line| line.starts_with("vllm:lora_requests_info{"));
    lines
        .map(|line| {
            let (labels, value) = line.rsplit_once(' ').unwrap();
            (labels.to_owned(), value.parse().unwrap())
        })
        .collect()
}

fn series(running: &str, waiting: &str) -> String {
    let labels = format!("running_lora_adapters=\"{running}\",waiting_lora_adapters=\"{waiting}\"");
    format!("vllm:lora_requests_info{{max_lora=\"1\",{labels}}}")
}

#[tokio::test]
async fn pages_about_itself() {
    let engine = start(quick().adapters(["lora-a"])).await;
    let health = get(&engine, "/health").await;
    assert_eq!(
        (health.status(), health.text(), health.header("content-type")),
        (200, "", None)
    );
    assert!(health.head.contains("\r\nserver: uvicorn\r\n"));
    assert!(health.header("date").unwrap().ends_with(" GMT"));
    assert_eq!(
        get(&engine, "/version").await.json(),
        json!({ "version": "0.32.0" })
    );
    assert_eq!(get(&engine, "/load").await.json(), json!({ "server_load": 0 }));
    let models = get(&engine, "/v1/models").await.json();
    assert_eq!(
        (&models["data"][0]["id"], &models["data"][0]["parent"]),
        (&json!("tiny"), &Value::Null)
    );
    assert_eq!(
        (&models["data"][1]["id"], &models["data"][1]["parent"]),
        (&json!("lora-a"), &json!("tiny"))
    );
    assert_eq!(models["data"][1]["root"], "/models/lora-a");
    assert_eq!(models["data"][1]["max_model_len"], Value::Null);
    let tokens = post(&engine, "/tokenize", &json!({ "prompt": "12345678" }))
        .await
        .json();
    assert_eq!(
        (&tokens["count"], &tokens["max_model_len"]),
        (&json!(2), &json!(8192))
    );
}

#[tokio::test]
async fn the_page_of_metrics_has_the_real_names() {
    let engine = start(quick()).await;
    post(&engine, "/v1/chat/completions", &ask("tiny")).await;
    let page = page(&engine).await;
    let known = families(&page);
    for name in FAMILIES {
        assert!(known.contains(&name), "{name}");
    }
    assert_eq!(gauge(&page, "generation_tokens_total"), 8.0);
    assert!(page.contains(
        "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"+Inf\",model_name=\"tiny\"} 1.0"
    ));
    assert!(page.contains("block_size=\"16\"") && page.contains("num_gpu_blocks=\"4096\""));
    let finished = "vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"tiny\"}";
    assert_eq!(metric(&page, finished), Some(1.0));
}

#[tokio::test]
async fn chat_whole_and_streamed() {
    let engine = start(quick().adapters(["lora-a"])).await;
    let whole = post_with(
        &engine,
        "/v1/chat/completions",
        "X-Request-Id: my-id\r\n",
        &ask("lora-a"),
    )
    .await
    .json();
    assert_eq!(
        (&whole["id"], &whole["model"]),
        (&json!("chatcmpl-my-id"), &json!("lora-a"))
    );
    assert_eq!(whole["usage"]["total_tokens"], 12);
    let mut body = ask("tiny");
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true, "continuous_usage_stats": true });
    let answer = post(&engine, "/v1/chat/completions", &body).await;
    assert_eq!(
        answer.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    let events = answer.events();
    assert_eq!((events.len(), events[10]), (11, "[DONE]"));
    let events: Vec<Value> = events[..10]
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    assert_eq!(
        events[0]["choices"][0]["delta"],
        json!({ "role": "assistant", "content": "" })
    );
    assert_eq!(events[3]["usage"]["completion_tokens"], 3);
    assert_eq!(events[8]["choices"][0]["finish_reason"], "length");
    assert_eq!(
        (&events[9]["choices"], &events[9]["usage"]["total_tokens"]),
        (&json!([]), &json!(12))
    );
    let completion = json!({ "model": "tiny", "prompt": "a", "max_tokens": 2, "stream": true });
    let answer = post(&engine, "/v1/completions", &completion).await;
    let last: Value = serde_json::from_str(answer.events()[1]).unwrap();
    assert_eq!(
        (answer.events().len(), &last["choices"][0]["finish_reason"]),
        (3, &json!("length"))
    );
    let vectors = post(&engine, "/v1/embeddings", &json!({ "input": ["a", "b"] }))
        .await
        .json();
    assert_eq!(vectors["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn errors() {
    let engine = start(quick().context_tokens(64).api_key("sekret")).await;
    let key = "Authorization: Bearer sekret\r\n";
    let unauthorized = get(&engine, "/v1/models").await;
    assert_eq!(
        (unauthorized.status(), unauthorized.json()),
        (401, json!({ "error": "Unauthorized" }))
    );
    assert_eq!(get(&engine, "/metrics").await.status(), 200);
    let unknown = post_with(&engine, "/v1/chat/completions", key, &ask("no-such")).await;
    assert_eq!(unknown.status(), 404);
    assert_eq!(
        unknown.json(),
        json!({ "error": {
            "message": "The model `no-such` does not exist. Valid aliases: tiny.",
            "type": "NotFoundError", "param": "model", "code": 404,
        } })
    );
    let missing = post_with(&engine, "/v1/chat/completions", key, &json!({ "model": "tiny" })).await;
    assert_eq!(
        (missing.status(), &missing.json()["error"]["param"]),
        (400, &json!("body.messages"))
    );
    let mut greedy = ask("tiny");
    greedy["max_tokens"] = json!(999);
    let greedy = post_with(&engine, "/v1/chat/completions", key, &greedy).await;
    assert_eq!(
        (greedy.status(), &greedy.json()["error"]["param"]),
        (400, &json!("max_tokens"))
    );
    let long = post_with(&engine, "/v1/chat/completions", key, &chat(&"x".repeat(400))).await;
    assert_eq!(
        (long.status(), &long.json()["error"]["param"]),
        (400, &json!("input_tokens"))
    );
    let mut client = Client::connect(&engine).await;
    client.send("POST", "/v1/chat/completions", key, "{}").await;
    assert_eq!(client.answer().await.json()["error"]["type"], "Bad Request");
    client.send("GET", "/v1/chat/completions", key, "").await;
    let wrong = client.answer().await;
    assert_eq!((wrong.status(), wrong.header("allow")), (405, Some("POST")));
    client.send("GET", "/no/such/path", key, "").await;
    assert_eq!(client.answer().await.json(), json!({ "detail": "Not Found" }));
}

#[tokio::test]
async fn adapters_come_and_go() {
    let engine = start(quick()).await;
    let load = json!({ "lora_name": "lora-c", "lora_path": "/models/c" });
    assert_eq!(
        post(&engine, "/v1/chat/completions", &ask("lora-c"))
            .await
            .status(),
        404
    );
    let loaded = post(&engine, "/v1/load_lora_adapter", &load).await;
    assert_eq!(
        (loaded.status(), loaded.text()),
        (200, "Success: LoRA adapter 'lora-c' added successfully.")
    );
    assert_eq!(post(&engine, "/v1/load_lora_adapter", &load).await.status(), 400);
    assert_eq!(
        post(&engine, "/v1/chat/completions", &ask("lora-c"))
            .await
            .status(),
        200
    );
    assert_eq!(
        get(&engine, "/v1/models").await.json()["data"][1]["root"],
        "/models/c"
    );
    assert_eq!(
        post(&engine, "/v1/unload_lora_adapter", &load).await.status(),
        200
    );
    assert_eq!(
        post(&engine, "/v1/unload_lora_adapter", &load).await.status(),
        404
    );
}

#[tokio::test]
async fn an_adapter_without_a_place_waits_and_others_pass_it() {
    let engine = start(slow(quick()).adapters(["lora-a", "lora-b"])).await;
    let first = endless(&engine, "/v1/chat/completions", ask("lora-a")).await;
    eventually("lora-a runs", || engine.stats().running == 1).await;
    let second = endless(&engine, "/v1/chat/completions", ask("lora-b")).await;
    eventually("lora-b waits", || engine.stats().waiting == 1).await;
    let others = (
        endless(&engine, "/v1/chat/completions", ask("tiny")).await,
        endless(&engine, "/v1/chat/completions", ask("lora-a")).await,
    );
    eventually("others pass", || engine.stats().running == 3).await;
    let before = page(&engine).await;
    assert_eq!(
        (waiting(&before, "deferred"), waiting(&before, "capacity")),
        (1.0, 0.0)
    );
    assert_eq!(gauge(&before, "num_requests_waiting"), 1.0);
    // The label of the waiting repeats the running, as in 0.32.0.
    assert_eq!(
        adapter_series(&before).last().unwrap().0,
        series("lora-a", "lora-a")
    );
    drop((first, others));
    eventually("lora-b runs", || {
        (engine.stats().running, engine.stats().waiting) == (1, 0)
    })
    .await;
    let after = adapter_series(&page(&engine).await);
    let newest = after.iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert_eq!(newest.0, series("lora-b", "lora-b"));
    let stale = after
        .iter()
        .find(|(labels, _)| *labels == series("lora-a", "lora-a"))
        .unwrap();
    assert!(stale.1 > 1_800_000_000.0 && stale.1 < newest.1);
    drop(second);
}

#[tokio::test]
async fn waiting_adapters_can_be_listed() {
    let config = slow(quick())
        .adapters(["lora-a", "lora-b"])
        .waiting_adapters_listed(true);
    let engine = start(config).await;
    let running = endless(&engine, "/v1/chat/completions", ask("lora-a")).await;
    eventually("lora-a runs", || engine.stats().running == 1).await;
    let queued = endless(&engine, "/v1/chat/completions", ask("lora-b")).await;
    eventually("lora-b waits", || engine.stats().waiting == 1).await;
    let page = page(&engine).await;
    assert!(
        adapter_series(&page)
            .iter()
            .any(|(labels, _)| *labels == series("lora-a", "lora-b"))
    );
    drop((running, queued));
}

#[tokio::test]
async fn a_task_waits_while_blocks_lack() {
    // A prompt of 16 tokens and its first token fill 2 of the 3 blocks.
    let engine = start(slow(quick()).num_gpu_blocks(3).block_size(16)).await;
    let mut first_body = chat(&"x".repeat(64));
    first_body["max_tokens"] = json!(30);
    let mut first = Client::connect(&engine).await;
    first.post("/v1/chat/completions", "", &first_body).await;
    eventually("one runs", || engine.stats().running == 1).await;
    let until_two_blocks = async { while gauge(&page(&engine).await, "kv_cache_usage_perc") < 0.6 {} };
    timeout(HANG, until_two_blocks).await.unwrap();
    let mut second = Client::connect(&engine).await;
    let mut second_body = chat(&"y".repeat(128));
    second_body["max_tokens"] = json!(4);
    second.post("/v1/chat/completions", "", &second_body).await;
    eventually("one waits", || engine.stats().waiting == 1).await;
    let page = page(&engine).await;
    assert_eq!(
        (waiting(&page, "capacity"), waiting(&page, "deferred")),
        (1.0, 0.0)
    );
    drop(first);
    eventually("the other runs", || {
        (engine.stats().running, engine.stats().waiting) == (1, 0)
    })
    .await;
}

#[tokio::test]
async fn the_youngest_gives_its_blocks_and_all_come_to_their_end() {
    let engine = start(
        quick()
            .num_gpu_blocks(8)
            .block_size(4)
            .decode_tokens_per_second(2_000.0),
    )
    .await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = Client::connect(&engine).await;
        let mut body = chat("12345678");
        body["max_tokens"] = json!(24);
        client.post("/v1/chat/completions", "", &body).await;
        clients.push(client);
    }
    let mut texts = Vec::new();
    for mut client in clients {
        texts.push(client.answer().await.json()["choices"][0]["message"]["content"].to_string());
    }
    texts.dedup();
    assert_eq!(texts.len(), 1);
    let stats = engine.stats();
    assert_eq!((stats.completed, stats.running, stats.waiting), (4, 0, 0));
    assert!(stats.preempted > 0);
    assert_eq!(gauge(&page(&engine).await, "kv_cache_usage_perc"), 0.0);
}

#[tokio::test]
async fn a_full_queue_refuses() {
    let engine = start(slow(quick()).slots(1).max_queued(Some(1))).await;
    let running = endless(&engine, "/v1/chat/completions", ask("tiny")).await;
    eventually("one runs", || engine.stats().running == 1).await;
    let queued = endless(&engine, "/v1/chat/completions", ask("tiny")).await;
    eventually("one waits", || engine.stats().waiting == 1).await;
    let refused = post(&engine, "/v1/chat/completions", &ask("tiny")).await;
    assert_eq!(
        (refused.status(), &refused.json()["error"]["type"]),
        (503, &json!("Service Unavailable"))
    );
    assert!(
        page(&engine)
            .await
            .contains("reason=\"max_num_queued_reqs\"} 1.0")
    );
    drop((running, queued));
}
