//! Where did each of the last requests go, and why?
//!
//! A ring of as many as are kept. How many are recorded a second is bounded, so that what it costs is: a busy router records
//! some of them, and says how many it has seen. Where nothing is recorded no request pays for it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::tape::Tape;
use crate::Moment;
use crate::config::DecisionRules;
use crate::observe::{PassedOver, Telemetry, Trail};
use crate::queue::Priority;
use crate::request::RequestFacts;
use crate::schedule::{Detail, Explained};
use crate::upstream::UpstreamId;

/// The last decisions of a router, as a [`Telemetry`] that is told of them.
///
/// ```
/// use std::sync::Arc;
/// use paddler_core::Clock;
/// use paddler_core::config::DecisionRules;
/// use paddler_core::forward::{Body, Router, RouterOptions};
/// use paddler_core::manage::{Decisions, Wanted};
/// use paddler_core::schedule::trees;
/// use paddler_core::status::StatusBoard;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let decisions = Arc::new(Decisions::new(DecisionRules::default()));
/// let mut options = RouterOptions::default();
/// options.telemetry = Some(decisions.clone());
/// options.queue.max_requests = 0;
/// let router = Router::new(StatusBoard::new(trees::gateway()).published(), Clock::new(), options);
/// let request = http::Request::post("/v1/completions").header("x-request-id", "r-1").body(Body::full(r#"{"prompt": ""}"#))?;
/// assert_eq!(router.handle(request).await.status(), 503);
///
/// let told = decisions.list(&Wanted::default(), Clock::new().now());
/// assert_eq!((told[0].id.as_str(), told[0].status), ("r-1", Some(503)));
/// assert_eq!(told[0].unplaced.as_ref().unwrap().outcome, "later", "it would have had to wait");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Decisions {
    rules: Mutex<DecisionRules>,
    /// The same, for who is in a hurry.
    keep: AtomicUsize,
    per_second: AtomicU32,
    /// The second that is counted, and how many were recorded in it.
    second: AtomicU64,
    seen: AtomicU64,
    recorded: AtomicU64,
    ring: Mutex<Ring>,
    tape: Option<Tape>,
}

#[derive(Debug, Default)]
struct Ring {
    kept: VecDeque<Arc<Trail>>,
    /// How many have gone from the front.
    gone: u64,
    /// Where each is, by id and arrival, since clients choose ids and may choose one twice: counted from the first that was ever
    /// there.
    by_key: HashMap<(Box<str>, Moment), u64>,
}

/// Which decisions are wanted.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Wanted {
    /// So many at most, the last first. `None`: all that are kept.
    pub limit: Option<usize>,
    /// Those that ask for this model.
    pub model: Option<String>,
    /// Those that were sent to this upstream, also if they were sent elsewhere afterwards.
    pub upstream: Option<String>,
}

/// A decision, with what became of the request. Times are in seconds from its arrival. Of the request it holds nothing that is
/// a prompt, and nothing that names a person.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Decision {
    /// The `x-request-id` of the request.
    pub id: String,
    /// `running`; or how it ended: `complete`, `here` (answered by the router itself), `cut_short`, `left` (by its client).
    pub state: &'static str,
    /// How long ago it arrived.
    pub age_seconds: f64,
    /// Its method.
    pub method: String,
    /// Its path.
    pub path: String,
    /// Its class, as the metrics have it.
    pub class: &'static str,
    /// The model that it asks for. Left out: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `high`, `standard` or `sheddable`.
    pub priority: &'static str,
    /// The room that it takes, in sequences.
    pub weight: u32,
    /// The tokens of its prompt, estimated.
    pub estimated_tokens: u32,
    /// Whose key it came with, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Where it was sent, in order.
    pub attempts: Vec<Attempt>,
    /// Why nobody was found for it in the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unplaced: Option<Explained>,
    /// The status of its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why it was refused here, or its answer cut short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the head of the answer was here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_seconds: Option<f64>,
    /// When the first byte of its body was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_seconds: Option<f64>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_seconds: Option<f64>,
    /// Tokens of the prompt as the answer tells them, where it is read for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
}

