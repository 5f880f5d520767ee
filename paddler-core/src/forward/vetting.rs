//! Is this exactly one request, which nobody can read in another way?
//!
//! hyper refuses what cannot be parsed, and closes a connection on which a request had both kinds of length. Here is what it
//! leaves to its users (RFC 9112, 3.2 and 6.1; RFC 9113, 8.3.1). It is looked at before a service sees the request.

use http::header::{COOKIE, HOST, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, Version};

use super::headers::joined_cookies;
use super::refusal::Refusal;

/// As many fields may a head have: as many as hyper lets one of HTTP/1.1 have. In HTTP/2 it has a limit for their bytes alone,
/// and each field takes some 100 bytes here, of which its client may have sent one.
const MOST_FIELDS: usize = 100;

/// Judges a request, and takes out what an upstream might read as something that was judged.
pub(super) fn vet<B>(request: &mut Request<B>) -> Result<(), Refusal> {
    check_fields(request.headers_mut())?;
    check_host(request)?;
    check_encoding(request.headers())?;
    drop_look_alikes(request.headers_mut());
    Ok(())
}

/// Cookies that HTTP/2 has cut into a field each are one, as they would be in HTTP/1.1.
fn check_fields(headers: &mut HeaderMap) -> Result<(), Refusal> {
    if headers.len() <= MOST_FIELDS {
        return Ok(());
    }
    if let Some(cookies) = joined_cookies(headers) {
        headers.insert(COOKIE, cookies);
    }
    if headers.len() > MOST_FIELDS {
        let message = format!("the head has more than {MOST_FIELDS} header fields");
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Err(Refusal::new(status, "too_many_headers", message).closing());
    }
    // A copy has no room for those that it had.
    *headers = headers.clone();
    Ok(())
}

/// There is one `Host`, and it is one: else two proxies may take the request for two different servers.
///
/// Where the target names one, that counts, and is what `Host` says from here on (RFC 9112, 3.2.2).
fn check_host<B>(request: &mut Request<B>) -> Result<(), Refusal> {
    let refused = |message: &str| Err(Refusal::bad_request("bad_host", message).closing());
    let target = request.uri().authority().cloned();
    if target
        .as_ref()
        .is_some_and(|target| target.as_str().contains('@'))
    {
        return refused("the target names a user, and not only a host");
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, more) = (hosts.next(), hosts.next());
    if more.is_some() {
        return refused("there is more than one Host header");
    }
    let Some(host) = host else {
        return match request.version() {
            Version::HTTP_11 => refused("there is no Host header, which HTTP/1.1 wants"),
            Version::HTTP_2 if target.is_none() => refused("there is neither :authority nor a Host header"),
            _ => {
                name_host(request.headers_mut(), target.as_ref());
                Ok(())
            }
        };
    };
    // In HTTP/1.1 there is nothing to compare it with, and it need not be taken apart.
    if request.version() == Version::HTTP_11 && target.is_none() && is_plain(host.as_bytes()) {
        return Ok(());
    }
    let authority = Authority::try_from(host.as_bytes());
    let authority = authority
        .ok()
        .filter(|authority| !authority.as_str().contains(['@', ',']));
    // Whoever asks for no server in particular says so by an empty one.
    if authority.is_none() && !host.is_empty() {
        return refused("the Host header names no host");
    }
    // In HTTP/1.1 what the target says counts, and `Host` is passed over.
    let is_other = request.version() == Version::HTTP_2 && target.is_some() && target != authority;
    if is_other {
        return refused("the Host header names another host than :authority");
    }
    name_host(request.headers_mut(), target.as_ref());
    Ok(())
}

/// Whether a host is written as nearly all are: a name or an address of version 4, and perhaps a port.
fn is_plain(host: &[u8]) -> bool {
    let mut parts = host.splitn(2, |byte| *byte == b':');
    let (name, port) = (parts.next().unwrap_or_default(), parts.next());
    let in_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let is_port = |port: &[u8]| (1..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit);
    !name.is_empty() && name.iter().all(in_name) && port.is_none_or(is_port)
}

fn name_host(headers: &mut HeaderMap, target: Option<&Authority>) {
    if let Some(value) = target.and_then(|target| HeaderValue::from_str(target.as_str()).ok()) {
        headers.insert(HOST, value);
    }
}

