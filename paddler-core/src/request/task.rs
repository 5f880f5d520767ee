//! What does an engine do for a request?

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::config::{UnknownWord, named};

/// What an engine does for a request that generates.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Task {
    /// The next message of a conversation (OpenAI chat).
    Chat,
    /// Text that follows a prompt.
    Completion,
    /// Text between a prefix and a suffix (llama.cpp).
    Infill,
    /// One vector for each input.
    Embedding,
    /// Another judgement of each input: pooling, classification, moderation.
    Pooling,
    /// A score for each document.
    Rerank,
    /// OpenAI's Responses API.
    Responses,
    /// Anthropic's Messages API.
    Messages,
    /// Speech to text or text to speech.
    Audio,
    /// Pictures from text.
    Image,
    /// Some other POST that names a model.
    Other,
}

impl FromStr for Task {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        named(word, "a task", Self::ALL, Self::as_str)
    }
}

impl Task {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Chat,
        Self::Completion,
        Self::Infill,
        Self::Embedding,
        Self::Pooling,
        Self::Rerank,
        Self::Responses,
        Self::Messages,
        Self::Audio,
        Self::Image,
        Self::Other,
    ];

    /// The name as it stands in metrics, records and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completion => "completion",
            Self::Infill => "infill",
            Self::Embedding => "embedding",
            Self::Pooling => "pooling",
            Self::Rerank => "rerank",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Audio => "audio",
            Self::Image => "image",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tasks_are_listed_and_named_as_serde_names_them() {
        assert_eq!(Task::ALL.len(), Task::Other as usize + 1, "`Other` is the last");
        for (place, task) in Task::ALL.iter().enumerate() {
            assert_eq!(*task as usize, place);
            assert_eq!(serde_json::to_value(task).unwrap(), task.as_str());
        }
    }
}
