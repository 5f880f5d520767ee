//! What does llama.cpp's page of metrics hold?

use http::{HeaderName, HeaderValue, StatusCode};

use crate::core::Core;
use crate::effects::Effects;
use crate::meters::Meters;
use crate::prometheus::{Numbers, Page};
use crate::reply::Reply;
use crate::schedule::Load;

/// Kind, name, help and value of a family.
type Family = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Load, &Meters) -> f64,
);

const FAMILIES: [Family; 15] = [
    (
        "counter",
        "prompt_tokens_total",
        "Prompt tokens processed",
        |_, m| m.prompt_tokens as f64,
    ),
    (
        "counter",
        "prompt_tokens_cached_total",
        "Prompt tokens taken from the cache",
        |_, _| 0.0,
    ),
    (
        "counter",
        "prompt_seconds_total",
        "Seconds spent on prompts",
        |_, m| m.prompt_seconds,
    ),
    ("counter", "tokens_predicted_total", "Tokens generated", |_, m| {
        m.generated_tokens as f64
    }),
    (
        "counter",
        "tokens_predicted_seconds_total",
        "Seconds of generating",
        |_, m| m.generation_seconds,
    ),
    ("counter", "n_decode_total", "Decode steps", |_, m| m.steps.ceil()),
    (
        "counter",
        "n_tokens_max",
        "Longest sequence, in tokens",
        |_, m| m.longest_sequence as f64,
    ),
    (
        "counter",
        "spec_decode_num_draft_tokens_total",
        "Speculative: tokens drafted",
        |_, _| 0.0,
    ),
    (
        "counter",
        "spec_decode_num_accepted_tokens_total",
        "Speculative: tokens accepted",
        |_, _| 0.0,
    ),
    (
        "counter",
        "spec_decode_num_drafts_total",
        "Speculative: drafts verified",
        |_, _| 0.0,
    ),
    (
        "gauge",
        "prompt_tokens_seconds",
        "Prompt tokens in a second",
        prompt_rate,
    ),
    (
        "gauge",
        "predicted_tokens_seconds",
        "Generated tokens in a second",
        generation_rate,
    ),
    ("gauge", "requests_processing", "Requests in a slot", |load, _| {
        load.running as f64
    }),
    (
        "gauge",
        "requests_deferred",
        "Requests that wait for a slot",
        |load, _| load.waiting() as f64,
    ),
    (
        "gauge",
        "n_busy_slots_per_decode",
        "Busy slots in a decode step, on average",
        busy_slots,
    ),
];

fn prompt_rate(_: &Load, meters: &Meters) -> f64 {
    ratio(meters.prompt_tokens, meters.prompt_seconds)
}

fn generation_rate(_: &Load, meters: &Meters) -> f64 {
    ratio(meters.generated_tokens, meters.generation_seconds)
}

fn busy_slots(_: &Load, meters: &Meters) -> f64 {
    ratio(meters.generated_tokens, meters.steps)
}

fn ratio(amount: u64, over: f64) -> f64 {
    if over > 0.0 { amount as f64 / over } else { 0.0 }
}

pub(super) fn page(core: &Core, effects: &Effects) -> Reply {
    let (load, meters) = (core.scheduler.load(), core.scheduler.meters());
    let mut page = Page::new(Numbers::Short, effects);
    for (kind, name, help, value) in FAMILIES {
        page.family(
            kind,
            &format!("llamacpp:{name}"),
            help,
            &[(String::new(), value(&load, &meters))],
        );
    }
    Reply::new(StatusCode::OK, "text/plain; version=0.0.4", page.finish()).header(
        HeaderName::from_static("process-start-time-unix"),
        HeaderValue::from(core.clock.base()),
    )
}
