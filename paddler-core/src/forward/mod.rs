//! How does a request get to the upstream and its answer back?
//!
//! One pipeline for every route: `admission` judges who asks for what, `intake` reads and scans the body, `waiting` finds
//! a place for it, `attempt` sends it and `sending` says whether again, `relay` passes the answer on and holds the lease
//! until its end, and `metered` tells whoever pays what it used. `router::passage` strings them together, in [`Router`].
//! [`serve`] puts it behind a listener: `accept` lets clients in, `serving` speaks with one of them.

mod accept;
mod admission;
mod asked;
mod attempt;
mod body;
#[cfg(feature = "decompress")]
mod decode;
mod forwarded;
mod headers;
mod held;
#[cfg(feature = "http2")]
mod http2;
mod intake;
#[cfg(feature = "keys")]
mod keys;
mod line;
mod local;
mod metered;
mod options;
mod peer;
mod permit;
#[cfg(feature = "http2")]
mod preface;
mod rate;
mod refusal;
mod relay;
mod rights;
mod router;
mod sending;
mod server;
mod serving;
mod timeouts;
#[cfg(feature = "tls")]
mod tls;
mod trace;
mod upgrade;
mod usage;
mod vetting;
mod waiting;

pub use accept::{Accept, Connection, OverTls, Peer};
pub use body::{Body, BoxError};
pub use headers::bearer;
#[cfg(feature = "keys")]
pub use keys::{InvalidKeys, Keys};
pub use options::{Annotate, RouterOptions, Timeouts};
pub use refusal::Refusal;
pub use rights::{Authorise, Client};
pub use router::{Router, RouterFuture};
pub use server::{ServeOptions, Served, serve};
#[cfg(feature = "tls")]
pub use tls::{Tls, TlsError};
