//! What runs in the background?
//!
//! One thread with a runtime of its own: the loop that keeps the statuses, the polls, and whoever hands out places to those
//! that wait. It takes the interpreter's lock only where the tree asks a function of Python's, or to hand over a place. What
//! is asked of it is done in the order in which it was asked.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
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
use tokio::sync::oneshot;

use crate::shared::stopped;

/// How often who waits for the thread looks for signals, such as Ctrl-C.
pub(crate) const SIGNALS: Duration = Duration::from_millis(50);

/// The stack of the thread, as large as that of most main threads: functions of Python's run on it.
const STACK: usize = 8 << 20;

/// How often this process was forked off, as far as its own past goes.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// All that run, to be ended before the interpreter is.
static ALL: Mutex<Vec<Weak<Running>>> = Mutex::new(Vec::new());

thread_local! {
    /// Whose thread this is, if it is one in the background.
    static OWN: RefCell<Option<Arc<Own>>> = const { RefCell::new(None) };
}

/// What a thread in the background knows of itself.
#[derive(Default)]
struct Own {
    stopping: AtomicBool,
}

/// In a child, the threads of its parent are not there.
#[pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Relaxed);
}

#[pyfunction]
pub(crate) fn stop_all(py: Python<'_>) -> PyResult<()> {
    let all = std::mem::take(&mut *ALL.lock().unwrap_or_else(PoisonError::into_inner));
    all.iter()
        .filter_map(Weak::upgrade)
        .try_for_each(|running| running.stop(py))
}

/// Whether this is a thread in the background, and is to end: it asks no function of Python's any more.
pub(crate) fn is_stopping_here() -> bool {
    OWN.with_borrow(|own| own.as_ref().is_some_and(|own| own.stopping.load(Relaxed)))
}

/// Whether this is a thread in the background.
pub(crate) fn is_background() -> bool {
    OWN.with_borrow(Option::is_some)
}

/// The thread, as long as it is to run.
struct Thread {
    stop: oneshot::Sender<()>,
    ended: Receiver<()>,
}

pub(crate) struct Running {
    thread: Mutex<Option<Thread>>,
    own: Arc<Own>,
    handle: Handle,
    statuses: StatusLoop,
    connect: HttpConnect,
    pub(crate) router: Router,
    forks: u64,
}

impl Running {
    /// Puts the board into the background, with its upstreams. The interpreter must not be held.
    pub(crate) fn start(
        board: StatusBoard,
        specs: impl IntoIterator<Item = UpstreamSpec>,
        poll: Option<PollOptions>,
        options: RouterOptions,
        clock: Clock,
    ) -> PyResult<Arc<Self>> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let connect = HttpConnect::default();
        let entered = handle.enter();
        let statuses = StatusLoop::start(board, vec![], Arc::new(connect.clone()), poll, clock);
        let router = Router::new(statuses.published(), clock, options);
        drop(entered);
        let (stop, stopping) = oneshot::channel();
        let (tell, ended) = channel();
        let own = Arc::new(Own::default());
        let of_thread = own.clone();
        std::thread::Builder::new()
            .name("paddler".into())
            .stack_size(STACK)
            .spawn(move || run(runtime, of_thread, stopping, tell))?;
        let running = Arc::new(Self {
            thread: Mutex::new(Some(Thread { stop, ended })),
            own,
            handle,
            statuses,
            connect,
            router,
            forks: FORKS.load(Relaxed),
        });
        for spec in specs {
            running.told(|running| async move { running.statuses.apply(StatusEvent::Upsert(spec)).await })?;
        }
        running.told(|running| async move { running.statuses.publish().await })?;
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

    /// Whether this is its own thread: a function is asked while the board decides.
    pub(crate) fn is_here(&self) -> bool {
        OWN.with_borrow(|own| own.as_ref().is_some_and(|own| Arc::ptr_eq(own, &self.own)))
    }

    /// Who would wait here would wait for himself.
    ///
    /// # Errors
    /// In its own thread.
    pub(crate) fn not_here(&self) -> PyResult<()> {
        if self.is_here() {
            let message = "a function that is asked for a request that waits holds up the board's own thread: \
                           it can pick, and cannot wait, nor tell or stop the board";
            return Err(PyRuntimeError::new_err(message));
        }
        Ok(())
    }

    /// Has the thread do something, and waits for it.
    fn told<T, F>(self: &Arc<Self>, what: impl FnOnce(Arc<Self>) -> F) -> PyResult<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, LoopEnded>> + Send + 'static,
    {
        self.not_here()?;
        let (tell, hear) = sync_channel(1);
        let what = what(self.clone());
        self.handle()?.spawn(async move {
            // Who asked waits.
            drop(tell.send(what.await));
        });
        match hear.recv() {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(LoopEnded)) | Err(_) => Err(stopped()),
        }
    }

    pub(crate) fn apply(self: &Arc<Self>, py: Python<'_>, event: StatusEvent) -> PyResult<()> {
        if let StatusEvent::Upsert(spec) = &event {
            let connected = self.connect.connect(spec).map(drop);
            connected.map_err(|error| PyValueError::new_err(format!("{}: {error}", spec.id)))?;
        }
        py.detach(|| self.told(|running| async move { running.statuses.apply(event).await }))
    }

    pub(crate) fn publish(self: &Arc<Self>, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.told(|running| async move { running.statuses.publish().await }))
    }

    pub(crate) fn set_tree(
        self: &Arc<Self>,
        py: Python<'_>,
        tree: Arc<paddler_core::schedule::Tree>,
    ) -> PyResult<()> {
        py.detach(|| self.told(|running| async move { running.statuses.set_tree(tree).await }))
    }

    pub(crate) fn drain(
        self: &Arc<Self>,
        py: Python<'_>,
        id: paddler_core::upstream::UpstreamId,
        draining: bool,
    ) -> PyResult<bool> {
        py.detach(|| self.told(|running| async move { running.statuses.set_draining(id, draining).await }))
    }

    /// Ends the thread, and waits until it has ended: for as long as the function of Python's takes that it asks just then.
    ///
    /// # Errors
    /// In its own thread, and when it is interrupted.
    pub(crate) fn stop(&self, py: Python<'_>) -> PyResult<()> {
        if self.check().is_err() {
            // There is no thread to wait for.
            self.forget();
            return Ok(());
        }
        self.not_here()?;
        let Some(ended) = self.end() else { return Ok(()) };
        let ended = Mutex::new(ended);
        let look = || {
            ended
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .recv_timeout(SIGNALS)
        };
        while let Err(RecvTimeoutError::Timeout) = py.detach(look) {
            py.check_signals()?;
        }
        Ok(())
    }

    fn thread(&self) -> Option<Thread> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Tells the thread to end.
    fn end(&self) -> Option<Receiver<()>> {
        let Thread { stop, ended } = self.thread()?;
        self.own.stopping.store(true, Relaxed);
        drop(stop);
        Some(ended)
    }

    fn forget(&self) {
        // What it would wake is the parent's.
        std::mem::forget(self.thread());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.check().is_ok() {
            // It must not be waited for: it may wait for the interpreter, which the one who drops this may hold.
            self.end();
        } else {
            self.forget();
        }
    }
}

/// The thread's own work. What is still under way at its end is dropped in it.
fn run(runtime: Runtime, own: Arc<Own>, stopping: oneshot::Receiver<()>, ended: Sender<()>) {
    OWN.set(Some(own));
    runtime.block_on(async move {
        // Ready as well when nobody is there to say it.
        stopping.await.ok();
    });
    // A name that is still being looked up would hold up the end for as long as that takes.
    runtime.shutdown_background();
    drop(ended);
}
