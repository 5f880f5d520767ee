//! Which agents speak, and what does it come to?
//!
//! Of each upstream one stream speaks, the newest that has told of it. All that is to be said of it is held here once, so what
//! waits for the board is bounded by the number of upstreams, whatever the agents do.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::beat::Beat;
use super::said::{Hello, Said, Word};
use crate::Moment;
use crate::status::{Failure, FailureKind, Published, Report, StatusEvent};
use crate::upstream::{SampleToken, UpstreamId, UpstreamSpec};

/// How long an upstream stays whose agent's stream has broken off, if it does not come back: connections break, and what is gone
/// is found out by the first request that fails.
const RETURN: Duration = Duration::from_secs(5);

/// A report is told again so often for as long as it holds, by its agent's beats: trees go by reports of the last seconds.
const HOLDS: Duration = Duration::from_secs(3);

/// Why a stream is not listened to any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// A newer stream speaks of the same upstream.
    Replaced,
    /// It has said nothing for too long.
    Silent,
    /// It has not said what the upstream is; or that was forgotten, since it had said nothing for too long.
    Unknown,
    /// There are as many agents as may be.
    Full,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replaced => "a newer stream speaks under this id: no two agents may have one",
            Self::Silent => "nothing was said for too long: begin again",
            Self::Unknown => {
                "nobody knows of which upstream this is: begin with a message that has `upstream`"
            }
            Self::Full => "there are as many agents as may be",
        })
    }
}

impl std::error::Error for Refused {}

/// A stream of an agent.
#[derive(Debug)]
pub(super) struct Stream {
    number: u64,
    agent: Arc<str>,
    /// Of which upstream it speaks, since it has said so.
    upstream: Option<UpstreamId>,
    /// Tells when it is not listened to any more.
    pub(super) ended: oneshot::Receiver<Refused>,
    end: Option<oneshot::Sender<Refused>>,
}

/// One upstream that an agent tells of.
#[derive(Debug)]
pub(super) struct AgentUpstream {
    pub(super) agent: Arc<str>,
    pub(super) name: Option<String>,
    pub(super) spec: UpstreamSpec,
    pub(super) heard: Instant,
    pub(super) stale: bool,
    /// How it said that it is, the last time that it said that.
    pub(super) report: Option<Report>,
    pub(super) failure: Option<Failure>,
    stream: u64,
    end: Option<oneshot::Sender<Refused>>,
    beat: Beat,
    /// When it leaves, since its stream has broken off.
    leaves: Option<Instant>,
    /// What was ours there at that report.
    sample: Option<SampleToken>,
    told: Instant,
    news: Option<News>,
}

/// What the board has not heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    Report,
    /// The report of before still holds.
    Still,
    Failed,
}

#[derive(Debug)]
pub(super) struct Registry {
    most: usize,
    published: Published,
    pub(super) known: HashMap<UpstreamId, AgentUpstream>,
    /// What the board has.
    told: HashMap<UpstreamId, UpstreamSpec>,
    changed: VecDeque<UpstreamId>,
    waiting: HashSet<UpstreamId>,
    streams: u64,
}

impl Registry {
    pub(super) fn new(most: usize, published: Published) -> Self {
        Self {
            most,
            published,
            known: HashMap::new(),
            told: HashMap::new(),
            changed: VecDeque::new(),
            waiting: HashSet::new(),
            streams: 0,
        }
    }

    /// A stream has begun. If its agent is known, it goes on with it.
    pub(super) fn open(&mut self, agent: Arc<str>) -> Stream {
        self.streams += 1;
        let (end, ended) = oneshot::channel();
        let mut stream = Stream {
            number: self.streams,
            agent,
            upstream: None,
            ended,
            end: Some(end),
        };
        let of_it = self.known.iter().find(|(_, known)| known.agent == stream.agent);
        if let Some((id, _)) = of_it {
            // It is followed once it has said something that can be read.
            stream.upstream = Some(id.clone());
        }
        stream
    }