/// A body comes in chunks or has a length. What is encoded in yet another way would lose the word that says so.
fn check_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    match (encodings.next(), encodings.next()) {
        (None, _) => Ok(()),
        (Some(only), None) if only.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => {
            let message = "the only transfer coding that is understood here is chunked, once";
            let refusal = Refusal::new(StatusCode::NOT_IMPLEMENTED, "transfer_encoding", message);
            Err(refusal.closing())
        }
    }
}

/// By these some servers take a request for one of another method than was judged.
const OTHER_METHOD: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];

/// Servers that hand headers on as variables (CGI, WSGI) take `x_forwarded_for` for `x-forwarded-for`. Such names of what is
/// judged or set here go no further. [`serve`](super::serve) sees to it for each request; a host whose server is another calls
/// this.
///
/// ```
/// use http::HeaderMap;
/// use paddler_core::forward::drop_look_alikes;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("x_forwarded_for", "10.0.0.1".parse().unwrap());
/// headers.insert("x-http-method-override", "DELETE".parse().unwrap());
/// headers.insert("x-mine", "1".parse().unwrap());
/// drop_look_alikes(&mut headers);
/// assert_eq!(headers.keys().collect::<Vec<_>>(), ["x-mine"]);
/// ```
pub fn drop_look_alikes(headers: &mut HeaderMap) {
    const MEANT: [&str; 10] = [
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "transfer-encoding",
        "upgrade",
        "x-api-key",
    ];
    let is_look_alike = |name: &&HeaderName| {
        if OTHER_METHOD.contains(&name.as_str()) {
            return true;
        }
        // Hardly any has one, and each of the others would cost an allocation.
        if !name.as_str().contains('_') {
            return false;
        }
        let dashed = name.as_str().replace('_', "-");
        MEANT.contains(&dashed.as_str())
            || OTHER_METHOD.contains(&dashed.as_str())
            || dashed.starts_with("x-forwarded-")
            || dashed == "x-real-ip"
    };
    let names: Vec<HeaderName> = headers.keys().filter(is_look_alike).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vetted(version: Version, uri: &str, headers: &[(&'static str, &str)]) -> Result<Vec<String>, String> {
        let mut request = Request::new(());
        *request.version_mut() = version;
        *request.uri_mut() = uri.parse().unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        vet(&mut request).map_err(|refusal| refusal.reason.into_owned())?;
        Ok(request.headers().keys().map(ToString::to_string).collect())
    }

    #[test]
    fn there_is_one_host() {
        let ok = |version, uri, headers: &[(&'static str, &str)]| vetted(version, uri, headers).is_ok();
        let (old, h1, h2) = (Version::HTTP_10, Version::HTTP_11, Version::HTTP_2);
        for host in ["a", "a:80", "[::1]:80", "", "127.0.0.1"] {
            assert!(ok(h1, "/", &[("host", host)]), "{host:?}");
        }
        for host in ["a b", "a/b", "u@a", "a,b", "a:b:c", "http://a", "a?b"] {
            assert!(!ok(h1, "/", &[("host", host)]), "{host:?}");
        }
        assert!(!ok(h1, "/", &[]) && !ok(h1, "http://a/", &[]));
        assert!(ok(old, "/", &[]));
        for version in [old, h1, h2] {
            assert!(!ok(version, "http://a/", &[("host", "a"), ("host", "a")]));
        }
        // The target counts in HTTP/1.1; in HTTP/2 the two have to agree.
        assert!(ok(h1, "http://a/", &[("host", "b")]));
        assert!(!ok(h2, "http://a/", &[("host", "b")]) && !ok(h2, "http://a/", &[("host", "")]));
        assert!(ok(h2, "http://a/", &[("host", "A")]) && ok(h2, "http://a/", &[]));
        assert!(ok(h2, "/", &[("host", "a")]) && !ok(h2, "/", &[]));
    }

    #[test]
    fn what_is_plain_is_a_host() {
        for plain in ["a", "a:80", "127.0.0.1:8080", "a-b.example"] {
            assert!(
                is_plain(plain.as_bytes()) && plain.parse::<Authority>().is_ok(),
                "{plain}"
            );
        }
        for other in [
            "", ":80", "a:", "a:b", "a:1:2", "a@b", "a,b", "a b", "[::1]", "a:999999", "\u{e4}",
        ] {
            assert!(!is_plain(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn what_the_target_names_is_what_host_says() {
        let host = |version, uri: &str, host: Option<&str>| {
            let mut request = Request::new(());
            *request.version_mut() = version;
            *request.uri_mut() = uri.parse().unwrap();
            if let Some(host) = host {
                request.headers_mut().insert(HOST, host.parse().unwrap());
            }
            vet(&mut request).ok()?;
            Some(
                request
                    .headers()
                    .get(HOST)
                    .map(|value| value.to_str().unwrap().to_owned()),
            )
        };
        let says = |name: &str| Some(Some(name.to_owned()));
        assert_eq!(host(Version::HTTP_2, "http://a:1/", None), says("a:1"));
        assert_eq!(host(Version::HTTP_2, "http://a/", Some("A")), says("a"));
        assert_eq!(host(Version::HTTP_11, "http://a/", Some("b")), says("a"));
        assert_eq!(host(Version::HTTP_10, "http://a/", None), says("a"));
        assert_eq!(host(Version::HTTP_11, "/", Some("b")), says("b"));
        assert_eq!(host(Version::HTTP_10, "/", None), Some(None));
        assert_eq!(host(Version::HTTP_2, "http://u@a/", None), None);
    }

    #[test]
    fn fields_are_counted_and_cookies_are_one() {
        let vetted = |others: usize, cookies: usize| {
            let mut request = Request::new(());
            let headers = request.headers_mut();
            headers.insert(HOST, "a".parse().unwrap());
            for n in 1..others {
                // What has the same name is a field of its own.
                headers.append(["x-a", "x-b"][n % 2], "1".parse().unwrap());
            }
            for n in 0..cookies {
                headers.append(COOKIE, format!("c{n}=1").parse().unwrap());
            }
            let result = vet(&mut request);
            result.map_err(|refusal| (refusal.status.as_u16(), refusal.reason.into_owned()))?;
            let cookies = request.headers().get_all(COOKIE).iter();
            Ok((
                request.headers().len(),
                cookies.map(HeaderValue::len).sum::<usize>(),
            ))
        };
        let refused = Err((431, "too_many_headers".to_owned()));
        assert_eq!(vetted(MOST_FIELDS, 0), Ok((MOST_FIELDS, 0)));
        assert_eq!(vetted(MOST_FIELDS + 1, 0), refused);
        assert_eq!(vetted(9, 9), Ok((18, 9 * 4)));
        let joined = 10 * 4 + 90 * 5 + 99 * 2;
        assert_eq!(vetted(MOST_FIELDS - 1, 100), Ok((MOST_FIELDS, joined)));
        assert_eq!(vetted(MOST_FIELDS, 100), refused);
    }

    #[test]
    fn a_body_is_encoded_once() {
        let reason = |encodings: &[&'static str]| {
            let mut headers = vec![("host", "a")];
            headers.extend(encodings.iter().map(|encoding| ("transfer-encoding", *encoding)));
            vetted(Version::HTTP_11, "/", &headers).err()
        };
        assert_eq!(reason(&[]), None);
        assert_eq!(reason(&["Chunked"]), None);
        for encodings in [
            &["gzip, chunked"][..],
            &["chunked", "chunked"],
            &["identity, chunked"],
            &[""],
            &["x"],
        ] {
            assert_eq!(
                reason(encodings).as_deref(),
                Some("transfer_encoding"),
                "{encodings:?}"
            );
        }
    }

    #[test]
    fn what_looks_like_a_header_that_is_judged_goes_no_further() {
        let headers = [
            ("host", "a"),
            ("x_forwarded_for", "1"),
            ("content_length", "1"),
            ("x-forwarded_proto", "1"),
            ("x-http-method-override", "DELETE"),
            ("x_method_override", "DELETE"),
            ("x_own", "1"),
        ];
        assert_eq!(
            vetted(Version::HTTP_11, "/", &headers).unwrap(),
            ["host", "x_own"]
        );
    }
}
