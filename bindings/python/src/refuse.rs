//! How does Python hear that there is nobody?
//!
//! By the exceptions of `paddler._errors`, which know status, reason and when to come again, as the router's clients do.

use std::time::Duration;

use paddler_core::Moment;
use paddler_core::config::ConfigFaults;
use paddler_core::forward::{Refusal, RouterOptions};
use paddler_core::schedule::{Ending, Reason, Tree};
use paddler_core::status::Snapshot;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::callables;

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

/// Nobody, after a wait or without.
pub(crate) fn refusal(py: Python<'_>, refusal: &Refusal) -> PyErr {
    let after = refusal.retry_after.map(|after| after.as_secs_f64());
    let status = refusal.status.as_u16();
    let message = refusal.message.as_str();
    make(
        py,
        "refused",
        (
            message,
            status,
            &*refusal.reason,
            after,
            refusal.should_retry,
            None::<u32>,
        ),
    )
}

/// How a walk has ended. What a function of Python's has raised on the way is the cause.
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
    let told = Refusal::of_ending(ending, model, after);
    let message = match (&ending.reason, &ending.error) {
        (Reason::FilterFailed, Some(error)) => format!("{}: {error}", named(snapshot.tree(), ending)),
        _ => told.message,
    };
    let after = told.retry_after.map(|after| after.as_secs_f64());
    let again = told.should_retry;
    let (status, node) = (told.status.as_u16(), ending.node.get());
    let error = make(
        py,
        "refused",
        (message, status, &*told.reason, after, again, Some(node)),
    );
    if ending.error.is_some() {
        error.set_cause(py, callables::take_raised());
    }
    error
}

fn named(tree: &Tree, ending: &Ending) -> String {
    let title = tree.title(ending.node).unwrap_or("?");
    format!(
        "node {} of the tree, `{title}`, could not judge",
        ending.node.get()
    )
}

/// Whether it is meant for the program as a whole, as Ctrl-C is, and not for who calls.
pub(crate) fn is_for_all(py: Python<'_>, error: &PyErr) -> bool {
    let exception: Bound<'_, PyType> = py.get_type::<PyException>();
    !error.get_type(py).is_subclass(&exception).unwrap_or(false)
}
