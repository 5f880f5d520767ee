//! What is open, by our own count?

use std::collections::HashMap;

use serde::Serialize;

use crate::status::{Entry, Snapshot};
use crate::upstream::{UpstreamId, UpstreamIndex};

/// What is open at all upstreams.
///
/// ```
/// use paddler_core::Moment;
/// use paddler_core::manage::LeaseStatus;
/// use paddler_core::request::Facts;
/// use paddler_core::schedule::{Ask, Scratch, trees};
/// use paddler_core::status::{StatusBoard, StatusEvent};
/// use paddler_core::upstream::UpstreamSpec;
///
/// let mut board = StatusBoard::new(trees::balancer());
/// board.apply(StatusEvent::Upsert(UpstreamSpec::new("gpu-1", "http://127.0.0.1:8080")?), Moment::ZERO);
/// let (snapshot, facts) = (board.publish(Moment::ZERO), Facts::new());
/// let lease = snapshot.reserve(&Ask::new(&facts, Moment::ZERO, 1), &mut Scratch::default(), &mut ()).unwrap();
/// let open = |snapshot| LeaseStatus::of(snapshot).upstreams[0].open_weight;
/// assert_eq!(open(&snapshot), 1);
/// lease.complete();
/// assert_eq!(open(&snapshot), 0);
/// # Ok::<(), paddler_core::upstream::InvalidId>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeaseStatus {
    /// The sum of [`UpstreamLeases::in_flight`].
    pub in_flight: u64,
    /// The sum of [`UpstreamLeases::open_weight`].
    pub open_weight: u64,
    /// Weight that settles, also at upstreams that have left.
    pub settling_weight: u64,
    /// The same for each upstream, in the order of their ids.
    pub upstreams: Vec<UpstreamLeases>,
}

/// What is open at an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UpstreamLeases {
    /// Which.
    pub id: UpstreamId,
    /// Requests of ours that have not ended, those without weight included.
    pub in_flight: u32,
    /// Their weight, with what settles.
    pub open_weight: u32,
    /// The part of it that settles: requests that have ended here and perhaps not yet there.
    pub settling_weight: u32,
    /// The most weight that we may have open there: its limit without what others hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_limit_weight: Option<u32>,
    /// Prompt tokens, estimated, that no first byte has answered yet.
    pub prefill_tokens: u64,
    /// Requests that use an adapter.
    pub adapter_requests: u32,
}

impl LeaseStatus {
    /// As it is now, which may be later than the snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let settling = snapshot.ledger().settling_by_place();
        let mut upstreams: Vec<_> = snapshot
            .iter()
            .map(|(at, entry)| UpstreamLeases::of(snapshot, (at, entry), &settling))
            .collect();
        upstreams.sort_by(|one, other| one.id.cmp(&other.id));
        Self {
            in_flight: upstreams.iter().map(|one| u64::from(one.in_flight)).sum(),
            open_weight: upstreams.iter().map(|one| u64::from(one.open_weight)).sum(),
            settling_weight: snapshot.ledger().settling_weight(),
            upstreams,
        }
    }
}

impl UpstreamLeases {
    /// `settling`: what settles, by place.
    pub(super) fn of(
        snapshot: &Snapshot,
        (at, entry): (UpstreamIndex, &Entry),
        settling: &HashMap<u32, u32>,
    ) -> Self {
        let own = snapshot.ledger().own_load(at);
        Self {
            id: entry.spec().id.clone(),
            in_flight: own.requests,
            open_weight: own.weight,
            settling_weight: settling.get(&at.0).copied().unwrap_or(0),
            own_limit_weight: own.limit,
            prefill_tokens: own.prefill_tokens,
            adapter_requests: own.adapter_requests,
        }
    }
}
