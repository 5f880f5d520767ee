//! Where does an upstream listen?

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A host and a port, as they are compared: in small letters, the port written out.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Address {
    tls: bool,
    host: String,
    port: u16,
    /// What stands there in the place of `/v1`: empty, or with a slash before it and none behind.
    path: String,
}

impl Address {
    /// What stands in its URL behind the port, without a slash at its end.
    #[cfg(feature = "proxy")]
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The same in the form that two have which are one: at one host and port, below one path.
    pub(crate) fn place(&self) -> Self {
        let path = if self.path == V1 { "" } else { &self.path };
        Self {
            path: path.to_owned(),
            tls: false,
            ..self.clone()
        }
    }

    /// The path at which a request for this one is sent there, if that is another.
    #[cfg(feature = "proxy")]
    pub(crate) fn path_for(&self, path: &str) -> Option<String> {
        if matches!(&*self.path, "" | V1) {
            return None;
        }
        let below = path
            .strip_prefix(V1)
            .filter(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
        Some(match below {
            Some(rest) => format!("{}{rest}", self.path),
            // What others have beside it.
            None => format!("{}{path}", self.path.strip_suffix(V1).unwrap_or(&self.path)),
        })
    }

    /// Whether TLS is spoken there.
    pub(crate) fn tls(&self) -> bool {
        self.tls
    }

    /// `host:port`.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// What stands in a `Host` header: the port only where it is not the usual one.
    #[cfg(feature = "proxy")]
    pub(crate) fn host_header(&self) -> String {
        if self.port == usual_port(self.tls) {
            self.host.clone()
        } else {
            self.authority()
        }
    }

    /// Where Triton has its metrics, which it serves in clear at a port of their own, and the path there.
    pub(crate) fn metrics_of_triton(self) -> (Self, String) {
        let address = Self {
            tls: false,
            port: 8002,
            path: String::new(),
            ..self
        };
        (address, METRICS.to_owned())
    }

    /// The host as a resolver takes it, and the port.
    pub(crate) fn target(&self) -> (&str, u16) {
        (self.host.trim_start_matches('[').trim_end_matches(']'), self.port)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}{}", self.host, self.port, self.path)
    }
}

/// Why a URL cannot be an upstream's, and how it is mended. A URL with a password is not repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidUrl {
    pub(crate) problem: String,
    pub(crate) mend: &'static str,
}

impl fmt::Display for InvalidUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.mend)
    }
}

impl std::error::Error for InvalidUrl {}

/// What most paths begin with.
const V1: &str = "/v1";

const FORM: &str = "write http://host:port or https://host:port";

/// The path of a page of metrics where none is written.
const METRICS: &str = "/metrics";

fn usual_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

/// The longest part of a URL that is repeated, in characters.
const SHOWN: usize = 80;

/// Reads `http://host`, `https://host` or either with `:port` and a path, with or without a slash at the end. The port is 80, or 443
/// with https, unless it is written.
pub(crate) fn parse(text: &str) -> Result<Address, InvalidUrl> {
    let (address, path) = read(text)?;
    let path = path.trim_end_matches('/');
    if !is_path(path) {
        return Err(invalid(
            text,
            "the path is none that requests can be sent below",
            "write it as it stands before /chat/completions, such as /openai/v1",
        ));
    }
    Ok(Address {
        path: path.to_owned(),
        ..address
    })
}

/// Reads the URL of a page of metrics: the same, with a path and a query; without one it is `/metrics`.
pub(crate) fn parse_page(text: &str) -> Result<(Address, String), InvalidUrl> {
    let (address, path) = read(text)?;
    let fits = |byte: u8| byte.is_ascii_graphic() && !b"\"#<>\\^`{|}".contains(&byte);
    if !path.bytes().all(fits) {
        let problem = "a path is of visible ASCII characters, without a fragment";
        return Err(invalid(text, problem, "encode what is none, as %20 for a space"));
    }
    let path = match path {
        "" | "/" => METRICS.to_owned(),
        query if query.starts_with('?') => format!("{METRICS}{query}"),
        path => path.to_owned(),
    };
    Ok((address, path))
}

