//! How does a host without a runtime have statuses kept, and requests wait?
//!
//! By a thread of its own, with a runtime: the loop that keeps the statuses, the polls, and whoever hands out places. The host
//! calls from any of its threads, and blocks for as long as it takes to be heard. What is told is done in that order.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::{BoxError, Router, RouterOptions};
use crate::Clock;
use crate::status::{Change, PollOptions, StatusBoard, StatusEvent, StatusLoop};
#[cfg(feature = "tls")]
use crate::upstream::Tls;
use crate::upstream::http::HttpConnect;
#[cfg(feature = "tls")]
use crate::upstream::http::check_tls;
use crate::upstream::{Connect as _, Transport, UpstreamId, UpstreamSpec};

/// The stack of the thread, as large as that of most main threads: the host's filters and costs run on it.
const STACK: usize = 8 << 20;

thread_local! {
    /// Whether this thread is to end, if it is one in the background.
    static STOPPING: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// A board that a thread keeps, and the router over it. Dropped, the thread ends, and nobody waits for that.
///
/// ```
/// use paddler_core::Clock;
/// use paddler_core::forward::{Background, RouterOptions};
/// use paddler_core::queue::Tried;
/// use paddler_core::request::{Facts, RequestFacts};
/// use paddler_core::schedule::trees;
/// use paddler_core::status::{StatusBoard, StatusEvent};
/// use paddler_core::upstream::UpstreamSpec;
///
/// let (clock, board) = (Clock::new(), StatusBoard::new(trees::balancer()));
/// let background = Background::start(board, None, RouterOptions::default(), clock)?;
/// background.tell(StatusEvent::Upsert(UpstreamSpec::new("gpu-1", "http://127.0.0.1:8080")?).into())?;
///
/// let (router, (tell, told)) = (background.router().clone(), std::sync::mpsc::channel());
/// let facts = RequestFacts::from(Facts::new().arrived(clock.now()));
/// background.spawn(async move { tell.send(router.acquire(&facts, &Tried::default()).await) });
/// assert_eq!(told.recv()?.unwrap().spec.url, "http://127.0.0.1:8080");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Background {
    thread: Thread,
    statuses: Arc<StatusLoop>,
    connect: HttpConnect,
    router: Router,
}

/// The thread and its runtime.
struct Thread {
    /// Dropped, it tells the thread to end.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    end: ThreadEnd,
    id: ThreadId,
    stopping: Arc<AtomicBool>,
    handle: Handle,
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background")
            .field("statuses", &self.statuses)
            .finish_non_exhaustive()
    }
}

/// Why a board in the background was not told.
#[derive(Debug)]
#[non_exhaustive]
pub enum Untold {
    /// Its thread has ended.
    Ended,
    /// This is its own thread, which would wait for itself.
    Here,
    /// There is no way to the upstream, such as a certificate that cannot be read.
    NoWay(UpstreamId, BoxError),
    /// There is no thread or no runtime to be had.
    NoThread(io::Error),
}

impl fmt::Display for Untold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the thread that keeps the board has ended"),
            Self::Here => f.write_str("the thread that keeps the board cannot wait for itself"),
            Self::NoWay(id, error) => write!(f, "{id}: {error}"),
            Self::NoThread(error) => write!(f, "no thread can keep the board: {error}"),
        }
    }
}

impl Error for Untold {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NoWay(_, error) => Some(&**error),
            Self::NoThread(error) => Some(error),
            Self::Ended | Self::Here => None,
        }
    }
}

