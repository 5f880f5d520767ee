//! Where do shared memory and locks come from?
//!
//! From here alone, so that model checks (`tests/lease_model`, `tests/wake_model`) can build the accounting, and what wakes a
//! task, a second time, over primitives that try every interleaving and every stale read that the orderings allow.

pub(crate) use std::sync::{Mutex, MutexGuard, atomic};
