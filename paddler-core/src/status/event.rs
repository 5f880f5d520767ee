//! What can happen to the upstreams?

use std::fmt;
use std::str::FromStr;

use super::Report;
use crate::config::{UnknownWord, named};
use crate::upstream::{SampleToken, UpstreamId, UpstreamSpec};

/// One thing that happened. Membership and status are one sequence, so there is one writer and no order to lose.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StatusEvent {
    /// The upstream exists and is like this. One with the same id is replaced, unless that is the same
    /// in everything; its counters go on.
    Upsert(UpstreamSpec),
    /// It exists no more. What is open on it goes on to its end.
    Remove(UpstreamId),
    /// It said how it is. A report is whole and replaces the last one, a poll's included: where upstreams are polled, a
    /// source of one's own should send what it knows in the extensions of the spec ([`Upsert`](Self::Upsert)), or say
    /// there that it is [`Unpolled`](super::Unpolled).
    Report {
        /// Who.
        id: UpstreamId,
        /// What it said.
        report: Report,
        /// What was open on it when it was asked, from [`Ledger`](crate::upstream::Ledger); `None` when it spoke
        /// unasked, and then our own requests are taken as they are when the report comes in.
        sample: Option<SampleToken>,
    },
    /// It could not be asked. Its last report stays, and ages.
    Failed {
        /// Who.
        id: UpstreamId,
        /// Why.
        failure: Failure,
    },
}

/// Why an upstream could not say how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure it was.
    pub kind: FailureKind,
    /// What happened, for logs.
    pub message: String,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.as_str(), self.message)
    }
}

/// The kinds of failed polls. One alone says nothing of whether somebody is there, but for [`Silent`](Self::Silent).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// No connection could be made.
    Unreachable,
    /// It did not answer in time. A busy engine does that, so it is stale, not broken. So is one that could not be asked since
    /// we had no file descriptor left.
    Timeout,
    /// It answered what cannot be read.
    Unreadable,
    /// Whoever tells how it is has said nothing for too long: nobody knows whether it is there.
    Silent,
}

impl FromStr for FailureKind {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        named(word, "a failure", Self::ALL, Self::as_str)
    }
}

impl FailureKind {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Unreachable, Self::Timeout, Self::Unreadable, Self::Silent];

    /// The word used in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Unreadable => "unreadable",
            Self::Silent => "silent",
        }
    }
}
