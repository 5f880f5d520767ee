//! When is one upstream asked how it is, again and again?

mod ask;
mod elsewhere;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};

pub(crate) use ask::Asker;

use super::{Failure, FailureKind, Published, Report, StatusEvent};
use crate::Moment;
use crate::clock::Clock;
use crate::schedule::{mix, stable_hash};
use crate::source::paddler;
use crate::upstream::{SampleToken, UpstreamId};

/// How upstreams are polled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PollOptions {
    /// The time from the end of one poll of an upstream to the next, plus or minus a tenth. Default 1 s: our own
    /// requests are counted exactly in between, so polls only tell of others, and of health.
    pub interval: Duration,
    /// The longest that one poll may take, all its questions together. Default 3 s. Keep it above the time that a
    /// connection may take: a machine that is gone is known by that, and otherwise looks like one that is busy.
    pub timeout: Duration,
    /// The most polls at once, over all upstreams. Default 64. One that hangs holds its place until the timeout.
    pub concurrency: usize,
    /// The longest time between polls of an upstream that cannot be asked, or that is no engine; it doubles from the interval.
    /// Default 10 s.
    pub max_backoff: Duration,
}

impl Default for PollOptions {
    fn default() -> Self {
        let poll = crate::config::Poll::default();
        Self {
            interval: poll.interval,
            timeout: poll.timeout,
            concurrency: poll.concurrency,
            max_backoff: Duration::from_secs(10),
        }
    }
}

impl PollOptions {
    /// No interval is shorter: zero would be a poll that never rests.
    const SHORTEST: Duration = Duration::from_millis(1);
    /// None is longer: nobody waits for it, and time can still be reckoned with.
    const LONGEST: Duration = Duration::from_secs(365 * 86_400);

    /// The time from a poll to the next, before chance: after `failures` polls in a row that have failed.
    fn rest(&self, failures: u32) -> Duration {
        let interval = self.interval.clamp(Self::SHORTEST, Self::LONGEST);
        let doubled = interval.saturating_mul(1 << failures.saturating_sub(1).min(16));
        doubled.min(self.max_backoff.clamp(interval, Self::LONGEST))
    }
}

/// What one poll came to.
#[derive(Debug)]
pub(crate) struct Polled {
    pub(crate) id: UpstreamId,
    /// Which of the upstream's polls it was: what a poll of an earlier spec still says is not believed.
    pub(crate) run: u64,
    /// When it was begun.
    pub(crate) asked: Moment,
    pub(crate) answer: Answer,
}

/// How it says that it is, or why not.
type Answer = Result<(Report, Option<SampleToken>), Failure>;

impl From<Polled> for StatusEvent {
    fn from(Polled { id, answer, .. }: Polled) -> Self {
        match answer {
            Ok((report, sample)) => Self::Report { id, report, sample },
            Err(failure) => Self::Failed { id, failure },
        }
    }
}

/// Polls one upstream for as long as its answers are taken.
#[derive(Debug)]
pub(crate) struct Poller {
    pub(crate) id: UpstreamId,
    pub(crate) run: u64,
    pub(crate) asker: Asker,
    pub(crate) published: Published,
    pub(crate) clock: Clock,
    pub(crate) options: PollOptions,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) answers: mpsc::Sender<Polled>,
}

impl Poller {
    pub(crate) async fn run(mut self) {
        let mut failures: u32 = 0;
        while let Some((asked, answer)) = self.poll().await {
            // Who asks seven paths of what is no engine does not do it each second for ever.
            failures = if answer.is_err() || self.asker.knows_no_engine() {
                failures.saturating_add(1)
            } else {
                0
            };
            let polled = Polled {
                id: self.id.clone(),
                run: self.run,
                asked,
                answer,
            };
            if self.answers.send(polled).await.is_err() {
                return;
            }
            sleep(self.pause(failures)).await;
        }
    }

    /// The time to the next poll: with chance in it, so that polls of many upstreams do not come in step.
    fn pause(&self, failures: u32) -> Duration {
        let draw = mix(stable_hash(self.id.as_str().as_bytes()) ^ self.clock.now().as_nanos());
        self.options
            .rest(failures)
            .mul_f64(0.9 + 0.2 * (draw % 1_000) as f64 / 1_000.0)
    }

    /// One poll, and when it was begun; `None` when there are no polls any more.
    async fn poll(&mut self) -> Option<(Moment, Answer)> {
        let _permit = self.permits.acquire().await.ok()?;
        let asked = self.clock.now();
        let (id, limit) = (&self.id, self.options.timeout);
        let sample = || self.published.load().sample(id.as_str(), self.clock.now());
        // What was found out before the time was over is kept: the next poll goes on from there.
        let answer = timeout(limit, self.asker.ask(limit, sample)).await;
        let late = |_| Failure::new(FailureKind::Timeout, format!("no answer within {limit:?}"));
        let mut answer = answer.map_err(late).and_then(|answer| answer);
        if let (Ok((report, _)), Some(own_name)) = (&mut answer, self.published.router()) {
            paddler::close_ring(report, own_name);
        }
        Some((asked, answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_up_to_the_longest_and_stay_within_reason() {
        let options = PollOptions::default();
        let rests =
            |options: &PollOptions| [0, 1, 2, 3, 4, 5, 6, u32::MAX].map(|n| options.rest(n).as_secs());
        assert_eq!(rests(&options), [1, 1, 2, 4, 8, 10, 10, 10]);
        let slow = PollOptions {
            interval: Duration::from_secs(60),
            ..options.clone()
        };
        assert_eq!(rests(&slow), [60; 8], "never sooner than without a failure");
        for extreme in [Duration::ZERO, Duration::MAX] {
            let options = PollOptions {
                interval: extreme,
                max_backoff: extreme,
                ..options.clone()
            };
            let rest = options.rest(u32::MAX);
            assert!(
                (PollOptions::SHORTEST..=PollOptions::LONGEST).contains(&rest),
                "{rest:?}"
            );
        }
    }
}
