//! Who is offered what is free, in which order?
//!
//! First those for whom room is held back; then all others by class, tenant and turn, one of each kind; then those whose
//! time to be asked has come, and some who speak for themselves.

use super::holds::{PASSES, Short};
use super::tenants::Name;
use super::{Offer, Priority, Served, Ticket, WaitQueue, Waiting};
use crate::Moment;
use crate::upstream::UpstreamId;

/// One round of asking who can use a place.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Counts rounds, from 1.
    pub(super) number: u64,
    /// When it is.
    now: Moment,
    /// How far it has come among the tenants of each class.
    pub(super) reached: [Option<(u64, Name)>; 3],
}

/// All who wait speak for themselves once, some at a time, in the order in which they came.
#[derive(Debug)]
pub(super) struct Pass {
    /// Who was asked last.
    after: Ticket,
    /// Who came last when it began: whoever has come since does not make it longer.
    until: Ticket,
}

impl<T> WaitQueue<T> {
    /// Offers what is free to all who wait, in order, until nobody is left to ask. Whoever gets something leaves the queue
    /// with it; his tenant and class are charged. `place` is asked, with the upstreams whose room is held back for somebody
    /// else: none of it is for him.
    ///
    /// Of those who are alike in model, kind of work, weight, priority, streaming, where they may go and whether they have a
    /// session, one who gets nothing speaks for all. A tree whose answer depends on anything else (the prompt's length, the tenant, a closure)
    /// needs that others are asked too, now and then: so many as `others` says are, in the order in which they came, round
    /// and round; [`usize::MAX`] for all. Those who have been somewhere already, or are to be [asked again](super::Told::again) at
    /// some time, are always asked.
    pub fn hand_out<P>(
        &mut self,
        now: Moment,
        others: usize,
        mut place: impl FnMut(&Waiting<T>, &[UpstreamId]) -> Offer<P>,
    ) -> Vec<Served<T, P>> {
        let mut round = self.begin(now);
        let mut served = Vec::new();
        let held = self.holds.begin(now);
        let mut full = held
            .into_iter()
            .any(|ticket| self.ask(ticket, &round, &mut place, &mut served));
        while !full && let Some(ticket) = self.next_to_ask(&mut round) {
            full = self.ask(ticket, &round, &mut place, &mut served);
        }
        // Whose time to be asked has come is asked also when nothing is free: he may be told that he waits in vain.
        let due = self.agains.iter().take_while(|(again, _)| *again <= now);
        let mut besides: Vec<_> = due.map(|(_, ticket)| *ticket).collect();
        besides.extend(self.next_others(others));
        for ticket in besides {
            self.ask(ticket, &round, &mut place, &mut served);
        }
        served
    }

    fn begin(&mut self, now: Moment) -> Round {
        self.rounds += 1;
        for class in &mut self.classes {
            class.tenants.bring_down();
        }
        Round {
            number: self.rounds,
            now,
            ..Round::default()
        }
    }

    /// Offers somebody what is free, unless that was done in this round. Says whether nothing is free for anybody.
    fn ask<P>(
        &mut self,
        ticket: Ticket,
        round: &Round,
        place: &mut impl FnMut(&Waiting<T>, &[UpstreamId]) -> Offer<P>,
        served: &mut Vec<Served<T, P>>,
    ) -> bool {
        let Some(waiting) = self.waiting.get_mut(&ticket) else {
            return false;
        };
        if waiting.asked == round.number {
            return false;
        }
        waiting.asked = round.number;
        let kept = self.holds.kept_from(waiting.priority, Some(ticket));
        let offer = place(waiting, &kept);
        let full = matches!(offer, Offer::Full(_));
        served.extend(self.take(ticket, offer, round));
        full
    }

    fn next_to_ask(&mut self, round: &mut Round) -> Option<Ticket> {
        let order = self.turns.order(self.limits.min_shares);
        order.iter().find_map(|class| {
            let tenants = &mut self.classes[class.index()].tenants;
            let next = tenants.next(round, class.index(), &self.groups);
            next.map(|(_, ticket)| ticket)
        })
    }

