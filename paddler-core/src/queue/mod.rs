//! Who waits, and who is next?
//!
//! One bounded first-in, first-out queue. Pure: it knows neither threads nor timers. Whoever drives it calls
//! [`hand_out`](WaitQueue::hand_out) when a place may have become free; the first who can use it gets it, and those
//! before him who cannot stay where they are, so that one busy model does not hold up the others.

mod tried;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Moment;
use crate::config::{Limits, Queue};
use crate::request::RequestFacts;
pub use tried::Tried;

/// How much may wait, and how long.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueLimits {
    /// The most requests that wait. Default 30, the number that users of Paddler know. 0: nobody waits.
    pub max_requests: usize,
    /// The most bytes of bodies that wait. Default 1 GiB.
    pub max_bytes: u64,
    /// The longest that a request waits. Default 10 s: most clients give up later than that.
    pub max_wait: Duration,
}

impl Default for QueueLimits {
    fn default() -> Self {
        let queue = Queue::default();
        Self::new(
            queue.max_requests,
            Limits::default().buffered_bodies,
            queue.max_wait,
        )
    }
}

impl QueueLimits {
    /// These limits.
    pub fn new(max_requests: usize, max_bytes: u64, max_wait: Duration) -> Self {
        Self {
            max_requests,
            max_bytes,
            max_wait,
        }
    }
}

/// The place of one who waits. It is never given again.
///
/// Who came first stands first, also when he had a place, was refused there, and waits once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    arrived: Moment,
    number: u64,
}

/// Somebody who waits.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Waiting<T> {
    /// What is asked for.
    pub facts: RequestFacts,
    /// Where the request has been already.
    pub tried: Tried,
    /// Since when.
    pub since: Moment,
    /// Until when.
    pub deadline: Moment,
    /// How to reach the one who waits.
    pub handle: T,
}

/// Why nobody more can wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueFull {
    /// As many wait as may.
    Requests,
    /// The bodies of those who wait are as large as they may be.
    Bytes,
}

/// A bounded queue, first in, first out.
///
/// ```
/// use paddler_core::Moment;
/// use paddler_core::queue::{QueueLimits, WaitQueue};
/// use paddler_core::request::Facts;
///
/// let mut queue = WaitQueue::new(QueueLimits::default());
/// for (model, who) in [("big", "first"), ("small", "second"), ("small", "third")] {
///     queue.push(Facts::new().model(model).into(), Default::default(), Moment::ZERO, who).unwrap();
/// }
/// // One place has become free, for the small model: whoever came first of those who can use it gets it.
/// let mut free = 1;
/// let served = queue.hand_out(|waiting| {
///     let fits = waiting.facts.model.as_deref() == Some("small") && free > 0;
///     fits.then(|| free -= 1)
/// });
/// assert_eq!(served.into_iter().map(|(waiting, ())| waiting.handle).collect::<Vec<_>>(), ["second"]);
/// assert_eq!(queue.len(), 2);
/// ```
#[derive(Debug)]
pub struct WaitQueue<T> {
    limits: QueueLimits,
    waiting: BTreeMap<Ticket, Waiting<T>>,
    bytes: u64,
    next: u64,
}

