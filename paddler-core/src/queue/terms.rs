//! In which words is told of those who wait, who is served and who has to go?

use super::groups::GroupId;
use super::tenants::Turn;
use super::{Charge, Priority, Tried};
use crate::Moment;
use crate::request::RequestFacts;
use crate::upstream::UpstreamId;

/// The place of one who waits. It is never given again.
///
/// Of two tickets the one of who came first is less, also when he had a place, was refused there, and waits once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    pub(super) arrived: Moment,
    pub(super) number: u64,
}

impl Ticket {
    /// No ticket is less.
    pub(super) const FIRST: Self = Self {
        arrived: Moment::ZERO,
        number: 0,
    };
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
    pub(super) priority: Priority,
    pub(super) turn: Turn,
    pub(super) group: GroupId,
    pub(super) alone: bool,
    pub(super) again: Option<Moment>,
    pub(super) asked: u64,
    /// So many places have gone past him in his turn, since he is too heavy for what was free.
    pub(super) passed: u32,
}

impl<T> Waiting<T> {
    /// His class.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// When he is to be asked again though nothing has changed.
    pub fn again(&self) -> Option<Moment> {
        self.again
    }

    /// The line of his tenant in which he stands.
    pub(super) fn line(&self) -> Option<GroupId> {
        (!self.alone).then_some(self.group)
    }
}

/// What somebody was told who found no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Told {
    /// Nobody who could ever serve him is able to now: upstreams are starting, or there are none.
    pub nobody_able: bool,
    /// When he may be told something else though nothing has changed.
    pub again: Option<Moment>,
}

/// What comes of asking somebody whether he can use what is free.
#[derive(Debug)]
#[non_exhaustive]
pub enum Offer<P> {
    /// He gets a place at this upstream.
    Place {
        /// What he gets.
        place: P,
        /// Where.
        upstream: UpstreamId,
        /// What it counts there, which is what his tenant is charged for: what he asks for, or less, where that is more than
        /// the upstream ever has.
        weight: u32,
    },
    /// He leaves the queue with this and without a place.
    Leave(P),
    /// He waits on.
    Wait(Told),
    /// He waits on: this upstream has room, and less than he needs. When four places there have gone past him in his turn, its
    /// room is held back for him: see [`WaitQueue::hand_out`](super::WaitQueue::hand_out).
    Short {
        /// What he was told.
        told: Told,
        /// Which.
        upstream: UpstreamId,
    },
    /// He waits on, and nothing is free for anybody: the others need not be asked.
    Full(Told),
}

/// Somebody who has left the queue with what was free.
#[derive(Debug)]
#[non_exhaustive]
pub struct Served<T, P> {
    /// Who.
    pub waiting: Waiting<T>,
    /// What he got.
    pub answer: P,
    /// What his tenant was charged for it; `None`: he got no place.
    pub charge: Option<Charge>,
}

/// Somebody who waits now.
#[derive(Debug)]
#[non_exhaustive]
pub struct Pushed<T> {
    /// His place in the queue.
    pub ticket: Ticket,
    /// Until when he waits, as of now.
    pub deadline: Moment,
    /// Who had to go for him.
    pub evicted: Vec<Waiting<T>>,
}

/// How one class waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ClassWaits {
    /// How many wait.
    pub waiting: usize,
    /// Since when whoever came first of them has waited.
    pub oldest: Option<Moment>,
    /// How many had to go for others, so far.
    pub evicted: u64,
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