/// A sending of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Attempt {
    /// Where to.
    pub upstream: UpstreamId,
    /// For which model, where its own had no place for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// The models that were asked for before it, its own first, and why they did not serve it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<PassedOver>,
    /// When: what was before is waiting, or other attempts.
    pub sent_seconds: f64,
    /// How that ended: `answered`, `not_sent`, `lost`, `refused`, `broken` or `late`. Left out: it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<&'static str>,
    /// The way through the tree: what each node left, and who went out by which value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Explained>,
}

impl Decisions {
    /// An empty ring.
    pub fn new(rules: DecisionRules) -> Self {
        Self {
            keep: AtomicUsize::new(rules.keep),
            per_second: AtomicU32::new(rules.per_second),
            rules: Mutex::new(rules),
            second: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            ring: Mutex::default(),
            tape: None,
        }
    }

    /// Writes them down, too.
    #[must_use]
    pub fn taped(mut self, tape: Tape) -> Self {
        self.tape = Some(tape);
        self
    }

    /// Where they are written down, if they are.
    pub fn tape(&self) -> Option<&Tape> {
        self.tape.as_ref()
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // Nothing in here can leave it half changed that matters: an index may lead nowhere.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rules in force.
    pub fn rules(&self) -> DecisionRules {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts other rules in force. What is kept beyond them goes.
    pub fn set_rules(&self, rules: DecisionRules) {
        let keep = rules.keep;
        self.keep.store(keep, Relaxed);
        self.per_second.store(rules.per_second, Relaxed);
        *self.rules.lock().unwrap_or_else(PoisonError::into_inner) = rules;
        self.ring().shrink(keep);
    }

    /// How many requests were seen that looked for a place, and how many of them were recorded.
    pub fn counts(&self) -> (u64, u64) {
        (self.seen.load(Relaxed), self.recorded.load(Relaxed))
    }

    /// What is kept and wanted, the last first. `now`: of the router's clock.
    pub fn list(&self, wanted: &Wanted, now: Moment) -> Vec<Decision> {
        let trails: Vec<_> = {
            let ring = self.ring();
            let those = ring.kept.iter().rev().filter(|trail| wanted.has(trail));
            those.take(wanted.limit.unwrap_or(usize::MAX)).cloned().collect()
        };
        trails.iter().map(|trail| Decision::of(trail, now)).collect()
    }

    /// The last one with this id, if it is kept.
    pub fn find(&self, id: &str, now: Moment) -> Option<Decision> {
        let trail = {
            let ring = self.ring();
            ring.kept.iter().rev().find(|trail| &*trail.id == id)?.clone()
        };
        Some(Decision::of(&trail, now))
    }

    fn write(&self, trail: &Trail) {
        let is_recorded = |facts: &RequestFacts| facts.detail != Detail::Nothing;
        if trail.facts.as_ref().is_some_and(is_recorded) {
            let written = without_records(trail);
            // What was there before is dropped without the lock.
            let _before = self.ring().write(written, self.keep.load(Relaxed));
        }
    }

    /// Whether one more may be recorded in the second of this moment.
    fn has_room(&self, now: Moment, per_second: u32) -> bool {
        // Both in one word: the second above, how many in it below.
        let second = (now.as_nanos() / 1_000_000_000) & u64::from(u32::MAX);
        let one_more = |word: u64| {
            let so_far = if word >> 32 == second {
                word & u64::from(u32::MAX)
            } else {
                0
            };
            (so_far < u64::from(per_second)).then_some(second << 32 | (so_far + 1))
        };
        self.second.fetch_update(Relaxed, Relaxed, one_more).is_ok()
    }
}

impl Telemetry for Decisions {
    fn every(&self) -> bool {
        false
    }

    fn detail(&self, facts: &RequestFacts) -> Detail {
        self.seen.fetch_add(1, Relaxed);
        let is_kept = self.keep.load(Relaxed) > 0 || self.tape.is_some();
        if !is_kept || !self.has_room(facts.arrived, self.per_second.load(Relaxed)) {
            return Detail::Nothing;
        }
        self.recorded.fetch_add(1, Relaxed);
        if self.tape.as_ref().is_some_and(Tape::is_open) {
            Detail::Record
        } else {
            Detail::Why
        }
    }

    fn placed(&self, trail: &Trail) {
        if let Some(tape) = &self.tape {
            tape.write(trail);
        }
        self.write(trail);
    }

    fn ended(&self, trail: &Trail) {
        self.write(trail);
    }
}

/// The trail without what is as large as the pool.
fn without_records(trail: &Trail) -> Arc<Trail> {
    let mut written = trail.clone();
    for why in written.attempts.iter_mut().filter_map(|sent| sent.why.as_mut()) {
        (why.record, why.snapshot) = (None, None);
    }
    Arc::new(written)
}

impl Ring {
    /// Where the one with this number stands now.
    fn at(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.gone)?).ok()
    }