/// A board that no thread keeps, as it was, and why.
#[derive(Debug)]
#[non_exhaustive]
pub struct NotStarted {
    /// The board.
    pub board: Box<StatusBoard>,
    /// Why.
    pub error: Untold,
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for NotStarted {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

impl Background {
    /// Has a thread keep the board from now on, with the upstreams that it has. With `poll`, each is polled.
    ///
    /// # Errors
    /// [`NotStarted`], with the board: when there is no way to one of the upstreams, or no thread or no runtime to be had.
    pub fn start(
        mut board: StatusBoard,
        poll: Option<PollOptions>,
        options: RouterOptions,
        clock: Clock,
    ) -> Result<Self, NotStarted> {
        let connect = HttpConnect::default();
        let known = board.publish(clock.now());
        let specs = || known.iter().map(|(_, entry)| &**entry.spec());
        let begun = specs().try_for_each(|spec| find_way(&connect, spec));
        let begun = begun.and_then(|()| Thread::spawn().map_err(Untold::NoThread));
        let thread = match begun {
            Ok(thread) => thread,
            Err(error) => {
                let board = Box::new(board);
                return Err(NotStarted { board, error });
            }
        };
        let entered = thread.handle.enter();
        let statuses = StatusLoop::start(board, vec![], Arc::new(connect.clone()), poll, clock);
        let router = Router::new(statuses.published(), clock, options);
        drop(entered);
        let background = Self {
            thread,
            statuses: Arc::new(statuses),
            connect,
            router,
        };
        let again = specs().map(|spec| StatusEvent::Upsert(spec.clone()).into());
        for change in again.chain([Change::Publish]) {
            // Whoever tells it next hears of it if it has ended.
            background.say(change).wait(Duration::MAX);
        }
        Ok(background)
    }

    /// Where requests get their places, by futures that are to be [spawned](Self::spawn) here.
    pub fn router(&self) -> &Router {
        &self.router
    }

    /// Has the thread do this, which must not block.
    pub fn spawn(&self, task: impl Future<Output: Send + 'static> + Send + 'static) -> AbortHandle {
        self.thread.handle.spawn(task).abort_handle()
    }

    /// Tells the board, and blocks until it has heard. Says whether the upstream that is to be drained is known.
    ///
    /// # Errors
    /// [`Untold`]: nothing was changed.
    pub fn tell(&self, change: Change) -> Result<bool, Untold> {
        self.begin_to_tell(change)?
            .wait(Duration::MAX)
            .unwrap_or(Err(Untold::Ended))
    }

    /// The same, for a host that looks after something else while it is not heard, such as signals.
    ///
    /// # Errors
    /// [`Untold`], where that is known at once.
    pub fn begin_to_tell(&self, change: Change) -> Result<Telling, Untold> {
        if self.is_here() {
            return Err(Untold::Here);
        }
        if let Change::Event(event) = &change
            && let StatusEvent::Upsert(spec) = &**event
        {
            find_way(&self.connect, spec)?;
        }
        Ok(self.say(change))
    }

    fn say(&self, change: Change) -> Telling {
        let (tell, hear) = sync_channel(1);
        let statuses = self.statuses.clone();
        self.spawn(async move {
            // Nobody hears it who has gone meanwhile.
            tell.send(statuses.change(change).await.map_err(|_| Untold::Ended))
                .ok();
        });
        Telling(hear)
    }

    /// Whether this is its own thread: the host is asked while the board decides.
    pub fn is_here(&self) -> bool {
        std::thread::current().id() == self.thread.id
    }

    /// Whether this is the thread of any board in the background.
    pub fn is_any_here() -> bool {
        STOPPING.with_borrow(Option::is_some)
    }

    /// Whether this is such a thread and is to end: it should not begin anything that takes its time.
    pub fn is_stopping_here() -> bool {
        STOPPING.with_borrow(|stopping| stopping.as_ref().is_some_and(|stopping| stopping.load(Relaxed)))
    }

    /// Tells the thread to end, if nobody has yet. Who waits for a place does so in vain.
    pub fn stop(&self) {
        self.thread.stopping.store(true, Relaxed);
        drop(self.stopper());
    }

    /// The thread's end, to be waited for by whoever stops it, and after that.
    pub fn end(&self) -> ThreadEnd {
        self.thread.end.clone()
    }

    /// Forgets the thread, which is not there: in a process that was forked off after the start. To stop it, or its loop, takes
    /// locks of its runtime, and one that it held at the fork is never given back.
    pub fn abandon(&self) {
        std::mem::forget(self.stopper());
        std::mem::forget(self.statuses.clone());
        std::mem::forget(self.router.clone());
    }

    fn stopper(&self) -> Option<oneshot::Sender<()>> {
        self.thread
            .stop
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// Makes sure that there is a way to an upstream, as far as that is known without a connection.
fn find_way(connect: &HttpConnect, spec: &UpstreamSpec) -> Result<(), Untold> {
    if spec.extensions.get::<Transport>().is_some() {
        return Ok(());
    }
    let no_way = |error| Untold::NoWay(spec.id.clone(), error);
    connect.connect(spec).map_err(no_way)?;
    #[cfg(feature = "tls")]
    if spec.speaks_tls() && spec.protocol.tls != Tls::default() {
        check_tls(&spec.protocol.tls).map_err(|fault| no_way(fault.into()))?;
    }
    Ok(())
}

impl Thread {
    fn spawn() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let (end, stopping) = (ThreadEnd::default(), Arc::new(AtomicBool::new(false)));
        let (ends, of_thread) = (Ends(end.clone()), stopping.clone());
        let thread = std::thread::Builder::new()
            .name("paddler".into())
            .stack_size(STACK)
            .spawn(move || run(runtime, of_thread, stopped, ends))?;
        Ok(Self {
            stop: Mutex::new(Some(stop)),
            end,
            id: thread.thread().id(),
            stopping,
            handle,
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Not waited for: it may wait for what the one who drops this holds.
        self.stop();
    }
}

/// A change that a board is being told. It is made whether or not somebody waits for it.
#[derive(Debug)]
pub struct Telling(Receiver<Result<bool, Untold>>);

impl Telling {
    /// Blocks until the board has heard, for this long at most: then `None`.
    pub fn wait(&mut self, at_most: Duration) -> Option<Result<bool, Untold>> {
        match self.0.recv_timeout(at_most) {
            Ok(heard) => Some(heard),
            Err(RecvTimeoutError::Disconnected) => Some(Err(Untold::Ended)),
            Err(RecvTimeoutError::Timeout) => None,
        }
    }
}

/// The end of a thread in the background. Any number may wait for it.
#[derive(Debug, Clone, Default)]
pub struct ThreadEnd(Arc<(Mutex<bool>, Condvar)>);

impl ThreadEnd {
    /// Blocks until the thread has ended, for this long at most. Says whether it has.
    pub fn wait(&self, at_most: Duration) -> bool {
        let (ended, told) = &*self.0;
        let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = told.wait_timeout_while(ended, at_most, |ended| !*ended);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Dropped at the end, also by a panic.
struct Ends(ThreadEnd);

impl Drop for Ends {
    fn drop(&mut self) {
        let (ended, told) = &*self.0.0;
        *ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        told.notify_all();
    }
}

/// The thread's own work. What is still under way at its end is dropped in it.
fn run(runtime: Runtime, stopping: Arc<AtomicBool>, stopped: oneshot::Receiver<()>, _ends: Ends) {
    STOPPING.set(Some(stopping));
    runtime.block_on(async move {
        // Ready as well when nobody is there to say it.
        stopped.await.ok();
    });
    // A name that is still being looked up would hold up the end for as long as that takes.
    runtime.shutdown_background();
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::queue::Tried;
    use crate::request::{Facts, RequestFacts};
    use crate::schedule::{Node, Signals, Tree, filter_fn, trees};
    use crate::upstream::Tls;

    const HANG: Duration = Duration::from_secs(60);

    fn upsert(id: &str) -> Change {
        let spec = UpstreamSpec::new(id, "http://127.0.0.1:1").unwrap();
        StatusEvent::Upsert(spec.max_in_flight(1)).into()
    }

    #[test]
    fn what_is_told_is_done_in_order_and_who_waits_hears_of_the_end() {
        let clock = Clock::new();
        let mut board = StatusBoard::new(trees::balancer());
        assert!(board.change(upsert("a"), clock.now()));
        let background = Background::start(board, None, RouterOptions::default(), clock).unwrap();
        assert!(background.tell(upsert("b")).unwrap());
        assert!(background.tell(Change::Publish).unwrap());
        let drain = |id| background.tell(Change::Drain(UpstreamId::new(id).unwrap(), true));
        assert!(drain("a").unwrap() && !drain("z").unwrap());

        let facts = RequestFacts::from(Facts::new().arrived(clock.now()));
        let (tell, told) = channel();
        let acquire = || {
            let (router, facts, tell) = (background.router().clone(), facts.clone(), tell.clone());
            background.spawn(async move { tell.send(router.acquire(&facts, &Tried::default()).await) })
        };
        acquire();
        let first = told.recv_timeout(HANG).unwrap().unwrap();
        assert_eq!(first.lease.upstream().as_str(), "b");
        acquire();
        for _ in 0..2 {
            background.stop();
            assert!(background.end().wait(HANG), "who stops it again waits as well");
        }
        drop(tell);
        assert!(told.recv_timeout(HANG).is_err(), "the second waited in vain");
        assert!(matches!(drain("b"), Err(Untold::Ended)));
    }

    #[test]
    fn a_board_that_is_not_started_is_given_back_and_can_be_once_there_is_a_way_to_each() {
        let clock = Clock::new();
        let mut board = StatusBoard::new(trees::balancer());
        let mut lost = UpstreamSpec::new("lost", "https://127.0.0.1:1").unwrap();
        lost.protocol.tls = Tls {
            ca: Some("/no/such/ca".into()),
            ..Tls::default()
        };
        let lost = Change::from(StatusEvent::Upsert(lost));
        board.change(lost.clone(), clock.now());
        board.change(upsert("a"), clock.now());
        let start = |board| Background::start(board, None, RouterOptions::default(), clock);
        let NotStarted { mut board, error } = start(board).unwrap_err();
        let no_way_to_it = |error: &Untold| matches!(error, Untold::NoWay(id, _) if id.as_str() == "lost");
        assert!(no_way_to_it(&error) && error.source().is_some(), "{error}");
        assert!(error.to_string().starts_with("lost: "), "{error}");

        board.change(
            StatusEvent::Remove(UpstreamId::new("lost").unwrap()).into(),
            clock.now(),
        );
        let background = start(*board).unwrap();
        assert_eq!(background.statuses.published().load().len(), 1);
        assert!(
            no_way_to_it(&background.tell(lost).unwrap_err()),
            "as at the start"
        );
    }

    #[test]
    fn what_is_abandoned_touches_nothing_of_its_thread() {
        let board = StatusBoard::new(trees::balancer());
        let background = Background::start(board, None, RouterOptions::default(), Clock::new()).unwrap();
        let (statuses, stopping) = (
            Arc::downgrade(&background.statuses),
            background.thread.stopping.clone(),
        );
        let end = background.end();
        background.abandon();
        drop(background);
        assert!(statuses.upgrade().is_some(), "its loop is not aborted");
        assert!(stopping.load(Relaxed) && !end.wait(Duration::ZERO));
    }

    #[test]
    fn its_own_thread_cannot_tell_it_and_knows_that_it_is_to_end() {
        let clock = Clock::new();
        let (tell, told) = channel();
        let (go_on, wait) = sync_channel::<()>(0);
        let wait = Mutex::new(wait);
        let judge = filter_fn("judge", move |_, _| {
            tell.send((Background::is_any_here(), Background::is_stopping_here()))
                .unwrap();
            wait.lock().unwrap().recv().ok();
            tell.send((Background::is_any_here(), Background::is_stopping_here()))
                .unwrap();
            true
        });
        let tree = Tree::new(
            Signals::Corrected,
            Node::list([Node::require(judge), Node::random()]),
        );
        let mut board = StatusBoard::new(tree.unwrap());
        board.change(upsert("a"), clock.now());
        let background = Background::start(board, None, RouterOptions::default(), clock).unwrap();
        let (router, facts) = (background.router().clone(), RequestFacts::from(Facts::new()));
        background.spawn(async move { router.acquire(&facts, &Tried::default()).await.map(drop) });
        assert_eq!(told.recv_timeout(HANG), Ok((true, false)));
        let mut telling = background.begin_to_tell(Change::Publish).unwrap();
        assert!(telling.wait(Duration::ZERO).is_none(), "it is in the filter");
        background.stop();
        assert!(!background.end().wait(Duration::ZERO), "it is in the filter");
        drop(go_on);
        assert_eq!(told.recv_timeout(HANG), Ok((true, true)));
        assert!(background.end().wait(HANG));
        assert!(!Background::is_any_here() && !Background::is_stopping_here());
        assert!(!background.is_here());
    }
}
