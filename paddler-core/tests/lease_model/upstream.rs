//! The accounting of `paddler-core` as it stands in `src/upstream`, over loom's memory and locks, in chunks of two
//! places so that a run has few cells.

#[path = "../../src/upstream/adapters.rs"]
pub(crate) mod adapters;
#[path = "../../src/upstream/chunk.rs"]
pub(crate) mod chunk;
#[path = "../../src/upstream/gates.rs"]
pub(crate) mod gates;
#[path = "../../src/upstream/ledger.rs"]
pub(crate) mod ledger;
#[path = "../../src/upstream/readings.rs"]
pub(crate) mod readings;
#[path = "../../src/upstream/reserve.rs"]
pub(crate) mod reserve;
#[path = "../../src/upstream/settling.rs"]
pub(crate) mod settling;
#[path = "../../src/upstream/young.rs"]
pub(crate) mod young;

pub(crate) mod sync {
    pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};
}

pub(crate) use paddler_core::upstream::UpstreamIndex;

pub(crate) const LANES: usize = 2;
