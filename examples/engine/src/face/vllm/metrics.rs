//! What does vLLM's page of metrics hold?

use http::StatusCode;

use crate::core::Core;
use crate::effects::Effects;
use crate::meters::Meters;
use crate::prometheus::{Histogram, Numbers, Page, label};
use crate::reply::Reply;
use crate::schedule::{Finish, Load};

/// Name, help and value of a counter.
type Counter = (&'static str, &'static str, fn(&Meters) -> f64);

const COUNTERS: [Counter; 10] = [
    (
        "prefix_cache_queries_total",
        "Tokens looked up in the prefix cache.",
        |m| m.prompt_tokens as f64,
    ),
    (
        "prefix_cache_hits_total",
        "Tokens found in the prefix cache.",
        |_| 0.0,
    ),
    (
        "external_prefix_cache_queries_total",
        "Tokens looked up in an external cache.",
        |_| 0.0,
    ),
    (
        "external_prefix_cache_hits_total",
        "Tokens found in an external cache.",
        |_| 0.0,
    ),
    (
        "mm_cache_queries_total",
        "Items looked up in the multi-modal cache.",
        |_| 0.0,
    ),
    (
        "mm_cache_hits_total",
        "Items found in the multi-modal cache.",
        |_| 0.0,
    ),
    ("num_preemptions_total", "Preemptions.", |m| m.preemptions as f64),
    ("prompt_tokens_total", "Prefill tokens processed.", |m| {
        m.prompt_tokens as f64
    }),
    (
        "prompt_tokens_cached_total",
        "Prompt tokens taken from a cache.",
        |_| 0.0,
    ),
    ("generation_tokens_total", "Tokens generated.", |m| {
        m.generated_tokens as f64
    }),
];

/// Name, help and content of a histogram.
type Timed = (&'static str, &'static str, fn(&Meters) -> &Histogram);

const HISTOGRAMS: [Timed; 10] = [
    ("request_prompt_tokens", "Prefill tokens of a request.", |m| {
        &m.task_prompt_tokens
    }),
    (
        "request_generation_tokens",
        "Generated tokens of a request.",
        |m| &m.task_generated_tokens,
    ),
    ("time_to_first_token_seconds", "Time to the first token.", |m| {
        &m.first_token
    }),
    ("inter_token_latency_seconds", "Time between two tokens.", |m| {
        &m.next_token
    }),
    (
        "request_time_per_output_token_seconds",
        "Time of a token, by request.",
        |m| &m.per_output_token,
    ),
    ("e2e_request_latency_seconds", "Time of a request.", |m| &m.whole),
    ("request_queue_time_seconds", "Time in the queue.", |m| {
        &m.in_queue
    }),
    ("request_inference_time_seconds", "Time in the batch.", |m| {
        &m.running
    }),
    ("request_prefill_time_seconds", "Time of the prefill.", |m| {
        &m.prefill
    }),
    ("request_decode_time_seconds", "Time of the decoding.", |m| {
        &m.decode
    }),
];

/// A page under way, with the labels that nearly all samples have.
struct Writer<'a> {
    page: Page<'a>,
    model: String,
}

impl Writer<'_> {
    fn one(&mut self, kind: &str, name: &str, help: &str, value: f64) {
        let labels = format!("engine=\"0\",{}", self.model);
        self.page
            .family(kind, &format!("vllm:{name}"), help, &[(labels, value)]);
    }

    /// A family with one more label, whose name sorts behind `model_name`.
    fn by(&mut self, kind: &str, name: &str, help: &str, by: &str, samples: &[(&str, f64)]) {
        let labels = |value: &str| format!("engine=\"0\",{},{}", self.model, label(by, value));
        let samples: Vec<_> = samples
            .iter()
            .map(|(value, amount)| (labels(value), *amount))
            .collect();
        self.page.family(kind, &format!("vllm:{name}"), help, &samples);
    }
}

pub(super) fn page(core: &Core, effects: &Effects) -> Reply {
    let (load, meters) = (core.scheduler.load(), core.scheduler.meters());
    let page = Page::new(Numbers::Float, effects);
    let mut writer = Writer {
        page,
        model: label("model_name", &core.config.model),
    };
    gauges(&mut writer, core, &load);
    counters(&mut writer, &meters);
    histograms(&mut writer, &meters);
    information(&mut writer, core);
    Reply::new(
        StatusCode::OK,
        "text/plain; version=1.0.0; charset=utf-8",
        writer.page.finish(),
    )
}

