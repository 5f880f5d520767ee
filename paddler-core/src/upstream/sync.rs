//! Where do shared memory and locks come from?
//!
//! From here alone, so that the model check (`tests/lease_model`) can build the accounting a second time, over
//! primitives that try every interleaving and every stale read that the orderings allow.

pub(crate) use std::sync::{Mutex, MutexGuard, atomic};
