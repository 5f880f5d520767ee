//! Who can do what is asked for at all?

use std::fmt;

use crate::request::{Facts, RequestClass, Task};
use crate::schedule::context::lanes;
use crate::schedule::lanes::mask;
use crate::schedule::{CandidateSet, Class, Filter, FilterError, Lack, PickCx, Reads, Reason};
use crate::status::{ModelRow, UNKNOWN};
use crate::upstream::{Capability, UpstreamIndex};

/// Keeps upstreams that can do what is asked for. See [`capable`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Capable;

/// Keeps upstreams that are not known to be unable to do what is asked for: the kind of work, images or sounds in the prompt,
/// and a prompt of this length. What is not known counts as possible.
///
/// How many tokens a prompt has is not known here either: what goes out has a context that is shorter than
/// [the least](crate::request::RequestFacts::least_tokens) that the prompt can come to.
///
/// When nobody passes: `never` if each upstream that serves the model is unable, else `later`, since another one may come back.
pub fn capable() -> Capable {
    Capable
}

impl fmt::Debug for Capable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("capable")
    }
}

/// What the request needs, beyond a context that is long enough.
fn needs(facts: &Facts<'_>) -> impl Iterator<Item = Capability> {
    let of_task = match facts.class {
        RequestClass::Generate(task) => match task {
            Task::Chat | Task::Completion | Task::Infill | Task::Responses | Task::Messages => {
                Some(Capability::Chat)
            }
            Task::Embedding | Task::Pooling => Some(Capability::Embeddings),
            Task::Rerank => Some(Capability::Rerank),
            Task::Audio => Some(Capability::Audio),
            Task::Image | Task::Other => None,
        },
        _ => None,
    };
    let images = facts.images.then_some(Capability::Vision);
    let sounds = facts.sounds.then_some(Capability::Audio);
    [of_task, images, sounds].into_iter().flatten()
}

impl Filter for Capable {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        let columns = &cx.snapshot.columns;
        for need in needs(cx.facts) {
            let lacks = &columns.lacks[need as usize];
            // Empty where nobody lacks it.
            if !lacks.is_empty() {
                set.retain_words(|word, bits| bits & !lacks[word]);
            }
        }
        let least = cx.facts.least_tokens;
        if least > columns.shortest_context {
            set.retain_words(|word, bits| {
                let context = lanes(&columns.context, word);
                mask(bits, |lane| context[lane] >= least)
            });
        }
        Ok(())
    }

    /// The longest context there.
    fn value(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Option<f64> {
        let context = cx.snapshot.columns.context.get(upstream.get());
        context
            .filter(|context| **context != UNKNOWN)
            .map(|context| f64::from(*context))
    }

    fn lack(&self, cx: &PickCx<'_>) -> Lack {
        let columns = &cx.snapshot.columns;
        let reached = cx.snapshot.reached(cx.facts);
        let serves = |word: usize| {
            let listed = cx
                .model()
                .map_or(0, |row| row.serves.get(word).copied().unwrap_or(0));
            let untold = if cx.model().is_some_and(ModelRow::is_listed) {
                0
            } else {
                !columns.told_models[word]
            };
            let any = cx.facts.model.is_none();
            reached.word(word) & (columns.any_model[word] | listed | untold | if any { u64::MAX } else { 0 })
        };
        let able = |word: usize| {
            let lacks =
                needs(cx.facts).map(|need| columns.lacks[need as usize].get(word).copied().unwrap_or(0));
            serves(word) & !lacks.fold(0, |all, lacks| all | lacks)
        };
        let fits = |word: usize| {
            let context = lanes(&columns.context, word);
            mask(able(word), |lane| context[lane] >= cx.facts.least_tokens)
        };
        let any = |of: &dyn Fn(usize) -> u64| (0..columns.live.len()).any(|word| of(word) != 0);
        if !any(&serves) || any(&fits) {
            // Somebody may be able, who is not among the candidates now.
            Lack::new(Class::Later, Reason::Unhealthy)
        } else if any(&able) {
            Lack::new(Class::Never, Reason::ContextLengthExceeded)
        } else {
            Lack::new(Class::Never, Reason::NotCapable)
        }
    }

    fn reads(&self) -> Reads {
        Reads::NONE
    }
}
