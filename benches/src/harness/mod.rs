//! How are the program and its engines run as processes, asked and watched?

pub mod draw;
pub mod engines;
pub mod figures;
pub mod gateway;
pub mod http;
pub mod programs;
pub mod trial;

/// What went wrong with the trial itself.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
