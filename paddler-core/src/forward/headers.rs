//! Which headers go on, and which end here?
//!
//! Hop-by-hop headers are about one connection and end here (RFC 9110, 7.6.1), with all that `Connection` names. All
//! others pass in both directions.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, TE, TRAILER,
    TRANSFER_ENCODING,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::asked::OURS;
use super::forwarded::is_claim;
use crate::upstream::http::X_API_KEY;

/// Whether this is about one connection, whoever sends it.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "te"
            | "transfer-encoding"
            | "upgrade"
    )
}

/// Which kinds of headers there are. A request has hardly any of these, and one look at its names costs less than to search for
/// each of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kinds(u8);

impl Kinds {
    /// About one connection.
    pub(super) const HOP_BY_HOP: u8 = 1;
    /// `Via`.
    pub(super) const VIA: u8 = 2;
    /// Asked of this router.
    pub(super) const OURS: u8 = 4;
    /// Where a request comes from.
    pub(super) const CLAIM: u8 = 8;
    /// The trace that it belongs to.
    pub(super) const TRACE: u8 = 16;

    pub(super) fn of(headers: &HeaderMap) -> Self {
        Self(headers.keys().fold(0, |kinds, name| kinds | Self::of_name(name)))
    }

    fn of_name(name: &HeaderName) -> u8 {
        match name.as_str() {
            // What nearly all have, first.
            "host" | "content-length" | "content-type" | "accept" | "user-agent" | "authorization" => 0,
            "via" => Self::VIA,
            "traceparent" | "tracestate" => Self::TRACE,
            other if other.starts_with(OURS) => Self::OURS,
            _ if is_claim(name) => Self::CLAIM,
            _ if is_hop_by_hop(name) => Self::HOP_BY_HOP,
            _ => 0,
        }
    }

    /// Whether there is one of these kinds.
    pub(super) fn has(self, kinds: u8) -> bool {
        self.0 & kinds != 0
    }
}

/// Takes out what is about this connection alone.
///
/// It is done before anything else is read from a request's headers, so that what is judged is what is sent on. `keep` is not
/// taken out, though `Connection` may name it.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap, keep: &[HeaderName]) {
    // One look at the names of those that are there, where most requests and answers have none of these.
    let there: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_hop_by_hop(name))
        .cloned()
        .collect();
    if there.is_empty() {
        return;
    }
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let named = named.iter().filter(|name| !keep.contains(name));
    for name in named.chain(&there) {
        headers.remove(name);
    }
}

/// What the body of an answer is, is not about the connection, whoever says so: a stream of events has to be known as one.
pub(super) const ABOUT_THE_ANSWER: [HeaderName; 2] = [CONTENT_TYPE, CONTENT_ENCODING];

/// Leaves at most one `Content-Length`, and none where the answer came in chunks, whose length it then is not (RFC 9112,
/// 6.3). False: there are several, or what is there is no number.
pub(super) fn settle_length(headers: &mut HeaderMap) -> bool {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
        return true;
    }
    let mut values = headers.get_all(CONTENT_LENGTH).iter();
    match (values.next(), values.next()) {
        (None, _) => return true,
        (Some(only), None) if is_plain(only.as_bytes()) => return true,
        _ => {}
    }
    match length(headers) {
        Ok(None) => true,
        Ok(Some(length)) => {
            set_length(headers, length);
            true
        }
        Err(_) => false,
    }
}