fn invalid(text: &str, problem: &str, mend: &'static str) -> InvalidUrl {
    // What holds a password does not go into logs.
    let shown = if text.contains('@') {
        String::new()
    } else {
        format!("{:?}: ", text.chars().take(SHOWN).collect::<String>())
    };
    InvalidUrl {
        problem: format!("{shown}{problem}"),
        mend,
    }
}

/// The address in a URL, and what stands behind it.
fn read(text: &str) -> Result<(Address, &str), InvalidUrl> {
    let wrong = |problem: &str, mend| Err(invalid(text, problem, mend));
    let Some((scheme, rest)) = text.split_once("://") else {
        return wrong("a url begins with http:// or https://", FORM);
    };
    let is = |known: &str| scheme.eq_ignore_ascii_case(known);
    let tls = is("https") || is("paddlers");
    if !tls && !is("http") && !is("paddler") {
        return wrong("only http, https, paddler and paddlers are known", FORM);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') {
        return wrong(
            "a name or password has no place in a url",
            "put the key into a file and name it in `api_key_file`",
        );
    }
    let Some((host, port)) = split(authority, usual_port(tls)) else {
        return wrong("the port is not a number from 1 to 65535", FORM);
    };
    let host = host.to_ascii_lowercase();
    if host.is_empty() {
        return wrong("there is no host", FORM);
    }
    if !is_host(&host) {
        return wrong("the host is neither a name nor an address", FORM);
    }
    Ok((
        Address {
            tls,
            host,
            port,
            path: String::new(),
        },
        path,
    ))
}

/// What stands behind a host, without a slash at its end: plain words, one below the other.
fn is_path(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let word = |word: &str| !matches!(word, "" | "." | "..") && word.bytes().all(plain);
    path.len() <= 256
        && (path.is_empty()
            || path
                .strip_prefix('/')
                .is_some_and(|words| words.split('/').all(word)))
}

/// Whether a URL says that another Paddler listens there. What is spoken is HTTP all the same.
pub(crate) fn is_of_paddler(url: &str) -> bool {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    scheme.eq_ignore_ascii_case("paddler") || scheme.eq_ignore_ascii_case("paddlers")
}

/// The host and the port; `None` where the port is no port.
fn split(authority: &str, usual: u16) -> Option<(&str, u16)> {
    // Colons within brackets belong to an IPv6 address.
    let after_host = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    let Some(colon) = authority[after_host..].find(':') else {
        return Some((authority, usual));
    };
    let (host, port) = authority.split_at(after_host + colon);
    let port = &port[1..];
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.then(|| port.parse().ok()).flatten();
    port.filter(|port| *port != 0).map(|port| (host, port))
}

/// Whether it is a name or an address, IPv6 in brackets, in small letters or not.
pub(crate) fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[') {
        return inner
            .strip_suffix(']')
            .is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok());
    }
    if host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return host.parse::<Ipv4Addr>().is_ok();
    }
    // Underscores are no names of the DNS, and are names of containers all the same.
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(letter);
    let name = host.strip_suffix('.').unwrap_or(host);
    host.len() <= 253 && name.split('.').all(label)
}

