//! What can be seen from outside?
//!
//! [`Metrics`] are counted while requests go by, a [`MetricsPage`] puts them beside what is known of the upstreams, and
//! [`names`] is the one place where the families are named:
//!
//! | metric | kind | labels | says |
//! |---|---|---|---|
//! | `paddler_requests_total` | counter | `class, status` | Requests answered. |
//! | `paddler_refusals_total` | counter | `reason` | Requests answered here with an error. |
//! | `paddler_retries_total` | counter | `reason` | Requests sent again. |
//! | `paddler_retries_denied_total` | counter | `reason` | Requests that failed and were not sent again, by what forbade it. |
//! | `paddler_fallbacks_total` | counter | `model, to` | Requests answered by another model than their own: by the name whose rule says so, and the other. |
//! | `paddler_truncations_total` | counter | `reason` | Answers that were cut short. |
//! | `paddler_cancellations_total` | counter |  | Clients that left before the end of their answer. |
//! | `paddler_in_flight_requests` | gauge |  | Requests being handled, those that wait among them. |
//! | `paddler_first_byte_seconds` | histogram |  | Time from sending a request to the first byte of its answer. |
//! | `paddler_model_requests_total` | counter | `model, result` | Requests that ask a model for something, by what came of it: answered, refused (an error of ours or of the upstream), cut_short or left. |
//! | `paddler_request_seconds` | histogram | `model` | Time from a request's arrival to the last byte of its answer, of those that were answered. |
//! | `paddler_time_to_first_token_seconds` | histogram | `model` | Time from a request's arrival to the first byte of its answer, of those that are streamed. |
//! | `paddler_time_per_output_token_seconds` | histogram | `model, counted` | Time between two tokens of a streamed answer, its mean. By tokens, where answers are read for them; else by pieces as they came, which is more where several tokens came at once. |
//! | `paddler_prompt_tokens_total` | counter | `model` | Tokens of prompts, where answers are read for them. |
//! | `paddler_output_tokens_total` | counter | `model` | Tokens of answers, where these are read for them. |
//! | `paddler_pick_seconds` | histogram |  | Time that it takes to walk the tree and reserve a place, of one walk in 64. |
//! | `paddler_tree_node_walks_total` | counter | `node, title, event` | Walks through the tree in force, by node: entered; emptied, failed (its filter left nobody, or could not judge); picked, ended (the walk ended there, with a pick or without). |
//! | `paddler_waiting_requests` | gauge | `priority` | Requests waiting for a place. |
//! | `paddler_oldest_wait_seconds` | gauge | `priority` | How long the first of those who wait has waited. |
//! | `paddler_wait_seconds` | histogram | `priority` | Time from a request's arrival to its place. |
//! | `paddler_evictions_total` | counter | `priority` | Requests that waited and were refused when the queue was full, since others came first. |
//! | `paddler_buffered_bytes` | gauge |  | Bodies of requests that are kept, to be sent or to be sent again. |
//! | `paddler_settling_weight` | gauge |  | Weight still reserved for requests that have ended here and perhaps not yet at their engine. |
//! | `paddler_snapshot_age_seconds` | gauge |  | Age of what picks go by. Where upstreams are polled it stays small; if it grows, nothing updates it. |
//! | `paddler_pool_panic` | gauge |  | 1 while every upstream that could serve some model is out for its faults, so that none of those is left out. |
//! | `paddler_pool_panics_total` | counter |  | Times that all who could serve some model were out, so that none of those was left out. |
//! | `paddler_ejections_total` | counter | `cause` | Times that an upstream was left out, by cause. |
//! | `paddler_ejections_spared_total` | counter |  | Times that an upstream was not left out for its faults, since the largest share of those with the same model was out already. |
//! | `paddler_upstream_able` | gauge | `upstream` | 1 unless it is known to be unable to serve. |
//! | `paddler_upstream_draining` | gauge | `upstream` | 1 while it gets nothing new. |
//! | `paddler_upstream_ejected` | gauge | `upstream` | 1 while it is left out for its faults. |
//! | `paddler_upstream_probing` | gauge | `upstream` | 1 while it gets one request at a time, to see whether it answers. |
//! | `paddler_upstream_warming` | gauge | `upstream` | 1 while its limit grows, after it has come or come back. |
//! | `paddler_upstream_last_resort` | gauge | `upstream` | 1 while it is left out and gets all the same what nobody else could serve. |
//! | `paddler_upstream_paused` | gauge | `upstream` | 1 while it gets nothing new, as it has asked by Retry-After. |
//! | `paddler_upstream_held_back` | gauge | `upstream` | 1 while its room is held back for a request that needs more than is free. |
//! | `paddler_upstream_open_weight` | gauge | `upstream` | Weight of our own requests there, with what settles. |
//! | `paddler_upstream_limit_weight` | gauge | `upstream` | The most weight that may be open there. |
//! | `paddler_upstream_running_requests` | gauge | `upstream` | Requests it reports as running. |
//! | `paddler_upstream_waiting_requests` | gauge | `upstream` | Requests it reports as waiting. |
//! | `paddler_upstream_kv_cache_ratio` | gauge | `upstream` | Share of its KV cache in use, 0 to 1. |
//! | `paddler_upstream_report_age_seconds` | gauge | `upstream` | Time since it was asked for its last report. |
//! | `paddler_upstream_failed_polls` | gauge | `upstream` | Polls that have failed since its last report. |
//! | `paddler_upstream_signal_missing` | gauge | `upstream, signal, expected` | 1 for each signal that it should give and does not: it counts as unknown. |
//! | `paddler_config_reloads_total` | counter | `result` | Times that the config was read again: success or failure. |
//! | `paddler_config_age_seconds` | gauge |  | Time since the config in force was read. |
//! | `paddler_config_stale` | gauge |  | 1 while what was last read has a fault, and the config before it stays in force. |
//! | `paddler_telemetry_lost_total` | counter | `to` | Lines of the access log (access_log) and spans (otlp) that were lost, since whoever takes them does not, or not as fast as they come. |
//!
//! `priority` is `high`, `standard` or `sheddable`. An autoscaler goes by `paddler_waiting_requests`, or by
//! `paddler_oldest_wait_seconds` where a few long waits are worse than many short ones; it can leave out what is sheddable.
//!
//! What is not known has no series: a missing signal is never a zero. The series of an upstream end when it leaves.
//! No label holds anything that came with a request: `model` is a name that an upstream has, as it was told or as the config says
//! (the first 256 of them since the start; of fallbacks, the first 256 pairs), and `other` is all else, requests without a model among it.
//!
//! # What each signal is for
//!
//! | you ask | go by |
//! |---|---|
//! | Is it well? Is there room? Since when is it slow? | these figures: each is a sum over requests, cheap to keep and to alarm by. A board and alerts for them stand in `examples/observe` |
//! | What became of this request, of this client? | the access log, a line a request: `export::AccessLog` (feature `export`) |
//! | Where did the time of this request go, here and in what it went through? | spans: `export::Otlp` |
//! | Why did it go there? | [`Router::explain`](crate::forward::Router::explain), or a [`Telemetry`] that asks for [`Detail`](crate::schedule::Detail) |
//! | Does what scales by Paddler 1.x go on? | its three gauges: `export::Statsd` |
//!
//! All but the figures are fed by the [`Trail`] of each request, as a [`Telemetry`] gets it; a host adds its own. None of them
//! holds up a request: what cannot be taken in time is lost, and `paddler_telemetry_lost_total` counts it.
//!
//! # Which time is which
//!
//! ```text
//! arrival        read            place found, sent      head     first byte                   last byte
//!    |------------|----- wait ------------|---------------|----------|------ output tokens -------|
//!    |            |                       |------ first byte --------|                            |
//!    |------------ time to first token (streams) --------------------|                            |
//!    |------------------------------------ request ----------------------------------------------|
//! ```
//!
//! Time to first token is counted for streams alone: any other answer comes as a whole, and its first byte says nothing of the
//! first token. Time per output token is that from the first byte to the last, over the tokens after the first. Where answers are
//! read for the tokens they use (somebody is charged for them, or `count_tokens: always`) it is by those, and has
//! `counted="tokens"`; elsewhere it is by pieces as they came, which is the same for an engine that sends each token by itself.
//!
//! # By other names
//!
//! | Gateway API Inference Extension | OpenTelemetry, GenAI | here |
//! |---|---|---|
//! | `inference_objective_request_total`, `_error_total` | | `paddler_model_requests_total` |
//! | `inference_objective_request_duration_seconds` | `gen_ai.server.request.duration` | `paddler_request_seconds` |
//! | `inference_objective_request_ttft_seconds` | `gen_ai.server.time_to_first_token` | `paddler_time_to_first_token_seconds` |
//! | `inference_objective_normalized_time_per_output_token_seconds` | `gen_ai.server.time_per_output_token` | `paddler_time_per_output_token_seconds` |
//! | `inference_objective_input_tokens`, `_output_tokens` | | `paddler_prompt_tokens_total`, `paddler_output_tokens_total` |
//! | `inference_pool_average_kv_cache_utilization`, `_average_queue_size` | | averages of `paddler_upstream_kv_cache_ratio`, `paddler_upstream_waiting_requests` |
//! | `inference_extension_scheduler_e2e_duration_seconds` | | `paddler_pick_seconds` |
//! | `inference_extension_flow_control_queue_size`, `_request_queue_duration_seconds` | | `paddler_waiting_requests`, `paddler_wait_seconds` |
//!
//! Theirs of time per output token is divided by all tokens and has the wait in it; ours begins with the first byte.

