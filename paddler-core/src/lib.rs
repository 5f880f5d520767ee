//! Paddler routes each LLM request to the upstream that will answer it soonest, and can say why.

#[cfg(feature = "proxy")]
mod clock;
pub mod config;
#[cfg(feature = "proxy")]
pub mod forward;
mod moment;
#[cfg(feature = "proxy")]
pub mod observe;
pub mod queue;
pub mod request;
pub mod schedule;
pub mod source;
pub mod status;
pub mod upstream;

#[cfg(feature = "proxy")]
pub use clock::Clock;
pub use moment::Moment;
