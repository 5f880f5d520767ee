//! What does an upstream get of a request that whoever asks keeps?
//!
//! The request may have to be sent again, to another upstream too. So what is sent is looked at where it stands, and copied only
//! where this upstream gets something else.

use std::borrow::Cow;

use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Uri};

use crate::forward::Body;
use crate::upstream::{Instead, NewConnection};

/// The head of a request, for one upstream.
#[derive(Debug, Clone)]
pub(crate) struct Outbound<'r> {
    pub(crate) method: &'r Method,
    pub(crate) uri: Cow<'r, Uri>,
    pub(crate) headers: Cow<'r, HeaderMap>,
    /// The `Host` that goes with it, whatever the headers say. `None`: theirs.
    pub(super) host: Option<&'r HeaderValue>,
    /// It may have been seen, and is not sent again where it is lost, so it goes over a new connection: see [`NewConnection`].
    pub(crate) over_new: bool,
    /// Another model serves it than its own.
    pub(crate) instead: bool,
    /// Whoever asks takes the answer at once: where that has come as a whole, its connection is free before it is read.
    pub(crate) at_once: bool,
}

impl<'r> Outbound<'r> {
    pub(crate) fn new(method: &'r Method, uri: &'r Uri, headers: Cow<'r, HeaderMap>) -> Self {
        Self {
            method,
            uri: Cow::Borrowed(uri),
            headers,
            host: None,
            over_new: false,
            instead: false,
            at_once: false,
        }
    }

    pub(super) fn path_and_query(&self) -> &str {
        self.uri.path_and_query().map_or("/", PathAndQuery::as_str)
    }

    pub(super) fn host(&self) -> Option<&HeaderValue> {
        self.host.or_else(|| self.headers.get(HOST))
    }

    /// It as a request of its own, for a client library or a transport of the host's.
    pub(crate) fn into_request(self, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        request.method_mut().clone_from(self.method);
        *request.uri_mut() = self.uri.into_owned();
        *request.headers_mut() = self.headers.into_owned();
        if self.over_new {
            request.extensions_mut().insert(NewConnection);
        }
        if self.instead {
            request.extensions_mut().insert(Instead);
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_its_own_says_what_the_borrowed_one_did() {
        let (method, uri) = (Method::POST, Uri::from_static("/v1/chat/completions"));
        let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("theirs"))]);
        for (over_new, instead) in [(false, false), (true, false), (false, true)] {
            let mut outbound = Outbound::new(&method, &uri, Cow::Borrowed(&headers));
            (outbound.over_new, outbound.instead) = (over_new, instead);
            let request = outbound.into_request(Body::default());
            assert_eq!(
                (request.method(), request.uri(), request.headers()),
                (&method, &uri, &headers)
            );
            let extensions = request.extensions();
            assert_eq!(extensions.get::<NewConnection>().is_some(), over_new);
            assert_eq!(extensions.get::<Instead>().is_some(), instead);
        }
    }
}
