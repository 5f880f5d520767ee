//! How does an agent follow its engine?

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::link::Link;
use super::said::Word;
use crate::clock::Clock;
use crate::forward::BoxError;
use crate::schedule::trees;
use crate::status::{Asker, Failure, PollOptions, Polled, Poller, Report, StatusBoard};
use crate::upstream::{Connect, Transport, UpstreamSpec};

/// What an agent tells, of whom, and to whom.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AgentOptions {
    /// What balancers are told that the upstream is. Its URL is where they send requests to; its id stays the same when the agent
    /// is started again. What names files, and extensions, is not told.
    pub upstream: UpstreamSpec,
    /// Where the agent asks how the engine is, with what key. From beside it, over loopback.
    pub engine: UpstreamSpec,
    /// The balancers: the URL of each one's management listener, with the key and the TLS that it wants.
    pub balancers: Vec<UpstreamSpec>,
    /// What people call it. Default: nothing.
    pub name: Option<String>,
    /// How often it speaks where nothing is new. Default 1 s: a balancer that hears nothing for three of these sends no more
    /// requests.
    pub beat: Duration,
    /// How the engine is asked. Default each 250 ms, and each second at least while it cannot be asked.
    pub poll: PollOptions,
    /// What chance comes from: how long it waits before it calls a balancer again that was not there. Default 0.
    pub seed: u64,
}

impl AgentOptions {
    /// An agent for the engine that listens where the upstream says, and these balancers.
    pub fn new(upstream: UpstreamSpec, balancers: impl IntoIterator<Item = UpstreamSpec>) -> Self {
        let poll = PollOptions {
            interval: Duration::from_millis(250),
            max_backoff: Duration::from_secs(1),
            ..PollOptions::default()
        };
        Self {
            engine: upstream.clone(),
            upstream,
            balancers: balancers.into_iter().collect(),
            name: None,
            beat: Duration::from_secs(1),
            poll,
            seed: 0,
        }
    }
}

/// An agent at work. Dropped, it is silent, and balancers wait for it in vain for a while; [`stop`](Self::stop) says good-bye.
///
/// ```
/// use std::sync::Arc;
/// use paddler_core::agent::{Agent, AgentOptions};
/// use paddler_core::upstream::{UpstreamSpec, http::HttpConnect};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let upstream = UpstreamSpec::new("gpu-1", "http://10.0.0.3:8080")?;
/// let balancer = UpstreamSpec::new("balancer", "http://127.0.0.1:8081")?;
/// let mut options = AgentOptions::new(upstream, [balancer]);
/// options.engine.url = "http://127.0.0.1:8080".to_owned();
/// let agent = Agent::start(options, Arc::new(HttpConnect::default()))?;
/// agent.stop(std::time::Duration::from_secs(2)).await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "dropped, it says nothing any more"]
pub struct Agent {
    stop: watch::Sender<bool>,
    links: JoinSet<()>,
    // Dropped, they end.
    _asking: JoinSet<()>,
}

/// How the engine is, as of the last time that it was asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Latest {
    /// `None`: it was not asked yet.
    answer: Option<Arc<Result<Report, Failure>>>,
    asked: Option<Instant>,
    /// Counts what is different from before.
    pub(super) changes: u64,
}

impl Latest {
    /// What is to be said of it now.
    pub(super) fn word(&self) -> Word {
        match self.answer.as_deref() {
            None => Word::Alive,
            Some(Ok(report)) => Word::Report {
                report: Box::new(report.clone()),
                age: self.asked.map_or(Duration::ZERO, |asked| asked.elapsed()),
            },
            Some(Err(failure)) => Word::Failed(failure.clone()),
        }
    }

    fn replace(&mut self, answer: Result<Report, Failure>, asked: Instant) {
        let same = match (self.answer.as_deref(), &answer) {
            (Some(Ok(before)), Ok(report)) => written(before) == written(report),
            (Some(Err(before)), Err(failure)) => before.kind == failure.kind,
            _ => false,
        };
        self.changes += u64::from(!same);
        self.answer = Some(Arc::new(answer));
        self.asked = Some(asked);
    }
}

fn written(report: &Report) -> Option<Vec<u8>> {
    serde_json::to_vec(report).ok()
}

impl Agent {
    /// Starts to ask the engine and to tell the balancers, on the current runtime. Connections are made by `connect`.
    ///
    /// # Errors
    /// Where the engine or a balancer cannot be connected to, whoever is there.
    ///
    /// # Panics
    /// When there is no tokio runtime.
    pub fn start(options: AgentOptions, connect: Arc<dyn Connect>) -> Result<Self, BoxError> {
        let clock = Clock::new();
        let (answers, polled) = mpsc::channel(16);
        let poller = poller(&options, &connect, clock, answers)?;
        let (latest, news) = watch::channel(Latest::default());
        let (stop, stopping) = watch::channel(false);
        let mut links = JoinSet::new();
        let instance: Arc<str> = format!("{:016x}", RandomState::new().hash_one(0u8)).into();
        for balancer in &options.balancers {
            let upstream = connect.connect(balancer)?;
            let link = Link::new(&options, instance.clone(), balancer, upstream);
            links.spawn(link.run(news.clone(), stopping.clone()));
        }
        let mut asking = JoinSet::new();
        asking.spawn(poller.run());
        asking.spawn(listen(polled, latest, clock));
        Ok(Self {
            stop,
            links,
            _asking: asking,
        })
    }

    /// Says good-bye to all balancers, which send no more requests then, and ends; in that time at most.
    pub async fn stop(mut self, within: Duration) {
        self.stop.send_replace(true);
        let ended = async { while self.links.join_next().await.is_some() {} };
        if timeout(within, ended).await.is_err() {
            tracing::warn!("a balancer has not heard the good-bye");
        }
    }
}

fn poller(
    options: &AgentOptions,
    connect: &Arc<dyn Connect>,
    clock: Clock,
    answers: mpsc::Sender<Polled>,
) -> Result<Poller, BoxError> {
    let mut engine = options.engine.clone();
    let upstream = connect.connect(&engine)?;
    engine.extensions.insert(Transport(upstream));
    let asker = Asker::new(Arc::new(engine), connect.clone()).ok_or("there is no way to the engine")?;
    Ok(Poller {
        id: options.engine.id.clone(),
        run: 0,
        asker,
        // Nothing of ours is counted here.
        published: StatusBoard::new(trees::balancer()).published(),
        clock,
        options: options.poll.clone(),
        permits: Arc::new(Semaphore::new(1)),
        answers,
    })
}

async fn listen(mut polled: mpsc::Receiver<Polled>, latest: watch::Sender<Latest>, clock: Clock) {
    while let Some(Polled { asked, answer, .. }) = polled.recv().await {
        let asked = clock.instant(asked);
        let answer = answer.map(|(report, _)| report);
        latest.send_modify(|latest| latest.replace(answer, asked));
    }
}
