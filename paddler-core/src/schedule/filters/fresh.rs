//! Whose word is recent enough to go by?

use std::fmt;
use std::time::Duration;

use crate::schedule::context::lanes;
use crate::schedule::lanes::mask;
use crate::schedule::{CandidateSet, Class, Filter, FilterError, Lack, PickCx, Reads, Reason};
use crate::upstream::UpstreamIndex;

/// Keeps upstreams that have said how they are at most so long ago. See [`fresh`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fresh {
    max_age: Duration,
}

/// Keeps upstreams whose last report is at most `max_age` old. Who never spoke is not fresh.
pub fn fresh(max_age: Duration) -> Fresh {
    Fresh { max_age }
}

/// Keeps upstreams that have ever said how they are. See [`heard`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Heard;

/// Keeps upstreams that have ever said how they are, however long ago.
pub fn heard() -> Heard {
    Heard
}

impl fmt::Debug for Fresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fresh {:?}", self.max_age)
    }
}

impl Filter for Fresh {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        let columns = &cx.snapshot.columns;
        let max_age = u64::try_from(self.max_age.as_nanos()).unwrap_or(u64::MAX);
        let oldest = cx.now.as_nanos().saturating_sub(max_age);
        set.retain_words(|word, bits| {
            let heard = bits & columns.heard[word];
            if columns.earliest_report[word] >= oldest {
                return heard;
            }
            let reported_at = lanes(&columns.reported_at, word);
            mask(heard, |lane| reported_at[lane] >= oldest)
        });
        Ok(())
    }

    /// Its age in seconds.
    fn value(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Option<f64> {
        cx.age(upstream).map(|age| age.as_secs_f64())
    }

    fn lack(&self, _cx: &PickCx<'_>) -> Lack {
        Lack::new(Class::Later, Reason::Stale)
    }

    fn reads(&self) -> Reads {
        Reads::NONE
    }
}

impl fmt::Debug for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("heard")
    }
}

impl Filter for Heard {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        set.intersect(&cx.snapshot.columns.heard);
        Ok(())
    }

    fn lack(&self, _cx: &PickCx<'_>) -> Lack {
        Lack::new(Class::Later, Reason::NeverHeard)
    }

    fn reads(&self) -> Reads {
        Reads::NONE
    }
}
