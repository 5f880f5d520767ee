//! Do we decide as the vectors say?
//!
//! The vectors, what their names mean and where we mean something else: `tests/data/vectors/README.md`. Another file of
//! the same shape can be named in the environment variable `PADDLER_VECTORS`. With `--nocapture` each family's counts
//! are printed, and `PADDLER_VECTOR_OUTCOMES` names a file to write what came out of each that passed.

mod pool;
#[path = "support/vectors.rs"]
mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use paddler_core::Moment;
use paddler_core::request::Facts;
use paddler_core::schedule::{Class, Outcome, Reason, Tree, trees};
use paddler_core::source::prometheus::{self, Selector};
use paddler_core::source::vllm::{VllmNames, read_metrics};
use paddler_core::source::{sglang, triton};
use paddler_core::status::{Failure, FailureKind, Report, StatusEvent};
use pool::{Pool, Told};
use serde_json::{Value, json};
use shared::{NOT_BUILT, asked, has, report_of, text_of, tree_of, vectors};

/// Asserts what we expect of a vector.
type Check = fn(&Value);

/// Asserts, of each vector of which we mean something else, what we mean.
const DEVIATIONS: [(&str, Check); 2] = [
    (
        "metrics.seed.one-missing-discards-all",
        a_missing_signal_is_unknown_and_the_rest_counts,
    ),
    (
        "provider.fetch-error-keeps-defaults",
        who_could_not_be_asked_is_unknown,
    ),
];

enum Verdict {
    /// With what came out.
    Passed(Value),
    Skipped,
}

#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

#[test]
fn the_vectors_hold() {
    let (path, file) = vectors();
    let mut families: BTreeMap<String, Counts> = BTreeMap::new();
    let (mut faults, mut outcomes) = (Vec::new(), String::new());
    for vector in file["vectors"].as_array().expect("a list of vectors") {
        let counts = families.entry(text_of(vector, "family").into()).or_default();
        // One vector that panics must not hide the others.
        match std::panic::catch_unwind(|| judge(vector)) {
            Ok(Ok(Verdict::Passed(outcome))) => {
                counts.passed += 1;
                outcomes.push_str(&format!(
                    "{}\n",
                    json!({"name": vector["id"], "outcome": outcome})
                ));
            }
            Ok(Ok(Verdict::Skipped)) => counts.skipped += 1,
            Ok(Err(fault)) => {
                counts.failed += 1;
                faults.push(format!("{}: {fault}", vector["id"]));
            }
            Err(_) => {
                counts.failed += 1;
                faults.push(format!("{}: panicked", vector["id"]));
            }
        }
    }
    // On lines of their own, also where the harness has written on this one.
    println!();
    for (family, counts) in &families {
        let Counts {
            passed,
            failed,
            skipped,
        } = counts;
        println!("family {family} passed {passed} failed {failed} skipped {skipped}");
    }
    if let Some(path) = std::env::var_os("PADDLER_VECTOR_OUTCOMES") {
        std::fs::write(path, outcomes).unwrap();
    }
    assert!(!families.is_empty(), "no vectors in {}", path.display());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn judge(vector: &Value) -> Result<Verdict, String> {
    let (id, family, name) = (
        text_of(vector, "id"),
        text_of(vector, "family"),
        text_of(vector, "filter"),
    );
    if let Some((_, ours)) = DEVIATIONS.iter().find(|(deviant, _)| *deviant == id) {
        ours(vector);
        return Ok(Verdict::Skipped);
    }
    match family {
        _ if has(&NOT_BUILT.families, family) => Ok(Verdict::Skipped),
        "decision_tree" | "filter" | "ext_proc_schedule" => {
            if has(&NOT_BUILT.names, name) {
                return Ok(Verdict::Skipped);
            }
            schedule(vector, tree_of(name, &vector["params"])?)
        }
        "metrics_parse" => metrics(vector),
        unknown => Err(format!("unknown family {unknown:?}")),
    }
}

fn schedule(vector: &Value, tree: Tree) -> Result<Verdict, String> {
    let none = Vec::new();
    let pods = vector["pods"].as_array().unwrap_or(&none);
    let counts_waiting = vector["params"]["count_waiting"].as_bool().unwrap_or(false);
    let mut pool = Pool::new(tree);
    for pod in pods {
        let name = text_of(pod, "name");
        pool = pool
            .with(pool::spec(name))
            .says(name, report_of(pod, counts_waiting));
    }
    let (model, priority) = asked(&vector["request"]);
    let mut facts = Facts::new().priority(priority);
    facts.model = model;
    let told = pool.ask_for(&facts);
    compare(&vector["expect"], &told)?;
    // Theirs takes who was never scraped for idle: we do so too, when told zeros, and that is no agreement.
    let never_scraped = pods
        .iter()
        .any(|pod| pod.get("metrics").is_some_and(Value::is_null));
    Ok(if never_scraped {
        Verdict::Skipped
    } else {
        Verdict::Passed(match told.outcome.ending() {
            None => json!({"pods": told.survivors.iter().collect::<BTreeSet<_>>()}),
            Some(ending) => json!({"refused": ending.reason.as_str()}),
        })
    })
}

fn compare(expect: &Value, told: &Told) -> Result<(), String> {
    let pods = expect["pods"].as_array().ok_or("the vector expects no pods")?;
    let expected: BTreeSet<_> = pods.iter().filter_map(Value::as_str).collect();
    let survivors: BTreeSet<_> = told.survivors.iter().map(String::as_str).collect();
    check("survivors", &survivors, &expected)?;
    let chosen = told.picked.first().map(String::as_str);
    if chosen.is_some_and(|chosen| !expected.contains(chosen)) {
        return Err(format!("{chosen:?} is none of the survivors"));
    }
    match (expect["error"].as_str(), &told.outcome) {
        (None, outcome) => check("picked", &outcome.picked().is_some(), &!expected.is_empty()),
        (Some("resource_exhausted"), Outcome::Refuse(ending)) => check("class", &ending.class, &Class::Shed),
        (Some("filter_error"), Outcome::Refuse(ending)) => {
            check("reason", &ending.reason, &Reason::FilterFailed)?;
            check("node", &told.why.steps[0].node, &ending.node)?;
            let error = ending.error.as_ref().map(ToString::to_string);
            check("error", &error.as_deref(), &Some("it always fails"))
        }
        (error, outcome) => Err(format!("expected {error:?}, got {outcome:?}")),
    }
}

fn check<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, expected: &T) -> Result<(), String> {
    if got == expected {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}, got {got:?}"))
    }
}

