//! Who keeps the statuses going?
//!
//! One task owns the board. Sources and polls send it what they know; it applies that, publishes at most every 10 ms,
//! starts and stops polls as upstreams come and go, and ends what has settled for too long. Nothing that a source or a
//! transport does ends it, not even a panic.

mod polls;
mod said;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use self::polls::Polls;
use self::said::Said;
use super::claims::{Claims, HOST, Rank};
use super::poll::{PollOptions, Polled};
use super::source::StatusSource;
use super::{Applied, Change, Published, StatusBoard, StatusEvent};
use crate::clock::Clock;
use crate::config::HealthRules;
use crate::schedule::Tree;
use crate::upstream::{Connect, UpstreamId};

/// How often what has a time limit is looked at: what settles, and who is left out.
const CHECK: Duration = Duration::from_millis(250);

/// How many events may wait for the board.
const EVENTS: usize = 1024;

/// Events that are applied before the board looks at its other work.
const BATCH: usize = 256;

/// Keeps the statuses going until it is dropped: hold it for as long as requests are to be routed.
#[derive(Debug)]
#[must_use = "dropped, nobody joins, leaves or is polled any more"]
pub struct StatusLoop {
    published: Published,
    commands: mpsc::Sender<Command>,
    task: JoinHandle<()>,
}

