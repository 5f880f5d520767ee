//! Who has the last word: flags, then the environment, then the file?

use std::net::TcpListener;

use paddler_engine::{Engine, EngineConfig};

use crate::path;
use crate::support::client::{ask, chat, eventually, get, post};
use crate::support::program::{Ended, Program, address_in, run};

const LISTEN: &str = "--listen=127.0.0.1:0";
const UPSTREAM: &str = "--upstream=http://127.0.0.1:9";

async fn fails(args: &[&str], variables: &[(&str, &str)], code: i32) -> Ended {
    let ended = run(args, variables).await;
    assert_eq!(
        ended.status.code(),
        Some(code),
        "{args:?} {variables:?}: {ended:?}"
    );
    ended
}

/// The models behind the program that is started so.
async fn models(args: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    let mut all = vec!["gateway", LISTEN, "--management=off"];
    all.extend(args);
    let program = Program::start(&all, variables);
    let address = address_in(&program.logs(|line| line.contains("listening for requests")));
    let mut names = Vec::new();
    eventually("it knows a model", async || {
        let list = ask(address, get("/v1/models")).await.json();
        names = list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|model| model["id"].as_str().unwrap().to_owned())
            .collect();
        !names.is_empty()
    })
    .await;
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn upstreams_come_from_the_flags_or_the_environment_or_the_file() {
    let mut engines = Vec::new();
    for name in ["of-file", "of-environment", "of-flags"] {
        engines.push(Engine::start(EngineConfig::llamacpp(name)).await.unwrap());
    }
    let [of_file, of_environment, of_flags] = [0, 1, 2].map(|index| engines[index].url());
    let config = path(
        "settings-upstreams.yaml",
        &format!("upstreams:\n  - url: {of_file}\n"),
    );
    // A comma at the end of a list that was put together is no upstream.
    let list = format!(" {of_environment} ,");
    let variables = [
        ("PADDLER_CONFIG", config.as_str()),
        ("PADDLER_UPSTREAM", list.as_str()),
    ];
    assert_eq!(models(&["--upstream", &of_flags], &variables).await, ["of-flags"]);
    assert_eq!(models(&[], &variables).await, ["of-environment"]);
    assert_eq!(models(&[], &variables[..1]).await, ["of-file"]);
    assert_eq!(models(&["--config", &config], &[]).await, ["of-file"]);
    // Empty counts as not set, for every variable.
    let unset = [
        "UPSTREAM",
        "LISTEN",
        "MANAGEMENT",
        "ENGINE",
        "API_KEY_FILE",
        "MANAGEMENT_KEY_FILE",
        "UPSTREAM_API_KEY_FILE",
        "MAX_REQUESTS",
    ]
    .into_iter()
    .chain(["MAX_WAIT", "POLL_INTERVAL", "OPEN_ADMIN_PATHS", "GRACE"])
    .chain(["STATSD_ADDR", "STATSD_PREFIX", "STATSD_REPORTING_INTERVAL"])
    .map(|name| format!("PADDLER_{name}"));
    let unset: Vec<_> = unset.collect();
    let mut empty: Vec<_> = unset.iter().map(|name| (name.as_str(), "")).collect();
    empty.push(variables[0]);
    assert_eq!(models(&[], &empty).await, ["of-file"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_comes_from_the_flags_or_the_environment_or_the_file() {
    let config = path(
        "settings-order.yaml",
        "upstreams: [{url: 'http://127.0.0.1:9'}]\nmanagement: 127.0.0.1:0\n",
    );
    let off = ("PADDLER_MANAGEMENT", "off");
    let on = "--management=127.0.0.1:0";
    for (flags, variables, told) in [
        (&[][..], &[][..], true),
        (&[], &[off], false),
        (&[on], &[off], true),
        (&[on], &[], true),
    ] {
        let args = [&["gateway", LISTEN, "--config", &config], flags].concat();
        let program = Program::start(&args, variables);
        // The upstream joins after the listeners have been told.
        program.logs(|line| line.contains("upstream joined"));
        program.signal("TERM");
        let ended = program.ended().await;
        assert_eq!(
            ended.log.contains("listening for health"),
            told,
            "{flags:?} {variables:?}: {ended:?}"
        );
    }
}

#[tokio::test]
async fn a_wrong_setting_names_its_flag_and_its_variable() {
    for (flag, value, says) in [
        ("--listen", "8080", "is not an address"),
        ("--management", "localhost:1", "is not an address"),
        ("--max-wait", "10", "write \"10s\""),
        ("--poll-interval", "0s", "10ms"),
        ("--grace", "soon", "a number and ms, s, m or h"),
        ("--max-requests", "2000000", "1000000"),
        ("--statsd-addr", "8125", "a host and a port"),
    ] {
        let variable = format!("PADDLER_{}", flag[2..].replace('-', "_").to_uppercase());
        let said = format!("{flag}={value}");
        for ended in [
            fails(&["gateway", UPSTREAM, &said], &[], 1).await,
            fails(&["balancer", UPSTREAM], &[(&variable, value)], 1).await,
        ] {
            let begins = format!("{flag} ({variable}): ");
            assert!(
                ended.log.starts_with(&begins) && ended.log.contains(says),
                "{ended:?}"
            );
        }
    }
    let ended = fails(&["gateway", UPSTREAM, "--upstream=gpu:80"], &[], 1).await;
    let says = "--upstream (PADDLER_UPSTREAM), number 2: \"gpu:80\": a url begins with http://";
    assert!(ended.log.starts_with(says), "{ended:?}");
    let wrong = [
        ("PADDLER_ENGINE", "vlm"),
        ("PADDLER_MAX_REQUESTS", "many"),
        ("PADDLER_OPEN_ADMIN_PATHS", "perhaps"),
    ];
    for (variable, value) in wrong {
        let ended = fails(&["gateway", UPSTREAM], &[(variable, value)], 2).await;
        assert!(
            ended.log.contains(variable) && ended.log.contains(value),
            "{ended:?}"
        );
    }
}

#[tokio::test]
async fn what_would_say_nothing_is_refused() {
    let ended = fails(&["gateway"], &[], 1).await;
    assert!(
        ended.log.contains("--upstream http://host:port") && ended.log.contains("--config"),
        "{ended:?}"
    );
    let config = path(
        "settings-about.yaml",
        "upstreams: [{url: 'http://127.0.0.1:9'}]\n",
    );
    for (flag, value, key) in [
        ("--engine", "vllm", "`engine`"),
        ("--upstream-api-key-file", "k", "`api_key_file`"),
    ] {
        let ended = fails(&["gateway", "--config", &config, flag, value], &[], 1).await;
        assert!(
            ended.log.starts_with(flag) && ended.log.contains(key),
            "{ended:?}"
        );
    }
}

#[tokio::test]
async fn a_port_in_use_names_the_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (flag, other) in [("--listen", "--management=off"), ("--management", LISTEN)] {
        let ended = fails(&["gateway", UPSTREAM, other, flag, &address], &[], 1).await;
        let last = ended.log.lines().last().unwrap();
        assert!(
            last.starts_with(&format!("{address} cannot be listened on")) && last.contains(flag),
            "{ended:?}"
        );
    }
}

#[tokio::test]
async fn a_file_that_is_missing_is_named_with_what_it_is_for() {
    for (flag, what) in [
        ("--config", "the config"),
        ("--api-key-file", "the keys of clients"),
        ("--upstream-api-key-file", "the key for the upstream 127.0.0.1:9"),
    ] {
        let ended = fails(&["gateway", UPSTREAM, LISTEN, flag, "no/such/file"], &[], 1).await;
        assert!(
            ended
                .log
                .starts_with(&format!("no/such/file ({what}) cannot be read: ")),
            "{ended:?}"
        );
    }
}

#[tokio::test]
async fn files_for_tls_are_looked_for_beside_the_config_and_named_with_their_upstream() {
    let beside = path("settings-no-ca.pem", "nothing of use\n");
    let text = "upstreams: [{url: 'https://gpu-1.lan', tls: {ca: settings-no-ca.pem}}]\n";
    let config = path("settings-tls.yaml", text);
    let ended = fails(&["check", &config], &[], 1).await;
    let begins = format!("the upstream gpu-1.lan:443: {beside} (the CA): it holds no certificate");
    assert!(ended.log.starts_with(&begins), "{ended:?}");
}

#[tokio::test]
async fn a_file_of_keys_is_looked_for_beside_the_config_that_names_it() {
    let own = path("settings-own.txt", "sk-own\n");
    path("settings-clients.txt", "sk-1\n");
    let text = "api_key_file: settings-clients.txt
upstreams:
  - url: http://127.0.0.1:9
    api_key_file: settings-own.txt
  - url: http://127.0.0.1:10
    api_key_file: settings-none.txt
";
    let config = path("settings-beside.yaml", text);
    let ended = fails(&["check", &config], &[], 1).await;
    let missing = own.replace("settings-own", "settings-none");
    let says = format!("{config}:6:19: upstreams[1].api_key_file: {missing} is not there");
    assert!(ended.log.starts_with(&says), "{ended:?}");
    // A flag's is not.
    let flag = "--api-key-file=settings-clients.txt";
    let ended = fails(&["gateway", LISTEN, UPSTREAM, "--config", &config, flag], &[], 1).await;
    let says = "settings-clients.txt (the keys of clients) cannot be read: ";
    assert!(ended.log.contains(&format!("\n{says}")), "{ended:?}");
    assert!(ended.log.ends_with("; make it, one key a line"), "{ended:?}");
    let replaces = format!("--upstream (PADDLER_UPSTREAM) replaces the 2 upstreams of {config}");
    assert!(ended.log.contains(&replaces), "{ended:?}");
}

#[tokio::test]
async fn a_router_is_not_its_own_upstream() {
    for (listen, url) in [
        ("127.0.0.1:7999", "http://127.0.0.1:7999"),
        ("127.0.0.1:7999", "http://localhost:7999"),
        ("127.0.0.1:7999", "http://0.0.0.0:7999"),
        ("0.0.0.0:7999", "http://127.0.0.1:7999"),
        ("[::]:7999", "http://[::1]:7999"),
        ("127.0.0.1:7999", "https://127.0.0.1:7999"),
    ] {
        let ended = fails(&["gateway", "--listen", listen, "--upstream", url], &[], 1).await;
        assert!(
            ended.log.contains("is this router itself"),
            "{listen} {url}: {ended:?}"
        );
    }
    let config = path(
        "settings-itself.yaml",
        "upstreams: [{url: 'http://127.0.0.1:8080'}]\n",
    );
    let ended = fails(&["check", &config], &[], 1).await;
    assert!(ended.log.contains("is this router itself"), "{ended:?}");
}

#[tokio::test]
async fn it_listens_on_loopback_unless_told_otherwise() {
    // Where something else has the ports already, the refusal tells which ones they would have been.
    let program = Program::start(&["gateway", UPSTREAM], &[]);
    let address =
        |line: &str| line.contains("listening for requests") || line.contains("cannot be listened on");
    let line = program.logs(address);
    assert!(line.contains("127.0.0.1:808"), "{line}");
    drop(program);
    let open = ["gateway", UPSTREAM, "--management=off", "--listen=0.0.0.0:0"];
    Program::start(&open, &[]).logs(|line| line.contains("WARN") && line.contains("--api-key-file"));
}

#[tokio::test]
async fn a_log_level_that_cannot_be_read_is_told() {
    let args = ["gateway", UPSTREAM, LISTEN, "--management=off"];
    let program = Program::start(&args, &[("RUST_LOG", "paddler=loud")]);
    program.logs(|line| line.contains("WARN") && line.contains("RUST_LOG"));
    program.logs(|line| line.contains("INFO"));
    let program = Program::start(&args, &[("RUST_LOG", "")]);
    program.logs(|line| line.contains("INFO"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_keys_may_hold_hashes_and_says_what_each_key_may_do() {
    let key = "4f1b7c0d-a-key-that-nobody-guesses";
    let hashed = hash_of(key);
    let keys = path(
        "settings-keys.yaml",
        &format!("keys:\n  - {{name: a, {hashed}, models: [m], requests_per_minute: 2}}\n"),
    );
    let engine = Engine::start(EngineConfig::llamacpp("m").instant())
        .await
        .unwrap();
    let args = [
        "gateway",
        LISTEN,
        "--management=off",
        "--api-key-file",
        &keys,
        "--upstream",
        &engine.url(),
    ];
    let program = Program::start(&args, &[("RUST_LOG", "trace")]);
    let address = address_in(&program.logs(|line| line.contains("listening for requests")));
    let ask_as = async |key: &str, model: &str| {
        let mut asked = post("/v1/chat/completions", &chat(model, 1));
        asked
            .headers_mut()
            .insert("authorization", format!("Bearer {key}").parse().unwrap());
        ask(address, asked).await
    };
    eventually("it is ready", async || {
        ask(address, get("/health")).await.status == 200
    })
    .await;
    assert_eq!(ask_as(key, "m").await.status, 200);
    assert_eq!(ask_as(key, "other").await.status, 403);
    assert_eq!(ask_as(key, "m").await.headers["x-paddler-reason"], "key_rate");
    assert_eq!(
        ask_as(hashed.trim_start_matches("sha256: "), "m").await.status,
        401,
        "a hash opens nothing"
    );
    program.signal("TERM");
    let ended = program.ended().await;
    assert!(
        !ended.log.contains(key) && !ended.log.contains(&hashed),
        "{}",
        ended.log
    );

    let bad = path(
        "settings-bad-keys.yaml",
        "keys:\n  - {name: a, key: sk-secret, requests_per_minut: 2}\n",
    );
    let config = path("settings-bad-keys-config.yaml", &format!("api_key_file: {bad}\n"));
    let ended = fails(&["check", &config], &[], 1).await;
    let says = format!("{bad}:2:31: keys[0]: something stands here that is not known");
    assert!(
        ended.log.starts_with(&says) && !ended.log.contains("secret"),
        "{ended:?}"
    );
}

/// What `paddler hash-key` prints.
fn hash_of(key: &str) -> String {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    let mut command = Command::new(env!("CARGO_BIN_EXE_paddler"));
    let command = command
        .arg("hash-key")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{key}").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}
