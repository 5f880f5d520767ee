//! Which agents speak, and what does it come to?
//!
//! Of each upstream one agent speaks, the one that lives, on its newest stream; of each engine the upstream that was told first. All
//! that is to be said of it is held here once, so what waits for the board is bounded by the number of upstreams, whatever the
//! agents do.

mod twins;
mod upstream;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

pub(super) use self::upstream::AgentUpstream;
use super::beat::Beat;
use super::said::{Hello, Said, Word};
use crate::Moment;
use crate::status::{Published, StatusEvent};
use crate::upstream::{UpstreamId, UpstreamSpec};

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
    /// Another agent speaks under this id, and lives.
    Taken,
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
            Self::Replaced => "a newer stream speaks under this id",
            Self::Taken => {
                "another agent speaks under this id, and no two may have one: give one of them another, with --id"
            }
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

/// A host and a port, and the path there.
type Place = String;

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
    /// Under which ids an engine is told of. The first one counts.
    places: HashMap<Place, Vec<UpstreamId>>,
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
            places: HashMap::new(),
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
            if known.instance.is_some() && known.lives() {
                // Whether this is the same agent its first message would say.
                return Err(Refused::Unknown);
            }
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
            self.rank(&id);
        }
        self.take_down(&id, word, was_stale, (at, now));
        Ok(())
    }

    /// How an upstream is, by its agent.
    fn take_down(&mut self, id: &UpstreamId, word: Word, was_stale: bool, (at, now): (Instant, Moment)) {
        let Some(known) = self.known.get_mut(id) else {
            return;
        };
        match word {
            Word::Alive if !was_stale => return,
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
                return self.forget(id, None);
            }
        }
        self.mark(id.clone());
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
            let place = known.place.clone();
            self.known.insert(id.clone(), known);
            self.arrive(&id, place);
            self.mark(id);
            return Ok(true);
        };
        if known.stream != stream.number && !known.gives_way(stream, &hello)? {
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
        (known.name, known.instance) = (hello.name, hello.instance);
        if let Beat::Said(_) = hello.beat {
            known.beat = hello.beat;
        }
        if known.spec.same_as(&hello.spec) {
            return Ok(true);
        }
        let place = hello.spec.place();
        let before = std::mem::replace(&mut known.place, place.clone());
        known.spec = hello.spec;
        if before != place {
            tracing::info!(upstream = %id, url = known.spec.url, "an agent tells of another address");
            self.depart(&id, before);
            self.arrive(&id, place);
        }
        self.mark(id);
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
            self.depart(id, known.place);
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
        for id in changed {
            self.rank(&id);
            self.mark(id);
        }
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
            let counts = *self.counts_as(&id) == id;
            let Some(known) = self.known.get_mut(&id).filter(|_| counts) else {
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
    pub(super) fn sizes(&self) -> [usize; 5] {
        [
            self.known.len(),
            self.places.len(),
            self.told.len(),
            self.changed.len(),
            self.waiting.len(),
        ]
    }
}
