//! Who serves the model that is asked for?

use std::fmt;

use crate::schedule::{CandidateSet, Class, Filter, FilterError, Lack, PickCx, Reads, Reason};

/// Keeps upstreams that serve the model. See [`model`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ServesModel;

/// Keeps upstreams that list the model or adapter that is asked for, under its name or an alias, and those that answer
/// for any. A request without a model may go anywhere.
///
/// When nobody passes: `never` if every upstream has told its models and none has this one, else `later`, since the one
/// who has it may come back or speak up.
pub fn model() -> ServesModel {
    ServesModel
}

impl fmt::Debug for ServesModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("model")
    }
}

impl Filter for ServesModel {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        if cx.facts.model.is_none() {
            return Ok(());
        }
        let any = &cx.snapshot.columns.any_model;
        let serves = cx.model().map_or(&[][..], |row| &row.serves[..]);
        set.retain_words(|word, bits| {
            bits & (any.get(word).copied().unwrap_or(0) | serves.get(word).copied().unwrap_or(0))
        });
        Ok(())
    }

    fn lack(&self, cx: &PickCx<'_>) -> Lack {
        if cx.snapshot.is_empty() {
            Lack::new(Class::Later, Reason::NoUpstream)
        } else if cx.snapshot.is_served(cx.facts.model, cx.facts.reaches_all()) {
            // Somebody serves it, who is not among the candidates now.
            Lack::new(Class::Later, Reason::Unhealthy)
        } else if cx.snapshot.models_complete() {
            Lack::new(Class::Never, Reason::ModelNotFound)
        } else {
            Lack::new(Class::Later, Reason::ModelsUnknown)
        }
    }

    fn reads(&self) -> Reads {
        Reads::NONE
    }
}
