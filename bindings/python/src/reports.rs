//! How does Python write what an upstream says of itself?
//!
//! By the names of its signals: the core reads them, and says what is wrong.

use paddler_core::source::vllm::{VllmNames, read_metrics};
use paddler_core::status::Report as CoreReport;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;
use pythonize::pythonize;

use crate::refuse;
use crate::specs::Extra;
use crate::value::value;

/// What an upstream says of itself at one moment. Each signal is optional: unknown, and never zero. A report is whole: what
/// it does not say is not known any more.
#[pyclass(frozen, module = "paddler")]
pub(crate) struct Report(pub(crate) CoreReport);

#[pymethods]
impl Report {
    #[new]
    #[pyo3(signature = (*, extra = None, **signals))]
    pub(crate) fn new(
        py: Python<'_>,
        extra: Option<Py<PyAny>>,
        signals: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut report = CoreReport::new();
        if let Some(signals) = signals {
            let read = CoreReport::from_value(&value(signals, None)?, "");
            report = read.map_err(|faults| refuse::config(py, &faults))?;
        }
        if let Some(extra) = extra {
            report.extensions.insert(Extra(extra));
        }
        Ok(Self(report))
    }

    /// All that was said, as the words of a record; what is unknown is ``None``.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(pythonize(py, &self.0)?)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut text = "<paddler.Report".to_owned();
        for (name, value) in self.as_dict(py)?.cast::<PyDict>()? {
            if !value.is_none() {
                text.push_str(&format!(" {name}={}", value.repr()?));
            }
        }
        Ok(text + ">")
    }
}

/// Reads a page of metrics as vLLM writes it, under its own names or under those of a mapping from ``running``, ``waiting``,
/// ``kv_cache_usage`` and ``adapters`` to lists of selectors, such as ``["queue{kind=main}"]``, the first found counts.
#[pyfunction]
#[pyo3(signature = (page, *, names = None))]
pub(crate) fn read_vllm(page: PyBackedBytes, names: Option<&Bound<'_, PyAny>>) -> PyResult<Report> {
    let names = match names {
        Some(names) => VllmNames::from_value(&value(names, None)?, "")
            .map_err(|faults| refuse::config(names.py(), &faults))?,
        None => VllmNames::default(),
    };
    let mut report = CoreReport::new();
    read_metrics(200, &page, &names, &mut report);
    Ok(Report(report))
}
