//! What does a scrape see?

use std::cell::LazyCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::histogram::Histogram;
use super::metrics::Metrics;
use super::models::{ModelFigures, RESULTS};
use super::names::{self, Family};
use super::upstreams::UpstreamStatus;
use super::walks::Walks;
use crate::Moment;
use crate::health::Cause;
use crate::queue::{ClassWaits, Priority};
use crate::status::{Degraded, Entry, Snapshot};
use crate::upstream::{UpstreamId, UpstreamIndex};

/// Everything that a page of figures is made of. Its text is what Prometheus reads (format 0.0.4).
///
/// A router writes its own page. Whoever picks without one makes it of a snapshot:
///
/// ```
/// use paddler_core::Moment;
/// use paddler_core::observe::{Metrics, MetricsPage};
/// use paddler_core::schedule::trees;
/// use paddler_core::status::{StatusBoard, StatusEvent};
/// use paddler_core::upstream::UpstreamSpec;
///
/// let mut board = StatusBoard::new(trees::gateway());
/// board.apply(StatusEvent::Upsert(UpstreamSpec::new("gpu-1", "http://127.0.0.1:8080")?), Moment::ZERO);
/// let snapshot = board.publish(Moment::ZERO);
///
/// let page = MetricsPage::new(&Metrics::default(), &snapshot, Moment::ZERO).to_string();
/// assert!(page.contains("paddler_upstream_able{upstream=\"gpu-1\"} 1\n"));
/// # Ok::<(), paddler_core::upstream::InvalidId>(())
/// ```
#[derive(Debug)]
pub struct MetricsPage<'a> {
    pub(crate) metrics: &'a Metrics,
    pub(crate) snapshot: &'a Snapshot,
    /// How each class waits, in the order of [`Priority::ALL`].
    pub(crate) waits: [ClassWaits; 3],
    /// The upstreams whose room is held back.
    pub(crate) held_back: Vec<UpstreamId>,
    pub(crate) buffered: u64,
    /// How long picks take, and what nodes do, where somebody counts that.
    pub(crate) walks: Option<&'a Walks>,
    /// What was lost of what is told of requests, by where to.
    pub(crate) lost: Vec<(&'static str, u64)>,
    pub(crate) now: Moment,
    /// The families that are told; none: all.
    pub(crate) only: &'a [String],
}

impl<'a> MetricsPage<'a> {
    /// A page of these counts and of the upstreams as they are known, with an empty queue.
    pub fn new(metrics: &'a Metrics, snapshot: &'a Snapshot, now: Moment) -> Self {
        Self {
            metrics,
            snapshot,
            waits: Default::default(),
            held_back: Vec::new(),
            buffered: 0,
            walks: None,
            lost: Vec::new(),
            now,
            only: &[],
        }
    }
}

impl fmt::Display for MetricsPage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut writer = Writer {
            to: f,
            only: self.only,
        };
        self.requests(&mut writer)?;
        self.models(&mut writer)?;
        self.walks(&mut writer)?;
        self.queue(&mut writer)?;
        self.upstreams(&mut writer)?;
        self.config(&mut writer)
    }
}

