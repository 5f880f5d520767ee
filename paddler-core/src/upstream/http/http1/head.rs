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

/// Reads a head that is here to its empty line, of so many lines. Its headers come into `room`, in the place of what is there.
pub(super) fn read(bytes: &[u8], lines: usize, room: HeaderMap) -> Result<Head, Malformed> {
    // Of just its size: the values of the headers share it until the last of them has been passed on.
    let block = Bytes::copy_from_slice(bytes);
    let mut few = [const { MaybeUninit::uninit() }; 64];
    let mut many = Vec::new();
    let found: &mut [MaybeUninit<Header<'_>>] = if lines <= few.len() {
        &mut few
    } else {
        many.resize_with(lines, MaybeUninit::uninit);
        &mut many
    };
    let mut parsed = httparse::Response::new(&mut []);
    let result = ParserConfig::default().parse_response_with_uninit_headers(&mut parsed, &block, found);
    if !matches!(result, Ok(Status::Complete(length)) if length == bytes.len()) {
        return Err(why(result.err(), bytes, 1));
    }
    let (Some(minor), Some(code)) = (parsed.version, parsed.code) else {
        return Err(why(None, bytes, 1));
    };
    let status =
        StatusCode::from_u16(code).map_err(|_| Malformed::from("its status is no number from 100 to 999"))?;
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
        headers: headers(parsed.headers, &block, room)?,
    })
}

/// Reads trailers that are here to their empty line, of so many lines.
pub(super) fn read_trailers(bytes: &[u8], lines: usize) -> Result<HeaderMap, Malformed> {
    let block = Bytes::copy_from_slice(bytes);
    let mut room = vec![EMPTY_HEADER; lines];
    match httparse::parse_headers(&block, &mut room) {
        Ok(Status::Complete((length, parsed))) if length == bytes.len() => {
            headers(parsed, &block, HeaderMap::new())
        }
        other => Err(why(other.err(), bytes, 0)),
    }
}

fn headers(parsed: &[Header<'_>], block: &Bytes, room: HeaderMap) -> Result<HeaderMap, Malformed> {
    let mut headers = room;
    headers.clear();
    if headers.capacity() < parsed.len() {
        headers = HeaderMap::with_capacity(parsed.len());
    }
    for header in parsed {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let name = name.map_err(|_| bad_name(header.name.as_bytes()))?;
        let value = HeaderValue::from_maybe_shared(block.slice_ref(header.value));
        let value = value.map_err(|_| bad_value(header.name.as_bytes()))?;
        let added = headers.try_append(name, value);
        added.map_err(|_| Malformed::from("it has too many headers"))?;
    }
    Ok(headers)
}

/// What is wrong with these bytes, of which so many lines are no headers.
fn why(error: Option<httparse::Error>, bytes: &[u8], before: usize) -> Malformed {
    use httparse::Error;
    let first = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    match error {
        Some(Error::Version) => {
            Malformed(format!("it does not begin with HTTP/1.1 or HTTP/1.0: {}", quoted(first)).into())
        }
        Some(Error::Status) => Malformed(format!("its status line is not valid: {}", quoted(first)).into()),
        Some(Error::HeaderName | Error::HeaderValue) => {
            let fields = bytes.split(|byte| *byte == b'\r').skip(before);
            let bad = fields.filter_map(|line| bad_field(line.strip_prefix(b"\n").unwrap_or(line)));
            { bad }.next().unwrap_or_else(|| "a header is not valid".into())
        }
        _ => "its head is not valid".into(),
    }
}

/// What is wrong with the line of a header, if that is seen from it alone.
fn bad_field(line: &[u8]) -> Option<Malformed> {
    if line.is_empty() {
        return None;
    }
    let mut parts = line.splitn(2, |byte| *byte == b':');
    let (name, value) = (parts.next().unwrap_or_default(), parts.next());
    if HeaderName::from_bytes(name).is_err() || value.is_none() {
        return Some(bad_name(name));
    }
    let value = value.map(<[u8]>::trim_ascii).map(HeaderValue::from_bytes);
    value.is_some_and(|value| value.is_err()).then(|| bad_value(name))
}

fn bad_name(name: &[u8]) -> Malformed {
    Malformed(format!("the name of a header is not valid: {}", quoted(name)).into())
}

/// What is in it may be a secret.
fn bad_value(name: &[u8]) -> Malformed {
    Malformed(format!("the value of the header {} is not valid", quoted(name)).into())
}

/// As much as a person would read, in printable characters.
fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes[..bytes.len().min(64)].escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_head_is_shown() {
        let long = format!("HTTP/1.1 {}\r\n\r\n", "x".repeat(99));
        let cut = format!("its status line is not valid: \"HTTP/1.1 {}\"", "x".repeat(55));
        for (head, why) in [
            (
                "HTTP/1.1 OK\r\n\r\n",
                "its status line is not valid: \"HTTP/1.1 OK\"",
            ),
            (&long, &cut),
            (
                "HTTP/1.7 200 OK\r\n\r\n",
                "it does not begin with HTTP/1.1 or HTTP/1.0: \"HTTP/1.7 200 OK\"",
            ),
            (
                "HTTP/1.1 200 OK\r\na: b\r\nc d: e\r\n\r\n",
                "the name of a header is not valid: \"c d\"",
            ),
            (
                "HTTP/1.1 200 OK\r\na: b\r\n\x1b[31m: e\r\n\r\n",
                "the name of a header is not valid: \"\\x1b[31m\"",
            ),
            (
                "HTTP/1.1 200 OK\r\na: b\r\nkey: sec\x01ret\r\n\r\n",
                "the value of the header \"key\" is not valid",
            ),
        ] {
            assert_eq!(
                read(head.as_bytes(), 9, HeaderMap::new()),
                Err(Malformed(why.to_owned().into())),
                "{head:?}"
            );
        }
        assert_eq!(
            read_trailers(b"a b: c\r\n\r\n", 9),
            Err(Malformed("the name of a header is not valid: \"a b\"".into()))
        );
    }
}
