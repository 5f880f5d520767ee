//! Does a request get to the upstream and its answer back, whatever happens on the way?
//!
//! Everything runs over real sockets: a client that hides nothing, the router behind its own server, and simulated
//! engines that misbehave on command. After each test every counter has to be back at zero.

#![cfg(feature = "proxy")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod accepting;
mod acquiring;
mod answers;
mod at_once;
mod by_model;
mod capable;
mod charging;
#[cfg(feature = "decompress")]
mod compressed;
mod ejecting;
mod fairness;
mod fallback;
mod faults;
mod fleets;
mod framing;
mod hosted;
mod hosting;
mod in_paths;
mod keys;
mod leaving;
mod measuring;
mod models;
mod nested;
#[cfg(unix)]
mod out_of_files;
mod overload;
mod owners;
mod passing;
mod patience;
mod peers;
mod pooling;
mod proven;
mod refusals;
mod reload;
mod requests;
mod retrying;
mod server;
mod showing;
#[cfg(feature = "export")]
mod spans;
mod spares;
mod streams;
mod telling;
mod timing;
mod transports;
mod under_way;
mod waiting;

#[path = "../support/mod.rs"]
mod support;

use support::{client, stub, world};
