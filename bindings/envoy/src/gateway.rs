//! What does the endpoint picker protocol add to ext_proc?
//!
//! Names, as version 1.0 has them
//! (<https://gateway-api-inference-extension.sigs.k8s.io>, proposal 004), and what they mean for a request's facts.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::Metadata;
use envoy_types::pb::google::protobuf::{Struct, Value, value::Kind};
use http::{HeaderMap, HeaderName};
use paddler_core::forward::{Annotate, LONGEST_TENANT};
use paddler_core::queue::Priority;
use paddler_core::request::RequestFacts;

use crate::addresses::Allowed;

/// Where a request is to go: a header, and a key of [`LB`].
pub(crate) const DESTINATION: &str = "x-gateway-destination-endpoint";

/// Where it went: a key of [`LB`] on the way back.
pub(crate) const SERVED: &str = "x-gateway-destination-endpoint-served";

/// Where it may go: a key of [`SUBSET_HINT`].
const SUBSET: &str = "x-gateway-destination-endpoint-subset";

/// The namespace of metadata for load balancing.
pub(crate) const LB: &str = "envoy.lb";

const SUBSET_HINT: &str = "envoy.lb.subset_hint";

/// The model that is asked for, for routes and for whoever comes after.
pub(crate) const MODEL: HeaderName = HeaderName::from_static("x-gateway-model-name");

/// Its base model, if it is an adapter; else the same.
pub(crate) const BASE_MODEL: HeaderName = HeaderName::from_static("x-gateway-base-model-name");

const OBJECTIVE: HeaderName = HeaderName::from_static("x-gateway-inference-objective");
const FAIRNESS_ID: HeaderName = HeaderName::from_static("x-gateway-inference-fairness-id");
pub(crate) const REWRITE: HeaderName = HeaderName::from_static("x-gateway-model-name-rewrite");

/// What belongs to the gateway and its picker: from a client it goes no further.
pub(crate) const SYSTEM_OWNED: [HeaderName; 6] = [
    OBJECTIVE,
    FAIRNESS_ID,
    REWRITE,
    HeaderName::from_static(SUBSET),
    HeaderName::from_static(DESTINATION),
    HeaderName::from_static(SERVED),
];

/// What the gateway's headers mean.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) objectives: BTreeMap<String, i32>,
    /// What the host has put in, which comes first.
    pub(crate) host: Option<Arc<dyn Annotate>>,
}

impl Annotate for Gateway {
    fn annotate(&self, headers: &HeaderMap, facts: &mut RequestFacts) {
        if let Some(host) = &self.host {
            host.annotate(headers, facts);
        }
        let text =
            |name: HeaderName| Some(headers.get(name)?.to_str().ok()?.trim()).filter(|text| !text.is_empty());
        if let Some(objective) = text(OBJECTIVE) {
            let known = self.objectives.get(objective).copied();
            facts.priority = known.or_else(|| Priority::read(objective)).unwrap_or(0);
        }
        if let Some(tenant) = text(FAIRNESS_ID).filter(|tenant| tenant.len() <= LONGEST_TENANT) {
            (facts.tenant, facts.tenant_weight) = (Some(tenant.into()), 1);
        }
        // Where the body names none there is nothing to write it over, and the engine would serve what it likes.
        if let Some(model) = text(REWRITE).filter(|_| facts.model.is_some()) {
            facts.model = Some(model.into());
        }
    }
}

/// The addresses that a request may go to, if it is said. What is no address is none.
pub(crate) fn subset(metadata: Option<&Metadata>) -> Option<Vec<Allowed>> {
    let hint = metadata?.filter_metadata.get(SUBSET_HINT)?;
    let texts: Vec<&str> = match hint.fields.get(SUBSET)?.kind.as_ref() {
        Some(Kind::ListValue(list)) => list.values.iter().filter_map(text).collect(),
        Some(Kind::StringValue(text)) => vec![text],
        _ => Vec::new(),
    };
    let each = texts.iter().flat_map(|text| text.split(','));
    Some(each.filter_map(|text| allowed(text.trim())).collect())
}

fn allowed(text: &str) -> Option<Allowed> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some((address.ip().to_canonical(), Some(address.port())));
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    bare.parse().ok().map(|ip: IpAddr| (ip.to_canonical(), None))
}

/// The address that answered, if it is said: in the gateway's metadata, or in Envoy's own attribute.
pub(crate) fn served<'a>(
    metadata: Option<&Metadata>,
    mut attributes: impl Iterator<Item = &'a Struct>,
) -> Option<SocketAddr> {
    let told = || text(metadata?.filter_metadata.get(LB)?.fields.get(SERVED)?);
    let attribute = attributes.find_map(|attributes| text(attributes.fields.get("upstream.address")?));
    let address = |text: Option<&str>| text?.parse().ok();
    address(told()).or_else(|| address(attribute))
}

