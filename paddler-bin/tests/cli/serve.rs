//! Does it serve as it was told to?

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use http::HeaderValue;
use http::header::AUTHORIZATION;
use paddler_core::observe::names;
use paddler_engine::{Engine, EngineConfig};
use serde_json::json;

use crate::path;
use crate::support::client::{Ask, ask, chat, eventually, get, post, streamed};
use crate::support::program::{Gateway, Program, address_in};

async fn engine() -> Engine {
    Engine::start(EngineConfig::llamacpp("m").instant())
        .await
        .unwrap()
}

fn with_key(mut ask: Ask, key: &str) -> Ask {
    let value = HeaderValue::from_str(&format!("Bearer {key}")).unwrap();
    ask.headers_mut().insert(AUTHORIZATION, value);
    ask
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_need_a_key_if_there_are_keys_and_upstreams_get_their_own() {
    let engine = Engine::start(EngineConfig::llamacpp("m").instant().api_key("sk-engine"))
        .await
        .unwrap();
    let keys = path("serve-keys.txt", "# two teams\nsk-a\n\nsk-b\n");
    let own = path("serve-upstream-key.txt", "sk-engine\n");
    let flags = ["--api-key-file", &keys, "--upstream-api-key-file", &own];
    let gateway = Gateway::start("gateway", &[engine.url()], &flags);
    let chat = || post("/v1/chat/completions", &chat("m", 4));
    for key in ["sk-a", "sk-b"] {
        let answer = ask(gateway.address, with_key(chat(), key)).await;
        assert!(answer.is_good(), "{answer:?}");
    }
    for asked in [
        chat(),
        with_key(chat(), "sk-c"),
        with_key(chat(), "sk-engine"),
        with_key(chat(), ""),
    ] {
        let answer = ask(gateway.address, asked).await;
        assert_eq!(answer.status, 401, "{answer:?}");
        assert_eq!(answer.json()["error"]["type"], "authentication_error");
    }
    assert_eq!(
        ask(gateway.address, get("/health")).await.status,
        200,
        "whoever checks health has no key"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_paths_are_closed_unless_opened() {
    let engine = engine().await;
    for (flags, status) in [(&[][..], 403), (&["--open-admin-paths"], 200)] {
        let gateway = Gateway::start("gateway", &[engine.url()], flags);
        eventually("it is ready", async || {
            ask(gateway.management, get("/readyz")).await.status == 200
        })
        .await;
        assert_eq!(ask(gateway.address, get("/slots")).await.status, status);
    }
    for (value, status) in [("1", 200), ("true", 200), ("off", 403)] {
        let args = [
            "gateway",
            "--listen=127.0.0.1:0",
            "--management=off",
            "--upstream",
            &engine.url(),
        ];
        let program = Program::start(&args, &[("PADDLER_OPEN_ADMIN_PATHS", value)]);
        let address = address_in(&program.logs(|line| line.contains("listening for requests")));
        eventually("it is ready", async || {
            ask(address, get("/health")).await.status == 200
        })
        .await;
        assert_eq!(ask(address, get("/slots")).await.status, status, "{value}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn management_tells_of_life_readiness_and_figures() {
    let gateway = Gateway::start("gateway", &["http://127.0.0.1:9".to_owned()], &[]);
    let status = async |path| ask(gateway.management, get(path)).await.status;
    assert_eq!(
        [
            status("/healthz").await,
            status("/metrics").await,
            status("/").await,
            status("/nowhere").await
        ],
        [200, 200, 200, 404]
    );
    // Neither before nobody was found there, nor after it.
    for _ in 0..20 {
        assert_eq!(status("/readyz").await, 503);
    }
    assert_eq!(
        ask(gateway.management, post("/healthz", &json!({}))).await.status,
        405
    );
    // What is told there is not told to clients.
    assert_ne!(ask(gateway.address, get("/readyz")).await.status, 200);
    assert_eq!(ask(gateway.address, get("/metrics")).await.status, 403);

    let engine = engine().await;
    let gateway = Gateway::start("gateway", &[engine.url()], &[]);
    eventually("it is ready", async || {
        ask(gateway.management, get("/readyz")).await.status == 200
    })
    .await;
    let models = ask(gateway.address, get("/v1/models")).await.json();
    assert_eq!(models["data"][0]["id"], "m", "it knows what it can serve");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_figures_can_be_read() {
    let engine = engine().await;
    let gateway = Gateway::start("gateway", &[format!("the-\"first\"-one={}", engine.url())], &[]);
    for body in [chat("m", 4), streamed(chat("m", 4)), chat("nobody", 4)] {
        ask(gateway.address, post("/v1/chat/completions", &body)).await;
    }
    let page = ask(gateway.management, get("/metrics")).await;
    assert_eq!(page.headers["content-type"], "text/plain; version=0.0.4");
    let mut families: Vec<&str> = Vec::new();
    let mut samples = Vec::new();
    for line in page.text().lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(!families.contains(&name), "{name} is there twice");
            families.push(name);
        } else if !line.starts_with("# HELP ") {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let name = series.split('{').next().unwrap();
            let family = *families.last().unwrap();
            let suffix = name
                .strip_prefix(family)
                .unwrap_or_else(|| panic!("{line} stands under {family}"));
            assert!(["", "_sum", "_count", "_bucket"].contains(&suffix), "{line}");
            assert!(series.len() == name.len() || series.ends_with('}'), "{line}");
            value.parse::<f64>().unwrap();
            assert!(!samples.contains(&series), "{series} is there twice");
            samples.push(series);
        }
    }
    let all: Vec<_> = names::ALL.iter().map(|family| family.name).collect();
    assert_eq!(families, all);
    let escaped = r#"paddler_upstream_able{upstream="the-\"first\"-one"}"#;
    assert!(samples.contains(&escaped), "{samples:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_loads_its_model_is_waited_for() {
    let loads = EngineConfig::llamacpp("m")
        .instant()
        .load_time(Duration::from_secs(1));
    let engine = Engine::start(loads).await.unwrap();
    let gateway = Gateway::start(
        "gateway",
        &[engine.url()],
        &["--poll-interval=50ms", "--max-wait=60s"],
    );
    let answer = ask(gateway.address, post("/v1/chat/completions", &chat("m", 4))).await;
    assert!(answer.is_good(), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_any_more_stops_nothing() {
    let engine = engine().await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_paddler"));
    command.args([
        "gateway",
        "--listen=127.0.0.1:0",
        "--management=off",
        "--poll-interval=10ms",
        "--upstream",
    ]);
    command.arg(engine.url()).env_clear().env("RUST_LOG", "trace");
    let mut child = command
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let address = address_in(&log.find(|line| line.contains("listening for requests")).unwrap());
    drop(log);
    let before = engine.stats().requests;
    eventually("statuses go on", async || engine.stats().requests > before + 50).await;
    for _ in 0..20 {
        let answer = ask(address, post("/v1/chat/completions", &chat("m", 4))).await;
        assert!(answer.is_good(), "{answer:?}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_says_why_each_request_went_where_it_went() {
    let (one, two) = (engine().await, engine().await);
    let args = [
        "gateway",
        "--listen=127.0.0.1:0",
        "--management=off",
        "--upstream",
    ];
    let upstreams = format!("one={},two={}", one.url(), two.url());
    let program = Program::start(&[&args[..], &[&upstreams]].concat(), &[("RUST_LOG", "debug")]);
    let address = address_in(&program.logs(|line| line.contains("listening for requests")));
    for name in ["one", "two"] {
        let upstream = format!("upstream={name} ");
        let ready = program.logs(|line| line.contains("upstream is ready") && line.contains(&upstream));
        assert!(ready.contains("models=\"m\" slots=4"), "{ready}");
    }
    ask(address, post("/v1/chat/completions", &chat("m", 4))).await;
    let line = program.logs(|line| line.contains("sent to"));
    for says in [
        "DEBUG",
        "model=\"m\"",
        "why=require model ",
        "least prefill_product -> ",
    ] {
        assert!(line.contains(says), "{says}: {line}");
    }
    let name = if line.contains("upstream=one ") {
        "one"
    } else {
        "two"
    };
    assert!(line.ends_with(&format!("-> {name}")), "{line}");
    ask(address, post("/v1/chat/completions", &chat("nobody", 4))).await;
    let refused = r#"no place model="nobody" reason=model_not_found why=require model 0 of 2 -> never: model_not_found"#;
    let line = program.logs(|line| line.contains(refused));
    assert!(line.contains("DEBUG"), "{line}");
    let line = program.logs(|line| line.contains("refused status=404 reason=model_not_found error="));
    assert!(line.contains("DEBUG") && line.contains("request{id="), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_open_files_is_raised_and_what_does_not_fit_is_said() {
    let config = path(
        "serve-files.yaml",
        "upstreams: [{url: 'http://127.0.0.1:9'}]\nlimits: {connections: 1000}\n",
    );
    for (hard, warns) in [(1024, true), (4096, false)] {
        let mut command = Command::new("sh");
        let line = format!("ulimit -Sn 512 && ulimit -Hn {hard} && exec \"$0\" \"$@\"");
        command.args([
            "-c",
            &line,
            env!("CARGO_BIN_EXE_paddler"),
            "gateway",
            "--config",
            &config,
        ]);
        command
            .args(["--listen=127.0.0.1:0", "--management=off"])
            .env_clear();
        let mut child = command
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap())
            .lines()
            .map(Result::unwrap);
        let before: Vec<_> = log
            .take_while(|line| !line.contains("listening for requests"))
            .collect();
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        let warned = before
            .iter()
            .any(|line| line.contains("limits.connections") && line.contains("limit=1024 needed=2256"));
        assert_eq!(warned, warns, "{before:?}");
        // 1,000 clients of HTTP/2 may have 128 requests each.
        let told = before
            .iter()
            .any(|line| line.contains("limits.streams") && line.contains("limit=4096 needed=129256"));
        assert_eq!(told, !warns, "{before:?}");
        // Only Linux tells.
        if let Ok(limits) = limits {
            let open = limits
                .lines()
                .find(|line| line.starts_with("Max open files"))
                .unwrap();
            let soft = open.split_whitespace().nth(3).unwrap();
            assert_eq!(soft, hard.to_string());
        }
    }
}
