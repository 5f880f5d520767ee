//! What does a scrape see?

use std::fmt;
use std::time::Duration;

use super::metrics::Metrics;
use crate::Moment;
use crate::status::{Entry, Snapshot};

/// Everything that a page of figures is made of.
#[derive(Debug)]
pub struct Page<'a> {
    pub(crate) metrics: &'a Metrics,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) waiting: usize,
    pub(crate) oldest_wait: Option<Duration>,
    pub(crate) buffered: u64,
    pub(crate) now: Moment,
}

/// The page as Prometheus reads it (text format 0.0.4).
impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.requests(f)?;
        self.queue(f)?;
        self.upstreams(f)
    }
}

type Samples = Vec<(String, f64)>;

fn family(f: &mut fmt::Formatter<'_>, name: &str, kind: &str, help: &str, samples: Samples) -> fmt::Result {
    writeln!(f, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
    samples.into_iter().try_for_each(|(labels, value)| writeln!(f, "{name}{labels} {value}"))
}

fn one(value: f64) -> Samples {
    vec![(String::new(), value)]
}

fn label(name: &str, value: &str) -> String {
    format!("{{{name}=\"{}\"}}", escape(value))
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl Page<'_> {
    fn requests(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_class = |((class, status), count): ((&str, u16), u64)| {
            (format!("{{class=\"{class}\",status=\"{status}\"}}"), count as f64)
        };
        let requests = self.metrics.requests().into_iter().map(by_class).collect();
        family(f, "paddler_requests_total", "counter", "Requests answered.", requests)?;
        let refusals = self.metrics.refusals().into_iter();
        let refusals = refusals.map(|(reason, count)| (label("reason", &reason), count as f64)).collect();
        family(f, "paddler_refusals_total", "counter", "Requests answered here with an error.", refusals)?;
        let by_reason = |counts: Vec<(&str, u64)>| -> Samples {
            counts.into_iter().map(|(reason, count)| (label("reason", reason), count as f64)).collect()
        };
        family(f, "paddler_retries_total", "counter", "Requests sent again.", by_reason(self.metrics.retries()))?;
        let help = "Answers that ended before their end.";
        family(f, "paddler_truncations_total", "counter", help, by_reason(self.metrics.truncations()))?;
        let help = "Clients that left before the end of their answer.";
        family(f, "paddler_cancellations_total", "counter", help, one(self.metrics.cancellations() as f64))?;
        let help = "Requests being handled.";
        family(f, "paddler_requests_in_flight", "gauge", help, one(self.metrics.in_flight() as f64))?;
        let help = "Time from sending a request to the first byte of its answer.";
        summary(f, "paddler_first_byte_seconds", help, self.metrics.first_bytes())
    }

    fn queue(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        family(f, "paddler_requests_waiting", "gauge", "Requests waiting for a place.", one(self.waiting as f64))?;
        let oldest = self.oldest_wait.unwrap_or_default().as_secs_f64();
        family(f, "paddler_oldest_wait_seconds", "gauge", "How long the first in the queue has waited.", one(oldest))?;
        summary(f, "paddler_wait_seconds", "Time from a request's arrival to its place.", self.metrics.waits())?;
        let help = "Bodies held until their answer begins.";
        family(f, "paddler_buffered_bytes", "gauge", help, one(self.buffered as f64))
    }

    fn upstreams(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ledger = self.snapshot.ledger();
        let mut each = |name: &str, help: &str, value: &dyn Fn(u32, &Entry) -> Option<f64>| {
            let sample = |(index, entry): (crate::upstream::UpstreamIndex, &std::sync::Arc<Entry>)| {
                Some((label("upstream", entry.spec().id.as_str()), value(index.0, entry)?))
            };
            family(f, name, "gauge", help, self.snapshot.iter().filter_map(sample).collect())
        };
        each("paddler_upstream_able", "1 unless it is known to be unable to serve.", &|slot, _| {
            Some(f64::from(u8::from(self.snapshot.is_able(slot))))
        })?;
        let help = "Weight of our own requests open on it, with what settles.";
        each("paddler_upstream_open_weight", help, &|slot, _| Some(f64::from(ledger.reserved(slot).weight())))?;
        each("paddler_upstream_limit", "The most weight that may be open on it.", &|_, entry| {
            entry.limit().map(f64::from)
        })?;
        each("paddler_upstream_reported_running", "Requests it reports as running.", &|_, entry| {
            let report = entry.report()?;
            report.running.or(report.slots_busy).map(f64::from)
        })?;
        each("paddler_upstream_reported_waiting", "Requests it reports as waiting.", &|_, entry| {
            entry.report()?.waiting.map(f64::from)
        })?;
        each("paddler_upstream_kv_cache_usage_ratio", "Share of its KV cache in use.", &|_, entry| {
            entry.report()?.kv_cache_usage
        })?;
        each("paddler_upstream_report_age_seconds", "Age of its last report.", &|_, entry| {
            entry.report()?;
            Some(self.now.since(entry.reported_at()).as_secs_f64())
        })?;
        each("paddler_upstream_poll_failures", "Failed polls since its last report.", &|_, entry| {
            Some(f64::from(entry.failures()))
        })?;
        self.degraded(f)
    }

    fn degraded(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |(id, one): (&str, &crate::status::Degraded)| {
            let (id, expected) = (escape(id), escape(&one.expected));
            (format!("{{upstream=\"{id}\",signal=\"{}\",expected=\"{expected}\"}}", one.signal.as_str()), 1.0)
        };
        let all = self.snapshot.iter().flat_map(|(_, entry)| {
            let degraded = entry.report().into_iter().flat_map(|report| &report.degraded);
            degraded.map(|one| (entry.spec().id.as_str(), one))
        });
        let help = "A signal that an upstream should give and does not: it counts as unknown.";
        family(f, "paddler_upstream_signal_missing", "gauge", help, all.map(of).collect())
    }
}

fn summary(f: &mut fmt::Formatter<'_>, name: &str, help: &str, (count, seconds): (u64, f64)) -> fmt::Result {
    writeln!(f, "# HELP {name} {help}\n# TYPE {name} summary")?;
    writeln!(f, "{name}_sum {seconds}\n{name}_count {count}")
}
