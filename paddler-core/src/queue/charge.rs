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

/// The most tokens that one request's answers count, and its prompt: more than any engine's context. What a client asks for
/// and what an engine says may be absurd, and would leave a tenant behind for ever.
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
    /// How many answers were asked for.
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
            Used::Tokens { prompt, output } => cost(prompt.unwrap_or(u64::from(self.prompt)), output),
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

impl Used {
    /// The prompt, as estimated, and no answer.
    #[cfg(feature = "proxy")]
    pub(crate) const PROMPT: Self = Self::Tokens {
        prompt: None,
        output: 0,
    };
}

/// A place always costs something, or who asks for nothing could ask without end.
fn cost(prompt: u64, output: u64) -> u64 {
    (prompt.min(MOST) + output.min(MOST) * OUTPUT).max(1)
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
    /// For a place that counts `weight`: all that the request asks for, or the limit of its upstream if that is less.
    pub(super) fn charge(&self, facts: &RequestFacts, weight: u32) -> Charge {
        let output = match facts.class {
            RequestClass::Generate(Task::Embedding | Task::Pooling | Task::Rerank) => 0,
            _ => (self.0 as u64).saturating_mul(u64::from(weight)),
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

    /// An answer has ended, of this many tokens for so many sequences. Engines may take no notice of how many were asked
    /// for, so what is known is that each was as long as its part at least, and as all together at most: the mean moves only
    /// where it is not in between.
    pub(super) fn saw(&mut self, output: u64, sequences: u32) {
        if output > 0 {
            let most = (output as f64).min(LONGEST);
            let least = (output as f64 / f64::from(sequences.max(1))).min(most);
            self.0 += (self.0.clamp(least, most) - self.0) * NEWS;
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
        assert_eq!(outputs.charge(&facts, 3).tokens(), 1_000 + 2 * 3 * 200);
        assert_eq!(
            outputs.charge(&facts, 2).tokens(),
            1_000 + 2 * 2 * 200,
            "what the place counts, not what was asked for"
        );
        facts.class = RequestClass::Generate(Task::Embedding);
        assert_eq!(outputs.charge(&facts, 3).tokens(), 1_000);
        facts.tokens = 0;
        assert_eq!(outputs.charge(&facts, 3).tokens(), 1, "never nothing");
        for _ in 0..1_000 {
            outputs.saw(30, 1);
        }
        facts.class = RequestClass::Generate(Task::Chat);
        assert!(
            outputs.charge(&facts, 3).tokens().abs_diff(2 * 3 * 30) <= 6,
            "it follows what is seen"
        );
    }

    #[test]
    fn answers_of_several_sequences_move_the_mean_only_as_far_as_they_surely_say() {
        let mean_after = |output, sequences| {
            let mut outputs = Outputs::default();
            (0..1_000).for_each(|_| outputs.saw(output, sequences));
            outputs.0.round()
        };
        assert_eq!(mean_after(200, 1_000_000), 200.0, "nobody made so many");
        assert_eq!(mean_after(800, 4), 200.0);
        assert_eq!(mean_after(4_000, 4), 1_000.0, "they were longer for sure");
        assert_eq!(mean_after(80, 4), 80.0, "they were shorter for sure");
    }

    #[test]
    fn an_absurd_number_of_answers_is_not_charged() {
        let charge = Outputs::default().charge(&RequestFacts::new(), u32::MAX);
        assert_eq!(charge.tokens(), 2 * MOST);
    }

    #[test]
    fn one_absurd_answer_does_not_change_what_all_are_charged() {
        let mut outputs = Outputs::default();
        outputs.saw(u64::MAX, 1);
        let mut facts = RequestFacts::new();
        facts.class = RequestClass::Generate(Task::Chat);
        assert!(outputs.charge(&facts, 1).tokens() < 2 * 3_000);
    }

    #[test]
    fn what_was_used_counts_and_the_estimate_where_it_is_not_known() {
        let mut facts = RequestFacts::new();
        facts.tokens = 50;
        let charge = Outputs::default().charge(&facts, 1);
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
