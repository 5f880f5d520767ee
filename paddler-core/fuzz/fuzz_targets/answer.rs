//! Do any bytes of an upstream make its answer something else when they come in other pieces, or panic?

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../checks/answer.rs"]
mod answer;

fuzz_target!(|bytes: &[u8]| answer::check(bytes));
