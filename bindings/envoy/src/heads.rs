//! What do headers become, on their way to the router and back?
//!
//! The router makes of a client's headers what an upstream gets, and of an upstream's what the client gets. Envoy has its own
//! copy and is told the difference.

use envoy_types::pb::envoy::config::core::v3::{HeaderMap as Sent, HeaderValue as SentHeader};
use envoy_types::pb::envoy::service::ext_proc::v3::HeaderMutation;
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, FORWARDED, HOST, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use crate::answers::{append, overwrite};

/// What is about one connection, or about who is at its other end, which is Envoy's to say. It finds no route without its
/// `x-forwarded-proto`.
const ENVOYS_OWN: [HeaderName; 12] = [
    CONNECTION,
    CONTENT_LENGTH,
    EXPECT,
    FORWARDED,
    HOST,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("x-real-ip"),
];

/// The head of a request as Envoy tells it.
#[derive(Debug, Clone)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
}

/// A head that cannot be read, and what is wrong with it.
pub(crate) type Malformed = String;

/// Reads the headers of a message. Names that start with a colon are given apart.
fn read<'a>(sent: &'a Sent, mut pseudo: impl FnMut(&'a str, &'a [u8])) -> Result<HeaderMap, Malformed> {
    let mut headers = HeaderMap::with_capacity(sent.headers.len());
    for SentHeader {
        key,
        value,
        raw_value,
    } in &sent.headers
    {
        let bytes = if raw_value.is_empty() {
            value.as_bytes()
        } else {
            raw_value
        };
        if key.starts_with(':') {
            pseudo(key, bytes);
            continue;
        }
        let name =
            HeaderName::from_bytes(key.as_bytes()).map_err(|_| format!("{key:?} is no name of a header"))?;
        let value =
            HeaderValue::from_bytes(bytes).map_err(|_| format!("the value of {key} is none of a header"))?;
        headers
            .try_append(name, value)
            .map_err(|_| "there are too many headers".to_owned())?;
    }
    Ok(headers)
}

impl RequestHead {
    pub(crate) fn read(sent: &Sent) -> Result<Self, Malformed> {
        let (mut method, mut path, mut authority) = (None, None, None);
        let mut headers = read(sent, |name, value| match name {
            ":method" => method = Some(value),
            ":path" => path = Some(value),
            ":authority" => authority = Some(value),
            _ => {}
        })?;
        let method = method.and_then(|method| Method::from_bytes(method).ok());
        let uri = path.and_then(|path| Uri::try_from(path).ok());
        if let Some(host) = authority.and_then(|authority| HeaderValue::from_bytes(authority).ok()) {
            headers.insert(HOST, host);
        }
        Ok(Self {
            method: method.ok_or(":method is missing or none")?,
            uri: uri.ok_or(":path is missing or none")?,
            headers,
        })
    }
}

/// The status and headers of a response as Envoy tells them.
pub(crate) fn read_response(sent: &Sent) -> Result<(StatusCode, HeaderMap), Malformed> {
    let mut status = None;
    let headers = read(sent, |name, value| {
        if name == ":status" {
            status = StatusCode::from_bytes(value).ok();
        }
    })?;
    Ok((status.ok_or(":status is missing or none")?, headers))
}

/// What Envoy has to change so that `before` becomes `after`. `but`: of these it keeps what it has.
pub(crate) fn difference(before: &HeaderMap, after: &HeaderMap, but: &[HeaderName]) -> HeaderMutation {
    let kept = |name: &HeaderName| {
        ENVOYS_OWN.contains(name) || name.as_str().starts_with("x-forwarded-") || but.contains(name)
    };
    let mut mutation = HeaderMutation::default();
    for name in after.keys().filter(|name| !kept(name)) {
        let mut values = after.get_all(name).iter();
        if after.get_all(name).iter().eq(before.get_all(name).iter()) {
            continue;
        }
        if let Some(first) = values.next() {
            mutation
                .set_headers
                .push(overwrite(name.as_str(), first.as_bytes()));
        }
        let others = values.map(|value| append(name.as_str(), value.as_bytes()));
        mutation.set_headers.extend(others);
    }
    let gone = before
        .keys()
        .filter(|name| !kept(name) && !after.contains_key(*name));
    mutation.remove_headers = gone.map(ToString::to_string).collect();
    mutation
}

