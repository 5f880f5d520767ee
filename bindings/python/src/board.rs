//! Who tells what is known of the upstreams?
//!
//! A board is written by who has it, and read by routers. Until it is started it lives in the threads that use it, and has no
//! other; then one thread in the background keeps it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use paddler_core::Clock;
use paddler_core::forward::RouterOptions;
use paddler_core::observe::UpstreamStatus;
use paddler_core::queue::QueueLimits;
use paddler_core::schedule::trees;
use paddler_core::status::{BoardOptions, Change, Failure, PollOptions, StatusBoard, StatusEvent};
use paddler_core::upstream::UpstreamId;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pythonize::pythonize;

use crate::asked::seconds;
use crate::refuse::invalid;
use crate::reports::Report;
use crate::running::{Running, untold};
use crate::shared::{Keeper, Shared, Time, stopped};
use crate::specs::{Upstream, id, spec};
use crate::tree::Tree;

/// What is known of upstreams, and who writes it.
#[pyclass(frozen, module = "paddler")]
pub(crate) struct Board(pub(crate) Arc<Shared>);

impl Board {
    fn state(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.0.with_keeper(py, |keeper| match keeper {
            Keeper::Here(_) => Ok("not started"),
            Keeper::Background(_) => Ok("running"),
            Keeper::Nobody => Ok("stopped"),
        })
    }

    /// Tells something of an upstream, if it is there with what was said just now. Whether it is.
    fn tell(
        &self,
        py: Python<'_>,
        id: &str,
        event: impl FnOnce(UpstreamId) -> StatusEvent,
        is_news: bool,
    ) -> PyResult<bool> {
        self.0.refresh(py)?;
        let snapshot = self.0.published.load_full();
        let Some(entry) = snapshot.find(id) else {
            return Ok(false);
        };
        let event = event(entry.spec().id.clone());
        self.0.change(py, event.into(), is_news)
    }
}

#[pymethods]
impl Board {
    #[new]
    #[pyo3(signature = (tree = None, *, settle = 10.0, publish_every = 0.01, clock = None))]
    fn new(
        tree: Option<&Bound<'_, PyAny>>,
        settle: f64,
        publish_every: f64,
        clock: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let mut options = BoardOptions::default();
        options.settle = seconds("settle", settle)?;
        options.publish_every = seconds("publish_every", publish_every)?;
        let tree = tree.map(Tree::of).transpose()?;
        let (tree, asks_python) = match &tree {
            None => (Arc::new(trees::gateway()), false),
            Some(tree) => (tree.get().tree.clone(), tree.get().asks_python),
        };
        let board = StatusBoard::with_options(tree, options);
        let time = clock.map_or_else(|| Time::Clock(Clock::new()), Time::Host);
        Ok(Self(Arc::new(Shared::new(board, time, asks_python))))
    }

    #[pyo3(signature = (id, url, *, api_key = None, extra = None, **settings))]
    fn upsert(
        &self,
        py: Python<'_>,
        id: &str,
        url: &str,
        api_key: Option<&str>,
        extra: Option<Py<PyAny>>,
        settings: Option<Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        if url.to_ascii_lowercase().starts_with("dns+") {
            let message = "url: the program alone looks up `dns+` names: upsert each address";
            return Err(invalid(message));
        }
        let settings = settings.unwrap_or_else(|| PyDict::new(py));
        settings.set_item("id", id)?;
        settings.set_item("url", url)?;
        let snapshot = self.0.published.load_full();
        let before = snapshot.find(id).map(|entry| &**entry.spec());
        let spec = spec(&settings, (api_key, extra), before)?;
        let event = StatusEvent::Upsert(spec).into();
        self.0.change(py, event, true).map(drop)
    }

    fn remove(&self, py: Python<'_>, id: &str) -> PyResult<bool> {
        self.tell(py, id, StatusEvent::Remove, true)
    }

