//! How does Python hear that there is nobody, and why?
//!
//! By the exceptions of `paddler._errors`, which know status, reason and when to come again, as the router's clients do, and by
//! the core's explanation as data.

use std::error::Error as _;

use paddler_core::config::ConfigFaults;
use paddler_core::forward::{Refusal, RouterOptions};
use paddler_core::request::Facts;
use paddler_core::schedule::{Ask, Ending, Explanation, NodeId, Tree};
use paddler_core::status::Snapshot;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pythonize::pythonize;

fn make<'py>(py: Python<'py>, name: &str, arguments: impl pyo3::call::PyCallArgs<'py>) -> PyErr {
    let make = || py.import("paddler._errors")?.getattr(name)?.call1(arguments);
    match make() {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// All that is wrong with what was written, in one exception.
pub(crate) fn config(py: Python<'_>, faults: &ConfigFaults) -> PyErr {
    match pythonize(py, faults) {
        Ok(data) => make(py, "unsound", (faults.to_string(), data)),
        Err(error) => error.into(),
    }
}

/// Nobody, after a wait or without. What a function of Python's has raised on the way is the cause.
pub(crate) fn refusal(py: Python<'_>, refusal: &Refusal) -> PyErr {
    let after = refusal.retry_after.map(|after| after.as_secs_f64());
    let node = refusal.node.map(NodeId::get);
    let (status, again) = (refusal.status.as_u16(), refusal.should_retry);
    let told = (&*refusal.message, status, &*refusal.reason, after, again, node);
    let error = make(py, "refused", told);
    if let Some(failed) = &refusal.error {
        let raised = failed.source().and_then(|source| source.downcast_ref::<PyErr>());
        error.set_cause(py, raised.map(|raised| raised.clone_ref(py)));
    }
    error
}

/// How a walk has ended.
pub(crate) fn ending(py: Python<'_>, ending: &Ending, snapshot: &Snapshot, ask: &Ask<'_>) -> PyErr {
    let otherwise = RouterOptions::default().retry_after;
    refusal(py, &Refusal::of_walk(ending, snapshot, ask, otherwise))
}

/// Why a walk ended as it did.
pub(crate) fn explanation<'py>(
    py: Python<'py>,
    why: &Explanation,
    tree: &Tree,
    facts: Facts<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    let data = why.data(tree, usize::MAX).of(&facts.into());
    let explanation = py.import("paddler._explanation")?.getattr("Explanation")?;
    explanation.call1((pythonize(py, &data)?, data.to_string()))
}

/// A value that cannot be.
pub(crate) fn invalid(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Whether it is meant for the program as a whole, as Ctrl-C is, and not for who calls.
pub(crate) fn is_for_all(py: Python<'_>, error: &PyErr) -> bool {
    !error.is_instance_of::<PyException>(py)
}
