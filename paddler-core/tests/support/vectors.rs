//! What does a vector ask, in the terms of the core? For every host that runs them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use paddler_core::schedule::filters::{
    Bound, all_of, kv_cache, least_kv_cache, least_queue, lora_active, lora_low_cost, lora_room, queue_depth,
};
use paddler_core::schedule::{
    CandidateSet, Class, Filter, FilterError, Lack, Node, PickCx, Reads, Reason, Signals, Tree, filter_fn,
    trees,
};
use paddler_core::status::{Adapters, Report};
use serde_json::Value;

use crate::pool;

/// What is not built, and of which vectors we mean something else: for every host that runs them.
#[derive(serde::Deserialize)]
#[allow(dead_code, reason = "each host looks at a part of it")]
pub(crate) struct NotBuilt {
    pub(crate) families: Vec<String>,
    /// Trees and filters.
    pub(crate) names: Vec<String>,
    /// By vector, and what we mean.
    pub(crate) deviations: BTreeMap<String, String>,
}

pub(crate) static NOT_BUILT: LazyLock<NotBuilt> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../data/vectors/not_built.json")).expect("the list can be read")
});

pub(crate) fn has(list: &[String], word: &str) -> bool {
    list.iter().any(|one| one == word)
}

/// The vectors that are to be run, and where they stand: ours, or those that PADDLER_VECTORS names.
pub(crate) fn vectors() -> (PathBuf, Value) {
    // Other packages run them, too.
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let ours = here
        .map(|folder| folder.join(OURS))
        .find(|file| file.exists())
        .unwrap_or_default();
    let path = std::env::var_os("PADDLER_VECTORS").map_or(ours, PathBuf::from);
    let text = std::fs::read_to_string(&path).expect("a file of vectors");
    (path, serde_json::from_str(&text).expect("vectors in JSON"))
}

const OURS: &str = "paddler-core/tests/data/vectors/scheduling.json";

/// The model or adapter that a request is for, and its priority.
pub(crate) fn asked(request: &Value) -> (Option<&str>, i32) {
    let model = request["target_model"].as_str().or(request["model"].as_str());
    let standard = if request["critical"].as_bool().unwrap_or(true) {
        0
    } else {
        -1
    };
    let priority = request["priority"].as_i64().unwrap_or(standard);
    (model, priority as i32)
}

pub(crate) fn text_of<'v>(vector: &'v Value, field: &str) -> &'v str {
    vector[field].as_str().unwrap_or_default()
}

/// The tree that a vector names; a filter is the tree of requiring it.
pub(crate) fn tree_of(name: &str, params: &Value) -> Result<Tree, String> {
    let number = |field: &str, default: f64| params[field].as_f64().unwrap_or(default);
    let count = |field: &str, default: u32| number(field, f64::from(default)) as u32;
    let require =
        |filter: Arc<dyn Filter>| pool::tree(Signals::Reported, [Node::require(filter), Node::random()]);
    Ok(match name {
        "seed_tree" => {
            let mut thresholds = trees::SeedThresholds::default();
            thresholds.low_queue = count("queueing_threshold_lora", thresholds.low_queue);
            thresholds.shed_queue = count("queue_threshold_critical", thresholds.shed_queue);
            thresholds.shed_kv_cache = number("kv_cache_threshold", thresholds.shed_kv_cache);
            trees::seed_with(thresholds)
        }
        "always_failing_node" => require(Arc::new(AlwaysFails)),
        "least_queuing" => require(Arc::new(least_queue())),
        "least_kv_cache" => require(Arc::new(least_kv_cache())),
        "low_queueing_strict" => require(Arc::new(queue_depth(Bound::Below(number("threshold", 50.0))))),
        "low_queueing_inclusive" => require(Arc::new(queue_depth(Bound::AtMost(number("threshold", 128.0))))),
        "lora_affinity" => require(Arc::new(lora_active())),
        "can_accept_new_lora" => require(Arc::new(lora_room())),
        "low_lora_cost" => require(Arc::new(lora_low_cost())),
        "has_capacity" => {
            let filters: [Arc<dyn Filter>; 2] = [
                Arc::new(queue_depth(Bound::AtMost(number("queue_threshold", 5.0)))),
                Arc::new(kv_cache(Bound::AtMost(number("kv_threshold", 0.8)))),
            ];
            require(Arc::new(all_of(filters)))
        }
        "critical_request" => require(Arc::new(filter_fn("critical", |cx, _| cx.facts.critical()))),
        unknown => return Err(format!("unknown tree or filter {unknown:?}")),
    })
}

/// Cannot judge, whatever it is given: not even nobody.
#[derive(Debug)]
struct AlwaysFails;

impl Filter for AlwaysFails {
    fn narrow(&self, _cx: &PickCx<'_>, _set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        Err(FilterError::new("it always fails"))
    }

    fn lack(&self, _cx: &PickCx<'_>) -> Lack {
        Lack::new(Class::Later, Reason::Filtered)
    }

    fn reads(&self) -> Reads {
        Reads::NONE
    }
}

/// What the pod said; one that was never scraped says zeros.
pub(crate) fn report_of(pod: &Value, counts_waiting: bool) -> Report {
    let names = |field: &str| -> Vec<Arc<str>> {
        let names = pod[field].as_array().into_iter().flatten();
        names.filter_map(Value::as_str).map(Arc::from).collect()
    };
    let count = |field: &str| pod[field].as_u64().unwrap_or(0) as u32;
    pool::report(|report| {
        report.waiting = Some(count("waiting_queue"));
        report.running = pod["running"].as_u64().map(|running| running as u32);
        report.kv_cache_usage = Some(pod["kv_cache_usage"].as_f64().unwrap_or(0.0));
        report.adapters = Some(Adapters {
            max: Some(count("max_active_models")),
            running: names("active_models"),
            waiting: if counts_waiting {
                names("waiting_models")
            } else {
                Vec::new()
            },
        });
    })
}
