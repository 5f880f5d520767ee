//! What can be seen of the picker from outside?
//!
//! | metric | kind | says |
//! |---|---|---|
//! | `paddler_picker_streams` | gauge | Streams that are open: requests, from their headers to the end of their answer. |
//! | `paddler_picker_streams_total` | counter | Streams that were opened. |
//! | `paddler_picker_unfollowed_streams_total` | counter | Streams without a response body phase: when their answer ended is not known. |
//! | `paddler_picker_faults_total` | counter | Streams on which Envoy said what it may not, or what cannot be read. |

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use paddler_core::forward::Served;

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    open: AtomicU64,
    opened: AtomicU64,
    unfollowed: AtomicU64,
    faults: AtomicU64,
    was_said: AtomicBool,
}

/// One open stream. Dropped, it is none.
#[derive(Debug)]
pub(crate) struct Open<'a>(&'a Counts);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

impl Counts {
    pub(crate) fn opened(&self) -> Open<'_> {
        self.opened.fetch_add(1, Relaxed);
        self.open.fetch_add(1, Relaxed);
        Open(self)
    }

    /// What it comes to that serving ends now.
    pub(crate) fn cut(&self) -> Served {
        match usize::try_from(self.open.load(Relaxed)) {
            Ok(0) => Served::Whole,
            Ok(open) => Served::Cut(open),
            Err(_) => Served::Cut(usize::MAX),
        }
    }

    pub(crate) fn fault(&self) {
        self.faults.fetch_add(1, Relaxed);
    }

    /// The end of an answer will not be seen: said once, and counted each time.
    pub(crate) fn unfollowed(&self) {
        self.unfollowed.fetch_add(1, Relaxed);
        if !self.was_said.swap(true, Relaxed) {
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
        for (name, kind, help, value) in families {
            let name = format!("paddler_picker_{name}");
            let value = value.load(Relaxed);
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
