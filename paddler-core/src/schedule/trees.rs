//! Which trees are built in, and why are they as they are?
//!
//! Each is here as code and, in [`SEED`], [`BALANCER`] and [`GATEWAY`], as the same tree in the words of a config file;
//! a test holds the two together.

use std::sync::Arc;
use std::time::Duration;

use super::condition::Condition;
use super::context::Signals;
use super::costs::{in_flight_share, prefill_product};
use super::filter::Filter;
use super::filters::{
    Bound, Unknown, all_of, capable, fresh, healthy, heard, kv_cache, least_kv_cache, least_queue,
    lora_active, lora_low_cost, lora_room, model, present, queue_depth, slot,
};
use super::node::Node;
use super::outcome::Class;
use super::tree::Tree;

/// A report older than this is not gone by, in [`balancer`] and [`gateway`]: ten polls at the default interval.
///
/// Where polls are rarer, it has to be longer ([`balancer_with`], [`gateway_with`]): else it leaves whoever was polled
/// last, and requests wait while the others are idle.
pub const FRESH_FOR: Duration = Duration::from_secs(10);

/// Above this usage an engine begins to preempt what it runs: a new request would cost the running ones.
pub const KV_FULL: f64 = 0.95;

/// [`seed`] in the words of a config file.
pub const SEED: &str = include_str!("trees/seed.yaml");
/// [`balancer`] in the words of a config file.
pub const BALANCER: &str = include_str!("trees/balancer.yaml");
/// [`gateway`] in the words of a config file.
pub const GATEWAY: &str = include_str!("trees/gateway.yaml");

/// The thresholds of [`seed_with`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeedThresholds {
    /// Queues below this are short: adapters come before queues. Default 50.
    pub low_queue: u32,
    /// A request that may be shed needs a queue of at most this. Default 5.
    pub shed_queue: u32,
    /// And a KV-cache usage of at most this. Default 0.8.
    pub shed_kv_cache: f64,
}

impl Default for SeedThresholds {
    fn default() -> Self {
        Self {
            low_queue: 50,
            shed_queue: 5,
            shed_kv_cache: 0.8,
        }
    }
}

/// The filter tree of pull request 78 of the Gateway API Inference Extension, bit for bit, from signals as reported.
///
/// Critical requests: while some queue is short, the adapter decides before the queue, since moving an adapter costs more
/// than a short wait; when all are long, the queue comes first. Other requests are shed unless some upstream has a queue
/// of at most 5 and a KV-cache usage of at most 0.8. The order of queue, adapter and KV cache is that of the original,
/// and so is shedding when there is nobody at all.
pub fn seed() -> Tree {
    seed_with(SeedThresholds::default())
}

/// [`seed`] with other thresholds.
pub fn seed_with(thresholds: SeedThresholds) -> Tree {
    let SeedThresholds {
        low_queue,
        shed_queue,
        shed_kv_cache,
    } = thresholds;
    let then = |filters: Vec<Node>| Node::list(filters.into_iter().chain([Node::random()]));
    let least_queue = || Node::prefer(least_queue());
    let least_kv = || Node::prefer(least_kv_cache());
    let low_cost = || Node::prefer(lora_low_cost());
    let capacity: [Arc<dyn Filter>; 2] = [
        Arc::new(queue_depth(Bound::AtMost(f64::from(shed_queue)))),
        Arc::new(kv_cache(Bound::AtMost(shed_kv_cache))),
    ];
    let root = Node::list([
        Node::require_or(present(), Class::Shed),
        Node::when(
            Condition::Critical,
            Node::branch(
                queue_depth(Bound::Below(f64::from(low_queue))),
                Node::branch(
                    lora_active(),
                    then(vec![least_queue(), least_kv()]),
                    then(vec![Node::prefer(lora_room()), least_queue(), least_kv()]),
                ),
                then(vec![least_queue(), low_cost(), least_kv()]),
            ),
            then(vec![
                Node::require_or(all_of(capacity), Class::Shed),
                least_queue(),
                low_cost(),
                least_kv(),
            ]),
        ),
    ]);
    built_in(Signals::Reported, root)
}

/// For llama.cpp machines that serve one model: the one with the lowest share of its slots busy.
///
/// The share and not the number, or a machine with 8 slots and 2 busy would lose to one with 2 slots and 1 busy. Our own
/// leases count at once, so that two requests in a millisecond do not get one slot. When every slot is busy the request
/// waits here, where it can still go to whichever machine is free first, rather than in one machine's own queue.
pub fn balancer() -> Tree {
    balancer_with(FRESH_FOR)
}

/// [`balancer`], with reports that are gone by for so long.
pub fn balancer_with(fresh_for: Duration) -> Tree {
    let root = Node::list([
        Node::require(healthy()),
        Node::require(capable()),
        Node::prefer(heard()),
        Node::prefer(fresh(fresh_for)),
        Node::require(slot()),
        Node::least(in_flight_share()),
    ]);
    built_in(Signals::Corrected, root)
}

/// For several models on engines of any kind: who serves the model, has a slot or room, and will answer soonest.
///
/// The model first, because nothing else matters where it is not, and who can do such work with it; then, for an adapter, those where it is active or has
/// room, because waiting for an adapter's place costs more than a busy engine. Then slots where there are slots, and a KV
/// cache that is not full where one is told. Among those that are left, the least product of prompt tokens ahead and
/// requests in flight: in simulation it does as well as any rule that was tried, whatever the poll interval, since it
/// goes by our own count, which is exact when reports are stale.
pub fn gateway() -> Tree {
    gateway_with(FRESH_FOR)
}

/// [`gateway`], with reports that are gone by for so long.
pub fn gateway_with(fresh_for: Duration) -> Tree {
    let root = Node::list([
        Node::require(model()),
        Node::require(capable()),
        Node::require(healthy()),
        Node::prefer(heard()),
        Node::prefer(fresh(fresh_for)),
        Node::require(slot()),
        Node::require(kv_cache(Bound::Below(KV_FULL)).unknown(Unknown::Pass)),
        Node::when(
            Condition::Adapter,
            Node::list([Node::prefer(lora_low_cost()), Node::least(prefill_product())]),
            Node::least(prefill_product()),
        ),
    ]);
    built_in(Signals::Corrected, root)
}

fn built_in(signals: Signals, root: Node) -> Tree {
    match Tree::new(signals, root) {
        Ok(tree) => tree,
        // A test builds each of them.
        Err(faults) => unreachable!("a built-in tree is unsound: {faults}"),
    }
}
