//! What is an upstream told of the way that a request has come?
//!
//! That it came through here (`Via`), and, where the config says so, from whom (`Forwarded`, `X-Forwarded-*`). What a peer
//! says of that which is not trusted is removed: anybody could say it.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{FORWARDED, VIA};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};

use super::peer::Origin;
use super::refusal::Refusal;
use crate::config::Forwarded;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const AT_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Whether servers believe of this header where a request comes from.
pub(super) fn is_claim(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("x-forwarded-")
        || matches!(name, "forwarded" | "x-real-ip" | "x-client-ip" | "true-client-ip")
}

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
            let claims: Vec<_> = headers.keys().filter(|name| is_claim(name)).cloned().collect();
            for name in claims {
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
    name: Arc<str>,
    /// For HTTP/1.0, HTTP/1.1 and HTTP/2.
    values: [HeaderValue; 3],
}

impl Via {
    /// The name of a router that draws this.
    pub(super) fn name_of(chance: u64) -> Arc<str> {
        format!("paddler-{:08x}", chance >> 32).into()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn new(name: Arc<str>) -> Self {
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
mod tests;