fn metrics(vector: &Value) -> Result<Verdict, String> {
    let (params, expect) = (&vector["params"], &vector["expect"]);
    match text_of(vector, "filter") {
        "labels_match" => {
            let found = selector_of(&params["spec_labels"]).matches(
                &prometheus::samples(series_of(&params["series_labels"]).as_bytes())
                    .next()
                    .ok_or("no sample")?,
            );
            check("match", &Some(found), &expect["match"].as_bool())?;
            Ok(Verdict::Passed(json!({"match": found})))
        }
        // Which engine's names are looked for is for the spec of the upstream to say.
        "prometheus_text" if expect.get("by_engine_label").is_some() => Ok(Verdict::Skipped),
        "prometheus_text" if params.get("engine").is_some() => page_of_engine(params, expect),
        "prometheus_text" if params.get("spec").is_some() => {
            let selector: Selector = text_of(params, "spec").parse().map_err(|_| "no selector")?;
            let names = VllmNames {
                waiting: vec![selector],
                ..VllmNames::none()
            };
            let mut report = Report::new();
            read_metrics(200, text_of(params, "text").as_bytes(), &names, &mut report);
            check("value", &report.waiting.map(f64::from), &expect["value"].as_f64())?;
            check(
                "error",
                &!report.degraded.is_empty(),
                &expect["error"].as_bool().unwrap_or(false),
            )?;
            Ok(Verdict::Passed(read(&report)))
        }
        "prometheus_text" => page(params, expect),
        unknown => Err(format!("unknown subject {unknown:?}")),
    }
}

/// What was read of a page.
fn read(report: &Report) -> Value {
    let names = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    let adapters = report.adapters.as_ref().map(|adapters| {
        json!({"max": adapters.max, "running": names(&adapters.running), "waiting": names(&adapters.waiting)})
    });
    json!({
        "running": report.running,
        "waiting": report.waiting,
        "kv_cache_usage": report.kv_cache_usage,
        "adapters": adapters,
        "degraded": report.degraded.len(),
    })
}

fn selector_of(labels: &Value) -> Selector {
    let pairs = labels.as_object().into_iter().flatten();
    pairs.fold(Selector::new("m"), |selector, (name, value)| {
        selector.label(name, value.as_str().unwrap_or_default())
    })
}

fn series_of(labels: &Value) -> String {
    let pairs = labels.as_object().into_iter().flatten();
    let labels: Vec<_> = pairs.map(|(name, value)| format!("{name}={value}")).collect();
    format!("m{{{}}} 1\n", labels.join(","))
}

/// A part of a page of another engine: what it does not have is unknown.
fn page_of_engine(params: &Value, expect: &Value) -> Result<Verdict, String> {
    let (page, mut report) = (text_of(params, "text").as_bytes(), Report::new());
    match text_of(params, "engine") {
        "sglang" => read_metrics(200, page, &sglang::names(), &mut report),
        "triton-tensorrt-llm" => triton::read_metrics(200, page, &mut report),
        unknown => return Err(format!("unknown engine {unknown}")),
    }
    let waiting = report.waiting.map(f64::from);
    check("waiting_queue", &waiting, &expect["waiting_queue"].as_f64())?;
    check(
        "kv_cache_usage",
        &report.kv_cache_usage,
        &expect["kv_cache_usage"].as_f64(),
    )?;
    Ok(Verdict::Passed(read(&report)))
}

