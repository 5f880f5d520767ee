//! What runs in the background?
//!
//! One thread with a runtime of its own: the loop that keeps the statuses, the polls, and whoever hands out places to those
//! that wait. It takes the interpreter's lock only where the tree asks a function of Python's, or to hand over a place.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use paddler_core::Clock;
use paddler_core::forward::{Router, RouterOptions};
use paddler_core::status::{LoopEnded, PollOptions, StatusBoard, StatusEvent, StatusLoop};
use paddler_core::upstream::http::HttpConnect;
use paddler_core::upstream::{Connect, UpstreamSpec};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};

/// How long what runs may take to end.
const LONGEST_END: Duration = Duration::from_secs(2);

/// How often this process was forked off, as far as its own past goes.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// All that run, to be ended before the interpreter is.
static ALL: Mutex<Vec<Weak<Running>>> = Mutex::new(Vec::new());

/// In a child, the threads of its parent are not there.
#[pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Relaxed);
}

#[pyfunction]
pub(crate) fn stop_all(py: Python<'_>) {
    let all = std::mem::take(&mut *ALL.lock().unwrap_or_else(PoisonError::into_inner));
    for running in all.iter().filter_map(Weak::upgrade) {
        running.stop(py);
    }
}

pub(crate) struct Running {
    runtime: Mutex<Option<Runtime>>,
    handle: Handle,
    statuses: StatusLoop,
    connect: HttpConnect,
    pub(crate) router: Router,
    forks: u64,
}

impl Running {
    /// Puts the board into the background, with its upstreams.
    pub(crate) fn start(
        py: Python<'_>,
        (board, specs): (StatusBoard, Vec<UpstreamSpec>),
        poll: Option<PollOptions>,
        options: RouterOptions,
        clock: Clock,
    ) -> PyResult<Arc<Self>> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder
            .worker_threads(1)
            .enable_all()
            .thread_name("paddler")
            .build()?;
        let connect = HttpConnect::default();
        let handle = runtime.handle().clone();
        let entered = handle.enter();
        let statuses = StatusLoop::start(board, vec![], Arc::new(connect.clone()), poll, clock);
        let router = Router::new(statuses.published(), clock, options);
        drop(entered);
        let running = Arc::new(Self {
            runtime: Mutex::new(Some(runtime)),
            handle,
            statuses,
            connect,
            router,
            forks: FORKS.load(Relaxed),
        });
        for spec in specs {
            running.apply(py, StatusEvent::Upsert(spec))?;
        }
        running.publish(py)?;
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&running));
        Ok(running)
    }

    /// Whether there is somebody in the background, in this process.
    fn check(&self) -> PyResult<()> {
        if self.forks != FORKS.load(Relaxed) {
            let message =
                "the board was started before a fork, and its thread stayed behind: start it in the child";
            return Err(PyRuntimeError::new_err(message));
        }
        Ok(())
    }

    pub(crate) fn handle(&self) -> PyResult<&Handle> {
        self.check()?;
        Ok(&self.handle)
    }

    pub(crate) fn apply(&self, py: Python<'_>, event: StatusEvent) -> PyResult<()> {
        if let StatusEvent::Upsert(spec) = &event {
            let connected = self.connect.connect(spec).map(drop);
            connected.map_err(|error| PyValueError::new_err(format!("{}: {error}", spec.id)))?;
        }
        let handle = self.handle()?;
        py.detach(|| handle.block_on(self.statuses.apply(event)))
            .map_err(ended)
    }

    pub(crate) fn publish(&self, py: Python<'_>) -> PyResult<()> {
        let handle = self.handle()?;
        py.detach(|| handle.block_on(self.statuses.publish()))
            .map_err(ended)
    }

    pub(crate) fn set_tree(&self, py: Python<'_>, tree: Arc<paddler_core::schedule::Tree>) -> PyResult<()> {
        let handle = self.handle()?;
        py.detach(|| handle.block_on(self.statuses.set_tree(tree)))
            .map_err(ended)
    }

    pub(crate) fn drain(
        &self,
        py: Python<'_>,
        id: paddler_core::upstream::UpstreamId,
        draining: bool,
    ) -> PyResult<bool> {
        let handle = self.handle()?;
        py.detach(|| handle.block_on(self.statuses.set_draining(id, draining)))
            .map_err(ended)
    }

    /// Ends the thread. What it does just then may need the interpreter, so that is let go.
    pub(crate) fn stop(&self, py: Python<'_>) {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(runtime) = runtime {
            if self.check().is_ok() {
                py.detach(|| runtime.shutdown_timeout(LONGEST_END));
            } else {
                // There is no thread to wait for.
                std::mem::forget(runtime);
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let runtime = self
            .runtime
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(runtime) = runtime {
            if self.check().is_ok() {
                // It must not be waited for: it may wait for the interpreter, which the one who drops this may hold.
                runtime.shutdown_background();
            } else {
                std::mem::forget(runtime);
            }
        }
    }
}

fn ended(_: LoopEnded) -> PyErr {
    PyRuntimeError::new_err("the board was stopped")
}
