//! What has the engine seen?

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::Serialize;

use crate::meters::Meters;
use crate::schedule::{Finish, Load};

/// Distinct paths that are counted by name; more are counted as `other`.
const MAX_PATHS: usize = 256;

/// What an engine has counted since its start. Requests to `/sim/` are not among it.
///
/// A request is one HTTP request. A task is what takes a slot: a request has `n` times as many as it has
/// prompts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Requests whose body has arrived in full.
    pub requests: u64,
    /// Requests by path, without the query.
    pub by_path: BTreeMap<String, u64>,
    /// Tasks that hold a slot now.
    pub running: usize,
    /// Tasks that wait for one now (llama.cpp: deferred).
    pub waiting: usize,
    /// Most tasks that ran at once.
    pub max_running: usize,
    /// Most tasks that waited at once.
    pub max_waiting: usize,
    /// Tasks that came to their end.
    pub completed: u64,
    /// Tasks that were given up because their client had left.
    pub cancelled: u64,
    /// Tasks that lost their KV-cache blocks to others and began anew, counted each time.
    pub preempted: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Connections open now.
    pub open_connections: u64,
}

/// One request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestRecord {
    /// The method.
    pub method: Method,
    /// The path with its query.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Counts requests and connections, and remembers the last requests.
#[derive(Debug)]
pub(crate) struct Ledger {
    capacity: usize,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    requests: u64,
    by_path: BTreeMap<String, u64>,
    log: VecDeque<RequestRecord>,
    connections: u64,
    open_connections: u64,
}

impl Ledger {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            entries: Mutex::default(),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record(&self, parts: &http::request::Parts, body: &Bytes) {
        let mut entries = self.entries();
        let path = parts.uri.path();
        entries.requests += 1;
        let known = entries.by_path.len() < MAX_PATHS || entries.by_path.contains_key(path);
        *entries
            .by_path
            .entry(if known { path } else { "other" }.to_owned())
            .or_default() += 1;
        if self.capacity == 0 {
            return;
        }
        if entries.log.len() >= self.capacity {
            entries.log.pop_front();
        }
        entries.log.push_back(RequestRecord {
            method: parts.method.clone(),
            path: parts
                .uri
                .path_and_query()
                .map_or(path, |path| path.as_str())
                .to_owned(),
            headers: parts.headers.clone(),
            body: body.clone(),
        });
    }

    pub(crate) fn connected(&self) {
        let mut entries = self.entries();
        entries.connections += 1;
        entries.open_connections += 1;
    }

    pub(crate) fn disconnected(&self) {
        let mut entries = self.entries();
        entries.open_connections = entries.open_connections.saturating_sub(1);
    }

    pub(crate) fn requests(&self) -> Vec<RequestRecord> {
        self.entries().log.iter().cloned().collect()
    }

    pub(crate) fn last_request(&self) -> Option<RequestRecord> {
        self.entries().log.back().cloned()
    }

    pub(crate) fn stats(&self, load: &Load, meters: &Meters) -> Stats {
        let entries = self.entries();
        Stats {
            requests: entries.requests,
            by_path: entries.by_path.clone(),
            running: load.running,
            waiting: load.waiting(),
            max_running: load.max_running,
            max_waiting: load.max_waiting,
            completed: meters.ended(Finish::Stop) + meters.ended(Finish::Length),
            cancelled: meters.ended(Finish::Abort),
            preempted: meters.preemptions,
            connections: entries.connections,
            open_connections: entries.open_connections,
        }
    }
}
