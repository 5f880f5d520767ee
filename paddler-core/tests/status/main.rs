//! How upstreams are asked, what becomes of their answers, and what can be seen of it from outside.
#![cfg(feature = "proxy")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

#[cfg(feature = "yaml")]
mod boards;
mod degraded;
mod dns;
mod engines;
mod fake;
mod keeper;
mod log;
mod members;
mod page;
mod polls;
mod ready;
mod rig;
