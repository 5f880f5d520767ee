//! What can be seen of the picker from outside?

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A figure.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// One more. Says how many there were before.
    pub(crate) fn add(&self) -> u64 {
        self.0.fetch_add(1, Relaxed)
    }
}

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    open: Count,
    opened: Count,
    unfollowed: Count,
    pub(crate) faults: Count,
}

/// One open stream. Dropped, it is none.
#[derive(Debug)]
pub(crate) struct Open<'a>(&'a Count);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

impl Counts {
    pub(crate) fn opened(&self) -> Open<'_> {
        self.opened.add();
        self.open.add();
        Open(&self.open)
    }

    /// The end of an answer will not be seen: said once, and counted each time.
    pub(crate) fn unfollowed(&self) {
        if self.unfollowed.add() == 0 {
            tracing::warn!(
                "Envoy shows no response bodies, so requests under way cannot be counted here: only what engines report counts. \
                 Set response_body_mode: FULL_DUPLEX_STREAMED"
            );
        }
    }

    /// The figures, as lines for Prometheus.
    pub(crate) fn page(&self) -> String {
        let families = [
            ("streams", "gauge", "Streams that are open.", &self.open),
            (
                "streams_total",
                "counter",
                "Streams that were opened.",
                &self.opened,
            ),
            (
                "unfollowed_streams_total",
                "counter",
                "Streams without a response body phase.",
                &self.unfollowed,
            ),
            (
                "faults_total",
                "counter",
                "Streams on which Envoy said what it may not.",
                &self.faults,
            ),
        ];
        let mut page = String::new();
        for (name, kind, help, count) in families {
            let (name, value) = (format!("paddler_picker_{name}"), count.0.load(Relaxed));
            // Writing to a string does not fail.
            write!(
                page,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
            )
            .ok();
        }
        page
    }
}
