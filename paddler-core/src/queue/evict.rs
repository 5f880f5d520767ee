//! Who has to go when the queue is full?
//!
//! The rule stands at [`WaitQueue::push`].

use std::cmp::Ordering;

use super::{MOST_WEIGHT, Priority, QueueFull, Ticket, WaitQueue, Waiting};
use crate::Moment;
use crate::request::RequestFacts;

impl<T> WaitQueue<T> {
    /// Whether somebody like this could wait without anybody having to go.
    pub fn has_room_for(&self, facts: &RequestFacts) -> bool {
        self.len() < self.limits.max_requests
            && self.bytes.saturating_add(facts.body_bytes) <= self.limits.max_bytes
    }

    /// Whoever has to go for somebody of this class goes.
    pub(super) fn make_room(
        &mut self,
        priority: Priority,
        facts: &RequestFacts,
        now: Moment,
    ) -> Result<Vec<Waiting<T>>, QueueFull> {
        let victims = self.victims(priority, facts)?;
        let evicted: Vec<_> = victims
            .into_iter()
            .filter_map(|ticket| self.remove(ticket, now))
            .collect();
        for victim in &evicted {
            self.class_mut(victim.priority).evicted += 1;
        }
        Ok(evicted)
    }

    /// Who has to go for somebody of this class.
    fn victims(&self, priority: Priority, facts: &RequestFacts) -> Result<Vec<Ticket>, QueueFull> {
        let mut victims = Vec::new();
        if self.len() > self.limits.max_requests {
            return Err(QueueFull::Requests);
        }
        if self.len() == self.limits.max_requests {
            victims.push(self.victim(priority, facts).ok_or(QueueFull::Requests)?);
        }
        let bytes = |ticket: &Ticket| {
            self.waiting
                .get(ticket)
                .map_or(0, |waiting| waiting.facts.body_bytes)
        };
        let freed: u64 = victims.iter().map(bytes).sum();
        let wanted = (self.bytes - freed).saturating_add(facts.body_bytes);
        let mut excess = wanted.saturating_sub(self.limits.max_bytes);
        let lower = Priority::ALL.iter().rev().take_while(|class| **class > priority);
        for ticket in lower.flat_map(|class| self.class(*class).members.iter().rev()) {
            if excess == 0 {
                break;
            }
            if !victims.contains(ticket) {
                excess = excess.saturating_sub(bytes(ticket));
                victims.push(*ticket);
            }
        }
        if excess > 0 {
            return Err(QueueFull::Bytes);
        }
        Ok(victims)
    }

    fn victim(&self, priority: Priority, facts: &RequestFacts) -> Option<Ticket> {
        let spare = |class| self.len_of(class) > self.limits.part(class);
        let lacks = self.len_of(priority) < self.limits.part(priority);
        Priority::ALL.iter().rev().find_map(|class| {
            let tenants = &self.class(*class).tenants;
            let (turn, many, weight) = tenants.largest()?;
            let goes = match class.cmp(&priority) {
                Ordering::Greater => spare(*class),
                Ordering::Less => lacks && spare(*class),
                Ordering::Equal => {
                    let own = tenants.waiting(&facts.tenant) as u64 + 1;
                    many as u64 * u64::from(facts.tenant_weight.clamp(1, MOST_WEIGHT))
                        > own * u64::from(weight)
                }
            };
            goes.then_some(turn.1)
        })
    }
}
