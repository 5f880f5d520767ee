//! Does the page of the management listener show what there is, and do what it says, in a browser?
//!
//! The browser is Chromium without a window: that of PADDLER_CHROMIUM, or the first of `chromium`, `chromium-browser` and
//! `google-chrome`. Where there is none each test says so and passes, unless PADDLER_REQUIRE_CHROMIUM is 1. With
//! PADDLER_SCREENSHOTS each picture that is taken is also written into that folder, to be looked at.

#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

mod browser;
mod looks;
mod rights;
#[allow(dead_code, reason = "each target uses its own part of it")]
#[path = "../support/mod.rs"]
mod support;
mod use_it;