enum Command {
    Change(Change, oneshot::Sender<bool>),
    WhoTells(UpstreamId, oneshot::Sender<Option<&'static str>>),
    Tells(UpstreamId, &'static str, oneshot::Sender<bool>),
    SetHealth(HealthRules),
    SetPoll(Option<PollOptions>),
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
    /// Where several sources tell of one upstream, under one id or at one host and port, the word of the one that stands first
    /// counts. It leaves when none of them tells of it any more.
    ///
    /// `connect` makes the transport of each upstream that joins. With `poll`, each is polled over it; without, what is
    /// known is what the sources say.
    ///
    /// # Panics
    /// When there is no tokio runtime.
    pub fn start(
        mut board: StatusBoard,
        sources: Vec<Box<dyn StatusSource>>,
        connect: Arc<dyn Connect>,
        poll: Option<PollOptions>,
        clock: Clock,
    ) -> Self {
        board.set_polled(poll.is_some());
        let published = board.published();
        let (events, incoming) = mpsc::channel(EVENTS);
        let (answers, polled) = mpsc::channel(EVENTS);
        let (commands, orders) = mpsc::channel(64);
        let mut feeds = JoinSet::new();
        let names = sources.iter().map(|source| source.name()).collect();
        for (number, source) in sources.into_iter().enumerate() {
            feeds.spawn(feed(source, HOST + 1 + number, events.clone()));
        }
        let keeper = Keeper {
            polls: Polls::new(connect, poll, published.clone(), clock, answers),
            board,
            clock,
            said: Said::default(),
            claims: Claims::default(),
            names,
            feeds,
        };
        let task = tokio::spawn(keeper.run(incoming, polled, orders));
        Self {
            published,
            commands,
            task,
        }
    }

    /// Where readers find the state in force.
    pub fn published(&self) -> Published {
        self.published.clone()
    }

    /// Applies an event as if a source had said it, whose word counts before that of any other: who is removed is so until a
    /// source tells of him again.
    ///
    /// # Errors
    /// When the loop has ended.
    pub async fn apply(&self, event: StatusEvent) -> Result<(), LoopEnded> {
        self.tell(event.into()).await
    }

    /// Does what it is told, as [`StatusBoard::change`] does, and answers when it is done.
    ///
    /// # Errors
    /// When the loop has ended.
    pub async fn change(&self, change: Change) -> Result<bool, LoopEnded> {
        let (done, answer) = oneshot::channel();
        self.order(Command::Change(change, done)).await?;
        answer.await.map_err(|_| LoopEnded)
    }

    /// The same, for who does not wait until it is done.
    async fn tell(&self, change: Change) -> Result<(), LoopEnded> {
        let (done, _) = oneshot::channel();
        self.order(Command::Change(change, done)).await
    }

    async fn order(&self, order: Command) -> Result<(), LoopEnded> {
        self.commands.send(order).await.map_err(|_| LoopEnded)
    }

    /// Who tells of an upstream, by [name](StatusSource::name): the source whose word counts, or "host" for what was
    /// [applied](Self::apply). `None`: nobody.
    ///
    /// # Errors
    /// When the loop has ended.
    pub async fn who_tells(&self, id: UpstreamId) -> Result<Option<&'static str>, LoopEnded> {
        let (done, answer) = oneshot::channel();
        self.order(Command::WhoTells(id, done)).await?;
        answer.await.map_err(|_| LoopEnded)
    }

    /// Whether the source of this [name](StatusSource::name) tells of an upstream, whether or not its word counts: for who moves
    /// one from source to source, and takes it from the one when the other has it, so that it is never away.
    ///
    /// # Errors
    /// When the loop has ended.
    pub async fn is_told_by(&self, id: UpstreamId, source: &'static str) -> Result<bool, LoopEnded> {
        let (done, answer) = oneshot::channel();
        self.order(Command::Tells(id, source, done)).await?;
        answer.await.map_err(|_| LoopEnded)
    }

    /// Puts in force what was applied before, without the pause that publishes keep: for a host that has added an upstream
    /// and wants to pick it at once. Answers when it is in force.
    ///
    /// # Errors
    /// When the loop has ended.
    pub async fn publish(&self) -> Result<(), LoopEnded> {
        self.change(Change::Publish).await.map(drop)
    }

    /// Has other rules for upstreams that fail hold from now on.
    ///
    /// # Errors
    /// When the loop has ended.
    pub async fn set_health(&self, rules: HealthRules) -> Result<(), LoopEnded> {
        self.order(Command::SetHealth(rules)).await
    }

    /// Puts another tree in force.
    ///
    /// # Errors
    /// When the loop has ended.
    pub async fn set_tree(&self, tree: impl Into<Arc<Tree>>) -> Result<(), LoopEnded> {
        self.tell(Change::Tree(tree.into())).await
    }

    /// Polls in another way from now on, all anew; `None`: not at all. What is known stays known.
    ///
    /// # Errors
    /// When the loop has ended.
    pub async fn set_poll(&self, poll: Option<PollOptions>) -> Result<(), LoopEnded> {
        self.order(Command::SetPoll(poll)).await
    }

    /// Takes an upstream out of every pick at once, or lets it back in, as [`StatusBoard::set_draining`] does. Answers whether it
    /// is known.
    ///
    /// # Errors
    /// When the loop has ended.
    pub async fn set_draining(&self, id: UpstreamId, draining: bool) -> Result<bool, LoopEnded> {
        self.change(Change::Drain(id, draining)).await
    }
}

impl Drop for StatusLoop {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn feed(mut source: Box<dyn StatusSource>, rank: Rank, events: mpsc::Sender<(Rank, StatusEvent)>) {
    while let Some(event) = source.next().await {
        if events.send((rank, event)).await.is_err() {
            return;
        }
    }
}

struct Keeper {
    board: StatusBoard,
    polls: Polls,
    clock: Clock,
    said: Said,
    claims: Claims,
    /// Of the sources, in their order.
    names: Vec<&'static str>,
    /// The sources. Dropped, they end.
    feeds: JoinSet<()>,
}

impl Keeper {
    async fn run(
        mut self,
        mut events: mpsc::Receiver<(Rank, StatusEvent)>,
        mut answers: mpsc::Receiver<Polled>,
        mut orders: mpsc::Receiver<Command>,
    ) {
        let mut check = Instant::now() + CHECK;
        loop {
            let publish = self.board.publish_due();
            let wake = publish.map_or(check, |due| self.clock.instant(due).min(check));
            // A branch whose pattern does not match is out until something else happens: sources may all have ended.
            tokio::select! {
                Some(told) = events.recv() => {
                    self.told(told);
                    drain(&mut events, |told| self.told(told));
                }
                Some(polled) = answers.recv() => {
                    self.hear(polled);
                    drain(&mut answers, |polled| self.hear(polled));
                }
                order = orders.recv() => match order {
                    Some(order) => self.obey(order),
                    None => return,
                },
                Some(Err(error)) = self.feeds.join_next() => source_broke(&error),
                Some(ended) = self.polls.ended() => self.poll_ended(ended),
                () = sleep_until(wake) => {}
            }
            let now = self.clock.now();
            if self.board.publish_due().is_some_and(|due| due <= now) {
                self.publish();
            }
            if check <= Instant::now() {
                self.board.expire(now);
                check = Instant::now() + CHECK;
            }
        }
    }

