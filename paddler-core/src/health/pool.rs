//! What does a fault of one upstream mean for all of them?

mod members;

use std::time::Duration;

use super::groups::{Count, Groups, Standing};
use super::member::{Ejected, Member, State};
use super::{Cause, Fault, PoolHealth, UpstreamHealth, rates};
use crate::Moment;
use crate::config::HealthRules;
use crate::upstream::Gate;

/// How often a limit that grows is looked at.
const STEP: Duration = Duration::from_millis(250);

/// How long a probe may hold up others while its engine answers polls. An engine that cannot take a request refuses it or
/// breaks within seconds; what goes on for longer is a long prompt or an answer that comes in one piece.
const PROBE: Duration = Duration::from_secs(10);

/// The longest that an upstream gets nothing from anybody because of what it has told one: it may mean that request alone,
/// and does not say so. The request itself stays away for as long as it is told.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// The machine. Pure; whoever drives it puts the gates in force.
#[derive(Debug)]
pub(super) struct Pool {
    rules: HealthRules,
    /// By place.
    members: Vec<Option<Member>>,
    groups: Groups,
    /// How many are a last resort.
    last_resorts: u32,
    faults: u64,
    /// The first fault of the interval.
    interval_faults: u64,
    interval_began: Moment,
    /// When the first of all members joined.
    began: Option<Moment>,
    totals: PoolHealth,
    /// Places whose gates may have to change.
    touched: Vec<u32>,
    /// The latest moment that it was told.
    now: Moment,
}

impl Pool {
    pub(super) fn new(rules: HealthRules) -> Self {
        Self {
            rules,
            members: Vec::new(),
            groups: Groups::default(),
            last_resorts: 0,
            faults: 0,
            interval_faults: 0,
            interval_began: Moment::ZERO,
            began: None,
            totals: PoolHealth::default(),
            touched: Vec::new(),
            now: Moment::ZERO,
        }
    }

    /// The later of this moment and the latest so far: the end of a lease has no clock.
    pub(super) fn now(&mut self, now: Moment) -> Moment {
        self.now = self.now.max(now);
        self.now
    }

    pub(super) fn set_rules(&mut self, rules: HealthRules, now: Moment) {
        self.rules = rules;
        for member in self.members.iter_mut().flatten() {
            member.shorten(&rules, now);
        }
    }

    pub(super) fn totals(&self) -> PoolHealth {
        PoolHealth {
            panicking: self.last_resorts > 0,
            ..self.totals
        }
    }

    pub(super) fn places(&self) -> usize {
        self.members.len()
    }

    pub(super) fn member(&self, place: u32) -> Option<&Member> {
        self.members.get(place as usize)?.as_ref()
    }

    pub(super) fn touch_all(&mut self) {
        self.touched = (0u32..).take(self.members.len()).collect();
    }

