//! How is one asked for?

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use paddler_core::forward::{Acquired, Refusal};
use paddler_core::request::Facts as CoreFacts;
use paddler_core::schedule::{Ask, Ending, Explanation as Why, Observer, Scratch};
use paddler_core::status::Snapshot;
use paddler_core::upstream::Lease as CoreLease;
use paddler_core::{Clock, Moment};
use pyo3::prelude::*;
use pyo3::types::PyAny;
use tokio::task::AbortHandle;

use crate::asked::Asked;
use crate::board::Board;
use crate::explain::Explanation;
use crate::facts::Facts;
use crate::lease::Lease;
use crate::running::SIGNALS;
use crate::shared::Shared;
use crate::{callables, refuse};

/// From so many upstreams on, other threads of Python's run meanwhile. A pick among 10,000 takes a tenth of a millisecond. To let
/// go of the interpreter's lock is to hand it to any thread that wants it, for 5 ms as Python has it: for less than that tenth
/// it is no good trade.
const LET_GO: usize = 10_000;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A function of Python's that is asked in a pick may pick itself; it gets a scratch of its own.
fn with_scratch<R>(with: impl FnOnce(&mut Scratch) -> R) -> R {
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut scratch) => with(&mut scratch),
        Err(_) => with(&mut Scratch::default()),
    })
}

/// Decides where requests go, by what is known on a board.
#[pyclass(frozen, subclass, module = "paddler")]
pub(crate) struct Router {
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
            let reserved = with_scratch(|scratch| snapshot.reserve(ask, scratch, observer));
            callables::pass_on()?;
            return Ok(reserved);
        }
        let mut reserve = || with_scratch(|scratch| snapshot.reserve(ask, scratch, observer));
        Ok(if snapshot.len() < LET_GO {
            reserve()
        } else {
            py.detach(reserve)
        })
    }

    fn lease(&self, snapshot: &Snapshot, lease: CoreLease, why: Option<Explanation>) -> Option<Lease> {
        let spec = snapshot.find(lease.upstream().as_str())?.spec().clone();
        Some(Lease::new(lease, spec, self.shared.clone(), why))
    }

    /// Asks for a place, and hands what comes of it to `done`, from another thread.
    fn wait_for(
        &self,
        py: Python<'_>,
        (asked, seed, timeout): (&Asked<'_, '_>, Option<u64>, Option<f64>),
        done: impl FnOnce(Result<Acquired, Refusal>) + Send + 'static,
    ) -> PyResult<AbortHandle> {
        let now = self.shared.refresh(py)?;
        let running = self.shared.running(py)?;
        running.not_here()?;
        let (facts, tried) = asked.to_wait(now, self.next_seed(seed), timeout)?;
        let router = running.router.clone();
        let mut done = Done(Some(done));
        let task = running.handle()?.spawn(async move {
            let acquired = router.acquire(&facts, &tried).await;
            done.tell(acquired);
        });
        Ok(task.abort_handle())
    }

    fn explained(&self, py: Python<'_>, asked: &Asked<'_, '_>, seed: Option<u64>) -> PyResult<Explanation> {
        let (now, seed) = (self.shared.refresh(py)?, self.next_seed(seed));
        let (view, only, except) = (asked.view(now, seed)?, asked.only()?, asked.exclude()?);
        let mut ask = Ask::new(&view, now, seed).except(&except);
        ask.only = only.as_deref();
        let snapshot = self.shared.published.load();
        let mut why = Why::default();
        let _outcome = with_scratch(|scratch| snapshot.pick(&ask, scratch, &mut why));
        callables::pass_on()?;
        Ok(Explanation::of(&why, snapshot.tree()))
    }

    /// Waits here, while other threads run.
    fn waited(&self, py: Python<'_>, waits: (&Asked<'_, '_>, Option<u64>, Option<f64>)) -> PyResult<Lease> {
        let (tell, told) = sync_channel(1);
        let told = Mutex::new(told);
        let look = || {
            told.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .recv_timeout(SIGNALS)
        };
        // Who was interrupted does not listen any more, and the place is given back.
        let task = self.wait_for(py, waits, move |acquired| drop(tell.send(acquired)))?;
        loop {
            match py.detach(look) {
                Ok(acquired) => return self.acquired(py, acquired),
                Err(RecvTimeoutError::Timeout) => py.check_signals().inspect_err(|_| task.abort())?,
                Err(RecvTimeoutError::Disconnected) => return Err(refuse::refusal(py, &stopped(), None)),
            }
        }
    }

    /// Once the interpreter is gone, nobody wants to know, and the place is given back.
    fn hand_over(own: &Py<Self>, acquired: Result<Acquired, Refusal>, done: &Py<PyAny>) {
        let _told = Python::try_attach(|py| {
            let told = match own.get().acquired(py, acquired) {
                Ok(lease) => done.call1(py, (lease, py.None())),
                Err(error) => done.call1(py, (py.None(), error)),
            };
            if let Err(error) = told {
                error.write_unraisable(py, None);
            }
        });
    }

    fn acquired(&self, py: Python<'_>, acquired: Result<Acquired, Refusal>) -> PyResult<Lease> {
        let snapshot = self.shared.published.load();
        let acquired = acquired.map_err(|refusal| refuse::refusal(py, &refusal, Some(snapshot.tree())))?;
        let Acquired { lease, charge, .. } = acquired;
        let found = self.lease(&snapshot, lease, None).ok_or_else(|| {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let left = Refusal::new(status, "no_upstream", "the upstream has left meanwhile");
            refuse::refusal(py, &left, None)
        })?;
        Ok(match (charge, self.shared.running(py)) {
            (Some(charge), Ok(running)) => found.charged(charge, running),
            _ => found,
        })
    }
}

