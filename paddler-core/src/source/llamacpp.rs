//! How does llama.cpp's `llama-server` say how it is?
//!
//! A server has a fixed number of slots, each for one request at a time; what finds no free slot is *deferred*, which
//! is its queue. While the model loads, every path answers 503 "Loading model": each reader takes that for
//! [`Health::Loading`] and calls nothing degraded, since there is nothing to say yet.
//!
//! A server in router mode starts others, one for each model, and tells no slots of its own: only what we send there ourselves is
//! known of its load.
//!
//! `/slots` is on unless the server was started with `--no-slots`; `/metrics` is off unless it was started with
//! `--metrics`. With a key set, all but `/health` want it.

use serde::Deserialize;

use super::Endpoint;
use super::answer::{is_loading, is_router_mode, json, refusal};
use super::gauge::{Gauge, WalkedPage};
use super::model_list;
use super::prometheus::Selector;
use crate::status::{Health, Report, Signal};
use crate::upstream::Models;

/// The metric for [`Report::running`].
pub const RUNNING: &str = "llamacpp:requests_processing";
/// The metric for [`Report::waiting`].
pub const WAITING: &str = "llamacpp:requests_deferred";
/// The metric for [`Report::kv_cache_usage`], which only older generations export.
pub const KV_CACHE: &str = "llamacpp:kv_cache_usage_ratio";

/// The highest `state` that older generations gave a slot. All but 0 belong to a request.
const LAST_STATE: u64 = 4;

/// Reads `GET /health` into [`Report::health`]: ready, loading, or failing (any other 5xx). Any other answer is
/// degraded.
pub fn read_health(status: u16, body: &[u8], report: &mut Report) {
    match status {
        200 => report.health = Some(Health::Ready),
        _ if is_loading(status, body) => report.health = Some(Health::Loading),
        500.. => report.health = Some(Health::Failing),
        _ => report.degrade(Signal::Health, Endpoint::Health.path(), refusal(status, body)),
    }
}

/// Reads `GET /slots` into [`Report::slots_total`] and [`Report::slots_busy`]: both or, when one slot cannot be read,
/// neither. The longest slot is the context of [`Report::abilities`].
///
/// ```
/// use paddler_core::source::llamacpp::read_slots;
/// use paddler_core::status::Report;
///
/// let mut report = Report::new();
/// read_slots(501, br#"{"error":{"code":501,"message":"..."}}"#, &mut report);
/// assert_eq!(report.slots_total, None);
/// assert_eq!(report.degraded[0].found, "501: not supported, start it with --slots");
/// ```
pub fn read_slots(status: u16, body: &[u8], report: &mut Report) {
    let expected = Endpoint::Slots.path();
    if !accepted(status, body, "--slots", &[(Signal::Slots, expected)], report) {
        return;
    }
    match count_slots(body) {
        Ok(Counted { total, busy, context }) => {
            report.slots_total = Some(total);
            report.slots_busy = Some(busy);
            report.abilities.context = context;
        }
        Err(found) => report.degrade(Signal::Slots, expected, found),
    }
}

/// What is read of a slot.
#[derive(Deserialize)]
struct Slot {
    is_processing: Option<bool>,
    /// What older generations had instead.
    state: Option<u64>,
    /// How many tokens fit, prompt and answer.
    n_ctx: Option<u32>,
}

/// What all slots come to.
struct Counted {
    total: u32,
    busy: u32,
    /// The longest, where each one tells.
    context: Option<u32>,
}

impl Slot {
    fn is_busy(&self) -> Option<bool> {
        let by_state = || {
            self.state
                .filter(|state| *state <= LAST_STATE)
                .map(|state| state != 0)
        };
        self.is_processing.or_else(by_state)
    }
}

fn count_slots(body: &[u8]) -> Result<Counted, String> {
    let slots: Vec<Slot> = json(body)?;
    if slots.is_empty() {
        return Err("an empty list".to_owned());
    }
    let mut busy = 0;
    for (at, slot) in slots.iter().enumerate() {
        match slot.is_busy() {
            Some(is_busy) => busy += u32::from(is_busy),
            None => {
                return Err(format!(
                    "unknown shape: slot {at} does not say whether it is busy"
                ));
            }
        }
    }
    let total = u32::try_from(slots.len()).map_err(|_| "too many slots".to_owned())?;
    let contexts: Option<Vec<_>> = slots.iter().map(|slot| slot.n_ctx).collect();
    let longest = contexts.and_then(|contexts| contexts.into_iter().max());
    Ok(Counted {
        total,
        busy,
        context: longest.filter(|tokens| *tokens > 0),
    })
}

