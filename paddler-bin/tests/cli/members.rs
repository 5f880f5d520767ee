//! Can upstreams join and leave while it runs: by the management API, and behind a name?

use http::Method;
use paddler_engine::{Engine, EngineConfig};
use serde_json::{Value, json};

use crate::path;
use crate::support::client::{Ask, ask, chat, eventually, get, post};
use crate::support::program::{Gateway, run};

async fn engine(model: &str) -> Engine {
    let config = EngineConfig::llamacpp(model).instant();
    Engine::start(config).await.unwrap()
}

fn delete(path: &str) -> Ask {
    let mut asked = get(path);
    *asked.method_mut() = Method::DELETE;
    asked
}

async fn add(gateway: &Gateway, upstream: Value) -> (u16, Value) {
    let answer = ask(gateway.management, post("/api/v1/upstreams", &upstream)).await;
    (answer.status, answer.json())
}

async fn serves(gateway: &Gateway, model: &str) -> bool {
    ask(gateway.address, post("/v1/chat/completions", &chat(model, 1)))
        .await
        .is_good()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_in_front_of_gateways_has_their_models_and_room() {
    let (first, second) = (engine("one").await, engine("two").await);
    let west = Gateway::start("gateway", &[first.url()], &[]);
    let east = Gateway::start("balancer", &[second.url()], &[]);
    let sites = [&west, &east].map(|site| format!("paddler://{}", site.address));
    let front = Gateway::start("gateway", &sites, &[]);
    for (model, engine) in [("one", &first), ("two", &second)] {
        eventually("it serves", async || serves(&front, model).await).await;
        assert!(engine.stats().completed > 0, "{model}");
    }
    let room = async || {
        let answer = ask(front.management, get("/api/v1/upstreams")).await.json();
        let upstreams = answer["upstreams"].as_array().cloned().unwrap_or_default();
        let limits = upstreams
            .iter()
            .map(|one| one["limit_weight"].as_u64().unwrap_or(0));
        limits.collect::<Vec<_>>()
    };
    let slots = u64::try_from(first.config().slots).unwrap();
    eventually("their slots are known", async || room().await == [slots, slots]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_adds_and_takes_away_what_is_its_own() {
    let (first, second) = (engine("one").await, engine("two").await);
    let gateway = Gateway::start("gateway", &[format!("gpu-1={}", first.url())], &[]);
    eventually("the first serves", async || serves(&gateway, "one").await).await;
    let two = || json!({"id": "gpu/2", "url": second.url(), "labels": {"zone": "b"}});
    let (status, added) = add(&gateway, two()).await;
    assert_eq!((status, &added["id"]), (201, &json!("gpu/2")), "{added}");
    eventually("the second serves", async || serves(&gateway, "two").await).await;
    assert_eq!(add(&gateway, two()).await.0, 200, "once more changes nothing");

    // Nobody's word is undone, and no place gets two shares.
    assert_eq!(
        add(&gateway, json!({"id": "again", "url": second.url()})).await.0,
        409
    );
    let (status, answer) = add(&gateway, json!({"id": "gpu-1", "url": "http://127.0.0.1:9"})).await;
    assert_eq!(status, 409);
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .contains("gpu-1 is told by the config"),
        "{answer}"
    );
    let (status, answer) = add(&gateway, json!({"id": "twin", "url": first.url()})).await;
    assert_eq!(status, 409);
    assert!(answer["error"].as_str().unwrap().contains("as gpu-1"), "{answer}");
    let answer = ask(gateway.management, delete("/api/v1/upstreams/gpu-1")).await;
    assert_eq!(answer.status, 409);
    assert!(answer.json()["error"].as_str().unwrap().contains("config"));
    assert_eq!(
        ask(gateway.management, delete("/api/v1/upstreams/gpu-9"))
            .await
            .status,
        404
    );

    let answer = ask(gateway.management, delete("/api/v1/upstreams/gpu%2F2")).await;
    assert_eq!(
        (answer.status, answer.json()["removed"].clone()),
        (200, json!(true))
    );
    let all = ask(gateway.management, get("/api/v1/upstreams")).await.json();
    assert_eq!(all["upstreams"].as_array().unwrap().len(), 1);
    assert!(!serves(&gateway, "two").await);
    assert_eq!(
        ask(gateway.management, delete("/api/v1/upstreams/gpu%2F2"))
            .await
            .status,
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_added_is_told_with_every_fault() {
    let first = engine("one").await;
    let gateway = Gateway::start("gateway", &[first.url()], &[]);
    for (upstream, says) in [
        (
            json!({"url": "ftp://a", "engin": "vllm"}),
            &["url: \"ftp://a\"", "engin: unknown key"][..],
        ),
        (json!([]), &["should"]),
        (
            json!({"url": "http://a", "api_key_file": "/etc/passwd"}),
            &["config file"],
        ),
        (
            json!({"url": "https://a", "tls": {"ca": "/etc/passwd"}}),
            &["config file"],
        ),
        (json!({"url": "dns+http://a"}), &["config file"]),
    ] {
        let (status, answer) = add(&gateway, upstream.clone()).await;
        assert_eq!(status, 422, "{upstream}");
        let error = answer["error"].as_str().unwrap();
        assert!(says.iter().all(|says| error.contains(says)), "{error}");
    }
    let ask_with = async |body: Vec<u8>| {
        let mut asked = post("/api/v1/upstreams", &json!({}));
        *asked.body_mut() = body.into();
        ask(gateway.management, asked).await.status
    };
    assert_eq!(ask_with(b"{".to_vec()).await, 400);
    assert_eq!(ask_with(vec![b' '; 70_000]).await, 413);
    let all = ask(gateway.management, get("/api/v1/upstreams")).await.json();
    assert_eq!(all["upstreams"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_stands_for_as_many_as_it_has_addresses() {
    let engine = engine("one").await;
    let port = engine.addr().port();
    let name = format!("dns+http://localhost:{port}");
    let gateway = Gateway::start("gateway", std::slice::from_ref(&name), &[]);
    eventually("it serves", async || serves(&gateway, "one").await).await;
    let all = ask(gateway.management, get("/api/v1/upstreams")).await.json();
    let ids: Vec<_> = all["upstreams"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].clone())
        .collect();
    assert!(ids.contains(&json!(format!("127.0.0.1:{port}"))), "{ids:?}");
    let answer = ask(
        gateway.management,
        delete(&format!("/api/v1/upstreams/127.0.0.1:{port}")),
    )
    .await;
    assert_eq!(answer.status, 409);
    assert!(answer.json()["error"].as_str().unwrap().contains("dns"));

    let file = path(
        "members-id.yaml",
        &format!("upstreams:\n  - id: pool\n    url: {name}\n"),
    );
    let ended = run(&["check", &file], &[]).await;
    assert!(
        ended.log.contains(":2:9: upstreams[0].id: those behind a name"),
        "{}",
        ended.log
    );
}