/// Who wants to know what came of a wait: he hears it in any case, also when the board is stopped meanwhile.
struct Done<F: FnOnce(Result<Acquired, Refusal>)>(Option<F>);

impl<F: FnOnce(Result<Acquired, Refusal>)> Done<F> {
    fn tell(&mut self, acquired: Result<Acquired, Refusal>) {
        if let Some(done) = self.0.take() {
            done(acquired);
        }
    }
}

impl<F: FnOnce(Result<Acquired, Refusal>)> Drop for Done<F> {
    fn drop(&mut self) {
        self.tell(Err(stopped()));
    }
}

fn stopped() -> Refusal {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    Refusal::new(status, "stopped", "the board was stopped meanwhile")
}

/// A request that waits for a place. Cancelled, it leaves the queue.
#[pyclass(frozen, module = "paddler")]
pub(crate) struct Waiting(AbortHandle);

#[pymethods]
impl Waiting {
    fn cancel(&self) {
        self.0.abort();
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

    #[getter]
    fn board(&self, py: Python<'_>) -> Py<Board> {
        self.board.clone_ref(py)
    }

    #[pyo3(signature = (facts = None, *, model = None, prompt_tokens = None, weight = None, task = None, priority = None, tenant = None, session = None, stream = None, only = None, exclude = None, seed = None, explain = false))]
    #[allow(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn pick(
        &self,
        py: Python<'_>,
        facts: Option<&Bound<'_, Facts>>,
        model: Option<&str>,
        prompt_tokens: Option<u32>,
        weight: Option<u32>,
        task: Option<&str>,
        priority: Option<i32>,
        tenant: Option<&str>,
        session: Option<&str>,
        stream: Option<bool>,
        only: Option<&Bound<'_, PyAny>>,
        exclude: Option<&Bound<'_, PyAny>>,
        seed: Option<u64>,
        explain: bool,
    ) -> PyResult<Lease> {
        let asked = Asked {
            facts,
            model,
            prompt_tokens,
            weight,
            task,
            priority,
            tenant,
            session,
            stream,
            only,
            exclude,
        };
        let now: Moment = self.shared.refresh(py)?;
        let seed = self.next_seed(seed);
        let (view, only, except) = (asked.view(now, seed)?, asked.only()?, asked.exclude()?);
        let mut ask = Ask::new(&view, now, seed).except(&except);
        ask.only = only.as_deref();
        let snapshot = self.shared.published.load();
        let (reserved, why) = if explain {
            let mut why = Why::default();
            let reserved = self.reserve(py, &snapshot, &ask, &mut why)?;
            (reserved, Some(Explanation::of(&why, snapshot.tree())))
        } else {
            (self.reserve(py, &snapshot, &ask, &mut ())?, None)
        };
        match reserved {
            Ok(lease) => Ok(self
                .lease(&snapshot, lease, why)
                .expect("the snapshot that was picked from has the upstream")),
            Err(ending) => {
                let error = refuse::ending(py, &ending, view.model, (&snapshot, now));
                if let Some(why) = why {
                    error.value(py).setattr("explanation", why)?;
                }
                Err(error)
            }
        }
    }

