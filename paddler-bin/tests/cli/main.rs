//! Does the program do what it says on the command line, and say what it does?

#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

mod agents;
mod api;
mod check;
mod decisions;
mod demo;
mod deploy;
mod drain;
mod early;
mod events;
mod explain;
mod exports;
mod health;
mod help;
mod install;
mod members;
#[cfg(feature = "envoy")]
mod picker;
mod probes;
mod reload;
mod replay;
mod serve;
mod settings;
mod stop;
#[allow(dead_code, reason = "each target uses its own part of it")]
#[path = "../support/mod.rs"]
mod support;
mod top;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

/// A file with this text, under a name that only one test uses.
fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path
}

/// The path of such a file.
fn path(name: &str, text: &str) -> String {
    file(name, text).to_str().unwrap().to_owned()
}
