//! How is HTTP/1.1 spoken with an upstream?
//!
//! By whoever waits for the answer, in his own task: one exchange at a time over a connection that holds next to nothing
//! while nothing moves. There is no task, no channel and no buffer for each connection, as a client library would have: an
//! event that is streamed wakes one task, and thousands of idle streams are cheap.
//!
//! What is read is read strictly (RFC 9112), since two readers that take the same bytes for different answers give one
//! client what belongs to another. What is only odd ends its connection with the answer; what could mean two things is an
//! error. The parts without I/O are [`request`], [`lines`], [`head`],
//! [`framing`] and [`chunks`].

mod answer;
mod chunks;
mod exchange;
mod framing;
mod head;
mod lines;
mod request;
mod sending;

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::io;

use crate::forward::BoxError;

pub(super) use exchange::{Broken, Exchange};
pub(super) use request::for_http1;

/// How much is read at once into memory that is given back at once, in bytes: most answers and all events fit.
const AT_ONCE: usize = 8 * 1024;

/// Bytes that are no answer, and why not.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Malformed(Cow<'static, str>);

impl From<&'static str> for Malformed {
    fn from(why: &'static str) -> Self {
        Self(why.into())
    }
}

/// Why an exchange came to no end.
#[derive(Debug)]
pub(super) enum Error {
    /// The connection was closed before the answer's head was whole.
    Closed,
    /// The connection was closed before the answer's body was whole.
    CutOff,
    /// There were bytes for which nobody had asked.
    Unasked,
    /// What came first does not begin as an answer does.
    NotHttp,
    /// What came is no answer.
    Malformed(Cow<'static, str>),
    Io(io::Error),
    /// The body of the request could not be had.
    Request(BoxError),
}

impl From<Malformed> for Error {
    fn from(Malformed(why): Malformed) -> Self {
        Self::Malformed(why)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("it closed the connection before it answered"),
            Self::CutOff => f.write_str("it closed the connection in the middle of its answer"),
            Self::Unasked => f.write_str("it spoke before it was asked"),
            Self::NotHttp => f.write_str("it answered, but not in HTTP/1.1"),
            Self::Malformed(why) => write!(f, "it answered, but not in HTTP/1.1: {why}"),
            Self::Io(_) => f.write_str("the connection broke"),
            Self::Request(_) => f.write_str("the body of the request broke off"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Request(error) => Some(&**error),
            _ => None,
        }
    }
}