impl MetricsPage<'_> {
    fn requests(&self, page: &mut Writer<'_, '_>) -> fmt::Result {
        let metrics = self.metrics;
        page.head(&names::REQUESTS)?;
        for ((class, status), count) in metrics.requests() {
            page.sample(&names::REQUESTS, "", &[class, &status.to_string()], count as f64)?;
        }
        page.counts(&names::REFUSALS, metrics.refusals())?;
        page.counts(&names::RETRIES, metrics.retries())?;
        page.counts(&names::RETRIES_DENIED, metrics.retries_denied())?;
        page.counts(&names::TRUNCATIONS, metrics.truncations())?;
        page.one(&names::CANCELLATIONS, metrics.cancellations() as f64)?;
        page.one(&names::IN_FLIGHT, metrics.in_flight() as f64)?;
        page.histogram(&names::FIRST_BYTE, metrics.first_bytes())
    }

    fn models(&self, page: &mut Writer<'_, '_>) -> fmt::Result {
        let models = self.metrics.models();
        page.head(&names::MODEL_REQUESTS)?;
        for (model, figures) in &models {
            for (result, count) in RESULTS.iter().zip(&figures.results) {
                let count = count.load(Relaxed) as f64;
                page.sample(&names::MODEL_REQUESTS, "", &[model, result], count)?;
            }
        }
        page.head(&names::DURATION)?;
        for (model, figures) in &models {
            page.histogram_of(&names::DURATION, &[model], &figures.duration)?;
        }
        page.head(&names::FIRST_TOKEN)?;
        for (model, figures) in &models {
            page.histogram_of(&names::FIRST_TOKEN, &[model], &figures.first_token)?;
        }
        page.head(&names::OUTPUT_TOKEN)?;
        for (model, figures) in &models {
            page.histogram_of(&names::OUTPUT_TOKEN, &[model, "tokens"], &figures.per_token)?;
            page.histogram_of(&names::OUTPUT_TOKEN, &[model, "pieces"], &figures.per_piece)?;
        }
        let tokens = |many: fn(&ModelFigures) -> &AtomicU64| {
            let count = |(model, figures): &(Arc<str>, Arc<ModelFigures>)| {
                (model.clone(), many(figures).load(Relaxed))
            };
            // Where nobody reads answers for them, they are not none but unknown.
            models.iter().map(count).filter(|(_, many)| *many > 0).collect()
        };
        page.counts(&names::PROMPT_TOKENS, tokens(|figures| &figures.prompt_tokens))?;
        page.counts(&names::OUTPUT_TOKENS, tokens(|figures| &figures.output_tokens))
    }

    fn walks(&self, page: &mut Writer<'_, '_>) -> fmt::Result {
        page.head(&names::PICK)?;
        if let Some(walks) = self.walks {
            page.histogram_of(&names::PICK, &[], walks.times())?;
        }
        page.head(&names::NODE_WALKS)?;
        let Some(walks) = self.walks else {
            return Ok(());
        };
        let nodes = walks.nodes(self.snapshot);
        for (node, count) in nodes.counters().iter() {
            let (node, title) = (node.get().to_string(), nodes.title(node));
            for (event, count) in [
                ("entered", count.entered),
                ("emptied", count.emptied),
                ("failed", count.failed),
                ("picked", count.picked),
                ("ended", count.ended),
            ] {
                // Most nodes can do but a few of these.
                if count > 0 || event == "entered" {
                    page.sample(&names::NODE_WALKS, "", &[&node, title, event], count as f64)?;
                }
            }
        }
        Ok(())
    }

    fn queue(&self, page: &mut Writer<'_, '_>) -> fmt::Result {
        let by_class = |page: &mut Writer<'_, '_>, family, value: &dyn Fn(&ClassWaits) -> f64| {
            page.head(family)?;
            Priority::ALL
                .iter()
                .zip(&self.waits)
                .try_for_each(|(class, waits)| page.sample(family, "", &[class.as_str()], value(waits)))
        };
        by_class(page, &names::WAITING, &|waits| waits.waiting as f64)?;
        by_class(page, &names::OLDEST_WAIT, &|waits| {
            let wait = waits.oldest.map(|since| self.now.since(since));
            wait.unwrap_or_default().as_secs_f64()
        })?;
        page.head(&names::WAIT)?;
        for (class, histogram) in Priority::ALL.iter().zip(self.metrics.waits()) {
            page.histogram_of(&names::WAIT, &[class.as_str()], histogram)?;
        }
        by_class(page, &names::EVICTIONS, &|waits| waits.evicted as f64)?;
        page.one(&names::BUFFERED, self.buffered as f64)
    }

    fn upstreams(&self, page: &mut Writer<'_, '_>) -> fmt::Result {
        let ledger = self.snapshot.ledger();
        page.one(&names::SETTLING, ledger.settling_weight() as f64)?;
        let age = self.now.since(self.snapshot.published());
        page.one(&names::SNAPSHOT_AGE, age.as_secs_f64())?;
        self.pool(page)?;
        // The rows of the management API are those of this page.
        let rows = LazyCell::new(|| UpstreamStatus::all(self.snapshot, self.now));
        let each = |page: &mut Writer<'_, '_>, family, value: fn(&UpstreamStatus) -> Option<f64>| {
            page.each(family, &rows, value)
        };
        each(page, &names::ABLE, |row| Some(truth(row.able)))?;
        each(page, &names::DRAINING, |row| Some(truth(row.draining)))?;
        let states = [
            (&names::EJECTED, "ejected"),
            (&names::PROBING, "probing"),
            (&names::WARMING, "warming"),
        ];
        for (family, state) in states {
            page.each(family, &rows, |row| {
                Some(truth(row.service.as_ref()?.state == state))
            })?;
        }
        each(page, &names::LAST_RESORT, |row| {
            Some(truth(row.service.as_ref()?.last_resort))
        })?;
        each(page, &names::PAUSED, |row| {
            Some(truth(row.service.as_ref()?.paused_for.is_some()))
        })?;
        page.each(&names::HELD_BACK, &rows, |row| {
            let held = &self.held_back;
            Some(truth(held.iter().any(|id| id.as_str() == row.id)))
        })?;
        each(page, &names::OPEN, |row| Some(f64::from(row.open_weight)))?;
        each(page, &names::LIMIT, |row| row.limit_weight.map(f64::from))?;
        each(page, &names::RUNNING, |row| row.running.map(f64::from))?;
        each(page, &names::QUEUED, |row| row.waiting.map(f64::from))?;
        each(page, &names::KV_CACHE, |row| row.kv_cache_usage)?;
        each(page, &names::REPORT_AGE, |row| {
            Some(row.report_age?.as_secs_f64())
        })?;
        each(page, &names::FAILED_POLLS, |row| {
            Some(f64::from(row.failed_polls))
        })?;
        self.missing(page)
    }

    fn config(&self, page: &mut Writer<'_, '_>) -> fmt::Result {
        let (at, stale) = self.metrics.config();
        page.counts(&names::CONFIG_RELOADS, self.metrics.config_reloads())?;
        page.one(&names::CONFIG_AGE, self.now.since(at).as_secs_f64())?;
        page.one(&names::CONFIG_STALE, truth(stale))?;
        page.counts(&names::TELEMETRY_LOST, self.lost.clone())
    }

    fn pool(&self, page: &mut Writer<'_, '_>) -> fmt::Result {
        let pool = self.snapshot.pool_health();
        page.one(&names::PANIC, truth(pool.panicking))?;
        page.one(&names::PANICS, pool.panics as f64)?;
        let causes = Cause::ALL.iter().zip(pool.ejections);
        page.counts(
            &names::EJECTIONS,
            causes.map(|(cause, count)| (cause.as_str(), count)).collect(),
        )?;
        page.one(&names::SPARED, pool.spared as f64)
    }

    fn missing(&self, page: &mut Writer<'_, '_>) -> fmt::Result {
        let family = &names::SIGNAL_MISSING;
        if !page.wants(family) {
            return Ok(());
        }
        page.head(family)?;
        self.snapshot
            .iter()
            .try_for_each(|(_, entry): (UpstreamIndex, &Arc<Entry>)| {
                let id = entry.spec().id.as_str();
                let degraded = entry.report().map_or(&[][..], |report| &report.degraded);
                distinct(degraded).try_for_each(|one| {
                    page.sample(family, "", &[id, one.signal.as_str(), &one.expected], 1.0)
                })
            })
    }
}

