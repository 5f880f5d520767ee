//! Who waits, and who is next?
//!
//! One bounded queue. What becomes free goes first to a class, then to a tenant of it, then to the request of his whose
//! deadline is earliest:
//!
//! - **Class** ([`Priority`]): the highest, unless one below is owed its least share ([`MinShares`]). Nobody starves: of so
//!   many places in a row as [`MinShares::bound`] says, each of which somebody of a class could have used, it gets one.
//! - **Tenant**: the one that was charged the fewest tokens for its weight, by the virtual token counter of Sheng et al.
//!   (OSDI 2024). The bound: between two tenants who both wait all the time, what they were charged, each divided by its
//!   weight, never differs by more than twice the largest single charge so divided; and a request of a tenant of whom
//!   nobody waited comes after at most one of each other tenant in its class. What an answer used is known only when it
//!   has ended: the charges still open, as far as they were wrong, come on top.
//! - **Request**: whoever came first. A deadline that a client asks for brings a request forward by as much as it is earlier
//!   than the end of the usual wait, and by half of [`QueueLimits::max_wait`] at most: it comes before nobody of its tenant
//!   who came that much earlier.
//!
//! Whoever cannot use what is free is passed over and keeps his place, so that one busy model does not hold up the others.
//! The bounds are of places that he could have used. Who needs the room of several sequences is passed over by four places
//! at an upstream that had room, and too little, when it was his turn. From then on its room is held back for him, for as
//! long as he waits: so he is next there once enough of what is open has ended. One upstream is held back for each tenant
//! of a class, higher classes go on to use it, and where it was in vain, nothing is held back for as long again.
//!
//! When the queue is full, an arrival may take the place of somebody of a lower class, or of a tenant who has more waiting
//! than it: see [`WaitQueue::push`].
//!
//! Pure: it knows neither threads nor timers. Whoever drives it calls [`hand_out`](WaitQueue::hand_out) when a place may
//! have become free, and [`expire`](WaitQueue::expire) when somebody's time is over.

mod charge;
mod evict;
mod groups;
mod holds;
mod limits;
mod pace;
mod priority;
mod retries;
mod round;
mod tenants;
mod terms;
mod tried;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Moment;
use crate::request::RequestFacts;
use crate::upstream::UpstreamId;
use charge::Outputs;
pub use charge::{Charge, Used};
use groups::Groups;
use holds::Holds;
pub use limits::{MinShares, QueueLimits};
use pace::Pace;
pub use priority::Priority;
use priority::Turns;
pub use retries::RetryBudget;
use round::Pass;
pub(crate) use tenants::MOST_WEIGHT;
use tenants::Tenants;
pub use terms::{ClassWaits, Offer, Pushed, QueueFull, Served, Ticket, Told, Waiting};
pub use tried::Tried;

/// A bounded queue with classes and tenants: see the [module](self) for who is next.
///
/// ```
/// use paddler_core::Moment;
/// use paddler_core::queue::{Offer, QueueLimits, Told, WaitQueue};
/// use paddler_core::request::Facts;
/// use paddler_core::upstream::UpstreamId;
///
/// let now = Moment::ZERO;
/// let mut queue = WaitQueue::new(QueueLimits::default());
/// for (model, priority, who) in [("big", 0, "first"), ("small", 0, "second"), ("small", 1, "third")] {
///     let facts = Facts::new().model(model).priority(priority);
///     queue.push(facts.into(), Default::default(), Told::default(), now, who).unwrap();
/// }
/// // One place has become free, for the small model: of those who can use it, the highest class gets it.
/// let mut free = 1;
/// let upstream = UpstreamId::new("gpu-1")?;
/// let served = queue.hand_out(now, 0, |waiting, _kept_from_him| {
///     if waiting.facts.model.as_deref() != Some("small") || free == 0 {
///         return Offer::Wait(Told::default());
///     }
///     free -= 1;
///     let (upstream, weight) = (upstream.clone(), waiting.facts.weight);
///     Offer::Place { place: "a place", upstream, weight }
/// });
/// assert_eq!(served.iter().map(|served| served.waiting.handle).collect::<Vec<_>>(), ["third"]);
/// assert_eq!(queue.len(), 2);
/// # Ok::<(), paddler_core::upstream::InvalidId>(())
/// ```
#[derive(Debug)]
pub struct WaitQueue<T> {
    limits: QueueLimits,
    waiting: BTreeMap<Ticket, Waiting<T>>,
    classes: [Class; 3],
    turns: Turns,
    groups: Groups,
    ends: BTreeSet<(Moment, Ticket)>,
    agains: BTreeSet<(Moment, Ticket)>,
    outputs: Outputs,
    pace: Pace,
    pass: Option<Pass>,
    holds: Holds,
    bytes: u64,
    next: u64,
    rounds: u64,
}

