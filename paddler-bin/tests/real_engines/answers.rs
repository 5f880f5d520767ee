//! Does the client get what the engine said, from the engine that it asked for?

use http::header::{CONNECTION, DATE, HeaderValue, TRANSFER_ENCODING};
use paddler_engine::{Engine, EngineConfig};
use serde_json::{Value, json};

use crate::levels::{Front, Way, each_way};
use crate::servers::{Llama, Servers, servers};
use crate::support::client::{Answer, Ask, ask, chat, get, post, streamed};
use crate::support::program::Gateway;

each_way! {
    a_chat_is_answered_as_by_the_engine_itself,
    a_stream_is_passed_on_event_by_event,
    bytes_stay_as_they_are,
    a_model_is_asked_where_it_is,
    embeddings_come_from_their_server,
    a_model_that_nobody_has_is_not_found,
    without_a_model_anybody_will_do,
}

/// The events of a stream, each as JSON, without its end.
fn events(answer: &Answer) -> Vec<Value> {
    assert!(answer.is_good(), "{answer:?}");
    let blocks = answer
        .text()
        .split("\n\n")
        .filter_map(|block| block.strip_prefix("data: "));
    blocks
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

/// Which keys there are, and what is said in them that is not new each time.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), shape_under(key, value)))
            .collect(),
        Value::Array(items) => items.iter().map(shape).collect(),
        plain => plain.clone(),
    }
}

fn shape_under(key: &str, value: &Value) -> Value {
    match key {
        "id" | "created" => json!("new each time"),
        "timings" => value.as_object().unwrap().keys().cloned().collect(),
        // What is still known of the last prompt depends on who was asked.
        "prompt_tokens_details" => json!("as it comes"),
        _ => shape(value),
    }
}

async fn a_chat_is_answered_as_by_the_engine_itself(way: Way) {
    let Some(servers) = servers().await else { return };
    let gateway = servers.gateway(way, &[]).await;
    let asked = chat("tiny-a", 48);
    let direct = ask(servers.a[0].address, post("/v1/chat/completions", &asked)).await;
    let routed = ask(gateway.address, post("/v1/chat/completions", &asked)).await;
    assert!(direct.is_good() && routed.is_good(), "{direct:?} {routed:?}");
    assert_eq!(shape(&routed.json()), shape(&direct.json()));
    assert_eq!(routed.json()["usage"]["completion_tokens"], 48);
}

async fn a_stream_is_passed_on_event_by_event(way: Way) {
    let Some(servers) = servers().await else { return };
    let gateway = servers.gateway(way, &[]).await;
    let mut asked = streamed(chat("tiny-a", 48));
    asked["stream_options"] = json!({"include_usage": true});
    let direct = events(&ask(servers.a[0].address, post("/v1/chat/completions", &asked)).await);
    let routed = events(&ask(gateway.address, post("/v1/chat/completions", &asked)).await);
    assert!(direct.len() > 40, "{direct:?}");
    assert_eq!(
        routed.iter().map(shape).collect::<Vec<_>>(),
        direct.iter().map(shape).collect::<Vec<_>>()
    );
}

async fn bytes_stay_as_they_are(way: Way) {
    // With an engine that says the same in the same bytes each time, so that they can be compared.
    let faces = [EngineConfig::llamacpp("m"), EngineConfig::vllm("m")];
    for config in faces {
        let engine = Engine::start(config.instant().fixed_ids(true)).await.unwrap();
        let gateway = Front::ready(way, &[("m", engine.url())], &[]).await;
        let asks: [&dyn Fn() -> Ask; 5] = [
            &|| post("/v1/chat/completions", &chat("m", 64)),
            &|| post("/v1/chat/completions", &streamed(chat("m", 64))),
            &|| {
                post(
                    "/v1/completions",
                    &json!({"model": "m", "prompt": ["a", "b"], "n": 2, "max_tokens": 5}),
                )
            },
            &|| post("/v1/embeddings", &json!({"model": "m", "input": "text"})),
            &|| post("/v1/chat/completions", &json!({"model": "m", "messages": 5})),
        ];
        for asked in asks {
            // vLLM makes the answer's id of the request's.
            let asked = || {
                let mut ask = asked();
                let id = HeaderValue::from_static("7");
                ask.headers_mut().insert("x-request-id", id);
                ask
            };
            let direct = ask(engine.addr(), asked()).await;
            let routed = ask(gateway.address, asked()).await;
            assert_eq!(
                (routed.status, routed.cut),
                (direct.status, direct.cut),
                "{direct:?}"
            );
            assert_eq!(
                routed.body,
                direct.body,
                "{}",
                String::from_utf8_lossy(&routed.body)
            );
            // What is about one connection alone is each one's own.
            let own = [
                CONNECTION.as_str(),
                TRANSFER_ENCODING.as_str(),
                DATE.as_str(),
                "keep-alive",
            ];
            for (name, value) in direct
                .headers
                .iter()
                .filter(|(name, _)| !own.contains(&name.as_str()))
            {
                assert_eq!(routed.headers.get(name), Some(value), "{name}");
            }
        }
    }
}

