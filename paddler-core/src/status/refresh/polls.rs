//! Which upstreams are polled, and over which transport?

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::sleep;

use crate::clock::Clock;
use crate::status::poll::{Asker, PollOptions, Polled, Poller};
use crate::status::{Failure, FailureKind, Published, StatusEvent, Unpolled};
use crate::upstream::{Connect, Transport, Upstream, UpstreamId, UpstreamSpec};

/// The polls that are under way. Dropped, they end.
pub(super) struct Polls {
    connect: Arc<dyn Connect>,
    options: Option<PollOptions>,
    published: Published,
    clock: Clock,
    permits: Arc<Semaphore>,
    answers: mpsc::Sender<Polled>,
    tasks: JoinSet<()>,
    upstreams: HashMap<UpstreamId, Followed>,
    /// Upstreams that have joined or changed since the last publish.
    new: Vec<UpstreamId>,
    runs: u64,
}

/// An upstream that is there.
struct Followed {
    /// The spec as it was given.
    given: UpstreamSpec,
    /// The same, with the transport.
    spec: Arc<UpstreamSpec>,
    /// The transport, if it was made here.
    made: Option<Arc<dyn Upstream>>,
    poll: Option<(u64, AbortHandle)>,
}

impl Followed {
    /// Whether the way to it is the way to this one, too: only what no way has to do with is different.
    fn leads_to(&self, spec: &UpstreamSpec) -> bool {
        [&self.given, &*self.spec].into_iter().any(|own| {
            let mut own = own.clone();
            own.labels.clone_from(&spec.labels);
            own.models.clone_from(&spec.models);
            own.limits.clone_from(&spec.limits);
            own.metrics_url.clone_from(&spec.metrics_url);
            own.same_as(spec)
        })
    }

    fn stop(&mut self) {
        if let Some((_, task)) = self.poll.take() {
            task.abort();
        }
    }
}

impl Polls {
    pub(super) fn new(
        connect: Arc<dyn Connect>,
        options: Option<PollOptions>,
        published: Published,
        clock: Clock,
        answers: mpsc::Sender<Polled>,
    ) -> Self {
        Self {
            connect,
            permits: permits(options.as_ref()),
            options,
            published,
            clock,
            answers,
            tasks: JoinSet::new(),
            upstreams: HashMap::new(),
            new: Vec::new(),
            runs: 0,
        }
    }

    /// Gives the spec its transport; one that it brings along is kept, unless it was made here for an earlier spec.
    ///
    /// `None`: it cannot be connected to. That is said, and what was known under the id stays. One that is known as it is
    /// keeps its transport, with the connections, and its polls.
    pub(super) fn follow(&mut self, mut spec: UpstreamSpec) -> Option<UpstreamSpec> {
        if let Some(known) = self.upstreams.get(&spec.id)
            && (known.given.same_as(&spec) || known.spec.same_as(&spec))
        {
            return Some((*known.spec).clone());
        }
        let given = spec.clone();
        let known = self.upstreams.get(&spec.id);
        let before = known.and_then(|followed| followed.made.as_ref());
        let brought = spec.extensions.get::<Transport>();
        let own = brought.filter(|brought| before.is_none_or(|before| !Arc::ptr_eq(&brought.0, before)));
        let mut made = None;
        if own.is_none() {
            // Labels, models and limits are not the transport's business: it is kept, with its connections.
            let kept = known.filter(|known| known.leads_to(&spec)).zip(before);
            let connected = match kept {
                Some((_, before)) => Ok(before.clone()),
                None => self.connect.connect(&spec),
            };
            match connected {
                Ok(upstream) => {
                    made = Some(upstream.clone());
                    spec.extensions.insert(Transport(upstream));
                }
                Err(error) => {
                    tracing::error!(upstream = %spec.id, %error, "passed over: no upstream can be made of this");
                    return None;
                }
            }
        }
        let followed = Followed {
            given,
            spec: Arc::new(spec.clone()),
            made,
            poll: None,
        };
        self.new.push(spec.id.clone());
        if let Some(mut before) = self.upstreams.insert(spec.id.clone(), followed) {
            before.stop();
        }
        Some(spec)
    }

    /// The upstream has left.
    pub(super) fn leave(&mut self, id: &UpstreamId) {
        if let Some(mut followed) = self.upstreams.remove(id) {
            followed.stop();
        }
    }

    /// Other options, under which everybody is polled afresh.
    pub(super) fn begin_anew(&mut self, options: Option<PollOptions>) {
        self.permits = permits(options.as_ref());
        self.options = options;
        let polled: Vec<_> = self
            .upstreams
            .values_mut()
            .filter_map(|followed| {
                followed.stop();
                // Who has just joined begins once it is published.
                let waits = self.new.contains(&followed.given.id);
                (!waits).then(|| followed.given.id.clone())
            })
            .collect();
        for id in polled {
            self.start(&id, Duration::ZERO);
        }
    }

