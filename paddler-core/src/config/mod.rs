//! What did the user write, is it sound, and what does it come to?
//!
//! ```text
//! text -> Value (each part with its line and column) -> checked -> Config, Tree
//! ```
//!
//! One reading finds every fault, each with its path, its place and, where it can be said, how to mend it. A key that
//! nobody knows is a fault, since a setting that is misspelt and passed over is worse than one that is refused; so is a
//! number that needs a unit and has none.
//!
//! What comes out is plain data: the binary and those who embed it build from it. The language of trees is described at
//! [`tree`].

mod fault;
mod fields;
#[cfg(feature = "keys")]
pub(crate) mod keys;
mod network;
mod read;
mod registry;
mod report;
mod router;
mod schema;
#[cfg(feature = "proxy")]
mod serve;
mod suggest;
pub mod tree;
pub(crate) mod units;
mod value;
#[cfg(feature = "yaml")]
mod yaml;

pub use fault::{ConfigFaults, Fault};
pub use network::{InvalidNetwork, Network};
pub use registry::{NameTaken, ParamFault, Params, Registry};
#[cfg(feature = "proxy")]
pub(crate) use router::LEAST_HEAD;
pub use router::{
    AccessLog, AdminPaths, AgentAccess, AgentRules, ClientCertificates, Config, CountTokens, DecisionRules,
    FilePurpose, Forwarded, Forwarding, HealthRules, Limits, ListenerTls, LogFormat, LogTarget, Mode,
    ModelTimeouts, NameUpstream, NamedFile, Otlp, Poll, Queue, Retry, Shutdown, Statsd, Telemetry, Timeouts,
    Traceparent, UpstreamConfig, WebSockets,
};
pub use suggest::UnknownWord;
pub(crate) use suggest::named;
pub use tree::tree_from_value;
#[cfg(feature = "yaml")]
pub use tree::tree_from_yaml;
pub use value::{Key, Kind, Place, Value};
