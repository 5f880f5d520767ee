//! Does the program hold what it promises, in front of llama.cpp's own servers?
//!
//! They come out of the Python package `xllamacpp`, with tiny random models. The interpreter is that of PADDLER_PYTHON,
//! or `python3`; where it lacks what is needed each test says so and passes, unless PADDLER_REQUIRE_ENGINES is 1.

#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

mod agents;
mod answers;
mod clients;
mod levels;
mod load;
mod outages;
mod servers;
#[allow(dead_code, reason = "each target uses its own part of it")]
#[path = "../support/mod.rs"]
mod support;
