//! What does a path mean in OpenAI's API?
//!
//! Most engines speak it. What they add under the same prefix stands in the tables of their own.

use super::Task;
use super::route::Entry;

pub(super) const TABLE: &[Entry] = &[
    Entry::generate("/v1/chat/completions", Task::Chat),
    Entry::generate("/v1/completions", Task::Completion),
    Entry::generate("/v1/embeddings", Task::Embedding),
    Entry::generate("/v1/responses", Task::Responses),
    Entry::generate("/v1/moderations", Task::Pooling),
    Entry::generate("/v1/images/generations", Task::Image).once(),
    Entry::generate("/v1/images/edits", Task::Image).form().once(),
    Entry::generate("/v1/images/variations", Task::Image)
        .form()
        .once(),
    Entry::generate("/v1/audio/speech", Task::Audio).once(),
    Entry::generate("/v1/audio/transcriptions", Task::Audio)
        .form()
        .once(),
    Entry::generate("/v1/audio/translations", Task::Audio)
        .form()
        .once(),
    // Counting, and what is asked about an answer that exists.
    Entry::control("/v1/responses/input_tokens"),
    Entry::generate("/v1/responses/compact", Task::Responses),
    Entry::control("/v1/responses/*").once(),
    Entry::local("/v1/models"),
    Entry::get("/v1/models/*"),
    // Everything else on models changes them.
    Entry::admin("/v1/models"),
    Entry::admin("/v1/models/*"),
    Entry::local("/health"),
];