/// Each place where a signal was looked for, once: a page with one series twice is not read at all.
fn distinct(degraded: &[Degraded]) -> impl Iterator<Item = &Degraded> {
    let same = |a: &Degraded, b: &Degraded| (a.signal, &a.expected) == (b.signal, &b.expected);
    let first = move |(at, one): &(usize, &Degraded)| !degraded[..*at].iter().any(|before| same(before, one));
    degraded.iter().enumerate().filter(first).map(|(_, one)| one)
}

fn truth(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// Writes families as the format wants them.
struct Writer<'f, 'b> {
    to: &'f mut fmt::Formatter<'b>,
    only: &'f [String],
}

impl Writer<'_, '_> {
    /// Whether somebody asks for this family, or for a part of it such as its buckets.
    fn wants(&self, family: &Family) -> bool {
        let is_of_it = |name: &String| {
            let part = name.strip_prefix(family.name);
            part.is_some_and(|part| ["", "_bucket", "_sum", "_count"].contains(&part))
        };
        self.only.is_empty() || self.only.iter().any(is_of_it)
    }

    fn head(&mut self, family: &Family) -> fmt::Result {
        if !self.wants(family) {
            return Ok(());
        }
        let Family { name, help, kind, .. } = family;
        writeln!(self.to, "# HELP {name} {help}\n# TYPE {name} {}", kind.as_str())
    }

    /// One line, with a value for each of the family's labels.
    fn sample(&mut self, family: &Family, suffix: &str, labels: &[&str], value: f64) -> fmt::Result {
        debug_assert_eq!(family.labels.len(), labels.len(), "{}", family.name);
        if !self.wants(family) {
            return Ok(());
        }
        write!(self.to, "{}{suffix}", family.name)?;
        for (at, (name, label)) in family.labels.iter().zip(labels).enumerate() {
            let open = if at == 0 { '{' } else { ',' };
            write!(self.to, "{open}{name}=\"{}\"", Escaped(label))?;
        }
        let close = if labels.is_empty() { "" } else { "}" };
        writeln!(self.to, "{close} {value}")
    }

    fn one(&mut self, family: &Family, value: f64) -> fmt::Result {
        self.head(family)?;
        self.sample(family, "", &[], value)
    }

    /// One series for each upstream of which there is something to say.
    fn each(
        &mut self,
        family: &Family,
        rows: &LazyCell<Vec<UpstreamStatus>, impl FnOnce() -> Vec<UpstreamStatus>>,
        value: impl Fn(&UpstreamStatus) -> Option<f64>,
    ) -> fmt::Result {
        if !self.wants(family) {
            return Ok(());
        }
        self.head(family)?;
        rows.iter().try_for_each(|row| match value(row) {
            Some(value) => self.sample(family, "", &[&row.id], value),
            None => Ok(()),
        })
    }

    fn counts<L: AsRef<str>>(&mut self, family: &Family, counts: Vec<(L, u64)>) -> fmt::Result {
        self.head(family)?;
        counts
            .iter()
            .try_for_each(|(label, count)| self.sample(family, "", &[label.as_ref()], *count as f64))
    }

    fn histogram(&mut self, family: &Family, histogram: &Histogram) -> fmt::Result {
        self.head(family)?;
        self.histogram_of(family, &[], histogram)
    }

    /// The series of one set of labels, without the head.
    fn histogram_of(&mut self, family: &Family, labels: &[&str], histogram: &Histogram) -> fmt::Result {
        let (bounds, count, seconds) = histogram.read();
        for (bound, so_far) in bounds {
            self.bucket(family, labels, &bound.to_string(), so_far)?;
        }
        self.bucket(family, labels, "+Inf", count)?;
        self.sample(family, "_sum", labels, seconds)?;
        self.sample(family, "_count", labels, count as f64)
    }

    fn bucket(&mut self, family: &Family, labels: &[&str], bound: &str, so_far: u64) -> fmt::Result {
        if !self.wants(family) {
            return Ok(());
        }
        write!(self.to, "{}_bucket{{", family.name)?;
        for (name, label) in family.labels.iter().zip(labels) {
            write!(self.to, "{name}=\"{}\",", Escaped(label))?;
        }
        writeln!(self.to, "le=\"{bound}\"}} {so_far}")
    }
}

/// A label's value, as it stands between quotes.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            c => fmt::Write::write_char(f, c),
        })
    }
}