#[cfg(feature = "export")]
pub mod export;
mod histogram;
mod metrics;
mod models;
pub mod names;
mod page;
mod state;
mod telemetry;
mod upstreams;
mod walks;

pub use metrics::{InFlight, Metrics};
pub(crate) use models::Measured;
pub use page::MetricsPage;
pub(crate) use telemetry::guarded;
pub use telemetry::{End, PassedOver, Telemetries, Telemetry, TraceSpan, Trail, TrailAttempt, Why};
pub use upstreams::{ServiceStatus, UpstreamStatus};
pub(crate) use walks::Walks;

#[cfg(test)]
mod tests {
    use super::names::{ALL, Family, Kind};

    #[test]
    fn the_table_above_lists_every_family() {
        let listed: Vec<_> = include_str!("mod.rs")
            .lines()
            .filter(|line| line.starts_with("//! | `paddler_"))
            .collect();
        let row = |family: &Family| {
            let labels = match family.labels {
                [] => String::new(),
                labels => format!("`{}`", labels.join(", ")),
            };
            let (name, kind, help) = (family.name, family.kind.as_str(), family.help);
            format!("//! | `{name}` | {kind} | {labels} | {help} |")
        };
        assert_eq!(listed, ALL.iter().map(row).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_named_above_exists() {
        let text = include_str!("mod.rs");
        let (docs, _) = text.split_once("\nmod ").unwrap();
        let words = docs.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let named: Vec<_> = words.filter(|word| word.starts_with("paddler_")).collect();
        assert!(named.len() > ALL.len());
        for name in named {
            assert!(
                ALL.iter().any(|family| family.name == name) || name == "paddler_",
                "{name}"
            );
        }
    }

    #[test]
    fn names_follow_one_rule() {
        let units = ["requests", "seconds", "bytes", "weight", "ratio", "polls"];
        let truths = [
            "able", "draining", "missing", "stale", "panic", "ejected", "resort", "probing", "warming",
            "paused", "back",
        ];
        for family in ALL {
            let name = family.name.strip_prefix("paddler_").unwrap();
            let (name, total) = name
                .strip_suffix("_total")
                .map_or((name, false), |name| (name, true));
            assert_eq!(total, family.kind == Kind::Counter, "{name}");
            let last = name.rsplit('_').next().unwrap();
            assert!(total || units.contains(&last) || truths.contains(&last), "{name}");
            assert!(
                family.help.ends_with('.') && !family.help.contains(['\\', '\n']),
                "{name}"
            );
        }
    }
}