/// The domain of a name of a service: `engines` of `_http._tcp.engines`. Hosts are called otherwise.
pub(crate) fn service_domain(host: &str) -> Option<&str> {
    let (_, rest) = host.strip_prefix('_')?.split_once('.')?;
    let (_, domain) = rest.strip_prefix('_')?.split_once('.')?;
    Some(domain).filter(|domain| !domain.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for (text, url) in [
            ("http://10.0.0.3:8080", "http://10.0.0.3:8080"),
            ("HTTP://GPU-1.Lan:8080/", "http://gpu-1.lan:8080"),
            ("http://llama_1", "http://llama_1:80"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("http://[FE80::1]", "http://[fe80::1]:80"),
            ("http://host.:1", "http://host.:1"),
            ("https://Host", "https://host:443"),
            ("HTTPS://host:8443/", "https://host:8443"),
            ("paddler://site-b:8080", "http://site-b:8080"),
            ("Paddlers://site-b", "https://site-b:443"),
            ("https://host/openai/v1/", "https://host:443/openai/v1"),
        ] {
            assert_eq!(
                parse(text).map(|address| address.to_string()),
                Ok(url.into()),
                "{text}"
            );
        }
    }

    #[cfg(feature = "proxy")]
    #[test]
    fn the_path_of_a_url_stands_where_requests_have_v1() {
        for (url, path, expected) in [
            ("http://a", "/v1/chat/completions?x=1", None),
            ("http://a/v1", "/v1/chat/completions", None),
            (
                "http://a/openai/v1",
                "/v1/chat/completions?x=/v1",
                Some("/openai/v1/chat/completions?x=/v1"),
            ),
            ("http://a/openai/v1", "/health", Some("/openai/health")),
            ("http://a/openai/v1", "/v1", Some("/openai/v1")),
            ("http://a/openai/v1", "/v1beta/x", Some("/openai/v1beta/x")),
            (
                "http://a/v1beta/openai",
                "/v1/models",
                Some("/v1beta/openai/models"),
            ),
            ("http://a/v1beta/openai", "/health", Some("/v1beta/openai/health")),
        ] {
            assert_eq!(
                parse(url).unwrap().path_for(path).as_deref(),
                expected,
                "{url} {path}"
            );
        }
    }

    #[cfg(feature = "proxy")]
    #[test]
    fn a_usual_port_is_not_said_in_host() {
        for (url, host) in [
            ("http://a:80", "a"),
            ("https://a:443", "a"),
            ("http://a:443", "a:443"),
            ("https://[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(parse(url).unwrap().host_header(), host, "{url}");
        }
    }

    #[test]
    fn a_page_of_metrics_has_a_path() {
        let page = |text| parse_page(text).map(|(address, path)| format!("{address}{path}"));
        for (text, url) in [
            ("http://a:9400", "http://a:9400/metrics"),
            ("http://A:9400/", "http://a:9400/metrics"),
            ("http://a?x=1", "http://a:80/metrics?x=1"),
            (
                "https://[::1]/federate?match[]=%7Ba%7D",
                "https://[::1]:443/federate?match[]=%7Ba%7D",
            ),
        ] {
            assert_eq!(page(text), Ok(url.into()), "{text}");
        }
        for (text, part) in [
            ("a:9400/metrics", "begins with http://"),
            ("http://me:secret@a/metrics", "password"),
            ("http://a/m#x", "fragment"),
            ("http://a/m x", "visible ASCII"),
            ("http://a/m\r\nhost: b", "visible ASCII"),
        ] {
            let problem = page(text).unwrap_err().problem;
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for (text, part) in [
            ("10.0.0.3:8080", "begins with http://"),
            ("https://", "no host"),
            ("ftp://a", "only http"),
            ("http://", "no host"),
            ("http://:80", "no host"),
            ("http://a:0", "port"),
            ("http://a:", "port"),
            ("http://a:65536", "port"),
            ("http://a:+80", "port"),
            ("http://a:8b", "port"),
            ("http://::1:80", "port"),
            ("http://a/v1?b", "path"),
            ("http://a//v1", "path"),
            ("http://a/../v1", "path"),
            ("http://a/v 1", "path"),
            ("http://a/%2e", "path"),
            ("http://a?b", "path"),
            ("http://a#b", "path"),
            ("http://me:secret@a", "password"),
            ("http://a b", "neither"),
            ("http://1.2.3", "neither"),
            ("http://1.2.3.400", "neither"),
            ("http://[::g]", "neither"),
            ("http://a]", "neither"),
            ("http://a..b", "neither"),
            ("http://ü", "neither"),
        ] {
            let problem = parse(text).unwrap_err().problem;
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }
}
