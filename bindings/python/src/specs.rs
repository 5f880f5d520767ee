//! How does Python write an upstream?
//!
//! In the words of a config: the core reads them, and says what is wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use paddler_core::config::{Kind, UpstreamConfig};
use paddler_core::upstream::http::UpstreamKey;
use paddler_core::upstream::{Models, UpstreamId, UpstreamSpec};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::asked::read;
use crate::refuse::{self, invalid};
use crate::value::{repr, value};

/// What Python knows of an upstream and the core has no name for.
pub(crate) struct Extra(pub(crate) Py<PyAny>);

impl PartialEq for Extra {
    fn eq(&self, other: &Self) -> bool {
        self.0.is(&other.0)
    }
}

/// What an upstream is.
#[pyclass(frozen, module = "paddler")]
#[derive(Clone)]
pub(crate) struct Upstream(pub(crate) Arc<UpstreamSpec>);

#[pymethods]
impl Upstream {
    #[getter]
    fn id(&self) -> &str {
        self.0.id.as_str()
    }

    #[getter]
    fn url(&self) -> &str {
        &self.0.url
    }

    #[getter]
    fn labels(&self) -> BTreeMap<String, String> {
        self.0.labels.clone()
    }

    /// The names of its models, as the user has said them. ``None``: the engine is asked, or any will do.
    #[getter]
    fn models(&self) -> Option<Vec<String>> {
        match self.0.models.as_ref()? {
            Models::Listed(models) => Some(models.iter().map(|model| model.id.to_string()).collect()),
            _ => None,
        }
    }

    /// The most weight that may be open there at once, as the user has said it.
    #[getter]
    fn max_in_flight(&self) -> Option<u32> {
        self.0.limits.max_in_flight
    }

    /// The object that was given as ``extra``.
    #[getter]
    fn extra(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        Some(self.0.extensions.get::<Extra>()?.0.clone_ref(py))
    }

    fn __repr__(&self) -> String {
        format!("<paddler.Upstream {} at {}>", self.0.id, self.0.url)
    }
}

/// The name of an upstream.
pub(crate) fn id(name: &str) -> PyResult<UpstreamId> {
    UpstreamId::new(name).map_err(invalid)
}

/// Names of upstreams, or the upstreams themselves, if any are given as the argument of this name.
pub(crate) fn ids(name: &str, objects: &Bound<'_, PyAny>) -> PyResult<Option<Vec<UpstreamId>>> {
    if objects.is_none() {
        return Ok(None);
    }
    if objects.is_instance_of::<PyString>() || !objects.hasattr("__iter__")? {
        let shown = repr(objects);
        let message = format!("argument '{name}': {shown} is no list of names: put it into a list");
        return Err(PyTypeError::new_err(message));
    }
    let one = |object: Bound<'_, PyAny>| match object.cast::<Upstream>() {
        Ok(upstream) => Ok(upstream.get().0.id.clone()),
        Err(_) => id(read(name, &object)?),
    };
    objects
        .try_iter()?
        .map(|object| one(object?))
        .collect::<PyResult<_>>()
        .map(Some)
}

/// An upstream as it is written; what it was `before` keeps what is the same.
pub(crate) fn spec(
    settings: &Bound<'_, PyDict>,
    (api_key, extra): (Option<&str>, Option<Py<PyAny>>),
    before: Option<&UpstreamSpec>,
) -> PyResult<UpstreamSpec> {
    let mut written = value(settings, None)?;
    if let Kind::Map(pairs) = &mut written.kind {
        // Nothing said is nothing set.
        pairs.retain(|(_, value)| value.kind != Kind::Null);
    }
    let read =
        UpstreamConfig::from_value(&written, "").map_err(|faults| refuse::config(settings.py(), &faults))?;
    let mut spec = read.with_key(api_key).map_err(invalid)?;
    if let Some(extra) = extra {
        spec.extensions.insert(Extra(extra));
    }
    // The same values again are no change.
    if let Some(before) = before {
        spec.extensions.keep::<UpstreamKey>(&before.extensions);
        spec.extensions.keep::<Extra>(&before.extensions);
    }
    Ok(spec)
}
