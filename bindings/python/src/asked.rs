//! What is asked of a router, in Python's words?

use std::time::Duration;

use paddler_core::Moment;
use paddler_core::queue::Tried;
use paddler_core::request::{Facts as CoreFacts, RequestClass, RequestFacts};
use paddler_core::upstream::UpstreamId;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::facts::{Facts, task};
use crate::specs::ids;

/// The arguments of a pick. What is given by name outweighs what the facts say.
pub(crate) struct Asked<'a, 'py> {
    pub(crate) facts: Option<&'a Bound<'py, Facts>>,
    pub(crate) model: Option<&'a str>,
    pub(crate) prompt_tokens: Option<u32>,
    pub(crate) weight: Option<u32>,
    pub(crate) task: Option<&'a str>,
    pub(crate) priority: Option<i32>,
    pub(crate) tenant: Option<&'a str>,
    pub(crate) session: Option<&'a str>,
    pub(crate) stream: Option<bool>,
    pub(crate) only: Option<&'a Bound<'py, PyAny>>,
    pub(crate) exclude: Option<&'a Bound<'py, PyAny>>,
}

impl<'a> Asked<'a, '_> {
    pub(crate) fn view(&self, now: Moment, seed: u64) -> PyResult<CoreFacts<'a>> {
        let mut view = match self.facts {
            Some(facts) => facts.get().0.as_facts(),
            None => CoreFacts::new(),
        };
        if let Some(word) = self.task {
            view.class = RequestClass::Generate(task(word)?);
        }
        if let Some(weight) = self.weight {
            view = view.weight(weight);
        }
        view.model = self.model.or(view.model);
        view.tokens = self.prompt_tokens.unwrap_or(view.tokens);
        view.priority = self.priority.unwrap_or(view.priority);
        view.tenant = self.tenant.or(view.tenant);
        view.session = self.session.or(view.session);
        view.stream = self.stream.unwrap_or(view.stream);
        Ok(view.arrived(now).seed(seed))
    }

    pub(crate) fn only(&self) -> PyResult<Option<Vec<UpstreamId>>> {
        self.only.map(|only| ids(Some(only))).transpose()
    }

    pub(crate) fn exclude(&self) -> PyResult<Vec<UpstreamId>> {
        ids(self.exclude)
    }

    /// The same, for somebody who may wait.
    pub(crate) fn to_wait(
        &self,
        now: Moment,
        seed: u64,
        timeout: Option<f64>,
    ) -> PyResult<(RequestFacts, Tried)> {
        let mut facts = RequestFacts::from(self.view(now, seed)?);
        facts.only = self.only()?.map(Into::into);
        facts.deadline = timeout
            .map(seconds)
            .transpose()?
            .map(|time| now.saturating_add(time));
        let mut tried = Tried::default();
        for id in self.exclude()? {
            // However long it waits.
            tried.add(id, now, Some(Duration::MAX));
        }
        Ok((facts, tried))
    }
}

/// A time in seconds, zero or more.
pub(crate) fn seconds(number: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(number)
        .map_err(|_| PyValueError::new_err(format!("{number} is no time in seconds, zero or more")))
}