    /// What a stream says.
    pub(super) fn hear(
        &mut self,
        stream: &mut Stream,
        said: Said,
        (at, now): (Instant, Moment),
    ) -> Result<(), Refused> {
        let Said { hello, word } = said;
        if let Some(hello) = hello
            && !self.introduce(stream, hello, at)?
        {
            return Ok(());
        }
        let id = stream.upstream.clone().ok_or(Refused::Unknown)?;
        let known = self.known.get_mut(&id).ok_or(Refused::Unknown)?;
        if known.stream < stream.number && known.agent == stream.agent {
            known.follow(stream);
        }
        if known.stream != stream.number {
            return Err(Refused::Replaced);
        }
        if at > known.heard {
            known.beat.seen(at - known.heard);
        }
        known.heard = at;
        known.leaves = None;
        let was_stale = std::mem::take(&mut known.stale);
        if was_stale {
            tracing::info!(upstream = %id, agent = %known.agent, "the agent speaks again");
        }
        match word {
            Word::Alive if !was_stale => return Ok(()),
            Word::Alive => known.news = known.holds(),
            Word::Report { report, age } => {
                let sample = self.published.load().sample(id.as_str(), now);
                known.sample = sample.map(|sample| sample.told(age));
                known.report = Some(*report);
                known.failure = None;
                known.told = at;
                known.news = Some(News::Report);
            }
            Word::Failed(failure) => {
                known.failure = Some(failure);
                known.news = Some(News::Failed);
            }
            Word::Bye => {
                tracing::info!(upstream = %id, agent = %known.agent, "the agent says good-bye");
                self.forget(&id, None);
                return Ok(());
            }
        }
        self.mark(id);
        Ok(())
    }

    /// Takes down of which upstream a stream speaks. False: another one does, which is newer.
    fn introduce(&mut self, stream: &mut Stream, hello: Hello, at: Instant) -> Result<bool, Refused> {
        let id = hello.spec.id.clone();
        if let Some(before) = stream.upstream.replace(id.clone()).filter(|before| *before != id) {
            if let Some(known) = self
                .known
                .get_mut(&before)
                .filter(|known| known.stream == stream.number)
            {
                stream.end = known.end.take();
            }
            self.close_one(&before, stream.number, Some(at));
        }
        let Some(known) = self.known.get_mut(&id) else {
            if self.known.len() >= self.most {
                return Err(Refused::Full);
            }
            tracing::info!(upstream = %id, agent = %stream.agent, name = hello.name, url = hello.spec.url, "an agent tells of an upstream");
            let known = AgentUpstream::new(stream, hello, at);
            self.known.insert(id.clone(), known);
            self.mark(id);
            return Ok(true);
        };
        if known.stream > stream.number && known.agent == stream.agent {
            return Err(Refused::Replaced);
        }
        // Two agents may speak of one upstream: one that was started again, and the one before that nobody has seen end.
        if known.stream > stream.number && known.leaves.is_none() && !known.stale {
            return Ok(false);
        }
        if known.agent != stream.agent {
            tracing::info!(upstream = %id, before = %known.agent, now = %stream.agent, "another agent tells of an upstream");
            known.agent = stream.agent.clone();
            // The one before is passed over, and not sent away: it would only come back at once.
            known.end = None;
        }
        if known.stream != stream.number {
            known.follow(stream);
        }
        known.name = hello.name;
        if let Beat::Said(_) = hello.beat {
            known.beat = hello.beat;
        }
        if known.spec.url != hello.spec.url {
            let (before, now) = (&known.spec.url, &hello.spec.url);
            tracing::warn!(upstream = %id, before, now, "an agent tells of another address; two with one id? give one another --id");
        }
        if !known.spec.same_as(&hello.spec) {
            known.spec = hello.spec;
            self.mark(id);
        }
        Ok(true)
    }

    /// A stream has ended; `broken`: without having come to its end, at this time.
    pub(super) fn close(&mut self, stream: &Stream, broken: Option<Instant>) {
        if let Some(id) = stream.upstream.clone() {
            self.close_one(&id, stream.number, broken);
        }
    }

    fn close_one(&mut self, id: &UpstreamId, stream: u64, broken: Option<Instant>) {
        let Some(known) = self.known.get_mut(id).filter(|known| known.stream == stream) else {
            return;
        };
        match broken {
            Some(at) => known.leaves = Some(at + known.beat.patience().0.min(RETURN)),
            None => {
                tracing::info!(upstream = %id, agent = %known.agent, "the agent has ended");
                self.forget(id, None);
            }
        }
    }

    fn forget(&mut self, id: &UpstreamId, why: Option<Refused>) {
        if let Some(known) = self.known.remove(id) {
            if let (Some(end), Some(why)) = (known.end, why) {
                // Whoever listened may have gone.
                end.send(why).ok();
            }
            self.mark(id.clone());
        }
    }

