//! Header by header: what goes on, what ends here, and whose key it is.

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
    strip_hop_by_hop(&mut headers, &[]);
    for_upstream(&mut headers, body, own_keys, false);
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
    assert_eq!(names, ["authorization", "content-length", "host", "x-end-to-end"]);
    assert_eq!(sent.get_all("x-end-to-end").iter().count(), 2);
    assert_eq!(sent["content-length"], "12");
}

#[test]
fn what_a_body_is_is_not_about_the_connection() {
    let mut headers = map(&[
        ("connection", "content-type, x-hop"),
        ("content-type", "text/event-stream"),
        ("x-hop", "1"),
    ]);
    strip_hop_by_hop(&mut headers, &ABOUT_THE_ANSWER);
    assert_eq!(
        headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
        ["content-type"]
    );
}

#[test]
fn a_body_of_nothing_is_none() {
    let announces = |pairs: &[(&'static str, &'static str)]| announces_bytes(&map(pairs));
    assert!(!announces(&[]) && !announces(&[("content-length", "0")]));
    assert!(announces(&[("content-length", "1")]) && announces(&[("content-length", "00")]));
    assert!(announces(&[("transfer-encoding", "chunked")]));
    assert!(announces(&[
        ("content-length", "0"),
        ("transfer-encoding", "chunked")
    ]));
}

#[test]
fn an_answer_has_one_length_or_none() {
    let settled = |pairs: &[(&'static str, &'static str)]| {
        let mut headers = map(pairs);
        let sound = settle_length(&mut headers);
        let lengths = headers.get_all(CONTENT_LENGTH).iter();
        (
            sound,
            lengths
                .map(|length| length.to_str().unwrap().to_owned())
                .collect::<Vec<_>>(),
        )
    };
    let some = |length: &str| (true, vec![length.to_owned()]);
    assert_eq!(settled(&[]), (true, vec![]));
    assert_eq!(settled(&[("content-length", "7")]), some("7"));
    assert_eq!(
        settled(&[("content-length", "7"), ("content-length", "7")]),
        some("7")
    );
    assert_eq!(
        settled(&[("content-length", "2"), ("transfer-encoding", "chunked")]),
        (true, vec![])
    );
    for pair in [["7", "8"], ["-2", "-2"], ["2, 2", "2, 2"], ["", ""], ["+2", "+2"]] {
        let headers: Vec<_> = pair
            .into_iter()
            .map(|length| ("content-length", length))
            .collect();
        assert!(!settled(&headers).0, "{pair:?}");
    }
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

#[test]
fn what_kinds_of_headers_there_are_is_seen_by_their_names() {
    let kinds = |name: &'static str| Kinds::of(&map(&[("host", "a"), (name, "1"), ("accept", "*/*")]));
    let all = [
        (Kinds::VIA, &["via"][..]),
        (Kinds::OURS, &["x-paddler-max-wait", "x-paddler-explain"]),
        (Kinds::CLAIM, &["forwarded", "x-forwarded-for", "x-real-ip"]),
        (Kinds::TRACE, &["traceparent", "tracestate"]),
        (
            Kinds::HOP_BY_HOP,
            &["connection", "te", "upgrade", "transfer-encoding", "keep-alive"],
        ),
        (0, &["authorization", "content-type", "x-request-id", "cookie"]),
    ];
    for (kind, names) in all {
        for name in names {
            assert!(kind == 0 || kinds(name).has(kind), "{name}");
            assert!(!kinds(name).has(!kind), "{name}");
        }
    }
}
