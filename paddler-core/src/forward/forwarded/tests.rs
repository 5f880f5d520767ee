//! What a peer says of others counts only where it is trusted.

use super::super::accept::Peer;
use super::*;

fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_static(value));
    }
    headers
}

/// What an upstream is told when a request with these headers comes from this address.
fn told(
    said: &[(&'static str, &'static str)],
    peer: Option<&str>,
    trusted: bool,
    form: Forwarded,
) -> Vec<String> {
    let mut headers = map(said);
    let peer = peer.map(|address| Peer((address.parse::<IpAddr>().unwrap(), 7).into()));
    let hop = Hop {
        from: Origin { peer, trusted },
        host: Some("llm.example.com:8080"),
        scheme: "http",
    };
    hop.say(&mut headers, form);
    let mut told: Vec<_> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    told.sort();
    told
}

#[test]
fn nothing_that_servers_believe_is_said_by_a_stranger() {
    let said = [
        ("x-forwarded-user", "root"),
        ("x-forwarded-ssl", "on"),
        ("x-forwarded-client-cert", "By=x"),
        ("x-client-ip", "127.0.0.1"),
        ("true-client-ip", "127.0.0.1"),
        ("x-own", "1"),
    ];
    assert_eq!(told(&said, Some("10.0.0.9"), false, Forwarded::Off), ["x-own: 1"]);
    assert_eq!(told(&said, Some("10.0.0.9"), true, Forwarded::Off).len(), 6);
}

const SAID: [(&str, &str); 4] = [
    ("x-forwarded-for", "203.0.113.9"),
    ("x-forwarded-proto", "https"),
    ("forwarded", "for=203.0.113.9"),
    ("x-real-ip", "203.0.113.9"),
];

#[test]
fn nothing_is_told_unless_it_is_wanted() {
    assert!(told(&[], Some("10.0.0.9"), false, Forwarded::Off).is_empty());
    assert!(
        told(&SAID, Some("10.0.0.9"), false, Forwarded::Off).is_empty(),
        "anybody could say it"
    );
    assert_eq!(told(&SAID, Some("10.0.0.9"), true, Forwarded::Off).len(), 4);
}

#[test]
fn a_peer_that_is_not_trusted_is_the_client_itself() {
    let expected = [
        "x-forwarded-for: 10.0.0.9",
        "x-forwarded-host: llm.example.com:8080",
        "x-forwarded-proto: http",
    ];
    assert_eq!(
        told(&SAID, Some("::ffff:10.0.0.9"), false, Forwarded::XForwarded),
        expected
    );
    let expected = ["forwarded: for=\"[fd00::7]\";host=\"llm.example.com:8080\";proto=http"];
    assert_eq!(
        told(&SAID, Some("fd00::7"), false, Forwarded::Forwarded),
        expected
    );
    let expected = ["forwarded: for=unknown;host=\"llm.example.com:8080\";proto=http"];
    assert_eq!(told(&[], None, false, Forwarded::Forwarded), expected);
}

#[test]
fn a_trusted_peer_is_one_more_on_the_way() {
    let expected = [
        "forwarded: for=203.0.113.9, for=10.0.0.9;host=\"llm.example.com:8080\";proto=http",
        "x-forwarded-for: 203.0.113.9, 10.0.0.9",
        "x-forwarded-host: llm.example.com:8080",
        "x-forwarded-proto: https",
        "x-real-ip: 203.0.113.9",
    ];
    assert_eq!(told(&SAID, Some("10.0.0.9"), true, Forwarded::Both), expected);
    let lines = [("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "2.2.2.2")];
    let told = told(&lines, Some("10.0.0.9"), true, Forwarded::XForwarded);
    assert_eq!(
        told[0], "x-forwarded-for: 1.1.1.1, 2.2.2.2, 10.0.0.9",
        "in one line"
    );
}

#[test]
fn a_host_that_would_break_out_of_its_quotes_is_not_told() {
    let hop = Hop {
        from: Origin::default(),
        host: Some("a\";for=1.2.3.4"),
        scheme: "http",
    };
    assert_eq!(hop.element(), "for=unknown;proto=http");
}

#[test]
fn a_request_that_comes_round_is_a_loop() {
    let (via, other) = (Via::new(Via::name_of(1 << 40)), Via::new(Via::name_of(7 << 40)));
    let mut headers = map(&[("via", "1.0 fred, 1.1 nowhere.com (Apache/1.1)")]);
    for round in 0..2 {
        assert!(via.check(&headers).is_ok(), "round {round}");
        via.say(&mut headers, Version::HTTP_11);
        other.say(&mut headers, Version::HTTP_2);
    }
    let refusal = via.check(&headers).unwrap_err();
    assert_eq!((refusal.status.as_u16(), &*refusal.reason), (508, "loop"));
    let lines: Vec<_> = headers
        .get_all(VIA)
        .iter()
        .map(|line| line.to_str().unwrap())
        .collect();
    assert_eq!(lines[1..3], ["1.1 paddler-00000100", "2 paddler-00000700"]);
    let in_one_line = map(&[(
        "via",
        "1.1 paddler-00000100,1.1 x,\t1.1  paddler-00000100 (a comment)",
    )]);
    assert!(via.check(&in_one_line).is_err());
    let others = map(&[(
        "via",
        "1.1 paddler-000001000, paddler-00000100 1.1, 1.1 paddler-00000101",
    )]);
    assert!(via.check(&others).is_ok(), "routers in a row are no loop");
}
