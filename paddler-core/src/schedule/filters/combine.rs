//! How do filters combine?

use std::fmt;
use std::sync::Arc;

use crate::schedule::{CandidateSet, Class, Filter, FilterError, Lack, PickCx, Reads, Reason};

/// Keeps those that pass every filter. See [`all_of`].
#[derive(Clone)]
pub struct AllOf(Vec<Arc<dyn Filter>>);

/// Keeps those that pass at least one filter. See [`any_of`].
#[derive(Clone)]
pub struct AnyOf(Vec<Arc<dyn Filter>>);

/// Keeps those that do not pass. See [`not`].
#[derive(Clone)]
pub struct Not(Arc<dyn Filter>);

/// Keeps those that pass every filter, one after the other: a relative filter sees those that the ones before it left.
/// Of none: everybody. What is lacking when nobody passes is what the first filter would lack.
pub fn all_of(filters: impl IntoIterator<Item = Arc<dyn Filter>>) -> AllOf {
    AllOf(filters.into_iter().collect())
}

/// Keeps those that pass at least one filter, each judging the whole set. Of none: nobody. What is lacking when nobody
/// passes is what the first filter would lack.
pub fn any_of(filters: impl IntoIterator<Item = Arc<dyn Filter>>) -> AnyOf {
    AnyOf(filters.into_iter().collect())
}

/// Keeps those that do not pass.
pub fn not(filter: impl Filter) -> Not {
    Not(filter.into_shared())
}

fn reads(filters: &[Arc<dyn Filter>]) -> Reads {
    filters
        .iter()
        .map(|filter| filter.reads())
        .fold(Reads::NONE, |all, one| all | one)
}

fn first_lack(filters: &[Arc<dyn Filter>], cx: &PickCx<'_>) -> Lack {
    filters.first().map_or_else(
        || Lack::new(Class::Later, Reason::Filtered),
        |filter| filter.lack(cx),
    )
}

impl fmt::Debug for AllOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "all {:?}", self.0)
    }
}

impl Filter for AllOf {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        self.0.iter().try_for_each(|filter| filter.narrow(cx, set))
    }

    fn lack(&self, cx: &PickCx<'_>) -> Lack {
        first_lack(&self.0, cx)
    }

    fn reads(&self) -> Reads {
        reads(&self.0)
    }
}

impl fmt::Debug for AnyOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "any {:?}", self.0)
    }
}

impl Filter for AnyOf {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        set.keep_any(self.0.len(), false, |part, copy| self.0[part].narrow(cx, copy))
    }

    fn lack(&self, cx: &PickCx<'_>) -> Lack {
        first_lack(&self.0, cx)
    }

    fn reads(&self) -> Reads {
        reads(&self.0)
    }
}

impl fmt::Debug for Not {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not {:?}", self.0)
    }
}

impl Filter for Not {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        set.keep_any(1, true, |_, copy| self.0.narrow(cx, copy))
    }

    fn reads(&self) -> Reads {
        self.0.reads()
    }
}
