//! Who tells what is known of the upstreams?
//!
//! A board is written by who has it, and read by routers. Until it is started it lives in the threads that use it, and has no
//! other; then one thread in the background keeps it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use paddler_core::Clock;
use paddler_core::forward::RouterOptions;
use paddler_core::health::HealthState;
use paddler_core::queue::QueueLimits;
use paddler_core::schedule::trees;
use paddler_core::status::{BoardOptions, Failure, FailureKind, PollOptions, StatusBoard, StatusEvent};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::asked::seconds;
use crate::reports::Report;
use crate::running::Running;
use crate::shared::{Keeper, Shared, Time, stopped};
use crate::specs::{Upstream, id, spec};
use crate::tree::Tree;

/// What is known of upstreams, and who writes it.
#[pyclass(frozen, module = "paddler")]
pub(crate) struct Board(pub(crate) Arc<Shared>);

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
        options.settle = seconds(settle)?;
        options.publish_every = seconds(publish_every)?;
        let (tree, asks_python) = match tree {
            None => (Arc::new(trees::gateway()), false),
            Some(tree) => {
                let tree = Tree::of(tree)?;
                (tree.get().tree.clone(), tree.get().asks_python)
            }
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
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let snapshot = self.0.published.load_full();
        let before = snapshot.find(id).map(|entry| &**entry.spec());
        let spec = spec(py, (id, url), settings, (api_key, extra), before)?;
        self.0.apply(py, StatusEvent::Upsert(spec), true)
    }

    fn remove(&self, py: Python<'_>, id: &str) -> PyResult<bool> {
        let known = self.0.knows(py, id)?;
        if known {
            self.0.apply(py, StatusEvent::Remove(self::id(id)?), true)?;
        }
        Ok(known)
    }

    #[pyo3(signature = (id, report = None, **signals))]
    fn report(
        &self,
        py: Python<'_>,
        id: &str,
        report: Option<&Bound<'_, Report>>,
        signals: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<bool> {
        let said = match (report, signals) {
            (Some(_), Some(_)) => {
                let message = "give a Report, or its signals by name, not both";
                return Err(PyTypeError::new_err(message));
            }
            (Some(report), None) => report.get().clone(),
            (None, signals) => {
                let made = py.get_type::<Report>().call((), signals)?;
                made.cast::<Report>()?.get().clone()
            }
        };
        let known = self.0.knows(py, id)?;
        if known {
            let event = StatusEvent::Report {
                id: self::id(id)?,
                report: said.0,
                sample: None,
            };
            self.0.apply(py, event, false)?;
        }
        Ok(known)
    }

    #[pyo3(signature = (id, kind = "timeout", message = ""))]
    fn failed(&self, py: Python<'_>, id: &str, kind: &str, message: &str) -> PyResult<bool> {
        let kinds = [
            FailureKind::Unreachable,
            FailureKind::Timeout,
            FailureKind::Unreadable,
        ];
        let found = kinds.into_iter().find(|known| known.as_str() == kind);
        let kind = found.ok_or_else(|| {
            PyValueError::new_err(format!(
                "{kind:?} is no failure: unreachable, timeout or unreadable"
            ))
        })?;
        let known = self.0.knows(py, id)?;
        if known {
            let event = StatusEvent::Failed {
                id: self::id(id)?,
                failure: Failure::new(kind, message),
            };
            self.0.apply(py, event, false)?;
        }
        Ok(known)
    }

    #[pyo3(signature = (id, draining = true))]
    fn drain(&self, py: Python<'_>, id: &str, draining: bool) -> PyResult<bool> {
        let running = match self.0.with_keeper(py, |keeper| match keeper {
            Keeper::Nobody => Err(stopped()),
            Keeper::Here(board) => Ok(Err(board.set_draining(id, draining))),
            Keeper::Background(running) => Ok(Ok(running.clone())),
        })?? {
            Ok(running) => running,
            Err(known) => return Ok(known),
        };
        running.drain(py, self::id(id)?, draining)
    }

    fn set_tree(&self, py: Python<'_>, tree: &Bound<'_, PyAny>) -> PyResult<()> {
        let tree = Tree::of(tree)?;
        let tree = tree.get();
        if tree.asks_python {
            // From the first pick by it.
            self.0.asks_python.store(true, Relaxed);
        }
        let running = self.0.with_keeper(py, |keeper| match keeper {
            Keeper::Nobody => Err(stopped()),
            Keeper::Background(running) => Ok(Some(running.clone())),
            Keeper::Here(board) => {
                board.set_tree(tree.tree.clone());
                Ok(None)
            }
        })??;
        if let Some(running) = running {
            running.set_tree(py, tree.tree.clone())?;
        }
        self.0.has_news();
        Ok(())
    }

    /// Puts in force at once what was told so far.
    fn publish(&self, py: Python<'_>) -> PyResult<()> {
        if let Ok(running) = self.0.running(py) {
            running.not_here()?;
        }
        self.0.has_news();
        self.0.refresh(py).map(drop)
    }

    fn upstreams(&self, py: Python<'_>) -> PyResult<Vec<Upstream>> {
        self.0.refresh(py)?;
        let snapshot = self.0.published.load();
        Ok(snapshot
            .iter()
            .map(|(_, entry)| Upstream(entry.spec().clone()))
            .collect())
    }

    /// Our own open weight there, with what settles.
    fn in_flight(&self, py: Python<'_>, id: &str) -> PyResult<Option<u32>> {
        self.0.refresh(py)?;
        let snapshot = self.0.published.load();
        let upstream = snapshot.index(id);
        Ok(upstream.map(|upstream| snapshot.ledger().own_load(upstream).weight))
    }

    fn health(&self, py: Python<'_>, id: &str) -> PyResult<Option<&'static str>> {
        self.0.refresh(py)?;
        let snapshot = self.0.published.load();
        let health = snapshot.index(id).and_then(|upstream| snapshot.health(upstream));
        Ok(health.map(|health| match health.state {
            HealthState::Healthy => "healthy",
            HealthState::Ejected { .. } => "ejected",
            HealthState::Probing => "probing",
            HealthState::Warming { .. } => "warming",
            _ => "unknown",
        }))
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
            return Err(PyValueError::new_err(message));
        };
        let mut poll = PollOptions::default();
        (poll.timeout, poll.concurrency) = (seconds(poll_timeout)?, poll_concurrency.max(1));
        let poll = match poll_interval {
            Some(interval) => {
                poll.interval = seconds(interval)?;
                Some(poll)
            }
            None => None,
        };
        let mut options = RouterOptions::default();
        options.queue = QueueLimits::new(max_requests, u64::MAX, seconds(max_wait)?);
        options.seed = seed;
        let clock = *clock;
        shared.with_keeper(py, |keeper| match std::mem::replace(keeper, Keeper::Nobody) {
            Keeper::Here(mut board) => {
                let snapshot = board.publish(clock.now());
                let specs = snapshot.iter().map(|(_, entry)| (**entry.spec()).clone());
                *keeper = Keeper::Background(Running::start(*board, specs, poll, options, clock)?);
                Ok(())
            }
            Keeper::Nobody => Err(PyRuntimeError::new_err(
                "a board that was stopped cannot be started",
            )),
            running @ Keeper::Background(_) => {
                *keeper = running;
                Err(PyRuntimeError::new_err("the board is started already"))
            }
        })??;
        shared.look.store(u64::MAX, Relaxed);
        Ok(slf.clone())
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let running = self.0.with_keeper(py, |keeper| match keeper {
            Keeper::Background(running) => running.not_here().map(|()| Some(running.clone())),
            Keeper::Here(_) | Keeper::Nobody => Ok(None),
        })??;
        let before = self
            .0
            .with_keeper(py, |keeper| std::mem::replace(keeper, Keeper::Nobody))?;
        drop(before);
        // Each pick finds it out.
        self.0.look.store(0, Relaxed);
        running.map_or(Ok(()), |running| running.stop(py))
    }

    #[getter]
    fn is_running(&self, py: Python<'_>) -> PyResult<bool> {
        self.0
            .with_keeper(py, |keeper| matches!(keeper, Keeper::Background(_)))
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> Bound<'py, Self> {
        slf.clone()
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
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
        let state = self.0.with_keeper(py, |keeper| match keeper {
            Keeper::Here(_) => "not started",
            Keeper::Background(_) => "running",
            Keeper::Nobody => "stopped",
        })?;
        let upstreams = self.0.published.load().len();
        Ok(format!("<paddler.Board of {upstreams} upstreams, {state}>"))
    }
}
