//! Can an upstream be taken out and let back in, and by whom?

use std::fs;

use http::HeaderValue;
use http::header::{AUTHORIZATION, ORIGIN};
use paddler_engine::{Engine, EngineConfig};
use serde_json::json;

use crate::path;
use crate::support::client::{Ask, Client, ask, chat, eventually, get, post, streamed};
use crate::support::program::Gateway;

async fn engine() -> Engine {
    Engine::start(EngineConfig::llamacpp("m").instant())
        .await
        .unwrap()
}

fn with(mut asked: Ask, name: http::HeaderName, value: &str) -> Ask {
    asked
        .headers_mut()
        .insert(name, HeaderValue::from_str(value).unwrap());
    asked
}

async fn ready(gateway: &Gateway) {
    eventually("both are ready", async || {
        let all = ask(gateway.management, get("/api/v1/upstreams")).await.json();
        let all = all["upstreams"].as_array().unwrap();
        all.len() == 2 && all.iter().all(|upstream| upstream["health"] == "ready")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_drained_ends_what_it_has_and_gets_no_more() {
    let slow = EngineConfig::llamacpp("m").prefill_tokens_per_second(f64::INFINITY);
    let slow = Engine::start(slow.decode_tokens_per_second(20.0)).await.unwrap();
    let quick = engine().await;
    let upstreams = [format!("s/low={}", slow.url()), format!("quick={}", quick.url())];
    let gateway = Gateway::start("gateway", &upstreams, &[]);
    ready(&gateway).await;
    let drain = |id: &str, what: &str| post(&format!("/api/v1/upstreams/{id}/{what}"), &json!({}));
    assert_eq!(
        ask(gateway.management, drain("quick", "drain")).await.json()["draining"],
        true
    );
    let mut client = Client::to(gateway.address);
    let mut stream = client
        .send(post("/v1/chat/completions", &streamed(chat("m", 30))))
        .await;
    stream.more().await.unwrap().unwrap();
    assert_eq!(slow.stats().running, 1, "nobody else is there");

    let answer = ask(gateway.management, drain("s%2Flow", "drain")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["id"], "s/low");
    assert_eq!(
        (
            answer.json()["draining"].clone(),
            answer.json()["in_flight"].clone()
        ),
        (json!(true), json!(1))
    );
    // Once more changes nothing; and both changes are seen by the next request.
    assert_eq!(
        ask(gateway.management, drain("s%2flow", "drain")).await.status,
        200
    );
    assert_eq!(
        ask(gateway.management, drain("quick", "undrain")).await.json()["draining"],
        false
    );
    let before = slow.stats().requests;
    for _ in 0..20 {
        assert!(
            ask(gateway.address, post("/v1/chat/completions", &chat("m", 1)))
                .await
                .is_good()
        );
    }
    let asked = slow.stats().completed;
    assert_eq!(asked, 0, "it had {before} questions, and no more work");
    let whole = stream.whole().await;
    assert!(whole.is_good(), "what it has comes to its end: {whole:?}");
    eventually("nothing is open", async || {
        let one = ask(gateway.management, get("/api/v1/upstreams/s%2Flow")).await;
        one.json()["in_flight"] == 0
    })
    .await;

    let unknown = ask(gateway.management, drain("nobody", "drain")).await;
    assert_eq!(
        (unknown.status, unknown.json()["known"].clone()),
        (404, json!(["quick", "s/low"]))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_outlives_a_reload_and_the_absence_of_its_upstream() {
    let (a, b) = (engine().await, engine().await);
    let list = |with_a: bool| {
        let first = if with_a {
            format!("  - {{id: a, url: '{}'}}\n", a.url())
        } else {
            String::new()
        };
        format!("upstreams:\n{first}  - {{id: b, url: '{}'}}\n", b.url())
    };
    let file = path("drain-reload.yaml", &list(true));
    let gateway = Gateway::start("gateway", &[], &["--config", &file]);
    ready(&gateway).await;
    let is_draining =
        async || ask(gateway.management, get("/api/v1/upstreams/a")).await.json()["draining"].as_bool();
    let reload = async |text: String| {
        fs::write(&file, text).unwrap();
        let answer = ask(gateway.management, post("/api/v1/reload", &json!({}))).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    ask(gateway.management, post("/api/v1/upstreams/a/drain", &json!({}))).await;
    reload(list(true) + "queue: {max_wait: 9s}\n").await;
    assert_eq!(is_draining().await, Some(true));
    reload(list(false)).await;
    eventually("a has left", async || is_draining().await.is_none()).await;
    reload(list(true)).await;
    eventually("a is back as it was", async || is_draining().await == Some(true)).await;
    reload(list(false)).await;
    eventually("a has left", async || is_draining().await.is_none()).await;
    let tell = async |what: &str| {
        let path = format!("/api/v1/upstreams/a/{what}");
        let answer = ask(gateway.management, post(&path, &json!({}))).await;
        (answer.status, answer.json())
    };
    assert_eq!(tell("drain").await.0, 404, "nobody is there to be drained");
    let told = json!({"id": "a", "draining": false, "away": true});
    assert_eq!(tell("undrain").await, (200, told));
    assert_eq!(tell("undrain").await.0, 404, "it is not drained any more");
    reload(list(true)).await;
    eventually("a is let back in", async || is_draining().await == Some(false)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_page_changes_nothing() {
    let (a, b) = (engine().await, engine().await);
    let gateway = Gateway::start("gateway", &[format!("a={}", a.url()), b.url()], &[]);
    ready(&gateway).await;
    let drain = || post("/api/v1/upstreams/a/drain", &json!({}));
    let refused = ask(
        gateway.management,
        with(drain(), ORIGIN, "http://evil.example.com"),
    )
    .await;
    assert_eq!(refused.status, 403, "{refused:?}");
    let refused = ask(gateway.management, with(get("/api/v1/upstreams"), ORIGIN, "null")).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    let list = ask(gateway.management, get("/api/v1/upstreams")).await.json();
    assert!(
        list["upstreams"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["draining"] == false),
        "{list}"
    );
    assert_eq!(
        ask(gateway.management, get("/api/v1/upstreams/a/drain"))
            .await
            .status,
        405
    );
    // Its own page may, under a name that nobody can make lead here.
    let own = format!("http://{}", gateway.management);
    assert_eq!(
        ask(gateway.management, with(drain(), ORIGIN, &own)).await.status,
        200
    );
    let by_name = format!("http://rebound.example.com:{}", gateway.management.port());
    for other in [own.replace("http:", "https:"), by_name] {
        assert_eq!(
            ask(gateway.management, with(drain(), ORIGIN, &other))
                .await
                .status,
            403,
            "{other}"
        );
    }
    assert_eq!(ask(gateway.management, drain()).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_management_key_the_api_is_for_those_who_have_it() {
    let (a, b) = (engine().await, engine().await);
    let keys = path("drain-management-keys.txt", "mk-1\n");
    let flags = ["--management-key-file", keys.as_str()];
    let gateway = Gateway::start("gateway", &[format!("a={}", a.url()), b.url()], &flags);
    let drain = || post("/api/v1/upstreams/a/drain", &json!({}));
    eventually("a has joined", async || {
        let known = with(get("/api/v1/upstreams/a"), AUTHORIZATION, "Bearer mk-1");
        ask(gateway.management, known).await.status == 200
    })
    .await;
    for asked in [
        drain(),
        get("/api/v1/upstreams"),
        with(drain(), AUTHORIZATION, "Bearer mk-2"),
        with(drain(), AUTHORIZATION, "Basic mk-1"),
    ] {
        let refused = ask(gateway.management, asked).await;
        assert_eq!(refused.status, 401, "{refused:?}");
        assert_eq!(refused.headers["www-authenticate"], "Bearer");
    }
    for path in ["/metrics", "/healthz"] {
        assert_eq!(
            ask(gateway.management, get(path)).await.status,
            200,
            "{path} needs no key"
        );
    }
    let drained = ask(gateway.management, with(drain(), AUTHORIZATION, "Bearer mk-1")).await;
    assert_eq!(
        (drained.status, drained.json()["draining"].clone()),
        (200, json!(true))
    );
    // It can be changed while it serves.
    fs::write(&keys, "mk-2\n").unwrap();
    gateway.program.signal("HUP");
    eventually("the other key is in force", async || {
        ask(
            gateway.management,
            with(get("/api/v1/upstreams"), AUTHORIZATION, "Bearer mk-2"),
        )
        .await
        .status
            == 200
    })
    .await;
    assert_eq!(
        ask(gateway.management, with(drain(), AUTHORIZATION, "Bearer mk-1"))
            .await
            .status,
        401
    );
}
