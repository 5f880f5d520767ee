//! How does a router behave?
//!
//! Its defaults are those of the config file, which gives their reasons.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{AdminPaths, Limits};
use crate::queue::QueueLimits;
use crate::request::ScanLimits;

/// How a router behaves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RouterOptions {
    /// How many requests wait, and how long.
    pub queue: QueueLimits,
    /// How long each stage of a request may take.
    pub timeouts: Timeouts,
    /// The largest body, in bytes. Default 64 MiB: several images, as data URLs.
    pub max_body: u64,
    /// The most bytes of bodies held at once, over all requests. Default 1 GiB.
    pub max_buffered: u64,
    /// How deep a body is looked at.
    pub scan: ScanLimits,
    /// Whether engines' own admin paths are passed on. Default: closed, since they show prompts and load models.
    pub admin: AdminPaths,
    /// Who may use the router. Default `None`: everybody who can connect.
    pub keys: Option<Arc<dyn Authorise>>,
    /// Host names under which this router is asked in absolute form, besides loopback's. Others are refused.
    pub server_names: Vec<String>,
    /// What clients that are refused for now are told to wait. Default 2 s.
    pub retry_after: Duration,
    /// Where chance comes from; `None`: another place each time.
    pub seed: Option<u64>,
}

impl Default for RouterOptions {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            queue: QueueLimits::default(),
            timeouts: Timeouts::default(),
            max_body: limits.body,
            max_buffered: limits.buffered_bodies,
            scan: ScanLimits::default(),
            admin: AdminPaths::default(),
            keys: None,
            server_names: Vec::new(),
            retry_after: Duration::from_secs(2),
            seed: None,
        }
    }
}

/// How long each stage of a request may take. There is no limit on the whole: a long answer is no fault.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// From sending the request to the first byte of the answer's body. Default 600 s: reading a long prompt takes
    /// minutes, and a hung engine must still end.
    pub first_byte: Duration,
    /// From one byte of the answer to the next. Default 60 s: engines decode several tokens a second.
    pub idle: Duration,
    /// From one piece of the client's body to the next. Default 30 s.
    pub body_idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let timeouts = crate::config::Timeouts::default();
        Self {
            first_byte: timeouts.first_byte,
            idle: timeouts.idle,
            body_idle: Limits::default().body_idle,
        }
    }
}

/// Says who may use the router.
pub trait Authorise: fmt::Debug + Send + Sync + 'static {
    /// Whether this key may. It must take the same time for every wrong key.
    fn allows(&self, key: &[u8]) -> bool;
}