    /// Writes what has become of a request, in the place of what was known of it, which it gives back.
    fn write(&mut self, written: Arc<Trail>, keep: usize) -> Option<Arc<Trail>> {
        let key = (written.id.clone(), written.arrived);
        let known = self.by_key.get(&key).and_then(|number| self.at(*number));
        if let Some(place) = known.and_then(|at| self.kept.get_mut(at)) {
            return Some(std::mem::replace(place, written));
        }
        let number = self.gone + self.kept.len() as u64;
        self.by_key.insert(key, number);
        self.kept.push_back(written);
        self.shrink(keep);
        None
    }

    fn shrink(&mut self, keep: usize) {
        while self.kept.len() > keep {
            let Some(first) = self.kept.pop_front() else {
                return;
            };
            let key = (first.id.clone(), first.arrived);
            if self.by_key.get(&key) == Some(&self.gone) {
                self.by_key.remove(&key);
            }
            self.gone += 1;
        }
    }
}

impl Wanted {
    fn has(&self, trail: &Trail) -> bool {
        let asked = trail.facts.as_ref().and_then(|facts| facts.model.as_deref());
        let is_sent = |id: &String| trail.attempts.iter().any(|sent| sent.upstream.as_str() == id);
        self.model.as_deref().is_none_or(|model| asked == Some(model))
            && self.upstream.as_ref().is_none_or(is_sent)
    }
}

impl Decision {
    fn of(trail: &Trail, now: Moment) -> Self {
        let seconds = |at: Moment| at.since(trail.arrived).as_secs_f64();
        let attempt = |sent: &crate::observe::TrailAttempt| Attempt {
            upstream: sent.upstream.clone(),
            fallback: sent.model.as_deref().map(str::to_owned),
            passed_over: sent.passed_over.clone(),
            sent_seconds: seconds(sent.at),
            ended: sent.ended,
            why: sent.why.as_ref().map(|why| why.explained.clone()),
        };
        let facts = trail.facts.clone().unwrap_or_default();
        Self {
            id: trail.id.to_string(),
            state: trail.end.map_or("running", |end| end.as_str()),
            age_seconds: now.since(trail.arrived).as_secs_f64(),
            method: trail.method.to_string(),
            path: trail.path.to_string(),
            class: trail.class,
            model: facts.model.as_deref().map(str::to_owned),
            priority: Priority::of(facts.priority).as_str(),
            weight: facts.weight,
            estimated_tokens: facts.tokens,
            client: trail.client.as_deref().map(str::to_owned),
            attempts: trail.attempts.iter().map(attempt).collect(),
            unplaced: trail.unplaced.as_deref().cloned(),
            status: trail.status,
            reason: trail.reason.as_deref().map(str::to_owned),
            answered_seconds: trail.answered.map(seconds),
            first_byte_seconds: trail.first_byte.map(seconds),
            ended_seconds: trail.ended.map(seconds),
            prompt_tokens: trail.prompt_tokens,
            output_tokens: trail.output_tokens,
        }
    }
}

#[cfg(test)]
mod tests;
