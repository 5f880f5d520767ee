//! What does a path mean to a router itself?

use super::route::Entry;

/// What a router in front asks.
pub(crate) const STATUS: &str = "/paddler/v1/status";

pub(super) const TABLE: &[Entry] = &[
    Entry::local(STATUS),
    // What agents say is for the management listener, and holds their key: no engine is to get it.
    Entry::admin("/api/v1/agents/*"),
    Entry::admin("/api/v1/agent_status_update/*"),
    Entry::admin("/status_update/*"),
];
