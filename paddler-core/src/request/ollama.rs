//! What does a path mean in Ollama's own API?

use super::Task;
use super::route::Entry;

pub(super) const TABLE: &[Entry] = &[
    Entry::generate("/api/chat", Task::Chat),
    Entry::generate("/api/generate", Task::Completion),
    Entry::generate("/api/embed", Task::Embedding),
    Entry::generate("/api/embeddings", Task::Embedding),
    Entry::control("/api/show"),
    Entry::admin("/api/pull"),
    Entry::admin("/api/push"),
    Entry::admin("/api/create"),
    Entry::admin("/api/copy"),
    Entry::admin("/api/delete"),
    Entry::admin("/api/blobs/*"),
];
