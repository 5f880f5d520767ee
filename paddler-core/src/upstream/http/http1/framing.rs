//! Where does the body of an answer end, and what comes after it?
//!
//! As RFC 9112, 6.3 and 9.3 say.

use http::header::{CONNECTION, TRANSFER_ENCODING};
use http::{HeaderMap, Method, StatusCode, Version};

use super::Malformed;
use super::chunks::Chunks;
use super::head::Head;
use crate::forward::{length, lists};

/// Where a body ends, and how far it has been read.
#[derive(Debug)]
pub(super) enum Framing {
    /// After so many more bytes.
    Length(u64),
    /// After the last chunk.
    Chunked(Chunks),
    /// Where the connection does.
    UntilClose,
}

/// What the first of some bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// So many that say where others end.
    Frame(usize),
    /// So many of the body.
    Data(usize),
}

impl Framing {
    /// That of an answer to this method; true: another answer may come behind it.
    pub(super) fn of(head: &Head, method: &Method) -> Result<(Self, bool), Malformed> {
        let Head {
            status,
            version,
            headers,
            ..
        } = head;
        let is_old = *version == Version::HTTP_10;
        let goes_on = if is_old {
            lists(headers, &CONNECTION, "keep-alive") && !lists(headers, &CONNECTION, "close")
        } else {
            !lists(headers, &CONNECTION, "close")
        };
        let length = length(headers).map_err(Malformed::from)?;
        let chunked = is_chunked(headers)?;
        if is_old && chunked {
            return Err(Malformed::from("there are no chunks in HTTP/1.0"));
        }
        let bodiless = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(status);
        if method == Method::HEAD || bodiless {
            return Ok((Self::Length(0), goes_on));
        }
        Ok(match length {
            // The chunks count, but whoever wrote the length may have meant it.
            _ if chunked => (Self::Chunked(Chunks::default()), goes_on && length.is_none()),
            Some(length) => (Self::Length(length), goes_on),
            None => (Self::UntilClose, false),
        })
    }

    /// Looks at what has come next, at least a byte. Not to be asked once it [is over](Self::is_over).
    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<Step, Malformed> {
        match self {
            Self::Length(left) => {
                let taken = (bytes.len() as u64).min(*left);
                *left -= taken;
                Ok(Step::Data(taken as usize))
            }
            Self::Chunked(chunks) => chunks.step(bytes),
            Self::UntilClose => Ok(Step::Data(bytes.len())),
        }
    }

    /// The body of an answer that has come as a whole, and whether more has.
    pub(super) fn whole<'b>(&self, bytes: &'b [u8]) -> Option<(&'b [u8], bool)> {
        let length = usize::try_from(self.left()?).ok()?;
        let (whole, more) = bytes.split_at_checked(length)?;
        Some((whole, !more.is_empty()))
    }

    /// All of the body has come.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.is_over(),
            Self::UntilClose => false,
        }
    }

    /// How many bytes are to come, where that is known.
    pub(super) fn left(&self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(*left),
            Self::Chunked(_) | Self::UntilClose => None,
        }
    }
}

/// Whether it comes in chunks. There is no other coding that was asked for.
fn is_chunked(headers: &HeaderMap) -> Result<bool, Malformed> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(only), None) if only.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err(Malformed::from("it has a transfer coding that nobody asked for")),
    }
}
