//! What becomes of one upstream, fault by fault?

use std::time::Duration;

use super::groups::{Serves, Standing};
use super::{Cause, Fault, HealthState, UpstreamHealth};
use crate::Moment;
use crate::config::HealthRules;
use crate::upstream::UpstreamId;

/// Time in service that makes one ejection forgotten, so that the next one is shorter again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Times double no more often than this: they are at their longest long before.
const DOUBLINGS: u32 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Healthy,
    Ejected(Ejected),
    /// After it was ejected for this.
    Probing(Cause),
    Warming {
        since: Moment,
    },
}

/// A time out, and what it rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ejected {
    pub(super) cause: Cause,
    pub(super) since: Moment,
    pub(super) until: Moment,
    undo: Option<Undo>,
}

/// What it goes back to if fewer of its faults stand than are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Undo {
    state: Before,
    level: u32,
    needed: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Healthy,
    Probing(Cause),
    Warming { since: Moment },
}

/// A fault in a row.
#[derive(Debug, Clone, Copy)]
struct Counted {
    number: u64,
    /// The request, where it may be the request's own fault.
    request: Option<u64>,
    /// The answer had begun.
    cut_short: bool,
}

/// One upstream.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: UpstreamId,
    pub(super) tenancy: u16,
    /// By its own word and the operator's it can be sent work.
    pub(super) usable: bool,
    /// What it takes at once when it is warm.
    pub(super) room: u32,
    pub(super) serves: Serves,
    /// It is out, and somebody could be served by nobody else.
    pub(super) last_resort: bool,
    pub(super) joined: Moment,
    pub(super) state: State,
    pub(super) paused_until: Option<Moment>,
    /// Faults of this interval.
    pub(super) failed: u32,
    row: Vec<Counted>,
    /// How often the next time out is doubled.
    level: u32,
    /// When it was last let back in.
    returned: Moment,
    ejections: u64,
}

/// What is known against an upstream that has left, for when it comes back.
#[derive(Debug)]
pub(crate) struct Past(Member);

impl Past {
    /// It is back, as who it was.
    pub(super) fn back(self, tenancy: u16, serves: Serves, now: Moment) -> Member {
        Member {
            tenancy,
            serves,
            joined: now,
            ..self.0
        }
    }
}

impl Member {
    /// Of which nothing is known but what it serves.
    pub(super) fn new(id: UpstreamId, tenancy: u16, serves: Serves, now: Moment) -> Self {
        Self {
            id,
            tenancy,
            usable: false,
            room: 1,
            serves,
            last_resort: false,
            joined: now,
            state: State::Healthy,
            paused_until: None,
            failed: 0,
            row: Vec::new(),
            level: 0,
            returned: now,
            ejections: 0,
        }
    }

    /// It has left: what is to be known of it if it comes back, unless there is nothing against it.
    pub(super) fn past(self) -> Option<Past> {
        let spotless =
            !self.is_out() && self.row.is_empty() && self.level == 0 && self.paused_until.is_none();
        let state = match self.state {
            // Whether it begins slowly is for its return to say.
            State::Warming { .. } => State::Healthy,
            state => state,
        };
        let past = Self {
            usable: false,
            serves: Serves::default(),
            failed: 0,
            state,
            ..self
        };
        (!spotless).then_some(Past(past))
    }

    /// Whether it gets nothing, or no more than one request at a time.
    pub(super) fn is_out(&self) -> bool {
        matches!(self.state, State::Ejected(_) | State::Probing(_))
    }

    /// What it is to those who could be served by it.
    pub(super) fn standing(&self) -> Standing {
        match self.usable {
            false => Standing::Unusable,
            true if self.is_out() => Standing::Out,
            true => Standing::In,
        }
    }

    /// Whether its next good answer changes anything.
    pub(super) fn is_watched(&self) -> bool {
        self.is_out() || !self.row.is_empty()
    }

    /// Counts a fault in a row; says whether the row is long enough now to eject.
    pub(super) fn count(&mut self, fault: Fault, number: u64, rules: &HealthRules) -> bool {
        let request = match fault {
            Fault::Failed { request } => Some(request),
            _ => None,
        };
        let known = |one: &Counted| request.is_some() && one.request == request;
        if !self.row.iter().any(known) {
            self.row.push(Counted {
                number,
                request,
                cut_short: fault == Fault::CutShort,
            });
        }
        let most = rules.eject_after.max(1) as usize;
        let over = self.row.len().saturating_sub(most);
        self.row.drain(..over);
        self.row.len() >= most
    }

    /// An answer has begun, or come to its end.
    pub(super) fn end_row(&mut self, whole: bool) {
        self.row.retain(|one| one.cut_short && !whole);
    }

