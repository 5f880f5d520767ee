//! Which headers go on, and which end here?
//!
//! Hop-by-hop headers are about one connection and end here (RFC 9110, 7.6.1), with all that `Connection` names. All
//! others pass in both directions.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
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
///
/// It is done before anything else is read from a request's headers, so that what is judged is what is sent on.
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
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

/// Whether these headers announce a body, if only an empty one. To be asked before they are stripped.
pub(super) fn announces_body(headers: &HeaderMap) -> bool {
    headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING)
}

/// Makes of the client's stripped headers what the upstream gets. `body`: its length, if there is one. `own_keys`: the
/// client's key is for this router, and goes no further.
pub(super) fn for_upstream(headers: &mut HeaderMap, body: Option<u64>, own_keys: bool) {
    // The body is here already, and whole: nothing is left to expect, and its length is known.
    for name in [EXPECT, CONTENT_LENGTH, HOST] {
        headers.remove(name);
    }
    if let Some(bytes) = body {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    }
    if own_keys {
        headers.remove(AUTHORIZATION);
        headers.remove(API_KEY);
    }
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

    fn sent(headers: &HeaderMap, body: Option<u64>, own_keys: bool) -> HeaderMap {
        let mut headers = headers.clone();
        strip_hop_by_hop(&mut headers);
        for_upstream(&mut headers, body, own_keys);
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
        let sent = sent(&headers, Some(12), false);
        let mut names: Vec<_> = sent.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "content-length", "x-end-to-end"]);
        assert_eq!(sent.get_all("x-end-to-end").iter().count(), 2);
        assert_eq!(sent["content-length"], "12");
    }

    #[test]
    fn the_routers_own_key_goes_no_further() {
        let headers = map(&[("authorization", "Bearer k"), ("x-api-key", "k"), ("x-keep", "1")]);
        let sent = sent(&headers, None, true);
        assert_eq!(
            sent.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["x-keep"]
        );
    }

    #[test]
    fn no_length_is_made_up_for_a_request_without_a_body() {
        assert!(!announces_body(&map(&[])) && sent(&map(&[]), None, false).is_empty());
        let empty = map(&[("content-length", "0")]);
        assert!(announces_body(&empty));
        assert_eq!(sent(&empty, Some(0), false)["content-length"], "0");
        assert!(announces_body(&map(&[("transfer-encoding", "chunked")])));
    }

    #[test]
    fn a_key_is_a_bearer_token_or_anthropics_header() {
        assert_eq!(
            presented_key(&map(&[("authorization", "bearer  k1 ")])),
            Some(&b"k1"[..])
        );
        assert_eq!(presented_key(&map(&[("authorization", "Basic k1")])), None);
        assert_eq!(
            presented_key(&map(&[("authorization", "Basic k1"), ("x-api-key", "k2")])),
            Some(&b"k2"[..])
        );
        assert_eq!(presented_key(&map(&[("authorization", "Bear")])), None);
    }
}