/// Announces so many bytes. What says so already stays: a value that is made anew takes room of its own.
pub(super) fn set_length(headers: &mut HeaderMap, length: u64) {
    let mut values = headers.get_all(CONTENT_LENGTH).iter();
    let (first, more) = (values.next().map(HeaderValue::as_bytes), values.next());
    let says_so = |value: &[u8]| number(value) == Some(length) && is_plain(value);
    let stands = first.is_some_and(says_so) && more.is_none();
    if !stands {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
}

/// Whether a length is written in the one way.
fn is_plain(length: &[u8]) -> bool {
    number(length).is_some() && (length == b"0" || !length.starts_with(b"0"))
}

/// Whether a text begins so, in letters of any case.
pub(super) fn begins(text: &[u8], prefix: &str) -> bool {
    let start = text.get(..prefix.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}

/// HTTP/2 may cut cookies into a field each; in HTTP/1.1 they stand in one (RFC 9113, 8.2.3). `None`: they do.
pub(crate) fn joined_cookies(headers: &HeaderMap) -> Option<HeaderValue> {
    let mut all = headers.get_all(COOKIE).iter();
    let (first, second) = (all.next()?, all.next()?);
    let mut joined = first.as_bytes().to_vec();
    for cookie in std::iter::once(second).chain(all) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(cookie.as_bytes());
    }
    HeaderValue::from_bytes(&joined).ok()
}

/// What `Content-Length` says: digits, and the same each time. Or what is wrong with it.
pub(crate) fn length(headers: &HeaderMap) -> Result<Option<u64>, &'static str> {
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let number = number(value.as_bytes()).ok_or("its length is not a number")?;
        if length.is_some_and(|length| length != number) {
            return Err("it has two lengths");
        }
        length = Some(number);
    }
    Ok(length)
}

/// The number that these digits are; to Rust one may also begin with a sign.
fn number(digits: &[u8]) -> Option<u64> {
    let next = |number: u64, digit: &u8| match digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    };
    digits.iter().try_fold(0, next).filter(|_| !digits.is_empty())
}

/// Whether these headers announce a body of more than nothing.
pub(super) fn announces_bytes(headers: &HeaderMap) -> bool {
    let some = headers
        .get(CONTENT_LENGTH)
        .is_some_and(|length| length.as_bytes() != b"0");
    some || headers.contains_key(TRANSFER_ENCODING)
}

/// Whether these headers announce a body, if only an empty one. To be asked before they are stripped.
pub(super) fn announces_body(headers: &HeaderMap) -> bool {
    headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING)
}

/// Whether a header that is a list names this.
pub(crate) fn lists(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    let lines = headers.get_all(name).iter();
    lines
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .any(|word| word.trim_ascii().eq_ignore_ascii_case(wanted.as_bytes()))
}

/// Whether the client takes trailers. To be asked before its headers are stripped.
pub(super) fn takes_trailers(headers: &HeaderMap) -> bool {
    lists(headers, &TE, "trailers")
}

/// Makes of the client's stripped headers what the upstream gets. `body`: its length, if there is one. `own_keys`: the
/// client's key is for this router, and goes no further. `trailers`: the client takes those of the answer.
pub(super) fn for_upstream(headers: &mut HeaderMap, body: Option<u64>, own_keys: bool, trailers: bool) {
    // The body is here already, and whole: nothing is left to expect, and its length is known. So it goes without its
    // trailers, which whoever receives it may discard (RFC 9110, 6.5.1) and no engine reads.
    // `Host` is for the transport to keep or to replace.
    let ahead = [EXPECT, TRAILER];
    if headers.keys().any(|name| ahead.contains(name)) {
        ahead.iter().for_each(|name| drop(headers.remove(name)));
    }
    match body {
        Some(bytes) => set_length(headers, bytes),
        None => drop(headers.remove(CONTENT_LENGTH)),
    }
    if own_keys {
        headers.remove(AUTHORIZATION);
        headers.remove(X_API_KEY);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// The key that a client presents: a bearer token, or `x-api-key` as Anthropic's clients send it.
pub(super) fn presented_key(headers: &HeaderMap) -> Option<&[u8]> {
    bearer(headers).or_else(|| Some(headers.get(X_API_KEY)?.as_bytes()))
}

/// The bearer token of a request (RFC 6750), if it carries one.
///
/// ```
/// use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
///
/// let mut headers = HeaderMap::new();
/// headers.insert(AUTHORIZATION, HeaderValue::from_static("bearer k-1"));
/// assert_eq!(paddler_core::forward::bearer(&headers), Some(b"k-1".as_slice()));
/// ```
pub fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, key) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
}

#[cfg(test)]
mod tests;
