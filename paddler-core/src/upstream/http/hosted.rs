//! What of a request does somebody else's API get?
//!
//! Its own key in the form that it reads, and of the client's headers those that say what is asked and how it is answered: neither
//! where he is, nor his cookies, nor whose account pays, nor a key of his that is for somebody else.

use http::header::{
    AUTHORIZATION, CONNECTION, EXPECT, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{UpstreamKey, X_API_KEY};
use crate::upstream::{Engine, Traffic, UpstreamSpec};

const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// The version that Anthropic's API has had since its beginning, which it does without in no request.
const VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// The headers of a request that it gets, besides those whose names begin with `accept`, `content-`, `anthropic-` or `sec-websocket-`.
/// Keys are judged by themselves.
const PASS: [HeaderName; 16] = [
    HOST,
    CONNECTION,
    UPGRADE,
    TRANSFER_ENCODING,
    TE,
    TRAILER,
    EXPECT,
    USER_AGENT,
    AUTHORIZATION,
    X_API_KEY,
    HeaderName::from_static("api-key"),
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("openai-beta"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("x-request-id"),
];
const BEGIN: [&str; 4] = ["accept", "content-", "anthropic-", "sec-websocket-"];

/// Where keys stand.
const KEYS: [HeaderName; 3] = [AUTHORIZATION, X_API_KEY, HeaderName::from_static("api-key")];

/// Whether a client's key goes there: it is for his own model, and whose key of ours goes there pays alone. `instead`: another model
/// serves the request than its own.
pub(crate) fn passes_clients_key(spec: &UpstreamSpec, instead: bool) -> bool {
    let ours = spec.extensions.get::<UpstreamKey>().is_some();
    spec.traffic != Traffic::Fallback && !(spec.is_hosted() && (instead || ours))
}

/// What an upstream is to be told.
#[derive(Debug)]
pub(super) struct Hosted {
    key: Option<UpstreamKey>,
    anthropic: bool,
    is_hosted: bool,
    passes_clients_key: bool,
    passes_it_instead: bool,
}

impl Hosted {
    pub(super) fn of(spec: &UpstreamSpec) -> Self {
        Self {
            key: spec.extensions.get::<UpstreamKey>().cloned(),
            anthropic: spec.engine == Engine::Anthropic,
            is_hosted: spec.is_hosted(),
            passes_clients_key: passes_clients_key(spec, false),
            passes_it_instead: passes_clients_key(spec, true),
        }
    }

    /// Whether a request for this path is in Anthropic's own words, which have another place for the key.
    pub(super) fn is_native(&self, path: &str) -> bool {
        self.anthropic && (path.contains("/messages") || path.contains("/models"))
    }

    /// Whether it gets the headers as they are.
    pub(super) fn gets_all(&self, is_native: bool, instead: bool) -> bool {
        !self.is_hosted && !is_native && self.key.is_none() && self.passes(instead)
    }

    fn passes(&self, instead: bool) -> bool {
        if instead {
            self.passes_it_instead
        } else {
            self.passes_clients_key
        }
    }

    /// Makes the headers of a request those that it gets. `instead`: another model serves it than its own.
    pub(super) fn prepare(&self, is_native: bool, headers: &mut HeaderMap, instead: bool) {
        if self.is_hosted {
            let passes = |name: &HeaderName| {
                PASS.contains(name) || BEGIN.iter().any(|begin| name.as_str().starts_with(begin))
            };
            let others: Vec<_> = headers.keys().filter(|name| !passes(name)).cloned().collect();
            others.iter().for_each(|name| drop(headers.remove(name)));
        }
        if !self.passes(instead) {
            KEYS.iter().for_each(|name| drop(headers.remove(name)));
        }
        match &self.key {
            Some(key) if is_native => {
                headers.remove(AUTHORIZATION);
                headers.insert(X_API_KEY, key.bare());
            }
            Some(key) => key.put_into(headers),
            None => {}
        }
        if is_native && !headers.contains_key(ANTHROPIC_VERSION) {
            headers.insert(ANTHROPIC_VERSION, VERSION);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(engine: Engine, traffic: Traffic, key: bool, path: &str) -> Vec<String> {
        let mut spec = UpstreamSpec::new("a", "https://a").unwrap();
        (spec.engine, spec.traffic) = (engine, traffic);
        if key {
            spec.extensions.insert(UpstreamKey::new("sk-own").unwrap());
        }
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer theirs"),
            ("x-api-key", "theirs"),
            ("x-paddler-max-wait", "1s"),
            ("x-forwarded-for", "192.0.2.1"),
            ("forwarded", "for=192.0.2.1"),
            ("cookie", "session=1"),
            ("openai-organization", "theirs"),
            ("api-key", "theirs"),
            ("accept", "*/*"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let hosted = Hosted::of(&spec);
        hosted.prepare(hosted.is_native(path), &mut headers, false);
        let line =
            |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
        let mut lines: Vec<_> = headers.iter().map(line).collect();
        lines.sort();
        lines
    }

    #[test]
    fn an_api_of_others_gets_its_own_key_and_nothing_of_the_client() {
        let chat = "/v1/chat/completions";
        let bearer = ["accept: */*", "authorization: Bearer sk-own"];
        assert_eq!(sent(Engine::Openai, Traffic::Fallback, true, chat), bearer);
        assert_eq!(sent(Engine::Openai, Traffic::Named, true, chat), bearer);
        assert_eq!(
            sent(Engine::Anthropic, Traffic::All, true, chat),
            bearer,
            "its endpoint for OpenAI's clients"
        );
        for path in ["/v1/messages", "/v1/messages/count_tokens", "/v1/models"] {
            let native = [
                "accept: */*",
                "anthropic-version: 2023-06-01",
                "x-api-key: sk-own",
            ];
            assert_eq!(sent(Engine::Anthropic, Traffic::Fallback, true, path), native);
        }
        assert_eq!(
            sent(Engine::Openai, Traffic::Fallback, false, chat),
            ["accept: */*"]
        );
        assert_eq!(
            sent(Engine::Vllm, Traffic::All, true, chat),
            [
                "accept: */*",
                "api-key: theirs",
                "authorization: Bearer sk-own",
                "cookie: session=1",
                "forwarded: for=192.0.2.1",
                "openai-organization: theirs",
                "x-forwarded-for: 192.0.2.1",
                "x-paddler-max-wait: 1s"
            ],
            "one's own engines are told"
        );
    }

    #[test]
    fn a_client_s_key_goes_to_others_only_by_their_name() {
        let mut spec = UpstreamSpec::new("a", "https://a").unwrap();
        (spec.engine, spec.traffic) = (Engine::Openai, Traffic::Named);
        let has_key = |instead| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer theirs"));
            let hosted = Hosted::of(&spec);
            hosted.prepare(hosted.is_native("/v1/chat/completions"), &mut headers, instead);
            headers.contains_key(AUTHORIZATION)
        };
        assert!(has_key(false) && !has_key(true));
    }

    #[test]
    fn a_version_that_a_client_asks_for_stays() {
        let mut spec = UpstreamSpec::new("a", "https://a").unwrap();
        spec.engine = Engine::Anthropic;
        let mut headers = HeaderMap::new();
        headers.insert(ANTHROPIC_VERSION, HeaderValue::from_static("2024-01-01"));
        let hosted = Hosted::of(&spec);
        hosted.prepare(hosted.is_native("/v1/messages"), &mut headers, false);
        assert_eq!(headers[ANTHROPIC_VERSION], "2024-01-01");
    }
}
