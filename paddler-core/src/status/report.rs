//! What does an upstream say of itself?

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::upstream::{Abilities, Extensions, Models};

/// Whether an upstream can take requests, by its own word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It answers requests.
    Ready,
    /// It is up, and its model is not loaded yet: a request now gets 503.
    Loading,
    /// It is up and says that it cannot serve.
    Failing,
}

/// The signals of a [`Report`], named, so that a missing one can be said.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Signal {
    /// [`Report::health`]
    Health,
    /// [`Report::running`]
    Running,
    /// [`Report::waiting`]
    Waiting,
    /// [`Report::slots_total`] and [`Report::slots_busy`]
    Slots,
    /// [`Report::kv_cache_usage`]
    KvCache,
    /// [`Report::adapters`] and [`Report::loaded_adapters`]
    Adapters,
    /// [`Report::models`]
    Models,
}

impl Signal {
    /// The name as it stands in metrics, records and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Slots => "slots",
            Self::KvCache => "kv_cache",
            Self::Adapters => "adapters",
            Self::Models => "models",
        }
    }
}

/// A signal that the engine should give and did not: it is unknown now, which is neither idle nor full.
#[derive(Clone, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
pub struct Degraded {
    /// What is not known.
    pub signal: Signal,
    /// Where it was looked for: a metric name or a path, such as `vllm:num_requests_waiting` or `/slots`.
    pub expected: String,
    /// What was found instead, in a few words, such as `missing` or `501: not supported`.
    pub found: String,
}

/// Which adapters (LoRA) have requests at an upstream.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Adapters {
    /// How many distinct adapters it can run at once. Unknown: `None`.
    pub max: Option<u32>,
    /// Adapters with requests running. No order, no duplicates.
    pub running: Vec<Arc<str>>,
    /// Adapters with requests waiting. No order, no duplicates; may repeat running ones.
    pub waiting: Vec<Arc<str>>,
}

/// Room and load for one model, or for several that the same engines have, at an upstream that is several: a router whose engines
/// have different models.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ModelRoom {
    /// The names that it is asked for by.
    pub models: Vec<Arc<str>>,
    /// The most weight that may be open for them.
    pub limit: u32,
    /// What is open for them, whoever sent it.
    pub load: u32,
}

/// What an upstream says of itself at one moment. Each signal is optional: `None` is unknown, never zero.
///
/// A report is whole: what it does not say is not known any more.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// Whether it can take requests.
    pub health: Option<Health>,
    /// Requests that the engine works on right now.
    pub running: Option<u32>,
    /// Requests that the engine has accepted and not started: its queue depth.
    pub waiting: Option<u32>,
    /// Slots, each for one request at a time (llama.cpp).
    pub slots_total: Option<u32>,
    /// Slots that work on a request.
    pub slots_busy: Option<u32>,
    /// Sequences that it runs at once, where it is not told in slots.
    pub max_sequences: Option<u32>,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_cache_usage: Option<f64>,
    /// Adapters with requests there.
    pub adapters: Option<Adapters>,
    /// Adapters that the server was started with and that requests choose by number, not by model name (llama.cpp), in
    /// the order of these numbers. No built-in filter reads it: it is for those of an embedder, and for people.
    pub loaded_adapters: Option<Vec<Arc<str>>>,
    /// The models that it serves.
    pub models: Option<Models>,
    /// Its room by model, where what is free for one is not free for another. A model that is in none has no limit of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rooms: Vec<ModelRoom>,
    /// What it can do.
    #[serde(default, skip_serializing_if = "Abilities::is_unknown")]
    pub abilities: Abilities,
    /// Signals that should have been there and were not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<Degraded>,
    /// What an embedder's source knows beyond that.
    #[serde(skip)]
    pub extensions: Extensions,
}

impl Report {
    /// A report that says nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that a signal was looked for at `expected`, and what was `found` instead.
    pub fn degrade(&mut self, signal: Signal, expected: impl Into<String>, found: impl Into<String>) {
        self.degraded.push(Degraded {
            signal,
            expected: expected.into(),
            found: found.into(),
        });
    }
}
