//! Does a browser ask for a web page that is not ours?

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{HOST, ORIGIN};

/// How the management listener is reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    /// From this machine alone.
    pub(crate) local: bool,
    /// Over TLS.
    pub(crate) tls: bool,
}

/// A browser says for which page it asks: only our own may. It also asks under a name that leads here only since a moment ago, if
/// the page has that name: so only names count that cannot be made to lead here, for the page too, whose origin has to be the host
/// that it asks.
pub(super) fn is_of_web_page(headers: &HeaderMap, tls: bool) -> bool {
    let text = |name| {
        headers
            .get(name)
            .map(|value: &http::HeaderValue| value.to_str().unwrap_or_default())
    };
    let host = text(HOST).unwrap_or_default();
    let scheme = if tls { "https://" } else { "http://" };
    let is_own = |origin: &str| {
        origin
            .strip_prefix(scheme)
            .is_some_and(|of| of.eq_ignore_ascii_case(host))
    };
    // One of each: of two, a reader further on could mean the other.
    let several =
        headers.get_all(HOST).iter().nth(1).is_some() || headers.get_all(ORIGIN).iter().nth(1).is_some();
    let from_elsewhere = text(ORIGIN).is_some_and(|origin| !is_own(origin));
    let site_is_another = headers
        .get("sec-fetch-site")
        .is_some_and(|site| site.as_bytes() != b"none" && site.as_bytes() != b"same-origin");
    several || from_elsewhere || site_is_another || !leads_here(host)
}

/// Whether a host can be nothing but this machine, whoever says what names lead where.
fn leads_here(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn of(pairs: &[(&'static str, &'static str)], tls: bool) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        is_of_web_page(&headers, tls)
    }

    #[test]
    fn a_web_page_is_known_by_what_its_browser_says() {
        for host in [
            "127.0.0.1:8081",
            "localhost",
            "LOCALHOST:1",
            "[::1]:8081",
            "127.9.9.9",
        ] {
            assert!(!of(&[("host", host)], false), "{host}");
            assert!(of(&[("host", host), ("origin", "http://127.0.0.1:8080")], false));
            assert!(of(&[("host", host), ("origin", "null")], false));
            assert!(of(&[("host", host), ("sec-fetch-site", "cross-site")], false));
            assert!(
                of(&[("host", host), ("sec-fetch-site", "same-site")], false),
                "another port"
            );
        }
        for host in [
            "rebound.example.com:8081",
            "10.0.0.1",
            "localhost.example.com",
            "",
            "127.0.0.1.nip.io:80",
        ] {
            assert!(of(&[("host", host)], false), "{host}");
        }
        assert!(of(&[], false));
    }

    #[test]
    fn our_own_page_is_let_in_under_names_that_can_only_lead_here() {
        for (host, origin) in [
            ("127.0.0.1:8081", "http://127.0.0.1:8081"),
            ("localhost:8081", "http://localhost:8081"),
            ("[::1]:8081", "http://[::1]:8081"),
            ("localhost", "http://localhost"),
        ] {
            let own = [
                ("host", host),
                ("origin", origin),
                ("sec-fetch-site", "same-origin"),
            ];
            assert!(!of(&own, false), "{own:?}");
            assert!(!of(&own[..2], false), "a browser that says no more");
            assert!(
                of(&own, true),
                "a page that came without TLS asks where there is TLS"
            );
        }
        let over_tls = [("host", "localhost:8081"), ("origin", "https://localhost:8081")];
        assert!(!of(&over_tls, true) && of(&over_tls, false));
        for (host, origin) in [
            ("rebound.example.com:8081", "http://rebound.example.com:8081"),
            ("127.0.0.1:8081", "http://localhost:8081"),
            ("127.0.0.1:8081", "http://127.0.0.1"),
            ("127.0.0.1:8081", "http://127.0.0.1:80810"),
            ("127.0.0.1:8081", "http://127.0.0.1:8081.evil.example.com"),
            ("127.0.0.1:8081", "127.0.0.1:8081"),
        ] {
            let other = [
                ("host", host),
                ("origin", origin),
                ("sec-fetch-site", "same-origin"),
            ];
            assert!(of(&other, false), "{other:?}");
        }
        let own = ("origin", "http://localhost");
        assert!(of(
            &[("host", "localhost"), own, ("origin", "http://evil.example.com")],
            false
        ));
        assert!(of(
            &[("host", "localhost"), ("host", "evil.example.com"), own],
            false
        ));
    }
}
