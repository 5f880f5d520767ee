//! Is what is meant by a name asked for, served, listed and guarded, whatever the name is?

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use paddler_core::config::{ModelTimeouts, Registry, tree_from_yaml};
use paddler_core::forward::{Annotate, Authorise, Client};
use paddler_core::request::{ModelRule, ModelRules, RequestFacts};
use paddler_core::upstream::{ModelEntry, Models};
use serde_json::{Value, json};

use super::client::{CHAT, Client as TestClient, HANG, ask, eventually, get, of_model, post};
use super::stub::{Do, Stub};
use super::world::{Setup, World, spec};

fn listed(name: &str) -> Models {
    Models::Listed([ModelEntry::new(name)].into())
}

fn rules(rules: &[(&str, ModelRule)]) -> Arc<ModelRules> {
    Arc::new(ModelRules::new(rules.iter().cloned()).unwrap())
}

fn some() -> Arc<ModelRules> {
    rules(&[
        ("gpt-4o", ModelRule::alias("one")),
        ("gpt-*", ModelRule::alias("two")),
        ("chat", ModelRule::weighted([("one", 1), ("two", 1)])),
        ("gone", ModelRule::alias("three")),
    ])
}

/// Two upstreams with a model each.
async fn two(setup: Setup) -> ([Stub; 2], World) {
    let stubs = [
        Stub::start([Do::ok("{}")]).await,
        Stub::start([Do::ok("{}")]).await,
    ];
    let upstreams = [
        spec("one", &stubs[0].url).models(listed("one")),
        spec("two", &stubs[1].url).models(listed("two")),
    ];
    (stubs, setup.start(upstreams).await)
}

fn with(models: Arc<ModelRules>) -> Setup {
    Setup::new().with(|setup| setup.options.models = models)
}

