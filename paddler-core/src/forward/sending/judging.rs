//! May a request that came to nothing be sent once more, and what does the client get if it may not?
//!
//! | what happened | again? |
//! |---|---|
//! | the request was not sent | always, elsewhere; it costs nobody anything, so the retry budget is not asked |
//! | it went into a connection that had been used before and ended at once, and nothing of an answer came back | once, if it may be replayed |
//! | the upstream refused the work before it began (503, 429) | elsewhere, or there later |
//! | the upstream refused a key that is ours and not the client's (401, 403) | elsewhere |
//! | it was sent, and no whole head came back or none that can be read, or a 502 did | once, elsewhere, if it may be replayed; then it is suspect |
//! | the first byte took too long; any other answer, 500 and 504 among them | no |
//!
//! After the head of the answer: never.

use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};

use super::{Means, Outcome, Sending};
use crate::forward::attempt::{Failed, Says};
use crate::forward::body::Body;
use crate::forward::refusal::{REASON, Refusal};
use crate::forward::upstream_key;
use crate::upstream::UpstreamId;

/// Why a body cannot be sent again.
const NOT_KEPT: &str = "body_not_kept";

/// How long a request stays away from an upstream that has lost it or had too much to do, and did not say until when: by
/// then it is known whether others fare no better there, and it is left out for all, and what it was busy with is over, or
/// was not only for a moment.
const AWAY: Duration = Duration::from_secs(2);

/// Whether to go on, or what the request comes to.
pub(super) type Judgement = ControlFlow<Result<Outcome, Refusal>>;

fn end(with: Result<Response<Body>, Refusal>) -> Judgement {
    ControlFlow::Break(with.map(Outcome::Kept))
}

