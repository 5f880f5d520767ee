//! What is meant by the name of a model that is asked for, in Python's words?

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use paddler_core::request::{ModelRules as CoreRules, ModelSettings};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::facts::Facts;
use crate::refuse;
use crate::value::value;

/// Names of models that stand for others, and what is special about each.
#[pyclass(frozen, module = "paddler")]
pub(crate) struct ModelRules {
    rules: CoreRules,
    /// What the next draw comes from.
    seed: AtomicU64,
}

#[pymethods]
impl ModelRules {
    #[new]
    #[pyo3(signature = (models, *, seed = None))]
    fn new(models: &Bound<'_, PyAny>, seed: Option<u64>) -> PyResult<Self> {
        let read = CoreRules::from_value(&value(models, None)?, "");
        let rules = read.map_err(|faults| refuse::config(models.py(), &faults))?;
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0u8));
        Ok(Self {
            rules,
            seed: AtomicU64::new(seed),
        })
    }

    /// The facts with the model that is meant, drawn where it is one of several.
    #[pyo3(signature = (facts, *, seed = None))]
    fn resolve(&self, facts: &Bound<'_, Facts>, seed: Option<u64>) -> Facts {
        let mut facts = facts.get().0.clone();
        // Each draw is mixed by the core, so these need only differ.
        let next = || self.seed.fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed);
        facts.seed = seed.unwrap_or_else(next);
        self.rules.resolve(&mut facts);
        Facts(facts)
    }

    /// What is special about a request.
    fn settings<'py>(&self, facts: &Bound<'py, Facts>) -> PyResult<Bound<'py, PyDict>> {
        let ModelSettings {
            priority,
            max_wait,
            rewrite_response,
            timeouts,
            ..
        } = self.rules.settings(&facts.get().0);
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let times = PyDict::new(facts.py());
        times.set_item("first_byte", seconds(timeouts.first_byte))?;
        times.set_item("idle", seconds(timeouts.idle))?;
        times.set_item("whole", seconds(timeouts.whole))?;
        let settings = PyDict::new(facts.py());
        settings.set_item("priority", priority)?;
        settings.set_item("max_wait", seconds(max_wait))?;
        settings.set_item("rewrite_response", rewrite_response)?;
        settings.set_item("timeouts", times)?;
        Ok(settings)
    }

    /// Which models serve a request, in order, when its own has no place, and how long one waits for each, in seconds.
    fn fallback(&self, facts: &Bound<'_, Facts>) -> Option<(Vec<String>, f64)> {
        let fallback = self.rules.fallback(&facts.get().0)?;
        let models = fallback.models.iter().map(|model| model.to_string());
        Some((models.collect(), fallback.patience.as_secs_f64()))
    }

    /// The facts of the same request for another model, which serves it instead.
    fn instead(&self, facts: &Bound<'_, Facts>, model: &str) -> PyResult<Facts> {
        let named = self.rules.fallback(&facts.get().0);
        let of_chain = named.and_then(|named| named.models.into_iter().find(|other| **other == *model));
        let Some(model) = of_chain else {
            let message =
                format!("its model does not fall back to {model:?}: `fallback` says to which it does");
            return Err(PyValueError::new_err(message));
        };
        Ok(Facts(facts.get().0.instead(&model)))
    }

    /// All models that a request for this name may get by its rule.
    fn targets(&self, name: &str) -> Vec<String> {
        self.rules
            .targets(name)
            .map(|target| target.into_owned())
            .collect()
    }

    /// The names that stand for others.
    fn aliases(&self) -> Vec<&str> {
        self.rules.aliases().map(|name| &**name).collect()
    }

    fn __len__(&self) -> usize {
        self.rules.iter().count()
    }

    fn __repr__(&self) -> String {
        let names: Vec<_> = self
            .rules
            .iter()
            .map(|(name, _)| name.into_owned())
            .take(5)
            .collect();
        let more = if names.len() < self.__len__() { ", ..." } else { "" };
        format!("<paddler.ModelRules for {}{more}>", names.join(", "))
    }
}