/// The model that the last request has asked this one for, whose length is right.
fn last_asked(stub: &Stub) -> String {
    let request = stub.seen().pop().unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let length = head.to_ascii_lowercase();
    let length = length
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap();
    assert_eq!(length, body.len().to_string());
    serde_json::from_str::<Value>(body).unwrap()["model"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_gets_the_name_that_is_meant_and_every_other_byte_as_it_came() {
    let (stubs, world) = two(with(some())).await;
    for (name, at) in [("gpt-4o", 0), ("gpt-5", 1), ("one", 0), ("two", 1)] {
        let answer = post(world.addr, CHAT, &of_model(name)).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text());
        assert_eq!(last_asked(&stubs[at]), ["one", "two"][at], "{name}");
    }
    // Odd white space, an escape in the name, and a key that is there twice.
    let body = "{ \"n\":1,\n\t\"model\" :\"gpt-\\u0034o\", \"x\": [1.0e3], \"Model\":\"gpt-4o\" }";
    let answer = ask(
        world.addr,
        "POST",
        CHAT,
        "content-type: application/json\r\n",
        body,
    )
    .await;
    assert_eq!(answer.status, 200);
    let seen = stubs[0].seen().pop().unwrap();
    assert!(
        seen.ends_with("{ \"n\":1,\n\t\"model\" :\"one\", \"x\": [1.0e3], \"Model\":\"one\" }"),
        "{seen}"
    );
    let unknown = post(world.addr, CHAT, &of_model("gone")).await;
    assert_eq!((unknown.status, unknown.reason()), (404, "model_not_found"));
    let message = unknown.json()["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(
        message,
        "no upstream serves the model \"gone\" (which is \"three\" here); known: chat, gpt-4o, one, two"
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_sent_again_keeps_what_was_drawn() {
    // Each of two upstreams refuses whatever comes; both have both models.
    let busy = || Do::say("HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n");
    let both = || Models::Listed(["one", "two"].map(ModelEntry::new).into());
    let mut drawn = BTreeSet::new();
    for seed in 0..20 {
        let stubs = [Stub::start([busy()]).await, Stub::start([busy()]).await];
        let upstreams = [
            spec("a", &stubs[0].url).models(both()),
            spec("b", &stubs[1].url).models(both()),
        ];
        let setup = with(some()).queue(0, Duration::ZERO);
        let world = setup
            .with(|setup| setup.options.seed = Some(seed))
            .start(upstreams)
            .await;
        assert_eq!(post(world.addr, CHAT, &of_model("chat")).await.status, 429);
        let [first, second] = stubs.each_ref().map(last_asked);
        assert_eq!(first, second, "seed {seed}");
        drawn.insert(first);
        world.quiet().await;
    }
    assert_eq!(drawn.len(), 2, "each is drawn by some");
}

/// Everybody, as this one.
#[derive(Debug)]
struct Everybody(Arc<Client>);

impl Authorise for Everybody {
    fn client(&self, _key: &[u8]) -> Option<Arc<Client>> {
        Some(self.0.clone())
    }
}

fn who_may(models: &[&str]) -> Setup {
    let mut client = Client::new("a");
    client.models = Some(models.iter().map(|name| Arc::from(*name)).collect());
    with(some()).with(|setup| setup.options.keys = Some(Arc::new(Everybody(Arc::new(client)))))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_opens_what_is_meant_and_no_name_is_a_way_round_it() {
    let key = "authorization: Bearer k\r\ncontent-type: application/json\r\n";
    for (may, opens, closed) in [
        (
            &["one"][..],
            &["one", "gpt-4o"][..],
            &["two", "gpt-5", "chat"][..],
        ),
        (
            &["one", "two"],
            &["one", "two", "gpt-4o", "gpt-5", "chat"],
            &["gone", "three"],
        ),
        // The name is on the list, so what is meant by it is open under it alone.
        (
            &["chat", "gpt-5"],
            &["chat", "gpt-5"],
            &["one", "two", "gpt-4o", "gpt-6"],
        ),
    ] {
        let (_stubs, world) = two(who_may(may)).await;
        for (names, expected) in [(opens, 200), (closed, 403)] {
            for name in names {
                // Often enough to see that what is drawn does not decide it.
                for _ in 0..8 {
                    let body = of_model(name).to_string();
                    let answer = ask(world.addr, "POST", CHAT, key, &body).await;
                    assert_eq!(answer.status, expected, "{may:?} {name}: {}", answer.text());
                }
            }
        }
        // An engine that reads the query would get what the body does not ask for.
        let path = format!("{CHAT}?model={}", closed[0]);
        let body = of_model(opens[0]).to_string();
        assert_eq!(ask(world.addr, "POST", &path, key, &body).await.status, 403);
        let listed = ask(world.addr, "GET", "/v1/models", key, "").await.json();
        let ids = listed["data"].as_array().unwrap().iter();
        for id in ids.map(|entry| entry["id"].as_str().unwrap()) {
            assert!(!closed.contains(&id), "{may:?} lists {id}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_listed_while_somebody_serves_what_they_stand_for() {
    let (stubs, world) = two(with(some())).await;
    let listed = get(world.addr, "/v1/models").await.json();
    let ids: Vec<_> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["id"].clone())
        .collect();
    assert_eq!(ids, ["chat", "gpt-4o", "one", "two"]);
    let one = get(world.addr, "/v1/models/gpt-4o").await;
    assert_eq!(
        one.json(),
        json!({"id": "gpt-4o", "object": "model", "created": 0, "owned_by": "paddler"})
    );
    assert_eq!(get(world.addr, "/v1/models/gpt-%35").await.json()["id"], "gpt-5");
    let gone = get(world.addr, "/v1/models/gone").await;
    assert_eq!((gone.status, gone.reason()), (404, "model_not_found"));
    assert_eq!(stubs.each_ref().map(|stub| stub.seen().len()), [0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_request_would_go_is_told_by_what_is_meant() {
    let (_stubs, world) = two(with(some())).await;
    let mut facts = RequestFacts::new();
    facts.model = Some("gpt-4o".into());
    let why = world.router.explain(&facts, 10).unwrap();
    assert_eq!(
        (why.picked[0].as_str(), why.asked.as_deref()),
        ("one", Some("gpt-4o"))
    );
    assert!(
        why.to_string().starts_with("gpt-4o stands for one\nnode "),
        "{why}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_rules_come_into_force_for_those_that_come_from_then_on() {
    let (stubs, world) = two(with(some())).await;
    let mut options = world.router.options();
    options.models = rules(&[("gpt-4o", ModelRule::alias("two"))]);
    world.router.reconfigure(options);
    assert_eq!(post(world.addr, CHAT, &of_model("gpt-4o")).await.status, 200);
    assert_eq!(last_asked(&stubs[1]), "two");
    assert_eq!(post(world.addr, CHAT, &of_model("gpt-5")).await.status, 404);
}

/// A form with a file, and the model behind it or before.
fn form(model: &str, before: bool) -> String {
    let model = format!("--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n");
    let file = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\
                Content-Type: audio/wav\r\n\r\nRIFF\u{0}\r\n--y\r\n";
    let file = format!("{file}{}\r\n", "sound ".repeat(20_000));
    let parts = if before { [model, file] } else { [file, model] };
    format!("{}--x--\r\n", parts.concat())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_of_a_form_counts_and_is_put_in_as_it_stands_there() {
    let (stubs, world) = two(with(some())).await;
    let headers = "content-type: multipart/form-data; boundary=x\r\n";
    for path in [
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/v1/images/edits",
    ] {
        for before in [true, false] {
            for (name, at) in [("two", 1), ("gpt-4o", 0), ("gpt-5", 1)] {
                let answer = ask(world.addr, "POST", path, headers, &form(name, before)).await;
                assert_eq!(answer.status, 200, "{path} {name}: {}", answer.text());
                let seen = stubs[at].seen().pop().unwrap();
                let expected = form(["one", "two"][at], before);
                let (head, body) = seen.split_once("\r\n\r\n").unwrap();
                assert!(body == expected, "{path} {name}");
                let length = format!("content-length: {}\r\n", expected.len());
                assert!(head.to_ascii_lowercase().contains(&length), "{head}");
            }
        }
    }
    let answer = ask(
        world.addr,
        "POST",
        "/v1/audio/transcriptions",
        headers,
        &form("three", true),
    )
    .await;
    assert_eq!((answer.status, answer.reason()), (404, "model_not_found"));
    let cut = form("one", true).replace("--x--\r\n", "");
    let answer = ask(world.addr, "POST", "/v1/audio/transcriptions", headers, &cut).await;
    assert_eq!((answer.status, answer.reason()), (400, "malformed_body"));
    world.quiet().await;
}

/// Writes down what a host is told.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<(Name, Name, i32)>>);

type Name = Option<Arc<str>>;

impl Annotate for Told {
    fn annotate(&self, _: &http::HeaderMap, facts: &mut RequestFacts) {
        let told = (facts.asked.clone(), facts.model.clone(), facts.priority);
        self.0.lock().unwrap().push(told);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_has_a_priority_unless_its_client_has_one() {
    let mut batch = ModelRule::alias("one");
    batch.settings.priority = Some(-5);
    let mut one = ModelRule::default();
    one.settings.priority = Some(3);
    let rules = rules(&[("batch", batch), ("one", one), ("fast", ModelRule::alias("one"))]);
    let told = Arc::new(Told::default());
    for (of_key, expected) in [(0, [-5, 3, 3, 0]), (7, [7; 4])] {
        let mut client = Client::new("a");
        client.priority = of_key;
        let setup = with(rules.clone()).with(|setup| {
            setup.options.annotate = Some(told.clone());
            setup.options.keys = Some(Arc::new(Everybody(Arc::new(client))));
        });
        let (_stubs, world) = two(setup).await;
        for name in ["batch", "one", "fast", "two"] {
            let key = "authorization: Bearer k\r\n";
            let answer = ask(world.addr, "POST", CHAT, key, &of_model(name).to_string()).await;
            assert_eq!(answer.status, 200);
        }
        let told = std::mem::take(&mut *told.0.lock().unwrap());
        let name = |name: &str| Some(Arc::from(name));
        let [batch, one, fast, two] = expected;
        assert_eq!(
            told,
            [
                (name("batch"), name("one"), batch),
                (None, name("one"), one),
                (name("fast"), name("one"), fast),
                (None, name("two"), two),
            ]
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_for_a_model_wait_as_long_as_it_says_and_take_its_time() {
    let mut hurry = ModelRule::alias("tiny");
    hurry.settings.max_wait = Some(Duration::ZERO);
    let mut hasty = ModelTimeouts::default();
    hasty.first_byte = Some(Duration::from_millis(50));
    let mut tiny = ModelRule::default();
    tiny.settings.timeouts = hasty;
    let stub = Stub::start([Do::Stall]).await;
    let setup = with(rules(&[("hurry", hurry), ("tiny", tiny)])).queue(9, HANG);
    let world = setup.start([spec("a", &stub.url).max_in_flight(1)]).await;
    let mut first = TestClient::connect(world.addr).await;
    first.post(CHAT, &of_model("other")).await;
    eventually("it is there", || stub.seen().len() == 1).await;
    let refused = post(world.addr, CHAT, &of_model("hurry")).await;
    assert_eq!((refused.status, refused.reason()), (429, "slots_busy"));
    drop(first);
    world.quiet().await;
    // The model that is meant has the time, whatever it is called.
    for name in ["tiny", "hurry"] {
        let setup = with(world.router.options().models).queue(9, HANG);
        let world = setup.start([spec("a", &stub.url)]).await;
        let late = post(world.addr, CHAT, &of_model(name)).await;
        assert_eq!(
            (late.status, late.reason()),
            (504, "first_byte_timeout"),
            "{name}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_has_a_tree_of_its_own_by_any_of_its_names() {
    let tree = tree_from_yaml(
        "tree:\n- by_model:\n    gpt-4o: [require: {label: {zone: a}}, pick: random]\n    \
         two: [require: {label: {zone: b}}, pick: random]\n  else: {reject: {class: shed, reason: other}}\n",
        "tree",
        &Registry::new(),
    );
    let setup = with(some()).with(|setup| setup.tree = tree.unwrap());
    let upstreams = ["a", "b"].map(|zone| spec(zone, "http://127.0.0.1:9").label("zone", zone));
    let world = setup.start(upstreams).await;
    let picked = |name: &str| {
        let mut facts = RequestFacts::new();
        facts.model = Some(name.into());
        let why = world.router.explain(&facts, 10).unwrap();
        why.picked.first().map(|id| id.as_str().to_owned())
    };
    for (name, zone) in [
        ("gpt-4o", Some("a")),
        ("one", None),
        ("two", Some("b")),
        ("gpt-5", Some("b")),
    ] {
        assert_eq!(picked(name).as_deref(), zone, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_name_what_was_asked_for_only_if_that_is_wanted() {
    let mut public = ModelRule::alias("one");
    public.settings.rewrite_response = Some(true);
    let models = rules(&[("a public name", public), ("plain", ModelRule::alias("one"))]);
    let said = r#"{"id":"x","model":"one","choices":[{"model":"one"}]}"#;
    let head = |kind: &str, length: usize| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n")
    };
    let events = format!("data: {said}\n\ndata: {said}\n\ndata: [DONE]\n\n");
    for (kind, said) in [
        ("application/json", said.to_owned()),
        ("text/event-stream", events),
        ("text/plain", said.to_owned()),
        ("application/json\r\ncontent-encoding: x", said.to_owned()),
    ] {
        // Each byte by itself.
        let mut pieces = vec![head(kind, said.len()).into_bytes()];
        pieces.extend(said.bytes().map(|byte| vec![byte]));
        let stub = Stub::start([Do::SayInPieces(pieces)]).await;
        let upstreams = [spec("a", &stub.url).models(listed("one"))];
        let world = with(models.clone()).start(upstreams).await;
        for name in ["plain", "one", "a public name"] {
            let headers = "accept-encoding: gzip\r\n";
            let answer = ask(world.addr, "POST", CHAT, headers, &of_model(name).to_string()).await;
            let wanted = name == "a public name";
            let renamed = wanted && kind != "text/plain" && !kind.contains("encoding");
            let expected = if renamed {
                said.replace(
                    r#""model":"one","choices""#,
                    r#""model":"a public name","choices""#,
                )
            } else {
                said.clone()
            };
            assert_eq!((answer.status, answer.text()), (200, &*expected), "{kind} {name}");
            assert_eq!(
                answer.header("content-length").is_none(),
                renamed,
                "{kind} {name}"
            );
            let asked = stub.seen().pop().unwrap().to_ascii_lowercase();
            assert_eq!(asked.contains("accept-encoding: identity\r\n"), wanted, "{asked}");
        }
        world.quiet().await;
    }
}
