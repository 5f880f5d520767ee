//! What is a StatsD server told?
//!
//! The three gauges of Paddler 1.x, by the same names, so that what scales or alarms by them goes on: `slots_idle`,
//! `slots_processing` and `requests_buffered`. All else is on the page for Prometheus.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{UdpSocket, lookup_host};
use tokio::time::{MissedTickBehavior, interval};

use crate::config;
use crate::forward::Router;
use crate::status::Snapshot;

/// The gauges of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gauges {
    /// Room for requests that nobody uses, of the upstreams that have a limit and can serve.
    slots_idle: u64,
    /// Weight that upstreams work on: ours, or what they report, whichever is more.
    slots_processing: u64,
    /// Requests that wait for a place.
    requests_buffered: u64,
}

impl Gauges {
    fn of(snapshot: &Snapshot, waiting: u64) -> Self {
        let mut gauges = Self {
            slots_idle: 0,
            slots_processing: 0,
            requests_buffered: waiting,
        };
        for (at, entry) in snapshot.iter() {
            let report = entry.report();
            let reported = report.and_then(|report| report.running.or(report.slots_busy));
            let busy = reported.unwrap_or(0).max(snapshot.ledger().own_load(at).weight);
            gauges.slots_processing += u64::from(busy);
            let serves = snapshot.is_able(at.0) && !snapshot.ledger().is_barred(at.0);
            if let (true, Some(limit)) = (serves, entry.limit()) {
                gauges.slots_idle += u64::from(limit.saturating_sub(busy));
            }
        }
        gauges
    }

    fn text(self, prefix: &str) -> String {
        let Self {
            slots_idle,
            slots_processing,
            requests_buffered,
        } = self;
        format!(
            "{prefix}.slots_idle:{slots_idle}|g\n{prefix}.slots_processing:{slots_processing}|g\n\
             {prefix}.requests_buffered:{requests_buffered}|g"
        )
    }
}

/// Sends gauges to a StatsD server.
#[derive(Debug, Clone)]
pub struct Statsd {
    config: config::Statsd,
}

impl Statsd {
    /// By this config.
    pub fn new(config: config::Statsd) -> Self {
        Self { config }
    }

    /// Sends the gauges of this router for ever, in one datagram each time. What cannot be sent is said once in the log, until it
    /// can.
    pub async fn run(self, router: Router) {
        let config::Statsd {
            address,
            prefix,
            interval: every,
        } = &self.config;
        let mut ticks = interval(*every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut fails = false;
        loop {
            ticks.tick().await;
            let gauges = Gauges::of(&router.published().load(), router.waiting());
            let sent = send(address, gauges.text(prefix).as_bytes()).await;
            match &sent {
                Err(error) if !fails => tracing::warn!(address, %error, "StatsD cannot be told anything"),
                Ok(()) if fails => tracing::info!(address, "StatsD is told again"),
                _ => {}
            }
            fails = sent.is_err();
        }
    }
}

/// Looks the name up each time: the server may be started anew elsewhere.
async fn send(address: &str, text: &[u8]) -> std::io::Result<()> {
    let none = || std::io::Error::other("the name has no address");
    let to: SocketAddr = lookup_host(address).await?.next().ok_or_else(none)?;
    let from: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(from).await?;
    socket.send_to(text, to).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;
    use crate::schedule::trees;
    use crate::status::{Health, Report, StatusBoard, StatusEvent};
    use crate::upstream::{UpstreamId, UpstreamSpec};

    #[test]
    fn slots_are_those_of_upstreams_that_serve() {
        let mut board = StatusBoard::new(trees::balancer());
        for (name, health, busy) in [
            ("serves", Health::Ready, 3),
            ("loads", Health::Loading, 0),
            ("drains", Health::Ready, 2),
        ] {
            let spec = UpstreamSpec::new(name, format!("http://{name}:1")).unwrap();
            board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
            let mut report = Report::new();
            report.health = Some(health);
            (report.slots_total, report.slots_busy) = (Some(8), Some(busy));
            let id = UpstreamId::new(name).unwrap();
            let sample = None;
            board.apply(StatusEvent::Report { id, report, sample }, Moment::ZERO);
        }
        let silent = UpstreamSpec::new("silent", "http://silent:1").unwrap();
        board.apply(StatusEvent::Upsert(silent), Moment::ZERO);
        board.set_draining("drains", true);
        let gauges = Gauges::of(&board.publish(Moment::ZERO), 7);
        let wanted = Gauges {
            slots_idle: 5,
            slots_processing: 5,
            requests_buffered: 7,
        };
        assert_eq!(gauges, wanted, "what is not known is no slot");
        assert_eq!(
            gauges.text("a.b"),
            "a.b.slots_idle:5|g\na.b.slots_processing:5|g\na.b.requests_buffered:7|g"
        );
    }
}
