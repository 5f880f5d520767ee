//! When is an upstream that fails left out, and a request sent again?

use std::time::Duration;

use super::fill::{DAY, HOUR, MOMENT, count, duration};
use crate::config::fault::Faults;
use crate::config::read::Fields;
use crate::config::units::show_duration;

/// When an upstream that fails is left out, and for how long: see [`crate::health`].
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct HealthRules {
    /// Faults in a row after which an upstream is left out, 1 to 100. A connection that cannot be made is enough by
    /// itself. Default 3: Envoy waits for 5, but each costs somebody a prompt here.
    pub eject_after: u32,
    /// How long it is left out the first time, 250 ms to 24 h; then twice as long each time, until it stays in service: a
    /// minute of that takes one doubling back. Default 5 s: an engine that restarts takes longer, one that hiccups less.
    pub eject_time: Duration,
    /// How long one that cannot be reached is left out the first time, 250 ms to 24 h. Default 1 s: it is let back in as
    /// soon as it answers a poll, and to try it costs a request nothing but the time.
    pub unreachable_time: Duration,
    /// The longest that it is left out, 250 ms to 24 h. Default 5 min: so long a repaired one may stay idle.
    pub longest_time: Duration,
    /// The largest share of those who could serve the same model that is left out for what it answered, 0 to 1 or 0% to
    /// 100%; of two, one may be, unless it is 0. Default 0.5: when more than half fail it is hardly theirs alone, and the
    /// rest could not carry the load.
    pub largest_share: f64,
    /// Over which time success rates are compared, 1 s to 24 h. Default 1 min: in Envoy's 10 s few engines answer the
    /// hundred requests that it takes.
    pub interval: Duration,
    /// How long an upstream that has joined or come back takes to get its full part, up to 1 h; 0 s: it gets it at once.
    /// Default 30 s: caches and compiled graphs are cold, and a rule that looks for the least loaded would flood it.
    pub slow_start: Duration,
}

/// When a request is sent again.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Retry {
    /// How often a request is sent at most for one model, the first time included, 1 to 1000; for each that it
    /// [falls back](crate::request::Fallback) to as often again, and each sending that is no first one within `share` and `per_second`. Default 16: one that waits for its only
    /// upstream to load asks about once a second for as long as it may wait.
    pub attempts: u32,
    /// The share of requests that may be sent again though an upstream has seen them, 0 to 10, over the last ten seconds.
    /// Default 0.2, as in Finagle and Linkerd: in an outage, load grows by a fifth and not by the number of attempts.
    pub share: f64,
    /// And so many a second in any case, 0 to 1,000,000. Default 10, as there: with few requests a share is nothing.
    pub per_second: u32,
}

impl Default for HealthRules {
    fn default() -> Self {
        Self {
            eject_after: 3,
            eject_time: Duration::from_secs(5),
            unreachable_time: Duration::from_secs(1),
            longest_time: Duration::from_secs(300),
            largest_share: 0.5,
            interval: Duration::from_secs(60),
            slow_start: Duration::from_secs(30),
        }
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 16,
            share: 0.2,
            per_second: 10,
        }
    }
}

/// The shortest time out: who is out is looked at four times a second.
const SHORTEST: Duration = Duration::from_millis(250);

pub(super) fn health(fields: &mut Fields<'_>, health: &mut HealthRules, faults: &mut Faults) {
    whole(fields, "eject_after", (1, 100), &mut health.eject_after, faults);
    let said = fields.has("eject_time") || fields.has("longest_time");
    let before = faults.len();
    let times = [
        ("eject_time", &mut health.eject_time),
        ("unreachable_time", &mut health.unreachable_time),
        ("longest_time", &mut health.longest_time),
    ];
    for (name, into) in times {
        duration(fields, name, (SHORTEST, DAY), into, faults);
    }
    if said && faults.len() == before && health.eject_time > health.longest_time {
        let [first, longest] = [health.eject_time, health.longest_time].map(show_duration);
        let problem = format!("`eject_time` ({first}) is longer than `longest_time` ({longest})");
        fields.fault_mend(faults, problem, "lower the one or raise the other");
    }
    share(fields, "largest_share", 1.0, &mut health.largest_share, faults);
    let second = MOMENT * 100;
    duration(fields, "interval", (second, DAY), &mut health.interval, faults);
    duration(
        fields,
        "slow_start",
        (Duration::ZERO, HOUR),
        &mut health.slow_start,
        faults,
    );
}

pub(super) fn retry(fields: &mut Fields<'_>, retry: &mut Retry, faults: &mut Faults) {
    whole(fields, "attempts", (1, 1000), &mut retry.attempts, faults);
    share(fields, "share", 10.0, &mut retry.share, faults);
    whole(
        fields,
        "per_second",
        (0, 1_000_000),
        &mut retry.per_second,
        faults,
    );
}

/// A count that fits 32 bits.
fn whole(
    fields: &mut Fields<'_>,
    name: &'static str,
    range: (i64, i64),
    into: &mut u32,
    faults: &mut Faults,
) {
    let mut read = *into as usize;
    count(fields, name, range, &mut read, faults);
    *into = u32::try_from(read).unwrap_or(*into);
}

/// A share from 0 up, as a number or in percent.
fn share(fields: &mut Fields<'_>, name: &'static str, most: f64, into: &mut f64, faults: &mut Faults) {
    let read = fields.take(name, faults).and_then(|at| {
        at.defaults_to(faults, || (*into).into());
        at.share(faults, 0.0..=most)
    });
    *into = read.unwrap_or(*into);
}