/// What says how a body is to be read: nothing that the router sees where it is shown none.
pub(crate) const ABOUT_THE_BODY: [HeaderName; 2] = [CONTENT_ENCODING, CONTENT_TYPE];

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(headers: &[(&str, &str)]) -> Sent {
        let header = |(key, value): &(&str, &str)| SentHeader {
            key: (*key).to_owned(),
            raw_value: value.as_bytes().to_vec(),
            ..SentHeader::default()
        };
        Sent {
            headers: headers.iter().map(header).collect(),
        }
    }

    #[test]
    fn a_head_is_read_from_both_forms_of_values() {
        let mut head = sent(&[
            (":method", "POST"),
            (":path", "/v1/models?x=1"),
            (":authority", "llm:80"),
            ("a", "1"),
        ]);
        head.headers.push(SentHeader {
            key: "a".to_owned(),
            value: "2".to_owned(),
            ..SentHeader::default()
        });
        let read = RequestHead::read(&head).unwrap();
        assert_eq!(
            (read.method, read.uri),
            (Method::POST, "/v1/models?x=1".parse().unwrap())
        );
        assert_eq!(read.headers[HOST], "llm:80");
        assert_eq!(read.headers.get_all("a").iter().collect::<Vec<_>>(), ["1", "2"]);
        for bad in [
            &[(":path", "/")][..],
            &[(":method", "GET")],
            &[(":method", "G T"), (":path", "/")],
            &[(":method", "GET"), (":path", "a b")],
            &[(":method", "GET"), (":path", "/"), ("a b", "1")],
            &[(":method", "GET"), (":path", "/"), ("a", "1\n")],
        ] {
            assert!(RequestHead::read(&sent(bad)).is_err(), "{bad:?}");
        }
        assert!(read_response(&sent(&[(":status", "2000")])).is_err());
        assert_eq!(read_response(&sent(&[(":status", "200")])).unwrap().0, 200);
    }

    #[test]
    fn envoy_is_told_the_difference_and_nothing_of_its_own() {
        let map = |headers: &[(&'static str, &str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, value.parse().unwrap());
            }
            map
        };
        let before = map(&[
            ("a", "1"),
            ("b", "1"),
            ("b", "2"),
            ("gone", "1"),
            ("te", "x"),
            ("x-forwarded-proto", "http"),
            ("kept", "1"),
        ]);
        let after = map(&[
            ("a", "1"),
            ("b", "2"),
            ("b", "3"),
            ("new", "1"),
            ("content-length", "7"),
        ]);
        let HeaderMutation {
            set_headers,
            mut remove_headers,
        } = difference(&before, &after, &[HeaderName::from_static("kept")]);
        let set: Vec<_> = set_headers
            .iter()
            .map(|set| {
                let header = set.header.as_ref().unwrap();
                (
                    header.key.as_str(),
                    header.raw_value.as_slice(),
                    set.append_action,
                )
            })
            .collect();
        let (append, overwrite) = (0, 2);
        let expected: [(&str, &[u8], i32); 3] = [
            ("b", b"2", overwrite),
            ("b", b"3", append),
            ("new", b"1", overwrite),
        ];
        assert_eq!(set, expected);
        remove_headers.sort_unstable();
        assert_eq!(remove_headers, ["gone"]);
        let own = "connection content-length expect forwarded host keep-alive proxy-connection te trailer transfer-encoding \
                   upgrade x-forwarded-for x-forwarded-port x-real-ip";
        for name in own.split_whitespace() {
            let map = map(&[(name, "1")]);
            for (before, after) in [(&map, &HeaderMap::new()), (&HeaderMap::new(), &map)] {
                assert_eq!(
                    difference(before, after, &[]),
                    HeaderMutation::default(),
                    "{name}"
                );
            }
        }
    }
}
