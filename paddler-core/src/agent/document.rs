//! How were agents told by Paddler 1.x?
//!
//! `GET /api/v1/agents` of July 2025: all agents in one document, in the order in which 1.x chose among them. Programs and pages that
//! read it there can read it here.

use std::cmp::Reverse;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tokio::time::Instant;

use super::list::Agents;
use super::registry::AgentUpstream;
use crate::Moment;
use crate::health::HealthState;
use crate::status::{Health, Snapshot};
use crate::upstream::UpstreamId;

/// All agents, as Paddler 1.x told them. Slots are as the router goes by them: as reported, and corrected by its own requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentsDocument {
    /// Who would have been chosen first stands first.
    agents: Vec<AgentEntry>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct AgentEntry {
    agent_id: String,
    last_update: Time,
    quarantined_until: Option<Time>,
    slots_taken: u32,
    slots_taken_since_last_status_update: u32,
    status: Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Time {
    secs_since_epoch: u64,
    nanos_since_epoch: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Status {
    agent_name: Option<String>,
    error: Option<String>,
    external_llamacpp_addr: String,
    is_authorized: Option<bool>,
    is_connect_error: Option<bool>,
    is_decode_error: Option<bool>,
    is_deserialize_error: Option<bool>,
    is_request_error: Option<bool>,
    is_slots_endpoint_enabled: Option<bool>,
    is_unexpected_response_status: Option<bool>,
    slots_idle: u32,
    slots_processing: u32,
}

impl Time {
    fn of(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            secs_since_epoch: since.as_secs(),
            nanos_since_epoch: since.subsec_nanos(),
        }
    }
}

/// The time of day, which 1.x told: nothing here goes by it.
#[expect(clippy::disallowed_methods, reason = "the document has the time of day")]
fn time_of_day() -> SystemTime {
    SystemTime::now()
}

impl Agents {
    /// All agents, as Paddler 1.x told them.
    pub fn document(&self) -> AgentsDocument {
        let (today, at) = (time_of_day(), Instant::now());
        let (snapshot, now) = (self.published().load_full(), self.clock().now());
        let mut agents: Vec<_> = self.with(|registry| {
            let known = registry.known.values();
            known
                .map(|known| {
                    let counts = registry.counts_as(&known.spec.id);
                    entry(known, counts, &snapshot, (today, at, now))
                })
                .collect()
        });
        agents.sort_by(|one, other| {
            let rank = |entry: &AgentEntry| {
                let status = &entry.status;
                let usable =
                    status.error.is_none() && entry.quarantined_until.is_none() && status.slots_idle > 0;
                (
                    Reverse(usable),
                    Reverse(status.slots_idle),
                    status.slots_processing,
                )
            };
            let address = |entry: &AgentEntry| entry.status.external_llamacpp_addr.clone();
            rank(one)
                .cmp(&rank(other))
                .then_with(|| address(one).cmp(&address(other)))
        });
        AgentsDocument { agents }
    }
}

/// `counts`: the id under which its engine counts.
fn entry(
    known: &AgentUpstream,
    counts: &UpstreamId,
    snapshot: &Snapshot,
    (today, at, now): (SystemTime, Instant, Moment),
) -> AgentEntry {
    let index = snapshot.index(known.spec.id.as_str());
    let board = index.and_then(|index| snapshot.entry(index));
    let own = index
        .map(|index| snapshot.ledger().own_load(index))
        .unwrap_or_default();
    let busy = own.weight.saturating_add(board.map_or(0, |entry| entry.others()));
    let limit = board.and_then(|entry| entry.limit()).unwrap_or(0);
    let out = index
        .and_then(|index| snapshot.health(index))
        .and_then(|health| match health.state {
            HealthState::Ejected { until, .. } => Some(until.since(now)),
            _ => health.paused_until.map(|until| until.since(now)),
        });
    let ago = |time: Duration| Time::of(today.checked_sub(time).unwrap_or(UNIX_EPOCH));
    AgentEntry {
        agent_id: known.agent.to_string(),
        last_update: ago(at.saturating_duration_since(known.heard)),
        quarantined_until: out.filter(|out| !out.is_zero()).map(|out| Time::of(today + out)),
        slots_taken: own.weight,
        slots_taken_since_last_status_update: own.weight,
        status: status(known, counts, limit.saturating_sub(busy), busy),
    }
}

fn status(known: &AgentUpstream, counts: &UpstreamId, slots_idle: u32, slots_processing: u32) -> Status {
    let report = known.report.as_ref();
    let found = |begins: &str| {
        let mut degraded = report.into_iter().flat_map(|report| &report.degraded);
        degraded.any(|one| one.found.starts_with(begins))
    };
    let failing = report.is_some_and(|report| report.health == Some(Health::Failing));
    let loading = report.is_some_and(|report| report.health == Some(Health::Loading));
    let why = || report.and_then(|report| Some(report.degraded.first()?.found.clone()));
    let error = match &known.failure {
        _ if known.stale => Some("the agent says nothing".to_owned()),
        _ if *counts != known.spec.id => Some(format!("its engine is told of by {counts}, and counts once")),
        Some(failure) => Some(failure.to_string()),
        None if failing => Some(why().unwrap_or_else(|| "it says that it cannot serve".to_owned())),
        None if loading => Some("it loads its model".to_owned()),
        None => None,
    };
    let able = error.is_none();
    Status {
        agent_name: known.name.clone(),
        external_llamacpp_addr: address(known),
        is_authorized: Some(!found("401") && !found("403")),
        is_connect_error: Some(known.failure.is_some() || known.stale),
        is_decode_error: Some(false),
        is_deserialize_error: Some(false),
        is_request_error: Some(false),
        is_slots_endpoint_enabled: Some(!found("501")),
        is_unexpected_response_status: Some(failing || loading),
        slots_idle: if able { slots_idle } else { 0 },
        slots_processing,
        error,
    }
}

fn address(known: &AgentUpstream) -> String {
    match known.spec.host_and_port() {
        Ok((host, port)) if host.contains(':') => format!("[{host}]:{port}"),
        Ok((host, port)) => format!("{host}:{port}"),
        Err(_) => known.spec.url.clone(),
    }
}
