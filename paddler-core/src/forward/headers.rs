//! Which headers go on, and which end here?
//!
//! Hop-by-hop headers are about one connection and end here (RFC 9110, 7.6.1), with all that `Connection` names. All
//! others pass in both directions.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

pub(super) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

const HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Takes out what is about this connection alone.
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// What the upstream gets of the client's headers. `own_keys`: the client's key is for this router, and goes no further.
pub(super) fn for_upstream(headers: &HeaderMap, body_bytes: u64, own_keys: bool) -> HeaderMap {
    let sent_a_body = headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
    let mut headers = headers.clone();
    strip_hop_by_hop(&mut headers);
    // The body is here already, and whole: nothing is left to expect, and its length is known.
    for name in [EXPECT, CONTENT_LENGTH, HOST] {
        headers.remove(name);
    }
    if sent_a_body {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body_bytes));
    }
    if own_keys {
        headers.remove(AUTHORIZATION);
        headers.remove(API_KEY);
    }
    headers
}

/// What the client gets of the upstream's headers.
pub(super) fn for_client(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
}

/// The key that a client presents: a bearer token, or `x-api-key` as Anthropic's clients send it.
pub(super) fn presented_key(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
    });
    bearer.or_else(|| Some(headers.get(API_KEY)?.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn what_is_about_one_connection_ends_here() {
        let headers = map(&[
            ("connection", "keep-alive, X-Hop"),
            ("connection", "x-other"),
            ("keep-alive", "timeout=5"),
            ("x-hop", "1"),
            ("x-other", "2"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("proxy-authorization", "Basic x"),
            ("expect", "100-continue"),
            ("transfer-encoding", "chunked"),
            ("host", "router"),
            ("x-end-to-end", "a"),
            ("x-end-to-end", "b"),
            ("authorization", "Bearer k"),
        ]);
        let sent = for_upstream(&headers, 12, false);
        let mut names: Vec<_> = sent.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "content-length", "x-end-to-end"]);
        assert_eq!(sent.get_all("x-end-to-end").iter().count(), 2);
        assert_eq!(sent["content-length"], "12");
    }

    #[test]
    fn the_routers_own_key_goes_no_further() {
        let headers = map(&[("authorization", "Bearer k"), ("x-api-key", "k"), ("x-keep", "1")]);
        let sent = for_upstream(&headers, 0, true);
        assert_eq!(sent.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-keep"]);
    }

    #[test]
    fn no_length_is_made_up_for_a_request_without_a_body() {
        assert!(for_upstream(&map(&[]), 0, false).is_empty());
        assert_eq!(for_upstream(&map(&[("content-length", "0")]), 0, false)["content-length"], "0");
    }

    #[test]
    fn a_key_is_a_bearer_token_or_anthropics_header() {
        assert_eq!(presented_key(&map(&[("authorization", "bearer  k1 ")])), Some(&b"k1"[..]));
        assert_eq!(presented_key(&map(&[("authorization", "Basic k1")])), None);
        assert_eq!(presented_key(&map(&[("authorization", "Basic k1"), ("x-api-key", "k2")])), Some(&b"k2"[..]));
        assert_eq!(presented_key(&map(&[("authorization", "Bear")])), None);
    }
}
