//! What does a path mean in Anthropic's API?

use super::Task;
use super::route::Entry;

pub(super) const TABLE: &[Entry] = &[
    Entry::generate("/v1/messages", Task::Messages),
    Entry::control("/v1/messages/count_tokens"),
    // Batches are kept, and answered later.
    Entry::control("/v1/messages/*").once(),
    Entry::generate("/v1/complete", Task::Completion),
];