fn gauges(writer: &mut Writer<'_>, core: &Core, load: &Load) {
    let usage = load.used_blocks as f64 / core.config.num_gpu_blocks as f64;
    writer.one(
        "gauge",
        "num_requests_running",
        "Requests in the batch.",
        load.running as f64,
    );
    writer.one(
        "gauge",
        "num_requests_waiting",
        "Requests that wait to be processed.",
        load.waiting() as f64,
    );
    let reasons = [
        ("capacity", load.waiting_for_capacity as f64),
        ("deferred", load.waiting_for_adapter as f64),
    ];
    let help = "Waiting requests: for capacity, or deferred for an adapter.";
    writer.by(
        "gauge",
        "num_requests_waiting_by_reason",
        help,
        "reason",
        &reasons,
    );
    let states = [("awake", 1.0), ("weights_offloaded", 0.0), ("discard_all", 0.0)];
    writer.by(
        "gauge",
        "engine_sleep_state",
        "Whether the engine sleeps.",
        "sleep_state",
        &states,
    );
    writer.one(
        "gauge",
        "kv_cache_usage_perc",
        "KV-cache usage; 1 is all of it.",
        usage,
    );
}

fn counters(writer: &mut Writer<'_>, meters: &Meters) {
    for (name, help, value) in COUNTERS {
        writer.one("counter", name, help, value(meters));
    }
    let local = meters.prompt_tokens as f64;
    let sources = [
        ("local_compute", local),
        ("local_cache_hit", 0.0),
        ("external_kv_transfer", 0.0),
    ];
    writer.by(
        "counter",
        "prompt_tokens_by_source_total",
        "Prompt tokens by source.",
        "source",
        &sources,
    );
    let finishes = [
        ("stop", Finish::Stop),
        ("length", Finish::Length),
        ("abort", Finish::Abort),
    ];
    let sample = |(reason, finish): (&str, Finish)| {
        let labels = format!(
            "engine=\"0\",{},{}",
            label("finished_reason", reason),
            writer.model
        );
        (labels, meters.ended(finish) as f64)
    };
    let samples = finishes.map(sample);
    writer.page.family(
        "counter",
        "vllm:request_success_total",
        "Requests processed.",
        &samples,
    );
    let labels = format!("{},reason=\"max_num_queued_reqs\"", writer.model);
    let help = "Requests refused because of a limit of the queue.";
    writer.page.family(
        "counter",
        "vllm:admission_rejections_total",
        help,
        &[(labels, meters.rejected as f64)],
    );
}

fn histograms(writer: &mut Writer<'_>, meters: &Meters) {
    for (name, help, histogram) in HISTOGRAMS {
        writer
            .page
            .histogram(&format!("vllm:{name}"), help, &writer.model, histogram(meters));
    }
}

/// Families whose value is less than their labels.
fn information(writer: &mut Writer<'_>, core: &Core) {
    if core.config.max_loras > 0 {
        let series: Vec<_> = core
            .scheduler
            .adapter_series()
            .into_iter()
            .map(|(running, waiting, at)| {
                let most = core.config.max_loras;
                let running = label("running_lora_adapters", &running);
                (
                    format!(
                        "max_lora=\"{most}\",{running},{}",
                        label("waiting_lora_adapters", &waiting)
                    ),
                    at,
                )
            })
            .collect();
        let help = "Adapters that run and wait; the series with the highest value is the current one.";
        writer
            .page
            .family("gauge", "vllm:lora_requests_info", help, &series);
    }
    let (blocks, size) = (core.config.num_gpu_blocks, core.config.block_size);
    let tokens = blocks.saturating_mul(size);
    let labels = format!(
        "block_size=\"{size}\",cache_dtype=\"auto\",enable_prefix_caching=\"False\",engine=\"0\",\
         gpu_memory_utilization=\"0.92\",kv_cache_size_tokens=\"{tokens}\",num_gpu_blocks=\"{blocks}\",\
         num_gpu_blocks_override=\"None\""
    );
    writer.page.family(
        "gauge",
        "vllm:cache_config_info",
        "How the KV cache is set up.",
        &[(labels, 1.0)],
    );
}
