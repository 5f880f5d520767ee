//! Is a config read as it is written, and is every fault found, each with its path and place?
#![cfg(feature = "yaml")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../fuzz/checks/config.rs"]
mod check;
mod corpus;
mod hostile;
mod registry;
mod schema;
mod settings;
mod tree;
