//! How is each upstream, for a program or a person that asks?

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::state;
use crate::Moment;
use crate::health::{Cause, HealthState, UpstreamHealth};
use crate::status::{Degraded, Entry, Health, Snapshot};
use crate::upstream::{Traffic, UpstreamIndex};

/// One upstream, as it can be told. What is not known is left out: a missing figure is never a zero.
///
/// ```
/// use paddler_core::Moment;
/// use paddler_core::observe::UpstreamStatus;
/// use paddler_core::schedule::trees;
/// use paddler_core::status::{StatusBoard, StatusEvent};
/// use paddler_core::upstream::UpstreamSpec;
///
/// let mut board = StatusBoard::new(trees::gateway());
/// board.apply(StatusEvent::Upsert(UpstreamSpec::new("gpu-1", "http://127.0.0.1:8080")?), Moment::ZERO);
/// let snapshot = board.publish(Moment::ZERO);
/// board.set_draining("gpu-1", true);
///
/// let status = UpstreamStatus::find(&snapshot, "gpu-1", Moment::ZERO).unwrap();
/// assert!(status.draining && status.able && status.report_age.is_none());
/// assert_eq!((status.state, status.why.as_str()), ("draining", "idle: it has nothing left"));
/// assert_eq!(status.service.unwrap().state, "healthy", "no request has failed there");
/// # Ok::<(), paddler_core::upstream::InvalidId>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UpstreamStatus {
    /// Its name.
    pub id: String,
    /// Where it listens.
    pub url: String,
    /// Its labels, of the config.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Which requests reach it. Left out where it is written: all.
    #[serde(skip_serializing_if = "is_all")]
    pub traffic: Traffic,
    /// How it is, in a word: `ejected` (left out for what became of its requests), `unable` (by its own word, or nobody is
    /// there), `loading`, `unheard` (it has not said anything yet), `paused` (as it has asked by `Retry-After`), `degraded` (it
    /// does not tell all that it should), `probing`, `warming`, `draining` or `healthy`.
    pub state: &'static str,
    /// Why, in a few words for people. Empty: there is nothing to say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// It gets nothing new.
    pub draining: bool,
    /// It is not known to be unable to serve, by its own word and its polls. Whether it is left out all the same, for what
    /// became of its requests, is in `service`.
    pub able: bool,
    /// Whether it is sent work, by what became of its requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceStatus>,
    /// Our own requests there that have not ended, those without weight included.
    pub in_flight: u32,
    /// Their weight, with what settles.
    pub open_weight: u32,
    /// The most weight that may be open there, whoever sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_weight: Option<u32>,
    /// What it says of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Requests that it reports as running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<u32>,
    /// Requests that it reports as waiting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u32>,
    /// The share of its KV cache in use, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_cache_usage: Option<f64>,
    /// The time since it was asked for its last report, in seconds where it is written. `None` also for somebody else's API that
    /// is [asked nothing](crate::upstream::UpstreamSpec::is_hosted).
    #[serde(
        rename = "report_age_seconds",
        serialize_with = "seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub report_age: Option<Duration>,
    /// Polls that have failed since then.
    pub failed_polls: u32,
    /// Why the last of them failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<String>,
    /// What its last report should have said and did not, and what was found instead: where it refuses our key, this says so.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<Degraded>,
}

/// Whether an upstream is sent work, by what became of its requests: [`UpstreamHealth`], with times from now on.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ServiceStatus {
    /// `healthy`; `ejected`: it gets nothing, unless as a last resort; `probing`: one request at a time, until it is seen to
    /// serve; `warming`: its limit grows.
    pub state: &'static str,
    /// Why it was ejected, while it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// It is out, and gets what nobody else could serve all the same. Left out where it is not so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub last_resort: bool,
    /// When that ends: it is probed, or takes its full part. In seconds where it is written.
    #[serde(
        rename = "ends_in_seconds",
        serialize_with = "seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub ends_in: Option<Duration>,
    /// For how long it is left alone, as it has asked by `Retry-After`. In seconds where it is written.
    #[serde(
        rename = "paused_for_seconds",
        serialize_with = "seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub paused_for: Option<Duration>,
    /// Faults in a row so far.
    pub faults: u32,
    /// How often it was ejected since it joined.
    pub ejections: u64,
}

impl ServiceStatus {
    fn of(health: &UpstreamHealth, now: Moment) -> Self {
        let (state, cause, until) = match health.state {
            HealthState::Healthy => ("healthy", None, None),
            HealthState::Ejected { cause, until } => ("ejected", Some(cause), Some(until)),
            HealthState::Probing => ("probing", None, None),
            HealthState::Warming { until } => ("warming", None, Some(until)),
        };
        let paused_until = health.paused_until.filter(|until| now < *until);
        Self {
            state,
            cause,
            last_resort: health.last_resort,
            ends_in: until.map(|until| until.since(now)),
            paused_for: paused_until.map(|until| until.since(now)),
            faults: health.faults,
            ejections: health.ejections,
        }
    }
}

