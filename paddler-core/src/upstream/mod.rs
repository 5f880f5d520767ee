//! Where can a request go?
//!
//! An upstream is an engine, another balancer or a third-party API. What it *is* (identity, address, labels, models,
//! limits) is data: [`UpstreamSpec`]. What is *open* on it is counted in a ledger, and each request that may use
//! it holds a lease.

mod extensions;
mod spec;

pub use extensions::Extensions;
pub use spec::{Engine, InvalidId, Limits, ModelEntry, Models, UpstreamId, UpstreamIndex, UpstreamSpec};
