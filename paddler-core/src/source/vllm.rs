//! How does vLLM say how it is?
//!
//! Nearly all of it stands on `/metrics`: requests running and waiting, KV-cache usage, and which adapters have
//! requests. While it starts, its port refuses connections; while it drains, `/health` still says 200.
//!
//! # Several ranks
//!
//! A server with data parallelism exports each gauge once for each engine, told apart by the label `engine`. Running
//! and waiting are summed over the engines, and of KV usage the highest is taken. Of several series of one engine, the
//! one with the newest time stamp counts, and without time stamps the first.
//!
//! # Adapters
//!
//! `vllm:lora_requests_info` is a gauge whose value is the time at which its labels were last true, and old label sets
//! stay on the page for ever. So only the series with the largest value counts.
//!
//! It lists adapters with requests, not adapters that are loaded. vLLM 0.32 repeats the running ones as waiting, and an
//! adapter whose requests all wait is in neither list. So take the union of both for the active ones, and do not read
//! *waiting here* out of the second.

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::answer::{refusal, short};
use super::gauge::{Gauge, WalkedPage};
use super::prometheus::{Sample, Selector};
use super::{Endpoint, model_list};
use crate::status::{Adapters, Health, Report, Signal};
use crate::upstream::Models;

/// Under which names vLLM's metrics are looked for.
///
/// Each signal has names in the order of preference: the first that the page has is read. A signal without names is
/// not looked for, and then its absence is not degraded.
///
/// Put into the extensions of an [`UpstreamSpec`](crate::upstream::UpstreamSpec), they are what polls of that upstream
/// look for; without them it is the default.
///
/// ```
/// use paddler_core::source::prometheus::Selector;
/// use paddler_core::source::vllm::{VllmNames, read_metrics};
/// use paddler_core::status::Report;
///
/// let names = VllmNames { waiting: vec![Selector::new("my:queue")], ..VllmNames::none() };
/// let mut report = Report::new();
/// read_metrics(200, b"my:queue 3\n", &names, &mut report);
/// assert_eq!((report.waiting, report.running), (Some(3), None));
/// assert!(report.degraded.is_empty());
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VllmNames {
    /// Requests that the engine works on.
    pub running: Vec<Selector>,
    /// Requests that wait.
    pub waiting: Vec<Selector>,
    /// Share of the KV cache in use, 0 to 1.
    pub kv: Vec<Selector>,
    /// Adapters with requests, in the labels `running_lora_adapters`, `waiting_lora_adapters`, `active_adapters` (the
    /// oldest name, read as running) and `max_lora`; the value is the time of the last change.
    pub lora: Vec<Selector>,
    /// Whether it is degraded when the page has none of the `lora` metrics. vLLM has them only if it was started with
    /// `--enable-lora`.
    pub lora_expected: bool,
}

impl VllmNames {
    /// No names: nothing is looked for. A start for names of one's own.
    pub fn none() -> Self {
        Self {
            running: Vec::new(),
            waiting: Vec::new(),
            kv: Vec::new(),
            lora: Vec::new(),
            lora_expected: false,
        }
    }
}

impl Default for VllmNames {
    /// The names of vLLM itself, those of older versions last; adapters are not expected.
    fn default() -> Self {
        let names = |names: &[&str]| names.iter().copied().map(Selector::new).collect();
        Self {
            running: names(&["vllm:num_requests_running"]),
            waiting: names(&["vllm:num_requests_waiting"]),
            kv: names(&["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"]),
            lora: names(&["vllm:lora_requests_info", "vllm:info_active_adapters_info"]),
            lora_expected: false,
        }
    }
}

/// Reads `GET /health` into [`Report::health`]: ready, or failing (any 5xx). Any other answer is degraded.
pub fn read_health(status: u16, body: &[u8], report: &mut Report) {
    match status {
        200 => report.health = Some(Health::Ready),
        500.. => report.health = Some(Health::Failing),
        _ => report.degrade(Signal::Health, Endpoint::Health.path(), refusal(status, body)),
    }
}

/// Reads `GET /v1/models` into [`Report::models`]: the model under each of its names, and its adapters with it as
/// their parent; and the context of [`Report::abilities`].
pub fn read_models(status: u16, body: &[u8], report: &mut Report) {
    let models = if status == 200 {
        model_list::read(body)
    } else {
        Err(refusal(status, body))
    };
    match models {
        Ok(models) => {
            report.models = Some(Models::Listed(models));
            report.abilities = model_list::abilities(body);
        }
        Err(found) => report.degrade(Signal::Models, Endpoint::Models.path(), found),
    }
}

