//! Where can a request go?
//!
//! An upstream is an engine, another balancer or a third-party API. What it *is* (identity, address, labels, models,
//! limits) is data: [`UpstreamSpec`]. What is *open* on it is counted in the [`Ledger`], and each request that may use
//! it holds a [`Lease`].

mod adapters;
mod extensions;
mod lease;
mod ledger;
mod settling;
mod spec;
mod young;

pub(crate) use adapters::NameId;
pub use extensions::Extensions;
pub use lease::{Lease, Stage};
pub(crate) use ledger::{CHUNK, FrozenLanes, Reserve, Take};
pub use ledger::{Ledger, SampleToken};
pub use spec::{Engine, InvalidId, Limits, ModelEntry, Models, UpstreamId, UpstreamIndex, UpstreamSpec};
