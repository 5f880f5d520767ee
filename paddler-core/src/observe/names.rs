//! Under which names can it be seen?
//!
//! Every metric is named `paddler_<noun>_<unit>`, and a counter `_total` after that. What is one or zero has no unit.

/// How the samples of a family are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It only grows, until a restart.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How many were at most so large, by size.
    Histogram,
}

impl Kind {
    /// The word that Prometheus has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric, with all its series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// How its samples are to be read.
    pub kind: Kind,
    /// The labels that tell its series apart.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

macro_rules! families {
    ($($family:ident: $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(
            #[doc = $help]
            pub const $family: Family =
                Family { name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help };
        )+

        /// Every family, in the order of the page.
        pub const ALL: &[Family] = &[$($family),+];
    };
}

families! {
    REQUESTS: Counter "paddler_requests_total" ["class", "status"] "Requests answered.";
    REFUSALS: Counter "paddler_refusals_total" ["reason"] "Requests answered here with an error.";
    RETRIES: Counter "paddler_retries_total" ["reason"] "Requests sent again.";
    RETRIES_DENIED: Counter "paddler_retries_denied_total" ["reason"]
        "Requests that failed and were not sent again, by what forbade it.";
    FALLBACKS: Counter "paddler_fallbacks_total" ["model", "to"]
        "Requests answered by another model than their own: by the name whose rule says so, and the other.";
    TRUNCATIONS: Counter "paddler_truncations_total" ["reason"] "Answers that were cut short.";
    CANCELLATIONS: Counter "paddler_cancellations_total" [] "Clients that left before the end of their answer.";
    IN_FLIGHT: Gauge "paddler_in_flight_requests" [] "Requests being handled, those that wait among them.";
    FIRST_BYTE: Histogram "paddler_first_byte_seconds" []
        "Time from sending a request to the first byte of its answer.";
    MODEL_REQUESTS: Counter "paddler_model_requests_total" ["model", "result"]
        "Requests that ask a model for something, by what came of it: answered, refused (an error of ours or of the upstream), cut_short or left.";
    DURATION: Histogram "paddler_request_seconds" ["model"]
        "Time from a request's arrival to the last byte of its answer, of those that were answered.";
    FIRST_TOKEN: Histogram "paddler_time_to_first_token_seconds" ["model"]
        "Time from a request's arrival to the first byte of its answer, of those that are streamed.";
    OUTPUT_TOKEN: Histogram "paddler_time_per_output_token_seconds" ["model", "counted"]
        "Time between two tokens of a streamed answer, its mean. By tokens, where answers are read for them; else by pieces as they came, which is more where several tokens came at once.";
    PROMPT_TOKENS: Counter "paddler_prompt_tokens_total" ["model"] "Tokens of prompts, where answers are read for them.";
    OUTPUT_TOKENS: Counter "paddler_output_tokens_total" ["model"] "Tokens of answers, where these are read for them.";
    PICK: Histogram "paddler_pick_seconds" [] "Time that it takes to walk the tree and reserve a place, of one walk in 64.";
    NODE_WALKS: Counter "paddler_tree_node_walks_total" ["node", "title", "event"]
        "Walks through the tree in force, by node: entered; emptied, failed (its filter left nobody, or could not judge); picked, ended (the walk ended there, with a pick or without).";
    WAITING: Gauge "paddler_waiting_requests" ["priority"] "Requests waiting for a place.";
    OLDEST_WAIT: Gauge "paddler_oldest_wait_seconds" ["priority"] "How long the first of those who wait has waited.";
    WAIT: Histogram "paddler_wait_seconds" ["priority"] "Time from a request's arrival to its place.";
    EVICTIONS: Counter "paddler_evictions_total" ["priority"]
        "Requests that waited and were refused when the queue was full, since others came first.";
    BUFFERED: Gauge "paddler_buffered_bytes" [] "Bodies of requests that are kept, to be sent or to be sent again.";
    SETTLING: Gauge "paddler_settling_weight" []
        "Weight still reserved for requests that have ended here and perhaps not yet at their engine.";
    SNAPSHOT_AGE: Gauge "paddler_snapshot_age_seconds" []
        "Age of what picks go by. Where upstreams are polled it stays small; if it grows, nothing updates it.";
    PANIC: Gauge "paddler_pool_panic" [] "1 while every upstream that could serve some model is out for its faults, so that none of those is left out.";
    PANICS: Counter "paddler_pool_panics_total" [] "Times that all who could serve some model were out, so that none of those was left out.";
    EJECTIONS: Counter "paddler_ejections_total" ["cause"] "Times that an upstream was left out, by cause.";
    SPARED: Counter "paddler_ejections_spared_total" []
        "Times that an upstream was not left out for its faults, since the largest share of those with the same model was out already.";
    ABLE: Gauge "paddler_upstream_able" ["upstream"] "1 unless it is known to be unable to serve.";
    DRAINING: Gauge "paddler_upstream_draining" ["upstream"] "1 while it gets nothing new.";
    EJECTED: Gauge "paddler_upstream_ejected" ["upstream"] "1 while it is left out for its faults.";
    PROBING: Gauge "paddler_upstream_probing" ["upstream"] "1 while it gets one request at a time, to see whether it answers.";
    WARMING: Gauge "paddler_upstream_warming" ["upstream"] "1 while its limit grows, after it has come or come back.";
    LAST_RESORT: Gauge "paddler_upstream_last_resort" ["upstream"] "1 while it is left out and gets all the same what nobody else could serve.";
    PAUSED: Gauge "paddler_upstream_paused" ["upstream"] "1 while it gets nothing new, as it has asked by Retry-After.";
    HELD_BACK: Gauge "paddler_upstream_held_back" ["upstream"] "1 while its room is held back for a request that needs more than is free.";
    OPEN: Gauge "paddler_upstream_open_weight" ["upstream"] "Weight of our own requests there, with what settles.";
    LIMIT: Gauge "paddler_upstream_limit_weight" ["upstream"] "The most weight that may be open there.";
    RUNNING: Gauge "paddler_upstream_running_requests" ["upstream"] "Requests it reports as running.";
    QUEUED: Gauge "paddler_upstream_waiting_requests" ["upstream"] "Requests it reports as waiting.";
    KV_CACHE: Gauge "paddler_upstream_kv_cache_ratio" ["upstream"] "Share of its KV cache in use, 0 to 1.";
    REPORT_AGE: Gauge "paddler_upstream_report_age_seconds" ["upstream"] "Time since it was asked for its last report.";
    FAILED_POLLS: Gauge "paddler_upstream_failed_polls" ["upstream"] "Polls that have failed since its last report.";
    SIGNAL_MISSING: Gauge "paddler_upstream_signal_missing" ["upstream", "signal", "expected"]
        "1 for each signal that it should give and does not: it counts as unknown.";
    CONFIG_RELOADS: Counter "paddler_config_reloads_total" ["result"] "Times that the config was read again: success or failure.";
    CONFIG_AGE: Gauge "paddler_config_age_seconds" [] "Time since the config in force was read.";
    CONFIG_STALE: Gauge "paddler_config_stale" [] "1 while what was last read has a fault, and the config before it stays in force.";
    TELEMETRY_LOST: Counter "paddler_telemetry_lost_total" ["to"]
        "Lines of the access log (access_log) and spans (otlp) that were lost, since whoever takes them does not, or not as fast as they come.";
}
