//! What does a request's sender know of it?

use paddler_core::Moment;
use paddler_core::forward::Refusal;
use paddler_core::request::{RequestClass, RequestFacts};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyDict, PyType};

use crate::asked::Asked;
use crate::refuse;

/// What is known of a request, to be given to a pick.
#[pyclass(frozen, module = "paddler")]
#[derive(Clone)]
pub(crate) struct Facts(pub(crate) RequestFacts);

#[pymethods]
impl Facts {
    #[new]
    #[pyo3(signature = (**told))]
    fn new(told: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let told = Asked::read(told, false)?;
        Ok(Self(told.facts(None, Moment::ZERO, 0).into()))
    }

    #[classmethod]
    #[pyo3(signature = (path, body, *, method = "POST"))]
    fn from_body(cls: &Bound<'_, PyType>, path: &str, body: PyBackedBytes, method: &str) -> PyResult<Self> {
        let py = cls.py();
        // A prompt may be megabytes.
        let read = py.detach(|| RequestFacts::read(method, path, &body, Moment::ZERO, 0));
        read.map(Self)
            .map_err(|unreadable| refuse::refusal(py, &Refusal::of_unreadable(&unreadable)))
    }

    #[getter]
    fn kind(&self) -> &'static str {
        self.0.class.as_str()
    }

    #[getter]
    fn task(&self) -> Option<&'static str> {
        match self.0.class {
            RequestClass::Generate(task) => Some(task.as_str()),
            _ => None,
        }
    }

    #[getter]
    fn model(&self) -> Option<&str> {
        self.0.model.as_deref()
    }

    #[getter]
    fn asked(&self) -> Option<&str> {
        self.0.asked.as_deref()
    }

    #[getter]
    fn prompt_tokens(&self) -> u32 {
        self.0.tokens
    }

    #[getter]
    fn weight(&self) -> u32 {
        self.0.weight
    }

    #[getter]
    fn body_bytes(&self) -> u64 {
        self.0.body_bytes
    }

    #[getter]
    fn stream(&self) -> bool {
        self.0.stream
    }

    #[getter]
    fn priority(&self) -> i32 {
        self.0.priority
    }

    #[getter]
    fn tenant(&self) -> Option<&str> {
        self.0.tenant.as_deref()
    }

    #[getter]
    fn session(&self) -> Option<&str> {
        self.0.session.as_deref()
    }

    #[getter]
    fn replayable(&self) -> bool {
        self.0.replayable
    }

    fn __repr__(&self) -> String {
        let facts = &self.0;
        let what = self.task().unwrap_or_else(|| self.kind());
        let model = facts.model.as_deref().unwrap_or("any");
        let (weight, tokens, priority) = (facts.weight, facts.tokens, facts.priority);
        format!(
            "<paddler.Facts {what} model={model} weight={weight} prompt_tokens={tokens} priority={priority}>"
        )
    }
}
