//! How is a filter written?

use std::sync::Arc;
use std::time::Duration;

use super::Compiler;
use super::call::Call;
use crate::config::read::{At, Fields};
use crate::config::registry;
use crate::config::value::{Kind, quoted};
use crate::schedule::Filter;
use crate::schedule::filters::{
    Bound, Margin, Unknown, all_of, any_of, capable, fresh, healthy, heard, kv_cache, label, least_kv_cache,
    least_queue, lora_active, lora_low_cost, lora_room, model, not, present, queue_depth, slot, within_best,
};

/// The filters that are built in.
pub(in crate::config) const FILTERS: &[&str] = &[
    "present",
    "model",
    "capable",
    "healthy",
    "heard",
    "fresh",
    "slot",
    "queue_depth",
    "least_queue",
    "kv_cache",
    "least_kv_cache",
    "lora_active",
    "lora_room",
    "lora_low_cost",
    "label",
    "within_best",
    "all",
    "any",
    "not",
];

type Made = Option<Arc<dyn Filter>>;

impl Compiler<'_> {
    pub(super) fn filter(&mut self, at: &At<'_>) -> Made {
        if self.faults.notes() {
            let added = self.registry.filters().keys();
            self.note(at, "filter", (FILTERS, added), |this, call| {
                this.filter_of(call);
            });
            return None;
        }
        let call = self.call(at, "a filter")?;
        self.filter_of(call)
    }

    fn filter_of(&mut self, call: Call<'_>) -> Made {
        let filter: Arc<dyn Filter> = match call.name {
            "present" => Arc::new(present()),
            "model" => Arc::new(model()),
            "capable" => Arc::new(capable()),
            "healthy" => Arc::new(healthy()),
            "heard" => Arc::new(heard()),
            "slot" => Arc::new(slot()),
            "least_queue" => Arc::new(least_queue()),
            "least_kv_cache" => Arc::new(least_kv_cache()),
            "lora_active" => Arc::new(lora_active()),
            "lora_room" => Arc::new(lora_room()),
            "lora_low_cost" => Arc::new(lora_low_cost()),
            _ => return self.filter_with_params(call),
        };
        self.alone(&call)?;
        Some(filter)
    }

    fn filter_with_params(&mut self, call: Call<'_>) -> Made {
        match call.name {
            "fresh" => self.fresh(&call),
            "queue_depth" => {
                let params = self.params(&call, "{queue_depth: {below: 50}}")?;
                let (bound, unknown) = self.threshold(&params, f64::MAX)?;
                Some(Arc::new(queue_depth(bound).unknown(unknown)))
            }
            "kv_cache" => {
                let params = self.params(&call, "{kv_cache: {below: 0.95}}")?;
                let (bound, unknown) = self.threshold(&params, 1.0)?;
                Some(Arc::new(kv_cache(bound).unknown(unknown)))
            }
            "label" => self.labels(&call),
            "within_best" => self.within_best(&call),
            "all" => Some(Arc::new(all_of(self.filters(&call, "{all: [healthy, slot]}")?))),
            "any" => Some(Arc::new(any_of(
                self.filters(&call, "{any: [lora_active, lora_room]}")?,
            ))),
            "not" => {
                let other = self.params(&call, "{not: lora_active}")?;
                Some(Arc::new(not(self.filter(&other)?)))
            }
            _ => self.registered_filter(call),
        }
    }

    fn registered_filter(&mut self, call: Call<'_>) -> Made {
        let filters = self.registry.filters();
        let Some(make) = filters.get(call.name) else {
            let known = FILTERS.iter().copied().chain(filters.keys().map(String::as_str));
            self.unknown(&call, "a filter", known);
            return None;
        };
        registry::make(make, (&call.path, call.place), call.params, self.faults)
    }

    fn filters(&mut self, call: &Call<'_>, example: &str) -> Option<Vec<Arc<dyn Filter>>> {
        let parts = self.params(call, example)?.some_list(self.faults)?;
        let parts: Vec<_> = parts.iter().map(|part| self.filter(part)).collect();
        parts.into_iter().collect()
    }

    fn fresh(&mut self, call: &Call<'_>) -> Made {
        let mut fields = self
            .params(call, "{fresh: {max_age: 10s}}")?
            .fields(self.faults)?;
        let max_age = fields.need("max_age", self.faults);
        let max_age = max_age.and_then(|at| at.duration(self.faults, Duration::from_millis(1)..=DAY));
        fields.end(self.faults);
        Some(Arc::new(fresh(max_age?)))
    }

    /// `{below: x}` or `{at_most: x}`, and what becomes of who does not say.
    fn threshold(&mut self, at: &At<'_>, most: f64) -> Option<(Bound, Unknown)> {
        let mut fields = at.fields(self.faults)?;
        let bound = self
            .one_of(at, &mut fields, ["below", "at_most"])
            .and_then(|(name, at)| {
                let limit = at.number(self.faults, 0.0..=most)?;
                if name == "at_most" {
                    return Some(Bound::AtMost(limit));
                }
                if limit == 0.0 {
                    at.fault_mend(self.faults, "nothing is below 0", "write `at_most: 0`");
                    return None;
                }
                Some(Bound::Below(limit))
            });
        let words = [("pass", Unknown::Pass), ("fail", Unknown::Fail)];
        let unknown = match fields.take("unknown", self.faults) {
            Some(at) => at.word(self.faults, &words),
            None => Some(Unknown::default()),
        };
        fields.end(self.faults);
        Some((bound?, unknown?))
    }

    fn within_best(&mut self, call: &Call<'_>) -> Made {
        let at = self.params(call, "{within_best: {cost: queue, plus: 3}}")?;
        let mut fields = at.fields(self.faults)?;
        let cost = fields.need("cost", self.faults);
        let cost = cost.and_then(|at| self.cost(&at));
        let most = f64::from(f32::MAX);
        let margin = self
            .one_of(&at, &mut fields, ["times", "plus"])
            .and_then(|(name, at)| {
                if name == "times" {
                    Some(Margin::Times(at.number(self.faults, 1.0..=most)? as f32))
                } else {
                    Some(Margin::Plus(at.number(self.faults, 0.0..=most)? as f32))
                }
            });
        fields.end(self.faults);
        Some(Arc::new(within_best(cost?, margin?)))
    }

    /// Exactly one of two keys.
    fn one_of<'v>(
        &mut self,
        at: &At<'v>,
        fields: &mut Fields<'v>,
        names: [&'static str; 2],
    ) -> Option<(&'static str, At<'v>)> {
        let [first, second] = names;
        if self.faults.notes() {
            fields.one_of(names, self.faults);
            // Both are read, the last one by whoever asks.
            let others = fields.take(first, self.faults);
            others.and_then(|at| at.number(self.faults, 0.0..=f64::MAX));
            return fields.take(second, self.faults).map(|at| (second, at));
        }
        if fields.has(first) && fields.has(second) {
            at.fault_mend(
                self.faults,
                format!("`{first}` and `{second}` are both here"),
                "keep one",
            );
            for name in names {
                fields.take_any(name);
            }
            return None;
        }
        if !fields.has(first) && !fields.has(second) {
            at.fault(self.faults, format!("`{first}` or `{second}` is missing"));
        }
        let found = names.map(|name| fields.take(name, self.faults).map(|at| (name, at)));
        found.into_iter().flatten().next()
    }

    /// `{label: zone}` for any value, `{label: {zone: a, gpu: [h100, h200]}}` for some.
    fn labels(&mut self, call: &Call<'_>) -> Made {
        let at = self.params(call, "{label: {zone: a}}")?;
        if self.faults.notes() {
            at.text(self.faults);
        }
        if let Kind::String(name) = &at.value.kind {
            return Some(Arc::new(label(name.as_str(), [""; 0])));
        }
        let pairs = at.pairs(self.faults)?;
        if pairs.is_empty() {
            at.fault(self.faults, "no label is named");
            return None;
        }
        let labels: Vec<_> = pairs
            .iter()
            .map(|(name, values)| self.label(&name.text, values))
            .collect();
        let labels: Option<Vec<_>> = labels.into_iter().collect();
        match <[_; 1]>::try_from(labels?) {
            Ok([label]) => Some(label),
            Err(labels) => Some(Arc::new(all_of(labels))),
        }
    }

    fn label(&mut self, name: &str, at: &At<'_>) -> Made {
        let values = match &at.value.kind {
            Kind::List(_) | Kind::Refused => {
                if self.faults.notes() {
                    at.text(self.faults);
                }
                let values = at.some_list(self.faults)?;
                let values: Vec<_> = values.iter().map(|value| value.text(self.faults)).collect();
                values.into_iter().collect::<Option<Vec<_>>>()?
            }
            Kind::Null => {
                let mend = format!("write a value, or {{label: {}}} for any", quoted(name));
                at.fault_mend(self.faults, "no value is written", mend);
                return None;
            }
            _ => vec![at.text(self.faults)?],
        };
        Some(Arc::new(label(name, values)))
    }
}

/// A report that may be a day old is one that nobody looks at.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
