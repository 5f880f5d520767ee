//! What is counted while requests go by?

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use super::histogram::Histogram;
use super::models::{ByModel, MOST, Measured, ModelFigures, OTHER};
use crate::Moment;
use crate::queue::Priority;
use crate::request::{RequestClass, Route};
use crate::status::Snapshot;

/// Counts of one router. Labels are bounded: classes, statuses and reasons come from fixed lists or from the tree,
/// never from a request.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    refusals: Mutex<BTreeMap<String, u64>>,
    retries: Mutex<BTreeMap<&'static str, u64>>,
    not_retried: Mutex<BTreeMap<&'static str, u64>>,
    fallbacks: Mutex<BTreeMap<Pair, u64>>,
    truncated: Mutex<BTreeMap<&'static str, u64>>,
    in_flight: AtomicU64,
    cancelled: AtomicU64,
    waited: [Histogram; 3],
    first_byte: Histogram,
    models: ByModel,
    reloads: Mutex<BTreeMap<&'static str, u64>>,
    config: Mutex<ConfigRead>,
}

/// A model, and the one that served it.
type Pair = (Arc<str>, Arc<str>);

/// When the config in force was read, and whether a later one has a fault.
#[derive(Debug, Default, Clone, Copy)]
struct ConfigRead {
    at: Moment,
    stale: bool,
}

fn read<K: Ord + Clone>(counts: &Mutex<BTreeMap<K, u64>>) -> Vec<(K, u64)> {
    let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    counts.iter().map(|(key, count)| (key.clone(), *count)).collect()
}

fn bump<K: Ord>(counts: &Mutex<BTreeMap<K, u64>>, key: K) {
    *counts
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .entry(key)
        .or_default() += 1;
}

/// The status as it is counted. One that nobody knows counts as the first of its hundred, as clients are to read it
/// (RFC 9110, 15): an upstream that makes up statuses must not make up series.
fn bounded(status: u16) -> u16 {
    let known = StatusCode::from_u16(status).is_ok_and(|status| status.canonical_reason().is_some());
    if known { status } else { status / 100 * 100 }
}

/// The word for a request by its route, and for one that has none.
pub(crate) fn class_of(route: Option<&Route>) -> &'static str {
    match route.map(|route| route.class) {
        Some(RequestClass::Generate(task)) => task.as_str(),
        Some(RequestClass::Control) => "control",
        Some(RequestClass::Local) => "local",
        Some(RequestClass::Admin) => "admin",
        None => "unreadable",
    }
}

/// A request that is being handled; dropped, it is not any more.
#[derive(Debug)]
#[must_use = "dropped, the request counts as handled"]
pub struct InFlight(Arc<Metrics>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}

impl Metrics {
    /// A request has come.
    pub(crate) fn arrived(self: &Arc<Self>) -> InFlight {
        self.in_flight.fetch_add(1, Relaxed);
        InFlight(self.clone())
    }

    /// A request was answered with this status.
    pub(crate) fn answered(&self, route: Option<&Route>, status: u16) {
        bump(&self.requests, (class_of(route), bounded(status)));
    }