impl<T> WaitQueue<T> {
    /// An empty queue.
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            waiting: BTreeMap::new(),
            bytes: 0,
            next: 0,
        }
    }

    /// How much may wait, and how long.
    pub fn limits(&self) -> &QueueLimits {
        &self.limits
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The bytes of the bodies that wait.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Since when the one at the front has waited.
    pub fn oldest(&self) -> Option<Moment> {
        self.waiting.values().next().map(|waiting| waiting.since)
    }

    /// Somebody begins to wait, behind all who came before him, until the queue's limit or his own deadline, whichever is
    /// earlier.
    ///
    /// # Errors
    /// [`QueueFull`], when nobody more may wait.
    pub fn push(
        &mut self,
        facts: RequestFacts,
        tried: Tried,
        now: Moment,
        handle: T,
    ) -> Result<(Ticket, Moment), QueueFull> {
        if self.waiting.len() >= self.limits.max_requests {
            return Err(QueueFull::Requests);
        }
        let bytes = self.bytes.saturating_add(facts.body_bytes);
        if bytes > self.limits.max_bytes {
            return Err(QueueFull::Bytes);
        }
        self.bytes = bytes;
        let ticket = Ticket {
            arrived: facts.arrived,
            number: self.next,
        };
        self.next += 1;
        let limit = now.saturating_add(self.limits.max_wait);
        let deadline = facts.deadline.map_or(limit, |own| own.min(limit));
        self.waiting.insert(
            ticket,
            Waiting {
                facts,
                tried,
                since: now,
                deadline,
                handle,
            },
        );
        Ok((ticket, deadline))
    }

    /// Somebody waits no more. `None`: he has been served already.
    pub fn remove(&mut self, ticket: Ticket) -> Option<Waiting<T>> {
        let waiting = self.waiting.remove(&ticket)?;
        self.bytes -= waiting.facts.body_bytes;
        Some(waiting)
    }

    /// Offers places to all who wait, in order. Whoever `place` gives something to leaves the queue with it.
    pub fn hand_out<P>(&mut self, mut place: impl FnMut(&Waiting<T>) -> Option<P>) -> Vec<(Waiting<T>, P)> {
        let served: Vec<_> = self
            .waiting
            .iter()
            .filter_map(|(ticket, waiting)| Some((*ticket, place(waiting)?)))
            .collect();
        served
            .into_iter()
            .filter_map(|(ticket, place)| Some((self.remove(ticket)?, place)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(bytes: u64) -> RequestFacts {
        let mut facts = RequestFacts::new();
        facts.body_bytes = bytes;
        facts
    }

    fn limits(max_requests: usize, max_bytes: u64) -> QueueLimits {
        QueueLimits {
            max_requests,
            max_bytes,
            max_wait: Duration::from_secs(10),
        }
    }

    #[test]
    fn it_is_bounded_by_number_and_bytes_and_both_come_back() {
        let mut queue = WaitQueue::new(limits(2, 100));
        let (first, _) = queue.push(facts(60), Tried::default(), Moment::ZERO, 1).unwrap();
        assert_eq!(
            queue.push(facts(41), Tried::default(), Moment::ZERO, 2),
            Err(QueueFull::Bytes)
        );
        queue.push(facts(40), Tried::default(), Moment::ZERO, 3).unwrap();
        assert_eq!(
            queue.push(facts(0), Tried::default(), Moment::ZERO, 4),
            Err(QueueFull::Requests)
        );
        assert_eq!(queue.remove(first).unwrap().handle, 1);
        assert!(queue.remove(first).is_none(), "a ticket is good once");
        assert_eq!((queue.len(), queue.bytes()), (1, 40));
        queue.push(facts(60), Tried::default(), Moment::ZERO, 5).unwrap();
        assert_eq!(queue.hand_out(|_| Some(())).len(), 2);
        assert_eq!((queue.len(), queue.bytes()), (0, 0));
    }

    #[test]
    fn a_queue_of_none_takes_nobody() {
        let mut queue = WaitQueue::new(limits(0, 100));
        assert_eq!(
            queue.push(facts(0), Tried::default(), Moment::ZERO, ()),
            Err(QueueFull::Requests)
        );
    }

    #[test]
    fn the_earlier_deadline_counts() {
        let mut queue = WaitQueue::new(limits(9, 100));
        let at = Moment::from_millis(1_000);
        assert_eq!(
            queue.push(facts(0), Tried::default(), at, ()).unwrap().1,
            Moment::from_millis(11_000)
        );
        let mut hurried = facts(0);
        hurried.deadline = Some(Moment::from_millis(3_000));
        assert_eq!(
            queue.push(hurried, Tried::default(), at, ()).unwrap().1,
            Moment::from_millis(3_000)
        );
        assert_eq!(queue.oldest(), Some(at));
    }

    #[test]
    fn who_came_first_stands_first_also_when_he_waits_once_more() {
        let mut queue = WaitQueue::new(limits(9, 100));
        for (who, arrived) in [("second", 20), ("third", 30), ("first", 10)] {
            let mut facts = facts(0);
            facts.arrived = Moment::from_millis(arrived);
            queue
                .push(facts, Tried::default(), Moment::from_millis(40), who)
                .unwrap();
        }
        let served = queue.hand_out(|_| Some(()));
        assert_eq!(
            served.iter().map(|(w, ())| w.handle).collect::<Vec<_>>(),
            ["first", "second", "third"]
        );
    }

    #[test]
    fn places_go_to_the_first_who_can_use_them() {
        let mut queue = WaitQueue::new(limits(9, 100));
        for who in 0..6 {
            queue.push(facts(0), Tried::default(), Moment::ZERO, who).unwrap();
        }
        let mut places = 2;
        let served = queue.hand_out(|waiting| {
            let odd = waiting.handle % 2 == 1 && places > 0;
            odd.then(|| places -= 1)
        });
        assert_eq!(
            served
                .iter()
                .map(|(waiting, ())| waiting.handle)
                .collect::<Vec<_>>(),
            [1, 3]
        );
        assert_eq!(
            queue
                .hand_out(|_| Some(()))
                .iter()
                .map(|(w, ())| w.handle)
                .collect::<Vec<_>>(),
            [0, 2, 4, 5]
        );
    }
}