    /// What is new stands in the published state from now on, where a poll takes its sample from: polls can begin.
    pub(super) fn published(&mut self) {
        for id in std::mem::take(&mut self.new) {
            self.start(&id, Duration::ZERO);
        }
    }

    fn start(&mut self, id: &UpstreamId, after: Duration) {
        let (Some(options), Some(followed)) = (&self.options, self.upstreams.get_mut(id)) else {
            return;
        };
        if followed.spec.extensions.get::<Unpolled>().is_some() {
            return;
        }
        let Some(asker) = Asker::new(followed.spec.clone(), self.connect.clone()) else {
            return;
        };
        followed.stop();
        self.runs += 1;
        let poller = Poller {
            id: id.clone(),
            run: self.runs,
            asker,
            published: self.published.clone(),
            clock: self.clock,
            options: options.clone(),
            permits: self.permits.clone(),
            answers: self.answers.clone(),
        };
        let task = self.tasks.spawn(async move {
            sleep(after).await;
            poller.run().await;
        });
        followed.poll = Some((self.runs, task));
    }

    /// What a poll says, unless its upstream has left or changed since.
    pub(super) fn believe(&self, polled: Polled) -> Option<StatusEvent> {
        let run = self.upstreams.get(&polled.id)?.poll.as_ref()?.0;
        (run == polled.run).then(|| polled.into())
    }

    /// Ready when a poll has ended, as polls do that are stopped, or panic.
    pub(super) async fn ended(&mut self) -> Option<Result<(), JoinError>> {
        self.tasks.join_next().await
    }

    /// A transport has panicked, and its poll with it: the upstream is polled afresh after the longest rest. Says what
    /// that means for its status.
    pub(super) fn panicked(&mut self, error: &JoinError) -> Option<StatusEvent> {
        let of = |followed: &Followed| {
            followed
                .poll
                .as_ref()
                .is_some_and(|(_, task)| task.id() == error.id())
        };
        // A look at each is fine: this is a fault in the program.
        let id = self
            .upstreams
            .iter()
            .find(|(_, followed)| of(followed))?
            .0
            .clone();
        tracing::error!(upstream = %id, %error, "a poll has panicked; it begins anew in a while");
        self.start(&id, self.options.as_ref()?.max_backoff);
        let failure = Failure::new(FailureKind::Unreadable, error.to_string());
        Some(StatusEvent::Failed { id, failure })
    }
}

fn permits(options: Option<&PollOptions>) -> Arc<Semaphore> {
    let at_once = options.map_or(1, |options| options.concurrency);
    Arc::new(Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS)))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use http::{Request, Response};

    use super::*;
    use crate::forward::{Body, BoxError};
    use crate::schedule::trees;
    use crate::status::StatusBoard;

    #[derive(Debug)]
    struct Silent;

    #[async_trait]
    impl Upstream for Silent {
        async fn call(&self, _: Request<Body>) -> Result<Response<Body>, BoxError> {
            std::future::pending().await
        }
    }

    impl Connect for Silent {
        fn connect(&self, _: &UpstreamSpec) -> Result<Arc<dyn Upstream>, BoxError> {
            Ok(Arc::new(Self))
        }
    }

    #[tokio::test]
    async fn what_a_poll_of_an_earlier_spec_says_is_not_believed() {
        let published = StatusBoard::new(trees::gateway()).published();
        let (answers, _polled) = mpsc::channel(1);
        let options = Some(PollOptions::default());
        let mut polls = Polls::new(Arc::new(Silent), options, published, Clock::new(), answers);
        let spec = UpstreamSpec::new("a", "http://a").unwrap();
        let says = |run| Polled {
            id: spec.id.clone(),
            run,
            asked: crate::Moment::ZERO,
            answer: Err(Failure::new(FailureKind::Timeout, "")),
        };

        polls.follow(spec.clone());
        assert!(polls.believe(says(1)).is_none(), "no poll has begun");
        polls.published();
        assert!(polls.believe(says(1)).is_some());
        let known = polls.follow(spec.clone()).unwrap();
        polls.follow(known);
        polls.published();
        assert!(polls.believe(says(1)).is_some(), "it is the same");
        polls.follow(spec.clone().label("zone", "a"));
        assert!(polls.believe(says(1)).is_none(), "it has changed since");
        polls.published();
        assert!(polls.believe(says(1)).is_none() && polls.believe(says(2)).is_some());
        polls.leave(&spec.id);
        assert!(polls.believe(says(2)).is_none(), "it has left");
    }
}
