//! What do the tests of the router and of its listener need: a client that hides nothing, a router, upstreams that misbehave?

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod client;
pub(crate) mod stub;
pub(crate) mod world;