fn is_all(traffic: &Traffic) -> bool {
    *traffic == Traffic::All
}

fn seconds<S: Serializer>(age: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(age.unwrap_or_default().as_secs_f64())
}

impl UpstreamStatus {
    /// All upstreams of a snapshot, in the order of their places.
    pub fn all(snapshot: &Snapshot, now: Moment) -> Vec<Self> {
        snapshot
            .iter()
            .map(|(at, entry)| Self::of(snapshot, at, entry, now))
            .collect()
    }

    /// The upstream with this id.
    pub fn find(snapshot: &Snapshot, id: &str, now: Moment) -> Option<Self> {
        let at = snapshot.index(id)?;
        Some(Self::of(snapshot, at, snapshot.entry(at)?, now))
    }

    /// The upstream at this place.
    pub(crate) fn of(snapshot: &Snapshot, at: UpstreamIndex, entry: &Entry, now: Moment) -> Self {
        let spec = entry.spec();
        Self {
            id: spec.id.to_string(),
            url: spec.url.clone(),
            labels: spec.labels.clone(),
            ..Self::unnamed(snapshot, at, entry, now)
        }
    }

    /// The same without what its spec calls it, which is most of what is copied: for who goes through thousands.
    pub(crate) fn unnamed(snapshot: &Snapshot, at: UpstreamIndex, entry: &Entry, now: Moment) -> Self {
        let (spec, report) = (entry.spec(), entry.report());
        let own = snapshot.ledger().own_load(at);
        let mut status = Self {
            id: String::new(),
            url: String::new(),
            labels: BTreeMap::new(),
            traffic: spec.traffic,
            state: "",
            why: String::new(),
            draining: snapshot.ledger().is_barred(at.0),
            able: snapshot.is_able(at.0),
            service: snapshot.health(at).map(|health| ServiceStatus::of(&health, now)),
            in_flight: own.requests,
            open_weight: own.weight,
            limit_weight: entry.limit(),
            health: report.and_then(|report| report.health),
            running: report.and_then(|report| report.running.or(report.slots_busy)),
            waiting: report.and_then(|report| report.waiting),
            // A source of the host's may say anything; what is no number is unknown.
            kv_cache_usage: report
                .and_then(|report| report.kv_cache_usage)
                .filter(|usage| usage.is_finite()),
            report_age: report
                .filter(|_| !spec.is_never_asked())
                .map(|_| now.since(entry.reported_at())),
            failed_polls: entry.failures(),
            last_failure: entry.last_failure().map(ToString::to_string),
            degraded: report.map(|report| report.degraded.clone()).unwrap_or_default(),
        };
        (status.state, status.why) = state::told(&status);
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::trees;
    use crate::status::{Report, StatusBoard, StatusEvent};
    use crate::upstream::{Engine, ModelEntry, Models, UpstreamSpec};

    fn told(change: impl FnOnce(&mut UpstreamSpec)) -> UpstreamStatus {
        let mut spec = UpstreamSpec::new("a", "http://127.0.0.1:1").unwrap();
        change(&mut spec);
        let mut board = StatusBoard::new(trees::gateway());
        let (id, sample) = (spec.id.clone(), None);
        board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
        let mut report = Report::new();
        report.health = Some(Health::Ready);
        board.apply(StatusEvent::Report { id, report, sample }, Moment::ZERO);
        UpstreamStatus::find(&board.publish(Moment::ZERO), "a", Moment::ZERO).unwrap()
    }

    #[test]
    fn who_is_asked_nothing_has_told_nothing_and_is_well_all_the_same() {
        let models = || Some(Models::Listed(vec![ModelEntry::new("m")]));
        let hosted = told(|spec| {
            (spec.engine, spec.traffic, spec.models) = (Engine::Openai, Traffic::Fallback, models());
        });
        assert_eq!((hosted.report_age, hosted.state), (None, "healthy"));
        let written = |status: &UpstreamStatus| serde_json::to_value(status).unwrap();
        assert_eq!(written(&hosted)["traffic"], "fallback");
        // Its models it is asked for.
        let asked = told(|spec| (spec.engine, spec.traffic) = (Engine::Openai, Traffic::Fallback));
        assert_eq!(asked.report_age, Some(Duration::ZERO));
        let own = told(|spec| spec.models = models());
        assert_eq!(own.report_age, Some(Duration::ZERO));
        assert!(written(&own).get("traffic").is_none(), "it gets all");
    }
}
