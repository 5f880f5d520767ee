//! Are equal requests answered with equal bytes?

use paddler_engine::EngineConfig;
use serde_json::json;

use crate::client::{chat, post, start};

#[tokio::test]
async fn with_fixed_ids_every_byte_is_the_same() {
    for config in [EngineConfig::llamacpp("tiny"), EngineConfig::vllm("tiny")] {
        let config = config.instant().seed(7).fixed_ids(true);
        let (one, other) = (start(config.clone()).await, start(config).await);
        let mut streamed = chat("hello");
        streamed["stream"] = json!(true);
        let mut several = chat("hello");
        several["n"] = json!(3);
        let prompt = json!({ "prompt": "hello", "max_tokens": 5 });
        for (path, body) in [
            ("/v1/chat/completions", chat("hello")),
            ("/v1/chat/completions", streamed.clone()),
            ("/v1/chat/completions", several),
            ("/v1/completions", prompt.clone()),
            ("/v1/messages", streamed),
            ("/v1/responses", json!({ "input": "hello", "stream": true })),
            ("/v1/embeddings", json!({ "input": "hello" })),
            ("/v1/rerank", json!({ "query": "q", "documents": ["a", "b"] })),
        ] {
            let first = post(&one, path, &body).await;
            for engine in [&one, &other] {
                let again = post(engine, path, &body).await;
                assert_eq!((&first.head, &first.body), (&again.head, &again.body), "{path}");
            }
            assert_eq!(first.status(), 200);
        }
    }
}

#[tokio::test]
async fn without_fixed_ids_only_the_text_is_the_same() {
    let engine = start(EngineConfig::llamacpp("tiny").instant()).await;
    let first = post(&engine, "/v1/chat/completions", &chat("hello")).await.json();
    let again = post(&engine, "/v1/chat/completions", &chat("hello")).await.json();
    assert_eq!(first["choices"], again["choices"]);
    assert_ne!(first["id"], again["id"]);
}

#[tokio::test]
async fn seed_prompt_and_adapter_change_the_text() {
    let text = |config: EngineConfig, model: &'static str, prompt: &'static str| async move {
        let engine = start(config.instant().adapters(["lora-a"])).await;
        let mut body = chat(prompt);
        body["model"] = json!(model);
        post(&engine, "/v1/chat/completions", &body).await.json()["choices"][0]["message"]["content"]
            .to_string()
    };
    let config = EngineConfig::vllm("tiny");
    let plain = text(config.clone(), "tiny", "hello").await;
    assert_ne!(plain, text(config.clone().seed(1), "tiny", "hello").await);
    assert_ne!(plain, text(config.clone(), "tiny", "hullo").await);
    assert_ne!(plain, text(config, "lora-a", "hello").await);
}

#[tokio::test]
async fn an_answer_without_a_limit_ends_by_itself() {
    let engine = start(EngineConfig::llamacpp("tiny").instant().default_max_tokens(20)).await;
    let answer = post(&engine, "/v1/completions", &json!({ "prompt": "hello" }))
        .await
        .json();
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    let tokens = answer["usage"]["completion_tokens"].as_u64().unwrap();
    assert!((10..=20).contains(&tokens));
}
