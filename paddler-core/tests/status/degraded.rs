//! One renamed metric: it is said where an operator looks, and it is not taken for a zero.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use paddler_core::observe::{Metrics, MetricsPage};
use paddler_core::request::Facts;
use paddler_core::schedule::filters::{least_kv_cache, least_queue};
use paddler_core::schedule::{Ask, Node, Scratch, Signals, Tree};
use paddler_core::source::prometheus::samples;
use paddler_core::status::{FixedList, PollOptions, Report, Snapshot};
use paddler_core::upstream::http::HttpConnect;
use paddler_engine::{Engine, EngineConfig, Fault};
use tokio::time::sleep;

use crate::engines::occupy;
use crate::fake::{Fake, Net, Reply, llama};
use crate::log::Log;
use crate::rig::{Rig, quick, spec};

struct Case {
    engine: fn() -> EngineConfig,
    /// The family that is renamed.
    family: &'static str,
    signal: &'static str,
    /// Sets the signal to zero, as a reader would that takes absence for idleness.
    zero: fn(&mut Report),
    known: fn(&Report) -> bool,
    /// Whether the built-in choice goes by it.
    decides: Option<fn() -> Node>,
}

fn llamacpp() -> EngineConfig {
    EngineConfig::llamacpp("m").slots(1).decode_tokens_per_second(1.0)
}

fn vllm() -> EngineConfig {
    EngineConfig::vllm("m")
        .slots(1)
        .num_gpu_blocks(64)
        .decode_tokens_per_second(1.0)
}

const CASES: &[Case] = &[
    Case {
        engine: llamacpp,
        family: "llamacpp:requests_deferred",
        signal: "waiting",
        zero: |report| report.waiting = Some(0),
        known: |report| report.waiting.is_some(),
        decides: Some(|| Node::prefer(least_queue())),
    },
    Case {
        engine: llamacpp,
        family: "llamacpp:requests_processing",
        signal: "running",
        zero: |report| report.running = Some(0),
        known: |report| report.running.is_some(),
        decides: None, // slots tell it as well
    },
    Case {
        engine: vllm,
        family: "vllm:num_requests_waiting",
        signal: "waiting",
        zero: |report| report.waiting = Some(0),
        known: |report| report.waiting.is_some(),
        decides: Some(|| Node::prefer(least_queue())),
    },
    Case {
        engine: vllm,
        family: "vllm:num_requests_running",
        signal: "running",
        zero: |report| report.running = Some(0),
        known: |report| report.running.is_some(),
        decides: None, // only our own count is compared
    },
    Case {
        engine: vllm,
        family: "vllm:kv_cache_usage_perc",
        signal: "kv_cache",
        zero: |report| report.kv_cache_usage = Some(0.0),
        known: |report| report.kv_cache_usage.is_some(),
        decides: Some(|| Node::prefer(least_kv_cache())),
    },
];

fn tree(decides: Option<fn() -> Node>) -> Tree {
    let nodes = decides.map(|node| node()).into_iter().chain([Node::random()]);
    Tree::new(Signals::Reported, Node::list(nodes)).unwrap()
}

/// How many of a hundred picks the upstream gets.
fn share(snapshot: &Snapshot, name: &str) -> usize {
    let facts = Facts::new();
    let pick = |seed| {
        let ask = Ask::new(&facts, snapshot.published(), seed);
        snapshot.pick(&ask, &mut Scratch::default(), &mut ()).picked()
    };
    (0..100)
        .filter(|seed| pick(*seed) == snapshot.index(name))
        .count()
}

