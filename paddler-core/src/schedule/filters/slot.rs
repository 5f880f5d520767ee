//! Who has a free slot?

use std::fmt;

use crate::schedule::{CandidateSet, Class, Filter, FilterError, Lack, PickCx, Reads, Reason};
use crate::upstream::UpstreamIndex;

/// Keeps upstreams where the request fits under the limit. See [`slot`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HasSlot;

/// Keeps upstreams where the weight of this request fits: what we have open there plus what others had at the last
/// report stays within its [limit](crate::status::Entry::limit): its slots, or what its spec sets. What waits in the engine's own queue counts as
/// well as what runs. An upstream of which no limit is known passes. A request heavier than the whole
/// limit fits where nothing else is open.
pub fn slot() -> HasSlot {
    HasSlot
}

impl fmt::Debug for HasSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("slot")
    }
}

impl Filter for HasSlot {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        set.exclude(&cx.frozen.full);
        Ok(())
    }

    /// The load there.
    fn value(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Option<f64> {
        Some(f64::from(cx.load(upstream)))
    }

    fn lack(&self, _cx: &PickCx<'_>) -> Lack {
        Lack::new(Class::Later, Reason::SlotsBusy)
    }

    fn reads(&self) -> Reads {
        Reads::LOAD
    }
}
