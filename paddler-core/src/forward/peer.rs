//! Who is at the other end of a connection, and does its word count?

use super::accept::Peer;
use crate::config::Network;

/// Who forwards a request to us.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Origin {
    /// `None`: nobody has said.
    pub(super) peer: Option<Peer>,
    /// Whether what it says of the request counts.
    pub(super) trusted: bool,
}

impl Origin {
    pub(super) fn of(peer: Option<Peer>, trusted: &[Network]) -> Self {
        let is_trusted = |peer: Peer| trusted.iter().any(|network| network.contains(peer.0.ip()));
        Self {
            peer,
            trusted: peer.is_some_and(is_trusted),
        }
    }
}