    /// Sees who has said nothing for too long, and whose word is to be told again.
    /// Answers whether there is news.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        let (mut gone, mut changed) = (Vec::new(), Vec::new());
        for (id, known) in &mut self.known {
            let (stale, left) = known.beat.deadlines(known.heard);
            if now >= left || known.leaves.is_some_and(|leaves| now >= leaves) {
                gone.push(id.clone());
            } else if now >= stale && !known.stale {
                known.stale = true;
                known.news = Some(News::Failed);
                let silent = known.beat.patience().0;
                tracing::warn!(upstream = %id, agent = %known.agent, ?silent, "the agent says nothing: its upstream gets no more requests");
                changed.push(id.clone());
            } else if !known.stale && known.told + HOLDS <= now && known.holds() == Some(News::Still) {
                known.told = now;
                known.news.get_or_insert(News::Still);
                changed.push(id.clone());
            }
        }
        let news = !gone.is_empty() || !changed.is_empty();
        for id in gone {
            tracing::warn!(upstream = %id, "the agent is gone: its upstream leaves");
            self.forget(&id, Some(Refused::Silent));
        }
        changed.into_iter().for_each(|id| self.mark(id));
        news
    }

    /// Whether anybody is known, so that time matters.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    fn mark(&mut self, id: UpstreamId) {
        if self.waiting.insert(id.clone()) {
            self.changed.push_back(id);
        }
    }

    /// What is to be told next.
    pub(super) fn next(&mut self, now: Moment) -> Option<StatusEvent> {
        while let Some(id) = self.changed.pop_front() {
            self.waiting.remove(&id);
            let Some(known) = self.known.get_mut(&id) else {
                if self.told.remove(&id).is_some() {
                    return Some(StatusEvent::Remove(id));
                }
                continue;
            };
            if !self.told.get(&id).is_some_and(|told| told.same_as(&known.spec)) {
                let spec = known.spec.clone();
                self.told.insert(id.clone(), spec.clone());
                // How it is comes after that it is.
                if known.news.is_some() && self.waiting.insert(id.clone()) {
                    self.changed.push_front(id);
                }
                return Some(StatusEvent::Upsert(spec));
            }
            let Some(news) = known.news.take() else { continue };
            let sample = match news {
                News::Still => known.still(&id, &self.published, now),
                _ => known.sample,
            };
            let failure = known.failure();
            return Some(match (&known.report, news) {
                (Some(report), News::Report | News::Still) => StatusEvent::Report {
                    id,
                    report: report.clone(),
                    sample,
                },
                _ => StatusEvent::Failed { id, failure },
            });
        }
        None
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> [usize; 4] {
        [
            self.known.len(),
            self.told.len(),
            self.changed.len(),
            self.waiting.len(),
        ]
    }
}

impl AgentUpstream {
    fn new(stream: &mut Stream, hello: Hello, at: Instant) -> Self {
        Self {
            agent: stream.agent.clone(),
            name: hello.name,
            spec: hello.spec,
            heard: at,
            stale: false,
            report: None,
            failure: None,
            stream: stream.number,
            end: stream.end.take(),
            beat: hello.beat,
            leaves: None,
            sample: None,
            told: at,
            news: None,
        }
    }

    /// Listens to this stream from now on, and no more to the one before.
    fn follow(&mut self, stream: &mut Stream) {
        self.stream = stream.number;
        self.leaves = None;
        if let Some(before) = std::mem::replace(&mut self.end, stream.end.take()) {
            // Whoever listened may have gone.
            before.send(Refused::Replaced).ok();
        }
    }

    /// What there is to be told again.
    fn holds(&self) -> Option<News> {
        match (&self.failure, &self.report) {
            (None, Some(_)) => Some(News::Still),
            (Some(_), _) => Some(News::Failed),
            (None, None) => None,
        }
    }

    /// What was ours at the last report, if it is told again now: nothing, where it had just joined with it.
    fn still(&mut self, id: &UpstreamId, published: &Published, now: Moment) -> Option<SampleToken> {
        let first = || {
            published
                .load()
                .sample(id.as_str(), now)
                .map(SampleToken::of_nothing)
        };
        self.sample = self.sample.or_else(first);
        self.sample.map(|sample| sample.still(now))
    }

    fn failure(&self) -> Failure {
        if self.stale {
            let silent = format!("its agent has said nothing for {:?}", self.beat.patience().0);
            return Failure::new(FailureKind::Silent, silent);
        }
        let unknown = || Failure::new(FailureKind::Unreadable, "its agent does not say");
        self.failure.clone().unwrap_or_else(unknown)
    }
}
