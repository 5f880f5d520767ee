//! How are the program and its engines run as processes, asked and watched?

pub mod clock;
pub mod costless;
pub mod draw;
pub mod engines;
pub mod figures;
pub mod flags;
pub mod gateway;
pub mod http;
pub mod programs;
pub mod streams;
pub mod trial;
pub mod wire;

/// What went wrong with the trial itself.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
