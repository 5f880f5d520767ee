//! Where can a request go?
//!
//! An upstream is an engine, another balancer or a third-party API. What it *is* (identity, address, labels, models,
//! limits) is data: [`UpstreamSpec`]. What is *open* on it is counted in the [`Ledger`], and each request that may use
//! it holds a [`Lease`].

mod abilities;
mod adapters;
pub(crate) mod address;
mod chunk;
mod extensions;
mod gates;
#[cfg(feature = "proxy")]
pub mod http;
mod lease;
mod ledger;
mod metrics;
mod protocol;
mod readings;
mod reserve;
mod rooms;
mod settling;
mod spec;
pub(crate) mod sync;
#[cfg(test)]
mod tests;
#[cfg(feature = "proxy")]
mod transport;
mod word;
mod young;

pub use abilities::{Abilities, Capability};
pub(crate) use adapters::{CELLS, NameId};
pub use address::InvalidUrl;
pub use extensions::Extensions;
pub(crate) use gates::{Gate, Probe};
pub use lease::{Lease, Stage};
pub(crate) use ledger::Take;
pub use ledger::{Ledger, SampleToken};
pub use protocol::{HostHeader, Http2, Protocol, Tls};
pub use readings::OwnLoad;

pub(crate) use reserve::{Reserve, fits};
pub(crate) use rooms::{RoomTaken, Rooms};
pub use spec::{
    Engine, InvalidId, Limits, ModelEntry, Models, Traffic, UpstreamId, UpstreamIndex, UpstreamSpec,
    UpstreamTimeouts,
};

#[cfg(feature = "proxy")]
pub(crate) use transport::Instead;
#[cfg(feature = "proxy")]
pub use transport::{
    CallError, Carried, Connect, Dispatch, NewConnection, Only, Progress, Sent, ServedBy, Transport,
    Upgraded, Upstream,
};
pub(crate) use word::{Bits, LANES, bit, is_in, set, upstreams};