#[derive(Debug, Default)]
struct Class {
    tenants: Tenants,
    members: BTreeSet<Ticket>,
    evicted: u64,
}

impl<T> WaitQueue<T> {
    /// An empty queue.
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            waiting: BTreeMap::new(),
            classes: Default::default(),
            turns: Turns::default(),
            groups: Groups::default(),
            ends: BTreeSet::new(),
            agains: BTreeSet::new(),
            outputs: Outputs::default(),
            pace: Pace::default(),
            pass: None,
            holds: Holds::default(),
            bytes: 0,
            next: 0,
            rounds: 0,
        }
    }

    /// How much may wait, and how long.
    pub fn limits(&self) -> &QueueLimits {
        &self.limits
    }

    /// Changes how much may wait, and how long. Whoever waits already stays for as long as he was told; if that are more
    /// than may, nobody comes in until enough have left.
    pub fn set_limits(&mut self, limits: QueueLimits) {
        self.limits = limits;
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many of a class wait.
    pub fn len_of(&self, priority: Priority) -> usize {
        self.class(priority).members.len()
    }

    /// How each class waits, in the order of [`Priority::ALL`].
    pub fn waits(&self) -> [ClassWaits; 3] {
        Priority::ALL.map(|priority| {
            let class = self.class(priority);
            let first = class.members.first().and_then(|first| self.waiting.get(first));
            ClassWaits {
                waiting: class.members.len(),
                oldest: first.map(|first| first.since),
                evicted: class.evicted,
            }
        })
    }

    /// Those who wait, the first who came first.
    pub fn iter(&self) -> impl Iterator<Item = &Waiting<T>> {
        self.waiting.values()
    }

    /// The bytes of the bodies that wait.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When the first of those who wait has waited long enough.
    pub fn next_end(&self) -> Option<Moment> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// When the first of those who wait is to be asked again though nothing has changed.
    pub fn next_again(&self) -> Option<Moment> {
        let first = self.agains.first().map(|(again, _)| *again);
        [first, self.holds.next_end()].into_iter().flatten().min()
    }

    /// The upstreams whose room is held back for somebody, of whatever class: see [`Offer::Short`].
    pub fn held_back(&self) -> Vec<UpstreamId> {
        self.holds.held_back().cloned().collect()
    }

    /// The upstreams whose room is held back for somebody of this class, or of a higher one: see [`Offer::Short`].
    pub fn kept_from(&self, priority: Priority) -> Vec<UpstreamId> {
        self.holds.kept_from(priority, None)
    }

    /// How long it takes until somebody who comes now would be served, by what was seen of late, 1 s to 30 s; `None` when
    /// too little was seen. To be told to those who are refused, as `Retry-After`.
    pub fn wait_for(&self, priority: Priority, now: Moment) -> Option<Duration> {
        let before = |class: &&Priority| **class <= priority;
        let ahead: usize = Priority::ALL
            .iter()
            .filter(before)
            .map(|class| self.len_of(*class))
            .sum();
        self.pace.wait_for(ahead + 1, now)
    }

    fn class(&self, priority: Priority) -> &Class {
        &self.classes[priority.index()]
    }

    fn class_mut(&mut self, priority: Priority) -> &mut Class {
        &mut self.classes[priority.index()]
    }

    /// Somebody begins to wait, until the queue's limit, his own deadline or the end of his patience, whichever is earliest. Time counts from when
    /// he came ([`RequestFacts::arrived`]), also when he waits once more.
    ///
    /// When the queue is full, somebody else may have to go: the last of the tenant who has most waiting for its weight,
    /// in the lowest class that holds more than its part of the queue. That is, in this order,
    /// - of a lower class than his, beyond the part that its least share is of the queue;
    /// - of his own class, a tenant who would still have more waiting for its weight than his own;
    /// - of a higher class, beyond its part, if his own has less than its part.
    ///
    /// For bytes, only lower classes make room.
    ///
    /// # Errors
    /// [`QueueFull`], when nobody more may wait. Then nobody had to go.
    pub fn push(
        &mut self,
        facts: RequestFacts,
        tried: Tried,
        told: Told,
        now: Moment,
        handle: T,
    ) -> Result<Pushed<T>, QueueFull> {
        let priority = Priority::of(facts.priority);
        let evicted = self.make_room(priority, &facts, now)?;
        self.pace.busy(now);
        self.bytes = self.bytes.saturating_add(facts.body_bytes);
        let ticket = Ticket {
            arrived: facts.arrived,
            number: self.next,
        };
        self.next += 1;
        let alone = told.again.is_some() || !tried.is_empty();
        let group = self.groups.join(&facts, alone, ticket);
        let due = self.limits.due(facts.arrived, facts.deadline);
        let waiting = Waiting {
            facts,
            tried,
            since: now,
            deadline: Moment::ZERO,
            handle,
            priority,
            turn: (due, ticket),
            group,
            alone,
            again: None,
            asked: 0,
            passed: 0,
        };
        let class = self.class_mut(priority);
        class.members.insert(ticket);
        let (tenant, weight) = (&waiting.facts.tenant, waiting.facts.tenant_weight);
        class.tenants.join(tenant, weight, waiting.line(), waiting.turn);
        self.waiting.insert(ticket, waiting);
        self.set_end(ticket);
        self.hear(ticket, told, now);
        let deadline = self.waiting.get(&ticket).map_or(now, |waiting| waiting.deadline);
        Ok(Pushed {
            ticket,
            deadline,
            evicted,
        })
    }

    /// Somebody waits no more. `None`: he has been served already.
    pub fn remove(&mut self, ticket: Ticket, now: Moment) -> Option<Waiting<T>> {
        let waiting = self.waiting.remove(&ticket)?;
        self.bytes -= waiting.facts.body_bytes;
        self.ends.remove(&(waiting.deadline, ticket));
        if let Some(again) = waiting.again {
            self.agains.remove(&(again, ticket));
        }
        self.groups.leave(waiting.group, ticket);
        let class = &mut self.classes[waiting.priority.index()];
        class.members.remove(&ticket);
        class
            .tenants
            .leave(&waiting.facts.tenant, waiting.line(), waiting.turn);
        self.holds.left(ticket, now);
        if class.members.is_empty() {
            self.turns.left(waiting.priority);
        }
        if self.waiting.is_empty() {
            self.pace.idle(now);
        }
        Some(waiting)
    }

    /// Those whose time is over leave the queue.
    pub fn expire(&mut self, now: Moment) -> Vec<Waiting<T>> {
        let mut expired = Vec::new();
        while let Some((end, ticket)) = self.ends.first().copied()
            && end <= now
        {
            expired.extend(self.remove(ticket, now));
        }
        expired
    }

    /// He was told this.
    fn hear(&mut self, ticket: Ticket, told: Told, now: Moment) {
        let Some(waiting) = self.waiting.get_mut(&ticket) else {
            return;
        };
        if waiting.again != told.again {
            if let Some(before) = std::mem::replace(&mut waiting.again, told.again) {
                self.agains.remove(&(before, ticket));
            }
            if let Some(again) = told.again {
                self.agains.insert((again, ticket));
            }
        }
        let news = self.groups.set_able(waiting.group, !told.nobody_able, now);
        let members: Vec<_> = news.into_iter().flatten().copied().collect();
        for member in members {
            self.set_end(member);
        }
    }

    /// Sets until when he waits, by what is known of his group.
    fn set_end(&mut self, ticket: Ticket) {
        if let Some(waiting) = self.waiting.get_mut(&ticket) {
            let able_since = self.groups.able_since(waiting.group);
            let facts = &waiting.facts;
            let own = [facts.deadline, facts.patience].into_iter().flatten().min();
            let end = self.limits.end(facts.arrived, own, able_since);
            self.ends.remove(&(waiting.deadline, ticket));
            waiting.deadline = end;
            self.ends.insert((end, ticket));
        }
    }

    /// What a place cost is known now. If that is not said, the estimate stands.
    pub fn settle(&mut self, charge: &Charge, used: Used) {
        if let Used::Tokens { output, .. } = used {
            self.outputs.saw(output, charge.sequences);
        }
        let due = charge.due(used);
        self.class_mut(charge.priority).tenants.settle(charge, due);
    }
}

#[cfg(test)]
mod tests;
