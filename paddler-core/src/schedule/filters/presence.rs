//! Who is there, and able to serve?

use std::fmt;

use crate::schedule::{CandidateSet, Class, Filter, FilterError, Lack, PickCx, Reads, Reason};

/// Keeps everybody. See [`present`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Present;

/// Keeps everybody, so that a `require` of it ends the walk only where there is nobody at all.
pub fn present() -> Present {
    Present
}

/// Keeps upstreams that are able to serve. See [`healthy`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Healthy;

/// Keeps upstreams that are not known to be unable: those that say they are loading or failing go out, and those that
/// refused several connections in a row. Who has not spoken yet stays.
pub fn healthy() -> Healthy {
    Healthy
}

impl fmt::Debug for Present {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("present")
    }
}

impl Filter for Present {
    fn narrow(&self, _cx: &PickCx<'_>, _set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        Ok(())
    }

    fn lack(&self, _cx: &PickCx<'_>) -> Lack {
        Lack::new(Class::Later, Reason::NoUpstream)
    }

    fn reads(&self) -> Reads {
        Reads::NONE
    }
}

impl fmt::Debug for Healthy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("healthy")
    }
}

impl Filter for Healthy {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        set.intersect(&cx.snapshot.columns.able);
        Ok(())
    }

    fn lack(&self, cx: &PickCx<'_>) -> Lack {
        let nobody = cx.snapshot.is_empty();
        Lack::new(
            Class::Later,
            if nobody {
                Reason::NoUpstream
            } else {
                Reason::Unhealthy
            },
        )
    }

    fn reads(&self) -> Reads {
        Reads::NONE
    }
}
