//! How does a picker behave, beyond what the router does?

use std::collections::BTreeMap;
use std::sync::Arc;

use paddler_core::forward::RouterOptions;

use crate::gateway::Gateway;

/// Whether the headers of the Gateway API Inference Extension count that say who a request is for, what it is worth and which
/// model is meant: `x-gateway-inference-objective`, `x-gateway-inference-fairness-id`, `x-gateway-model-name-rewrite`, and
/// `x-gateway-model-name` where the body is not shown. What a client says in them goes no further in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GatewayHeaders {
    /// They count, whoever sent them: that Envoy lets them through to here is its word for them. As the protocol has it.
    #[default]
    Believed,
    /// They do not.
    Ignored,
}

/// How a picker behaves. What the router does is in [`RouterOptions`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PickerOptions {
    /// How many upstreams are named besides the one that is picked, for Envoy's own retries: 0 to 3. Default 3. A cluster of
    /// type `ORIGINAL_DST` takes one address alone and answers a list with 503: there it has to be 0.
    pub fallbacks: usize,
    /// Whether the gateway's headers count. Default: they do.
    pub gateway_headers: GatewayHeaders,
    /// The priority of each objective. Of one that is not here, the words of
    /// [`Priority::read`](paddler_core::queue::Priority::read) are understood; any other is standard. Default none.
    pub objectives: BTreeMap<String, i32>,
    /// The most streams at once, which is requests, at least 1. One more is answered with 429. Default 4,096, as many as the gateway takes
    /// connections; `paddler endpoint-picker` takes `limits.connections` of its config.
    pub max_streams: usize,
    /// The largest message, in bytes. Default 4 MiB, four times what Envoy buffers unless told otherwise. A body that it
    /// sends in one piece (`BUFFERED`) has to fit; what is larger is answered with 413. Each stream holds one message while it
    /// comes, beside what [`RouterOptions`] allow for bodies.
    pub max_message: usize,
}

impl Default for PickerOptions {
    fn default() -> Self {
        Self {
            fallbacks: 3,
            gateway_headers: GatewayHeaders::default(),
            objectives: BTreeMap::new(),
            max_streams: 4096,
            max_message: 4 << 20,
        }
    }
}

impl PickerOptions {
    /// The router's options, as a router behind Envoy needs them: it tells who comes next, hears the gateway's headers, and
    /// leaves it to Envoy under which names it is asked.
    pub(crate) fn adapt(&self, mut router: RouterOptions) -> RouterOptions {
        router.alternatives = self.fallbacks;
        router.own_names_only = false;
        if self.gateway_headers == GatewayHeaders::Believed {
            router.annotate = Some(Arc::new(Gateway {
                objectives: self.objectives.clone(),
                host: router.annotate,
            }));
        }
        router
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_behind_envoy_is_asked_under_any_name_and_tells_who_comes_next() {
        let mut options = RouterOptions::default();
        options.own_names_only = true;
        let adapted = PickerOptions::default().adapt(options);
        assert_eq!((adapted.own_names_only, adapted.alternatives), (false, 3));
    }
}
