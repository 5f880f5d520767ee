//! Who gets the request?
//!
//! A [`Tree`] of [`Filter`]s narrows the set of candidates until a leaf picks among those that are left. A pick is a
//! function of the snapshot, our own counters as read once, the facts of the request, the exclusions, the time and a
//! seed. It does no I/O, takes no lock and allocates nothing in the steady state; the same walk serves the hot path,
//! explanations and counters, and replays exactly from its [`Record`].

mod candidates;
mod condition;
mod context;
mod cost;
pub mod costs;
mod counters;
mod draw;
mod explain;
mod explained;
mod filter;
pub mod filters;
mod frozen;
mod lanes;
mod node;
mod outcome;
mod outline;
mod pick;
mod picture;
mod record;
mod tree;
pub mod trees;
mod walk;

pub use candidates::CandidateSet;
pub use condition::Condition;
pub use context::{PickCx, Reads, Signals};
pub use cost::{Cost, CostFn, cost_fn};
pub use counters::{NodeCount, NodeCounters};
pub(crate) use draw::{Draw, mix, stable_hash};
#[cfg(feature = "proxy")]
pub(crate) use draw::{next_seed, stable_hash_of};
pub use explain::{Explanation, Observer, Step};
pub use explained::{Detail, Explained, ExplainedNode};
pub use filter::{Filter, FilterError, FilterFn, Lack, filter_fn};
pub use node::{Alternative, Gate, Key, Node, NodeId};
pub use outcome::{Class, Ending, Outcome, Picks, Reason};
pub use outline::OutlineNode;
pub use pick::{Ask, Scratch};
pub use picture::{Picture, PictureFormat};
pub use record::{Record, RecordVersion};
pub use tree::{Tree, TreeFault, TreeFaults};
