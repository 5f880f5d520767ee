//! What is asked of a router, in Python's words?

use std::time::Duration;

use paddler_core::Moment;
use paddler_core::queue::Tried;
use paddler_core::request::{Facts as CoreFacts, RequestClass, RequestFacts, Task};
use paddler_core::schedule::Ask;
use paddler_core::upstream::UpstreamId;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyUnicodeEncodeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyDict, PyString};

use crate::facts::Facts;
use crate::refuse::invalid;
use crate::specs::ids;

/// What is asked for by name. It outweighs what the facts say.
#[derive(Default)]
pub(crate) struct Asked {
    model: Option<PyBackedStr>,
    prompt_tokens: Option<u32>,
    weight: Option<u32>,
    task: Option<Task>,
    priority: Option<i32>,
    tenant: Option<PyBackedStr>,
    session: Option<PyBackedStr>,
    stream: Option<bool>,
    only: Option<Vec<UpstreamId>>,
    exclude: Option<Vec<UpstreamId>>,
    pub(crate) seed: Option<u64>,
}

impl Asked {
    /// Reads what is given of a request and, where it is to be picked, of that.
    pub(crate) fn read(given: Option<&Bound<'_, PyDict>>, picks: bool) -> PyResult<Self> {
        let mut asked = Self::default();
        for (name, value) in given.into_iter().flatten() {
            let name = name.cast::<PyString>()?.to_str()?;
            match name {
                "model" => asked.model = read(name, &value)?,
                "prompt_tokens" => asked.prompt_tokens = read(name, &value)?,
                "weight" => asked.weight = read(name, &value)?,
                "task" => {
                    let word: Option<PyBackedStr> = read(name, &value)?;
                    asked.task = word.map(|word| word.parse().map_err(invalid)).transpose()?;
                }
                "priority" => asked.priority = read(name, &value)?,
                "tenant" => asked.tenant = read(name, &value)?,
                "session" => asked.session = read(name, &value)?,
                "stream" => asked.stream = read(name, &value)?,
                "only" if picks => asked.only = ids(name, &value)?,
                "exclude" if picks => asked.exclude = ids(name, &value)?,
                "seed" if picks => asked.seed = read(name, &value)?,
                unknown => return Err(unknown_argument(unknown)),
            }
        }
        Ok(asked)
    }

    pub(crate) fn facts<'a>(
        &'a self,
        facts: Option<&'a Bound<'_, Facts>>,
        now: Moment,
        seed: u64,
    ) -> CoreFacts<'a> {
        let mut facts = facts.map_or_else(CoreFacts::new, |facts| facts.get().0.as_facts());
        facts.class = self.task.map_or(facts.class, RequestClass::Generate);
        facts = self.weight.map_or(facts, |weight| facts.weight(weight));
        if let Some(model) = self.model.as_deref() {
            // The name that the other stood for is not one for this.
            (facts.model, facts.asked) = (Some(model), None);
        }
        facts.tokens = self.prompt_tokens.unwrap_or(facts.tokens);
        facts.priority = self.priority.unwrap_or(facts.priority);
        facts.tenant = self.tenant.as_deref().or(facts.tenant);
        facts.session = self.session.as_deref().or(facts.session);
        facts.stream = self.stream.unwrap_or(facts.stream);
        facts.arrived(now).seed(seed)
    }

    pub(crate) fn ask<'a>(&'a self, facts: &'a CoreFacts<'a>) -> Ask<'a> {
        let exclude = self.exclude.as_deref().unwrap_or_default();
        let mut ask = Ask::new(facts, facts.arrived, facts.seed).except(exclude);
        ask.only = self.only.as_deref();
        ask
    }

    /// The same, for somebody who may wait.
    pub(crate) fn to_wait(
        &self,
        facts: CoreFacts<'_>,
        timeout: Option<f64>,
    ) -> PyResult<(RequestFacts, Tried)> {
        let now = facts.arrived;
        let mut facts = RequestFacts::from(facts);
        facts.only = self.only.clone().map(Into::into);
        let timeout = timeout.map(|time| seconds("timeout", time)).transpose()?;
        facts.deadline = timeout.map(|time| now.saturating_add(time));
        let mut tried = Tried::default();
        let mut exclude: Vec<_> = self.exclude.iter().flatten().collect();
        // In order each goes to the end.
        exclude.sort_unstable();
        for id in exclude {
            // However long it waits.
            tried.add(id.clone(), now, Some(Duration::MAX));
        }
        Ok((facts, tried))
    }
}

/// The argument of this name. What is wrong with it says so, and what something of the host's raised stays as it is.
pub(crate) fn read<'a, 'py, T: FromPyObject<'a, 'py>>(
    name: &str,
    value: &'a Bound<'py, PyAny>,
) -> PyResult<T> {
    value.extract().map_err(|error: T::Error| {
        let (error, py): (PyErr, _) = (error.into(), value.py());
        let mut kind = error.get_type(py);
        if kind.is(py.get_type::<PyUnicodeEncodeError>()) {
            // Half of a surrogate pair. That kind is made of more than a message.
            kind = py.get_type::<PyValueError>();
        } else if !kind.is(py.get_type::<PyTypeError>()) && !kind.is(py.get_type::<PyOverflowError>()) {
            return error;
        }
        let message = format!("argument '{name}': {}", error.value(py));
        PyErr::from_type(kind, message)
    })
}

pub(crate) fn unknown_argument(name: &str) -> PyErr {
    PyTypeError::new_err(format!("there is no argument '{name}' here"))
}

/// A time in seconds, zero or more.
pub(crate) fn seconds(name: &str, number: f64) -> PyResult<Duration> {
    let message = || format!("{name}: {number} is no time in seconds, finite and not below 0");
    Duration::try_from_secs_f64(number).map_err(|_| invalid(message()))
}