/// Reads `GET /props` for [`Report::slots_total`], and the context of [`Report::abilities`], where `/slots` has not told it: ask [`read_slots`] first. How many
/// slots are busy is not in there.
pub fn read_props(status: u16, body: &[u8], report: &mut Report) {
    #[derive(Deserialize)]
    struct Props {
        total_slots: Option<u32>,
        role: Option<String>,
        default_generation_settings: Option<Slot>,
    }

    if report.slots_total.is_some() {
        return;
    }
    const EXPECTED: &str = "/props total_slots";
    if !accepted(status, body, "--props", &[(Signal::Slots, EXPECTED)], report) {
        return;
    }
    let props = json::<Props>(body);
    if props
        .as_ref()
        .is_ok_and(|props| props.role.as_deref() == Some("router"))
    {
        return;
    }
    match props.map(|props| (props.total_slots, props.default_generation_settings)) {
        Ok((Some(total @ 1..), slot)) => {
            report.slots_total = Some(total);
            report.abilities.context = slot.and_then(|slot| slot.n_ctx).filter(|tokens| *tokens > 0);
        }
        Ok((Some(0), _)) => report.degrade(Signal::Slots, EXPECTED, "0"),
        Ok((None, _)) => report.degrade(Signal::Slots, EXPECTED, "missing"),
        Err(found) => report.degrade(Signal::Slots, EXPECTED, found),
    }
}

/// Reads `GET /v1/models` into [`Report::models`]: ids and aliases; and whether it takes images and sounds into
/// [`Report::abilities`].
///
/// A server with one model answers for any name that it is asked for; the list says which model that would be.
pub fn read_models(status: u16, body: &[u8], report: &mut Report) {
    let expected = Endpoint::Models.path();
    if !accepted(status, body, "", &[(Signal::Models, expected)], report) {
        return;
    }
    match model_list::read_either(body) {
        Ok(models) => {
            report.models = Some(Models::Listed(models));
            report.abilities.can = model_list::abilities(body).can;
        }
        Err(found) => report.degrade(Signal::Models, expected, found),
    }
}

/// Reads `GET /metrics` into [`Report::running`] and [`Report::waiting`], and of older generations also
/// [`Report::kv_cache_usage`], whose absence is not degraded.
///
/// ```
/// use paddler_core::source::llamacpp::read_metrics;
/// use paddler_core::status::{Report, Signal};
///
/// let mut report = Report::new();
/// read_metrics(200, b"llamacpp:requests_processing 4\n", &mut report);
/// assert_eq!((report.running, report.waiting), (Some(4), None));
/// assert_eq!(report.degraded[0].signal, Signal::Waiting);
/// assert_eq!(report.degraded[0].expected, "llamacpp:requests_deferred");
/// ```
pub fn read_metrics(status: u16, body: &[u8], report: &mut Report) {
    let needed = [(Signal::Running, RUNNING), (Signal::Waiting, WAITING)];
    if !accepted(status, body, "--metrics", &needed, report) {
        return;
    }
    let names = [RUNNING, WAITING, KV_CACHE].map(|name| [Selector::new(name)]);
    let mut running = Gauge::required(Signal::Running, &names[0]);
    let mut waiting = Gauge::required(Signal::Waiting, &names[1]);
    let mut kv_cache = Gauge::optional(Signal::KvCache, &names[2]);
    let page = WalkedPage::walk(body, &[&names[0], &names[1], &names[2]], |sample| {
        running.offer(sample);
        waiting.offer(sample);
        kv_cache.offer(sample);
    });
    report.running = running.count(&page, report).or(report.running);
    report.waiting = waiting.count(&page, report).or(report.waiting);
    report.kv_cache_usage = kv_cache.share(&page, report).or(report.kv_cache_usage);
}

/// Reads `GET /lora-adapters` into [`Report::loaded_adapters`]: the names of the adapters that were loaded at the start,
/// each the file name without its ending, in the order of their ids.
///
/// They are not [`Report::adapters`]: requests choose adapters here by id in a field of their own, not by model name,
/// and the server runs all of them at once.
///
/// ```
/// use paddler_core::source::llamacpp::read_lora_adapters;
/// use paddler_core::status::Report;
///
/// let mut report = Report::new();
/// read_lora_adapters(200, br#"[{"id":0,"path":"/models/sql.v2.gguf","scale":1.0}]"#, &mut report);
/// assert_eq!(report.loaded_adapters, Some(vec!["sql.v2".into()]));
/// ```
pub fn read_lora_adapters(status: u16, body: &[u8], report: &mut Report) {
    #[derive(Deserialize)]
    struct Loaded {
        path: String,
    }

    let expected = Endpoint::LoraAdapters.path();
    if !accepted(status, body, "", &[(Signal::Adapters, expected)], report) {
        return;
    }
    match json::<Vec<Loaded>>(body) {
        Ok(loaded) => {
            let names = loaded.iter().map(|adapter| file_stem(&adapter.path).into());
            report.loaded_adapters = Some(names.collect());
        }
        Err(found) => report.degrade(Signal::Adapters, expected, found),
    }
}

/// The file name without its ending. The path is the server's, so it may be of another system than ours.
fn file_stem(path: &str) -> &str {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem,
        _ => name,
    }
}

/// Whether the answer is a 200. If not, it says into the report what that means for the signals it should have given;
/// `flag` is what turns the path on where it is off.
fn accepted(status: u16, body: &[u8], flag: &str, signals: &[(Signal, &str)], report: &mut Report) -> bool {
    if status == 200 {
        return true;
    }
    if is_loading(status, body) {
        report.health = Some(Health::Loading);
        return false;
    }
    if is_router_mode(status, body) {
        return false;
    }
    let found = if status == 501 && !flag.is_empty() {
        format!("501: not supported, start it with {flag}")
    } else {
        refusal(status, body)
    };
    for (signal, expected) in signals {
        report.degrade(*signal, *expected, found.as_str());
    }
    false
}
