//! Does a changed config come into force with no request failing, and a bad one not at all?

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use paddler_engine::{Engine, EngineConfig};
use serde_json::json;
use tokio::task::JoinSet;

use crate::path;
use crate::support::client::{Answer, Client, ask, chat, eventually, get, post, series, streamed, total};
use crate::support::program::{Gateway, Program, address_in};

async fn engine(model: &str) -> Engine {
    Engine::start(EngineConfig::llamacpp(model).instant())
        .await
        .unwrap()
}

fn upstreams(list: &[(&str, &Engine)]) -> String {
    let one = |(id, engine): &(&str, &Engine)| format!("  - {{id: {id}, url: '{}'}}\n", engine.url());
    format!("upstreams:\n{}", list.iter().map(one).collect::<String>())
}

async fn ids(gateway: &Gateway) -> Vec<String> {
    let all = ask(gateway.management, get("/api/v1/upstreams")).await.json();
    let id = |upstream: &serde_json::Value| upstream["id"].as_str().unwrap().to_owned();
    all["upstreams"].as_array().unwrap().iter().map(id).collect()
}

/// How often the config was read again, with this result.
async fn reloads(gateway: &Gateway, result: &str) -> f64 {
    let page = ask(gateway.management, get("/metrics")).await;
    series(
        page.text(),
        &format!("paddler_config_reloads_total{{result=\"{result}\"}}"),
    )
    .unwrap_or(0.0)
}

async fn ready(gateway: &Gateway) {
    eventually("it is ready", async || {
        ask(gateway.management, get("/readyz")).await.status == 200
    })
    .await;
}

/// Asks the gateway without a pause, from several sides, until told to stop. Says how many answers came.
fn load(gateway: &Gateway, done: Arc<AtomicBool>, good: Arc<AtomicUsize>) -> JoinSet<Vec<Answer>> {
    let mut clients = JoinSet::new();
    for number in 0..8 {
        let (address, done, good) = (gateway.address, done.clone(), good.clone());
        clients.spawn(async move {
            let mut client = Client::to(address);
            let mut bad = Vec::new();
            while !done.load(SeqCst) {
                let body = if number % 2 == 0 {
                    chat("m", 3)
                } else {
                    streamed(chat("m", 3))
                };
                let answer = client.ask(post("/v1/chat/completions", &body)).await;
                if answer.is_good() {
                    good.fetch_add(1, SeqCst);
                } else {
                    bad.push(answer);
                }
            }
            bad
        });
    }
    clients
}