    /// The next `many` to speak for themselves.
    fn next_others(&mut self, many: usize) -> Vec<Ticket> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let Some((last, _)) = self.waiting.last_key_value().filter(|_| many > 0) else {
            return Vec::new();
        };
        let pass = self.pass.take();
        let (after, until) = pass.map_or((Unbounded, *last), |pass| (Excluded(pass.after), pass.until));
        let next = self.waiting.range((after, Included(until)));
        let next: Vec<_> = next.map(|(ticket, _)| *ticket).take(many).collect();
        let goes_on = next.last().filter(|after| next.len() == many && **after < until);
        self.pass = goes_on.map(|after| Pass { after: *after, until });
        next
    }

    /// What was offered to somebody takes effect.
    fn take<P>(&mut self, ticket: Ticket, offer: Offer<P>, round: &Round) -> Option<Served<T, P>> {
        let waiting = self.waiting.get(&ticket)?;
        match offer {
            Offer::Wait(told) | Offer::Full(told) | Offer::Short { told, .. } => {
                let line = waiting.line();
                if let Offer::Short { upstream, .. } = offer {
                    self.found_short(ticket, upstream);
                }
                if let Some(group) = line {
                    self.groups.pass(group, round);
                }
                self.hear(ticket, told, round.now);
                None
            }
            Offer::Leave(answer) => self.remove(ticket, round.now).map(|waiting| Served {
                waiting,
                answer,
                charge: None,
            }),
            Offer::Place {
                place,
                upstream,
                weight,
            } => {
                let priority = waiting.priority;
                let served = self.serve(ticket, place, weight, round);
                self.went(&upstream, priority, round.now);
                served
            }
        }
    }

    /// Somebody needs more room than is free at this upstream. Where room is held back for his tenant already, it is the turn
    /// of the next of his kind, for whom he speaks.
    fn found_short(&mut self, speaker: Ticket, upstream: UpstreamId) {
        let Some(group) = self.waiting.get(&speaker).map(|waiting| waiting.group) else {
            return;
        };
        let candidates = [speaker].into_iter().chain(self.groups.members(group).copied());
        let shorts = candidates.filter_map(|ticket| {
            let waiting = self.waiting.get(&ticket)?;
            Some((ticket, waiting.priority, &waiting.facts.tenant))
        });
        let free = shorts
            .into_iter()
            .find(|(_, class, tenant)| !self.holds.has_one(tenant, *class));
        let short = free.map(|(ticket, priority, tenant)| Short {
            ticket,
            tenant: tenant.clone(),
            priority,
            upstream,
        });
        if let Some(short) = short {
            self.holds.found_short(short);
        }
    }

    /// Somebody gets a place that counts so much.
    fn serve<P>(&mut self, ticket: Ticket, place: P, weight: u32, round: &Round) -> Option<Served<T, P>> {
        let waiting = self.waiting.get(&ticket)?;
        if waiting.since < round.now {
            self.pace.handed(round.now);
        }
        let charge = self.outputs.charge(&waiting.facts, weight);
        let classes = &self.classes;
        self.turns
            .handed(waiting.priority, self.limits.min_shares, |class| {
                !classes[class.index()].members.is_empty()
            });
        self.classes[waiting.priority.index()].tenants.charge(&charge);
        self.holds.served(ticket);
        let waiting = self.remove(ticket, round.now)?;
        Some(Served {
            waiting,
            answer: place,
            charge: Some(charge),
        })
    }

    /// A place at this upstream has gone to somebody of this class. To be told of those who get one without waiting, too, so
    /// that nobody who is too heavy for what is free is passed over for ever: see [`Offer::Short`].
    pub fn went(&mut self, upstream: &UpstreamId, to: Priority, now: Moment) {
        let Some(ticket) = self.holds.passed(upstream, to) else {
            return;
        };
        let Some(waiting) = self.waiting.get_mut(&ticket) else {
            return;
        };
        waiting.passed += 1;
        if waiting.passed >= PASSES {
            waiting.passed = 0;
            let longest = now.saturating_add(self.limits.max_wait);
            let until = waiting.deadline.min(longest);
            self.holds.hold(ticket, now, until);
        }
    }
}
