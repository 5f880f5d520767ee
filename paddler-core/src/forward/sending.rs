//! How often is a request sent, and what does the client get when nobody takes it?

use std::time::Duration;

use http::{Response, StatusCode};

use super::attempt::{Answered, Failed, Outgoing, attempt};
use super::body::Body;
use super::options::RouterOptions;
use super::refusal::Refusal;
use super::rights::Client;
use super::waiting::{NoPlace, Places};
use crate::clock::Clock;
use crate::observe::Metrics;
use crate::queue::{Charge, Priority, QueueFull, Tried, Used};
use crate::request::RequestFacts;
use crate::schedule::Class;
use crate::status::Published;

/// How often a request is sent at most, so that a pool in which nobody answers is not asked by every request from one
/// end to the other.
const ATTEMPTS: u32 = 64;

/// What all sendings of one router share.
#[derive(Clone, Copy)]
pub(super) struct Means<'a> {
    pub(super) places: &'a Places,
    pub(super) published: &'a Published,
    pub(super) clock: Clock,
    pub(super) options: &'a RouterOptions,
    pub(super) metrics: &'a Metrics,
    /// Who asks, if that is known.
    pub(super) client: Option<&'a Client>,
}

/// What a request comes to.
pub(super) enum Outcome {
    /// An answer that is still coming, and what its place was charged.
    Live(Answered, Option<Charge>),
    /// An upstream's refusal, which nobody else could make good.
    Kept(Response<Body>),
}

/// One request, until somebody answers it.
pub(super) struct Sending<'a> {
    means: Means<'a>,
    facts: &'a RequestFacts,
    outgoing: &'a Outgoing,
    tried: Tried,
    /// It was sent once more though it may have been seen.
    replayed: bool,
    /// What the client gets if nobody else takes it.
    last: Option<Result<Response<Body>, Refusal>>,
    /// When the upstream that refused with `last` can be asked again.
    soonest: Option<Duration>,
}

impl<'a> Sending<'a> {
    pub(super) fn new(means: Means<'a>, facts: &'a RequestFacts, outgoing: &'a Outgoing) -> Self {
        Self {
            means,
            facts,
            outgoing,
            tried: Tried::default(),
            replayed: false,
            last: None,
            soonest: None,
        }
    }

    /// Finds a place and sends, as often as it is safe and of use.
    pub(super) async fn run(mut self) -> Result<Outcome, Refusal> {
        let Means {
            places,
            clock,
            metrics,
            ..
        } = self.means;
        for attempts in 0..ATTEMPTS {
            let mut place = match places.place(self.facts, &self.tried).await {
                Ok(place) => place,
                Err(no_place) => return self.give_up(no_place),
            };
            if attempts == 0 {
                let waited = clock.now().since(self.facts.arrived);
                metrics.waited(Priority::of(self.facts.priority), waited);
            }
            let charge = place.charge.take();
            match attempt(place, self.outgoing, self.replayed).await {
                Ok(answered) => return Ok(Outcome::Live(answered, charge)),
                Err(failed) => {
                    if let Some(charge) = charge.filter(|_| failed.was_no_work()) {
                        places.settle(charge, Used::Nothing);
                    }
                    self.judge(failed)?;
                }
            }
        }
        // Each attempt that ends up here has left something to tell, but for one that was only to be sent once more.
        let last = self.last.take();
        last.unwrap_or_else(|| {
            Err(self.unavailable("attempts", "every attempt to send the request failed".into()))
        })
        .map(Outcome::Kept)
    }

