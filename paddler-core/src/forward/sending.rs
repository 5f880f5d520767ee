//! How often is a request sent, and what does the client get when nobody takes it?

mod judging;

use std::ops::ControlFlow;
use std::time::Duration;

use http::{HeaderValue, Response, StatusCode};

use super::attempt::{Answered, Failed, How, Outgoing, attempt};
use super::body::Body;
use super::fallback::Chain;
use super::no_place::Circumstances;
use super::options::RouterOptions;
use super::refusal::Refusal;
use super::rights::{Client, InUse};
use super::shown::Shown;
use super::story::Story;
use super::upstream_key::{self, UPSTREAM_KEY};
use super::waiting::{NAMED, NoPlace, Owed, Place, Places};
use crate::clock::Clock;
use crate::health::FaultReceipt;
use crate::observe::Metrics;
use crate::queue::{Priority, RetryBudget, Tried, Used};
use crate::schedule::{Class, Detail};
use crate::status::Published;
use judging::Judgement;

/// What all sendings of one router share.
#[derive(Clone, Copy)]
pub(super) struct Means<'a> {
    pub(super) places: &'a Places,
    pub(super) retries: &'a RetryBudget,
    pub(super) published: &'a Published,
    pub(super) clock: Clock,
    pub(super) options: &'a RouterOptions,
    pub(super) metrics: &'a Metrics,
    /// What was said of keys that upstreams refuse.
    pub(super) said_of_keys: &'a upstream_key::Said,
    /// Who asks, if that is known.
    pub(super) client: Option<&'a Client>,
}

/// What a request comes to.
pub(super) enum Outcome {
    /// An answer that is still coming, and what its place was charged.
    Live(Answered, Option<Owed>),
    /// An upstream's refusal, which nobody else could make good.
    Kept(Response<Body>),
}

/// One request, until somebody answers it.
pub(super) struct Sending<'a> {
    means: Means<'a>,
    chain: Chain<'a>,
    outgoing: &'a mut Outgoing,
    tried: Tried,
    /// It was sent once more though it may have been seen.
    replayed: bool,
    /// It went by a transport that sends once.
    once: bool,
    /// An engine may have worked on it, in vain.
    was_work: bool,
    /// What its client uses of his allowance.
    in_use: Option<&'a mut InUse>,
    /// Where it is told what becomes of it.
    story: &'a mut Story,
    /// What its client is shown of it.
    shown: &'a mut Shown,
    /// What that has been held against an upstream for.
    receipts: Vec<FaultReceipt>,
    /// What the client gets if nobody else takes it.
    last: Option<Result<Response<Body>, Refusal>>,
    /// That was said of its own model.
    last_of_own: bool,
    /// It has had a place.
    was_placed: bool,
    /// When the upstream that refused with `last` can be asked again.
    soonest: Option<Duration>,
}

impl<'a> Sending<'a> {
    pub(super) fn new(
        means: Means<'a>,
        chain: Chain<'a>,
        outgoing: &'a mut Outgoing,
        in_use: Option<&'a mut InUse>,
        (story, shown): (&'a mut Story, &'a mut Shown),
    ) -> Self {
        Self {
            means,
            chain,
            outgoing,
            tried: Tried::default(),
            replayed: false,
            once: false,
            was_work: false,
            in_use,
            story,
            shown,
            receipts: Vec::new(),
            last: None,
            last_of_own: false,
            was_placed: false,
            soonest: None,
        }
    }

    /// Finds a place and sends, as often as it is safe and of use.
    pub(super) async fn run(&mut self) -> Result<Outcome, Refusal> {
        let mut attempts = 0;
        loop {
            let place = match self.place().await? {
                Ok(place) => place,
                Err(no_place) => return self.give_up(no_place),
            };
            let (place, owed, traceparent) = self.placed(place);
            let how = self.how(traceparent.as_ref());
            let result = attempt(place, self.outgoing, how).await;
            if let ControlFlow::Break(end) = self.sent(result, owed) {
                return end;
            }
            attempts += 1;
            if attempts >= self.means.options.retry.attempts {
                self.means.metrics.not_retried("attempts");
                if !self.chain.give_up(self.means.clock.now()) {
                    return self.out_of_attempts();
                }
                attempts = 0;
            }
        }
    }

    /// A place, and the request made to ask for the model that has it.
    async fn place(&mut self) -> Result<Result<Place, Option<NoPlace>>, Refusal> {
        let Means {
            places,
            clock,
            metrics,
            retries,
            ..
        } = self.means;
        let place = match self.chain.place(places, &self.tried, clock).await {
            Ok(place) => place,
            Err(no_place) => return Ok(Err(no_place)),
        };
        if !std::mem::replace(&mut self.was_placed, true) {
            // Who finds no place adds nothing to what may be sent again.
            let (now, facts) = (clock.now(), self.chain.facts());
            retries.request(now);
            metrics.waited(Priority::of(facts.priority), now.since(facts.arrived));
        }
        let model = self.chain.facts().model.as_ref();
        if let Some(model) = model.filter(|_| self.chain.has_others())
            && self.outgoing.model.as_ref() != Some(model)
        {
            self.outgoing.ask_for(model)?;
            if let Some((to, rule)) = self.chain.instead() {
                let own = self.chain.own_model().unwrap_or_default();
                tracing::debug!(model = own, %rule, %to, "falls back: its own model has no place, or gave no answer");
            }
        }
        Ok(Ok(place))
    }

