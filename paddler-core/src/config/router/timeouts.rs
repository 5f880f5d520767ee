//! How long may each step of forwarding take?

use std::time::Duration;

use super::fill::{DAY, MOMENT, duration};
use super::models::Rules;
use crate::config::fault::Faults;
use crate::config::read::Fields;
use crate::config::units;
use crate::config::value::{Kind, quoted};

/// How long each step of forwarding may take, 10 ms to 24 h each.
///
/// What is said of a model goes before what is said of an upstream, and that before what is said here. A client may shorten
/// `first_byte`, `idle` and `whole` for its own request, by header, and lengthen none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// To connect to an upstream. Default 2 s: one lost packet is sent again after 1 s.
    pub connect: Duration,
    /// From the last byte of a request to the first of its answer. Default 10 min: a long prompt takes minutes on a slow
    /// machine, and an engine that hangs must end some time.
    pub first_byte: Duration,
    /// Between two bytes of an answer. Default 60 s: tokens come many times a second.
    pub idle: Duration,
    /// From the head of a request to the last byte of its answer. Default `None` (`off`): a long answer is not a fault.
    pub whole: Option<Duration>,
    /// For the client to take bytes that wait for it. Default 60 s: who takes none for that long has left.
    pub client_idle: Duration,
    /// For either end of a WebSocket to say something. Default 5 min: most clients ask once a minute at least whether the
    /// other end is there.
    pub tunnel_idle: Duration,
}

/// How long requests for one model may take, where that is different.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ModelTimeouts {
    /// In place of [`Timeouts::first_byte`].
    pub first_byte: Option<Duration>,
    /// In place of [`Timeouts::idle`].
    pub idle: Option<Duration>,
    /// In place of [`Timeouts::whole`].
    pub whole: Option<Duration>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            first_byte: Duration::from_secs(600),
            idle: Duration::from_secs(60),
            whole: None,
            client_idle: Duration::from_secs(60),
            tunnel_idle: Duration::from_secs(300),
        }
    }
}

/// `rules`: what is different for a model goes there.
pub(super) fn timeouts<'v>(
    fields: &mut Fields<'v>,
    timeouts: &mut Timeouts,
    rules: &mut Rules<'v>,
    faults: &mut Faults,
) {
    duration(fields, "connect", (MOMENT, DAY), &mut timeouts.connect, faults);
    duration(
        fields,
        "first_byte",
        (MOMENT, DAY),
        &mut timeouts.first_byte,
        faults,
    );
    duration(fields, "idle", (MOMENT, DAY), &mut timeouts.idle, faults);
    duration(
        fields,
        "client_idle",
        (MOMENT, DAY),
        &mut timeouts.client_idle,
        faults,
    );
    duration(
        fields,
        "tunnel_idle",
        (MOMENT, DAY),
        &mut timeouts.tunnel_idle,
        faults,
    );
    if let Some(at) = fields.take("whole", faults) {
        at.takes_word(faults, "off");
        timeouts.whole = match &at.value.kind {
            Kind::String(off) if off == "off" => None,
            Kind::String(text) if units::duration(text).is_err() => {
                let problem = format!("{} is neither off nor a length of time", quoted(text));
                at.fault_mend(
                    faults,
                    problem,
                    "write off, or a number and ms, s, m or h: 30s, 10m, 2h",
                );
                None
            }
            _ => at.duration(faults, MOMENT..=DAY),
        };
    }
    if let Some(at) = fields.take("models", faults) {
        rules.timeouts(&at, faults);
    }
}
