//! Who keeps the statuses going?
//!
//! One task owns the board. Sources and polls send it events; it applies them, publishes at most every 10 ms, starts
//! and stops polls as upstreams come and go, and ends what has settled for too long.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::poll::{PollOptions, Poller};
use super::source::StatusSource;
use super::{Applied, Published, StatusBoard, StatusEvent};
use crate::clock::Clock;
use crate::schedule::Tree;
use crate::upstream::{Connect, Transport, UpstreamId, UpstreamSpec};

/// How often what settles is looked at.
const SETTLE_CHECK: Duration = Duration::from_millis(250);

/// How many events may wait for the board.
const EVENTS: usize = 1024;

/// Events that are applied before the board looks at its other work.
const BATCH: usize = 256;

/// Keeps the statuses going until it is dropped.
#[derive(Debug)]
pub struct StatusLoop {
    published: Published,
    commands: mpsc::Sender<Command>,
    task: JoinHandle<()>,
}

enum Command {
    Apply(StatusEvent),
    SetTree(Tree),
    Drain { id: UpstreamId, draining: bool, done: oneshot::Sender<bool> },
}

/// The loop has ended: its runtime has shut down, or it has panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopEnded;

impl fmt::Display for LoopEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the loop that keeps the statuses has ended")
    }
}

impl std::error::Error for LoopEnded {}

impl StatusLoop {
    /// Starts the loop on the current runtime.
    ///
    /// `connect` makes the transport of each upstream that joins. With `poll`, each is polled over it; without, what is
    /// known is what the sources say.
    ///
    /// # Panics
    /// When there is no tokio runtime.
    pub fn start(
        board: StatusBoard,
        sources: Vec<Box<dyn StatusSource>>,
        connect: Arc<dyn Connect>,
        poll: Option<PollOptions>,
        clock: Clock,
    ) -> Self {
        let published = board.published();
        let (events, incoming) = mpsc::channel(EVENTS);
        let (commands, orders) = mpsc::channel(64);
        let mut feeds = JoinSet::new();
        for source in sources {
            feeds.spawn(feed(source, events.clone()));
        }
        let permits = Arc::new(Semaphore::new(poll.as_ref().map_or(1, |poll| poll.concurrency.max(1))));
        let polls = Polls { connect, options: poll, published: board.published(), clock, permits, events, running: HashMap::new() };
        let keeper = Keeper { board, polls, clock, _feeds: feeds };
        Self { published, commands, task: tokio::spawn(keeper.run(incoming, orders)) }
    }

    /// Where readers find the state in force.
    pub fn published(&self) -> Published {
        self.published.clone()
    }

    /// Applies an event as if a source had said it.
    ///
    /// # Errors
    /// When the loop has ended.
    pub async fn apply(&self, event: StatusEvent) -> Result<(), LoopEnded> {
        self.commands.send(Command::Apply(event)).await.map_err(|_| LoopEnded)
    }

    /// Puts another tree in force.
    ///
    /// # Errors
    /// When the loop has ended.
    pub async fn set_tree(&self, tree: Tree) -> Result<(), LoopEnded> {
        self.commands.send(Command::SetTree(tree)).await.map_err(|_| LoopEnded)
    }

    /// Takes an upstream out of every pick at once, or lets it back in. Answers whether it is known.
    ///
    /// # Errors
    /// When the loop has ended.
    pub async fn set_draining(&self, id: UpstreamId, draining: bool) -> Result<bool, LoopEnded> {
        let (done, answer) = oneshot::channel();
        self.commands.send(Command::Drain { id, draining, done }).await.map_err(|_| LoopEnded)?;
        answer.await.map_err(|_| LoopEnded)
    }
}

impl Drop for StatusLoop {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn feed(mut source: Box<dyn StatusSource>, events: mpsc::Sender<StatusEvent>) {
    while let Some(event) = source.next().await {
        if events.send(event).await.is_err() {
            return;
        }
    }
}

struct Keeper {
    board: StatusBoard,
    polls: Polls,
    clock: Clock,
    // Dropped, they end.
    _feeds: JoinSet<()>,
}

impl Keeper {
    async fn run(mut self, mut events: mpsc::Receiver<StatusEvent>, mut orders: mpsc::Receiver<Command>) {
        let mut settle_check = Instant::now() + SETTLE_CHECK;
        loop {
            let publish = self.board.publish_due().map_or(settle_check, |due| self.clock.instant(due));
            tokio::select! {
                // The loop itself holds a sender, so this never ends.
                Some(event) = events.recv() => {
                    self.apply(event);
                    for _ in 0..BATCH {
                        let Ok(event) = events.try_recv() else { break };
                        self.apply(event);
                    }
                }
                order = orders.recv() => match order {
                    Some(order) => self.obey(order),
                    None => return,
                },
                () = sleep_until(publish.min(settle_check)) => {}
            }
            let now = self.clock.now();
            if self.board.publish_due().is_some_and(|due| due <= now) {
                self.board.publish(now);
            }
            if settle_check <= Instant::now() {
                self.board.expire(now);
                settle_check = Instant::now() + SETTLE_CHECK;
            }
        }
    }

