//! What is an upstream told of the way that a request has come?
//!
//! That it came through here (`Via`), and, where the config says so, from whom (`Forwarded`, `X-Forwarded-*`). What a peer
//! says of that which is not trusted is removed: anybody could say it.

use std::fmt::Write as _;
use std::net::IpAddr;

use http::header::{FORWARDED, VIA};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};

use super::peer::Origin;
use super::refusal::Refusal;
use crate::config::Forwarded;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const AT_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// All that servers believe about where a request comes from.
const CLAIMS: [HeaderName; 7] = [
    FOR,
    PROTO,
    AT_HOST,
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-real-ip"),
    FORWARDED,
];

/// How a request came to us.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hop<'a> {
    pub(super) from: Origin,
    /// What it was asked by.
    pub(super) host: Option<&'a str>,
    pub(super) scheme: &'a str,
}

impl Hop<'_> {
    fn address(&self) -> Option<IpAddr> {
        self.from.peer.map(|peer| peer.0.ip().to_canonical())
    }

    /// Says it to the upstream.
    pub(super) fn say(&self, headers: &mut HeaderMap, form: Forwarded) {
        if !self.from.trusted {
            for name in &CLAIMS {
                headers.remove(name);
            }
        }
        if matches!(form, Forwarded::XForwarded | Forwarded::Both) {
            self.say_x_forwarded(headers);
        }
        if matches!(form, Forwarded::Forwarded | Forwarded::Both) {
            append(headers, &FORWARDED, &self.element());
        }
    }

    fn say_x_forwarded(&self, headers: &mut HeaderMap) {
        if let Some(address) = self.address() {
            append(headers, &FOR, &address.to_string());
        }
        // What the first of them has said stands.
        let mut once = |name: HeaderName, text: &str| {
            if let (false, Ok(value)) = (headers.contains_key(&name), HeaderValue::from_str(text)) {
                headers.insert(name, value);
            }
        };
        once(PROTO, self.scheme);
        if let Some(host) = self.host {
            once(AT_HOST, host);
        }
    }

    /// One element of `Forwarded` (RFC 7239, 4).
    fn element(&self) -> String {
        let mut element = match self.address() {
            Some(IpAddr::V4(address)) => format!("for={address}"),
            Some(IpAddr::V6(address)) => format!("for=\"[{address}]\""),
            None => "for=unknown".to_owned(),
        };
        let plain = |host: &&str| {
            let host = host.bytes();
            host.clone()
                .all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
        };
        if let Some(host) = self.host.filter(plain) {
            element.push_str(";host=\"");
            element.push_str(host);
            element.push('"');
        }
        element.push_str(";proto=");
        element.push_str(self.scheme);
        element
    }
}

/// Adds to a list, which then stands in one line: some servers read only one.
fn append(headers: &mut HeaderMap, name: &HeaderName, element: &str) {
    let mut list = Vec::new();
    for value in headers.get_all(name) {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(element.as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&list) {
        headers.insert(name, value);
    }
}

/// How often a request may come round to the same router. Some send it there twice on purpose, by way of a gateway that
/// changes the model.
const ROUNDS: usize = 2;

/// The name of this router in `Via` (RFC 9110, 7.6.3). It is another one for each router and each start, so that routers in a
/// row are no loop.
#[derive(Debug)]
pub(super) struct Via {
    name: String,
    /// For HTTP/1.0, HTTP/1.1 and HTTP/2.
    values: [HeaderValue; 3],
}

impl Via {
    pub(super) fn new(chance: u64) -> Self {
        let mut name = String::from("paddler-");
        // A string takes whatever is written.
        let written = write!(name, "{:08x}", chance >> 32);
        debug_assert!(written.is_ok());
        let value = |protocol| {
            let value = HeaderValue::from_str(&format!("{protocol} {name}"));
            value.unwrap_or(HeaderValue::from_static("1.1 paddler"))
        };
        Self {
            values: ["1.0", "1.1", "2"].map(value),
            name,
        }
    }

    /// Refuses a request that goes round in a circle: it would take a place on every round.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let rounds = headers
            .get_all(VIA)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .filter(|hop| {
                let mut words = hop.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
                words.nth(1) == Some(self.name.as_bytes())
            })
            .count();
        if rounds < ROUNDS {
            return Ok(());
        }
        let message = format!(
            "the request has come through this router {rounds} times: one of its upstreams leads back to it"
        );
        Err(Refusal::new(StatusCode::LOOP_DETECTED, "loop", message).closing())
    }

    /// Says that the request came through here.
    pub(super) fn say(&self, headers: &mut HeaderMap, received: Version) {
        let [old, usual, new] = &self.values;
        let value = match received {
            Version::HTTP_09 | Version::HTTP_10 => old,
            Version::HTTP_11 => usual,
            _ => new,
        };
        headers.append(VIA, value.clone());
    }
}

#[cfg(test)]
mod tests {
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
        let (via, other) = (Via::new(1 << 40), Via::new(7 << 40));
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
}
