//! Does `paddler endpoint-picker` hold what it promises, behind a real Envoy?
//!
//! The program that PADDLER_ENVOY names is run with the configs of `bindings/envoy/examples`; where there is none each test
//! says so and passes, unless PADDLER_REQUIRE_ENVOY is 1. Engines are simulated, and with PADDLER_PYTHON llama.cpp's own, too.

#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

mod answers;
mod envoy;
mod failures;
#[allow(dead_code, reason = "each target uses its own part of it")]
#[path = "../real_engines/servers.rs"]
mod servers;
#[allow(dead_code, reason = "each target uses its own part of it")]
#[path = "../support/mod.rs"]
mod support;