fn text(value: &Value) -> Option<&str> {
    match value.kind.as_ref()? {
        Kind::StringValue(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use envoy_types::pb::google::protobuf::ListValue;

    fn value(text: &str) -> Value {
        Value {
            kind: Some(Kind::StringValue(text.to_owned())),
        }
    }

    fn metadata(namespace: &str, key: &str, value: Value) -> Metadata {
        let fields = [(key.to_owned(), value)].into();
        Metadata {
            filter_metadata: [(namespace.to_owned(), Struct { fields })].into(),
            ..Metadata::default()
        }
    }

    #[test]
    fn a_subset_is_a_list_of_addresses() {
        let of = |value| subset(Some(&metadata(SUBSET_HINT, SUBSET, value)));
        let list = |texts: &[&str]| Value {
            kind: Some(Kind::ListValue(ListValue {
                values: texts.iter().map(|text| value(text)).collect(),
            })),
        };
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let both = vec![(ip("10.0.0.1"), Some(80)), (ip("::1"), Some(81))];
        assert_eq!(of(list(&["10.0.0.1:80", "[::1]:81"])), Some(both.clone()));
        assert_eq!(of(value("10.0.0.1:80, [::1]:81")), Some(both));
        let machines = vec![(ip("10.0.0.1"), None), (ip("::1"), None), (ip("::2"), None)];
        assert_eq!(of(list(&["10.0.0.1", "[::1]", "::2"])), Some(machines));
        assert_eq!(
            of(list(&["[::ffff:10.0.0.1]:80"])),
            Some(vec![(ip("10.0.0.1"), Some(80))])
        );
        // Set, and nobody in it.
        assert_eq!(of(Value { kind: None }), Some(vec![]));
        assert_eq!(of(list(&[])), Some(vec![]));
        assert_eq!(of(list(&["gpu-1:80", ""])), Some(vec![]));
        assert_eq!(
            of(Value {
                kind: Some(Kind::BoolValue(true))
            }),
            Some(vec![])
        );
        // Not set.
        assert_eq!(subset(None), None);
        assert_eq!(subset(Some(&metadata(LB, SUBSET, list(&["10.0.0.1:80"])))), None);
    }

    #[test]
    fn who_served_is_told_by_the_gateway_or_by_envoy() {
        let address: SocketAddr = "10.0.0.1:80".parse().unwrap();
        let told = metadata(LB, SERVED, value("10.0.0.1:80"));
        let attributes = Struct {
            fields: [("upstream.address".to_owned(), value("10.0.0.2:80"))].into(),
        };
        assert_eq!(served(Some(&told), [&attributes].into_iter()), Some(address));
        let other = served(None, [&Struct::default(), &attributes].into_iter());
        assert_eq!(other, "10.0.0.2:80".parse().ok());
        let nonsense = metadata(LB, SERVED, value("gpu-1"));
        assert_eq!(served(Some(&nonsense), std::iter::empty()), None);
        let other = served(Some(&nonsense), [&attributes].into_iter());
        assert_eq!(other, "10.0.0.2:80".parse().ok(), "nonsense hides nothing");
    }

    #[test]
    fn headers_say_who_and_how_much_and_which_model() {
        let gateway = Gateway {
            objectives: [("batch".to_owned(), -1)].into(),
            host: None,
        };
        let read = |name: HeaderName, value: &str| {
            let (mut headers, mut facts) = (HeaderMap::new(), RequestFacts::new());
            facts.model = Some("asked".into());
            headers.insert(name, value.parse().unwrap());
            gateway.annotate(&headers, &mut facts);
            facts
        };
        for (objective, priority) in [
            ("batch", -1),
            ("critical", 1),
            ("7", 7),
            ("unheard-of", 0),
            ("", 0),
        ] {
            assert_eq!(read(OBJECTIVE, objective).priority, priority, "{objective}");
        }
        assert_eq!(read(FAIRNESS_ID, "team").tenant.as_deref(), Some("team"));
        assert_eq!(read(FAIRNESS_ID, &"x".repeat(257)).tenant, None);
        assert_eq!(read(REWRITE, "llama-lora").model.as_deref(), Some("llama-lora"));
    }

    #[derive(Debug)]
    struct Host;

    impl Annotate for Host {
        fn annotate(&self, _: &HeaderMap, facts: &mut RequestFacts) {
            (facts.tenant, facts.priority) = (Some("host".into()), 5);
        }
    }

    #[test]
    fn what_the_host_says_comes_before_the_gateways_headers() {
        let gateway = Gateway {
            objectives: BTreeMap::new(),
            host: Some(Arc::new(Host)),
        };
        let mut facts = RequestFacts::new();
        let headers = [(FAIRNESS_ID, "team".parse().unwrap())].into_iter().collect();
        gateway.annotate(&headers, &mut facts);
        assert_eq!((facts.tenant.as_deref(), facts.priority), (Some("team"), 5));
    }
}