    /// All that takes its time: `explain`, or `wait`, for which `done` is called from another thread, if it is given.
    #[pyo3(signature = (explain, done, timeout, facts, /, *, model = None, prompt_tokens = None, weight = None, task = None, priority = None, tenant = None, session = None, stream = None, only = None, exclude = None, seed = None))]
    #[allow(clippy::too_many_arguments, reason = "each is a keyword in Python")]
    fn _ask<'py>(
        slf: &Bound<'py, Self>,
        explain: bool,
        done: Option<Py<PyAny>>,
        timeout: Option<f64>,
        facts: Option<&Bound<'_, Facts>>,
        model: Option<&str>,
        prompt_tokens: Option<u32>,
        weight: Option<u32>,
        task: Option<&str>,
        priority: Option<i32>,
        tenant: Option<&str>,
        session: Option<&str>,
        stream: Option<bool>,
        only: Option<&Bound<'_, PyAny>>,
        exclude: Option<&Bound<'_, PyAny>>,
        seed: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let asked = Asked {
            facts,
            model,
            prompt_tokens,
            weight,
            task,
            priority,
            tenant,
            session,
            stream,
            only,
            exclude,
        };
        let (py, router) = (slf.py(), slf.get());
        if explain {
            return Ok(Bound::new(py, router.explained(py, &asked, seed)?)?.into_any());
        }
        let waits = (&asked, seed, timeout);
        match done {
            None => Ok(Bound::new(py, router.waited(py, waits)?)?.into_any()),
            Some(done) => {
                let own = slf.clone().unbind();
                let task =
                    router.wait_for(py, waits, move |acquired| Self::hand_over(&own, acquired, &done))?;
                Ok(Bound::new(py, Waiting(task))?.into_any())
            }
        }
    }

    /// How long a pick and its lease take without Python, in seconds, as the mean of so many.
    fn _native(&self, py: Python<'_>, picks: u32, model: &str, prompt_tokens: u32) -> PyResult<f64> {
        let now = self.shared.refresh(py)?;
        let snapshot = self.shared.published.load();
        let (clock, seed) = (Clock::new(), self.next_seed(None));
        let facts = CoreFacts::new().model(model).tokens(prompt_tokens).arrived(now);
        for pick in 0..picks {
            let ask = Ask::new(&facts, now, seed ^ u64::from(pick));
            if let Ok(lease) = with_scratch(|scratch| snapshot.reserve(&ask, scratch, &mut ())) {
                lease.complete();
            }
        }
        Ok(clock.now().since(Moment::ZERO).as_secs_f64() / f64::from(picks.max(1)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let board = self.board.bind(py).repr()?;
        Ok(format!("<paddler.Router over {board}>"))
    }
}