    /// The places whose gates may have to change since this was last asked.
    pub(super) fn take_touched(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.touched)
    }

    pub(super) fn health(&self, place: u32) -> Option<UpstreamHealth> {
        Some(self.member(place)?.health(self.rules.slow_start))
    }

    /// It has answered a poll that was sent at `asked`: connections can be made again, and whoever has worked on a probe
    /// for long, since `probe_began`, is at it and well. But who was ejected for silence did that before, too.
    /// Returns whether it is let back in by that.
    pub(super) fn polled(
        &mut self,
        place: u32,
        asked: Moment,
        probe_began: Option<Moment>,
        now: Moment,
    ) -> bool {
        let slowly = self.comes_back_slowly(place, now);
        let lasts = probe_began.is_some_and(|began| asked.since(began) >= PROBE);
        let back = self.change(place, |member| match member.state {
            State::Ejected(Ejected {
                cause: Cause::Unreachable,
                since,
                ..
            }) if since <= asked => {
                member.state = State::Probing(Cause::Unreachable);
                false
            }
            State::Probing(cause) if lasts && member.usable && cause != Cause::Late => {
                member.give_back(slowly, now);
                true
            }
            _ => false,
        });
        back.unwrap_or(false)
    }

    /// A good answer. `probe`: to the one request that was let in. Returns whether it is let back in by that.
    pub(super) fn answered(&mut self, place: u32, tenancy: u16, probe: bool, now: Moment) -> bool {
        let slowly = self.comes_back_slowly(place, now);
        let back = self.change_of((place, tenancy), |member| {
            let back = match member.state {
                State::Probing(_) => probe || member.last_resort,
                // Only as a last resort was it asked at all; an answer to an earlier request says nothing of now.
                State::Ejected(_) => member.last_resort,
                State::Healthy | State::Warming { .. } => {
                    member.end_row(false);
                    false
                }
            };
            if back {
                member.give_back(slowly, now);
            }
            back
        });
        back.unwrap_or(false)
    }

    /// An answer has come to its end.
    pub(super) fn completed(&mut self, place: u32, tenancy: u16) {
        self.change_of((place, tenancy), |member| {
            if !member.is_out() {
                member.end_row(true);
            }
        });
    }

    /// A fault. Returns its number, by which it can be taken back.
    pub(super) fn fault(
        &mut self,
        place: u32,
        tenancy: u16,
        fault: Fault,
        probe: bool,
        now: Moment,
    ) -> Option<u64> {
        let (rules, number) = (self.rules, self.faults);
        let (was_in, full) = self.change_of((place, tenancy), |member| {
            member.failed = member.failed.saturating_add(1);
            let full = match member.state {
                // An answer to a request of before its ejection.
                State::Ejected(_) => false,
                State::Probing(_) if !probe => false,
                State::Probing(_) => {
                    member.count_alone(fault, number, &rules);
                    true
                }
                State::Healthy | State::Warming { .. } => member.count(fault, number, &rules),
            };
            (!member.is_out(), full)
        })?;
        self.faults += 1;
        let unreachable = was_in && fault == Fault::Unreachable;
        if unreachable || (full && (!was_in || self.may_eject(place))) {
            self.eject(place, Cause::from(fault), now);
        } else if full {
            self.totals.spared += 1;
        }
        Some(number)
    }

    fn eject(&mut self, place: u32, cause: Cause, now: Moment) {
        let rules = self.rules;
        self.totals.ejections[cause as usize] += 1;
        self.change(place, |member| member.eject(cause, now, &rules));
    }

    /// Whether this one may be ejected for what it answered: never more than the largest share of those that could serve
    /// the same model, but one where there are two. A model that nobody else is in for is no reason to eject, and none
    /// against it: whoever asks for that is sent there all the same.
    ///
    /// Whoever cannot be reached is out in any case: to count it in would not make it serve, and each request would pay
    /// for finding out.
    fn may_eject(&self, place: u32) -> bool {
        let Some(member) = self.member(place) else {
            return false;
        };
        let own = u32::from(member.standing() == Standing::In);
        let mut others = false;
        let room = |count: Count| {
            if count.inside() == own {
                return true;
            }
            others = true;
            let share = (self.rules.largest_share * f64::from(count.usable)) as u32;
            let least = u32::from(self.rules.largest_share > 0.0);
            count.out < share.max(least)
        };
        self.groups.each(&member.serves, room) && others
    }

    /// It has asked to be left alone for so long.
    pub(super) fn pause(&mut self, place: u32, tenancy: u16, asked: Duration, now: Moment) {
        let longest = self.rules.longest_time.min(LONGEST_PAUSE);
        self.change_of((place, tenancy), |member| {
            let until = now.saturating_add(asked.min(longest));
            member.paused_until = member.paused_until.max(Some(until));
        });
    }

    pub(super) fn forgive(&mut self, place: u32, tenancy: u16, number: u64) -> bool {
        let counted = number >= self.interval_faults;
        let lifted = self.change_of((place, tenancy), |member| {
            member.failed = member.failed.saturating_sub(u32::from(counted));
            member.forgive(number)
        });
        lifted.unwrap_or(false)
    }

    /// Whether the answers of an interval are to be judged now.
    pub(super) fn interval_is_over(&self, now: Moment) -> bool {
        now.since(self.interval_began) >= self.rules.interval
    }

    /// Judges an interval: `good` has the good answers by place. Returns the places that it ejects.
    pub(super) fn judge(&mut self, good: &[u32], now: Moment) -> Vec<u32> {
        (self.interval_began, self.interval_faults) = (now, self.faults);
        let counts: Vec<_> = self
            .members
            .iter_mut()
            .zip(good)
            .map(|(member, good)| {
                let counts = member.as_mut().filter(|member| !member.is_out());
                counts.map_or((0, 0), |member| (*good, member.failed))
            })
            .collect();
        for member in self.members.iter_mut().flatten() {
            member.failed = 0;
        }
        let mut ejected = Vec::new();
        for place in rates::outliers(&counts) {
            let place = u32::try_from(place).unwrap_or(u32::MAX);
            if self.may_eject(place) {
                self.eject(place, Cause::SuccessRate, now);
                ejected.push(place);
            } else {
                self.totals.spared += 1;
            }
        }
        ejected
    }

    /// Ends what has lasted long enough. Returns when to come again, if anything is to end.
    pub(super) fn tick(&mut self, now: Moment) -> Option<Moment> {
        let slow = self.rules.slow_start;
        let (mut next, mut warming): (Option<Moment>, Vec<u32>) = (None, Vec::new());
        let mut again = |at: Moment| next = next.into_iter().chain([at]).min();
        for (place, member) in (0u32..).zip(&mut self.members) {
            let Some(member) = member else { continue };
            // Nobody who is out comes in by time alone, so who could serve in whose place stays as it is.
            match (member.state, member.paused_until) {
                (State::Healthy | State::Probing(_), None) => continue,
                _ => self.touched.push(place),
            }
            member.paused_until = member.paused_until.filter(|until| now < *until);
            match member.state {
                State::Ejected(Ejected { cause, until, .. }) if until <= now => {
                    member.state = State::Probing(cause);
                }
                State::Ejected(Ejected { until, .. }) => again(until),
                State::Warming { since } if now.since(since) >= slow => member.state = State::Healthy,
                State::Warming { .. } => {
                    warming.push(place);
                    again(now.saturating_add(STEP));
                }
                State::Healthy | State::Probing(_) => {}
            }
            member.paused_until.into_iter().for_each(&mut again);
        }
        // Where nobody carries the load meanwhile, it is not the time to start slowly.
        for place in warming {
            if !self.others_serve(place, Duration::ZERO, now) {
                self.change(place, |member| member.state = State::Healthy);
            }
        }
        next
    }

    /// What picks are to see of it.
    pub(super) fn gate(&self, place: u32, now: Moment) -> Option<Gate> {
        let member = self.member(place)?;
        if member.paused_until.is_some_and(|until| now < until) {
            return Some(Gate::Closed);
        }
        Some(match member.state {
            _ if member.last_resort => Gate::LastResort,
            State::Healthy | State::Warming { .. } => Gate::Open(member.cap(self.rules.slow_start, now)),
            State::Probing(_) => Gate::Probe,
            State::Ejected(_) => Gate::Closed,
        })
    }
}
