//! Is a config read as it is written, and is every fault found, each with its path and place?
#![cfg(feature = "yaml")]

#[path = "../../fuzz/checks/config.rs"]
mod check;
mod corpus;
mod hostile;
mod registry;
mod settings;
mod tree;
