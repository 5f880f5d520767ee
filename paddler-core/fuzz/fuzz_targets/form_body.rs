//! Does any form make the scanner panic, or read it differently when it is cut elsewhere or read by another?

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../checks/form_body.rs"]
mod form_body;

fuzz_target!(|body: &[u8]| form_body::check(body));
