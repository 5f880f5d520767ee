//! What becomes of requests, polls and leases when the network between router and engines fails?
//!
//! Router, engines and clients are hosts of a simulated network, in simulated time, in one thread: what takes a minute there
//! takes a moment here, and the same seed gives the same run.

#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

mod client;
mod crashes;
mod engine;
mod links;
mod partitions;
mod world;
