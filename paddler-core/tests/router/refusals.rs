//! Is every refusal told with the right status, word and body, and is what it is about told apart?

use std::sync::Arc;
use std::time::Duration;

use paddler_core::config::AdminPaths;
use paddler_core::forward::{Body, Keys, RouterOptions};
use serde_json::json;

use super::client::{CHAT, Client, End, HANG, ask, chat, eventually, get, of_model, post};
use super::world::{Setup, World, engine, of, quick, slow};

async fn world_of_one() -> (paddler_engine::Engine, World) {
    let engine = engine(quick()).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    (engine, world)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_never_reaches_an_engine() {
    let (engine, world) = world_of_one().await;
    let json = "content-type: application/json\r\n";
    let deep = "[".repeat(200_000);
    let long = format!(r#"{{"model":"{}"}}"#, "m".repeat(1 << 20));
    let cases: &[(&str, &str, &str, u16, &str)] = &[
        (CHAT, json, "", 400, "malformed_body"),
        (CHAT, json, "[]", 400, "malformed_body"),
        (CHAT, json, "{\"messages\":", 400, "malformed_body"),
        (CHAT, json, "{} {}", 400, "malformed_body"),
        (CHAT, json, r#"{"stream":"yes"}"#, 400, "malformed_body"),
        (CHAT, json, r#"{"model":"a","Model":"b"}"#, 400, "malformed_body"),
        (
            "/custom",
            "",
            r#"{"model":"a","model":"b"}"#,
            400,
            "malformed_body",
        ),
        (CHAT, json, &deep, 400, "malformed_body"),
        (CHAT, json, &long, 404, "model_not_found"),
        (
            CHAT,
            "content-type: multipart/form-data; boundary=x\r\n",
            "--x--",
            415,
            "content_type",
        ),
        (
            "/v1/audio/transcriptions",
            "content-type: multipart/form-data; boundary=x\r\n",
            "--x\r\n",
            400,
            "malformed_body",
        ),
        (
            "/v1/audio/transcriptions",
            "content-type: audio/wav\r\n",
            "RIFF",
            415,
            "content_type",
        ),
        (
            "/v1/audio/transcriptions",
            "content-type: multipart/form-data; boundary=x\r\ncontent-encoding: gzip\r\n",
            "--x--",
            415,
            "content_encoding",
        ),
        (
            CHAT,
            "content-encoding: compress\r\n",
            "\u{1f}",
            415,
            "content_encoding",
        ),
        ("/v1/%2e%2e/%2e%2e/a", "", "{}", 400, "bad_path"),
        ("/a%2Fb", "", "{}", 400, "bad_path"),
    ];
    for (path, headers, body, status, reason) in cases {
        let answer = ask(world.addr, "POST", path, headers, body).await;
        let short = &body[..body.len().min(40)];
        assert_eq!(
            (answer.status, answer.reason(), answer.end),
            (*status, *reason, End::Whole),
            "{path} {short}"
        );
        assert!(answer.json()["error"]["message"].is_string());
    }
    assert_eq!(engine.stats().requests, 0);
    let surrogate = r#"{"messages":[{"role":"user","content":"a"}],"max_tokens":1,"user":"\ud83d"}"#;
    ask(world.addr, "POST", CHAT, json, surrogate).await;
    assert_eq!(
        engine.last_request().unwrap().body,
        surrogate,
        "engines may make of it what they like"
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_long_is_refused_and_the_client_can_read_that() {
    let engine = engine(quick()).await;
    let world = Setup::new()
        .with(|setup| setup.options.max_body = 100_000)
        .start([of("a", &engine)])
        .await;
    let large = vec![b' '; 8 << 20];
    let length = format!("content-length: {}\r\n", large.len());
    for framing in [length.as_str(), "transfer-encoding: chunked\r\n"] {
        let mut client = Client::connect(world.addr).await;
        client
            .write(format!("POST {CHAT} HTTP/1.1\r\nhost: r\r\n{framing}\r\n"))
            .await;
        if framing.starts_with("transfer") {
            client.write(format!("{:x}\r\n", large.len())).await;
        }
        // All of it, though the answer is there long before: it must not be lost over that.
        client.write(&large).await;
        let answer = client.answer().await;
        assert_eq!(
            (answer.status, answer.reason(), answer.end),
            (413, "body_too_large", End::Whole)
        );
        assert_eq!(answer.header("connection"), Some("close"));
        assert_eq!(client.rest().await.0, End::Eof, "a plain end");
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let engine = engine(quick()).await;
    let setup = Setup::new().with(|setup| setup.options.timeouts.body_idle = Duration::from_millis(80));
    let world = setup.start([of("a", &engine)]).await;
    let mut client = Client::connect(world.addr).await;
    client
        .write(format!(
            "POST {CHAT} HTTP/1.1\r\nhost: r\r\ncontent-length: 10\r\n\r\n{{"
        ))
        .await;
    let answer = client.answer().await;
    assert_eq!(
        (answer.status, answer.reason(), answer.header("connection")),
        (408, "slow_body", Some("close"))
    );
    assert_eq!(client.rest().await.0, End::Eof);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_inside_of_an_engine_is_closed_by_every_name() {
    let (engine, world) = world_of_one().await;
    let names = [
        "/slots",
        "//slots",
        "/%73lots",
        "/slots/",
        "/v1/../slots",
        "/./slots",
        "/slots/0?action=erase",
        "/props",
        "/metrics",
        "/lora-adapters",
        "/v1/load_lora_adapter",
    ];
    let mut client = Client::connect(world.addr).await;
    for path in names {
        for method in ["GET", "DELETE"] {
            client.send(method, path, "", "").await;
            let answer = client.answer().await;
            assert_eq!(
                (answer.status, answer.reason()),
                (403, "admin_path"),
                "{method} {path}"
            );
            assert_eq!(answer.header("connection"), None, "nothing of it was left unread");
        }
        let answer = ask(world.addr, "POST", path, "", "{}").await;
        assert_eq!(
            (answer.status, answer.header("connection")),
            (403, Some("close")),
            "{path}"
        );
    }
    assert_eq!(engine.stats().requests, 0);

    let open = Setup::new()
        .with(|setup| setup.options.admin = AdminPaths::Open)
        .start([of("a", &engine)])
        .await;
    assert_eq!(
        get(open.addr, "//slots").await.json().as_array().unwrap().len(),
        4
    );
    assert_eq!(engine.last_request().unwrap().path, "/slots");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_no_forward_proxy() {
    let (engine, world) = world_of_one().await;
    for (method, target, status, reason) in [
        ("CONNECT", "example.com:443", 405, "connect"),
        ("GET", "http://example.com/v1/models", 421, "foreign_host"),
        ("GET", "http://169.254.169.254/latest", 421, "foreign_host"),
        ("GET", "http://localhost.example.com/health", 421, "foreign_host"),
    ] {
        let answer = ask(world.addr, method, target, "", "").await;
        assert_eq!((answer.status, answer.reason()), (status, reason), "{target}");
    }
    assert_eq!(get(world.addr, "http://LOCALHOST/v1/models").await.status, 200);
    let named = Setup::new().with(|setup| setup.options.server_names = vec!["llm.example.com".into()]);
    let named = named.start([of("a", &engine)]).await;
    assert_eq!(
        get(named.addr, "http://LLM.example.com:8080/health").await.status,
        200
    );
    assert_eq!(engine.stats().requests, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_key_gets_nothing_but_the_health() {
    let engine = engine(quick()).await;
    let keys = Keys::read("sk-good\n").unwrap();
    let world = Setup::new()
        .with(|setup| setup.options.keys = Some(Arc::new(keys)))
        .start([of("a", &engine)])
        .await;
    let messages = json!({ "messages": [{ "role": "user", "content": "a" }], "max_tokens": 1 });
    for headers in [
        "",
        "authorization: Bearer sk-bad\r\n",
        "authorization: Basic sk-good\r\n",
        "x-api-key: sk\r\n",
    ] {
        let openai = ask(world.addr, "POST", CHAT, headers, chat(1).to_string()).await;
        assert_eq!((openai.status, openai.reason()), (401, "api_key"));
        assert_eq!(openai.json()["error"]["type"], "authentication_error");
        let anthropic = ask(world.addr, "POST", "/v1/messages", headers, messages.to_string()).await;
        assert_eq!(
            (anthropic.status, &anthropic.json()["type"]),
            (401, &json!("error"))
        );
        let native = ask(world.addr, "POST", "/completion", headers, r#"{"prompt":"a"}"#).await;
        assert_eq!(
            (native.status, &native.json()["error"]["code"]),
            (401, &json!(401))
        );
        let ollama = ask(world.addr, "POST", "/api/chat", headers, "{}").await;
        assert!(ollama.status == 401 && ollama.json()["error"].is_string());
        for path in ["/v1/models", "/slots", "/anything", "/v1/models/health"] {
            assert_eq!(
                ask(world.addr, "GET", path, headers, "").await.status,
                401,
                "{path}"
            );
        }
        assert_eq!(ask(world.addr, "GET", "/health", headers, "").await.status, 200);
    }
    assert_eq!(engine.stats().requests, 0);
    for headers in ["authorization: bearer sk-good\r\n", "x-api-key: sk-good\r\n"] {
        assert_eq!(
            ask(world.addr, "POST", CHAT, headers, chat(1).to_string())
                .await
                .status,
            200
        );
        let seen = engine.last_request().unwrap().headers;
        assert!(!seen.contains_key("authorization") && !seen.contains_key("x-api-key"));
    }
    let preflight = "origin: http://a\r\naccess-control-request-method: POST\r\n";
    assert_eq!(
        ask(world.addr, "OPTIONS", CHAT, preflight, "").await.status,
        404,
        "as the engine has it"
    );
    assert_eq!(ask(world.addr, "OPTIONS", CHAT, "", "").await.status, 401);
    for (path, headers) in [
        (CHAT, "access-control-request-method: POST\r\n"),
        (CHAT, "origin: http://a\r\n"),
        ("/slots", preflight),
    ] {
        assert_eq!(
            ask(world.addr, "OPTIONS", path, headers, "").await.status,
            401,
            "{path}"
        );
    }
    assert_eq!(
        ask(world.addr, "POST", CHAT, preflight, chat(1).to_string())
            .await
            .status,
        401
    );
    world.quiet().await;
}

#[tokio::test]
async fn a_listener_on_loopback_without_keys_goes_by_its_own_names() {
    let engine = engine(quick()).await;
    let of_loopback = |options: &mut RouterOptions| {
        options.own_names_only = true;
        options.server_names = vec!["llm.example.com".into()];
    };
    let world = Setup::new().with(|setup| of_loopback(&mut setup.options));
    let world = world.start([of("a", &engine)]).await;
    let status = async |host: &str| {
        let request = http::Request::get("/v1/models").header("host", host);
        world
            .router
            .handle(request.body(Body::empty()).unwrap())
            .await
            .status()
    };
    for host in [
        "localhost:8080",
        "LocalHost",
        "127.0.0.1:1",
        "[::1]:8080",
        "llm.example.com",
        "",
    ] {
        assert_eq!(status(host).await, 200, "{host:?}");
    }
    for host in [
        "evil.example",
        "evil.example:8080",
        "192.0.2.1",
        "localhost.evil.example",
    ] {
        assert_eq!(status(host).await, 421, "{host:?}");
    }
    // Who has a key may ask by any name.
    let mut options = world.router.options();
    options.keys = Some(Arc::new(Keys::read("sk-1").unwrap()));
    world.router.reconfigure(options);
    assert_eq!(status("evil.example").await, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_and_health_are_answered_here() {
    let (one, two) = (engine(slow().slots(1)).await, engine(quick()).await);
    let mut upstreams = [of("one", &one), of("two", &two)];
    for (upstream, models) in upstreams
        .iter_mut()
        .zip([["shared", "first"], ["second", "shared"]])
    {
        let entries = models.map(paddler_core::upstream::ModelEntry::new);
        upstream.models = Some(paddler_core::upstream::Models::Listed(entries.into()));
    }
    let world = Setup::new().queue(9, HANG).start(upstreams).await;
    let mut busy = Client::connect(world.addr).await;
    busy.post(CHAT, &of_model("first")).await;
    eventually("it runs", || one.stats().running == 1).await;
    let models = get(world.addr, "/v1/models").await.json();
    let names: Vec<_> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["first", "second", "shared"]);
    assert_eq!(get(world.addr, "/health").await.text(), r#"{"status":"ok"}"#);
    drop(busy);
    world.quiet().await;

    let nobody = Setup::new().start([]).await;
    let answer = get(nobody.addr, "/health").await;
    assert_eq!(
        (answer.status, answer.reason(), &answer.json()["error"]["code"]),
        (503, "no_upstream", &json!(503))
    );
    world.router.stop();
    assert_eq!(get(world.addr, "/v1/health").await.reason(), "stopping");
    assert_eq!(
        post(world.addr, CHAT, &of_model("second")).await.status,
        200,
        "what comes all the same is served"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_counts_of_refusals_have_bounded_names() {
    let (_engine, world) = world_of_one().await;
    for number in 0..50 {
        get(world.addr, &format!("/slots/{number}")).await;
        post(world.addr, &format!("/custom/{number}"), &json!({ "a": number })).await;
    }
    assert_eq!(world.router.metrics().refusals(), [("admin_path".to_owned(), 50)]);
    assert!(world.router.metrics().requests().len() <= 2);
    world.quiet().await;
}
