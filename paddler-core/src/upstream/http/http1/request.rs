//! How is the head of a request written?

use std::borrow::Cow;

use http::header::{CONNECTION, CONTENT_LENGTH, COOKIE, HOST, TE, TRANSFER_ENCODING};
use http::{HeaderValue, Method};
use http_body::Body as _;

use crate::forward::{Body, BoxError, joined_cookies, length};
use crate::upstream::http::outbound::Outbound;

/// How the end of a request's body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// It has so many bytes.
    Length(u64),
    /// It comes in chunks.
    Chunked,
}

/// What HTTP/1.1 wants to have otherwise than it may have come by HTTP/2.
pub(in super::super) fn for_http1<'r>(request: &'r Outbound<'_>) -> Cow<'r, Outbound<'r>> {
    let headers = &*request.headers;
    // It is about this connection alone, which has to be said (RFC 9110, 10.1.4).
    let says_te = headers.contains_key(TE) && !headers.contains_key(CONNECTION);
    let cookies = joined_cookies(headers);
    if !says_te && cookies.is_none() {
        return Cow::Borrowed(request);
    }
    let mut request = request.clone();
    let headers = request.headers.to_mut();
    if says_te {
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    if let Some(joined) = cookies {
        headers.insert(COOKIE, joined);
    }
    Cow::Owned(request)
}

/// Writes the head of a request, and says how its body is to be sent. What is announced stands, and is held to; where
/// nothing is, it is announced here.
pub(super) fn write(request: &Outbound<'_>, body: &Body) -> Result<(Vec<u8>, Coding), BoxError> {
    if request.method == Method::CONNECT {
        return Err("CONNECT leads to no upstream".into());
    }
    let headers = &*request.headers;
    let announced = length(headers)?;
    let known = body.size_hint().exact();
    let coding = match announced.or(known) {
        Some(length) => Coding::Length(length),
        None => Coding::Chunked,
    };
    // It is told here how the body comes.
    let last = match coding {
        Coding::Chunked => Some((TRANSFER_ENCODING, HeaderValue::from_static("chunked"))),
        Coding::Length(length @ 1..) if announced.is_none() => {
            Some((CONTENT_LENGTH, HeaderValue::from(length)))
        }
        Coding::Length(_) => None,
    };
    let (host, theirs) = (request.host(), headers.get(HOST));
    let lines = || {
        let others = headers.iter().filter_map(|(name, value)| match *name {
            TRANSFER_ENCODING => None,
            // It stands where theirs does, and once.
            HOST if theirs.is_some_and(|first| std::ptr::eq(first, value)) => Some((name, host?)),
            HOST => None,
            _ => Some((name, value)),
        });
        let host = host.filter(|_| theirs.is_none()).map(|host| (&HOST, host));
        let last = last.iter().map(|(name, value)| (name, value));
        others.chain(host).chain(last)
    };
    let first = [
        request.method.as_str(),
        " ",
        request.path_and_query(),
        " HTTP/1.1\r\n",
    ];
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
    use http::{HeaderMap, Uri};

    use super::*;

    #[test]
    fn a_head_takes_no_more_room_than_it_has_bytes() {
        let lengths = [None, Some("0"), Some("3")];
        for (length, body) in lengths
            .into_iter()
            .zip([Body::full("abc"), Body::empty(), Body::full("abc")])
        {
            let (uri, mut headers) = (Uri::default(), HeaderMap::new());
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
            headers.insert(HOST, HeaderValue::from_static("a"));
            if let Some(length) = length {
                headers.insert(CONTENT_LENGTH, HeaderValue::from_static(length));
            }
            let request = Outbound::new(&Method::POST, &uri, Cow::Owned(headers));
            let (head, _) = write(&request, &body).unwrap();
            assert_eq!(head.len(), head.capacity(), "{}", String::from_utf8_lossy(&head));
            let told = format!("content-length: {}\r\n", length.unwrap_or("3"));
            assert_eq!(String::from_utf8(head).unwrap().matches(&told).count(), 1);
        }
    }

    #[test]
    fn cookies_stand_in_one_field_over_http1() {
        let (uri, mut headers) = (Uri::default(), HeaderMap::new());
        for cookie in ["a=1", "b=2; c=3", "d=4"] {
            headers.append(COOKIE, HeaderValue::from_static(cookie));
        }
        let request = Outbound::new(&Method::GET, &uri, Cow::Owned(headers));
        let request = for_http1(&request);
        let cookies: Vec<_> = request.headers.get_all(COOKIE).iter().collect();
        assert_eq!(cookies, ["a=1; b=2; c=3; d=4"]);
    }
}
