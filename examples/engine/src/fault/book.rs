//! Which faults are in force, and which of them hit this request?

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::{Fault, FaultRule};
use crate::text::{mix, unit};

/// The rules in force.
#[derive(Debug)]
pub(crate) struct FaultBook {
    rules: Mutex<Vec<Active>>,
    seed: u64,
}

#[derive(Debug)]
struct Active {
    rule: FaultRule,
    until: Option<Instant>,
    /// Requests of its scope so far.
    seen: u64,
}

impl Active {
    /// Whether it hits the next request of its scope.
    fn hits(&mut self, seed: u64) -> bool {
        let number = self.seen;
        self.seen += 1;
        let Some(since) = number.checked_sub(u64::from(self.rule.after)) else {
            return false;
        };
        since.is_multiple_of(u64::from(self.rule.every.max(1)))
            && (self.rule.chance >= 1.0 || unit(seed ^ mix(number)) < self.rule.chance)
    }

    fn use_up(&mut self) {
        if let Some(times) = &mut self.rule.times {
            *times = times.saturating_sub(1);
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.rule.times == Some(0) || self.until.is_some_and(|until| until <= now)
    }
}

/// Whether the listener must be closed, and until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    No,
    Until(Instant),
    UntilCleared,
}

impl FaultBook {
    /// An empty book whose draws depend on this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rules: Mutex::default(),
            seed,
        }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Vec<Active>, Instant) -> R) -> R {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        rules.retain(|active| !active.is_over(now));
        act(&mut rules, now)
    }

    /// Puts a rule beside those in force.
    pub(crate) fn add(&self, rule: FaultRule) {
        self.with(|rules, now| {
            let until = rule.lasting.and_then(|time| now.checked_add(time));
            rules.push(Active { rule, until, seen: 0 });
        });
    }

    /// Ends all rules.
    pub(crate) fn clear(&self) {
        self.with(|rules, _| rules.clear());
    }

    /// The rules in force, with the `times` that are left.
    pub(crate) fn list(&self) -> Vec<FaultRule> {
        self.with(|rules, _| rules.iter().map(|active| active.rule.clone()).collect())
    }

    /// The faults that hit this request; each that does is used up by one.
    pub(crate) fn take(&self, inference: bool, path: &str) -> Vec<Fault> {
        self.with(|rules, _| {
            let mut hit = Vec::new();
            for active in rules
                .iter_mut()
                .filter(|active| active.rule.on.covers(inference, path))
            {
                let is_about_requests = !matches!(active.rule.fault, Fault::Refuse | Fault::HangUp);
                if is_about_requests && active.hits(self.seed) {
                    active.use_up();
                    hit.push(active.rule.fault.clone());
                }
            }
            hit
        })
    }

    /// Whether the connection that was just accepted is to be reset.
    pub(crate) fn hangs_up(&self) -> bool {
        self.with(|rules, _| {
            let mut all = rules.iter_mut();
            let hangs_up = all.find(|active| active.rule.fault == Fault::HangUp);
            hangs_up.map(Active::use_up).is_some()
        })
    }

    /// Whether new connections are to be refused.
    pub(crate) fn refusal(&self) -> Refusal {
        self.with(|rules, _| {
            let refusing: Vec<_> = rules
                .iter()
                .filter(|active| active.rule.fault == Fault::Refuse)
                .collect();
            if refusing.iter().any(|active| active.until.is_none()) {
                return Refusal::UntilCleared;
            }
            refusing
                .iter()
                .filter_map(|active| active.until)
                .max()
                .map_or(Refusal::No, Refusal::Until)
        })
    }
}
