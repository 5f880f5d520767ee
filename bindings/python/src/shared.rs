//! What do a board, its routers and its leases have in common?

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use paddler_core::status::{Change, Published, StatusBoard};
use paddler_core::{Clock, Moment};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::asked::seconds;
use crate::running::{FORKING, Running};

/// How often what has a time limit is looked at, by the picks: what settles, and who is left out.
const CHECK: Duration = Duration::from_millis(250);

/// A board as its routers and leases hold it.
pub(crate) struct Shared {
    pub(crate) published: Published,
    pub(crate) time: Time,
    keeper: Mutex<Keeper>,
    /// How often something was told that the next pick is to see, such as who has joined or left.
    told: AtomicU64,
    /// How much of that can be seen.
    seen: AtomicU64,
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
    pub(crate) fn new(board: StatusBoard, time: Time, asks_python: bool) -> Self {
        Self {
            published: board.published(),
            time,
            keeper: Mutex::new(Keeper::Here(Box::new(board))),
            told: AtomicU64::new(1),
            seen: AtomicU64::new(0),
            look: AtomicU64::new(0),
            asks_python: AtomicBool::new(asks_python),
        }
    }

    pub(crate) fn now(&self, py: Python<'_>) -> PyResult<Moment> {
        match &self.time {
            Time::Clock(clock) => Ok(clock.now()),
            Time::Host(call) => {
                let time = seconds("clock", call.bind(py).call0()?.extract()?)?;
                Ok(Moment::ZERO.saturating_add(time))
            }
        }
    }

    /// Does what is due before a pick, and says when it is.
    pub(crate) fn refresh(&self, py: Python<'_>) -> PyResult<Moment> {
        let now = self.now(py)?;
        // What is told from here on is for the next one to see.
        let told = self.told.load(Acquire);
        let has_news = told != self.seen.load(Acquire);
        if !has_news && now.as_nanos() < self.look.load(Relaxed) {
            return Ok(now);
        }
        let background = self.with_keeper(py, |keeper| match keeper {
            Keeper::Nobody => Err(stopped()),
            Keeper::Background(running) => {
                // It looks after itself. Said before anybody can stop it, who says otherwise.
                self.look.store(u64::MAX, Relaxed);
                Ok(Some(running.clone()))
            }
            Keeper::Here(board) => {
                if board.publish_due().is_some_and(|due| has_news || due <= now) {
                    board.publish(now);
                }
                board.expire(now);
                self.look_again(board, now);
                Ok(None)
            }
        })?;
        if let Some(running) = background {
            if running.not_here().is_err() {
                // It cannot wait for itself: the next pick elsewhere sees the news.
                return Ok(now);
            }
            if has_news {
                running.change(py, Change::Publish)?;
            }
        }
        self.seen.fetch_max(told, Release);
        Ok(now)
    }

    fn look_again(&self, board: &StatusBoard, now: Moment) {
        let check = now.saturating_add(CHECK);
        let due = board.publish_due().unwrap_or(check).min(check);
        self.look.store(due.as_nanos(), Relaxed);
    }

    /// Does something with the keeper, and lets go of the interpreter for it: what is dropped then and is Python's is let go
    /// of later, so that no `__del__` runs in here and asks for the keeper again.
    pub(crate) fn with_keeper<R: Send>(
        &self,
        py: Python<'_>,
        with: impl FnOnce(&mut Keeper) -> PyResult<R> + Send,
    ) -> PyResult<R> {
        py.detach(|| {
            let _no_fork = FORKING.read().unwrap_or_else(PoisonError::into_inner);
            let broken = |_| PyRuntimeError::new_err("the board broke in another thread");
            with(&mut *self.keeper.lock().map_err(broken)?)
        })
    }

    /// What runs in the background, if the board was started.
    pub(crate) fn running(&self, py: Python<'_>) -> PyResult<Arc<Running>> {
        self.with_keeper(py, |keeper| match keeper {
            Keeper::Background(running) => Ok(running.clone()),
            Keeper::Nobody => Err(stopped()),
            Keeper::Here(_) => {
                let message =
                    "only a board that was started hands out places to those who wait: call start()";
                Err(PyRuntimeError::new_err(message))
            }
        })
    }

    /// Tells the board, wherever it is. `is_news`: the next pick is to see it. Whether who it is about is known.
    pub(crate) fn change(&self, py: Python<'_>, change: Change, is_news: bool) -> PyResult<bool> {
        let now = self.now(py)?;
        let told = self.with_keeper(py, |keeper| match keeper {
            Keeper::Nobody => Err(stopped()),
            Keeper::Background(running) => Ok(Err((running.clone(), change))),
            Keeper::Here(board) => {
                let known = board.change(change, now);
                self.look_again(board, now);
                Ok(Ok(known))
            }
        })?;
        let known = told.or_else(|(running, change)| running.change(py, change))?;
        if is_news {
            self.told.fetch_add(1, Release);
        }
        Ok(known)
    }
}
