//! Is what we have open at each upstream counted right, whatever happens?

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod pool;
mod property;
mod sample;
mod stage;
mod stress;