    /// The probe has failed: what it is ejected for is this fault alone.
    pub(super) fn count_alone(&mut self, fault: Fault, number: u64, rules: &HealthRules) {
        self.row.clear();
        self.count(fault, number, rules);
    }

    /// Out, for a time that has doubled with each ejection that is not forgotten yet.
    pub(super) fn eject(&mut self, cause: Cause, now: Moment, rules: &HealthRules) {
        let forgotten = now.since(self.returned).as_nanos() / FORGOTTEN_AFTER.as_nanos();
        let in_service = !matches!(self.state, State::Probing(_));
        let level = if in_service {
            self.level
                .saturating_sub(u32::try_from(forgotten).unwrap_or(u32::MAX))
        } else {
            self.level
        };
        let time = first_time(cause, rules)
            .saturating_mul(1 << level.min(DOUBLINGS))
            .min(longest_time(cause, rules));
        let before = match (self.state, cause) {
            // Neither is a matter of single faults.
            (_, Cause::Unreachable | Cause::SuccessRate) | (State::Ejected(_), _) => None,
            (State::Healthy, _) => Some(Before::Healthy),
            (State::Probing(cause), _) => Some(Before::Probing(cause)),
            (State::Warming { since }, _) => Some(Before::Warming { since }),
        };
        let undo = before.map(|state| Undo {
            state,
            level: self.level,
            needed: self.row.len(),
        });
        self.level = level.saturating_add(1);
        self.ejections += 1;
        self.state = State::Ejected(Ejected {
            cause,
            since: now,
            until: now.saturating_add(time),
            undo,
        });
    }

    /// Other rules hold: what has been measured by the old ones lasts no longer than it may by these.
    pub(super) fn shorten(&mut self, rules: &HealthRules, now: Moment) {
        let longest = now.saturating_add(rules.longest_time);
        self.paused_until = self.paused_until.map(|until| until.min(longest));
        if let State::Ejected(Ejected {
            cause, since, until, ..
        }) = &mut self.state
        {
            *until = (*until).min(since.saturating_add(longest_time(*cause, rules)));
        }
    }

    /// A fault was none of its own. Returns whether an ejection rested on it, and is lifted.
    pub(super) fn forgive(&mut self, number: u64) -> bool {
        let before = self.row.len();
        self.row.retain(|one| one.number != number);
        if self.row.len() == before {
            return false;
        }
        let State::Ejected(Ejected { undo: Some(undo), .. }) = self.state else {
            return false;
        };
        if self.row.len() >= undo.needed {
            return false;
        }
        self.level = undo.level;
        self.state = match undo.state {
            Before::Healthy => State::Healthy,
            Before::Probing(cause) => State::Probing(cause),
            Before::Warming { since } => State::Warming { since },
        };
        true
    }

    /// Back in service: all of it, or slowly.
    pub(super) fn give_back(&mut self, slowly: bool, now: Moment) {
        self.row.clear();
        self.returned = now;
        self.state = if slowly {
            State::Warming { since: now }
        } else {
            State::Healthy
        };
    }

    /// What it may take while it warms up: a part of its room that grows with time, and at least 1.
    pub(super) fn cap(&self, slow_start: Duration, now: Moment) -> Option<u32> {
        let State::Warming { since } = self.state else {
            return None;
        };
        let share = now.since(since).as_secs_f64() / slow_start.as_secs_f64().max(f64::MIN_POSITIVE);
        (share < 1.0).then(|| ((f64::from(self.room) * share) as u32).max(1))
    }

    /// For how long it is out, if it is so since this very moment.
    pub(super) fn ejected_at(&self, now: Moment) -> Option<Duration> {
        match self.state {
            State::Ejected(ejected) if ejected.since == now => Some(ejected.until.since(now)),
            _ => None,
        }
    }

    pub(super) fn health(&self, slow_start: Duration) -> UpstreamHealth {
        let state = match self.state {
            State::Healthy => HealthState::Healthy,
            State::Ejected(Ejected { cause, until, .. }) => HealthState::Ejected { cause, until },
            State::Probing(_) => HealthState::Probing,
            State::Warming { since } => HealthState::Warming {
                until: since.saturating_add(slow_start),
            },
        };
        UpstreamHealth {
            state,
            last_resort: self.last_resort,
            paused_until: self.paused_until,
            faults: u32::try_from(self.row.len()).unwrap_or(u32::MAX),
            ejections: self.ejections,
        }
    }
}

/// How long it is out the first time.
fn first_time(cause: Cause, rules: &HealthRules) -> Duration {
    match cause {
        Cause::Unreachable => rules.unreachable_time,
        _ => rules.eject_time,
    }
}

fn longest_time(cause: Cause, rules: &HealthRules) -> Duration {
    rules.longest_time.max(first_time(cause, rules))
}