/// Reads `GET /metrics` into [`Report::running`], [`Report::waiting`], [`Report::kv_cache_usage`] and
/// [`Report::adapters`]. Each is read on its own: one that is missing, or whose value cannot be, leaves the others as
/// they are.
///
/// ```
/// use paddler_core::source::vllm::{VllmNames, read_metrics};
/// use paddler_core::status::{Report, Signal};
///
/// let page = b"vllm:num_requests_running{engine=\"0\"} 4.0\n\
///              vllm:num_requests_running{engine=\"1\"} 2.0\n\
///              vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n";
/// let mut report = Report::new();
/// read_metrics(200, page, &VllmNames::default(), &mut report);
/// assert_eq!((report.running, report.kv_cache_usage), (Some(6), Some(0.25)));
/// assert_eq!(report.waiting, None);
/// assert_eq!(report.degraded[0].signal, Signal::Waiting);
/// assert_eq!(report.degraded[0].found, "missing");
/// ```
pub fn read_metrics(status: u16, body: &[u8], names: &VllmNames, report: &mut Report) {
    if status == 200 {
        read_page(body, names, report);
    } else {
        refuse(&refusal(status, body), names, report);
    }
}

/// Says of all that was looked for that there is no page.
fn refuse(found: &str, names: &VllmNames, report: &mut Report) {
    let lora: &[Selector] = if names.lora_expected { &names.lora } else { &[] };
    let signals = [
        (Signal::Running, names.running.as_slice()),
        (Signal::Waiting, &names.waiting),
        (Signal::KvCache, &names.kv),
        (Signal::Adapters, lora),
    ];
    for (signal, names) in signals {
        if let Some(name) = names.first() {
            report.degrade(signal, name.to_string(), found);
        }
    }
}

fn read_page(page: &[u8], names: &VllmNames, report: &mut Report) {
    let mut running = Gauge::required(Signal::Running, &names.running);
    let mut waiting = Gauge::required(Signal::Waiting, &names.waiting);
    let mut kv_cache = Gauge::required(Signal::KvCache, &names.kv);
    let mut lora: Option<LoraSeries<'_>> = None;
    let all = [&names.running[..], &names.waiting, &names.kv, &names.lora];
    let page = WalkedPage::walk(page, &all, |sample| {
        running.offer(sample);
        waiting.offer(sample);
        kv_cache.offer(sample);
        if let Some(preference) = names.lora.iter().position(|name| name.matches(sample)) {
            let series = LoraSeries {
                preference,
                sample: *sample,
            };
            if lora.as_ref().is_none_or(|kept| series.replaces(kept)) {
                lora = Some(series);
            }
        }
    });
    report.running = running.count(&page, report).or(report.running);
    report.waiting = waiting.count(&page, report).or(report.waiting);
    report.kv_cache_usage = kv_cache.share(&page, report).or(report.kv_cache_usage);
    match (lora, names.lora.first()) {
        (Some(series), _) => report.adapters = Some(read_adapters(&series.sample, report)),
        (None, Some(name)) if names.lora_expected => {
            report.degrade(Signal::Adapters, name.to_string(), page.absence());
        }
        (None, _) => {}
    }
}

/// A series that tells of adapters.
struct LoraSeries<'a> {
    /// Its place among the names it may have; lower is preferred.
    preference: usize,
    sample: Sample<'a>,
}

impl LoraSeries<'_> {
    /// Whether this series, found later on the page, counts instead of `kept`.
    fn replaces(&self, kept: &Self) -> bool {
        let (new, old) = (self.sample.value, kept.sample.value);
        let newer = new > old || (old.is_nan() && !new.is_nan());
        self.preference < kept.preference || (self.preference == kept.preference && newer)
    }
}

fn read_adapters(series: &Sample<'_>, report: &mut Report) -> Adapters {
    let listed = |labels: &[&str]| names_in(labels.iter().find_map(|label| series.label(label)).as_deref());
    Adapters {
        max: read_max(series, report),
        running: listed(&["running_lora_adapters", "active_adapters"]),
        waiting: listed(&["waiting_lora_adapters"]),
    }
}

fn read_max(series: &Sample<'_>, report: &mut Report) -> Option<u32> {
    let text = series.label("max_lora")?;
    let max = text.trim().parse().ok();
    if max.is_none() {
        let expected = format!("{} max_lora", series.name);
        report.degrade(
            Signal::Adapters,
            expected,
            format!("not a count: {}", short(&text)),
        );
    }
    max
}

/// The names of a list with commas, each once.
fn names_in(list: Option<&str>) -> Vec<Arc<str>> {
    let mut seen = HashSet::new();
    let names = list.unwrap_or_default().split(',').map(str::trim);
    names
        .filter(|name| !name.is_empty() && seen.insert(*name))
        .map(Arc::from)
        .collect()
}
