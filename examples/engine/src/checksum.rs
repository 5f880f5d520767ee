//! Has an answer arrived as it was sent?
//!
//! Where a request asks for it by a header `x-sim-checksum` (with any value), or the engine's configuration does, a stream
//! ends with a comment, which clients skip: `: sim bytes=N digest=H`, over every byte before it. Any other answer tells
//! the digest of its body in a header, `x-sim-digest: H`. H is 16 hexadecimal digits.

use std::error::Error;
use std::fmt;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::text::{FNV_START, fnv};
use crate::wire::body::Source;

/// What stands before the numbers in a stream's last line.
const COMMENT: &str = ": sim bytes=";

/// Why a body is not what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Corrupt {
    /// There is no checksum at its end: bytes are missing.
    Unfinished,
    /// There is one, of more, fewer or other bytes.
    Altered,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unfinished => "the stream has no checksum at its end",
            Self::Altered => "the body is not the one that was sent",
        })
    }
}

impl Error for Corrupt {}

/// The digest of a body, as `x-sim-digest` tells it.
#[must_use]
pub fn digest(body: &[u8]) -> String {
    format!("{:016x}", fnv(FNV_START, body))
}

/// Holds a stream against the checksum at its end.
///
/// ```
/// use paddler_engine::{Corrupt, digest, verify_stream};
///
/// let events = "data: {}\n\ndata: [DONE]\n\n";
/// let sent = format!("{events}: sim bytes={} digest={}\n\n", events.len(), digest(events.as_bytes()));
/// assert_eq!(verify_stream(sent.as_bytes()), Ok(()));
/// assert_eq!(verify_stream(sent.replace("{}", "[]").as_bytes()), Err(Corrupt::Altered));
/// assert_eq!(verify_stream(events.as_bytes()), Err(Corrupt::Unfinished));
/// ```
///
/// # Errors
///
/// Says whether bytes are missing at the end, or are others.
pub fn verify_stream(body: &[u8]) -> Result<(), Corrupt> {
    let marker = COMMENT.as_bytes();
    let at = body
        .windows(marker.len())
        .rposition(|window| window == marker)
        .ok_or(Corrupt::Unfinished)?;
    let (events, comment) = body.split_at(at);
    if comment == last_line(events.len() as u64, fnv(FNV_START, events)).as_bytes() {
        Ok(())
    } else if comment.ends_with(b"\n\n") {
        Err(Corrupt::Altered)
    } else {
        Err(Corrupt::Unfinished)
    }
}

fn last_line(bytes: u64, digest: u64) -> String {
    format!("{COMMENT}{bytes} digest={digest:016x}\n\n")
}

/// A stream that ends with its checksum.
pub(crate) struct Summed {
    source: Box<dyn Source>,
    bytes: u64,
    state: u64,
    ended: bool,
}

impl Summed {
    pub(crate) fn new(source: Box<dyn Source>) -> Self {
        Self {
            source,
            bytes: 0,
            state: FNV_START,
            ended: false,
        }
    }
}

impl Source for Summed {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ended {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(self.source.poll_next(cx)) {
            Some(piece) => {
                self.bytes += piece.len() as u64;
                self.state = fnv(self.state, &piece);
                Some(piece)
            }
            None => {
                self.ended = true;
                Some(Bytes::from(last_line(self.bytes, self.state)))
            }
        })
    }
}
