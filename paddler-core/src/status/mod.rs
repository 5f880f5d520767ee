//! How are the upstreams?

mod report;

pub use report::{Adapters, Degraded, Health, Report, Signal};
