//! What is an engine asked on each poll?

#[cfg(feature = "proxy")]
use crate::status::Report;
use crate::upstream::Engine;
#[cfg(feature = "proxy")]
use crate::upstream::UpstreamSpec;

/// A path that tells how an engine is. It is asked with `GET` unless it [posts](Endpoint::posts) something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Endpoint {
    /// `/health`
    Health,
    /// `/metrics`, a Prometheus page.
    Metrics,
    /// `/slots` (llama.cpp)
    Slots,
    /// `/props` (llama.cpp)
    Props,
    /// `/v1/models`
    Models,
    /// `/lora-adapters` (llama.cpp)
    LoraAdapters,
    /// `/version` (vLLM)
    Version,
    /// `/v1/loads` (SGLang)
    Loads,
    /// `/prometheus/metrics` (TensorRT-LLM)
    PrometheusMetrics,
    /// `/v2` (Triton)
    Metadata,
    /// `/v2/health/ready` (Triton)
    Ready,
    /// `POST /v2/repository/index` (Triton)
    Index,
    /// `/api/tags` (Ollama)
    Tags,
    /// `/paddler/v1/status` (Paddler): all of its upstreams, as one.
    Fleet,
}

impl Endpoint {
    /// The path below the upstream's URL.
    pub fn path(self) -> &'static str {
        match self {
            Self::Health => "/health",
            Self::Metrics => "/metrics",
            Self::Slots => "/slots",
            Self::Props => "/props",
            Self::Models => "/v1/models",
            Self::LoraAdapters => "/lora-adapters",
            Self::Version => "/version",
            Self::Loads => "/v1/loads?include=core",
            Self::PrometheusMetrics => "/prometheus/metrics",
            Self::Metadata => "/v2",
            Self::Ready => "/v2/health/ready",
            Self::Index => "/v2/repository/index",
            Self::Tags => "/api/tags",
            Self::Fleet => "/paddler/v1/status",
        }
    }

    /// The JSON that is posted to it. `None`: it is asked with `GET`.
    pub fn posts(self) -> Option<&'static str> {
        (self == Self::Index).then_some(r#"{"ready":true}"#)
    }

    /// Whether it is the page with the metrics, which may stand elsewhere: see
    /// [`UpstreamSpec::metrics_url`](crate::upstream::UpstreamSpec::metrics_url).
    pub fn is_metrics(self) -> bool {
        matches!(self, Self::Metrics | Self::PrometheusMetrics)
    }
}

/// What an engine is asked: load on every poll, what seldom changes on every tenth.
///
/// What a slow path told has to be kept by whoever polls until it is asked again, since a report is whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Asked on every poll, in this order.
    pub quick: &'static [Endpoint],
    /// Asked after these on the first poll and on every [`SLOW_EVERY`](Self::SLOW_EVERY)-th after it, in this order.
    pub slow: &'static [Endpoint],
}

impl Plan {
    /// How many polls there are from one asking of the slow paths to the next.
    pub const SLOW_EVERY: u64 = 10;

    /// What to ask of this kind of engine. [`Engine::Auto`] is asked what [`identify`](super::identify) wants to know.
    pub fn of(engine: Engine) -> Self {
        use Endpoint::{
            Fleet, Health, Index, Loads, LoraAdapters, Metadata, Metrics, Models, PrometheusMetrics, Props,
            Ready, Slots, Tags, Version,
        };
        match engine {
            Engine::Auto => Self {
                quick: &[Health, Props, Metrics, Version, Models, Metadata, Tags],
                slow: &[],
            },
            Engine::Llamacpp => Self {
                quick: &[Health, Slots, Metrics],
                slow: &[Props, Models, LoraAdapters],
            },
            Engine::Vllm => Self {
                quick: &[Health, Metrics],
                slow: &[Models],
            },
            Engine::Openai => Self {
                quick: &[Health],
                slow: &[Models],
            },
            Engine::Anthropic => Self {
                quick: &[],
                slow: &[Models],
            },
            Engine::Sglang => Self {
                // Its `/health` has it generate a token, and waits for that behind whatever it is busy with.
                quick: &[Loads, Health, Metrics],
                slow: &[Models],
            },
            Engine::Trtllm => Self {
                quick: &[Health, PrometheusMetrics],
                slow: &[Models],
            },
            Engine::Triton => Self {
                quick: &[Ready, Metrics],
                slow: &[Index, Models],
            },
            Engine::Ollama => Self {
                quick: &[Tags],
                slow: &[],
            },
            Engine::Paddler => Self {
                quick: &[Fleet, Models],
                slow: &[],
            },
        }
    }

    /// What to ask of this upstream, which is known to be this engine. Of somebody else's API no more than its models, and
    /// nothing where those are known: it counts as ready.
    #[cfg(feature = "proxy")]
    pub(crate) fn for_spec(spec: &UpstreamSpec, engine: Engine) -> Self {
        if !spec.is_hosted() {
            return Self::of(engine);
        }
        let slow: &[Endpoint] = if spec.is_never_asked() {
            &[]
        } else {
            &[Endpoint::Models]
        };
        Self { quick: &[], slow }
    }

    /// Whether what a path would tell has been told by those before it, so that it need not be asked.
    #[cfg(feature = "proxy")]
    pub(crate) fn is_told(engine: Engine, endpoint: Endpoint, report: &Report) -> bool {
        match (engine, endpoint) {
            (Engine::Sglang, Endpoint::Health) => report.health.is_some(),
            (Engine::Sglang, Endpoint::Metrics) => report.running.is_some(),
            (Engine::Paddler | Engine::Triton, Endpoint::Models) => report.models.is_some(),
            _ => false,
        }
    }

    /// What to ask on the `poll`-th poll, counted from 0.
    ///
    /// ```
    /// use paddler_core::source::{Endpoint, Plan};
    /// use paddler_core::upstream::Engine;
    ///
    /// let plan = Plan::of(Engine::Vllm);
    /// assert_eq!(plan.asks(0).collect::<Vec<_>>(), [Endpoint::Health, Endpoint::Metrics, Endpoint::Models]);
    /// assert_eq!(plan.asks(1).collect::<Vec<_>>(), [Endpoint::Health, Endpoint::Metrics]);
    /// ```
    pub fn asks(&self, poll: u64) -> impl Iterator<Item = Endpoint> + use<> {
        let slow: &'static [Endpoint] = if poll.is_multiple_of(Self::SLOW_EVERY) {
            self.slow
        } else {
            &[]
        };
        self.quick.iter().chain(slow).copied()
    }
}
