//! How much of our own memory and sockets can clients take?

use std::time::Duration;

use super::LEAST_HEAD;
use super::fill::{HOUR, KIB, MOMENT, TIB, bytes, count, duration};
use crate::config::fault::Faults;
use crate::config::read::{At, Fields};
use crate::config::units::show_bytes;

/// How much of our own memory and sockets clients can take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The longest body, in bytes, 1 KiB to 1 TiB. Default 64 MiB: a chat with several pictures.
    pub body: u64,
    /// All bodies that are held at once, in bytes, at least `body`, up to 1 TiB. Default 1 GiB: sixteen of the longest.
    /// When they are, those that come in at less than 64 KiB a second, beyond `body_idle`, give way to others, the slowest
    /// first (`buffers_full`): else a few clients could hold it all for hours. A body that comes while more than three
    /// quarters of this are held is let go as it is sent, so its request is never sent again (`body_not_kept`).
    pub buffered_bodies: u64,
    /// The longest head of a request, in bytes, 8 KiB to 16 MiB. Default 64 KiB: what most proxies in front let through.
    pub headers: u64,
    /// Connections from clients, 1 to 1,000,000. Default 4096, with a socket each and one for each request on it that goes to an
    /// upstream over HTTP/1.1: `paddler` raises its limit of open files for them; who embeds the router raises it himself. Behind Envoy (`paddler endpoint-picker`): requests at once.
    pub connections: usize,
    /// Requests at once on one connection of HTTP/2, 1 to 10,000. Default 128: RFC 9113 (5.1.2) wants 100 at least, and who
    /// has more opens another connection.
    pub streams: u32,
    /// How long a head may take to come in, and so how long a connection is kept on which no request comes, 10 ms to 1 h.
    /// Default 75 s: longer than clients and the balancers in front keep theirs (60 s), since they must not find them closed.
    pub header_timeout: Duration,
    /// How long a body may pause while it comes in, 10 ms to 1 h. Default 30 s: a phone that changes networks. All pauses
    /// together may be no longer than that, beyond one second for each KiB: a byte now and then would hold a connection.
    pub body_idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 64 << 20,
            buffered_bodies: 1 << 30,
            headers: 64 << 10,
            connections: 4096,
            streams: 128,
            header_timeout: Duration::from_secs(75),
            body_idle: Duration::from_secs(30),
        }
    }
}

pub(super) fn limits(at: &At<'_>, limits: &mut Limits, faults: &mut Faults) {
    let Some(mut fields) = at.fields(faults) else {
        return;
    };
    bodies(at, &mut fields, limits, faults);
    bytes(
        &mut fields,
        "headers",
        (LEAST_HEAD.into(), 16 * KIB * KIB),
        &mut limits.headers,
        faults,
    );
    count(
        &mut fields,
        "connections",
        (1, 1_000_000),
        &mut limits.connections,
        faults,
    );
    if let Some(at) = fields.take("streams", faults) {
        at.defaults_to(faults, || limits.streams.into());
        limits.streams = at.whole(faults, 1..=10_000).unwrap_or(limits.streams);
    }
    duration(
        &mut fields,
        "header_timeout",
        (MOMENT, HOUR),
        &mut limits.header_timeout,
        faults,
    );
    duration(
        &mut fields,
        "body_idle",
        (MOMENT, HOUR),
        &mut limits.body_idle,
        faults,
    );
    fields.end(faults);
}

fn bodies(at: &At<'_>, fields: &mut Fields<'_>, limits: &mut Limits, faults: &mut Faults) {
    let said = fields.has("body") || fields.has("buffered_bodies");
    let before = faults.len();
    bytes(fields, "body", (KIB, TIB), &mut limits.body, faults);
    bytes(
        fields,
        "buffered_bodies",
        (KIB, TIB),
        &mut limits.buffered_bodies,
        faults,
    );
    if said && faults.len() == before && limits.buffered_bodies < limits.body {
        let problem = format!(
            "`buffered_bodies` ({}) is less than `body` ({}): the longest would never fit",
            show_bytes(limits.buffered_bodies),
            show_bytes(limits.body)
        );
        at.fault_mend(faults, problem, "raise the one or lower the other");
    }
}
