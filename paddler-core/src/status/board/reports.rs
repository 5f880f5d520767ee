//! What follows from what an upstream says, or does not?

use std::sync::Arc;

use super::{Applied, StatusBoard};
use crate::Moment;
use crate::status::snapshot::UNREACHABLE_AFTER;
use crate::status::{Degraded, Failure, FailureKind, Health, Report};
use crate::upstream::{SampleToken, UpstreamId};

impl StatusBoard {
    pub(super) fn report(
        &mut self,
        id: UpstreamId,
        report: Report,
        asked: Option<SampleToken>,
        now: Moment,
    ) -> Applied {
        let ledger = self.ledger.clone();
        let Some((index, entry)) = self.entry_mut(&id) else {
            return Applied::Unknown(id);
        };
        let place = (index.0, entry.tenancy);
        if asked.is_some_and(|token| (token.place, token.tenancy) != place || token.sequence < entry.sample) {
            return Applied::Overtaken(id);
        }
        let token = asked.unwrap_or_else(|| ledger.sample(index.0, entry.tenancy, now));
        let reported = reported_weight(&report);
        entry.others = reported.map_or(0, |reported| reported.saturating_sub(token.own));
        entry.reported_at = token.asked_at();
        entry.sample = token.sequence;
        entry.failures = 0;
        entry.refused = 0;
        entry.last_failure = None;
        let health = report.health;
        let was_ready = entry.report().and_then(|report| report.health) == Some(Health::Ready);
        let became_ready = health == Some(Health::Ready) && !was_ready;
        // What others tell of it says nothing of our connections.
        let asked_at = asked.filter(|token| token.told.is_none()).map(|token| token.at);
        let degraded = newly_degraded(entry.report(), &report);
        let says_the_same = |old: &Report| old.models == report.models && old.adapters == report.adapters;
        let same_names = entry.report().is_some_and(says_the_same);
        if !(report.rooms.is_empty() && entry.rooms.is_empty()) {
            entry.rooms = Arc::new(entry.rooms.told(&report.rooms, token.sequence));
        }
        entry.report = Some(Arc::new(report));
        ledger.set_limit(index.0, entry.own_limit());
        if !same_names {
            self.gathered = None;
            self.tell_models(index);
        }
        self.judge(index, became_ready);
        if let Some(asked_at) = asked_at {
            self.health.polled(index.0, asked_at, self.now);
        }
        // Who spoke unasked may have looked before the last ends, so that proves no room.
        if let (Some(token), Some(reported)) = (asked.filter(SampleToken::proves_room), reported) {
            ledger.settle(token, reported);
        }
        Applied::Reported { id, health, degraded }
    }

    pub(super) fn failed(&mut self, id: UpstreamId, failure: Failure) -> Applied {
        let ledger = self.ledger.clone();
        let Some((index, entry)) = self.entry_mut(&id) else {
            return Applied::Unknown(id);
        };
        entry.failures = entry.failures.saturating_add(1);
        // While requests of ours are open there, somebody is: a full backlog makes what is known stale, no more. If he is
        // gone all the same, they break off, and the next one finds it out.
        let works = ledger.own_load(index).requests > 0;
        entry.refused = match failure.kind {
            FailureKind::Unreachable if works => entry.refused,
            FailureKind::Unreachable => entry.refused.saturating_add(1),
            // Who tells of it was waited for long enough.
            FailureKind::Silent => UNREACHABLE_AFTER,
            FailureKind::Timeout | FailureKind::Unreadable => 0,
        };
        entry.last_failure = Some(failure.clone());
        let failures = entry.failures;
        self.judge(index, false);
        Applied::Failed {
            id,
            failures,
            failure,
        }
    }
}

/// All weight that the engine says it has, in whatever terms it speaks; unknown if it does not say.
fn reported_weight(report: &Report) -> Option<u32> {
    let running = report.slots_busy.or(report.running)?;
    Some(running.saturating_add(report.waiting.unwrap_or(0)))
}

/// What is looked for and not found now, and was found before. That it is not found in another way is not news.
fn newly_degraded(before: Option<&Report>, report: &Report) -> Vec<Degraded> {
    let known = |one: &Degraded| {
        let same = |old: &Degraded| (old.signal, &old.expected) == (one.signal, &one.expected);
        before.is_some_and(|before| before.degraded.iter().any(same))
    };
    report
        .degraded
        .iter()
        .filter(|one| !known(one))
        .cloned()
        .collect()
}
