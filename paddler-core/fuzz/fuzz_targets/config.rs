//! Does any text make the reading of a config panic, or point at a place that is not there?

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../checks/config.rs"]
mod config;

fuzz_target!(|text: &str| config::check(text));