/// Sends to one of the servers through the gateway, and says which of them has worked.
async fn who_works(servers: &Servers, gateway: &Gateway, asked: Ask) -> (Answer, Vec<bool>) {
    let before = loads(servers).await;
    let answer = ask(gateway.address, asked).await;
    let after = loads(servers).await;
    (
        answer,
        before
            .into_iter()
            .zip(after)
            .map(|(before, after)| before != after)
            .collect(),
    )
}

async fn loads(servers: &Servers) -> Vec<f64> {
    let mut tokens = Vec::new();
    for server in servers.all() {
        tokens.push(Llama::load(server).await.tokens);
    }
    tokens
}

async fn a_model_is_asked_where_it_is(way: Way) {
    let Some(servers) = servers().await else { return };
    let gateway = servers.gateway(way, &[]).await;
    let mut said = Vec::new();
    for (model, may) in [("tiny-a", vec![0, 1]), ("tiny-b", vec![2]), ("tiny-e", vec![3])] {
        for body in [chat(model, 16), chat(model, 16), streamed(chat(model, 16))] {
            let asked = post("/v1/chat/completions", &body);
            let (answer, worked) = who_works(&servers, &gateway, asked).await;
            assert!(answer.is_good(), "{answer:?}");
            assert_eq!(
                worked.iter().filter(|worked| **worked).count(),
                1,
                "{model}: {worked:?}"
            );
            let at = worked.iter().position(|worked| *worked).unwrap();
            assert!(may.contains(&at), "{model} was asked at {at}");
            if body["stream"] != true {
                let answer = answer.json();
                assert_eq!(answer["model"], model);
                said.push(answer["choices"][0]["message"]["content"].clone());
            }
        }
    }
    let [a, a_again, b, b_again, e, e_again] = &said[..] else {
        panic!("{said:?}")
    };
    assert_eq!((a, b, e), (a_again, b_again, e_again));
    assert!(a != b && b != e && a != e, "{said:?}");
}

async fn embeddings_come_from_their_server(way: Way) {
    let Some(servers) = servers().await else { return };
    let gateway = servers.gateway(way, &[]).await;
    let asked = json!({"model": "tiny-e", "input": ["one thing", "another", "a third"]});
    let (answer, worked) = who_works(&servers, &gateway, post("/v1/embeddings", &asked)).await;
    assert!(answer.is_good(), "{answer:?}");
    assert_eq!(worked, [false, false, false, true]);
    let direct = ask(servers.e.address, post("/v1/embeddings", &asked)).await;
    let (routed, direct) = (answer.json(), direct.json());
    assert_eq!(routed["data"].as_array().unwrap().len(), 3);
    for index in 0..3 {
        let numbers = |of: &Value| -> Vec<f64> {
            let list = of["data"][index]["embedding"].as_array().unwrap();
            list.iter().map(|number| number.as_f64().unwrap()).collect()
        };
        let pairs = numbers(&routed).into_iter().zip(numbers(&direct));
        assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-4));
    }
}

async fn a_model_that_nobody_has_is_not_found(way: Way) {
    let Some(servers) = servers().await else { return };
    let gateway = servers.gateway(way, &[]).await;
    let asked = post("/v1/chat/completions", &chat("nobody", 16));
    let (answer, worked) = who_works(&servers, &gateway, asked).await;
    assert_eq!((answer.status, worked), (404, vec![false; 4]));
    assert_eq!(answer.headers["x-paddler-reason"], "model_not_found");
    let error = &answer.json()["error"];
    assert_eq!(
        (&error["type"], &error["code"]),
        (&json!("invalid_request_error"), &json!("model_not_found"))
    );
    let message = error["message"].as_str().unwrap();
    for name in ["nobody", "tiny-a", "tiny-b", "tiny-e"] {
        assert!(message.contains(name), "{message}");
    }
}

async fn without_a_model_anybody_will_do(way: Way) {
    let Some(servers) = servers().await else { return };
    let gateway = servers.gateway(way, &[]).await;
    for _ in 0..8 {
        let mut asked = chat("", 8);
        asked.as_object_mut().unwrap().remove("model");
        let answer = ask(gateway.address, post("/v1/chat/completions", &asked)).await;
        assert!(answer.is_good(), "{answer:?}");
    }
    let tokens = ask(gateway.address, post("/tokenize", &json!({"content": "hello"}))).await;
    assert!(
        tokens.is_good() && !tokens.json()["tokens"].as_array().unwrap().is_empty(),
        "{tokens:?}"
    );
    let models = ask(gateway.address, get("/v1/models")).await.json();
    let ids: Vec<_> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].clone())
        .collect();
    assert_eq!(ids, ["tiny-a", "tiny-b", "tiny-e"]);
}
