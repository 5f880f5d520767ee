//! Are decisions that were written down made again, by the same tree and by another?

use std::fs;

use paddler_engine::EngineConfig;
use serde_json::{Value, json};

use crate::api::{engine, ready};
use crate::path;
use crate::support::client::{ask, chat, post};
use crate::support::program::{Gateway, run};

#[tokio::test(flavor = "multi_thread")]
async fn the_same_tree_decides_the_same_and_another_says_where_it_parts() {
    let engines = [
        engine(EngineConfig::llamacpp("m")).await,
        engine(EngineConfig::llamacpp("m")).await,
    ];
    let [a, b] = &engines;
    let log = path("replay.jsonl", "");
    let config = |tree: &str| {
        let (a, b) = (a.url(), b.url());
        format!(
            "upstreams:\n- {{id: a, url: '{a}', labels: {{zone: x}}}}\n- {{id: b, url: '{b}'}}\ndecisions: {{log: replay.jsonl}}\n{tree}"
        )
    };
    let own = path("replay-own.yaml", &config("tree: gateway\n"));
    let gateway = Gateway::by(&own);
    ready(&gateway, 2).await;
    let drain = |what: &str| post(&format!("/api/v1/upstreams/b/{what}"), &json!({}));
    for round in 0..40 {
        // What is known changes on the way.
        match round {
            15 => drop(ask(gateway.management, drain("drain")).await),
            25 => drop(ask(gateway.management, drain("undrain")).await),
            _ => {}
        }
        assert!(
            ask(gateway.address, post("/v1/chat/completions", &chat("m", 1)))
                .await
                .is_good()
        );
    }
    gateway.program.signal("TERM");
    assert!(gateway.program.ended().await.status.success());
    let text = fs::read_to_string(&log).unwrap();
    assert!(!text.contains("Say something"), "no prompts");
    let kinds = |kind: &str| {
        text.lines()
            .filter(|line| line.starts_with(&format!("{{\"{kind}\"")))
            .count()
    };
    assert_eq!((kinds("tree"), kinds("snapshot"), kinds("decision")), (1, 1, 40));

    let replay = async |config: &str| -> Value {
        let ended = run(&["replay", &log, "--format", "json", "--config", config], &[]).await;
        assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
        serde_json::from_str(&ended.out).unwrap()
    };
    let same = replay(&own).await;
    let counts = ["decisions", "same", "same_tree", "nobody"].map(|key| same[key].as_u64().unwrap());
    assert_eq!(counts, [40, 40, 40, 0], "{same}");

    let zone = path(
        "replay-zone.yaml",
        &config("tree: [require: {label: {zone: x}}, pick: random]\n"),
    );
    let other = replay(&zone).await;
    let went_to_b = 40 - other["same"].as_u64().unwrap();
    assert!(went_to_b > 0, "{other}");
    assert_eq!(
        other["elsewhere"],
        json!([{"from": "b", "to": "a", "decisions": went_to_b}])
    );
    assert_eq!(
        (&other["nodes"][0]["node"], &other["nodes"][0]["decisions"]),
        (&json!(1), &json!(went_to_b))
    );

    let none = path(
        "replay-none.yaml",
        &config("tree: [reject: {class: shed, reason: closed}]\n"),
    );
    let ended = run(&["replay", &log, "--config", &none], &[]).await;
    for line in [
        "decisions     40",
        "by this tree  0 (0.0 %)",
        "nobody        40 (100.0 %)",
        "shed: closed",
    ] {
        assert!(ended.out.contains(line), "{line} in {}", ended.out);
    }

    // What was cut off at its end is read up to there; what is damaged within is told with its line.
    fs::write(&log, &text[..text.len() - 9]).unwrap();
    assert_eq!(replay(&own).await["same"], 39);
    fs::write(&log, text.replacen("{\"snapshot\"", "{\"snopshat\"", 1)).unwrap();
    let ended = run(&["replay", &log], &[]).await;
    assert!(
        ended.status.code() == Some(1) && ended.log.contains("line 2: it cannot be read"),
        "{}",
        ended.log
    );
    fs::write(&log, "").unwrap();
    assert!(
        run(&["replay", &log], &[])
            .await
            .log
            .contains("no decision is in it")
    );
}
