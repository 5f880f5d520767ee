//! Does the listener speak HTTP as it is written, whoever is at the other end?
//!
//! Clients here are of two kinds: libraries that do all as they should, and bare sockets that do not.

#![cfg(all(feature = "proxy", feature = "http2", feature = "tls"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cases;
mod frames;
mod generator;
mod http2;
mod malformed;
mod memory;
mod oracle;
mod recorder;
mod smuggling;
mod tls;
mod websocket;
mod wire;

#[path = "../support/mod.rs"]
mod support;

use support::{client, stub, world};
