//! How many decisions are kept, to be looked at?

use super::fill::count;
use crate::config::fault::Faults;
use crate::config::read::Fields;

/// Which decisions are kept to be looked at: see `GET /api/v1/decisions` of the management API.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub struct DecisionRules {
    /// How many are kept, the last ones, 0 to 100,000. Default 1000: about 10 MB in a pool of hundreds of upstreams, where each
    /// node names up to twenty who went out. 0: none, and then nothing is recorded.
    pub keep: usize,
    /// How many are recorded a second at most, 0 to 100,000. Default 100: each costs microseconds, in a large pool tens of them,
    /// and so less than a hundredth of a core. A router that routes more records the first of each second.
    pub per_second: u32,
}

impl Default for DecisionRules {
    fn default() -> Self {
        Self {
            keep: 1000,
            per_second: 100,
        }
    }
}

pub(super) fn decisions(fields: &mut Fields<'_>, decisions: &mut DecisionRules, faults: &mut Faults) {
    count(fields, "keep", (0, 100_000), &mut decisions.keep, faults);
    if let Some(at) = fields.take("per_second", faults) {
        decisions.per_second = at.whole(faults, 0..=100_000).unwrap_or(decisions.per_second);
    }
}