    /// Whether it may be sent once more, and where not.
    fn judge(&mut self, failed: Failed) -> Result<(), Refusal> {
        let Means { clock, metrics, .. } = self.means;
        match failed {
            Failed::NotSent { upstream, error } => {
                tracing::debug!(%upstream, %error, "not sent; trying elsewhere");
                metrics.retried("not_sent");
                let message = format!("no upstream could be reached; the last was {upstream}: {error}");
                self.last = Some(Err(self.unavailable("unreachable", message)));
                self.soonest = None;
                self.tried.add(upstream, clock.now(), None);
                Ok(())
            }
            Failed::Lost { upstream, error } if self.facts.replayable && !self.replayed => {
                tracing::debug!(%upstream, %error, "lost in a closed connection; sending once more");
                metrics.retried("closed_connection");
                self.replayed = true;
                Ok(())
            }
            Failed::Refused {
                upstream,
                answer,
                wait,
            } => {
                tracing::debug!(%upstream, "refused the work; trying elsewhere");
                metrics.retried("refused");
                // Of several who ask for patience, the client hears the one who asks for the least.
                let again = wait.unwrap_or(Duration::MAX);
                if self.soonest.is_none_or(|soonest| again <= soonest) {
                    let unread = |error| self.unavailable("upstream_refused", format!("{upstream}: {error}"));
                    self.last = Some(answer.map(|answer| answer.map(Body::full)).map_err(unread));
                    self.soonest = Some(again);
                }
                self.tried.add(upstream, clock.now(), wait);
                Ok(())
            }
            Failed::Lost { upstream, error } | Failed::Broken { upstream, error } => {
                tracing::warn!(%upstream, %error, "no answer");
                let message = format!("{upstream} took the request and gave no answer: {error}");
                Err(Refusal::new(StatusCode::BAD_GATEWAY, "upstream_broke", message))
            }
            Failed::Late {
                upstream,
                after,
                word,
            } => {
                tracing::warn!(%upstream, ?after, reason = word, "no answer in time");
                let message = format!("{upstream} gave no answer in {after:?}");
                Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, word, message))
            }
        }
    }

    /// What the client gets when there is no place: what an upstream has said, unless others are there and merely busy.
    fn give_up(&mut self, no_place: NoPlace) -> Result<Outcome, Refusal> {
        let ending = no_place.ending();
        let busy = ending.class == Class::Shed || ending.reason.is_contention();
        match self.last.take() {
            Some(last) if !busy => last.map(Outcome::Kept),
            _ => Err(self.no_place(no_place)),
        }
    }

    fn unavailable(&self, reason: &'static str, message: String) -> Refusal {
        let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, reason, message);
        refusal.retry_after(self.means.options.retry_after)
    }

    /// When to come again: when the queue will have moved on by as many as wait before such a request. Where nobody can
    /// serve, how fast it moves says nothing.
    fn retry_after(&self, busy: bool) -> std::time::Duration {
        let otherwise = self.means.options.retry_after;
        if busy {
            self.means.places.retry_after(self.facts.priority, otherwise)
        } else {
            otherwise
        }
    }

    fn no_place(&self, no_place: NoPlace) -> Refusal {
        let busy = no_place.ending().reason.is_contention();
        let after = self.retry_after(busy);
        let model = self.facts.model.as_deref();
        match no_place {
            NoPlace::Ending { ending, waited } => {
                let mut refusal = Refusal::of_ending(&ending, model, after);
                if waited {
                    let waited = self.means.clock.now().since(self.facts.arrived);
                    refusal.message =
                        format!("{} after waiting {:.1} s", refusal.message, waited.as_secs_f64());
                }
                if refusal.status == StatusCode::NOT_FOUND {
                    refusal.message = format!("{}; known: {}", refusal.message, self.known_models());
                }
                refusal
            }
            NoPlace::Full { full, ending } if busy => {
                let what = match full {
                    QueueFull::Bytes => {
                        "the bodies of the requests that wait take all the memory meant for them"
                    }
                    _ => "as many requests wait as may",
                };
                let message = format!("{what}, since every upstream is busy ({})", ending.reason);
                Refusal::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message).retry_after(after)
            }
            NoPlace::Evicted { ending } if busy => {
                let message = format!(
                    "the queue is full of requests that come first, since every upstream is busy ({})",
                    ending.reason
                );
                Refusal::new(StatusCode::TOO_MANY_REQUESTS, "evicted", message).retry_after(after)
            }
            NoPlace::Full { ending, .. } | NoPlace::Evicted { ending } => {
                Refusal::of_ending(&ending, model, after)
            }
        }
    }

    /// The names that could have been asked for, as many as a person would read.
    fn known_models(&self) -> String {
        let snapshot = self.means.published.load();
        let client = self.means.client;
        let his = |name: &&str| client.is_none_or(|client| client.may_use(Some(name), &snapshot));
        let mut names: Vec<_> = snapshot.models().map(|(name, _)| name).filter(his).collect();
        names.sort_unstable();
        let more = names.len().saturating_sub(20);
        names.truncate(20);
        let listed = names.join(", ");
        if more > 0 {
            format!("{listed} and {more} more")
        } else {
            listed
        }
    }
}
