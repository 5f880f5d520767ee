//! Which model is asked for when the one that a request is for has no place?
//!
//! [`Fallback`] says in which order they are asked. All of it is one request: it keeps its class, its tenant and how long it may
//! wait in all, stands in the queue once at a time, and goes by one tree; only the model is another.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use super::no_place::Circumstances;
use super::refusal::Refusal;
use super::waiting::{NEVER, NoPlace, Place, Places};
use crate::Moment;
use crate::clock::Clock;
use crate::observe::PassedOver;
use crate::queue::Tried;
use crate::request::{Fallback, ModelRules, RequestFacts};
use crate::schedule::Class;

/// How often all are asked anew, since the one that was waited for has gone. Upstreams come and go by the minute, if at all.
const ROUNDS: u32 = 8;

/// The models that may serve a request, and the one that is asked for now.
#[derive(Debug)]
pub(super) struct Chain<'a> {
    own: &'a RequestFacts,
    facts: Cow<'a, RequestFacts>,
    others: Vec<Arc<str>>,
    patience: Duration,
    /// The name of the rule that says so.
    rule: Option<Arc<str>>,
    /// 0: its own.
    at: usize,
    /// What came last of each that was asked, in the order of the chain.
    ended: Vec<Ended>,
    /// All were asked, and this one is waited for as by any other request.
    settled: bool,
    /// How often all were asked anew.
    rounds: u32,
}

/// What came of asking for a model.
#[derive(Debug)]
struct Ended {
    at: usize,
    /// Why there was no place. `None`: there were places, and no answer in all attempts.
    no_place: Option<NoPlace>,
}

impl<'a> Chain<'a> {
    /// Its own model, and no other.
    pub(super) fn alone(own: &'a RequestFacts) -> Self {
        Self {
            own,
            facts: Cow::Borrowed(own),
            others: Vec::new(),
            patience: Duration::ZERO,
            rule: None,
            at: 0,
            ended: Vec::new(),
            settled: false,
            rounds: 0,
        }
    }

    /// Its own model, and what these rules say after it.
    pub(super) fn of(own: &'a RequestFacts, rules: &ModelRules, clock: Clock) -> Self {
        Self::with(own, rules, clock, None)
    }

    /// The same for a request that goes to whoever keeps what it builds on, and to nobody else. If another model has made that,
    /// it is the one that is there. However busy it is, nothing else is waited for.
    pub(super) fn bound(own: &'a RequestFacts, rules: &ModelRules, clock: Clock) -> Self {
        Self::with(own, rules, clock, Some(Duration::MAX))
    }

    fn with(own: &'a RequestFacts, rules: &ModelRules, clock: Clock, patience: Option<Duration>) -> Self {
        let mut chain = Self::alone(own);
        let wanted = patience;
        if let Some(fallback) = rules.fallback(own) {
            let Fallback {
                models,
                patience,
                rule,
            } = fallback;
            (chain.others, chain.rule) = (models, Some(rule));
            chain.patience = wanted.unwrap_or(patience);
            let until = chain.until(0, clock.now());
            chain.ask(0, Some(until));
        }
        chain
    }

    /// The request as it asks now.
    pub(super) fn facts(&self) -> &RequestFacts {
        &self.facts
    }

    /// The model that serves it instead of its own, and the name of the rule that says so; `None`: it asks for its own.
    pub(super) fn instead(&self) -> Option<(&Arc<str>, &Arc<str>)> {
        let other = self.at.checked_sub(1).and_then(|at| self.others.get(at))?;
        Some((other, self.rule.as_ref()?))
    }

    /// The model that it is for.
    pub(super) fn own_model(&self) -> Option<&str> {
        self.own.model.as_deref()
    }

    /// Whether it asks for its own model now.
    pub(super) fn is_own(&self) -> bool {
        self.at == 0
    }

    /// Whether other models may serve it.
    pub(super) fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    /// A place for the model that is asked for or, where that has none, for the next one that has. [`facts`](Self::facts) says which it is.
    ///
    /// # Errors
    /// Why the request is refused, which is about the model that it asks for then; `None`: there was no answer in all attempts at
    /// its own model, and no place otherwise. Dropped, it has left the queue, and goes on where it was.
    pub(super) async fn place(
        &mut self,
        places: &Places,
        tried: &Tried,
        clock: Clock,
    ) -> Result<Place, Option<NoPlace>> {
        loop {
            let no_place = match places.place(&self.facts, tried).await {
                Ok(place) => return Ok(place),
                Err(no_place) => no_place,
            };
            if !self.has_others() {
                return Err(Some(no_place));
            }
            if !self.end(Some(no_place), clock.now()) {
                return Err(self.told());
            }
        }
    }

