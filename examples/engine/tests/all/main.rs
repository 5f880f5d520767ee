//! Does the engine do over real sockets what it promises?

#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

mod client;
mod connections;
mod faults;
mod journal;
mod llamacpp;
mod odd_answers;
mod repeat;
mod vllm;
