//! Does the transport reach upstreams as it should, whatever they speak and wherever they move?
//!
//! Real sockets on loopback; only names are answered by the tests themselves.

#![cfg(feature = "proxy")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod addresses;
#[path = "../../fuzz/checks/answer.rs"]
mod answer;
mod answers;
mod ends;
#[cfg(feature = "http2")]
mod frames;
#[cfg(feature = "http2")]
mod http2;
mod net;
mod requests;
mod reuse;
mod routed;
mod server;
#[cfg(feature = "tls")]
mod tls;
mod wire;