    /// There was no answer in all attempts at the model that is asked for. Says whether there is another one to ask.
    pub(super) fn give_up(&mut self, now: Moment) -> bool {
        self.has_others() && self.end(None, now)
    }

    /// Goes on behind the model that is asked for now, if there is another one to ask.
    fn end(&mut self, no_place: Option<NoPlace>, now: Moment) -> bool {
        let at = self.at;
        let is_news = no_place
            .as_ref()
            .is_some_and(|no_place| no_place.ending().class != Class::Later);
        // The last word of each counts.
        self.ended.retain(|ended| ended.at != at);
        let behind = self.ended.partition_point(|ended| ended.at < at);
        self.ended.insert(behind, Ended { at, no_place });
        if self.settled {
            // Who was waited for will not serve it after all. Others may have come meanwhile.
            let anew = is_news && self.rounds < ROUNDS;
            if anew {
                (self.settled, self.rounds) = (false, self.rounds + 1);
                self.ended.clear();
                self.ask(0, Some(self.until(0, now)));
            }
            return anew;
        }
        if at < self.others.len() {
            self.ask(at + 1, Some(self.until(at + 1, now)));
            return true;
        }
        self.settled = true;
        let last = self.waits_for();
        if let Some(at) = last {
            self.ask(at, None);
        }
        last.is_some()
    }

    /// Until when a model is waited for that is asked for from now on. Behind the last one there is nobody else to ask in time.
    fn until(&self, at: usize, now: Moment) -> Moment {
        if at < self.others.len() {
            now.saturating_add(self.patience)
        } else {
            NEVER
        }
    }

    /// Which one to wait for, when all were asked: the last whose upstreams are merely busy; if there is none, the first that
    /// may have a place later.
    fn waits_for(&self) -> Option<usize> {
        let later = self.ended.iter().filter_map(|ended| match &ended.no_place {
            Some(NoPlace::Ending { ending, .. }) if ending.class == Class::Later => {
                Some((ended.at, ending.reason.is_contention()))
            }
            _ => None,
        });
        let busy = later.clone().rev().find(|(_, busy)| *busy);
        busy.or_else(|| later.into_iter().next()).map(|(at, _)| at)
    }

    /// Asks for this one.
    fn ask(&mut self, at: usize, patience: Option<Moment>) {
        let other = at.checked_sub(1).and_then(|at| self.others.get(at));
        let mut facts = other.map_or_else(|| self.own.clone(), |other| self.own.instead(other));
        facts.patience = patience;
        (self.at, self.facts) = (at, Cow::Owned(facts));
    }

    /// Why it is refused: as its own model has it or, where nobody could ever serve that, the first that somebody could.
    fn told(&mut self) -> Option<NoPlace> {
        let mut said = self
            .ended
            .iter()
            .filter_map(|ended| Some((ended.at, ended.no_place.as_ref()?)));
        let own = said.clone().next().filter(|(at, _)| *at == 0)?;
        let could = said.find(|(_, no_place)| no_place.ending().class != Class::Never);
        let (at, no_place) = could.unwrap_or(own);
        let no_place = no_place.clone();
        self.ask(at, None);
        Some(no_place)
    }

    /// What the client is told who has no place: why, and what else was asked for.
    pub(super) fn refusal(&self, no_place: NoPlace, known: &Circumstances<'_>) -> Refusal {
        let mut refusal = no_place.refusal(known);
        if let Some(besides) = self.besides() {
            refusal.message = format!("{}; asked for as well: {besides}", refusal.message);
        }
        refusal
    }

    /// Which other models were asked for, and why those did not serve it, for a person. `None`: none.
    fn besides(&self) -> Option<String> {
        let passed = self.passed_over();
        let each = passed
            .iter()
            .map(|PassedOver { model, reason }| format!("{model:?} ({reason})"));
        let each: Vec<_> = each.collect();
        (!each.is_empty()).then(|| each.join(", "))
    }

    /// Which models were asked for besides the one that is asked for now, in order.
    pub(super) fn passed_over(&self) -> Vec<PassedOver> {
        let others = self.ended.iter().filter(|ended| ended.at != self.at);
        let each = others.filter_map(|Ended { at, no_place }| {
            let model = match at.checked_sub(1) {
                Some(other) => self.others.get(other),
                None => self.own.model.as_ref(),
            };
            let reason = no_place
                .as_ref()
                .map_or("no_answer", |no_place| no_place.ending().reason.as_str());
            Some(PassedOver {
                model: model?.clone(),
                reason: reason.into(),
            })
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests;
