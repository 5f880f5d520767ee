//! What runs in the background?
//!
//! A board in a thread of its own, as the core keeps it. It takes the interpreter's lock only where the tree asks a function of
//! Python's, or to hand over a place.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard, Weak};
use std::time::Duration;

use paddler_core::Clock;
use paddler_core::forward::{Background, NotStarted, RouterOptions, ThreadEnd, Untold};
use paddler_core::status::{Change, PollOptions, StatusBoard};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::refuse::invalid;
use crate::shared::stopped;

/// How often who waits for the thread looks for signals, such as Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(50);

/// How often this process was forked off, as far as its own past goes.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// All threads of this process that have not ended, to be ended before the interpreter is. Of one that was told to end nothing
/// else may be left.
static ALL: Mutex<Vec<(Weak<Running>, ThreadEnd, u64)>> = Mutex::new(Vec::new());

/// Held by whoever uses a keeper, and alone by who forks: a keeper that another thread has just then would be locked in the child
/// for ever.
pub(crate) static FORKING: RwLock<()> = RwLock::new(());

thread_local! {
    static FORKS_NOW: RefCell<Option<RwLockWriteGuard<'static, ()>>> = const { RefCell::new(None) };
}

#[pyfunction(name = "_forks")]
pub(crate) fn forks(py: Python<'_>) {
    py.detach(|| FORKS_NOW.set(Some(FORKING.write().unwrap_or_else(PoisonError::into_inner))));
}

/// In a child, the threads of its parent are not there.
#[pyfunction(name = "_forked")]
pub(crate) fn forked(in_child: bool) {
    FORKS.fetch_add(in_child.into(), Relaxed);
    FORKS_NOW.take();
}

#[pyfunction(name = "_stop_all")]
pub(crate) fn stop_all(py: Python<'_>) -> PyResult<()> {
    let mut all = std::mem::take(&mut *ALL.lock().unwrap_or_else(PoisonError::into_inner));
    all.retain(|(.., forks)| *forks == FORKS.load(Relaxed));
    for running in all.iter().filter_map(|(running, ..)| running.upgrade()) {
        running.background.stop();
    }
    all.iter().try_for_each(|(_, end, _)| ended(py, end))
}

/// Waits until a thread has ended, unless that is interrupted.
fn ended(py: Python<'_>, end: &ThreadEnd) -> PyResult<()> {
    while !py.detach(|| end.wait(SIGNALS)) {
        py.check_signals()?;
    }
    Ok(())
}

/// Who would wait here would wait for himself.
fn here() -> PyErr {
    let message = "a function that is asked for a request that waits holds up the board's own thread: \
                   it can pick, and cannot wait, nor tell or stop the board";
    PyRuntimeError::new_err(message)
}

/// Why a board was not told, or not started.
pub(crate) fn untold(error: Untold) -> PyErr {
    match error {
        Untold::Ended => stopped(),
        Untold::Here => here(),
        Untold::NoThread(error) => error.into(),
        no_way => invalid(no_way),
    }
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
    ) -> Result<Arc<Self>, NotStarted> {
        let running = Arc::new(Self {
            background: Background::start(board, poll, options, clock)?,
            forks: FORKS.load(Relaxed),
        });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, end, forks)| *forks == running.forks && !end.wait(Duration::ZERO));
        all.push((Arc::downgrade(&running), running.background.end(), running.forks));
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
        self.background.is_here().then(here).map_or(Ok(()), Err)
    }

    /// Tells the board, also if that is interrupted. Whether who it is about is known.
    pub(crate) fn change(&self, py: Python<'_>, change: Change) -> PyResult<bool> {
        let background = self.background()?;
        let mut telling = py.detach(|| background.begin_to_tell(change)).map_err(untold)?;
        loop {
            if let Some(heard) = py.detach(|| telling.wait(SIGNALS)) {
                return heard.map_err(untold);
            }
            py.check_signals()?;
        }
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
        background.stop();
        ended(py, &background.end())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.background().is_err() {
            self.background.abandon();
        }
    }
}
