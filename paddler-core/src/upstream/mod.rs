//! Where can a request go?
//!
//! An upstream is an engine, another balancer or a third-party API. What it *is* (identity, address, labels, models,
//! limits) is data: [`UpstreamSpec`]. What is *open* on it is counted in the [`Ledger`], and each request that may use
//! it holds a [`Lease`].

mod adapters;
mod extensions;
#[cfg(feature = "proxy")]
pub mod http;
mod lease;
mod ledger;
mod settling;
mod spec;
#[cfg(feature = "proxy")]
mod transport;
mod young;

pub(crate) use adapters::NameId;
pub use extensions::Extensions;
pub use lease::{Lease, Stage};
pub(crate) use ledger::{CHUNK, Reserve, Take};
pub use ledger::{Ledger, SampleToken};
pub use spec::{Engine, InvalidId, Limits, ModelEntry, Models, UpstreamId, UpstreamIndex, UpstreamSpec};

#[cfg(feature = "proxy")]
pub use transport::{CallError, Connect, Sent, Transport, Upstream};
