//! Who is there, and who could serve in whose place?
//!
//! All that makes somebody a member, or one that is in or out, goes through [`Pool::change`], so that the counts of who
//! could serve what follow it.

use std::time::Duration;

use super::Pool;
use crate::Moment;
use crate::health::groups::{Flipped, Serves, Standing};
use crate::health::member::{Member, Past, State};
use crate::upstream::UpstreamId;

impl Pool {
    /// Changes the member at a place, and what that means for those who could serve in its place.
    pub(super) fn change<T>(&mut self, place: u32, change: impl FnOnce(&mut Member) -> T) -> Option<T> {
        let member = self.members.get_mut(place as usize)?.as_mut()?;
        let before = member.standing();
        let result = change(member);
        let after = member.standing();
        self.touched.push(place);
        if before != after {
            let serves = member.serves.clone();
            let flipped = self.groups.change(&serves, before, after);
            self.follow(place, flipped);
        }
        Some(result)
    }

    /// The same, if it is still this tenant.
    pub(super) fn change_of<T>(
        &mut self,
        (place, tenancy): (u32, u16),
        change: impl FnOnce(&mut Member) -> T,
    ) -> Option<T> {
        self.member(place).filter(|member| member.tenancy == tenancy)?;
        self.change(place, change)
    }

    /// Says who is a last resort now and was not, or is it no more: the one at this place has changed.
    fn follow(&mut self, place: u32, flipped: Flipped) {
        let begins = flipped != Flipped::At(Vec::new());
        let places = match flipped {
            Flipped::At(mut places) => {
                places.push(place);
                places
            }
            Flipped::Any => (0u32..).take(self.members.len()).collect(),
        };
        let mut any = false;
        for place in places {
            let Some(member) = self.members.get_mut(place as usize).and_then(Option::as_mut) else {
                continue;
            };
            let last = member.standing() == Standing::Out && self.groups.lacks_any_of(&member.serves);
            match (member.last_resort, last) {
                (false, true) => self.last_resorts += 1,
                (true, false) => self.last_resorts -= 1,
                _ => continue,
            }
            member.last_resort = last;
            self.touched.push(place);
            any |= last;
        }
        self.totals.panics += u64::from(begins && any);
    }

    /// `known`: whether it can be sent work, and how much it takes at once. `past`: what is known against it since it was
    /// there before.
    pub(in crate::health) fn join(
        &mut self,
        (place, tenancy): (u32, u16),
        id: UpstreamId,
        known: (bool, u32),
        (serves, past): (Serves, Option<Past>),
        now: Moment,
    ) {
        self.leave(place);
        self.began.get_or_insert(now);
        let at = place as usize;
        if self.members.len() <= at {
            self.members.resize_with(at + 1, || None);
        }
        self.groups.join(place, &serves);
        self.members[at] = Some(match past {
            Some(past) => past.back(tenancy, serves, now),
            None => Member::new(id, tenancy, serves, now),
        });
        let (slowly, rules) = (self.has_settled(place, now), self.rules);
        self.change(place, |member| {
            (member.usable, member.room) = known;
            // They may have changed while it was away.
            member.shorten(&rules, now);
            if slowly && !member.is_out() {
                member.state = State::Warming { since: now };
            }
        });
    }

    /// Returns what is known against it.
    pub(in crate::health) fn leave(&mut self, place: u32) -> Option<Past> {
        self.change(place, |member| member.usable = false);
        let member = self.members.get_mut(place as usize)?.take()?;
        self.groups.leave(place, &member.serves);
        member.past()
    }

    /// It can be asked for this from now on.
    pub(in crate::health) fn serve(&mut self, place: u32, serves: Serves) {
        let Some(member) = self.members.get_mut(place as usize).and_then(Option::as_mut) else {
            return;
        };
        if member.serves == serves {
            return;
        }
        // As if it left, and another came as it is.
        let standing = member.standing();
        let left = std::mem::replace(&mut member.serves, serves.clone());
        let mut flipped = vec![self.groups.change(&left, standing, Standing::Unusable)];
        self.groups.leave(place, &left);
        self.groups.join(place, &serves);
        flipped.push(self.groups.change(&serves, Standing::Unusable, standing));
        flipped
            .into_iter()
            .for_each(|flipped| self.follow(place, flipped));
    }

    /// Whether for all that this one can be asked for somebody else is in service, and has been a member for so long.
    pub(super) fn others_serve(&self, place: u32, member_for: Duration, now: Moment) -> bool {
        let Some(member) = self.member(place) else {
            return false;
        };
        let healthy = |other: &Member| other.usable && other.state == State::Healthy;
        let serves = |other: u32| {
            let other = Some(other).filter(|other| *other != place);
            other.and_then(|other| self.member(other)).is_some_and(|other| {
                let long = now.since(other.joined) >= member_for;
                healthy(other) && long && member.serves.reach(&other.serves)
            })
        };
        let found = self.groups.each_has(&member.serves, serves);
        found.unwrap_or_else(|| (0u32..).take(self.members.len()).any(serves))
    }

    /// Whether a joiner starts slowly: where all have begun at once, nobody does.
    fn has_settled(&self, place: u32, now: Moment) -> bool {
        let slow = self.rules.slow_start;
        let young = self.began.is_none_or(|began| now.since(began) < slow);
        !slow.is_zero() && !young && self.others_serve(place, slow, now)
    }

    /// What the board knows: whether it can be sent work, how much it takes at once, and whether it has just become
    /// ready, with an empty cache.
    pub(in crate::health) fn update(
        &mut self,
        place: u32,
        usable: bool,
        room: u32,
        became_ready: bool,
        now: Moment,
    ) {
        let slowly = became_ready && self.has_settled(place, now);
        self.change(place, |member| {
            (member.usable, member.room) = (usable, room);
            if slowly && !member.is_out() {
                member.state = State::Warming { since: now };
            }
        });
    }

    pub(super) fn comes_back_slowly(&self, place: u32, now: Moment) -> bool {
        !self.rules.slow_start.is_zero() && self.others_serve(place, Duration::ZERO, now)
    }
}
