//! What do upstreams get of a request?

use std::sync::Arc;

use http::header::{ACCEPT_ENCODING, HOST};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue};

use super::head::Head;
use super::{Inner, Passage};
use crate::config::{Forwarded, Traceparent};
use crate::forward::accept::OverTls;
use crate::forward::admission::check_body;
use crate::forward::attempt::Outgoing;
use crate::forward::fallback::Chain;
use crate::forward::forwarded::Hop;
use crate::forward::headers::{Kinds, for_upstream};
use crate::forward::held::Held;
use crate::forward::refusal::Refusal;
use crate::forward::rewrite::Naming;
use crate::forward::timeouts::Allowed;
use crate::forward::trace::{self, REQUEST_ID};
use crate::upstream::{Carried, Dispatch};

impl Passage<'_> {
    /// The request as upstreams get it. It asks for the model that it came with.
    pub(super) fn outgoing(
        &self,
        mut head: Head<'_>,
        (held, naming): (Held, Naming),
        allowed: Allowed,
        (id, websocket): (&HeaderValue, bool),
    ) -> Result<Outgoing, Refusal> {
        let carried = head.parts.extensions.remove::<Carried>();
        let bytes = held.bytes();
        if bytes > 0 {
            check_body(self.method)?;
        }
        self.say_whence(&mut head, id);
        let parts = head.parts;
        // Nobody reads what its server or its host has put there any more, and it may be on its way for long.
        drop(std::mem::take(&mut parts.extensions));
        let body = (head.announces_body || bytes > 0).then_some(bytes);
        let own_keys = self.options.keys.is_some();
        // A connection that becomes a WebSocket has no answer with trailers.
        let trailers = head.takes_trailers && !websocket;
        for_upstream(&mut parts.headers, body, own_keys, trailers);
        Ok(Outgoing {
            method: self.method.clone(),
            uri: head.uri,
            headers: std::mem::take(&mut parts.headers),
            held,
            allowed,
            websocket,
            carried: carried.map(|carried| (carried, Dispatch::default())),
            naming,
            model: None,
        })
    }

    /// Tells the upstream which request it is, and where it comes from.
    fn say_whence(&self, head: &mut Head<'_>, id: &HeaderValue) {
        let Inner { via, places, .. } = self.inner;
        let forwarding = &self.options.forwarding;
        let Parts {
            headers,
            extensions,
            version,
            ..
        } = &mut *head.parts;
        if forwarding.forwarded != Forwarded::Off || head.kinds.has(Kinds::CLAIM) {
            let asked_by = headers.get(HOST).cloned();
            let asked_by = asked_by.as_ref().and_then(|host| host.to_str().ok());
            let over_tls = extensions.get::<OverTls>().is_some();
            let hop = Hop {
                from: head.origin,
                host: head.authority.as_ref().map(Authority::as_str).or(asked_by),
                scheme: if over_tls { "https" } else { "http" },
            };
            hop.say(headers, forwarding.forwarded);
        }
        via.say(headers, *version);
        headers.insert(REQUEST_ID, id.clone());
        if forwarding.traceparent == Traceparent::Make || head.kinds.has(Kinds::TRACE) {
            trace::settle_trace(headers, forwarding.traceparent, || places.next_seed());
        }
    }

    /// The name that answers are to have, where that is not the engine's.
    pub(super) fn rename(&self, headers: &mut HeaderMap, chain: &Chain<'_>) -> Option<Arc<str>> {
        let facts = chain.facts();
        let settings = self.options.models.settings(facts);
        let own = facts.model.as_ref().filter(|_| chain.has_others());
        let name = facts.asked.as_ref().or(own).cloned();
        let name = name.filter(|_| settings.rewrite_response == Some(true))?;
        ask_plain(headers);
        Some(name)
    }
}

/// What is read from an answer, or put into it, asks for one that can be read.
pub(super) fn ask_plain(headers: &mut HeaderMap) {
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
}
