//! What does a path mean to llama.cpp's `llama-server`, beyond OpenAI's API?

use super::Task;
use super::route::Entry;

pub(super) const TABLE: &[Entry] = &[
    Entry::generate("/completion", Task::Completion),
    Entry::generate("/completions", Task::Completion),
    Entry::generate("/chat/completions", Task::Chat),
    Entry::generate("/infill", Task::Infill),
    Entry::generate("/embedding", Task::Embedding),
    Entry::generate("/embeddings", Task::Embedding),
    Entry::generate("/rerank", Task::Rerank),
    Entry::generate("/reranking", Task::Rerank),
    Entry::generate("/v1/rerank", Task::Rerank),
    Entry::generate("/v1/reranking", Task::Rerank),
    Entry::generate("/responses", Task::Responses),
    Entry::generate("/audio/transcriptions", Task::Audio)
        .form()
        .once(),
    Entry::control("/tokenize"),
    Entry::control("/detokenize"),
    Entry::control("/apply-template"),
    Entry::control("/chat/completions/input_tokens"),
    Entry::control("/v1/chat/completions/input_tokens"),
    Entry::control("/responses/input_tokens"),
    // Steers an answer that is being written.
    Entry::control("/v1/chat/completions/control").once(),
    Entry::local("/models"),
    Entry::local("/v1/health"),
    Entry::admin("/models"),
    Entry::admin("/models/*"),
    Entry::admin("/slots"),
    Entry::admin("/slots/*"),
    Entry::admin("/props"),
    Entry::admin("/metrics"),
    Entry::admin("/metrics/*"),
    Entry::admin("/lora-adapters"),
    Entry::admin("/cvectors"),
    Entry::admin("/cvectors/*"),
    // Fetches what it is told to, from inside of the network.
    Entry::admin("/cors-proxy"),
    Entry::admin("/tools"),
    Entry::admin("/tools/*"),
];
