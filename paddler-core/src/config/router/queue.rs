//! How many requests may wait, and for how long?

use std::time::Duration;

use super::fill::{HOUR, count, duration, section};
use crate::config::fault::Faults;
use crate::config::read::{At, Fields};
use crate::queue::MinShares;

/// Requests that must wait until an upstream has room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Queue {
    /// How many wait at most, 0 to 1,000,000; one more is refused. Default 30: who comes after that would hardly be
    /// served within `max_wait`, and had better ask elsewhere at once.
    pub max_requests: usize,
    /// How long one waits at most, up to 1 h, from its arrival and over all its waits. Default 10 s: people give up at about
    /// that time. A client can ask for less.
    pub max_wait: Duration,
    /// How long one waits at most while nobody is able to serve it (all upstreams are starting or away, or there are none
    /// yet), up to 1 h; less than `max_wait` counts as that. Default 60 s: an engine reads a model of 8 GB from a disk of
    /// 200 MB/s in 40 s, and proxies in front commonly give up after 60 s. Once somebody is able, `max_wait` counts from
    /// then.
    pub max_wait_starting: Duration,
    /// The least part of all places handed out that each class is sure of while somebody of it waits, 1% to 45%. `standard`
    /// (priority 0): default 25%, so that a flood of high priority slows people down to a quarter and no further.
    /// `sheddable` (below 0): default 5%, enough to get on at all and little enough not to be felt. High priority is sure
    /// of the rest. As large a part of the queue itself is each class's own, and at least one place of three or more.
    pub min_shares: MinShares,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            max_requests: 30,
            max_wait: Duration::from_secs(10),
            max_wait_starting: Duration::from_secs(60),
            min_shares: MinShares::new(25, 5),
        }
    }
}

pub(super) fn queue(fields: &mut Fields<'_>, queue: &mut Queue, faults: &mut Faults) {
    count(
        fields,
        "max_requests",
        (0, 1_000_000),
        &mut queue.max_requests,
        faults,
    );
    duration(
        fields,
        "max_wait",
        (Duration::ZERO, HOUR),
        &mut queue.max_wait,
        faults,
    );
    duration(
        fields,
        "max_wait_starting",
        (Duration::ZERO, HOUR),
        &mut queue.max_wait_starting,
        faults,
    );
    section(fields, "min_shares", faults, |fields, faults| {
        let mut share = |name, now: u32| {
            let read = fields.take(name, faults).and_then(|at| {
                at.defaults_to(faults, || format!("{now}%").into());
                percent(&at, faults)
            });
            read.unwrap_or(u8::try_from(now).unwrap_or(MinShares::MOST))
        };
        let standard = share("standard", queue.min_shares.standard());
        let sheddable = share("sheddable", queue.min_shares.sheddable());
        queue.min_shares = MinShares::new(standard, sheddable);
    });
}

/// A share in whole percent.
fn percent(at: &At<'_>, faults: &mut Faults) -> Option<u8> {
    let share = at.share(faults, 0.01..=f64::from(MinShares::MOST) / 100.0)?;
    let percent = (share * 100.0).round();
    if (share * 100.0 - percent).abs() > 1e-6 {
        let problem = format!("{} is not a whole number of percent", at.value.what());
        at.fault_mend(faults, problem, "write one, such as 25%");
        return None;
    }
    // Of the range, so it fits.
    Some(percent as u8)
}