impl Sending<'_> {
    /// Whether it may be sent once more, and where not.
    pub(super) fn judge(&mut self, failed: Failed) -> Judgement {
        match failed {
            Failed::NotSent { upstream, error } => self.not_sent(upstream, &error),
            Failed::Lost { upstream, error } => self.lost(&upstream, &error),
            Failed::Refused {
                upstream,
                answer,
                says,
            } => self.refused(upstream, answer, says),
            Failed::Key { upstream, status } => self.key_refused(upstream, status),
            Failed::Broken {
                upstream,
                error,
                answered,
                receipt,
                answer,
            } => {
                self.receipts.extend(receipt);
                let what = if answered {
                    ""
                } else {
                    " took the request and gave no answer"
                };
                tracing::warn!(%upstream, %error, "no answer");
                let message = format!("{upstream}{what}: {error}");
                self.broken(upstream, message, answer)
            }
            Failed::Late {
                upstream,
                after,
                word,
            } => {
                tracing::warn!(%upstream, ?after, reason = word, "no answer in time");
                let message = format!("{upstream} gave no answer in {} ms", after.as_millis());
                end(Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, word, message)))
            }
        }
    }

    fn not_sent(&mut self, upstream: UpstreamId, error: &str) -> Judgement {
        tracing::debug!(%upstream, %error, "not sent; trying elsewhere");
        let message = format!("no upstream could be reached; the last was {upstream}: {error}");
        let refusal = self.unavailable("unreachable", message);
        if !self.outgoing.held.is_whole() {
            return end(Err(self.not_kept(refusal)));
        }
        self.means.metrics.retried("not_sent");
        self.keep(Err(refusal), None);
        self.tried.add(upstream, self.means.clock.now(), None);
        ControlFlow::Continue(())
    }

    fn lost(&mut self, upstream: &UpstreamId, error: &str) -> Judgement {
        let message = format!("{upstream} took the request and gave no answer: {error}");
        if let Err(refusal) = self.may_replay(message) {
            tracing::warn!(%upstream, %error, "no answer");
            return end(Err(refusal));
        }
        tracing::debug!(%upstream, %error, "lost in a closed connection; sending once more");
        self.means.metrics.retried("closed_connection");
        self.replayed = true;
        // It is sent no third time, so this time to one that did not just close, though it must wait for that one's room.
        let now = self.means.clock.now();
        let mut elsewhere = self.tried.clone();
        elsewhere.add(upstream.clone(), now, Some(AWAY));
        if self.means.places.others_could(self.chain.facts(), &elsewhere) {
            self.tried = elsewhere;
        } else if self.chain.facts().weight > 0 {
            self.tried.add(upstream.clone(), now, None);
        }
        // Who takes no room never waits, so it goes back there at once, in a new connection.
        ControlFlow::Continue(())
    }

    fn refused(
        &mut self,
        upstream: UpstreamId,
        answer: Result<Response<Bytes>, String>,
        says: Says,
    ) -> Judgement {
        let unread = |error| self.unavailable("upstream_refused", format!("{upstream}: {error}"));
        let answer = answer.map(|answer| answer.map(Body::full)).map_err(unread);
        if !self.outgoing.held.is_whole() {
            self.means.metrics.not_retried(NOT_KEPT);
            return end(answer.map(says_not_kept));
        }
        if !self.within_budget() {
            return end(answer);
        }
        tracing::debug!(%upstream, "refused the work; trying elsewhere");
        self.means.metrics.retried("refused");
        // Of several who ask for patience, the client hears the one who asks for the least.
        let again = says.asked.unwrap_or(Duration::MAX);
        if self.soonest.is_none_or(|soonest| again <= soonest) {
            self.keep(answer, Some(again));
        }
        // An engine that loads says when it is done by taking requests, so it is asked again soon.
        let away = says.asked.or(says.limits.then_some(AWAY));
        self.tried.add(upstream, self.means.clock.now(), away);
        ControlFlow::Continue(())
    }

    /// Another one may have a key that is good.
    fn key_refused(&mut self, upstream: UpstreamId, status: StatusCode) -> Judgement {
        let now = self.means.clock.now();
        self.means.said_of_keys.say(&upstream, status, now);
        let refusal = upstream_key::refusal(&upstream, status);
        if !self.outgoing.held.is_whole() {
            return end(Err(self.not_kept(refusal)));
        }
        if !self.within_budget() {
            return end(Err(refusal));
        }
        self.means.metrics.retried("refused");
        // Whoever asks for patience has more to say to a client.
        if self.soonest.is_none_or(|soonest| soonest == Duration::MAX) {
            self.keep(Err(refusal), Some(Duration::MAX));
        }
        self.tried.add(upstream, now, Some(Duration::MAX));
        ControlFlow::Continue(())
    }

    fn broken(
        &mut self,
        upstream: UpstreamId,
        message: String,
        answer: Option<Response<Bytes>>,
    ) -> Judgement {
        if let Err(refusal) = self.may_replay(message.clone()) {
            return end(Err(refusal));
        }
        let answer = answer.map(|answer| answer.map(Body::full));
        let answer = answer.map_or_else(|| Err(self.broke(message)), Ok);
        if !self.within_budget() {
            return end(answer);
        }
        self.means.metrics.retried("no_byte");
        self.replayed = true;
        self.keep(answer, None);
        // Elsewhere: if it is the request that breaks its engine, one is enough.
        self.tried
            .add(upstream, self.means.clock.now(), Some(Duration::MAX));
        ControlFlow::Continue(())
    }

    /// Whether a request that an upstream may have seen, and that has no answer, may be sent once more; else what the client
    /// gets.
    fn may_replay(&mut self, message: String) -> Result<(), Refusal> {
        if self.replayed {
            // Twice: the request is likelier to be the cause than two upstreams.
            let now = self.means.clock.now();
            self.receipts.drain(..).for_each(|receipt| receipt.take_back(now));
            self.means.metrics.not_retried("suspect_request");
            let message =
                format!("the request was sent twice and twice no answer came back; the last time {message}");
            return Err(Refusal::new(StatusCode::BAD_GATEWAY, "suspect_request", message));
        }
        if !self.chain.facts().replayable || self.once {
            self.means.metrics.not_retried("not_replayable");
            return Err(self.broke(message));
        }
        if !self.outgoing.held.is_whole() {
            let refusal = self.broke(message);
            return Err(self.not_kept(refusal));
        }
        Ok(())
    }

    /// What the client gets if nobody else takes it, and when who said so can be asked again. What was said of its own model
    /// counts before what is said of others.
    fn keep(&mut self, last: Result<Response<Body>, Refusal>, soonest: Option<Duration>) {
        let of_own = self.chain.is_own();
        if of_own || !self.last_of_own {
            (self.last, self.soonest, self.last_of_own) = (Some(last), soonest, of_own);
        }
    }

    fn within_budget(&self) -> bool {
        let Means {
            retries,
            options,
            clock,
            metrics,
            ..
        } = self.means;
        let may = retries.retry(&options.retry, clock.now());
        if !may {
            metrics.not_retried("budget");
        }
        may
    }

    /// The client may ask again what may be done twice.
    fn broke(&self, message: String) -> Refusal {
        Refusal::new(StatusCode::BAD_GATEWAY, "upstream_broke", message)
            .should_retry(self.chain.facts().replayable)
    }

    /// It would have been sent again, had its body been kept.
    fn not_kept(&self, mut refusal: Refusal) -> Refusal {
        self.means.metrics.not_retried(NOT_KEPT);
        refusal.reason = NOT_KEPT.into();
        refusal.message = format!(
            "{}; it was not sent again, since there was no memory to keep its body",
            refusal.message
        );
        refusal
    }
}

/// An upstream's own refusal of a request that would have been sent elsewhere, had its body been kept.
fn says_not_kept(mut answer: Response<Body>) -> Response<Body> {
    answer
        .headers_mut()
        .insert(REASON, HeaderValue::from_static(NOT_KEPT));
    answer
}