    fn obey(&mut self, order: Command) {
        match order {
            Command::Change(change, done) => {
                let known = self.change(change);
                // Whoever asked may not want to know any more.
                done.send(known).ok();
            }
            Command::WhoTells(id, done) => {
                let name = |rank: Rank| {
                    rank.checked_sub(HOST + 1)
                        .map_or(Some("host"), |at| self.names.get(at).copied())
                };
                // Whoever asked may not want to know any more.
                done.send(self.claims.owner(&id).and_then(name)).ok();
            }
            Command::Tells(id, source, done) => {
                let named = self.names.iter().enumerate().filter(|(_, name)| **name == source);
                let tells = named
                    .map(|(at, _)| HOST + 1 + at)
                    .any(|rank| self.claims.tells(rank, &id));
                // Whoever asked may not want to know any more.
                done.send(tells).ok();
            }
            Command::SetHealth(rules) => self.board.set_health(rules),
            Command::SetPoll(poll) => {
                self.board.set_polled(poll.is_some());
                self.polls.begin_anew(poll);
            }
        }
    }

    /// As the board does it, but for what polls and sources have a part in.
    fn change(&mut self, change: Change) -> bool {
        match change {
            Change::Event(event) => self.told((HOST, *event)),
            Change::Publish if self.board.is_dirty() => self.publish(),
            Change::Publish => {}
            change => return self.board.change(change, self.clock.now()),
        }
        true
    }

    fn publish(&mut self) {
        self.board.publish(self.clock.now());
        self.polls.published();
    }

    fn hear(&mut self, polled: Polled) {
        if let Some(event) = self.polls.believe(polled) {
            self.apply(event);
        }
    }

    fn poll_ended(&mut self, ended: Result<(), JoinError>) {
        let panicked = ended.err().filter(JoinError::is_panic);
        if let Some(event) = panicked.and_then(|error| self.polls.panicked(&error)) {
            self.apply(event);
        }
    }

    /// What a source says, as far as its word counts.
    fn told(&mut self, (rank, event): (Rank, StatusEvent)) {
        match &event {
            StatusEvent::Upsert(_) | StatusEvent::Remove(_) => {
                for event in self.claims.merge(rank, event) {
                    self.apply(event);
                }
            }
            StatusEvent::Report { id, .. } | StatusEvent::Failed { id, .. } => {
                if self.claims.believes(rank, id) {
                    self.apply(event);
                }
            }
        }
    }

    fn apply(&mut self, event: StatusEvent) {
        let event = match event {
            StatusEvent::Upsert(spec) => match self.polls.follow(spec) {
                Some(spec) => StatusEvent::Upsert(spec),
                None => return,
            },
            event => event,
        };
        let news = self.said.news(&event);
        let applied = self.board.apply(event, self.clock.now());
        self.said.say(&applied, news);
        if let Applied::Left(id) | Applied::Full(id) = &applied {
            self.polls.leave(id);
        }
    }
}

/// Takes what is there, and no more than a batch.
fn drain<T>(from: &mut mpsc::Receiver<T>, mut take: impl FnMut(T)) {
    for _ in 0..BATCH {
        let Ok(next) = from.try_recv() else { return };
        take(next);
    }
}

fn source_broke(error: &JoinError) {
    if error.is_panic() {
        tracing::error!(%error, "a status source has panicked: what it said stays in force, and nothing more comes from it");
    }
}
