//! How are the upstreams?
//!
//! A status source tells which upstreams exist and how they are, in one sequence of
//! [`StatusEvent`]s. The [`StatusBoard`] is the one writer: it applies them and publishes a [`Snapshot`], which any
//! number of readers load from [`Published`] without a lock.

mod aggregate;
mod away;
mod board;
mod change;
#[cfg(feature = "proxy")]
mod claims;
mod columns;
#[cfg(feature = "proxy")]
mod could;
#[cfg(feature = "proxy")]
mod dns;
mod event;
mod names;
#[cfg(feature = "proxy")]
mod poll;
mod published;
mod record;
#[cfg(feature = "proxy")]
mod refresh;
mod report;
mod snapshot;
#[cfg(feature = "proxy")]
mod source;

pub use board::{Applied, BoardOptions, StatusBoard};
pub use change::Change;
pub(crate) use columns::{UNKNOWN, Within};
pub use event::{Failure, FailureKind, StatusEvent};
pub use names::ModelRow;
pub use published::Published;
pub use record::{EntryRecord, InvalidSnapshot, SnapshotRecord};
pub use report::{Adapters, Degraded, Health, ModelRoom, Report, Signal};
pub use snapshot::{Entry, Snapshot, Unpolled};

#[cfg(feature = "proxy")]
pub use dns::DnsList;
#[cfg(feature = "proxy")]
pub use poll::PollOptions;
#[cfg(feature = "proxy")]
pub(crate) use poll::{Asker, Polled, Poller};
#[cfg(feature = "proxy")]
pub use refresh::{LoopEnded, StatusLoop};
#[cfg(feature = "proxy")]
pub use source::{FixedList, MemberList, Members, StatusSource};
