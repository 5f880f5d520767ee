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
    // It is told here how the body comes.
    let last = match coding {
        Coding::Chunked => Some((TRANSFER_ENCODING, HeaderValue::from_static("chunked"))),
        Coding::Length(length @ 1..) if announced.is_none() => {
            Some((CONTENT_LENGTH, HeaderValue::from(length)))
        }
        Coding::Length(_) => None,
    };
    let lines = || {
        let others = headers.iter().filter(|(name, _)| *name != TRANSFER_ENCODING);
        others.chain(last.iter().map(|(name, value)| (name, value)))
    };
    let first = [request.method().as_str(), " ", path, " HTTP/1.1\r\n"];
    let first_bytes: usize = first.iter().map(|part| part.len()).sum();
    let bytes = lines().map(|(name, value)| name.as_str().len() + value.len() + 4);
    // Of just its size it becomes shared bytes as it is.
    let mut head = Vec::with_capacity(first_bytes + bytes.sum::<usize>() + 2);
    for part in first {
        head.extend_from_slice(part.as_bytes());
    }
    for (name, value) in lines() {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    head.extend_from_slice(b"\r\n");
    Ok((head, coding))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_takes_no_more_room_than_it_has_bytes() {
        let lengths = [None, Some("0"), Some("3")];
        for (length, body) in lengths
            .into_iter()
            .zip([Body::full("abc"), Body::empty(), Body::full("abc")])
        {
            let mut request = Request::new(body);
            let headers = request.headers_mut();
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            headers.insert(HOST, HeaderValue::from_static("a"));
            if let Some(length) = length {
                headers.insert(CONTENT_LENGTH, HeaderValue::from_static(length));
            }
            let (head, _) = write(&request).unwrap();
            assert_eq!(head.len(), head.capacity(), "{}", String::from_utf8_lossy(&head));
            let told = format!("content-length: {}\r\n", length.unwrap_or("3"));
            assert_eq!(String::from_utf8(head).unwrap().matches(&told).count(), 1);
        }
    }

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
