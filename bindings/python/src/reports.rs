//! How does Python write what an upstream says of itself?
//!
//! In the words of a record.

use paddler_core::source::prometheus::Selector;
use paddler_core::source::vllm::{VllmNames, read_metrics};
use paddler_core::status::Report as CoreReport;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;
use serde_json::{Value, json};

use crate::specs::Extra;

/// What an upstream says of itself at one moment. Each signal is optional: unknown, and never zero. A report is whole: what
/// it does not say is not known any more.
#[pyclass(frozen, module = "paddler")]
#[derive(Clone)]
pub(crate) struct Report(pub(crate) CoreReport);

/// Names of models as Python writes them, as a record has them.
fn listed(models: Value) -> Value {
    let Value::Array(models) = models else {
        return models;
    };
    let entry = |model| match model {
        Value::String(name) => json!({"id": name}),
        entry => entry,
    };
    json!({"listed": models.into_iter().map(entry).collect::<Vec<_>>()})
}

fn invalid(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymethods]
impl Report {
    #[new]
    #[pyo3(signature = (*, extra = None, **signals))]
    fn new(py: Python<'_>, extra: Option<Py<PyAny>>, signals: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut report = CoreReport::new();
        if let Some(signals) = signals {
            for (name, value) in signals {
                if value.extract::<f64>().is_ok_and(|number| !number.is_finite()) {
                    return Err(PyValueError::new_err(format!(
                        "{name}: {value} is no number that can be reported"
                    )));
                }
            }
            let text: String = py.import("json")?.call_method1("dumps", (signals,))?.extract()?;
            let mut said: Value = serde_json::from_str(&text).map_err(invalid)?;
            let known = serde_json::to_value(&report).map_err(invalid)?;
            for (name, value) in said.as_object_mut().into_iter().flatten() {
                if known.get(name).is_none() {
                    let words: Vec<_> = known
                        .as_object()
                        .into_iter()
                        .flat_map(|all| all.keys().cloned())
                        .collect();
                    let words = words.join(", ");
                    return Err(PyTypeError::new_err(format!(
                        "{name:?} is no signal of a report: {words}"
                    )));
                }
                if name == "models" {
                    *value = listed(value.take());
                }
                if name == "kv_cache_usage"
                    && value.as_f64().is_some_and(|share| !(0.0..=1.0).contains(&share))
                {
                    return Err(PyValueError::new_err(format!(
                        "{name}: {value} is no share from 0 to 1"
                    )));
                }
                let alone = Value::Object([(name.clone(), value.clone())].into_iter().collect());
                serde_json::from_value::<CoreReport>(alone)
                    .map_err(|error| invalid(format!("{name}: {error}")))?;
            }
            report = serde_json::from_value(said).map_err(invalid)?;
        }
        if let Some(extra) = extra {
            report.extensions.insert(Extra(extra));
        }
        Ok(Self(report))
    }

    /// All that was said, as the words of a record; what is unknown is ``None``.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text = serde_json::to_string(&self.0).map_err(invalid)?;
        py.import("json")?.call_method1("loads", (text,))
    }

    fn __repr__(&self) -> PyResult<String> {
        let Value::Object(all) = serde_json::to_value(&self.0).map_err(invalid)? else {
            return Ok(String::new());
        };
        let said = all.iter().filter(|(_, value)| !value.is_null());
        let said: Vec<_> = said.map(|(name, value)| format!("{name}={value}")).collect();
        Ok(format!("<paddler.Report {}>", said.join(" ")))
    }
}

/// Reads a page of metrics as vLLM writes it, under its own names or under those of a mapping from ``running``, ``waiting``,
/// ``kv_cache_usage`` and ``adapters`` to lists of selectors, such as ``["queue{kind=main}"]``, the first found counts.
#[pyfunction]
#[pyo3(signature = (page, *, names = None))]
pub(crate) fn read_vllm(page: PyBackedBytes, names: Option<&Bound<'_, PyDict>>) -> PyResult<Report> {
    let mut wanted = VllmNames::default();
    if let Some(names) = names {
        wanted = VllmNames::none();
        for (key, selectors) in names.iter() {
            let selectors = selectors.extract::<Vec<String>>()?;
            let selectors = selectors
                .iter()
                .map(|text| Selector::parse(text).map_err(invalid));
            let into = match key.extract()? {
                "running" => &mut wanted.running,
                "waiting" => &mut wanted.waiting,
                "kv_cache_usage" => &mut wanted.kv,
                "adapters" => {
                    wanted.lora_expected = true;
                    &mut wanted.lora
                }
                other => return Err(invalid(format!("{other:?} is no signal that a page is read for"))),
            };
            *into = selectors.collect::<PyResult<_>>()?;
        }
    }
    let mut report = CoreReport::new();
    read_metrics(200, &page, &wanted, &mut report);
    Ok(Report(report))
}
