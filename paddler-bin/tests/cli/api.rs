//! Is the management API what its document says?

use std::collections::BTreeSet;
use std::fs;

use http::{Method, Request};
use http_body_util::Full;
use paddler_engine::{Engine, EngineConfig};
use serde_json::{Value, json};

use crate::path;
use crate::support::client::{Answer, Ask, ask, chat, eventually, get, post};
use crate::support::program::{Gateway, Program, address_in};
use crate::support::schema::check;

pub(crate) async fn engine(config: EngineConfig) -> Engine {
    Engine::start(config.instant()).await.unwrap()
}

pub(crate) async fn ready(gateway: &Gateway, many: usize) {
    eventually("all are ready", async || {
        let all = ask(gateway.management, get("/api/v1/upstreams")).await.json();
        let all = all["upstreams"].as_array().unwrap();
        all.len() == many && all.iter().all(|upstream| upstream["health"] == "ready")
    })
    .await;
}

pub(crate) fn with(method: Method, path: &str, body: &str) -> Ask {
    let mut asked = Request::new(Full::from(body.to_owned()));
    *asked.uri_mut() = path.parse().unwrap();
    *asked.method_mut() = method;
    asked
}

/// The document, with what has been seen of it.
pub(crate) struct Seen {
    pub(crate) document: Value,
    seen: BTreeSet<(String, String, String)>,
}

impl Seen {
    async fn of(gateway: &Gateway) -> Self {
        let answer = ask(gateway.management, get("/api/v1/openapi.json")).await;
        let (document, seen) = (answer.json(), BTreeSet::new());
        Self { document, seen }
    }

    /// Whether an answer is as the document says of this path and method.
    pub(crate) fn check(&mut self, path: &str, verb: &str, status: u16, answer: &Answer) {
        let at = format!("{verb} {path} {status}");
        assert_eq!(answer.status, status, "{at}: {answer:?}");
        let says = &self.document["paths"][path][verb]["responses"][status.to_string()]["content"];
        let kind = answer.headers["content-type"].to_str().unwrap();
        let schema = &says[kind]["schema"];
        assert!(schema.is_object(), "{at}: {kind} is not documented");
        if kind == "application/json" {
            check(&self.document, schema, &answer.json());
        }
        self.seen
            .insert((path.to_owned(), verb.to_owned(), status.to_string()));
    }

    /// All that is documented.
    fn documented(&self) -> BTreeSet<(String, String, String)> {
        let mut all = BTreeSet::new();
        for (path, verbs) in self.document["paths"].as_object().unwrap() {
            for (verb, operation) in verbs
                .as_object()
                .unwrap()
                .iter()
                .filter(|(verb, _)| *verb != "parameters")
            {
                let statuses = operation["responses"].as_object().unwrap().keys();
                all.extend(statuses.map(|status| (path.clone(), verb.clone(), status.clone())));
            }
        }
        all
    }
}

