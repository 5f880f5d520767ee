//! What do a board, its routers and its leases have in common?

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use paddler_core::status::{Published, StatusBoard, StatusEvent};
use paddler_core::{Clock, Moment};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::asked::seconds;
use crate::running::Running;

/// How often what has a time limit is looked at, by the picks: what settles, and who is left out.
const CHECK: Duration = Duration::from_millis(250);

/// A board as its routers and leases hold it.
pub(crate) struct Shared {
    pub(crate) published: Published,
    pub(crate) time: Time,
    pub(crate) keeper: Mutex<Keeper>,
    /// Something has joined or left, and is to be seen by the next pick.
    pub(crate) has_news: AtomicBool,
    /// When a pick has to look after the board, in nanoseconds.
    pub(crate) look: AtomicU64,
    /// Whether the tree asks functions of Python's.
    pub(crate) asks_python: AtomicBool,
}

pub(crate) enum Time {
    Clock(Clock),
    Host(Py<PyAny>),
}

pub(crate) enum Keeper {
    Here(Box<StatusBoard>),
    Background(Arc<Running>),
    Nobody,
}

pub(crate) fn stopped() -> PyErr {
    PyRuntimeError::new_err("the board was stopped")
}

impl Shared {
    pub(crate) fn now(&self, py: Python<'_>) -> PyResult<Moment> {
        match &self.time {
            Time::Clock(clock) => Ok(clock.now()),
            Time::Host(call) => {
                let time = seconds(call.bind(py).call0()?.extract()?)?;
                Ok(Moment::ZERO.saturating_add(time))
            }
        }
    }

    /// Does what is due before a pick, and says when it is.
    pub(crate) fn refresh(&self, py: Python<'_>) -> PyResult<Moment> {
        let now = self.now(py)?;
        let has_news = self.has_news.load(Relaxed);
        if !has_news && now.as_nanos() < self.look.load(Relaxed) {
            return Ok(now);
        }
        self.has_news.store(false, Relaxed);
        let background = match &mut *self.lock(py)? {
            Keeper::Nobody => return Err(stopped()),
            Keeper::Background(running) => running.clone(),
            Keeper::Here(board) => {
                if board.publish_due().is_some_and(|due| has_news || due <= now) {
                    board.publish(now);
                }
                board.expire(now);
                self.look_again(board, now);
                return Ok(now);
            }
        };
        // It looks after itself.
        self.look.store(u64::MAX, Relaxed);
        if has_news {
            background.publish(py)?;
        }
        Ok(now)
    }

    fn look_again(&self, board: &StatusBoard, now: Moment) {
        let check = now.saturating_add(CHECK);
        let due = board.publish_due().unwrap_or(check).min(check);
        self.look.store(due.as_nanos(), Relaxed);
    }

    pub(crate) fn lock<'a>(&'a self, py: Python<'_>) -> PyResult<std::sync::MutexGuard<'a, Keeper>> {
        let broken = |_| PyRuntimeError::new_err("the board broke in another thread");
        self.keeper.lock_py_attached(py).map_err(broken)
    }

    /// What runs in the background, if the board was started.
    pub(crate) fn running(&self, py: Python<'_>) -> PyResult<Arc<Running>> {
        match &*self.lock(py)? {
            Keeper::Background(running) => Ok(running.clone()),
            Keeper::Nobody => Err(stopped()),
            Keeper::Here(_) => {
                let message =
                    "only a board that was started hands out places to those who wait: call start()";
                Err(PyRuntimeError::new_err(message))
            }
        }
    }

    pub(crate) fn apply(&self, py: Python<'_>, event: StatusEvent, is_news: bool) -> PyResult<()> {
        let now = self.now(py)?;
        let background = match &mut *self.lock(py)? {
            Keeper::Nobody => return Err(stopped()),
            Keeper::Background(running) => Some(running.clone()),
            Keeper::Here(board) => {
                board.apply(event.clone(), now);
                self.look_again(board, now);
                None
            }
        };
        if let Some(running) = background {
            running.apply(py, event)?;
        }
        if is_news {
            self.has_news.store(true, Relaxed);
        }
        Ok(())
    }

    /// Whether an upstream is there, with what was said just now.
    pub(crate) fn knows(&self, py: Python<'_>, id: &str) -> PyResult<bool> {
        if self.has_news.load(Relaxed) {
            self.refresh(py)?;
        }
        Ok(self.published.load().find(id).is_some())
    }
}
