//! How is the head of a request written?

use http::header::{CONNECTION, CONTENT_LENGTH, COOKIE, HOST, TE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version};
use http_body::Body as _;

use crate::forward::{Body, BoxError, length};

/// How the end of a request's body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// It has so many bytes.
    Length(u64),
    /// It comes in chunks.
    Chunked,
}

/// HTTP/1.1 has the host in `Host`, and the path alone where the URI stands. One that was meant for HTTP/2 is put back.
pub(in super::super) fn for_http1(request: &mut Request<Body>) {
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    // It is about this connection alone, which has to be said (RFC 9110, 10.1.4).
    if headers.contains_key(TE) && !headers.contains_key(CONNECTION) {
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    join_cookies(headers);
    let mut parts = match request.uri().authority() {
        Some(_) => std::mem::take(request.uri_mut()).into_parts(),
        None => return,
    };
    let host = parts
        .authority
        .and_then(|host| HeaderValue::from_str(host.as_str()).ok());
    if let Some(host) = host {
        request.headers_mut().entry(HOST).or_insert(host);
    }
    let path = parts.path_and_query.take();
    *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
}

/// HTTP/2 may cut cookies into a field each; in HTTP/1.1 they stand in one (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut all = headers.get_all(COOKIE).iter();
    let (Some(first), Some(second)) = (all.next(), all.next()) else {
        return;
    };
    let mut joined = first.as_bytes().to_vec();
    for cookie in std::iter::once(second).chain(all) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(cookie.as_bytes());
    }
    if let Ok(joined) = HeaderValue::from_bytes(&joined) {
        headers.insert(COOKIE, joined);
    }
}

/// Writes the head of a request, and says how its body is to be sent. What is announced stands, and is held to; where
/// nothing is, it is announced here.
pub(super) fn write(request: &Request<Body>) -> Result<(Vec<u8>, Coding), BoxError> {
    if request.method() == Method::CONNECT {
        return Err("CONNECT leads to no upstream".into());
    }
    let (headers, body) = (request.headers(), request.body());
    let announced = length(headers)?;
    let known = body.size_hint().exact();
    let coding = match announced.or(known) {
        Some(length) => Coding::Length(length),
        None => Coding::Chunked,
    };
    let path = request.uri().path_and_query();
    let path = path.map_or("/", |path| path.as_str());
    let lines = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4);
    let method = request.method().as_str();
    let mut head = Vec::with_capacity(method.len() + path.len() + lines.sum::<usize>() + 64);
    for part in [method, " ", path, " HTTP/1.1\r\n"] {
        head.extend_from_slice(part.as_bytes());
    }
    let mut line = |name: &[u8], value: &[u8]| {
        for part in [name, b": ", value, b"\r\n"] {
            head.extend_from_slice(part);
        }
    };
    // It is told here how the body comes.
    for (name, value) in headers.iter().filter(|(name, _)| *name != TRANSFER_ENCODING) {
        line(name.as_str().as_bytes(), value.as_bytes());
    }
    match coding {
        Coding::Chunked => line(TRANSFER_ENCODING.as_str().as_bytes(), b"chunked"),
        Coding::Length(1..) if announced.is_none() => {
            let length = known.unwrap_or_default().to_string();
            line(CONTENT_LENGTH.as_str().as_bytes(), length.as_bytes());
        }
        Coding::Length(_) => {}
    }
    head.extend_from_slice(b"\r\n");
    Ok((head, coding))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_stand_in_one_field_over_http1() {
        let mut request = Request::new(Body::empty());
        for cookie in ["a=1", "b=2; c=3", "d=4"] {
            request
                .headers_mut()
                .append(COOKIE, HeaderValue::from_static(cookie));
        }
        for_http1(&mut request);
        let cookies: Vec<_> = request.headers().get_all(COOKIE).iter().collect();
        assert_eq!(cookies, ["a=1; b=2; c=3; d=4"]);
    }
}