/// What is asked, as: method, path in the document, path that is asked, body, status.
fn asked(more: &Engine, same: &str) -> Vec<(&'static str, &'static str, String, String, u16)> {
    let ups = "/api/v1/upstreams";
    let (one, drain, undrain) = (
        "/api/v1/upstreams/{id}",
        "/api/v1/upstreams/{id}/drain",
        "/api/v1/upstreams/{id}/undrain",
    );
    let decisions = "/api/v1/decisions";
    let (tree, validate) = ("/api/v1/tree", "/api/v1/tree/validate");
    let add = |id: &str, url: &str| json!({"id": id, "url": url}).to_string();
    let own = "{\"tree\": [{\"require\": \"model\"}, {\"pick\": \"random\"}]}";
    let row =
        |verb, path, asked: &str, body: &str, status| (verb, path, asked.to_owned(), body.to_owned(), status);
    let mut rows: Vec<_> = [
        "/api/v1/openapi.json",
        ups,
        "/api/v1/leases",
        "/api/v1/queue",
        "/api/v1/models",
        tree,
        "/api/v1/config",
        "/api/v1/snapshot",
        "/api/v1/decisions",
        "/api/v1/reload",
        "/api/v1/agents",
    ]
    .map(|path| row("get", path, path, "", 200))
    .into();
    rows.extend([
        row(
            "get",
            ups,
            "/api/v1/upstreams?find=a&state=healthy&sort=load&offset=0&limit=5&details=true",
            "",
            200,
        ),
        row("get", ups, "/api/v1/upstreams?limit=0", "", 400),
        row("get", ups, "/api/v1/upstreams?sort=height", "", 400),
        row("get", ups, "/api/v1/upstreams?state=well", "", 400),
        row("get", ups, "/api/v1/upstreams?details=some", "", 400),
        row("get", ups, "/api/v1/upstreams?limit=1000", "", 200),
        row("get", ups, "/api/v1/upstreams?details=true&limit=101", "", 400),
        row(
            "get",
            ups,
            &format!("/api/v1/upstreams?find={}", "a".repeat(256)),
            "",
            200,
        ),
        row(
            "get",
            ups,
            &format!("/api/v1/upstreams?find={}", "a".repeat(257)),
            "",
            400,
        ),
        row(
            "get",
            ups,
            &format!("/api/v1/upstreams?find={}", "a%20".repeat(17)),
            "",
            400,
        ),
        row("post", ups, ups, &add("new", &more.url()), 201),
        row("post", ups, ups, &add("new", &more.url()), 200),
        row("post", ups, ups, &add("a", same), 409),
        row("post", ups, ups, "{", 400),
        row("post", ups, ups, "{}", 422),
        row("get", one, "/api/v1/upstreams/a", "", 200),
        row("get", one, "/api/v1/upstreams/b", "", 404),
        row("post", drain, "/api/v1/upstreams/a/drain", "", 200),
        row("post", drain, "/api/v1/upstreams/b/drain", "", 404),
        row("get", "/api/v1/models", "/api/v1/models", "", 200),
        row("post", undrain, "/api/v1/upstreams/a/undrain", "", 200),
        row("post", undrain, "/api/v1/upstreams/b/undrain", "", 404),
        row("delete", one, "/api/v1/upstreams/new", "", 200),
        row("delete", one, "/api/v1/upstreams/new", "", 404),
        row("delete", one, "/api/v1/upstreams/a", "", 409),
        row("get", tree, "/api/v1/tree?format=mermaid", "", 200),
        row("get", tree, "/api/v1/tree?format=svg", "", 400),
        row("post", validate, validate, own, 200),
        row("post", validate, validate, "tree: [require: helthy]", 422),
        row("put", tree, tree, own, 200),
        row("put", tree, tree, "tree: [require: helthy]", 422),
        row(
            "post",
            "/api/v1/explain",
            "/api/v1/explain",
            &chat("m", 1).to_string(),
            200,
        ),
        row(
            "post",
            "/api/v1/explain",
            "/api/v1/explain",
            &chat("n", 1).to_string(),
            200,
        ),
        row("post", "/api/v1/explain", "/api/v1/explain", "{", 400),
        row(
            "get",
            decisions,
            "/api/v1/decisions?limit=5&model=m&upstream=a",
            "",
            200,
        ),
        row("get", decisions, "/api/v1/decisions?limit=0", "", 400),
        row("get", "/api/v1/decisions/{id}", "/api/v1/decisions/r-1", "", 200),
        row("get", "/api/v1/decisions/{id}", "/api/v1/decisions/r-2", "", 404),
        row("post", "/api/v1/reload", "/api/v1/reload", "", 200),
        row("get", "/api/v1/reload", "/api/v1/reload", "", 200),
    ]);
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn every_documented_answer_is_given_in_its_shape_and_nothing_else_is_there() {
    let (one, more) = (
        engine(EngineConfig::llamacpp("m")).await,
        engine(EngineConfig::vllm("v")).await,
    );
    let text = format!(
        "upstreams: [{{id: a, url: '{}'}}]\nagents: {{access: auto}}\n",
        one.url()
    );
    let gateway = Gateway::by(&path("api-all.yaml", &text));
    ready(&gateway, 1).await;
    for (id, model) in [("r-1", "m"), ("r-3", "nobody")] {
        let mut asked = post("/v1/chat/completions", &chat(model, 1));
        asked.headers_mut().insert("x-request-id", id.parse().unwrap());
        ask(gateway.address, asked).await;
    }
    let mut seen = Seen::of(&gateway).await;
    for (verb, path, at, body, status) in asked(&more, &one.url()) {
        let method = Method::from_bytes(verb.to_uppercase().as_bytes()).unwrap();
        let answer = ask(gateway.management, with(method, &at, &body)).await;
        seen.check(path, verb, status, &answer);
    }
    fs::write(path("api-all.yaml", ""), "listen: nowhere\n").unwrap();
    let answer = ask(gateway.management, with(Method::POST, "/api/v1/reload", "")).await;
    seen.check("/api/v1/reload", "post", 422, &answer);

    let demo = Program::start(&["demo"], &[]);
    let told = demo.says(|line| line.starts_with("Figures: "));
    let management = told["Figures: http://".len()..]
        .split('/')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let answer = ask(management, with(Method::POST, "/api/v1/reload", "")).await;
    seen.check("/api/v1/reload", "post", 409, &answer);
    crate::agents::are_answered_as_documented(&gateway, &more, &mut seen).await;
    crate::events::are_answered_as_documented(&gateway, &mut seen).await;

    let left: Vec<_> = seen.documented().difference(&seen.seen).cloned().collect();
    let elsewhere = |(path, verb, status): &(String, String, String)| {
        matches!(status.as_str(), "401" | "403")
            // There would have to be 4,096 agents.
            || status == "507"
            // Two long ones would have to be on their way for five seconds.
            || (status == "503" && verb == "get" && !path.ends_with("events") && !path.ends_with("stream"))
            // The board is slower than a second.
            || (path == "/api/v1/upstreams" && verb == "post" && status == "202")
    };
    assert!(left.iter().all(elsewhere), "{left:?}");
    nothing_else(&gateway, &seen).await;
}

/// No path is there that is not documented, and no method.
async fn nothing_else(gateway: &Gateway, seen: &Seen) {
    let nowhere = ask(gateway.management, get("/api/v1/nowhere")).await;
    assert_eq!(nowhere.status, 404);
    let paths = seen.document["paths"].as_object().unwrap();
    let here = nowhere.json()["error"].as_str().unwrap().to_owned();
    let here: BTreeSet<_> = here.strip_prefix("here are ").unwrap().split(", ").collect();
    assert_eq!(here, paths.keys().map(String::as_str).collect());
    for (path, verbs) in paths {
        for verb in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            if verbs.get(verb.to_lowercase()).is_some() {
                continue;
            }
            let method = Method::from_bytes(verb.as_bytes()).unwrap();
            let answer = ask(gateway.management, with(method, &path.replace("{id}", "a"), "")).await;
            assert_eq!(answer.status, 405, "{verb} {path}");
            let allow = answer.headers["allow"].to_str().unwrap();
            assert!(
                allow.split(", ").all(|one| one != verb) && !allow.is_empty(),
                "{verb} {path}: {allow}"
            );
        }
    }
    let misspelt = ask(gateway.management, get("/api/v1/tree?fromat=dot")).await;
    assert_eq!(misspelt.status, 400);
    assert!(misspelt.json()["error"].as_str().unwrap().contains("only format"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_put_in_force_until_the_config_is_read_again() {
    let one = engine(EngineConfig::llamacpp("m")).await;
    let text = format!("upstreams: [{{id: a, url: '{}'}}]\ntree: balancer\n", one.url());
    let file = path("api-tree.yaml", &text);
    let gateway = Gateway::by(&file);
    ready(&gateway, 1).await;
    let tree = async || ask(gateway.management, get("/api/v1/tree")).await.json();
    let before = tree().await;
    assert_eq!(before["source"], "config");

    let shed = "tree: [reject: {class: shed, reason: maintenance}]";
    let answer = ask(
        gateway.management,
        with(Method::POST, "/api/v1/tree/validate", shed),
    )
    .await;
    assert_eq!(answer.json()["nodes"][1]["title"], "reject shed maintenance");
    assert_eq!(tree().await, before, "nothing has changed");
    let answer = ask(gateway.management, with(Method::PUT, "/api/v1/tree", shed)).await;
    assert!(
        answer.json()["note"].as_str().unwrap().contains("reload brings"),
        "{answer:?}"
    );
    let refused = ask(gateway.address, post("/v1/chat/completions", &chat("m", 1))).await;
    assert_eq!(
        (refused.status, &refused.headers["x-paddler-reason"]),
        (429, &"maintenance".parse().unwrap())
    );
    assert_eq!(tree().await["source"], "api");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    // A faulty one changes nothing.
    assert_eq!(
        ask(
            gateway.management,
            with(Method::PUT, "/api/v1/tree", "tree: nothing")
        )
        .await
        .status,
        422
    );
    assert_eq!(tree().await["source"], "api");

    assert_eq!(
        ask(gateway.management, with(Method::POST, "/api/v1/reload", ""))
            .await
            .status,
        200
    );
    eventually("the config's is back", async || tree().await == before).await;
    assert!(
        ask(gateway.address, post("/v1/chat/completions", &chat("m", 1)))
            .await
            .is_good()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_config_in_force_is_told_with_what_waits_for_a_restart_and_without_keys() {
    let one = engine(EngineConfig::llamacpp("m")).await;
    let keys = path("api-keys.txt", "sk-very-secret-1\n");
    let config = |wait: &str, streams: u32| {
        let url = one.url();
        format!(
            "upstreams: [{{id: a, url: '{url}'}}]\nqueue: {{max_wait: {wait}}}\nlimits: {{streams: {streams}}}\napi_key_file: {keys}\n"
        )
    };
    let file = path("api-config.yaml", &config("3s", 7));
    let gateway = Gateway::by(&file);
    let told = async || ask(gateway.management, get("/api/v1/config")).await.json();
    let before = told().await;
    assert_eq!(
        (
            &before["config"]["queue"]["max_wait"],
            &before["config"]["limits"]["streams"]
        ),
        (&json!("3s"), &json!(7))
    );
    assert_eq!(
        (&before["config"]["api_key_file"], &before["needs_restart"]),
        (&json!(keys), &json!([]))
    );
    fs::write(&file, config("4s", 8)).unwrap();
    assert_eq!(
        ask(gateway.management, with(Method::POST, "/api/v1/reload", ""))
            .await
            .status,
        200
    );
    let after = told().await;
    assert_eq!(
        (
            &after["config"]["queue"]["max_wait"],
            &after["config"]["limits"]["streams"]
        ),
        (&json!("4s"), &json!(7))
    );
    assert_eq!(after["needs_restart"], json!(["limits.streams"]));
    assert!(!after.to_string().contains("secret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn models_queue_and_leases_tell_what_goes_on() {
    let slow = EngineConfig::llamacpp("m")
        .slots(1)
        .prefill_tokens_per_second(f64::INFINITY);
    let slow = Engine::start(slow.decode_tokens_per_second(10.0)).await.unwrap();
    let gateway = Gateway::start("gateway", &[format!("slow={}", slow.url())], &[]);
    ready(&gateway, 1).await;
    let address = gateway.address;
    let asking = |tokens| {
        tokio::spawn(async move { ask(address, post("/v1/chat/completions", &chat("m", tokens))).await })
    };
    let first = asking(20);
    let now = async |what: &str| {
        ask(gateway.management, get(&format!("/api/v1/{what}")))
            .await
            .json()
    };
    eventually("it is open", async || {
        now("leases").await["upstreams"][0]["open_weight"] == 1
    })
    .await;
    let second = asking(1);
    eventually("it waits", async || now("queue").await["waiting"] == 1).await;
    let queue = now("queue").await;
    assert_eq!(
        (&queue["models"][0]["model"], &queue["models"][0]["waiting"]),
        (&json!("m"), &json!(1))
    );
    assert_eq!(
        (
            &queue["priorities"][1]["waiting"],
            &queue["priorities"][0]["waiting"]
        ),
        (&json!(1), &json!(0))
    );
    assert!(queue["priorities"][1]["oldest_wait_seconds"].as_f64().is_some());
    assert_eq!(now("leases").await["requests"], 2);
    let models = now("models").await;
    assert_eq!(
        (&models["models"][0]["name"], &models["complete"]),
        (&json!("m"), &json!(true))
    );
    assert_eq!(
        models["models"][0]["upstreams"],
        json!([{"upstream": "slow", "state": "healthy", "active": false}])
    );
    first.abort();
    second.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn other_machines_without_keys_are_told_no_settings() {
    let one = engine(EngineConfig::llamacpp("m")).await;
    let flags = [
        "gateway",
        "--listen=127.0.0.1:0",
        "--management=0.0.0.0:0",
        "--upstream",
    ];
    let program = Program::start(&[&flags[..], &[&one.url()]].concat(), &[]);
    let told = program.logs(|line| line.contains("listening for health"));
    let management = ([127, 0, 0, 1], address_in(&told).port()).into();
    let document = ask(management, get("/api/v1/openapi.json")).await.json();
    for (path, verbs) in document["paths"].as_object().unwrap() {
        for (verb, operation) in verbs
            .as_object()
            .unwrap()
            .iter()
            .filter(|(verb, _)| *verb != "parameters")
        {
            let keyed = verb != "get" || operation["description"].is_string();
            if operation["responses"]["200"]["content"]["text/event-stream"].is_object() {
                continue;
            }
            let method = Method::from_bytes(verb.to_uppercase().as_bytes()).unwrap();
            let answer = ask(management, with(method, &path.replace("{id}", "a"), "")).await;
            assert_eq!(answer.status == 403, keyed, "{verb} {path}: {}", answer.status);
        }
    }
    for private in ["/api/v1/config", "/api/v1/snapshot"] {
        assert_eq!(ask(management, get(private)).await.status, 403, "{private}");
    }
}