    /// It is sent there now. Gives what that was charged, and what the upstream is told of the trace.
    fn placed(&mut self, mut place: Place) -> (Place, Option<Owed>, Option<HeaderValue>) {
        let places = self.means.places;
        let instead = self.chain.instead().map(|(model, _)| model.clone());
        self.shown.placed(&place, instead.as_ref());
        let passed_over = || self.chain.passed_over();
        let traceparent = self
            .story
            .placed(&mut place, (instead, passed_over), || places.next_seed());
        self.once = place.upstream.sends_once();
        let mut owed = place.owed.take();
        if let Some(owed) = &mut owed {
            owed.sent(self.chain.facts().stream);
        }
        self.say_worked_on(true);
        (place, owed, traceparent)
    }

    fn how<'h>(&self, traceparent: Option<&'h HeaderValue>) -> How<'h>
    where
        'a: 'h,
    {
        How {
            clock: self.means.clock,
            published: self.means.published,
            once: self.once,
            replayable: self.chain.facts().replayable && !self.once,
            replay: self.replayed,
            instead: self.chain.instead().is_some(),
            traceparent,
        }
    }

    /// What has become of it there.
    fn sent(&mut self, result: Result<Answered, Failed>, owed: Option<Owed>) -> Judgement {
        self.story.attempted(&result);
        self.shown.attempted(&result);
        match result {
            Ok(answered) => {
                let mut owed = owed;
                if let Some(owed) = &mut owed {
                    owed.answered();
                }
                if let Some((to, rule)) = self.chain.instead() {
                    let Means {
                        metrics, published, ..
                    } = self.means;
                    metrics.fell_back(rule, to, &published.load());
                }
                ControlFlow::Break(Ok(Outcome::Live(answered, owed)))
            }
            Err(failed) => {
                let was_no_work = failed.was_no_work();
                self.was_work |= !was_no_work;
                self.say_worked_on(self.was_work);
                let judgement = self.judge(failed);
                // What is sent once more is paid for there, and not twice.
                if let Some(owed) = owed.filter(|_| was_no_work || judgement.is_continue()) {
                    owed.settle(Used::Nothing);
                }
                judgement
            }
        }
    }

    fn out_of_attempts(&mut self) -> Result<Outcome, Refusal> {
        // Each attempt that ends up here has left something to tell, but for one that was only to be sent once more.
        let last = self.last.take();
        last.unwrap_or_else(|| {
            Err(self.unavailable("attempts", "every attempt to send the request failed".into()))
        })
        .map(Outcome::Kept)
    }

    /// Tells the client's allowance, which counts no tokens where nobody has worked, also if he leaves now.
    fn say_worked_on(&mut self, worked_on: bool) {
        if let Some(in_use) = &mut self.in_use {
            in_use.worked_on(worked_on);
        }
    }

    /// What the client gets when there is no place: what an upstream of its own model has said, or that one refuses our key, unless
    /// others are there and merely busy.
    fn give_up(&mut self, no_place: Option<NoPlace>) -> Result<Outcome, Refusal> {
        let Some(no_place) = no_place else {
            return self.out_of_attempts();
        };
        let ending = no_place.ending();
        let busy = ending.class == Class::Shed || ending.reason.is_contention();
        let of_key = matches!(&self.last, Some(Err(refusal)) if refusal.reason == UPSTREAM_KEY);
        match self.last.take() {
            Some(last) if !busy && (self.last_of_own || of_key) => last.map(Outcome::Kept),
            _ => {
                let facts = self.chain.facts();
                if facts.detail != Detail::Nothing {
                    let why = self.means.places.explain(facts, NAMED);
                    self.shown.unplaced(why.as_ref().ok());
                    self.story.unplaced(why.ok());
                }
                Err(self.no_place(no_place))
            }
        }
    }

    fn unavailable(&self, reason: &'static str, message: String) -> Refusal {
        let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, reason, message);
        refusal.retry_after(self.means.options.retry_after)
    }

    fn no_place(&self, no_place: NoPlace) -> Refusal {
        let Means {
            places,
            published,
            clock,
            client,
            options,
            ..
        } = self.means;
        self.chain.refusal(
            no_place,
            &Circumstances {
                models: &options.models,
                places,
                published,
                now: clock.now(),
                retry_after: options.retry_after,
                facts: self.chain.facts(),
                client,
            },
        )
    }
}
