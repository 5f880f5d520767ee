//! What does a fault of one upstream mean for all of them?

use std::time::Duration;

use super::member::{Ejected, Member, State};
use super::{Cause, Fault, PoolHealth, UpstreamHealth, rates};
use crate::Moment;
use crate::config::HealthRules;
use crate::upstream::{Gate, UpstreamId};

/// How often a limit that grows is looked at.
const STEP: Duration = Duration::from_millis(250);

/// The machine. Pure; whoever drives it puts the gates in force.
#[derive(Debug)]
pub(super) struct Pool {
    rules: HealthRules,
    /// By place.
    members: Vec<Option<Member>>,
    faults: u64,
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
            faults: 0,
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

    /// When the first of those who are paused wants work again, if all are that could be sent some.
    pub(super) fn all_paused_until(&self, now: Moment) -> Option<Moment> {
        let usable = self.members.iter().flatten().filter(|member| member.usable);
        let pauses = usable.map(|member| member.paused_until.filter(|until| now < *until));
        let first = |first: Option<Moment>, pause: Option<Moment>| {
            let pause = pause?;
            Some(Some(first.map_or(pause, |first| first.min(pause))))
        };
        let mut pauses = pauses;
        pauses.try_fold(None, first).flatten()
    }

    pub(super) fn set_rules(&mut self, rules: HealthRules) {
        self.rules = rules;
    }

    pub(super) fn totals(&self) -> PoolHealth {
        self.totals
    }

    pub(super) fn places(&self) -> usize {
        self.members.len()
    }

    pub(super) fn member(&self, place: u32) -> Option<&Member> {
        self.members.get(place as usize)?.as_ref()
    }

    /// The member at a place, to be changed.
    fn at(&mut self, place: u32) -> Option<&mut Member> {
        let member = self.members.get_mut(place as usize)?.as_mut()?;
        self.touched.push(place);
        Some(member)
    }

