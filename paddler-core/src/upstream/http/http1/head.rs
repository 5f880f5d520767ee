//! What does the head of an answer say?

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};
use httparse::{EMPTY_HEADER, Header, ParserConfig, Status};

use super::Malformed;

/// The status line and the headers of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) version: Version,
    /// What it says in words, where that is not what everybody says.
    pub(super) reason: Option<Bytes>,
    pub(super) headers: HeaderMap,
}

/// How all heads begin that are read here.
const BEGIN: &[u8] = b"HTTP/1.";

/// Whether these bytes may become a head. Who speaks something else is known by its first byte.
pub(super) fn may_begin(bytes: &[u8]) -> bool {
    let known = bytes.len().min(BEGIN.len());
    bytes[..known] == BEGIN[..known]
}

/// Reads a head that is here to its empty line, of so many lines.
pub(super) fn read(bytes: &[u8], lines: usize) -> Result<Head, Malformed> {
    // Of just its size: the values of the headers share it until the last of them has been passed on.
    let block = Bytes::copy_from_slice(bytes);
    let mut few = [const { MaybeUninit::uninit() }; 64];
    let mut many = Vec::new();
    let room: &mut [MaybeUninit<Header<'_>>] = if lines <= few.len() {
        &mut few
    } else {
        many.resize_with(lines, MaybeUninit::uninit);
        &mut many
    };
    let mut parsed = httparse::Response::new(&mut []);
    let result = ParserConfig::default().parse_response_with_uninit_headers(&mut parsed, &block, room);
    if !matches!(result, Ok(Status::Complete(length)) if length == bytes.len()) {
        return Err(why(result.err()));
    }
    let (Some(minor), Some(code)) = (parsed.version, parsed.code) else {
        return Err(why(None));
    };
    let status =
        StatusCode::from_u16(code).map_err(|_| Malformed("its status is no number from 100 to 999"))?;
    let reason = parsed
        .reason
        .filter(|reason| !reason.is_empty() && Some(*reason) != status.canonical_reason());
    Ok(Head {
        status,
        version: if minor == 0 {
            Version::HTTP_10
        } else {
            Version::HTTP_11
        },
        reason: reason.map(|reason| block.slice_ref(reason.as_bytes())),
        headers: headers(parsed.headers, &block)?,
    })
}

/// Reads trailers that are here to their empty line, of so many lines.
pub(super) fn read_trailers(bytes: &[u8], lines: usize) -> Result<HeaderMap, Malformed> {
    let block = Bytes::copy_from_slice(bytes);
    let mut room = vec![EMPTY_HEADER; lines];
    match httparse::parse_headers(&block, &mut room) {
        Ok(Status::Complete((length, parsed))) if length == bytes.len() => headers(parsed, &block),
        other => Err(why(other.err())),
    }
}

fn headers(parsed: &[Header<'_>], block: &Bytes) -> Result<HeaderMap, Malformed> {
    let mut headers = HeaderMap::with_capacity(parsed.len());
    for header in parsed {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let name = name.map_err(|_| Malformed("the name of a header is none"))?;
        let value = HeaderValue::from_maybe_shared(block.slice_ref(header.value));
        let value = value.map_err(|_| Malformed("the value of a header is none"))?;
        let added = headers.try_append(name, value);
        added.map_err(|_| Malformed("it has too many headers"))?;
    }
    Ok(headers)
}

fn why(error: Option<httparse::Error>) -> Malformed {
    use httparse::Error;
    Malformed(match error {
        Some(Error::Version) => "it does not begin with HTTP/1.1 or HTTP/1.0",
        Some(Error::Status) => "its status line is none",
        Some(Error::HeaderName) => "the name of a header is none",
        Some(Error::HeaderValue) => "the value of a header is none",
        _ => "its head is none",
    })
}
