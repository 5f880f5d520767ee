//! What does a place cost the tenant who gets it?
//!
//! Tokens: those of the prompt, and twice those of the answer, since an answer is made token by token while a prompt is
//! read many at a time. (The weights are those of Sheng et al., *Fairness in Serving Large Language Models*, OSDI 2024.)
//! How long the answer will be is not known when the place is handed out, so it is charged as the mean of those before,
//! and set right when it has ended.

use std::sync::Arc;

use super::Priority;
use crate::request::{RequestClass, RequestFacts, Task};

/// What a token of an answer costs, in tokens of a prompt.
const OUTPUT: u64 = 2;

/// The most tokens that one answer counts, and one prompt: what an engine says may be wrong.
const MOST: u64 = 1 << 24;

/// The longest that an answer counts in the mean, which everybody is charged by: as long as those of today's models get.
const LONGEST: f64 = 131_072.0;

/// How long an answer counts before any was seen: about the mean of chats in public traces.
const FIRST_OUTPUT: f64 = 200.0;

/// What a new answer counts in the mean: about the last hundred make it up.
const NEWS: f64 = 0.02;

/// What a tenant was charged for a place. Give it back to [`settle`](super::WaitQueue::settle) when it is known what was
/// used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    pub(super) priority: Priority,
    pub(super) tenant: Option<Arc<str>>,
    pub(super) tenant_weight: u32,
    pub(super) sequences: u32,
    pub(super) prompt: u32,
    pub(super) tokens: u64,
}

impl Charge {
    /// What was charged, in tokens of a prompt.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// What it should have been.
    pub(super) fn due(&self, used: Used) -> u64 {
        match used {
            Used::Nothing => 0,
            Used::Tokens { prompt, output } => {
                let prompt = prompt.unwrap_or(u64::from(self.prompt));
                cost(prompt.min(MOST), output.min(MOST))
            }
        }
    }
}

/// What a request has used in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Used {
    /// Nothing: no engine has worked on it.
    Nothing,
    /// So many tokens.
    Tokens {
        /// Of its prompt; `None`: as estimated.
        prompt: Option<u64>,
        /// Of its answers together.
        output: u64,
    },
}

/// The most tokens that an answer is believed to have used: more than any engine's context. An absurd number would leave
/// its tenant behind for ever.
const MOST_USED: u64 = 1 << 24;

impl Used {
    /// What can be believed of it.
    pub(super) fn clamped(self) -> Self {
        match self {
            Self::Nothing => self,
            Self::Tokens { prompt, output } => Self::Tokens {
                prompt: prompt.map(|prompt| prompt.min(MOST_USED)),
                output: output.min(MOST_USED),
            },
        }
    }
}

/// A place always costs something, or who asks for nothing could ask without end.
fn cost(prompt: u64, output: u64) -> u64 {
    prompt.saturating_add(output.saturating_mul(OUTPUT)).max(1)
}

/// The mean length of answers, in tokens.
#[derive(Debug)]
pub(super) struct Outputs(f64);

impl Default for Outputs {
    fn default() -> Self {
        Self(FIRST_OUTPUT)
    }
}

impl Outputs {
    pub(super) fn charge(&self, facts: &RequestFacts) -> Charge {
        let output = match facts.class {
            RequestClass::Generate(Task::Embedding | Task::Pooling | Task::Rerank) => 0,
            _ => (self.0 as u64).saturating_mul(u64::from(facts.weight)),
        };
        Charge {
            priority: Priority::of(facts.priority),
            tenant: facts.tenant.clone(),
            tenant_weight: facts.tenant_weight,
            sequences: facts.weight,
            prompt: facts.tokens,
            tokens: cost(facts.tokens.into(), output),
        }
    }

    /// An answer has ended, of this many tokens for so many sequences.
    pub(super) fn saw(&mut self, output: u64, sequences: u32) {
        if output > 0 {
            let each = output as f64 / f64::from(sequences.max(1));
            self.0 += (each.min(LONGEST) - self.0) * NEWS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_and_answer_are_charged_and_what_makes_no_answer_is_charged_for_none() {
        let mut outputs = Outputs::default();
        let mut facts = RequestFacts::new();
        (facts.tokens, facts.weight) = (1_000, 3);
        assert_eq!(outputs.charge(&facts).tokens(), 1_000 + 2 * 3 * 200);
        facts.class = RequestClass::Generate(Task::Embedding);
        assert_eq!(outputs.charge(&facts).tokens(), 1_000);
        facts.tokens = 0;
        assert_eq!(outputs.charge(&facts).tokens(), 1, "never nothing");
        for _ in 0..1_000 {
            outputs.saw(90, 3);
        }
        facts.class = RequestClass::Generate(Task::Chat);
        assert!(
            outputs.charge(&facts).tokens().abs_diff(2 * 3 * 30) <= 6,
            "it follows what is seen"
        );
    }

    #[test]
    fn one_absurd_answer_does_not_change_what_all_are_charged() {
        let mut outputs = Outputs::default();
        outputs.saw(u64::MAX, 1);
        let mut facts = RequestFacts::new();
        facts.class = RequestClass::Generate(Task::Chat);
        assert!(outputs.charge(&facts).tokens() < 2 * 3_000);
    }

    #[test]
    fn what_was_used_counts_and_the_estimate_where_it_is_not_known() {
        let mut facts = RequestFacts::new();
        facts.tokens = 50;
        let charge = Outputs::default().charge(&facts);
        let used = |prompt, output| charge.due(Used::Tokens { prompt, output });
        assert_eq!(used(Some(40), 7), 54);
        assert_eq!(used(None, 7), 64);
        assert_eq!(
            used(Some(u64::MAX), u64::MAX),
            3 << 24,
            "an absurd number is not believed"
        );
        assert_eq!(charge.due(Used::Nothing), 0);
    }
}
