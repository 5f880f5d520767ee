//! What does an operator look at and change while it serves?
//!
//! Each view is data with names that stay, made from a [`Snapshot`](crate::status::Snapshot) or asked of a
//! [`Router`](crate::forward::Router), and bounded by what upstreams say and the queue holds: the management API of `paddler`
//! only puts them behind paths, and so can whoever embeds the router.
//!
//! | view | says |
//! |---|---|
//! | [`UpstreamStatus`](crate::observe::UpstreamStatus) | how each upstream is |
//! | [`UpstreamPage`] | the same of those that are looked for, and how all are together |
//! | [`ModelStatus`] | who serves each model, and where which adapter is in use |
//! | [`LeaseStatus`] | what is open where, by our own count |
//! | [`QueueStatus`] | who waits |
//! | [`TreeStatus`] | by which tree |
//! | [`Decisions`] | where the last requests went, and why |
//! | [`Tape`], [`Replay`] | the same written down, and what another tree would have done |
//! | [`Feed`] | what has changed, as it changes |

mod decisions;
mod feed;
mod leases;
mod models;
mod queue;
mod replay;
mod tape;
mod tree;
mod upstreams;
mod watch;

pub use decisions::{Attempt, Decision, Decisions, Wanted};
pub use feed::{Event, Feed, News, Place, Reader};
pub use leases::{LeaseStatus, UpstreamLeases};
pub use models::{ModelStatus, Serving, StandsFor};
pub use queue::{ModelWaits, PriorityWaits, QueueStatus};
pub use replay::{BadLine, Elsewhere, Parted, Replay, Replayed};
pub use tape::Tape;
pub use tree::TreeStatus;
pub use upstreams::{
    ListedAdapter, STATES, UpstreamDetails, UpstreamPage, UpstreamQuery, UpstreamRow, UpstreamSort,
    UpstreamTotals,
};
pub use watch::watch;
