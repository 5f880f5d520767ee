//! Who waits, by class and by model?

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::Moment;
use crate::queue::{ClassWaits, Priority, WaitQueue};
use crate::status::Snapshot;
use crate::upstream::UpstreamId;

/// How many models are told of, those with most waiting first.
const MODELS: usize = 100;

/// The queue, counted. Of a request it says its class, and its model if an upstream has it: nothing else that came with it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueueStatus {
    /// How many wait.
    pub waiting: usize,
    /// The bytes of their bodies.
    pub bytes: u64,
    /// How many may wait.
    pub max_requests: usize,
    /// How long each may wait, in seconds, while somebody is able to serve it.
    pub max_wait_seconds: f64,
    /// By class, the highest first.
    pub priorities: Vec<PriorityWaits>,
    /// By model, the one with most waiting first: 100 at most.
    pub models: Vec<ModelWaits>,
    /// The upstreams whose room is held back for somebody who needs more than is free.
    pub held_back: Vec<UpstreamId>,
}

/// How a class waits.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PriorityWaits {
    /// `high`, `standard` or `sheddable`.
    pub priority: &'static str,
    /// How many wait.
    pub waiting: usize,
    /// How long who came first has waited, in seconds, if anybody waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_wait_seconds: Option<f64>,
    /// How many had to go for others so far.
    pub evicted: u64,
}

/// How those who want one model wait.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ModelWaits {
    /// Which, as it was asked for. `None`: any, or one that no upstream has now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How many wait.
    pub waiting: usize,
    /// How long who came first of them has waited, in seconds.
    pub oldest_wait_seconds: f64,
}

impl QueueStatus {
    /// Counts a queue. Names count as such if an upstream of the snapshot has them.
    ///
    /// ```
    /// use paddler_core::Moment;
    /// use paddler_core::manage::QueueStatus;
    /// use paddler_core::queue::{QueueLimits, Told, WaitQueue};
    /// use paddler_core::request::Facts;
    /// use paddler_core::schedule::trees;
    /// use paddler_core::status::StatusBoard;
    ///
    /// let mut queue = WaitQueue::new(QueueLimits::default());
    /// let facts = Facts::new().priority(1);
    /// queue.push(facts.into(), Default::default(), Told::default(), Moment::ZERO, ()).unwrap();
    /// let snapshot = StatusBoard::new(trees::gateway()).publish(Moment::ZERO);
    /// let told = QueueStatus::of(&queue, &snapshot, Moment::from_nanos(2_000_000_000));
    /// assert_eq!((told.waiting, told.priorities[0].oldest_wait_seconds), (1, Some(2.0)));
    /// ```
    pub fn of<T>(queue: &WaitQueue<T>, snapshot: &Snapshot, now: Moment) -> Self {
        let seconds = |since: Moment| now.since(since).as_secs_f64();
        let class = |(priority, waits): (Priority, ClassWaits)| PriorityWaits {
            priority: priority.as_str(),
            waiting: waits.waiting,
            oldest_wait_seconds: waits.oldest.map(seconds),
            evicted: waits.evicted,
        };
        let mut by_model: BTreeMap<Option<&str>, (usize, Moment)> = BTreeMap::new();
        for waiting in queue.iter() {
            let name = waiting.facts.model.as_deref();
            let name = name.filter(|name| snapshot.model(name).is_some_and(|row| row.is_listed()));
            let (many, oldest) = by_model.entry(name).or_insert((0, waiting.since));
            *many += 1;
            *oldest = (*oldest).min(waiting.since);
        }
        let one = |(model, (waiting, oldest)): (Option<&str>, _)| ModelWaits {
            model: model.map(str::to_owned),
            waiting,
            oldest_wait_seconds: seconds(oldest),
        };
        let mut models: Vec<_> = by_model.into_iter().map(one).collect();
        models.sort_by_key(|one| std::cmp::Reverse(one.waiting));
        models.truncate(MODELS);
        let max_wait: Duration = queue.limits().max_wait;
        Self {
            waiting: queue.len(),
            bytes: queue.bytes(),
            max_requests: queue.limits().max_requests,
            max_wait_seconds: max_wait.as_secs_f64(),
            priorities: Priority::ALL.into_iter().zip(queue.waits()).map(class).collect(),
            models,
            held_back: queue.held_back(),
        }
    }
}
