//! How does Python hear that there is nobody?
//!
//! By the exceptions of `paddler._errors`, which know status, reason and when to come again, as the router's clients do.

use std::error::Error as _;
use std::time::Duration;

use paddler_core::Moment;
use paddler_core::config::ConfigFaults;
use paddler_core::forward::{Refusal, RouterOptions};
use paddler_core::schedule::{Ending, NodeId, Tree};
use paddler_core::status::Snapshot;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyType;

fn make<'py>(py: Python<'py>, name: &str, arguments: impl pyo3::call::PyCallArgs<'py>) -> PyErr {
    let make = || py.import("paddler._errors")?.getattr(name)?.call1(arguments);
    match make() {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// All that is wrong with a tree, in one exception.
pub(crate) fn config(py: Python<'_>, faults: &ConfigFaults) -> PyErr {
    let each: Vec<_> = faults
        .faults
        .iter()
        .map(|fault| {
            let place = fault.place;
            let (line, column) = (place.map(|place| place.line), place.map(|place| place.column));
            (&fault.path, line, column, &fault.problem, &fault.mend)
        })
        .collect();
    make(py, "ConfigError", (faults.to_string(), each, faults.more))
}

/// What cannot be asked.
pub(crate) fn bad_request(py: Python<'_>, status: u16, reason: &str, message: String) -> PyErr {
    let nothing: Option<f64> = None;
    make(
        py,
        "refused",
        (message, status, reason, nothing, false, None::<u32>),
    )
}

/// Nobody, after a wait or without. What a function of Python's has raised on the way is the cause.
pub(crate) fn refusal(py: Python<'_>, refusal: &Refusal, tree: Option<&Tree>) -> PyErr {
    let failed = refusal.node.zip(refusal.error.as_ref());
    let message = match failed {
        Some((node, error)) => {
            let title = tree.and_then(|tree| tree.title(node)).unwrap_or("?");
            format!(
                "node {} of the tree, `{title}`, could not judge: {error}",
                node.get()
            )
        }
        None => refusal.message.clone(),
    };
    let after = refusal.retry_after.map(|after| after.as_secs_f64());
    let node = refusal.node.map(NodeId::get);
    let (status, again) = (refusal.status.as_u16(), refusal.should_retry);
    let error = make(
        py,
        "refused",
        (message, status, &*refusal.reason, after, again, node),
    );
    if let Some((_, failed)) = failed {
        let raised = failed.source().and_then(|source| source.downcast_ref::<PyErr>());
        error.set_cause(py, raised.map(|raised| raised.clone_ref(py)));
    }
    error
}

/// How a walk has ended.
pub(crate) fn ending(
    py: Python<'_>,
    ending: &Ending,
    model: Option<&str>,
    (snapshot, now): (&Snapshot, Moment),
) -> PyErr {
    let paused = snapshot
        .all_paused_until(model, now)
        .map(|until| until.since(now));
    let after: Duration = paused.unwrap_or_else(|| RouterOptions::default().retry_after);
    refusal(
        py,
        &Refusal::of_ending(ending, model, after),
        Some(snapshot.tree()),
    )
}

/// Whether it is meant for the program as a whole, as Ctrl-C is, and not for who calls.
pub(crate) fn is_for_all(py: Python<'_>, error: &PyErr) -> bool {
    let exception: Bound<'_, PyType> = py.get_type::<PyException>();
    !error.get_type(py).is_subclass(&exception).unwrap_or(false)
}
