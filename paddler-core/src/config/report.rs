//! How is written what an upstream says of itself, and where in its metrics that stands?

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::fault::{ConfigFaults, Faults};
use super::read::{At, Fields};
use super::router;
use super::value::{Kind, Value};
use crate::source::prometheus::Selector;
use crate::source::vllm::VllmNames;
use crate::status::{Adapters, Health, Report};
use crate::upstream::Models;

const WORDS: [(&str, Health); 3] = [
    ("ready", Health::Ready),
    ("loading", Health::Loading),
    ("failing", Health::Failing),
];

impl Report {
    /// Reads a report that a person or a program has written: a map of its signals by their names, such as
    /// `{waiting: 3, kv_cache_usage: 0.4}`. Models are written as those of an upstream, or as in a record. Of what is left
    /// out, or is nothing, nothing is known. `name` is that of where it came from, for the faults.
    ///
    /// ```
    /// use paddler_core::config::Value;
    /// use paddler_core::status::Report;
    ///
    /// let read = |json| Report::from_value(&Value::from_json(&json).unwrap(), "");
    /// let report = read(serde_json::json!({"waiting": 3, "running": null, "models": ["llama"]})).unwrap();
    /// assert_eq!((report.waiting, report.running), (Some(3), None));
    /// let faults = read(serde_json::json!({"wating": 3, "kv_cache_usage": 45})).unwrap_err();
    /// assert_eq!(
    ///     faults.to_string(),
    ///     "kv_cache_usage: 45 is out of range: 0 to 1\nwating: unknown key; did you mean \"waiting\"?"
    /// );
    /// ```
    ///
    /// # Errors
    /// Every fault at once, each with its path: the name of a signal.
    pub fn from_value(value: &Value, name: &str) -> Result<Self, ConfigFaults> {
        let mut faults = Faults::default();
        let report = read(value, &mut faults);
        faults.finish(name, report)
    }
}

fn read(value: &Value, faults: &mut Faults) -> Option<Report> {
    let mut fields = At::root(value).fields(faults)?;
    let mut report = Report::new();
    let health = fields.take_said("health");
    report.health = health.and_then(|at| at.word(faults, &WORDS));
    report.running = count(&mut fields, "running", faults);
    report.waiting = count(&mut fields, "waiting", faults);
    report.slots_total = count(&mut fields, "slots_total", faults);
    report.slots_busy = count(&mut fields, "slots_busy", faults);
    report.max_sequences = count(&mut fields, "max_sequences", faults);
    let usage = fields.take_said("kv_cache_usage");
    report.kv_cache_usage = usage.and_then(|at| at.number(faults, 0.0..=1.0));
    let running = fields.take_said("adapters");
    report.adapters = running.and_then(|at| adapters(&at, faults));
    report.loaded_adapters = names(&mut fields, "loaded_adapters", faults);
    report.models = fields.take_said("models").and_then(|at| models(&at, faults));
    // As a record has them, or in a word.
    let abilities = fields.take_said("abilities");
    report.abilities = abilities.and_then(|at| recorded(&at, faults)).unwrap_or_default();
    let context = count(&mut fields, "context", faults);
    report.abilities.context = context.or(report.abilities.context);
    let degraded = fields.take_said("degraded");
    report.degraded = degraded.and_then(|at| recorded(&at, faults)).unwrap_or_default();
    fields.end(faults);
    Some(report)
}

fn count(fields: &mut Fields<'_>, name: &'static str, faults: &mut Faults) -> Option<u32> {
    fields.take_said(name)?.whole(faults, 0..=i64::from(u32::MAX))
}

fn names(fields: &mut Fields<'_>, name: &'static str, faults: &mut Faults) -> Option<Vec<Arc<str>>> {
    let list = fields.take_said(name)?.list(faults)?;
    let names = list.iter().map(|at| at.text(faults).map(Into::into));
    // Each one, for its fault.
    let names: Vec<_> = names.collect();
    names.into_iter().collect()
}

/// As those of an upstream, or as a record has them; a list of none says that it serves none.
fn models(at: &At<'_>, faults: &mut Faults) -> Option<Models> {
    match &at.value.kind {
        Kind::List(none) if none.is_empty() => Some(Models::Listed(Vec::new())),
        Kind::Map(_) => recorded(at, faults),
        _ => router::models(at, faults),
    }
}

/// What stands in a form that records have and nobody writes.
fn recorded<T: DeserializeOwned>(at: &At<'_>, faults: &mut Faults) -> Option<T> {
    let read = serde_json::to_value(at.value).and_then(serde_json::from_value);
    read.map_err(|error| at.fault(faults, error.to_string())).ok()
}

fn adapters(at: &At<'_>, faults: &mut Faults) -> Option<Adapters> {
    let mut fields = at.fields(faults)?;
    let adapters = Adapters {
        max: count(&mut fields, "max", faults),
        running: names(&mut fields, "running", faults).unwrap_or_default(),
        waiting: names(&mut fields, "waiting", faults).unwrap_or_default(),
    };
    fields.end(faults);
    Some(adapters)
}

impl VllmNames {
    /// Reads under which other names the signals of a page are looked for: a map from `running`, `waiting`, `kv_cache_usage`
    /// and `adapters` to lists of selectors such as `queue{kind=main}`, the first found counts. What is left out is not
    /// looked for. `name` is that of where it came from, for the faults.
    ///
    /// ```
    /// use paddler_core::config::Value;
    /// use paddler_core::source::vllm::VllmNames;
    ///
    /// let read = |json| VllmNames::from_value(&Value::from_json(&json).unwrap(), "");
    /// let names = read(serde_json::json!({"waiting": ["queue{kind=main}", "queue"]})).unwrap();
    /// assert_eq!((names.waiting.len(), names.running.len()), (2, 0));
    /// assert!(read(serde_json::json!({"waiting": ["queue{"]})).unwrap_err().to_string().starts_with("waiting[0]: "));
    /// ```
    ///
    /// # Errors
    /// Every fault at once, each with its path.
    pub fn from_value(value: &Value, name: &str) -> Result<Self, ConfigFaults> {
        let mut faults = Faults::default();
        let names = vllm_names(value, &mut faults);
        faults.finish(name, names)
    }
}

fn vllm_names(value: &Value, faults: &mut Faults) -> Option<VllmNames> {
    let mut fields = At::root(value).fields(faults)?;
    let lora_expected = fields.has("adapters");
    let mut selectors = |name| {
        let list = fields
            .take_said(name)
            .and_then(|at| at.list(faults))
            .unwrap_or_default();
        let selectors = list.iter().filter_map(|at| selector(at, faults));
        selectors.collect()
    };
    let names = VllmNames {
        running: selectors("running"),
        waiting: selectors("waiting"),
        kv: selectors("kv_cache_usage"),
        lora: selectors("adapters"),
        lora_expected,
    };
    fields.end(faults);
    Some(names)
}

fn selector(at: &At<'_>, faults: &mut Faults) -> Option<Selector> {
    let selector = Selector::parse(at.text(faults)?);
    selector.map_err(|error| at.fault(faults, error.to_string())).ok()
}
