//! What runs in the background?
//!
//! A board in a thread of its own, as the core keeps it. It takes the interpreter's lock only where the tree asks a function of
//! Python's, or to hand over a place.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use paddler_core::Clock;
use paddler_core::forward::{Background, RouterOptions, Untold};
use paddler_core::status::{Change, PollOptions, StatusBoard};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::refuse::invalid;
use crate::shared::stopped;

/// How often who waits for the thread looks for signals, such as Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(50);

/// How often this process was forked off, as far as its own past goes.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// All that run, to be ended before the interpreter is.
static ALL: Mutex<Vec<Weak<Running>>> = Mutex::new(Vec::new());

/// In a child, the threads of its parent are not there.
#[pyfunction(name = "_forked")]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Relaxed);
}

#[pyfunction(name = "_stop_all")]
pub(crate) fn stop_all(py: Python<'_>) -> PyResult<()> {
    let all = std::mem::take(&mut *ALL.lock().unwrap_or_else(PoisonError::into_inner));
    let mut all = all.iter().filter_map(Weak::upgrade);
    all.try_for_each(|running| running.stop(py))
}

/// Who would wait here would wait for himself.
fn here() -> PyErr {
    let message = "a function that is asked for a request that waits holds up the board's own thread: \
                   it can pick, and cannot wait, nor tell or stop the board";
    PyRuntimeError::new_err(message)
}

pub(crate) struct Running {
    background: Background,
    forks: u64,
}

impl Running {
    pub(crate) fn start(
        board: StatusBoard,
        poll: Option<PollOptions>,
        options: RouterOptions,
        clock: Clock,
    ) -> PyResult<Arc<Self>> {
        let running = Arc::new(Self {
            background: Background::start(board, poll, options, clock)?,
            forks: FORKS.load(Relaxed),
        });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&running));
        Ok(running)
    }

    /// What runs, if it does in this process.
    pub(crate) fn background(&self) -> PyResult<&Background> {
        if self.forks == FORKS.load(Relaxed) {
            return Ok(&self.background);
        }
        let message =
            "the board was started before a fork, and its thread stayed behind: start it in the child";
        Err(PyRuntimeError::new_err(message))
    }

    /// # Errors
    /// In its own thread.
    pub(crate) fn not_here(&self) -> PyResult<()> {
        if self.background.is_here() {
            Err(here())
        } else {
            Ok(())
        }
    }

    /// Tells the board. Whether who it is about is known.
    pub(crate) fn change(&self, py: Python<'_>, change: Change) -> PyResult<bool> {
        let background = self.background()?;
        py.detach(|| background.tell(change))
            .map_err(|untold| match untold {
                Untold::Ended => stopped(),
                Untold::Here => here(),
                no_way => invalid(no_way),
            })
    }

    /// Ends the thread, and waits until it has ended: for as long as the function of Python's takes that it asks just then.
    ///
    /// # Errors
    /// In its own thread, and when it is interrupted.
    pub(crate) fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let Ok(background) = self.background() else {
            return Ok(());
        };
        self.not_here()?;
        if let Some(mut thread) = background.stop() {
            while !py.detach(|| thread.wait(SIGNALS)) {
                py.check_signals()?;
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.background().is_err() {
            self.background.abandon();
        }
    }
}
