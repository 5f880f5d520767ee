//! What if a server is not there yet, or not any more?

use paddler_core::observe::names;
use serde_json::json;
use tokio::task::JoinSet;

use crate::levels::{Front, Way, each_way, upstream};
use crate::servers::{Llama, figure, free_port, heard_from, python};
use crate::support::client::{Answer, ask, chat, eventually, get, post};

const SOON: &str = "--poll-interval=100ms";

each_way! {
    a_server_that_starts_late_is_picked_up,
    a_server_that_dies_before_it_answers_costs_nobody_his_answer,
}

async fn a_server_that_starts_late_is_picked_up(way: Way) {
    let Some(python) = python() else { return };
    let port = free_port();
    let engine = ("late", format!("http://127.0.0.1:{port}"));
    let gateway = Front::of(way, &[engine], &[SOON, "--max-wait=60s"]);
    if way == Way::AllLevels {
        // As long as nothing was said of a router it may be sent something, which then waits there.
        eventually("its fleet is known to fail", async || {
            upstream(&gateway, "late").await["health"] == "failing"
        })
        .await;
    }
    let health = ask(gateway.address, get("/health")).await;
    // It comes before anything is there, and waits.
    let early = tokio::spawn(ask(
        gateway.address,
        post("/v1/chat/completions", &chat("tiny-a", 8)),
    ));
    eventually("it waits", async || {
        figure(&gateway, names::WAITING).await == Some(1.0)
    })
    .await;
    let server = tokio::task::spawn_blocking(move || Llama::start(&python, "tiny-a", port))
        .await
        .unwrap();
    let answer = early.await.unwrap();
    assert!(answer.is_good(), "{answer:?} {:#?}", server.load().await);
    assert!([200, 503].contains(&health.status), "{health:?}");
    assert!(ask(gateway.address, get("/health")).await.is_good());
    assert_eq!(
        ask(gateway.address, get("/v1/models")).await.json()["data"][0]["id"],
        json!("tiny-a")
    );
}

async fn a_server_that_dies_before_it_answers_costs_nobody_his_answer(way: Way) {
    let Some(python) = python() else { return };
    let [stays, mut dies] = [0, 1].map(|_| Llama::start(&python, "tiny-a", 0));
    let engines = [("stays", stays.url()), ("dies", dies.url())];
    let gateway = Front::of(way, &engines, &[SOON, "--max-requests=100", "--max-wait=60s"]);
    heard_from(&gateway, &["stays", "dies"]).await;
    let mut asks = JoinSet::new();
    for _ in 0..40 {
        asks.spawn(ask(
            gateway.address,
            post("/v1/chat/completions", &chat("tiny-a", 300)),
        ));
    }
    eventually("it is at work, and others wait", async || {
        let waiting = figure(&gateway, names::WAITING).await;
        dies.load().await.processing == 4 && waiting > Some(0.0)
    })
    .await;
    dies.crash();
    let answers = asks.join_all().await;
    // What it was doing had brought no byte to anybody, so it was sent once more.
    assert!(answers.iter().all(Answer::is_good), "{answers:#?}");
    assert_eq!(answers.len(), 40);
    // From now on nobody notices.
    for _ in 0..8 {
        let answer = ask(gateway.address, post("/v1/chat/completions", &chat("tiny-a", 4))).await;
        assert!(answer.is_good(), "{answer:?}");
    }
}
