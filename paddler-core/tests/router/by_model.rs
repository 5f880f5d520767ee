//! Is a request served by who has the model that it names, by whatever path it comes?

use paddler_core::upstream::{ModelEntry, Models, UpstreamSpec};
use paddler_engine::EngineConfig;
use serde_json::{Value, json};

use super::client::{CHAT, Client, ask, eventually, get, of_model, post};
use super::stub::{Do, Stub};
use super::world::{Setup, World, engine, quick, spec};

fn listed(name: &str) -> Models {
    Models::Listed([ModelEntry::new(name)].into())
}

/// Two upstreams with a model each.
async fn two() -> ([Stub; 2], World) {
    let stubs = [
        Stub::start([Do::ok("{}")]).await,
        Stub::start([Do::ok("{}")]).await,
    ];
    let upstreams = [
        spec("one", &stubs[0].url).models(listed("one")),
        spec("two", &stubs[1].url).models(listed("two")),
    ];
    let world = Setup::new().start(upstreams).await;
    (stubs, world)
}

/// Every path by which an engine can be asked for something that takes a model, and one that nobody knows.
const PATHS: [&str; 16] = [
    "/v1/chat/completions",
    "/chat/completions",
    "/v1/completions",
    "/completions",
    "/completion",
    "/infill",
    "/generate",
    "/v1/embeddings",
    "/embedding",
    "/v1/rerank",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/audio/speech",
    "/tokenize",
    "/custom/endpoint",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_counts_on_every_path_that_takes_one() {
    let (stubs, world) = two().await;
    for path in PATHS {
        for (at, model) in ["one", "two"].into_iter().enumerate() {
            for _ in 0..4 {
                let before = stubs[at].seen().len();
                let answer = post(
                    world.addr,
                    path,
                    &json!({ "model": model, "prompt": "a", "input": "a" }),
                )
                .await;
                assert_eq!(answer.status, 200, "{path} {}", answer.text());
                assert_eq!(stubs[at].seen().len(), before + 1, "{path} went elsewhere");
            }
        }
        let unknown = post(world.addr, path, &json!({ "model": "three", "prompt": "a" })).await;
        assert_eq!(
            (unknown.status, unknown.reason()),
            (404, "model_not_found"),
            "{path}"
        );
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_behind_a_mebibyte_is_found() {
    let (stubs, world) = two().await;
    let text = "x".repeat(1_014_506);
    for (at, model) in ["one", "two"].into_iter().enumerate() {
        let body = format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}],"model":"{model}"}}"#);
        assert_eq!(ask(world.addr, "POST", CHAT, "", &body).await.status, 200);
        assert!(stubs[at].seen().last().unwrap().ends_with(&body));
    }
    assert_eq!(stubs.map(|stub| stub.seen().len()), [1, 1]);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_listed_is_listed_once_and_can_be_asked_for() {
    let base = EngineConfig::vllm("base").instant().max_loras(4);
    let engines = [
        engine(base.clone().adapters(["poet", "sql"])).await,
        engine(base.adapters(["sql", "chess"])).await,
        engine(quick()).await,
    ];
    let upstreams = engines
        .iter()
        .zip(["a", "b", "c"])
        .map(|(engine, id)| UpstreamSpec::new(id, engine.url()).unwrap());
    let world = Setup::polled().start(upstreams).await;
    let listed = get(world.addr, "/v1/models").await.json();
    let names: Vec<&str> = listed["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["base", "chess", "poet", "sql", "tiny"]);
    for name in names {
        for _ in 0..4 {
            assert_eq!(
                post(world.addr, CHAT, &of_model(name)).await.status,
                200,
                "{name}"
            );
        }
    }
    let asked = |at: usize| -> Vec<String> {
        let requests = engines[at].requests();
        let bodies = requests.iter().filter(|request| request.path == CHAT);
        let model = |body: &[u8]| {
            serde_json::from_slice::<Value>(body).unwrap()["model"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        bodies.map(|request| model(&request.body)).collect()
    };
    let has = [
        ["base", "poet", "sql"].as_slice(),
        &["base", "chess", "sql"],
        &["tiny"],
    ];
    for (at, has) in has.into_iter().enumerate() {
        for model in asked(at) {
            assert!(has.contains(&model.as_str()), "{model} went to {at}");
        }
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_nobody_knows_is_counted_and_spread_like_any_other() {
    let mut stubs = Vec::new();
    for _ in 0..8 {
        stubs.push(Stub::start([Do::Stall]).await);
    }
    let upstreams = || {
        stubs
            .iter()
            .enumerate()
            .map(|(at, stub)| spec(&format!("u{at}"), &stub.url))
    };
    let seen = || stubs.iter().map(|stub| stub.seen().len()).collect::<Vec<_>>();
    let shared = "a prefix that all have in common ".repeat(100);
    let body = json!({ "model": "m", "prompt": shared }).to_string();
    let world = Setup::new().start(upstreams()).await;
    let mut clients = Vec::new();
    for number in 1..=64 {
        let mut client = Client::connect(world.addr).await;
        client
            .send(
                "POST",
                "/custom/endpoint",
                "content-type: application/json\r\n",
                &body,
            )
            .await;
        eventually("it is there", || seen().iter().sum::<usize>() == number).await;
        clients.push(client);
    }
    assert_eq!((seen(), world.open_weight()), (vec![8; 8], 64));
    drop(clients);
}
