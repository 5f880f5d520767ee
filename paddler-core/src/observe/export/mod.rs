//! Where do figures and trails go, beyond the page that is scraped?
//!
//! Into an [`AccessLog`], a line a request; to a [StatsD](Statsd) server, as the three gauges of Paddler 1.x; to a
//! collector of [OpenTelemetry](Otlp), as spans. None of them holds up
//! a request: what cannot be taken in time is lost, and [`Telemetry::lost`] says how much that was.

mod access_log;
mod otlp;
mod statsd;
mod wall;

use std::io;
use std::sync::Arc;

use tokio::task::{AbortHandle, spawn_blocking};

pub use self::access_log::AccessLog;
pub use self::otlp::Otlp;
pub use self::statsd::Statsd;
use super::{Telemetries, Telemetry, Trail};
use crate::config;
use crate::forward::Router;

/// Has every answer read for the tokens that it uses, so that they are in trails and figures: each byte of it is looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct CountTokens;

impl Telemetry for CountTokens {
    fn reads_usage(&self) -> bool {
        true
    }

    fn ended(&self, _trail: &Trail) {}
}

/// All that a config names. Dropped, nobody sends gauges any more.
///
/// ```
/// use paddler_core::config::Config;
/// use paddler_core::observe::export::Exports;
///
/// let exports = Exports::open(&Config::default().telemetry)?;
/// assert!(exports.telemetry().is_none(), "by default, nobody wants to know");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Exports {
    access_log: Option<Arc<AccessLog>>,
    all: Vec<Arc<dyn Telemetry>>,
    statsd: Option<config::Statsd>,
    otlp: Option<Arc<Otlp>>,
    tasks: Vec<AbortHandle>,
}

impl Exports {
    /// Opens what has to be opened.
    ///
    /// # Errors
    /// What it is that cannot be opened, and why.
    pub fn open(config: &config::Telemetry) -> io::Result<Self> {
        let mut all: Vec<Arc<dyn Telemetry>> = Vec::new();
        let access_log = config.access_log.as_ref().map(|log| {
            let open = AccessLog::open(log.file.clone(), log.format);
            let name =
                |error| io::Error::other(format!("access_log: {:?} cannot be opened: {error}", log.file));
            open.map(Arc::new).map_err(name)
        });
        let access_log = access_log.transpose()?;
        all.extend(access_log.clone().map(|log| log as _));
        if config.count_tokens == config::CountTokens::Always {
            all.push(Arc::new(CountTokens));
        }
        let otlp = config.otlp.as_ref().map(|otlp| Otlp::open(otlp).map(Arc::new));
        let otlp = otlp.transpose()?;
        all.extend(otlp.clone().map(|otlp| otlp as _));
        Ok(Self {
            access_log,
            all,
            otlp,
            statsd: config.statsd.clone(),
            tasks: Vec::new(),
        })
    }

    /// Who is to be told what becomes of requests: for [`RouterOptions::telemetry`](crate::forward::RouterOptions::telemetry).
    pub fn telemetry(&self) -> Option<Arc<dyn Telemetry>> {
        let all = self.all.clone();
        (!all.is_empty()).then(|| Arc::new(Telemetries(all)) as _)
    }

    /// Begins to send, as long as this lives.
    ///
    /// # Panics
    /// When there is no tokio runtime.
    pub fn follow(&mut self, router: &Router) {
        if let Some(statsd) = &self.statsd {
            let task = tokio::spawn(Statsd::new(statsd.clone()).run(router.clone()));
            self.tasks.push(task.abort_handle());
        }
        if let Some(exporter) = self.otlp.as_ref().and_then(|otlp| otlp.run()) {
            self.tasks.push(tokio::spawn(exporter).abort_handle());
        }
    }

    /// Reads again what the config names and is read at any time: the headers that a collector wants.
    ///
    /// # Errors
    /// The file cannot be read, or has a fault; what was read before stays in force.
    pub fn read_again(&self, config: &config::Telemetry) -> io::Result<()> {
        let file = config.otlp.as_ref().and_then(|otlp| otlp.headers_file.as_ref());
        if let (Some(otlp), Some(file)) = (&self.otlp, file) {
            otlp.set_headers(Otlp::read_headers(file)?);
        }
        Ok(())
    }

    /// Opens the access log anew, as it is to be after its file was moved away.
    pub fn reopen(&self) {
        if let Some(log) = &self.access_log {
            log.reopen();
        }
    }

    /// Done when what has ended until now is written and sent, or some seconds are over.
    pub async fn flush(&self) {
        if let Some(log) = self.access_log.clone() {
            // It waits for a disk. That it panics is seen in the log.
            spawn_blocking(move || log.flush()).await.ok();
        }
        if let Some(otlp) = &self.otlp {
            otlp.flush().await;
        }
    }
}

impl Drop for Exports {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