    fn obey(&mut self, order: Command) {
        match order {
            Command::Apply(event) => self.apply(event),
            Command::SetTree(tree) => self.board.set_tree(tree),
            Command::Drain { id, draining, done } => {
                let known = self.board.set_draining(id.as_str(), draining);
                // Whoever asked may not want to know any more.
                done.send(known).ok();
            }
        }
    }

    fn apply(&mut self, event: StatusEvent) {
        let event = match event {
            StatusEvent::Upsert(spec) => match self.polls.connected(spec) {
                Some(spec) => StatusEvent::Upsert(spec),
                None => return,
            },
            event => event,
        };
        let failure = match &event {
            StatusEvent::Failed { failure, .. } => Some(failure.clone()),
            _ => None,
        };
        let spec = match &event {
            StatusEvent::Upsert(spec) => Some(spec.clone()),
            _ => None,
        };
        let applied = self.board.apply(event, self.clock.now());
        say(&applied, failure.as_ref());
        match (applied, spec) {
            (Applied::Joined(_) | Applied::Changed(_), Some(spec)) => {
                // A poll takes its sample from the published state, so the upstream has to stand there first.
                self.board.publish(self.clock.now());
                self.polls.start(&spec);
            }
            (Applied::Left(id), _) => self.polls.stop(&id),
            _ => {}
        }
    }
}

/// Says once what an operator would want to know.
fn say(applied: &Applied, failure: Option<&super::Failure>) {
    match applied {
        Applied::Joined(id) => tracing::info!(upstream = %id, "upstream joined"),
        Applied::Changed(id) => tracing::info!(upstream = %id, "upstream changed"),
        Applied::Left(id) => tracing::info!(upstream = %id, "upstream left"),
        Applied::Reported { id, degraded } => {
            for one in degraded {
                let (signal, expected, found) = (one.signal.as_str(), &one.expected, &one.found);
                tracing::warn!(upstream = %id, signal, %expected, %found, "a signal is missing: it counts as unknown");
            }
        }
        // The first failure in a row is news, the rest is in the metrics.
        Applied::Failed { id, failures: 1 } => {
            let error = failure.map(ToString::to_string).unwrap_or_default();
            tracing::warn!(upstream = %id, %error, "upstream cannot be asked how it is");
        }
        Applied::Failed { .. } | Applied::Ignored(_) => {}
    }
}

/// The polls that are under way.
struct Polls {
    connect: Arc<dyn Connect>,
    options: Option<PollOptions>,
    published: Published,
    clock: Clock,
    permits: Arc<Semaphore>,
    events: mpsc::Sender<StatusEvent>,
    running: HashMap<UpstreamId, AbortHandle>,
}

impl Polls {
    /// The spec with its transport; a spec that brings one keeps it.
    fn connected(&self, mut spec: UpstreamSpec) -> Option<UpstreamSpec> {
        if spec.extensions.get::<Transport>().is_none() {
            match self.connect.connect(&spec) {
                Ok(upstream) => spec.extensions.insert(Transport(upstream)),
                Err(error) => {
                    tracing::error!(upstream = %spec.id, %error, "upstream left out");
                    return None;
                }
            }
        }
        Some(spec)
    }

    fn start(&mut self, spec: &UpstreamSpec) {
        self.stop(&spec.id);
        let (Some(options), Some(transport)) = (&self.options, spec.extensions.get::<Transport>()) else { return };
        let poller = Poller {
            id: spec.id.clone(),
            engine: spec.engine,
            upstream: transport.0.clone(),
            published: self.published.clone(),
            clock: self.clock,
            options: options.clone(),
            permits: self.permits.clone(),
            events: self.events.clone(),
        };
        self.running.insert(spec.id.clone(), tokio::spawn(poller.run()).abort_handle());
    }

    fn stop(&mut self, id: &UpstreamId) {
        if let Some(poll) = self.running.remove(id) {
            poll.abort();
        }
    }
}

impl Drop for Polls {
    fn drop(&mut self) {
        self.running.values().for_each(AbortHandle::abort);
    }
}
