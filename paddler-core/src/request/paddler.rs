//! What does a path mean to a router itself?

use super::route::Entry;

/// What a router in front asks.
pub(crate) const STATUS: &str = "/paddler/v1/status";

pub(super) const TABLE: &[Entry] = &[Entry::local(STATUS)];
