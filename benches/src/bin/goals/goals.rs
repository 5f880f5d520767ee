//! What is good enough, and why that much?
//!
//! What others take is what they took on the machine on which the goals were set, before anything was built.

use paddler_benches::pools::Case;

use super::table::Goal;

/// Upstreams, and the nanoseconds that a pick among them may take, with `seed` and for an adapter that is active: the Go code from
/// which that tree is took 12, 105 and 1,700 µs.
pub(crate) const PICKS: [(usize, f64); 3] = [(100, 150.0), (1_000, 1_000.0), (10_000, 10_000.0)];

/// How many times that it may take where no adapter decides, so that all the rest has to be looked at.
const NOT_AFFINE: f64 = 3.0;

/// The same with `gateway`, since that corrects what is reported by our own requests: reading one counter of each upstream takes
/// a third of `PICKS` and more.
const GATEWAY: f64 = 2.0;

/// The nanoseconds that a pick may take. `balancer` has no goal: nobody else has that tree, to be compared with, and all its filters are
/// among those of `gateway`.
pub(crate) fn of_pick(tree: &str, case: Case, affine: f64) -> Option<f64> {
    let times = if case == Case::Affinity { 1.0 } else { NOT_AFFINE };
    match tree {
        "seed" => Some(affine * times),
        "gateway" => Some(affine * times * GATEWAY),
        _ => None,
    }
}

/// Two threads at half their speed do as much as one: with less, a second core would be lost.
pub(crate) const OF_TWO_THREADS: Goal = Goal::at_least(0.5, "");

/// A fortieth of what nginx took to proxy such a chat (41 µs): to know the model has to weigh nothing beside that.
pub(crate) const SMALL_BODY: Goal = Goal::at_most(1.0, "µs");

/// Each byte has to be looked at, since a later key may contradict, and to look for two bytes alone took 1.6 ms.
pub(crate) const LARGE_BODY: Goal = Goal::at_most(2.0, "ms");

/// The same, told by bytes.
pub(crate) const SCANNED: Goal = Goal::at_least(8.0, "GB/s");

/// 4,000 of them a second are then 0.12 cores, a quarter of what polling may take.
pub(crate) const PAGE: Goal = Goal::at_most(30.0, "µs");

/// The rest of a core is for requests. The endpoint picker of the Gateway API Inference Extension took 7.5 cores for half as many polls.
pub(crate) const POLLS: Goal = Goal::at_most(0.5, "cores");

/// Most of it are connections and buffers for polls. It is told for the model.
pub(crate) const OF_UPSTREAM: Goal = Goal::none("KiB");

/// As long as one or two tokens take: nobody notices a restart by it.
pub(crate) const START: Goal = Goal::at_most(50.0, "ms");

/// About a second on a line of 100 Mbit/s.
pub(crate) const FILE: Goal = Goal::at_most(15.0, "MB");

/// A plain proxy of hyper held 27 KiB.
pub(crate) const STREAM: Goal = Goal::at_most(20.0, "KiB");

/// Less, since it has no connection of its own to the engine.
pub(crate) const STREAM_OVER_HTTP2: Goal = Goal::at_most(15.0, "KiB");

/// A quarter of the time between two of 50 events a second, which nobody sees who reads along.
pub(crate) const LATE: Goal = Goal::at_most(5.0, "ms");

/// Of 200,000 that is five bytes for each: not even a hash of it is kept.
pub(crate) const FLAT: Goal = Goal::at_most(1.0, "MiB");

/// Each is code that an embedder has to trust and to build. The rival smg names 88 itself, and what those bring comes to that.
pub(crate) const CRATES: Goal = Goal::at_most(45.0, "");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pick_has_the_goal_of_its_tree_and_its_case() {
        assert_eq!(of_pick("seed", Case::Affinity, 150.0), Some(150.0));
        assert_eq!(of_pick("seed", Case::Shed, 150.0), Some(450.0));
        assert_eq!(of_pick("gateway", Case::Affinity, 150.0), Some(300.0));
        assert_eq!(of_pick("gateway", Case::Miss, 150.0), Some(900.0));
        assert_eq!(of_pick("balancer", Case::Miss, 150.0), None);
    }
}
