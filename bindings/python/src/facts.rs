//! What does a request's sender know of it?

use std::sync::Arc;

use paddler_core::Moment;
use paddler_core::request::{BodyKind, RequestClass, RequestFacts, Route, ScanLimits, Scanner, Task};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyType;

use crate::refuse;

/// What is known of a request, to be given to a pick.
#[pyclass(frozen, module = "paddler")]
#[derive(Clone)]
pub(crate) struct Facts(pub(crate) RequestFacts);

/// The kind of work that a word names.
pub(crate) fn task(word: &str) -> PyResult<Task> {
    let found = Task::ALL.iter().find(|task| task.as_str() == word);
    found.copied().ok_or_else(|| {
        let all: Vec<_> = Task::ALL.iter().map(|task| task.as_str()).collect();
        PyValueError::new_err(format!("{word:?} is no task: one of {}", all.join(", ")))
    })
}

#[pymethods]
impl Facts {
    #[new]
    #[pyo3(signature = (*, model = None, prompt_tokens = 0, weight = 1, task = "chat", priority = 0, tenant = None, session = None, stream = false))]
    #[allow(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn new(
        model: Option<&str>,
        prompt_tokens: u32,
        weight: u32,
        task: &str,
        priority: i32,
        tenant: Option<&str>,
        session: Option<&str>,
        stream: bool,
    ) -> PyResult<Self> {
        let mut facts = RequestFacts::new();
        facts.class = RequestClass::Generate(self::task(task)?);
        facts.model = model.map(Arc::from);
        facts.tokens = prompt_tokens;
        facts.weight = weight.max(1);
        facts.priority = priority;
        facts.tenant = tenant.map(Arc::from);
        facts.session = session.map(Arc::from);
        facts.stream = stream;
        Ok(Self(facts))
    }

    #[classmethod]
    #[pyo3(signature = (path, body, *, method = "POST"))]
    fn from_body(cls: &Bound<'_, PyType>, path: &str, body: PyBackedBytes, method: &str) -> PyResult<Self> {
        let py = cls.py();
        let refused = |status, reason, message| refuse::bad_request(py, status, reason, message);
        let route = Route::of(method, path).map_err(|error| refused(400, "bad_path", error.to_string()))?;
        let bytes = body.len() as u64;
        if route.body == BodyKind::Opaque || (bytes == 0 && route.body == BodyKind::Unknown) {
            return Ok(Self(RequestFacts::from_route(&route, bytes, Moment::ZERO, 0)));
        }
        // A prompt may be megabytes.
        let scanned = py.detach(|| Scanner::scan(&body, ScanLimits::default()));
        let scanned = scanned.map_err(|error| refused(400, "malformed_body", error.to_string()))?;
        let facts = RequestFacts::from_scan(&route, &scanned, Moment::ZERO, 0);
        facts
            .map(Self)
            .map_err(|error| refused(404, "model_not_found", error.to_string()))
    }

    #[getter]
    fn kind(&self) -> &'static str {
        match self.0.class {
            RequestClass::Generate(_) => "generate",
            RequestClass::Local => "local",
            RequestClass::Admin => "admin",
            _ => "control",
        }
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