    #[pyo3(signature = (id, report = None, *, extra = None, **signals))]
    fn report(
        &self,
        py: Python<'_>,
        id: &str,
        report: Option<&Bound<'_, Report>>,
        extra: Option<Py<PyAny>>,
        signals: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<bool> {
        let report = match report {
            None => Report::new(py, extra, signals)?.0,
            Some(report) if extra.is_none() && signals.is_none() => report.get().0.clone(),
            Some(_) => {
                let message = "give a Report, or its signals by name, not both";
                return Err(PyTypeError::new_err(message));
            }
        };
        let sample = None;
        self.tell(py, id, |id| StatusEvent::Report { id, report, sample }, false)
    }

    #[pyo3(signature = (id, kind = "timeout", message = ""))]
    fn failed(&self, py: Python<'_>, id: &str, kind: &str, message: &str) -> PyResult<bool> {
        let failure = Failure::new(kind.parse().map_err(invalid)?, message);
        self.tell(py, id, |id| StatusEvent::Failed { id, failure }, false)
    }

    #[pyo3(signature = (id, draining = true))]
    fn drain(&self, py: Python<'_>, id: &str, draining: bool) -> PyResult<bool> {
        self.0.change(py, Change::Drain(self::id(id)?, draining), false)
    }

    fn set_tree(&self, py: Python<'_>, tree: &Bound<'_, PyAny>) -> PyResult<()> {
        let tree = Tree::of(tree)?;
        let tree = tree.get();
        // From the first pick by it.
        self.0.asks_python.fetch_or(tree.asks_python, Relaxed);
        self.0.change(py, Change::Tree(tree.tree.clone()), true).map(drop)
    }

    /// Puts in force at once what was told so far.
    fn publish(&self, py: Python<'_>) -> PyResult<()> {
        self.0.change(py, Change::Publish, true).map(drop)
    }

    fn upstreams(&self, py: Python<'_>) -> PyResult<Vec<Upstream>> {
        self.0.refresh(py)?;
        let snapshot = self.0.published.load();
        let specs = snapshot.iter().map(|(_, entry)| entry.spec().clone());
        Ok(specs.map(Upstream).collect())
    }

    /// How each upstream is, in the words that the program tells it in.
    fn statuses<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let now = self.0.refresh(py)?;
        let all = UpstreamStatus::all(&self.0.published.load(), now);
        Ok(pythonize(py, &all)?)
    }

    fn status<'py>(&self, py: Python<'py>, id: &str) -> PyResult<Bound<'py, PyAny>> {
        let now = self.0.refresh(py)?;
        let one = UpstreamStatus::find(&self.0.published.load(), id, now);
        Ok(pythonize(py, &one)?)
    }

    #[pyo3(signature = (*, poll_interval = 1.0, poll_timeout = 3.0, poll_concurrency = 64, max_requests = 30, max_wait = 10.0, seed = None))]
    #[allow(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn start<'py>(
        slf: &Bound<'py, Self>,
        poll_interval: Option<f64>,
        poll_timeout: f64,
        poll_concurrency: usize,
        max_requests: usize,
        max_wait: f64,
        seed: Option<u64>,
    ) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        let shared = &slf.get().0;
        let Time::Clock(clock) = &shared.time else {
            let message = "what runs in the background goes by its own clock: make the board without `clock`";
            return Err(invalid(message));
        };
        let mut poll = PollOptions::default();
        poll.timeout = seconds("poll_timeout", poll_timeout)?;
        poll.concurrency = poll_concurrency.max(1);
        poll.interval = seconds("poll_interval", poll_interval.unwrap_or_default())?;
        let poll = poll_interval.map(|_| poll);
        let mut options = RouterOptions::default();
        options.queue = QueueLimits::new(max_requests, u64::MAX, seconds("max_wait", max_wait)?);
        options.seed = seed;
        let clock = *clock;
        let already = || PyRuntimeError::new_err("the board is started already");
        shared.with_keeper(py, |keeper| {
            let (now, told) = match std::mem::replace(keeper, Keeper::Nobody) {
                Keeper::Here(board) => match Running::start(*board, poll, options, clock) {
                    Ok(running) => {
                        shared.look.store(u64::MAX, Relaxed);
                        (Keeper::Background(running), Ok(()))
                    }
                    Err(failed) => (Keeper::Here(failed.board), Err(untold(failed.error))),
                },
                Keeper::Nobody => (Keeper::Nobody, Err(stopped())),
                running => (running, Err(already())),
            };
            *keeper = now;
            told
        })?;
        Ok(slf.clone())
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let before = self.0.with_keeper(py, |keeper| {
            if let Keeper::Background(running) = keeper {
                running.not_here()?;
            }
            // Each pick finds it out.
            self.0.look.store(0, Relaxed);
            Ok(std::mem::replace(keeper, Keeper::Nobody))
        })?;
        match before {
            Keeper::Background(running) => running.stop(py),
            Keeper::Here(_) | Keeper::Nobody => Ok(()),
        }
    }

    #[getter]
    fn is_running(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.state(py)? == "running")
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.stop(py)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.refresh(py)?;
        Ok(self.0.published.load().len())
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (upstreams, state) = (self.0.published.load().len(), self.state(py)?);
        Ok(format!("<paddler.Board of {upstreams} upstreams, {state}>"))
    }
}
