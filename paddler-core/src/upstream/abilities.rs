//! What can an upstream do at all, and how long may a prompt be?

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::config::{UnknownWord, named};

/// Something that not every upstream can do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Capability {
    /// Text from text: chats, completions, responses, messages.
    Chat,
    /// Vectors, classes and other judgements of an input.
    Embeddings,
    /// A score for each document.
    Rerank,
    /// Images in a prompt.
    Vision,
    /// Speech to text, text to speech, sounds in a prompt.
    Audio,
}

impl Capability {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Chat,
        Self::Embeddings,
        Self::Rerank,
        Self::Vision,
        Self::Audio,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Embeddings => "embeddings",
            Self::Rerank => "rerank",
            Self::Vision => "vision",
            Self::Audio => "audio",
        }
    }
}

impl FromStr for Capability {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        named(word, "a capability", Self::ALL, Self::as_str)
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known of what an upstream can do, over all of its models. What is not said is not known, which is neither yes nor no.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Abilities {
    /// Whether it can.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub can: BTreeMap<Capability, bool>,
    /// The most tokens of one prompt with its answer: the longest context that one of its models has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<u32>,
}

impl Abilities {
    /// It can do these, and nothing else.
    pub fn only(these: impl IntoIterator<Item = Capability>) -> Self {
        let mut can: BTreeMap<_, _> = Capability::ALL.iter().map(|one| (*one, false)).collect();
        can.extend(these.into_iter().map(|one| (one, true)));
        Self { can, context: None }
    }

    /// Sets the most tokens of one prompt with its answer.
    #[must_use]
    pub fn context(mut self, tokens: u32) -> Self {
        self.context = Some(tokens);
        self
    }

    pub(crate) fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}
