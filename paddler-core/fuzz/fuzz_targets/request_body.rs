//! Does any body make the scanner panic, or read it differently when it is cut elsewhere?

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../checks/request_body.rs"]
mod request_body;

fuzz_target!(|body: &[u8]| request_body::check(body));
