//! What can be seen from outside?

mod metrics;
mod page;

pub use metrics::{InFlight, Metrics};
pub use page::Page;
