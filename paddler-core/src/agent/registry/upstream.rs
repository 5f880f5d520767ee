//! What is known of one upstream, and who may speak of it?

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{News, Place, Refused, Stream};
use crate::Moment;
use crate::agent::beat::Beat;
use crate::agent::said::Hello;
use crate::status::{Failure, FailureKind, Published, Report};
use crate::upstream::{SampleToken, UpstreamId, UpstreamSpec};

/// One upstream that an agent tells of.
#[derive(Debug)]
pub(in crate::agent) struct AgentUpstream {
    pub(in crate::agent) agent: Arc<str>,
    pub(in crate::agent) name: Option<String>,
    pub(in crate::agent) spec: UpstreamSpec,
    pub(super) place: Option<Place>,
    /// Tells its agent from another one with the same id. Those of Paddler 1.x have none.
    pub(super) instance: Option<String>,
    /// Another agent has asked for its id, and was told so.
    pub(super) contested: bool,
    pub(in crate::agent) heard: Instant,
    pub(in crate::agent) stale: bool,
    /// How it said that it is, the last time that it said that.
    pub(in crate::agent) report: Option<Report>,
    pub(in crate::agent) failure: Option<Failure>,
    pub(super) stream: u64,
    pub(super) end: Option<oneshot::Sender<Refused>>,
    pub(super) beat: Beat,
    /// When it leaves, since its stream has broken off.
    pub(super) leaves: Option<Instant>,
    /// What was ours there at that report.
    pub(super) sample: Option<SampleToken>,
    pub(super) told: Instant,
    pub(super) news: Option<News>,
}

impl AgentUpstream {
    pub(super) fn new(stream: &mut Stream, hello: Hello, at: Instant) -> Self {
        Self {
            agent: stream.agent.clone(),
            name: hello.name,
            place: hello.spec.place(),
            spec: hello.spec,
            instance: hello.instance,
            contested: false,
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

    /// Whether its agent speaks, as far as is known.
    pub(super) fn lives(&self) -> bool {
        self.leaves.is_none() && !self.stale
    }

    /// Whether another stream is listened to from now on that tells of this upstream. `Ok(false)`: it may go on, and is passed over.
    pub(super) fn gives_way(&mut self, stream: &Stream, hello: &Hello) -> Result<bool, Refused> {
        let is_newer = stream.number > self.stream;
        if !is_newer && self.agent == stream.agent {
            return Err(Refused::Replaced);
        }
        if !self.lives() {
            return Ok(true);
        }
        let same_engine = self.spec.same_place(&hello.spec);
        match (&self.instance, &hello.instance) {
            (Some(own), Some(other)) if own == other => Ok(is_newer),
            // One of 1.x that was started again, and the one before that nobody has seen end.
            (None, None) if same_engine => Ok(is_newer),
            // Beside one of ours, one of 1.x has nothing to say, and would come again and again if it were sent away.
            (Some(_), None) if same_engine => Ok(false),
            (None, Some(_)) if same_engine => Ok(true),
            _ => {
                if !std::mem::replace(&mut self.contested, true) {
                    let (url, other) = (&self.spec.url, &hello.spec.url);
                    tracing::warn!(upstream = %self.spec.id, url, other, "a second agent has this id, and is refused: give one of them another --id");
                }
                Err(Refused::Taken)
            }
        }
    }

    /// Listens to this stream from now on, and no more to the one before.
    pub(super) fn follow(&mut self, stream: &mut Stream) {
        self.stream = stream.number;
        self.leaves = None;
        if let Some(before) = std::mem::replace(&mut self.end, stream.end.take()) {
            // Whoever listened may have gone.
            before.send(Refused::Replaced).ok();
        }
    }

    /// What there is to be told again.
    pub(super) fn holds(&self) -> Option<News> {
        match (&self.failure, &self.report) {
            (None, Some(_)) => Some(News::Still),
            (Some(_), _) => Some(News::Failed),
            (None, None) => None,
        }
    }

    /// What was ours at the last report, if it is told again now: nothing, where it had just joined with it.
    pub(super) fn still(
        &mut self,
        id: &UpstreamId,
        published: &Published,
        now: Moment,
    ) -> Option<SampleToken> {
        let first = || {
            published
                .load()
                .sample(id.as_str(), now)
                .map(SampleToken::of_nothing)
        };
        self.sample = self.sample.or_else(first);
        self.sample.map(|sample| sample.still(now))
    }

    pub(super) fn failure(&self) -> Failure {
        if self.stale {
            let silent = format!("its agent has said nothing for {:?}", self.beat.patience().0);
            return Failure::new(FailureKind::Silent, silent);
        }
        let unknown = || Failure::new(FailureKind::Unreadable, "its agent does not say");
        self.failure.clone().unwrap_or_else(unknown)
    }
}