    /// A request was refused for this reason.
    pub(crate) fn refused(&self, reason: &str) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        match refusals.get_mut(reason) {
            Some(count) => *count += 1,
            None => {
                refusals.insert(reason.to_owned(), 1);
            }
        }
    }

    /// A request was sent again for this reason.
    pub(crate) fn retried(&self, reason: &'static str) {
        bump(&self.retries, reason);
    }

    /// A request was not sent again for this reason, though it had failed.
    pub(crate) fn not_retried(&self, reason: &'static str) {
        bump(&self.not_retried, reason);
    }

    /// A request was answered by another model than its own, by the rule for this name. A rule for names that begin alike may make
    /// any name of the other.
    pub(crate) fn fell_back(&self, rule: &Arc<str>, to: &Arc<str>, among: &Snapshot) {
        let is_known = !rule.ends_with('*') || among.model(to).is_some();
        let to = if is_known { to.clone() } else { OTHER.into() };
        let mut fallbacks = self.fallbacks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut labels = (rule.clone(), to);
        if fallbacks.len() >= MOST && !fallbacks.contains_key(&labels) {
            labels = (OTHER.into(), OTHER.into());
        }
        *fallbacks.entry(labels).or_default() += 1;
    }

    /// An answer was cut short for this reason.
    pub(crate) fn truncated(&self, reason: &'static str) {
        bump(&self.truncated, reason);
    }

    /// A client left before the end of its answer.
    pub(crate) fn cancelled(&self) {
        self.cancelled.fetch_add(1, Relaxed);
    }

    /// A request has waited so long for its place.
    pub(crate) fn waited(&self, priority: Priority, duration: Duration) {
        self.waited[priority.index()].add(duration);
    }

    /// The first byte of an answer came so long after the request was sent.
    pub(crate) fn first_byte(&self, duration: Duration) {
        self.first_byte.add(duration);
    }

    /// A request that came then asks for this model of these.
    pub(crate) fn measure(&self, model: Option<&str>, among: &Snapshot, arrived: Instant) -> Measured {
        Measured::new(self.models.of(model, among), arrived)
    }

    /// The config was read again at this moment, and is in force if it had no fault.
    pub fn config_read_again(&self, sound: bool, now: Moment) {
        bump(&self.reloads, if sound { "success" } else { "failure" });
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        config.stale = !sound;
        if sound {
            config.at = now;
        }
    }

    /// How often the config was read again, by result.
    pub fn config_reloads(&self) -> Vec<(&'static str, u64)> {
        read(&self.reloads)
    }

    /// When the config in force was read, and whether a later one has a fault.
    pub fn config(&self) -> (Moment, bool) {
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        (config.at, config.stale)
    }

    /// Requests answered so far, by class and status.
    pub fn requests(&self) -> Vec<((&'static str, u16), u64)> {
        read(&self.requests)
    }

    /// Requests refused so far, by reason.
    pub fn refusals(&self) -> Vec<(String, u64)> {
        read(&self.refusals)
    }

    /// Requests sent again so far, by reason.
    pub fn retries(&self) -> Vec<(&'static str, u64)> {
        read(&self.retries)
    }

    /// Requests that failed and were not sent again so far, by what forbade it.
    pub fn retries_denied(&self) -> Vec<(&'static str, u64)> {
        read(&self.not_retried)
    }

    /// Requests sent to another model than their own so far: by the name whose rule says so, and the other one. At most 256 pairs
    /// have counts of their own.
    pub fn fallbacks(&self) -> Vec<(Pair, u64)> {
        read(&self.fallbacks)
    }

    /// Answers cut short so far, by reason.
    pub fn truncations(&self) -> Vec<(&'static str, u64)> {
        read(&self.truncated)
    }

    /// Requests that are being handled.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Relaxed)
    }

    /// Clients that left before the end of their answer.
    pub fn cancellations(&self) -> u64 {
        self.cancelled.load(Relaxed)
    }

    /// In the order of [`Priority::ALL`].
    pub(super) fn waits(&self) -> &[Histogram; 3] {
        &self.waited
    }

    pub(super) fn models(&self) -> Vec<(Arc<str>, Arc<ModelFigures>)> {
        self.models.all()
    }

    pub(super) fn first_bytes(&self) -> &Histogram {
        &self.first_byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::trees;
    use crate::status::StatusBoard;

    #[test]
    fn made_up_statuses_make_no_series() {
        let metrics = Metrics::default();
        for status in 100..=999 {
            metrics.answered(None, status);
        }
        let series = metrics.requests();
        assert!(series.len() < 80, "{}", series.len());
        assert_eq!(series.iter().map(|(_, count)| count).sum::<u64>(), 900);
        assert!(series.contains(&(("unreadable", 502), 1)));
        assert!(series.contains(&(("unreadable", 900), 100)));
    }

    #[test]
    fn there_are_so_many_pairs_of_models_and_no_more() {
        let metrics = Metrics::default();
        let snapshot = StatusBoard::new(trees::gateway()).publish(Moment::ZERO);
        for number in 0..2 * MOST {
            let made_up = number.to_string().into();
            metrics.fell_back(&"gpt-*".into(), &made_up, &snapshot);
            metrics.fell_back(&made_up, &"small".into(), &snapshot);
        }
        let pairs = metrics.fallbacks();
        assert_eq!(pairs.len(), MOST + 1);
        let count = |model: &str, to: &str| {
            let pair = pairs.iter().find(|((a, b), _)| (&**a, &**b) == (model, to));
            pair.map(|(_, count)| *count)
        };
        assert_eq!(count("gpt-*", OTHER), Some(2 * MOST as u64));
        assert_eq!(count("0", "small"), Some(1));
        assert_eq!(count(OTHER, OTHER), Some(MOST as u64 + 1));
    }

    #[test]
    fn what_is_in_flight_ends_with_its_guard() {
        let metrics = Arc::new(Metrics::default());
        let (one, other) = (metrics.arrived(), metrics.arrived());
        assert_eq!(metrics.in_flight(), 2);
        drop(one);
        assert_eq!(metrics.in_flight(), 1);
        drop(other);
        assert_eq!(metrics.in_flight(), 0);
    }
}
