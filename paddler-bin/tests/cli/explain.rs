//! Can anybody see where a request would go, and why?

use paddler_engine::{Engine, EngineConfig};
use serde_json::{Value, json};

use crate::path;
use crate::support::client::{ask, chat, eventually, get, post};
use crate::support::program::{Gateway, Program, address_in, run};

async fn engine(model: &str) -> Engine {
    let config = EngineConfig::llamacpp(model).instant();
    Engine::start(config).await.unwrap()
}

async fn explained(args: &[&str]) -> Value {
    let ended = run(&[&["explain", "--format", "json"], args].concat(), &[]).await;
    assert_eq!(
        (ended.status.code(), ended.log.as_str()),
        (Some(0), ""),
        "{args:?}"
    );
    serde_json::from_str(&ended.out).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn engines_are_asked_how_they_are_and_nothing_is_sent_to_them() {
    let (one, two) = (engine("one").await, engine("two").await);
    let file = path(
        "explain-live.yaml",
        &format!(
            "upstreams:\n  - {{id: a, url: \"{}\"}}\n  - {{id: b, url: \"{}\"}}\n",
            one.url(),
            two.url()
        ),
    );
    let body = path("explain-two.json", &chat("two", 1).to_string());
    let why = explained(&["--config", &file, "--request", &body]).await;
    assert_eq!(
        (&why["outcome"], &why["picked"]),
        (&json!("picked"), &json!(["b"])),
        "{why:#}"
    );
    let model = &why["nodes"][1];
    assert_eq!(
        (&model["title"], &model["before"], &model["after"]),
        (&json!("require model"), &json!(2), &json!(1))
    );
    assert_eq!(model["removed"][0][0], "a");
    let ended = run(&["explain", "--config", &file, "--request", &body], &[]).await;
    assert!(
        ended.out.contains("require model") && ended.out.contains("without a"),
        "{}",
        ended.out
    );
    assert!(ended.out.trim_end().ends_with("picked: b"), "{}", ended.out);
    let stranger = path("explain-three.json", &chat("three", 1).to_string());
    let why = explained(&["--config", &file, "--request", &stranger]).await;
    assert_eq!(
        (&why["outcome"], &why["reason"]),
        (&json!("never"), &json!("model_not_found")),
        "{why:#}"
    );
    assert_eq!((one.stats().completed, two.stats().completed), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_that_serves_tells_it_and_what_it_goes_by() {
    let (one, two) = (engine("m").await, engine("m").await);
    let upstreams = [format!("a={}", one.url()), format!("b={}", two.url())];
    let gateway = Gateway::start("gateway", &upstreams, &[]);
    let now = |body: &Value| post("/api/v1/explain?path=%2Fv1%2Fchat%2Fcompletions", body);
    eventually("both are known", async || {
        let why = ask(gateway.management, now(&chat("m", 1))).await.json();
        why["outcome"] == "picked" && why["nodes"][1]["after"] == 2
    })
    .await;
    let answer = ask(gateway.management, post("/api/v1/upstreams/a/drain", &json!({}))).await;
    assert_eq!(answer.status, 200);
    let why = ask(gateway.management, now(&chat("m", 1))).await.json();
    assert_eq!(why["picked"], json!(["b"]), "{why:#}");
    let why = ask(gateway.management, now(&json!({"model": 7}))).await;
    assert_eq!(why.status, 400, "{why:?}");
    assert!(why.json()["error"].as_str().unwrap().contains("model"), "{why:?}");

    // Another tree over the same state, without anybody there.
    let snapshot = ask(gateway.management, get("/api/v1/snapshot")).await;
    assert_eq!(snapshot.status, 200);
    let snapshot = path("explain-snapshot.json", &snapshot.json().to_string());
    drop((gateway, one, two));
    let tree = path(
        "explain-other.yaml",
        "tree: [require: {label: {zone: x}}, pick: random]\n",
    );
    let body = path("explain-m.json", &chat("m", 1).to_string());
    let why = explained(&["--config", &tree, "--snapshot", &snapshot, "--request", &body]).await;
    assert_eq!(
        (&why["outcome"], &why["nodes"][1]["before"]),
        (&json!("never"), &json!(2)),
        "{why:#}"
    );
    let why = explained(&["--snapshot", &snapshot, "--request", &body]).await;
    assert_eq!(why["outcome"], "picked", "{why:#}");
    let again = explained(&["--snapshot", &snapshot, "--request", &body]).await;
    assert_eq!(why, again, "the same seed draws the same");
}

#[tokio::test]
async fn what_cannot_be_read_is_told_with_its_file() {
    let body = path("explain-bad.json", "{");
    let good = path("explain-good.json", "{\"model\": \"m\"}");
    let snapshot = path("explain-none.json", "{}");
    for (args, says) in [
        (
            &["--request", "nowhere.json", "--snapshot", &snapshot][..],
            &["nowhere.json (the request)"][..],
        ),
        (
            &["--request", &good, "--snapshot", &snapshot],
            &["explain-none.json (the snapshot)", "GET /api/v1/snapshot"],
        ),
        (
            &["--request", &body, "--upstream", "http://127.0.0.1:9"],
            &["explain-bad.json (POST /v1/chat/completions)", "line 1"],
        ),
        (&["--request", &good], &["--upstream"]),
        (&["--request", &good, "--upstream", "dns+http://a"], &["dns+"]),
    ] {
        let ended = run(&[&["explain"], args].concat(), &[]).await;
        assert_eq!(
            (ended.status.code(), ended.out.as_str()),
            (Some(1), ""),
            "{args:?}"
        );
        assert!(
            says.iter().all(|says| ended.log.contains(says)),
            "{args:?}: {}",
            ended.log
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_other_machines_are_told_neither_what_upstreams_are_nor_where_requests_go() {
    let one = engine("m").await;
    let flags = [
        "gateway",
        "--listen=127.0.0.1:0",
        "--management=0.0.0.0:0",
        "--upstream",
    ];
    let program = Program::start(&[&flags[..], &[&one.url()]].concat(), &[]);
    let told = program.logs(|line| line.contains("listening for health"));
    let management = ([127, 0, 0, 1], address_in(&told).port()).into();
    assert_eq!(ask(management, get("/api/v1/upstreams")).await.status, 200);
    let upstream = json!({"url": "http://127.0.0.1:9"});
    for refused in [
        get("/api/v1/snapshot"),
        post("/api/v1/explain", &chat("m", 1)),
        post("/api/v1/upstreams", &upstream),
    ] {
        let path = refused.uri().to_string();
        let answer = ask(management, refused).await;
        assert_eq!(answer.status, 403, "{path}");
        let error = answer.json()["error"].to_string();
        assert!(error.contains("management_key_file"), "{path}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_model_has_no_place_another_one_serves_it_and_that_can_be_seen() {
    let (small, hosted) = (engine("small").await, engine("hosted").await);
    let key = path("fallback-key.txt", "sk-own\n");
    let file = path(
        "fallback.yaml",
        &format!(
            "listen: 127.0.0.1:0\nmanagement: 127.0.0.1:0\nupstreams:\n  - {{id: a, url: \"{}\", models: [small]}}\n  \
             - {{id: b, url: \"{}/v1\", engine: openai, models: [hosted], traffic: fallback, api_key_file: {key}}}\n\
             models:\n  big: {{fallback: [gone, small]}}\n  other: {{fallback: [hosted], patience: 0s}}\n",
            small.url(),
            hosted.url()
        ),
    );
    let checked = run(&["check", &file], &[]).await;
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    assert!(
        checked
            .log
            .contains("models.big.fallback: no upstream of it has \"gone\"")
            && !checked.log.contains("hosted"),
        "{}",
        checked.log
    );
    let body = path("fallback-other.json", &chat("other", 1).to_string());
    let why = explained(&["--config", &file, "--request", &body]).await;
    assert_eq!(
        (&why["outcome"], &why["fallback"][0]["picked"]),
        (&json!("never"), &json!(["b"])),
        "{why:#}"
    );

    let gateway = Gateway::by(&file);
    eventually("both are known", async || {
        ask(gateway.address, get("/health")).await.status == 200
    })
    .await;
    for (model, by) in [("big", Some("small")), ("other", Some("hosted")), ("small", None)] {
        let answer = ask(gateway.address, post("/v1/chat/completions", &chat(model, 1))).await;
        let told = answer
            .headers
            .get("x-paddler-fallback")
            .map(|model| model.to_str().unwrap());
        assert_eq!((answer.status, told), (200, by), "{answer:?}");
    }
    let refused = ask(gateway.address, post("/v1/chat/completions", &chat("hosted", 1))).await;
    assert_eq!(refused.status, 404, "it is there for others alone");
    let decisions = ask(gateway.management, get("/api/v1/decisions")).await.json();
    let told = decisions["decisions"].as_array().unwrap().iter();
    let fell: Vec<_> = told
        .filter_map(|one| one["attempts"][0]["fallback"].as_str())
        .collect();
    assert_eq!(fell.len(), 2, "{decisions:#}");
    assert!(fell.contains(&"small") && fell.contains(&"hosted"), "{fell:?}");
    for one in decisions["decisions"].as_array().unwrap() {
        let attempt = &one["attempts"][0];
        if attempt["fallback"].is_string() {
            let passed = &attempt["passed_over"][0];
            let reasons = ["unhealthy", "model_not_found"].map(Value::from);
            assert!(
                passed["model"] != attempt["fallback"] && reasons.contains(&passed["reason"]),
                "{attempt:#}"
            );
        }
    }
}
