//! Who carries a label?

use std::fmt;

use crate::schedule::{CandidateSet, Class, Filter, FilterError, Lack, PickCx, Reads, Reason};
use crate::upstream::UpstreamSpec;

/// Keeps upstreams that carry a label. See [`label`].
#[derive(Clone, PartialEq, Eq)]
pub struct Label {
    name: String,
    values: Vec<String>,
}

/// Keeps upstreams whose label `name` has one of these values. Of no values: any value will do.
///
/// When nobody passes: `never` if no upstream carries it, else `later`.
pub fn label<V: Into<String>>(name: impl Into<String>, values: impl IntoIterator<Item = V>) -> Label {
    Label {
        name: name.into(),
        values: values.into_iter().map(Into::into).collect(),
    }
}

impl Label {
    fn is_on(&self, spec: &UpstreamSpec) -> bool {
        let value = spec.labels.get(&self.name);
        value.is_some_and(|value| self.values.is_empty() || self.values.contains(value))
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "label {}", self.name)?;
        if self.values.is_empty() {
            return Ok(());
        }
        write!(f, " in [{}]", self.values.join(", "))
    }
}

impl Filter for Label {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        set.retain(|upstream| self.is_on(cx.spec(upstream)));
        Ok(())
    }

    fn lack(&self, cx: &PickCx<'_>) -> Lack {
        // One who carries it, and is not among the candidates now, may come back.
        let reached = cx.snapshot.reached(cx.facts);
        let mut all = cx.snapshot.iter();
        let somebody = all.any(|(at, entry)| reached.has(at) && self.is_on(entry.spec()));
        let class = if somebody { Class::Later } else { Class::Never };
        Lack::new(class, Reason::NotLabelled)
    }

    fn reads(&self) -> Reads {
        Reads::NONE
    }
}
