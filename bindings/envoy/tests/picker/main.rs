//! Does the picker speak with Envoy as it has to, whatever Envoy says?
//!
//! Envoy is played by a gRPC client that says what each test wants, over loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod envoy;
mod flows;
mod gateway;
mod health;
mod hostile;
mod modes;
mod names;
mod pressure;
mod tls;
mod world;
