//! Is a config read as it is written, and is every fault found with its place?
#![cfg(feature = "yaml")]

#[path = "config/check.rs"]
mod check;
#[path = "config/corpus.rs"]
mod corpus;
#[path = "config/faults.rs"]
mod faults;
#[path = "config/hostile.rs"]
mod hostile;
#[path = "config/registry.rs"]
mod registry;
#[path = "config/settings.rs"]
mod settings;
#[path = "config/tree.rs"]
mod tree;
