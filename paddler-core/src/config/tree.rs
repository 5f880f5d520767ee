//! How is a tree written down?
//!
//! A list is a sequence; every other node is a map with one key that says what it does, and the keys that belong to it:
//!
//! | node | means |
//! |---|---|
//! | `require: FILTER`, `else: CLASS` | narrows; nobody left: ends with the class: `never`, `later` or `shed` (default: the filter's own) |
//! | `prefer: FILTER` | narrows; nobody left: goes on as if nothing was said |
//! | `branch: FILTER`, `then: NODE`, `else: NODE` | somebody passes: `then` with those; nobody: `else` with all |
//! | `gate: {any: FILTER}`, `then`, `else` | somebody in the pool passes; also `{all: FILTER}` and `{mean: {cost: COST, below: x}}` |
//! | `when: CONDITION`, `then`, `else` | the request is so |
//! | `first_of: [NODE, ..]` | the first that does not refuse; `{tree: NODE, patience: 2s}` waits that long before it goes on |
//! | `split: [{weight: n, tree: NODE}, ..]` | one of these, by weight |
//! | `by_model: {name: NODE, ..}`, `else: NODE` | by the name that is asked for, or else by the model that it stands for |
//! | `reject: {class: CLASS, reason: word}` | ends the walk |
//! | `pick: random` | any of those left |
//! | `pick: {least: COST}`, `pick: {two_choices: COST}` | the lowest cost; the better of two drawn |
//! | `pick: {rendezvous: KEY}` | always the same for the same `session`, `tenant` or `model` |
//!
//! An `else` of `branch`, `gate`, `when` or `by_model` may be left out where a later node of a list decides.
//!
//! **Filters**: `present`, `model`, `capable`, `healthy`, `heard`, `{fresh: {max_age: 10s}}`, `slot`, `{queue_depth: {below: 50}}`
//! (or `at_most`; with `unknown: pass` or `fail`), `least_queue`, `{kv_cache: {below: 0.95}}` (the same), `least_kv_cache`,
//! `lora_active`, `lora_room`, `lora_low_cost`, `{label: {zone: a, gpu: [h100, h200]}}` (each of these labels with one of
//! its values), `{label: zone}` (any value), `{within_best: {cost: COST, times: 1.2}}` (or `plus: 3`), `{all: [FILTER, ..]}`,
//! `{any: [FILTER, ..]}`, `{not: FILTER}`.
//!
//! **Costs**: `queue`, `in_flight_share`, `kv_pressure`, `prefill_product`, `{weighted: [{weight: 2, cost: COST}, ..]}`.
//!
//! **Conditions**: `critical`, `sheddable`, `adapter`, `stream`, `session`, `{priority: {at_least: 1}}`,
//! `{tokens: {at_least: 4000}}`, `{model: name}`, `{task: chat}`, `{all: [CONDITION, ..]}`, `{any: [CONDITION, ..]}`,
//! `{not: CONDITION}`.

mod call;
mod condition;
mod cost;
mod filter;
mod form;
mod node;

pub(super) use condition::CONDITIONS;
pub(super) use cost::COSTS;
pub(super) use filter::FILTERS;

use super::fault::{ConfigFaults, Faults};
use super::read::{At, Fields};
use super::registry::Registry;
use super::suggest;
use super::value::{Kind, Value, quoted};
use crate::schedule::trees::{self, SeedThresholds};
use crate::schedule::{Signals, Tree};

/// Makes a tree of a value with the keys `tree` and, if need be, `signals`. `name` is that of the file, for the faults.
///
/// ```
/// use paddler_core::config::{Registry, Value, tree_from_value};
///
/// let json = serde_json::json!({"tree": [{"require": "helthy"}, {"pick": "random"}]});
/// let value = Value::from_json(&json).unwrap();
/// let faults = tree_from_value(&value, "tree.json", &Registry::new()).unwrap_err();
/// assert_eq!(
///     faults.to_string(),
///     r#"tree.json: tree[0].require: "helthy" is not a filter; did you mean "healthy"?"#
/// );
/// ```
///
/// # Errors
/// Every fault at once, each with its path and, where the value has places, its place.
pub fn tree_from_value(value: &Value, name: &str, registry: &Registry) -> Result<Tree, ConfigFaults> {
    let mut faults = Faults::default();
    let tree = alone(value, registry, &mut faults);
    faults.finish(name, tree)
}

