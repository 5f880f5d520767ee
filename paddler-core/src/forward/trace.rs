//! By which name is a request found again in logs and traces?
//!
//! By its `X-Request-Id`, which is kept if it can stand in a log line and made otherwise, and is sent upstream and returned to
//! the client. A valid `traceparent` passes as it came, unless the request becomes a span of its trace: then the upstream is told of
//! that.

use std::fmt::Write as _;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::config::Traceparent;

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Under which the upstream's own id goes on to the client, where it is another one.
const UPSTREAM_REQUEST_ID: HeaderName = HeaderName::from_static("x-upstream-request-id");

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The longest id that is kept, in bytes.
const LONGEST_ID: usize = 128;

/// The id of a request: the client's if it is one, of up to 128 visible ASCII characters; else a new one.
pub(super) fn request_id(headers: &HeaderMap, draw: impl FnMut() -> u64) -> HeaderValue {
    let kept = one(headers, &REQUEST_ID).filter(|id| {
        let id = id.as_bytes();
        (1..=LONGEST_ID).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
    });
    kept.cloned().unwrap_or_else(|| hex(draw))
}

/// 32 digits.
fn hex(mut draw: impl FnMut() -> u64) -> HeaderValue {
    let drawn = u128::from(draw()) << 64 | u128::from(draw());
    let digit = |at: usize| b"0123456789abcdef"[(drawn >> (4 * (31 - at)) & 0xf) as usize];
    let digits: [u8; 32] = std::array::from_fn(digit);
    HeaderValue::from_bytes(&digits).unwrap_or(HeaderValue::from_static("-"))
}

/// Gives an answer the id of its request. What the upstream calls it goes on under another name, so that both can be found.
pub(super) fn answer_with(headers: &mut HeaderMap, id: &HeaderValue) {
    if let Some(other) = headers.insert(REQUEST_ID, id.clone())
        && other != *id
    {
        headers.insert(UPSTREAM_REQUEST_ID, other);
    }
}

/// Keeps a valid trace, removes what is none, and makes one where that is wanted.
pub(super) fn settle_trace(headers: &mut HeaderMap, make: Traceparent, draw: impl FnMut() -> u64) {
    if one(headers, &TRACEPARENT).is_some_and(|value| is_traceparent(value.as_bytes())) {
        return;
    }
    headers.remove(TRACEPARENT);
    headers.remove(TRACESTATE);
    if make == Traceparent::Make {
        headers.insert(TRACEPARENT, new_trace(draw));
    }
}

/// The trace that a request comes with, and the span of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace_id: u128,
    pub(super) span_id: u64,
    pub(super) flags: u8,
}

/// The bit that says that the caller records it.
pub(super) const SAMPLED: u8 = 1;

/// The bits that mean something: that one, and that the trace's id was drawn at random. Whoever says something new passes on no
/// others (W3C Trace Context 2, 3.2.2.5).
pub(super) const KNOWN: u8 = 3;

/// The trace of a request, if it comes with a valid one.
pub(super) fn parent(headers: &HeaderMap) -> Option<Parent> {
    let value = one(headers, &TRACEPARENT)?;
    let text = value
        .to_str()
        .ok()
        .filter(|text| is_traceparent(text.as_bytes()))?;
    Some(Parent {
        trace_id: u128::from_str_radix(&text[3..35], 16).ok()?,
        span_id: u64::from_str_radix(&text[36..52], 16).ok()?,
        flags: u8::from_str_radix(&text[53..55], 16).ok()?,
    })
}

/// What the next one is told: this span is the one that it belongs to.
pub(super) fn traceparent(span: Parent) -> HeaderValue {
    let Parent {
        trace_id,
        span_id,
        flags,
    } = span;
    let mut text = Text::default();
    let written = write!(text, "00-{trace_id:032x}-{span_id:016x}-{flags:02x}");
    debug_assert!(written.is_ok());
    value(&text)
}

/// Puts it into the place of the one that was there.
pub(super) fn set_parent(headers: &mut HeaderMap, traceparent: HeaderValue) {
    headers.insert(TRACEPARENT, traceparent);
}

/// A trace that begins here. Whether it is recorded is not for us to say: it is not marked as sampled.
fn new_trace(mut draw: impl FnMut() -> u64) -> HeaderValue {
    let mut text = Text::default();
    // Neither id may be zero.
    let (high, low, span) = (draw(), draw() | 1, draw() | 1);
    let written = write!(text, "00-{high:016x}{low:016x}-{span:016x}-00");
    debug_assert!(written.is_ok());
    value(&text)
}

fn value(text: &Text) -> HeaderValue {
    HeaderValue::from_bytes(&text.bytes[..text.len]).unwrap_or(HeaderValue::from_static("-"))
}