async fn check(case: &Case) {
    let log = Log::begin();
    let (blind, sound) = (
        Engine::start((case.engine)()).await.unwrap(),
        Engine::start((case.engine)()).await.unwrap(),
    );
    let names = BTreeMap::from([(case.family.to_owned(), Some("renamed_by_an_update".to_owned()))]);
    blind.set_fault(Some(Fault::MetricNames { names })).unwrap();
    let _load = [occupy(&blind, "m", 3), occupy(&sound, "m", 3)];
    let list = FixedList::new([spec("blind", &blind.url()), spec("sound", &sound.url())]);
    let rig = Rig::start(
        tree(case.decides),
        vec![Box::new(list)],
        Arc::new(HttpConnect::default()),
        Some(quick()),
    );
    let loaded = |report: &Report| report.waiting == Some(2) || report.running == Some(1);
    rig.report("sound", "its load", loaded).await;
    rig.report("blind", "its load", |report| {
        loaded(report) || !(case.known)(report)
    })
    .await;
    let polls = blind.stats().by_path["/metrics"];
    rig.until("five more polls", |_| {
        blind.stats().by_path["/metrics"] >= polls + 5
    })
    .await;

    let snapshot = rig.snapshot();
    let report = snapshot.find("blind").unwrap().report().unwrap();
    assert!(!(case.known)(report), "{}: {report:?}", case.family);
    let named: Vec<_> = report
        .degraded
        .iter()
        .map(|one| (one.signal.as_str(), one.expected.as_str()))
        .collect();
    assert_eq!(named, [(case.signal, case.family)]);
    assert_eq!(report.degraded[0].found, "missing");

    let metrics = Metrics::default();
    let page = MetricsPage::new(&metrics, &snapshot, rig.clock.now()).to_string();
    let missing: Vec<_> = samples(page.as_bytes())
        .filter(|one| one.name == "paddler_upstream_signal_missing")
        .collect();
    let label = |name| missing[0].label(name).unwrap().into_owned();
    assert_eq!(missing.len(), 1, "{page}");
    assert_eq!(
        (label("upstream"), label("signal"), label("expected")),
        ("blind".into(), case.signal.into(), case.family.into())
    );

    let mut record = snapshot.record();
    let written = serde_json::to_string(&record).unwrap();
    assert!(written.contains(case.family), "{written}");
    assert_eq!(
        log.count(&["WARN", "a signal is missing", "upstream=blind", case.family]),
        1,
        "said once"
    );
    assert_eq!(log.count(&["a signal is missing", "upstream=sound"]), 0);

    if case.decides.is_some() {
        let blind = record
            .entries
            .iter_mut()
            .find(|entry| entry.spec.id.as_str() == "blind")
            .unwrap();
        (case.zero)(blind.report.as_mut().unwrap());
        let zeroed = Snapshot::from_record(&record, snapshot.tree().clone()).unwrap();
        assert_eq!(share(&zeroed, "blind"), 100, "a zero would draw everything to it");
        let fair = share(&snapshot, "blind");
        assert!(
            (20..=80).contains(&fair),
            "unknown is neither idle nor full: {fair} of 100"
        );
    }
}

#[tokio::test]
async fn a_renamed_metric_is_said_and_is_no_zero() {
    for case in CASES {
        check(case).await;
    }
}

/// A llama.cpp that wants a key everywhere but for its health, and refuses with this status.
fn wants_a_key(status: u16) -> impl Fn(&str, usize) -> Reply {
    move |path, _| match path {
        "/health" => llama(path, 0, 1, "m"),
        _ => Reply::Says(status, String::new()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_key_is_said_once_with_its_mend_until_that_changes() {
    let log = Log::begin();
    let engine = Fake::new(wants_a_key(401));
    let mut spec = spec("a", "http://a");
    spec.engine = paddler_core::upstream::Engine::Llamacpp;
    let rig = Rig::net(
        [spec],
        Net::of([("http://a", engine.clone())]),
        PollOptions::default(),
    );
    let mend = "the upstream wants a key";
    let said = |status: &str| {
        log.count(&[
            "WARN",
            "upstream=a",
            status,
            mend,
            "PADDLER_UPSTREAM_API_KEY_FILE",
        ])
    };
    // Two askings of everything.
    sleep(Duration::from_secs(25)).await;
    assert_eq!(
        (said("401"), log.count(&["WARN"])),
        (1, 1),
        "one line for all paths"
    );
    assert_eq!(log.count(&["paths=", "/slots", "/v1/models"]), 1);
    engine.becomes(wants_a_key(403));
    sleep(Duration::from_secs(25)).await;
    assert_eq!((said("403"), said("401")), (1, 1), "another refusal is news");
    engine.becomes(|path, _| llama(path, 0, 1, "m"));
    sleep(Duration::from_secs(25)).await;
    assert_eq!(
        log.count(&["INFO", "upstream=a", "no longer refuses our polls"]),
        1
    );
    engine.becomes(wants_a_key(401));
    sleep(Duration::from_secs(25)).await;
    assert_eq!(said("401"), 2, "and so is one that has come back");
    drop(rig);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_cannot_be_found_out_without_a_key_is_said_with_the_mend() {
    let log = Log::begin();
    let engine = Fake::new(|_, _| Reply::Says(403, String::new()));
    let rig = Rig::net(
        [spec("a", "http://a")],
        Net::of([("http://a", engine)]),
        PollOptions::default(),
    );
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        log.count(&[
            "WARN",
            "upstream=a",
            "403: the upstream wants a key",
            "api_key_file"
        ]),
        1
    );
    assert_eq!(log.count(&["WARN"]), 1);
    drop(rig);
}
