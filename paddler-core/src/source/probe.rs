//! Which engine answers there?

use serde_json::Value;

use super::answer::is_loading;
use super::prometheus::samples;
use super::triton;
use crate::upstream::Engine;

/// What one path answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer<'a> {
    /// The status.
    pub status: u16,
    /// The header `Server`.
    pub server: Option<&'a str>,
    /// The body.
    pub body: &'a [u8],
}

impl<'a> Answer<'a> {
    /// An answer without the header `Server`.
    pub fn new(status: u16, body: &'a [u8]) -> Self {
        Self {
            status,
            server: None,
            body,
        }
    }

    /// Adds the header `Server`.
    #[must_use]
    pub fn server(mut self, server: &'a str) -> Self {
        self.server = Some(server);
        self
    }

    /// Whether there is nothing to be asked at that path.
    #[cfg(feature = "proxy")]
    pub(crate) fn has_no_such_path(&self) -> bool {
        matches!(self.status, 404 | 405 | 501)
    }

    /// Whether its server names itself so.
    fn is_of(&self, product: &str) -> bool {
        let named = self.server.and_then(|server| server.split(['/', ' ']).next());
        named.is_some_and(|named| named.eq_ignore_ascii_case(product))
    }

    /// The body, if this is a 200 with JSON in it.
    fn json(&self) -> Option<Value> {
        (self.status == 200)
            .then(|| serde_json::from_slice(self.body).ok())
            .flatten()
    }
}

/// What an upstream answered on the paths that tell engines apart. `None`: it has not answered there, or was not asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProbeAnswers<'a> {
    /// `GET /health`
    pub health: Option<Answer<'a>>,
    /// `GET /props`
    pub props: Option<Answer<'a>>,
    /// `GET /metrics`
    pub metrics: Option<Answer<'a>>,
    /// `GET /version`
    pub version: Option<Answer<'a>>,
    /// `GET /v1/models`
    pub models: Option<Answer<'a>>,
    /// `GET /v2`
    pub metadata: Option<Answer<'a>>,
    /// `GET /api/tags`
    pub tags: Option<Answer<'a>>,
}

impl<'a> ProbeAnswers<'a> {
    fn all(&self) -> impl Iterator<Item = Answer<'a>> + use<'a> {
        [
            self.health,
            self.props,
            self.metrics,
            self.version,
            self.models,
            self.metadata,
            self.tags,
        ]
        .into_iter()
        .flatten()
    }

    /// Whether it has none of these paths: a server of HTTP, and no engine, as far as it tells.
    #[cfg(feature = "proxy")]
    pub(crate) fn have_none(&self) -> bool {
        self.all().all(|answer| answer.has_no_such_path())
    }
}

/// Says which engine answered like this. `None`: nothing is conclusive, ask again.
///
/// - Paddler: it names itself in `Server` with its model list, or is the owner of a model.
/// - llama.cpp: it names itself in `Server` or as the owner of a model, has slots in its `/props`, or says in its own
///   way that its model is loading.
/// - vLLM: it is the owner of a model, or has a version and a metrics page with its own metrics.
/// - SGLang and TensorRT-LLM: it is the owner of a model. Triton: it names itself in its metadata, or is the owner of a model. Ollama: its `library` is, or it lists models in its own way alone.
/// - Any other that lists a model as OpenAI does is [`Engine::Openai`].
///
/// ```
/// use paddler_core::source::{Answer, ProbeAnswers, identify};
/// use paddler_core::upstream::Engine;
///
/// let loading = br#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#;
/// let answers = ProbeAnswers { health: Some(Answer::new(503, loading)), ..ProbeAnswers::default() };
/// assert_eq!(identify(&answers), Some(Engine::Llamacpp));
/// assert_eq!(identify(&ProbeAnswers::default()), None);
/// ```
pub fn identify(answers: &ProbeAnswers<'_>) -> Option<Engine> {
    let models = answers.models.and_then(|answer| answer.json());
    let owned_by = |owner: &str| models.as_ref().is_some_and(|models| has_owner(models, owner));
    // First, since it passes on what the engines behind it say of themselves.
    if owned_by("paddler") || answers.models.is_some_and(|answer| answer.is_of("paddler")) {
        Some(Engine::Paddler)
    } else if owned_by("llamacpp") || is_llamacpp(answers) {
        Some(Engine::Llamacpp)
    } else if owned_by("vllm") || is_vllm(answers) {
        Some(Engine::Vllm)
    } else if owned_by("sglang") {
        Some(Engine::Sglang)
    } else if owned_by("tensorrt_llm") {
        Some(Engine::Trtllm)
    } else if owned_by(triton::OWNER) || is_triton(answers) {
        Some(Engine::Triton)
    } else if owned_by("library") || (!models.as_ref().is_some_and(lists_a_model) && is_ollama(answers)) {
        Some(Engine::Ollama)
    } else if models.as_ref().is_some_and(lists_a_model) {
        Some(Engine::Openai)
    } else {
        None
    }
}

fn is_llamacpp(answers: &ProbeAnswers<'_>) -> bool {
    let says_so = answers
        .all()
        .any(|answer| answer.is_of("llama.cpp") || is_loading(answer.status, answer.body));
    let has_slots = |props: Value| props.get("total_slots").is_some_and(Value::is_u64);
    says_so
        || answers
            .props
            .and_then(|answer| answer.json())
            .is_some_and(has_slots)
}

fn is_vllm(answers: &ProbeAnswers<'_>) -> bool {
    // Others have a version too, and a proxy may pass on the metrics of the engines behind it.
    let version = answers.version.and_then(|answer| answer.json());
    let has_version = version.is_some_and(|body| body.get("version").is_some_and(Value::is_string));
    let page = answers.metrics.filter(|answer| answer.status == 200);
    has_version && page.is_some_and(|page| samples(page.body).any(|sample| sample.name.starts_with("vllm:")))
}

/// Others have metadata in the same form, under their own names.
fn is_triton(answers: &ProbeAnswers<'_>) -> bool {
    let metadata = answers.metadata.and_then(|answer| answer.json());
    metadata.is_some_and(|metadata| metadata.get("name").and_then(Value::as_str) == Some(triton::NAME))
}

/// llama.cpp has the same list, and was found out by then.
fn is_ollama(answers: &ProbeAnswers<'_>) -> bool {
    let tags = answers.tags.and_then(|answer| answer.json());
    let models = tags.as_ref().and_then(|tags| tags.get("models")?.as_array());
    models.is_some_and(|models| {
        !models.is_empty()
            && models
                .iter()
                .all(|model| model.get("name").is_some_and(Value::is_string))
    })
}

fn listed(models: &Value) -> impl Iterator<Item = &Value> {
    models.get("data").and_then(Value::as_array).into_iter().flatten()
}

fn has_owner(models: &Value, owner: &str) -> bool {
    listed(models).any(|model| model.get("owned_by").and_then(Value::as_str) == Some(owner))
}

fn lists_a_model(models: &Value) -> bool {
    listed(models).any(|model| model.get("id").is_some_and(Value::is_string))
}