/// The value of a header that is there once.
fn one<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// Version, trace, span and flags, in lower-case hexadecimal (W3C Trace Context, 3.2). A version to come may say more.
fn is_traceparent(value: &[u8]) -> bool {
    const LENGTHS: [usize; 4] = [2, 32, 16, 2];
    let Some(known) = value.get(..55) else {
        return false;
    };
    let mut fields = known.split(|byte| *byte == b'-');
    let hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let well_formed = LENGTHS.iter().all(|length| {
        fields
            .next()
            .is_some_and(|field| field.len() == *length && field.iter().all(hex))
    });
    let some = |field: &[u8]| field.iter().any(|byte| *byte != b'0');
    let version = &known[..2];
    let more = match value.get(55) {
        None => true,
        Some(byte) => version != b"00" && *byte == b'-',
    };
    well_formed && version != b"ff" && some(&known[3..35]) && some(&known[36..52]) && more
}

/// A short text that is not allocated.
struct Text {
    bytes: [u8; 64],
    len: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self {
            bytes: [0; 64],
            len: 0,
        }
    }
}

impl std::fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn draws() -> impl FnMut() -> u64 {
        let mut next = 0;
        move || {
            next += 1;
            next
        }
    }

    #[test]
    fn an_id_is_kept_if_it_can_stand_in_a_log_line() {
        let longest = "x".repeat(128);
        for id in ["7", "req_1-2/3", longest.as_str()] {
            assert_eq!(request_id(&map(&[("x-request-id", id)]), draws()), id);
        }
        let made = "00000000000000010000000000000002";
        let longer = "x".repeat(129);
        for id in ["", "a b", "a\tb", "é", longer.as_str()] {
            assert_eq!(request_id(&map(&[("x-request-id", id)]), draws()), made, "{id:?}");
        }
        let twice = map(&[("x-request-id", "a"), ("x-request-id", "b")]);
        assert_eq!(request_id(&twice, draws()), made, "which of them?");
        assert_eq!(request_id(&map(&[]), draws()), made);
    }

    #[test]
    fn an_answer_has_the_id_of_its_request_and_keeps_the_upstreams() {
        let id = HeaderValue::from_static("ours");
        let answered = |said: &[(&'static str, &str)]| {
            let mut headers = map(said);
            answer_with(&mut headers, &id);
            let get = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
            (get("x-request-id"), get("x-upstream-request-id"))
        };
        assert_eq!(answered(&[]), (Some("ours".into()), None));
        assert_eq!(answered(&[("x-request-id", "ours")]), (Some("ours".into()), None));
        let both = (Some("ours".into()), Some("theirs".into()));
        assert_eq!(answered(&[("x-request-id", "theirs")]), both);
    }

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_valid_trace_passes_as_it_came_and_another_does_not() {
        let settled = |value: &str, make| {
            let mut headers = map(&[("traceparent", value), ("tracestate", "a=1")]);
            settle_trace(&mut headers, make, draws());
            let get = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
            (get("traceparent"), get("tracestate"))
        };
        let future = format!("01{}-more", &TRACE[2..]);
        for valid in [TRACE, future.as_str()] {
            let kept = (Some(valid.to_owned()), Some("a=1".to_owned()));
            assert_eq!(settled(valid, Traceparent::Pass), kept);
            assert_eq!(settled(valid, Traceparent::Make), kept);
        }
        let made = "00-00000000000000010000000000000003-0000000000000003-00".to_owned();
        for invalid in [
            "",
            "x",
            &TRACE[..54],
            &format!("{TRACE}-more"),
            &format!("{TRACE}0"),
            &format!("ff{}", &TRACE[2..]),
            &TRACE.to_uppercase(),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01",
            &format!("01{}more", &TRACE[2..]),
        ] {
            assert_eq!(settled(invalid, Traceparent::Pass), (None, None), "{invalid}");
            assert_eq!(
                settled(invalid, Traceparent::Make),
                (Some(made.clone()), None),
                "{invalid}"
            );
        }
        assert!(is_traceparent(made.as_bytes()));
    }

    #[test]
    fn a_trace_is_read_and_written_alike() {
        for text in [TRACE, "00-00000000000000000000000000000001-0000000000000001-03"] {
            let parent = parent(&map(&[("traceparent", text)])).unwrap();
            assert_eq!(traceparent(parent), text);
        }
        let read = parent(&map(&[("traceparent", TRACE)])).unwrap();
        assert_eq!((read.span_id, read.flags), (0xb7ad_6b71_6920_3331, SAMPLED));
        for none in ["", "x", "00-00000000000000000000000000000000-b7ad6b7169203331-01"] {
            assert_eq!(parent(&map(&[("traceparent", none)])), None);
        }
        assert_eq!(
            parent(&map(&[("traceparent", TRACE), ("traceparent", TRACE)])),
            None
        );
    }

    #[test]
    fn two_traces_are_none() {
        let mut headers = map(&[("traceparent", TRACE), ("traceparent", TRACE)]);
        settle_trace(&mut headers, Traceparent::Pass, draws());
        assert!(headers.is_empty());
    }
}
