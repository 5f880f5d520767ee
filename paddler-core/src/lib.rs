//! Paddler routes each LLM request to the upstream that will answer it soonest, and can say why.

mod moment;
pub mod request;
pub mod schedule;
pub mod source;
pub mod status;
pub mod upstream;

pub use moment::Moment;
