//! How is one asked for?

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use paddler_core::forward::{Acquired, Refusal};
use paddler_core::schedule::{Ask, Ending, Explanation, Observer, Scratch};
use paddler_core::status::Snapshot;
use paddler_core::upstream::Lease as CoreLease;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict};
use tokio::task::AbortHandle;

use crate::asked::Asked;
use crate::board::Board;
use crate::facts::Facts;
use crate::lease::Lease;
use crate::shared::Shared;
use crate::{callables, refuse};

/// From so many upstreams on, other threads of Python's run meanwhile. A pick among 10,000 takes a tenth of a millisecond. To let
/// go of the interpreter's lock is to hand it to any thread that wants it, for 5 ms as Python has it: for less than that tenth
/// it is no good trade.
const LET_GO: usize = 10_000;

/// Decides where requests go, by what is known on a board.
#[pyclass(frozen, subclass, module = "paddler")]
pub(crate) struct Router {
    #[pyo3(get)]
    board: Py<Board>,
    shared: Arc<Shared>,
    seed: AtomicU64,
}

impl Router {
    /// The seed of the next pick. Each draw is mixed by the core, so these need only differ.
    fn next_seed(&self, seed: Option<u64>) -> u64 {
        seed.unwrap_or_else(|| self.seed.fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed))
    }

    fn reserve<O: Observer + Send>(
        &self,
        py: Python<'_>,
        snapshot: &Arc<Snapshot>,
        ask: &Ask<'_>,
        observer: &mut O,
    ) -> PyResult<Result<CoreLease, Ending>> {
        if self.shared.asks_python.load(Relaxed) {
            let reserved = Scratch::with(|scratch| snapshot.reserve(ask, scratch, observer));
            callables::pass_on()?;
            return Ok(reserved);
        }
        let mut reserve = || Scratch::with(|scratch| snapshot.reserve(ask, scratch, observer));
        Ok(if snapshot.len() < LET_GO {
            reserve()
        } else {
            py.detach(reserve)
        })
    }

    /// Where a place is, once there is one.
    fn acquired(&self, py: Python<'_>, acquired: Result<Acquired, Refusal>) -> PyResult<Lease> {
        let place = acquired.map_err(|refusal| refuse::refusal(py, &refusal))?;
        let charge = place.charge.zip(self.shared.running(py).ok());
        let shared = self.shared.clone();
        Ok(Lease::new(place.lease, place.spec, shared, charge, None))
    }
}

/// What is called once it is known what came of a wait, unless that was cancelled.
type Done = Arc<Mutex<Option<Py<PyAny>>>>;

fn take(done: &Done) -> Option<Py<PyAny>> {
    done.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Who waits hears what came of it in any case, also when the board is stopped meanwhile.
struct Waits {
    router: Py<Router>,
    done: Done,
}

impl Waits {
    /// Once the interpreter is gone, or nobody wants to know any more, the place is given back.
    fn tell(&self, acquired: Result<Acquired, Refusal>) {
        let Some(done) = take(&self.done) else { return };
        let _told = Python::try_attach(|py| {
            let told = match self.router.get().acquired(py, acquired) {
                Ok(lease) => done.call1(py, (lease, py.None())),
                Err(error) => done.call1(py, (py.None(), error)),
            };
            if let Err(error) = told {
                error.write_unraisable(py, None);
            }
        });
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let message = "the board was stopped meanwhile";
        let stopped = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "stopped", message);
        self.tell(Err(stopped));
    }
}

/// A request that waits for a place. Cancelled, it leaves the queue.
#[pyclass(frozen, module = "paddler")]
pub(crate) struct Waiting {
    task: AbortHandle,
    done: Done,
}

#[pymethods]
impl Waiting {
    fn cancel(&self) {
        drop(take(&self.done));
        self.task.abort();
    }
}

/// Who was interrupted before he could say so.
impl Drop for Waiting {
    fn drop(&mut self) {
        self.cancel();
    }
}

#[pymethods]
impl Router {
    #[new]
    #[pyo3(signature = (board, *, seed = None))]
    fn new(board: Bound<'_, Board>, seed: Option<u64>) -> Self {
        Self {
            shared: board.get().0.clone(),
            board: board.unbind(),
            seed: AtomicU64::new(seed.unwrap_or_else(|| RandomState::new().hash_one(0u8))),
        }
    }

    #[pyo3(signature = (facts = None, *, explain = false, **asked))]
    fn pick(
        &self,
        py: Python<'_>,
        facts: Option<&Bound<'_, Facts>>,
        explain: bool,
        asked: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Lease> {
        let asked = Asked::read(asked, true)?;
        let now = self.shared.refresh(py)?;
        let facts = asked.facts(facts, now, self.next_seed(asked.seed));
        let ask = asked.ask(&facts);
        let snapshot = self.shared.published.load();
        let (reserved, why) = if explain {
            let mut why = Explanation::default();
            let reserved = self.reserve(py, &snapshot, &ask, &mut why)?;
            (
                reserved,
                Some(refuse::explanation(py, &why, snapshot.tree(), facts)?),
            )
        } else {
            (self.reserve(py, &snapshot, &ask, &mut ())?, None)
        };
        let lease = reserved.map_err(|ending| {
            let error = refuse::ending(py, &ending, &snapshot, &ask);
            if let Some(why) = &why {
                error.value(py).setattr("explanation", why).ok();
            }
            error
        })?;
        let why = why.map(Bound::unbind);
        let entry = snapshot.find(lease.upstream().as_str());
        let spec = entry.expect("the snapshot that was picked from has it").spec();
        Ok(Lease::new(lease, spec.clone(), self.shared.clone(), None, why))
    }

    #[pyo3(signature = (facts = None, **asked))]
    fn explain<'py>(
        &self,
        py: Python<'py>,
        facts: Option<&Bound<'_, Facts>>,
        asked: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let asked = Asked::read(asked, true)?;
        let now = self.shared.refresh(py)?;
        let facts = asked.facts(facts, now, self.next_seed(asked.seed));
        let snapshot = self.shared.published.load();
        let mut why = Explanation::default();
        let _outcome = Scratch::with(|scratch| snapshot.pick(&asked.ask(&facts), scratch, &mut why));
        callables::pass_on()?;
        refuse::explanation(py, &why, snapshot.tree(), facts)
    }

    /// Asks for a place; `done` is called from another thread with a lease, or with the error that there is none.
    #[pyo3(signature = (done, timeout, facts, /, **asked))]
    fn _wait(
        slf: &Bound<'_, Self>,
        done: Py<PyAny>,
        timeout: Option<f64>,
        facts: Option<&Bound<'_, Facts>>,
        asked: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Waiting> {
        let (py, router) = (slf.py(), slf.get());
        let asked = Asked::read(asked, true)?;
        if asked.seed.is_some() {
            let message = "there is no argument 'seed' for who waits: chance comes from that of `start`";
            return Err(PyTypeError::new_err(message));
        }
        let now = router.shared.refresh(py)?;
        let running = router.shared.running(py)?;
        running.not_here()?;
        let (facts, tried) = asked.to_wait(asked.facts(facts, now, 0), timeout)?;
        let done = Arc::new(Mutex::new(Some(done)));
        let waits = Waits {
            router: slf.clone().unbind(),
            done: done.clone(),
        };
        let background = running.background()?;
        let places = background.router().clone();
        let task = background.spawn(async move { waits.tell(places.acquire(&facts, &tried).await) });
        Ok(Waiting { task, done })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let board = self.board.bind(py).repr()?;
        Ok(format!("<paddler.Router over {board}>"))
    }
}
