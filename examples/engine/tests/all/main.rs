//! Does the engine do over real sockets what it promises?

#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

mod client;
mod connections;
mod faults;
mod llamacpp;
mod repeat;
mod vllm;
