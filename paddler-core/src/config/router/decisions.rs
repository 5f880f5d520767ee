//! How many decisions are kept, to be looked at and made again?

use std::path::PathBuf;

use super::fill::{KIB, TIB, bytes, count, file};
use crate::config::fault::Faults;
use crate::config::read::Fields;

/// Which decisions are kept to be looked at: see `GET /api/v1/decisions` of the management API.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub struct DecisionRules {
    /// How many are kept, the last ones, 0 to 100,000. Default 1000: about 10 MB in a pool of hundreds of upstreams, where each
    /// node names up to twenty who went out. 0: none, and without a `log` nothing is recorded then.
    pub keep: usize,
    /// How many are recorded a second at most, 0 to 100,000. Default 100: each costs about 20 µs, with 500 upstreams about
    /// 90 µs, and so less than a hundredth of a core. Any other request costs about 3 µs more than with `keep: 0`. A router that routes more records the first of each second.
    pub per_second: u32,
    /// A file at whose end the same ones are written, with the statuses that they were made by, for `paddler replay`. Default
    /// `None`: none. As it is written: `paddler` looks for a relative path beside the config file.
    pub log: Option<PathBuf>,
    /// At this length of the file, in bytes, no more is written, 1 KiB to 1 TiB. Default 1 GiB: a million decisions in a pool of a
    /// dozen upstreams, a hundred thousand in one of 500, since each has our own counters of every upstream.
    pub log_size: u64,
}

impl Default for DecisionRules {
    fn default() -> Self {
        Self {
            keep: 1000,
            per_second: 100,
            log: None,
            log_size: 1 << 30,
        }
    }
}

pub(super) fn decisions(fields: &mut Fields<'_>, decisions: &mut DecisionRules, faults: &mut Faults) {
    count(fields, "keep", (0, 100_000), &mut decisions.keep, faults);
    if let Some(at) = fields.take("per_second", faults) {
        decisions.per_second = at.whole(faults, 0..=100_000).unwrap_or(decisions.per_second);
    }
    if let Some(log) = file(fields, "log", faults) {
        decisions.log = Some(log);
    }
    bytes(fields, "log_size", (KIB, TIB), &mut decisions.log_size, faults);
}
