//! Who carries a label?

use crate::schedule::{CandidateSet, Class, Filter, FilterError, Lack, PickCx, Reads, Reason};

/// Keeps upstreams that carry a label. See [`label`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    name: String,
    values: Vec<String>,
}

/// Keeps upstreams whose label `name` has one of these values. Of no values: any value will do.
pub fn label<V: Into<String>>(name: impl Into<String>, values: impl IntoIterator<Item = V>) -> Label {
    Label {
        name: name.into(),
        values: values.into_iter().map(Into::into).collect(),
    }
}

impl Filter for Label {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        set.retain(|upstream| {
            let value = cx.spec(upstream).labels.get(&self.name);
            value.is_some_and(|value| self.values.is_empty() || self.values.contains(value))
        });
        Ok(())
    }

    fn lack(&self, _cx: &PickCx<'_>) -> Lack {
        Lack::new(Class::Never, Reason::NotLabelled)
    }

    fn reads(&self) -> Reads {
        Reads::NONE
    }
}