#[tokio::test(flavor = "multi_thread")]
async fn under_load_upstreams_trees_and_keys_are_swapped_and_no_request_fails() {
    let engines = [
        engine("m").await,
        engine("m").await,
        engine("m").await,
        engine("m").await,
    ];
    let [a, b, c, d] = &engines;
    let trees = [
        "tree: gateway\n",
        "tree: balancer\n",
        "tree: [require: model, require: slot, pick: random]\n",
    ];
    let lists = [
        upstreams(&[("a", a), ("b", b)]),
        // All at once are others.
        upstreams(&[("c", c), ("d", d)]),
        upstreams(&[("a", a)]),
        // One id, another address.
        upstreams(&[("a", b), ("d", d)]),
    ];
    let config = |round: usize| {
        format!(
            "{}{}queue: {{max_requests: 1000}}\n",
            lists[round % 4],
            trees[round % 3]
        )
    };
    let file = path("reload-load.yaml", &config(0));
    let gateway = Gateway::by(&file);
    ready(&gateway).await;
    let (done, good) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients = load(&gateway, done.clone(), good.clone());
    for round in 1..=24usize {
        let before = good.load(SeqCst);
        fs::write(&file, config(round)).unwrap();
        gateway.program.signal("HUP");
        eventually("it was read again", async || {
            reloads(&gateway, "success").await >= round as f64
        })
        .await;
        eventually("requests go on", async || good.load(SeqCst) > before + 20).await;
    }
    done.store(true, SeqCst);
    let bad: Vec<_> = clients.join_all().await.into_iter().flatten().collect();
    assert!(
        bad.is_empty(),
        "{} of {}: {:?}",
        bad.len(),
        good.load(SeqCst),
        bad[0]
    );
    for engine in &engines {
        assert!(engine.stats().completed > 0, "each had its turn");
    }
    assert_eq!(reloads(&gateway, "failure").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_file_changes_nothing_and_each_fault_is_told() {
    let engine = engine("m").await;
    let file = path("reload-bad.yaml", &upstreams(&[("a", &engine)]));
    let gateway = Gateway::by(&file);
    ready(&gateway).await;
    fs::write(&file, "upstreams: [{url: 'ftp://a'}]\nqueue: {max_wait: 10}\n").unwrap();
    gateway.program.signal("HUP");
    for place in [
        ":1:19: upstreams[0].url: ",
        ":2:19: queue.max_wait: 10 needs a unit",
    ] {
        let line = gateway.program.logs(|line| line.contains(place));
        assert!(line.contains("ERROR") && line.contains(&file), "{line}");
    }
    eventually("it is counted", async || {
        reloads(&gateway, "failure").await >= 1.0
    })
    .await;
    let page = ask(gateway.management, get("/metrics")).await;
    assert_eq!(series(page.text(), "paddler_config_stale"), Some(1.0));
    let last = ask(gateway.management, get("/api/v1/reload")).await.json();
    assert_eq!(last["last"]["result"], "failure");
    let faults = last["last"]["faults"].as_array().unwrap();
    assert!(
        faults.len() == 2 && faults[1].as_str().unwrap().contains(":2:19: queue.max_wait"),
        "{last}"
    );
    assert_eq!(ids(&gateway).await, ["a"]);
    assert!(
        ask(gateway.address, post("/v1/chat/completions", &chat("m", 3)))
            .await
            .is_good()
    );

    // The same by the API; and a good one mends it.
    let again = ask(gateway.management, post("/api/v1/reload", &json!({}))).await;
    assert_eq!(
        (again.status, again.json()["result"].as_str()),
        (422, Some("failure"))
    );
    fs::write(&file, upstreams(&[("b", &engine)])).unwrap();
    let again = ask(gateway.management, post("/api/v1/reload", &json!({}))).await;
    assert_eq!(
        (again.status, again.json()["faults"].clone()),
        (200, json!([])),
        "{again:?}"
    );
    assert_eq!(again.json()["needs_restart"], json!([]));
    eventually("b for a", async || ids(&gateway).await == ["b"]).await;
    let page = ask(gateway.management, get("/metrics")).await;
    assert_eq!(series(page.text(), "paddler_config_stale"), Some(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_comes_into_force_by_itself() {
    let (a, b) = (engine("m").await, engine("m").await);
    // As Kubernetes mounts it: the file is a link into a folder that is a link, and that link is turned.
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("reload-mounted");
    fs::remove_dir_all(&folder).ok();
    for (name, list) in [("one", upstreams(&[("a", &a)])), ("two", upstreams(&[("b", &b)]))] {
        fs::create_dir_all(folder.join(name)).unwrap();
        fs::write(
            folder.join(name).join("paddler.yaml"),
            format!("{list}api_key_file: keys\n"),
        )
        .unwrap();
        fs::write(folder.join(name).join("keys"), format!("sk-{name}\n")).unwrap();
    }
    let link = |to: &str| {
        std::os::unix::fs::symlink(to, folder.join("..new")).unwrap();
        fs::rename(folder.join("..new"), folder.join("..data")).unwrap();
    };
    link("one");
    for file in ["paddler.yaml", "keys"] {
        std::os::unix::fs::symlink(format!("..data/{file}"), folder.join(file)).unwrap();
    }
    let gateway = Gateway::by(folder.join("paddler.yaml").to_str().unwrap());
    ready(&gateway).await;
    let status = async |key: &str| {
        let mut asked = post("/v1/chat/completions", &chat("m", 3));
        asked
            .headers_mut()
            .insert("authorization", format!("Bearer {key}").parse().unwrap());
        ask(gateway.address, asked).await.status
    };
    assert_eq!((status("sk-one").await, status("sk-two").await), (200, 401));
    link("two");
    eventually("b for a", async || ids(&gateway).await == ["b"]).await;
    assert_eq!((status("sk-one").await, status("sk-two").await), (401, 200));

    // A file that it names, alone.
    fs::write(folder.join("two/keys"), "sk-three\n").unwrap();
    eventually("the key is new", async || status("sk-three").await == 200).await;
    assert_eq!(status("sk-two").await, 401);
    assert_eq!(reloads(&gateway, "failure").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_is_served_through_a_reload() {
    let slow = EngineConfig::llamacpp("m")
        .slots(1)
        .prefill_tokens_per_second(f64::INFINITY);
    let slow = Engine::start(slow.decode_tokens_per_second(20.0)).await.unwrap();
    let file = path(
        "reload-waiting.yaml",
        &format!("{}queue: {{max_wait: 2m}}\n", upstreams(&[("a", &slow)])),
    );
    let gateway = Gateway::by(&file);
    ready(&gateway).await;
    let address = gateway.address;
    let one =
        tokio::spawn(
            async move { ask(address, post("/v1/chat/completions", &streamed(chat("m", 40)))).await },
        );
    eventually("it is there", async || slow.stats().running == 1).await;
    let two = tokio::spawn(async move { ask(address, post("/v1/chat/completions", &chat("m", 1))).await });
    let waiting = async || {
        let page = ask(gateway.management, get("/metrics")).await;
        Some(total(page.text(), "paddler_waiting_requests"))
    };
    eventually("one waits", async || waiting().await == Some(1.0)).await;
    // The upstream that works leaves; what it works on comes to its end, and the one who waits goes elsewhere.
    let quick = engine("m").await;
    fs::write(
        &file,
        format!("{}queue: {{max_wait: 2m}}\n", upstreams(&[("b", &quick)])),
    )
    .unwrap();
    gateway.program.signal("HUP");
    let two = two.await.unwrap();
    assert!(two.is_good(), "{two:?}");
    let one = one.await.unwrap();
    assert!(one.is_good(), "{one:?}");
    assert_eq!((quick.stats().completed, slow.stats().completed), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_restart_is_said_and_all_else_is_applied() {
    let engine = engine("m").await;
    let file = path("reload-restart.yaml", &upstreams(&[("a", &engine)]));
    let gateway = Gateway::by(&file);
    ready(&gateway).await;
    fs::write(
        &file,
        format!("{}limits: {{connections: 100}}\n", upstreams(&[("b", &engine)])),
    )
    .unwrap();
    let again = ask(gateway.management, post("/api/v1/reload", &json!({}))).await;
    assert_eq!(
        again.json()["needs_restart"],
        json!(["limits.connections"]),
        "{again:?}"
    );
    gateway
        .program
        .logs(|line| line.contains("waits for a restart") && line.contains("limits.connections"));
    eventually("b for a", async || ids(&gateway).await == ["b"]).await;
    // Flags are laid over it as at the start.
    fs::write(
        &file,
        format!("{}listen: 127.0.0.1:1\n", upstreams(&[("c", &engine)])),
    )
    .unwrap();
    let again = ask(gateway.management, post("/api/v1/reload", &json!({}))).await;
    assert_eq!(again.json()["needs_restart"], json!([]), "listen is a flag's");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_a_flag_covers_are_named_at_each_reading() {
    let text = "upstreams: [{url: 'http://127.0.0.1:9'}]\nlisten: 127.0.0.1:0\nqueue: {max_wait: 1s, max_requests: 7}\n";
    let file = path("reload-covered.yaml", text);
    let args = [
        "gateway",
        "--management=127.0.0.1:0",
        "--max-wait=2s",
        "--grace=1s",
        "--config",
        &file,
    ];
    let program = Program::start(&args, &[("PADDLER_LISTEN", "127.0.0.1:0")]);
    let covers = |line: &&str| {
        line.ends_with(
            "which do not count: listen (--listen, PADDLER_LISTEN), queue.max_wait (--max-wait, PADDLER_MAX_WAIT)",
        )
    };
    program.logs(|line| covers(&line));
    program.logs(|line| line.contains("listening for health"));
    program.signal("HUP");
    program.logs(|line| line.contains("the config is in force"));
    program.signal("TERM");
    let log = program.ended().await.log;
    assert_eq!(log.lines().filter(covers).count(), 2, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_not_there_is_told_with_its_place_and_what_a_flag_covers_is_not_missed() {
    let engine = engine("m").await;
    let keys = path("reload-there.txt", "sk-1\n");
    let missing = "api_key_file: reload-not-there.txt\n";
    let file = path(
        "reload-missing.yaml",
        &format!("{missing}{}", upstreams(&[("a", &engine)])),
    );
    let flag = format!("--api-key-file={keys}");
    let args = [
        "gateway",
        "--listen=127.0.0.1:0",
        "--management=127.0.0.1:0",
        "--config",
        &file,
    ];
    let covered = Program::start(&[&args[..], &[&flag]].concat(), &[]);
    covered.logs(|line| line.contains("listening for requests"));
    let ended = Program::start(&args, &[]).ended().await;
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let says = format!("{file}:1:15: api_key_file: ");
    assert!(
        ended.log.starts_with(&says) && ended.log.contains("reload-not-there.txt is not there"),
        "{ended:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_from_a_pipe_is_not_read_again_and_stays_in_force() {
    let engine = engine("m").await;
    let pipe = format!("{}/reload-pipe", env!("CARGO_TARGET_TMPDIR"));
    // One of a run before, perhaps. Whoever writes into it waits for a reader.
    fs::remove_file(&pipe).ok();
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let args = [
        "gateway",
        "--listen=127.0.0.1:0",
        "--management=127.0.0.1:0",
        "--config",
        &pipe,
    ];
    let program = Program::start(&args, &[]);
    fs::write(&pipe, upstreams(&[("a", &engine)])).unwrap();
    let address = address_in(&program.logs(|line| line.contains("listening for requests")));
    program.logs(|line| line.contains("upstream is ready"));
    program.signal("HUP");
    program.logs(|line| line.contains("reload-pipe is a pipe, which can be read once"));
    let answer = ask(address, post("/v1/chat/completions", &chat("m", 3))).await;
    assert!(answer.is_good(), "{answer:?}");
    program.signal("TERM");
    assert_eq!(program.ended().await.status.code(), Some(0));
}

/// Whose word counts for an upstream, as who would take it away is told.
async fn teller(gateway: &Gateway, id: &str) -> String {
    let mut delete = get(&format!("/api/v1/upstreams/{id}"));
    *delete.method_mut() = http::Method::DELETE;
    let answer = ask(gateway.management, delete).await;
    assert_eq!(answer.status, 409, "{answer:?}");
    let error = answer.json()["error"].as_str().unwrap().to_owned();
    error.split(':').next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_its_own_counts_when_it_changes_and_a_faulty_one_does_not() {
    let [a, b, c] = [engine("m").await, engine("m").await, engine("m").await];
    path("reload-list-key.txt", "sk-c\n");
    let list = path("reload-list.yaml", &upstreams(&[("b", &b)]));
    let own = upstreams(&[("a", &a)]) + "upstreams_file: reload-list.yaml\n";
    let gateway = Gateway::by(&path("reload-with-list.yaml", &own));
    ready(&gateway).await;
    assert_eq!(ids(&gateway).await, ["a", "b"]);
    assert_eq!(
        teller(&gateway, "b").await,
        "b is told by the config's upstreams_file"
    );

    // What it names is looked for beside it. The config says what `a` is, whatever others say.
    let with_key = format!(
        "  - {{id: c, url: '{}', api_key_file: reload-list-key.txt}}\n",
        c.url()
    );
    fs::write(&list, upstreams(&[("b", &b), ("a", &a)]) + &with_key).unwrap();
    eventually("there are three", async || ids(&gateway).await == ["a", "b", "c"]).await;
    assert_eq!(teller(&gateway, "a").await, "a is told by the config");

    for (faulty, says) in [
        ("", "a map should stand here"),
        ("upstreams:\n  - {id: b, url: 'http://", "reload-list.yaml:2:"),
        (
            "upstreams:\n  - {id: b, url: 'http://b', maxinflight: 4}\n",
            "reload-list.yaml:2:",
        ),
        (
            "upstreams: []\nlisten: 127.0.0.1:1\n",
            "reload-list.yaml:2:1: listen: unknown key",
        ),
    ] {
        let failures = reloads(&gateway, "failure").await;
        fs::write(&list, faulty).unwrap();
        eventually("it is refused", async || {
            let now = reloads(&gateway, "failure").await;
            now > failures
        })
        .await;
        let report = ask(gateway.management, get("/api/v1/reload")).await;
        assert!(report.text().contains(says), "{says}: {report:?}");
        assert_eq!(ids(&gateway).await, ["a", "b", "c"], "{faulty}");
    }
    fs::write(&list, "upstreams: []\n").unwrap();
    eventually("there is one", async || ids(&gateway).await == ["a"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_moves_between_the_config_and_its_file_is_never_away() {
    let slow = EngineConfig::llamacpp("m").slots(1);
    let slow = slow.prefill_tokens_per_second(f64::INFINITY);
    let slow = Engine::start(slow.decode_tokens_per_second(4.0)).await.unwrap();
    let other = engine("other").await;
    let list = path("moves-list.yaml", "upstreams: []\n");
    let here = |all: &[(&str, &Engine)]| upstreams(all) + "upstreams_file: moves-list.yaml\n";
    let there = |id: &str| upstreams(&[(id, &slow)]);
    let both = here(&[("o", &other), ("a", &slow)]);
    let file = path("moves.yaml", &both);
    let gateway = Gateway::by(&file);
    crate::api::ready(&gateway, 2).await;
    let address = gateway.address;
    let asking = |tokens| {
        tokio::spawn(async move { ask(address, post("/v1/chat/completions", &chat("m", tokens))).await })
    };
    let lease = async |id: &str| {
        let leases = ask(gateway.management, get("/api/v1/leases")).await.json();
        let mut all = leases["upstreams"].as_array().unwrap().iter().cloned();
        all.find(|one| one["id"] == id)
    };
    let first = asking(900);
    eventually("it is open", async || {
        lease("a").await.is_some_and(|a| a["in_flight"] == 1)
    })
    .await;
    let second = asking(1);
    eventually("it waits", async || {
        let queue = ask(gateway.management, get("/api/v1/queue")).await.json();
        queue["waiting"] == 1
    })
    .await;
    for round in 0..6 {
        for in_list in [true, false] {
            let (own, listed) = if in_list {
                (here(&[("o", &other)]), there("a"))
            } else {
                (both.clone(), "upstreams: []\n".to_owned())
            };
            // Who looks at the files in between finds it twice, and not nowhere.
            let mut writes = [(&list, listed), (&file, own)];
            writes.sort_by_key(|(path, _)| (*path == &list) != in_list);
            for (path, text) in writes {
                fs::write(path, text).unwrap();
            }
            let reload = post("/api/v1/reload", &json!({}));
            let answer = ask(gateway.management, reload).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let told = lease("a").await.expect("it is away");
            assert_eq!(
                (&told["in_flight"], &told["open_weight"]),
                (&json!(1), &json!(1)),
                "{round} {in_list}: {told}"
            );
            let told = ask(gateway.management, get("/api/v1/upstreams/a")).await.json();
            assert_eq!(
                (&told["health"], &told["able"]),
                (&json!("ready"), &json!(true)),
                "{round} {in_list}: what was known of it is known"
            );
            assert!(
                !second.is_finished(),
                "{round} {in_list}: who waits for it waits on"
            );
        }
    }
    // Under another name it is another one, and the one before leaves for it.
    fs::write(&list, there("b")).unwrap();
    fs::write(&file, here(&[("o", &other)])).unwrap();
    let answer = ask(gateway.management, post("/api/v1/reload", &json!({}))).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    eventually("it has its new name", async || ids(&gateway).await == ["b", "o"]).await;
    first.abort();
    assert!(second.await.unwrap().is_good());
}