/// Reads a tree from YAML (or JSON) with the keys `tree` and, if need be, `signals`. `name` is that of the file, for the
/// faults.
///
/// ```
/// use paddler_core::config::{Registry, tree_from_yaml};
/// use paddler_core::schedule::trees;
///
/// let tree = tree_from_yaml(trees::BALANCER, "balancer.yaml", &Registry::new()).unwrap();
/// assert_eq!(tree.to_string(), trees::balancer().to_string());
/// ```
///
/// # Errors
/// Every fault at once, each with its path and place.
#[cfg(feature = "yaml")]
pub fn tree_from_yaml(text: &str, name: &str, registry: &Registry) -> Result<Tree, ConfigFaults> {
    let mut faults = Faults::default();
    let tree = super::yaml::read(text, &mut faults).and_then(|value| alone(&value, registry, &mut faults));
    faults.finish(name, tree)
}

fn alone(value: &Value, registry: &Registry, faults: &mut Faults) -> Option<Tree> {
    let root = At::root(value);
    if let Kind::List(_) = value.kind {
        root.fault_mend(
            faults,
            "these are nodes alone",
            "write `tree:` and put them under it",
        );
        return None;
    }
    let mut fields = root.fields(faults)?;
    let tree = if fields.has("tree") {
        tree(&mut fields, registry, faults)
    } else {
        fields.take_any("signals");
        fields.need("tree", faults);
        None
    };
    fields.end(faults);
    tree
}

/// Takes `signals` and `tree`. `None`: no tree is there, or the faults say what is wrong with it.
pub(super) fn tree(fields: &mut Fields<'_>, registry: &Registry, faults: &mut Faults) -> Option<Tree> {
    let signals_at = fields.take("signals", faults);
    let words = [("reported", Signals::Reported), ("corrected", Signals::Corrected)];
    let signals = signals_at.as_ref().and_then(|at| at.word(faults, &words));
    let signals_in_vain = |faults: &mut Faults, problem: &str, mend: &str| {
        if let Some(at) = &signals_at {
            at.fault_mend(faults, problem, mend);
        }
    };
    if !fields.has("tree") {
        signals_in_vain(
            faults,
            "signals belong to a tree, and there is none",
            "write `tree` too",
        );
    }
    let at = fields.take("tree", faults)?;
    if faults.notes() {
        BUILT_IN.iter().for_each(|(name, _)| at.takes_word(faults, name));
        seed(&at, faults);
        return Compiler { registry, faults }.tree(&at, Signals::default());
    }
    let tree = match &at.value.kind {
        Kind::String(name) => named(&at, name, faults),
        Kind::Map(pairs) if pairs.iter().any(|(key, _)| key.text == "seed") => seed(&at, faults),
        // With a wrong word for the signals, the nodes are read all the same, for their own faults.
        _ => return Compiler { registry, faults }.tree(&at, signals.unwrap_or_default()),
    };
    signals_in_vain(
        faults,
        "a built-in tree brings its own signals",
        "leave `signals` out",
    );
    tree
}

type Build = fn() -> Tree;

const BUILT_IN: [(&str, Build); 3] = [
    ("gateway", trees::gateway),
    ("balancer", trees::balancer),
    ("seed", trees::seed),
];

/// What reads the nodes: the names it knows, and where faults go.
struct Compiler<'c> {
    registry: &'c Registry,
    faults: &'c mut Faults,
}

fn named(at: &At<'_>, name: &str, faults: &mut Faults) -> Option<Tree> {
    let found = BUILT_IN.iter().find(|(known, _)| *known == name);
    if found.is_none() {
        let mend = suggest::mend(name, &BUILT_IN.map(|(name, _)| name));
        let problem = format!("{} is not a built-in tree", quoted(name));
        faults.add(&at.path, at.place, problem, mend);
    }
    found.map(|(_, build)| build())
}

/// `{seed: {low_queue: 50, shed_queue: 5, shed_kv_cache: 0.8}}`, each of which may be left out.
fn seed(at: &At<'_>, faults: &mut Faults) -> Option<Tree> {
    let mut fields = at.fields(faults)?;
    let inner = fields.need("seed", faults);
    fields.end(faults);
    let mut fields = inner?.fields(faults)?;
    let default = SeedThresholds::default();
    let mut queue = |name, default: u32| match fields.take(name, faults) {
        Some(at) => {
            at.defaults_to(faults, || default.into());
            at.whole(faults, 0..=i64::from(u32::MAX))
        }
        None => Some(default),
    };
    let low_queue = queue("low_queue", default.low_queue);
    let shed_queue = queue("shed_queue", default.shed_queue);
    let shed_kv_cache = match fields.take("shed_kv_cache", faults) {
        Some(at) => {
            at.defaults_to(faults, || default.shed_kv_cache.into());
            at.number(faults, 0.0..=1.0)
        }
        None => Some(default.shed_kv_cache),
    };
    fields.end(faults);
    Some(trees::seed_with(SeedThresholds {
        low_queue: low_queue?,
        shed_queue: shed_queue?,
        shed_kv_cache: shed_kv_cache?,
    }))
}