    /// The same, if it is still this tenant.
    fn of(&mut self, place: u32, tenancy: u16) -> Option<&mut Member> {
        self.at(place).filter(|member| member.tenancy == tenancy)
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

    pub(super) fn join(&mut self, place: u32, tenancy: u16, id: UpstreamId, now: Moment) {
        let mut member = Member::new(id, tenancy, now);
        if self.has_settled(place, now) {
            member.state = State::Warming { since: now };
        }
        self.began.get_or_insert(now);
        self.touched.push(place);
        let place = place as usize;
        if self.members.len() <= place {
            self.members.resize_with(place + 1, || None);
        }
        self.members[place] = Some(member);
    }

    pub(super) fn leave(&mut self, place: u32) {
        if let Some(member) = self.members.get_mut(place as usize) {
            *member = None;
        }
    }

    /// Whether one of the others is in service, and has been a member for so long.
    fn others_serve(&self, but: u32, member_for: Duration, now: Moment) -> bool {
        let serves = |member: &Member| {
            member.usable && member.state == State::Healthy && now.since(member.joined) >= member_for
        };
        let mut others = self
            .members
            .iter()
            .enumerate()
            .filter(|(place, _)| *place != but as usize);
        others.any(|(_, member)| member.as_ref().is_some_and(serves))
    }

    /// Whether a joiner starts slowly: where all have begun at once, nobody does.
    fn has_settled(&self, but: u32, now: Moment) -> bool {
        let slow = self.rules.slow_start;
        let young = self.began.is_none_or(|began| now.since(began) < slow);
        !slow.is_zero() && !young && self.others_serve(but, slow, now)
    }

    /// What the board knows: whether it can be sent work, how much it takes at once, and whether it has just become
    /// ready, with an empty cache.
    pub(super) fn update(&mut self, place: u32, usable: bool, room: u32, became_ready: bool, now: Moment) {
        let slowly = became_ready && self.has_settled(place, now);
        let Some(member) = self.at(place) else {
            return;
        };
        (member.usable, member.room) = (usable, room);
        if slowly && !member.is_out() {
            member.state = State::Warming { since: now };
        }
    }

    /// It has answered a poll that was sent at `asked`: connections can be made again.
    pub(super) fn polled(&mut self, place: u32, asked: Moment) {
        let Some(member) = self.at(place) else {
            return;
        };
        match member.state {
            State::Ejected(Ejected {
                cause: Cause::Unreachable,
                since,
                ..
            }) if since <= asked => member.state = State::Probing,
            _ => {}
        }
    }

    /// A good answer. `probe`: to the one request that was let in. Returns whether it is let back in by that.
    pub(super) fn answered(&mut self, place: u32, tenancy: u16, probe: bool, now: Moment) -> bool {
        let panicking = self.totals.panicking;
        let slowly = !self.rules.slow_start.is_zero() && self.others_serve(place, Duration::ZERO, now);
        let Some(member) = self.of(place, tenancy) else {
            return false;
        };
        let back = match member.state {
            State::Probing => probe || panicking,
            // Only in panic was it asked at all; an answer to an earlier request says nothing of now.
            State::Ejected(_) => panicking,
            State::Healthy | State::Warming { .. } => {
                member.end_row(false);
                false
            }
        };
        if back {
            member.give_back(slowly, now);
        }
        back
    }

    /// An answer has come to its end.
    pub(super) fn completed(&mut self, place: u32, tenancy: u16) {
        if let Some(member) = self.of(place, tenancy)
            && !member.is_out()
        {
            member.end_row(true);
        }
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
        let member = self.of(place, tenancy)?;
        member.failed = member.failed.saturating_add(1);
        let full = match member.state {
            // An answer to a request of before its ejection.
            State::Ejected(_) => false,
            State::Probing if !probe => false,
            State::Probing => {
                member.count_alone(fault, number, &rules);
                true
            }
            State::Healthy | State::Warming { .. } => member.count(fault, number, &rules),
        };
        let was_in = !member.is_out();
        self.faults += 1;
        let unreachable = was_in && fault == Fault::Unreachable;
        if unreachable || (full && (!was_in || self.may_eject())) {
            self.eject(place, Cause::from(fault), now);
        } else if full {
            self.totals.spared += 1;
        }
        Some(number)
    }

    fn eject(&mut self, place: u32, cause: Cause, now: Moment) {
        let rules = self.rules;
        if let Some(member) = self.at(place) {
            member.eject(cause, now, &rules);
            self.totals.ejections[cause as usize] += 1;
        }
    }

    /// Whether one more may be ejected for what it answered: never more than the largest share of those that can be sent
    /// work, but one where there are two.
    ///
    /// Whoever cannot be reached is out in any case: to count it in would not make it serve, and each request would pay
    /// for finding out.
    fn may_eject(&self) -> bool {
        let usable = || self.members.iter().flatten().filter(|member| member.usable);
        let (all, out) = (
            usable().count(),
            usable().filter(|member| member.is_out()).count(),
        );
        let share = (self.rules.largest_share * all as f64) as usize;
        let least = usize::from(self.rules.largest_share > 0.0);
        out < share.max(least).min(all.saturating_sub(1))
    }

    /// It has asked to be left alone for so long.
    pub(super) fn pause(&mut self, place: u32, tenancy: u16, asked: Duration, now: Moment) {
        let longest = self.rules.longest_time;
        if let Some(member) = self.of(place, tenancy) {
            let until = now.saturating_add(asked.min(longest));
            member.paused_until = member.paused_until.max(Some(until));
        }
    }

    pub(super) fn forgive(&mut self, place: u32, tenancy: u16, number: u64) -> bool {
        self.of(place, tenancy)
            .is_some_and(|member| member.forgive(number))
    }

    /// Whether the answers of an interval are to be judged now.
    pub(super) fn interval_is_over(&self, now: Moment) -> bool {
        now.since(self.interval_began) >= self.rules.interval
    }

    /// Judges an interval: `good` has the good answers by place. Returns the places that it ejects.
    pub(super) fn judge(&mut self, good: &[u32], now: Moment) -> Vec<u32> {
        self.interval_began = now;
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
            if self.may_eject() {
                let place = u32::try_from(place).unwrap_or(u32::MAX);
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
        let mut next: Option<Moment> = None;
        let mut again = |at: Moment| next = next.into_iter().chain([at]).min();
        for (place, member) in (0u32..).zip(&mut self.members) {
            let Some(member) = member else { continue };
            match (member.state, member.paused_until) {
                (State::Healthy | State::Probing, None) => continue,
                _ => self.touched.push(place),
            }
            member.paused_until = member.paused_until.filter(|until| now < *until);
            match member.state {
                State::Ejected(Ejected { until, .. }) if until <= now => member.state = State::Probing,
                State::Ejected(Ejected { until, .. }) => again(until),
                State::Warming { since } if now.since(since) >= slow => member.state = State::Healthy,
                State::Warming { .. } => again(now.saturating_add(STEP)),
                State::Healthy | State::Probing => {}
            }
            member.paused_until.into_iter().for_each(&mut again);
        }
        next
    }

    /// Whether everybody who could serve is out. Returns whether that is news.
    pub(super) fn panics(&mut self) -> bool {
        let mut usable = self
            .members
            .iter()
            .flatten()
            .filter(|member| member.usable)
            .peekable();
        let panicking = usable.peek().is_some() && usable.all(Member::is_out);
        let news = panicking != self.totals.panicking;
        self.totals.panicking = panicking;
        self.totals.panics += u64::from(news && panicking);
        news
    }

    /// What picks are to see of it.
    pub(super) fn gate(&self, place: u32, now: Moment) -> Option<Gate> {
        let member = self.member(place)?;
        if member.paused_until.is_some_and(|until| now < until) {
            return Some(Gate::Closed);
        }
        Some(match member.state {
            _ if self.totals.panicking => Gate::Open(None),
            State::Healthy | State::Warming { .. } => Gate::Open(member.cap(self.rules.slow_start, now)),
            State::Probing => Gate::Probe,
            State::Ejected(_) => Gate::Closed,
        })
    }
}
