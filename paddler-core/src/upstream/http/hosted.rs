//! What of a request does somebody else's API get?
//!
//! Its own key in the form that it reads, and neither where the client is nor, with [`Traffic::Fallback`], his key. His other headers pass.

use http::header::{AUTHORIZATION, FORWARDED};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{UpstreamKey, X_API_KEY};
use crate::upstream::{Engine, Traffic, UpstreamSpec};

const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// The version that Anthropic's API has had since its beginning, which it does without in no request.
const VERSION: HeaderValue = HeaderValue::from_static("2023-06-01");

/// What headers are called that are for routers.
const OWN: &str = "x-paddler-";

/// What tells where a client is.
const WHENCE: [&str; 4] = [
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-real-ip",
];

/// What an upstream is to be told.
#[derive(Debug)]
pub(super) struct Hosted {
    key: Option<UpstreamKey>,
    anthropic: bool,
    /// It is not told where clients are.
    is_hosted: bool,
    /// A client's key is for his own model.
    keeps_keys: bool,
}

impl Hosted {
    pub(super) fn of(spec: &UpstreamSpec) -> Self {
        Self {
            key: spec.extensions.get::<UpstreamKey>().cloned(),
            anthropic: spec.engine == Engine::Anthropic,
            is_hosted: spec.is_hosted(),
            keeps_keys: spec.traffic != Traffic::Fallback,
        }
    }

    /// Makes the headers of a request for this path those that it gets.
    pub(super) fn prepare(&self, path: &str, headers: &mut HeaderMap) {
        if self.is_hosted {
            let own: Vec<_> = headers
                .keys()
                .filter(|name| name.as_str().starts_with(OWN))
                .cloned()
                .collect();
            own.iter().for_each(|name| drop(headers.remove(name)));
            WHENCE.iter().for_each(|name| drop(headers.remove(*name)));
            headers.remove(FORWARDED);
        }
        if !self.keeps_keys {
            headers.remove(AUTHORIZATION);
            headers.remove(X_API_KEY);
        }
        let is_native = self.anthropic && (path.contains("/messages") || path.ends_with("/models"));
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
            ("accept", "*/*"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        Hosted::of(&spec).prepare(path, &mut headers);
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
                "authorization: Bearer sk-own",
                "forwarded: for=192.0.2.1",
                "x-forwarded-for: 192.0.2.1",
                "x-paddler-max-wait: 1s"
            ],
            "one's own engines are told"
        );
    }

    #[test]
    fn a_version_that_a_client_asks_for_stays() {
        let mut spec = UpstreamSpec::new("a", "https://a").unwrap();
        spec.engine = Engine::Anthropic;
        let mut headers = HeaderMap::new();
        headers.insert(ANTHROPIC_VERSION, HeaderValue::from_static("2024-01-01"));
        Hosted::of(&spec).prepare("/v1/messages", &mut headers);
        assert_eq!(headers[ANTHROPIC_VERSION], "2024-01-01");
    }
}