/// A page of vLLM, under its own names or under those of `mapping`.
fn page(params: &Value, expect: &Value) -> Result<Verdict, String> {
    let mut names = VllmNames::default();
    if let Some(mapping) = params.get("mapping") {
        let named = |what: &str| mapping[what].as_str().map(Selector::new).into_iter().collect();
        names = VllmNames {
            waiting: named("queue"),
            kv: named("kv"),
            lora: named("lora"),
            lora_expected: true,
            ..VllmNames::none()
        };
    }
    let mut report = Report::new();
    read_metrics(200, text_of(params, "text").as_bytes(), &names, &mut report);
    let adapters = report.adapters.clone().unwrap_or_default();
    let active: BTreeSet<_> = adapters
        .running
        .iter()
        .chain(&adapters.waiting)
        .map(|name| &**name)
        .collect();
    // Theirs has zero for unknown; that ours says unknown is seen below.
    let zero = |field: &str, got: Option<f64>| match expect.get(field) {
        Some(value) => check(field, &Some(got.unwrap_or(0.0)), &value.as_f64()),
        None => Ok(()),
    };
    zero("running", report.running.map(f64::from))?;
    zero("waiting_queue", report.waiting.map(f64::from))?;
    zero("kv_cache_usage", report.kv_cache_usage)?;
    zero("max_active_models", adapters.max.map(f64::from))?;
    if let Some(expected) = expect["active_models"].as_array() {
        check(
            "active_models",
            &active,
            &expected.iter().filter_map(Value::as_str).collect(),
        )?;
    }
    if let Some(errors) = expect["errors"].as_u64() {
        check("errors", &(report.degraded.len() as u64), &errors)?;
    }
    check(
        "error",
        &report.degraded.is_empty(),
        &!(expect["error"] == true || expect["errors"].as_u64() > Some(0)),
    )?;
    if expect["unchanged"] == true {
        let known = (
            report.running,
            report.waiting,
            report.kv_cache_usage,
            report.adapters.clone(),
        );
        check("unchanged", &known, &(None, None, None, None))?;
    }
    Ok(Verdict::Passed(read(&report)))
}

fn a_missing_signal_is_unknown_and_the_rest_counts(vector: &Value) {
    let names = VllmNames {
        lora_expected: true,
        ..VllmNames::default()
    };
    let mut report = Report::new();
    read_metrics(
        200,
        text_of(&vector["params"], "text").as_bytes(),
        &names,
        &mut report,
    );
    assert_eq!(
        (report.running, report.waiting, report.kv_cache_usage),
        (Some(1), Some(9), Some(0.7))
    );
    assert_eq!(report.adapters, None);
    assert_eq!(report.degraded.len(), 1);
}

fn who_could_not_be_asked_is_unknown(_vector: &Value) {
    let mut pool = Pool::of(trees::seed(), &["a"]);
    let failed = StatusEvent::Failed {
        id: pool::spec("a").id,
        failure: Failure::new(FailureKind::Timeout, "the first scrape failed"),
    };
    pool.board.apply(failed, Moment::ZERO);
    let snapshot = pool.publish();
    assert_eq!(snapshot.len(), 1, "it is still there");
    assert!(snapshot.find("a").is_some_and(|entry| entry.report().is_none()));
}

#[test]
fn each_deviation_in_the_list_says_what_we_mean() {
    let listed: BTreeSet<_> = NOT_BUILT.deviations.keys().map(String::as_str).collect();
    let asserted = DEVIATIONS.iter().map(|(id, _)| *id).collect();
    assert_eq!(listed, asserted);
}

#[test]
fn an_unknown_name_is_a_fault() {
    let unknown = [
        json!({"id": "x", "family": "no_such_family", "filter": "seed_tree"}),
        json!({"id": "x", "family": "filter", "filter": "no_such_filter", "expect": {"pods": []}}),
        json!({"id": "x", "family": "decision_tree", "filter": "no_such_tree", "expect": {"pods": []}}),
        json!({"id": "x", "family": "metrics_parse", "filter": "no_such_text", "expect": {}}),
    ];
    for vector in &unknown {
        assert!(judge(vector).is_err(), "{vector}");
    }
}

#[test]
fn who_was_never_scraped_is_not_idle() {
    let mut pool = Pool::reporting(
        trees::seed(),
        [(
            "old",
            report_of(
                &json!({"waiting_queue": 2, "kv_cache_usage": 0.3, "max_active_models": 4}),
                false,
            ),
        )],
    );
    pool = pool.with(pool::spec("new"));
    let told = pool.ask_for(&Facts::new().model("m"));
    assert_eq!(
        told.survivors,
        ["old"],
        "whether `new` has room for the adapter is not known"
    );
}
