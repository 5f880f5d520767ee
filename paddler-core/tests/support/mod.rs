//! What do the tests of the router and of its listener need: a client that hides nothing, a router, upstreams that misbehave?

// Each of them uses some of it.
#![allow(dead_code)]

pub(crate) mod client;
pub(crate) mod stub;
pub(crate) mod world;
