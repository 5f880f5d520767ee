//! A loop that keeps statuses, and ways to wait for what it comes to.

use std::sync::Arc;
use std::time::Duration;

use paddler_core::Clock;
use paddler_core::request::Facts;
use paddler_core::schedule::{Ask, Scratch, Tree, trees};
use paddler_core::status::{
    Entry, FixedList, PollOptions, Published, Report, Snapshot, StatusBoard, StatusLoop, StatusSource,
};
use paddler_core::upstream::{Connect, Lease, UpstreamId, UpstreamSpec, http::HttpConnect};
use tokio::time::{sleep, timeout};

/// Longer than anything here takes: only what hangs meets it.
const HANG: Duration = Duration::from_secs(60);

pub(crate) struct Rig {
    pub(crate) statuses: StatusLoop,
    pub(crate) published: Published,
    pub(crate) clock: Clock,
}

pub(crate) fn spec(id: &str, url: &str) -> UpstreamSpec {
    UpstreamSpec::new(id, url).unwrap()
}

pub(crate) fn id(name: &str) -> UpstreamId {
    UpstreamId::new(name).unwrap()
}

/// Polls often enough for a test over real sockets.
pub(crate) fn quick() -> PollOptions {
    let mut options = PollOptions::default();
    options.interval = Duration::from_millis(20);
    options.max_backoff = Duration::from_millis(50);
    options
}

impl Rig {
    pub(crate) fn start(
        tree: Tree,
        sources: Vec<Box<dyn StatusSource>>,
        connect: Arc<dyn Connect>,
        poll: Option<PollOptions>,
    ) -> Self {
        Self::over(StatusBoard::new(tree), sources, connect, poll)
    }

    pub(crate) fn over(
        board: StatusBoard,
        sources: Vec<Box<dyn StatusSource>>,
        connect: Arc<dyn Connect>,
        poll: Option<PollOptions>,
    ) -> Self {
        crate::log::listen();
        let clock = Clock::new();
        let statuses = StatusLoop::start(board, sources, connect, poll, clock);
        let published = statuses.published();
        Self {
            statuses,
            published,
            clock,
        }
    }

    /// Polls these over real sockets.
    pub(crate) fn http(specs: impl IntoIterator<Item = UpstreamSpec>, poll: PollOptions) -> Self {
        let list = Box::new(FixedList::new(specs));
        Self::start(
            trees::gateway(),
            vec![list],
            Arc::new(HttpConnect::default()),
            Some(poll),
        )
    }

    /// Polls these over no network.
    pub(crate) fn net(
        specs: impl IntoIterator<Item = UpstreamSpec>,
        net: Arc<dyn Connect>,
        poll: PollOptions,
    ) -> Self {
        Self::start(
            trees::gateway(),
            vec![Box::new(FixedList::new(specs))],
            net,
            Some(poll),
        )
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.published.load_full()
    }

    /// Waits until something holds of the published state.
    pub(crate) async fn until(&self, what: &str, mut holds: impl FnMut(&Snapshot) -> bool) -> Arc<Snapshot> {
        let waiting = async {
            loop {
                let snapshot = self.snapshot();
                if holds(&snapshot) {
                    return snapshot;
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        let hung = |_| panic!("waited in vain for: {what}; {:#?}", self.snapshot().record());
        timeout(HANG, waiting).await.unwrap_or_else(hung)
    }

    /// Waits until the upstream has an entry of which something holds.
    pub(crate) async fn entry(
        &self,
        name: &str,
        what: &str,
        mut holds: impl FnMut(&Entry) -> bool,
    ) -> Arc<Entry> {
        let snapshot = self
            .until(what, |snapshot| {
                snapshot.find(name).is_some_and(|entry| holds(entry))
            })
            .await;
        snapshot.find(name).unwrap().clone()
    }

    /// Waits until the upstream reports something.
    pub(crate) async fn report(
        &self,
        name: &str,
        what: &str,
        mut holds: impl FnMut(&Report) -> bool,
    ) -> Report {
        let entry = self
            .entry(name, what, |entry| entry.report().is_some_and(&mut holds))
            .await;
        entry.report().unwrap().clone()
    }

    /// A lease for any model, if one is to be had.
    pub(crate) fn reserve(&self) -> Option<Lease> {
        let facts = Facts::new();
        let ask = Ask::new(&facts, self.clock.now(), 1);
        self.snapshot()
            .reserve(&ask, &mut Scratch::default(), &mut ())
            .ok()
    }
}
