//! How does Triton Inference Server say how it is?
//!
//! Its own API tells whether it is ready and which models are; its load stands on a page of metrics at a port of its own, 8002
//! unless [`metrics_url`](crate::upstream::UpstreamSpec::metrics_url) names another place. Requests that Triton itself holds
//! back are counted for any backend; those that run, and the KV cache, only the TensorRT-LLM backend tells.
//!
//! Its OpenAI-compatible frontend has other paths: there, health is that it lists its models, as OpenAI does.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::Endpoint;
use super::answer::{json, refusal};
use super::gauge::{Gauge, WalkedPage};
use super::prometheus::Selector;
use super::vllm::read_models;
use crate::status::{Health, Report, Signal};
use crate::upstream::{ModelEntry, Models};

/// The name that it gives itself in its metadata.
pub(super) const NAME: &str = "triton";

/// Whose models its OpenAI-compatible frontend says that they are.
pub(super) const OWNER: &str = "Triton Inference Server";

/// Reads `GET /v2/health/ready` into [`Report::health`]. 400 and 503 mean that it is there and its models are not ready. 404 says
/// nothing: its OpenAI-compatible frontend has no such path, nor has what is no Triton; [`read_frontend`] tells them apart.
pub fn read_ready(status: u16, body: &[u8], report: &mut Report) {
    report.health = match status {
        200 => Some(Health::Ready),
        404 => return,
        400 | 503 => Some(Health::Loading),
        500.. => Some(Health::Failing),
        _ => {
            report.degrade(Signal::Health, Endpoint::Ready.path(), refusal(status, body));
            return;
        }
    };
}

/// Reads `GET /v1/models` of one that has no `/v2/health/ready`, into [`Report::models`] and [`Report::health`]: a list is that of
/// its OpenAI-compatible frontend, which is ready then; whatever else answers is no Triton.
///
/// ```
/// use paddler_core::source::triton::{read_frontend, read_ready};
/// use paddler_core::status::{Health, Report};
///
/// let mut report = Report::new();
/// read_ready(404, b"", &mut report);
/// assert_eq!(report.health, None);
/// read_frontend(404, b"", &mut report);
/// assert_eq!(report.health, Some(Health::Failing));
/// ```
pub fn read_frontend(status: u16, body: &[u8], report: &mut Report) {
    read_models(status, body, report);
    if report.models.is_some() {
        report.health = Some(Health::Ready);
        return;
    }
    report.health = Some(Health::Failing);
    // Nobody need wait to hear which models it has.
    report.models = Some(Models::Listed(Vec::new()));
    let asked = [Endpoint::Ready, Endpoint::Models].map(Endpoint::path).join(", ");
    let no_list = if status == 200 {
        " without a list of models"
    } else {
        ""
    };
    let found = format!("404 and {status}{no_list}: no Triton; the url of a Triton ends before /v2");
    report.degrade(Signal::Health, asked, found);
}

#[derive(Deserialize)]
struct Indexed {
    name: String,
    state: Option<String>,
}

/// Reads `POST /v2/repository/index` into [`Report::models`]: those of which a version is ready. A server that has no such
/// path (404, 405) is to be asked for `/v1/models`, so that nothing is degraded then.
///
/// ```
/// use paddler_core::source::triton::read_index;
/// use paddler_core::status::Report;
/// use paddler_core::upstream::{ModelEntry, Models};
///
/// let index = br#"[{"name":"ensemble","version":"1","state":"READY"},{"name":"old","version":"1","state":"UNAVAILABLE"}]"#;
/// let mut report = Report::new();
/// read_index(200, index, &mut report);
/// assert_eq!(report.models, Some(Models::Listed(vec![ModelEntry::new("ensemble")])));
/// ```
pub fn read_index(status: u16, body: &[u8], report: &mut Report) {
    let indexed = match status {
        200 => json::<Vec<Indexed>>(body),
        404 | 405 => return,
        _ => Err(refusal(status, body)),
    };
    match indexed {
        Ok(indexed) => {
            let ready = indexed
                .into_iter()
                .filter(|model| model.state.as_deref() == Some("READY"));
            // Each version is listed for itself.
            let names: BTreeSet<String> = ready.map(|model| model.name).collect();
            report.models = Some(Models::Listed(names.into_iter().map(ModelEntry::new).collect()));
        }
        Err(found) => report.degrade(Signal::Models, Endpoint::Index.path(), found),
    }
}

/// Reads the page of metrics into [`Report::running`], [`Report::waiting`], [`Report::max_sequences`] (sums over the models) and
/// [`Report::kv_cache_usage`] (the highest). What waits is what Triton holds back and what the TensorRT-LLM backend does.
///
/// ```
/// use paddler_core::source::triton::read_metrics;
/// use paddler_core::status::Report;
///
/// let page = br#"
/// nv_inference_pending_request_count{model="tensorrt_llm",version="1"} 2
/// nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 3
/// nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 4
/// nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 64
/// nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"} 0.42
/// "#;
/// let mut report = Report::new();
/// read_metrics(200, page, &mut report);
/// assert_eq!((report.running, report.waiting, report.max_sequences), (Some(4), Some(5), Some(64)));
/// assert_eq!(report.kv_cache_usage, Some(0.42));
/// ```
pub fn read_metrics(status: u16, body: &[u8], report: &mut Report) {
    let requests = |kind| [Selector::new("nv_trt_llm_request_metrics").label("request_type", kind)];
    let (scheduled, queued, most) = (requests("scheduled"), requests("waiting"), requests("max"));
    let held_back = [Selector::new("nv_inference_pending_request_count")];
    let blocks = Selector::new("nv_trt_llm_kv_cache_block_metrics");
    let blocks = [blocks.label("kv_cache_block_type", "fraction")];
    if status != 200 {
        let found = refusal(status, body);
        for (signal, [name]) in [
            (Signal::Running, &scheduled),
            (Signal::Waiting, &held_back),
            (Signal::KvCache, &blocks),
        ] {
            report.degrade(signal, name.to_string(), found.clone());
        }
        return;
    }
    let mut gauges = [
        Gauge::required(Signal::Running, &scheduled),
        Gauge::required(Signal::Waiting, &held_back),
        Gauge::optional(Signal::Waiting, &queued),
        Gauge::optional(Signal::Running, &most),
        Gauge::required(Signal::KvCache, &blocks),
    ]
    .map(|gauge| gauge.of_each(&["model", "version"]));
    let page = WalkedPage::walk(
        body,
        &[&scheduled, &held_back, &queued, &most, &blocks],
        |sample| {
            for gauge in &mut gauges {
                gauge.offer(sample);
            }
        },
    );
    let [running, held_back, queued, most, kv_cache] = gauges;
    let (held_back, queued) = (held_back.count(&page, report), queued.count(&page, report));
    report.running = running.count(&page, report).or(report.running);
    report.waiting = match (held_back, queued) {
        (None, None) => report.waiting,
        (one, other) => Some(one.unwrap_or(0).saturating_add(other.unwrap_or(0))),
    };
    let most = most.count(&page, report).filter(|most| *most > 0);
    report.max_sequences = most.or(report.max_sequences);
    report.kv_cache_usage = kv_cache.share(&page, report).or(report.kv_cache_usage);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(page: &str) -> Report {
        let mut report = Report::new();
        read_metrics(200, page.as_bytes(), &mut report);
        report
    }

    fn degraded(report: &Report) -> Vec<Signal> {
        report.degraded.iter().map(|one| one.signal).collect()
    }

    #[test]
    fn models_are_added_up_and_of_kv_caches_the_fullest_counts() {
        let mut page = String::new();
        for (model, running, waiting, blocks) in [("a", 3, 1, 0.25), ("b", 2, 4, 0.75)] {
            page += &format!(
                "nv_inference_pending_request_count{{model=\"{model}\",version=\"1\"}} 1\n\
                 nv_trt_llm_request_metrics{{model=\"{model}\",request_type=\"scheduled\",version=\"1\"}} {running}\n\
                 nv_trt_llm_request_metrics{{model=\"{model}\",request_type=\"waiting\",version=\"1\"}} {waiting}\n\
                 nv_trt_llm_request_metrics{{model=\"{model}\",request_type=\"context\",version=\"1\"}} 9\n\
                 nv_trt_llm_request_metrics{{model=\"{model}\",request_type=\"max\",version=\"1\"}} 8\n\
                 nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type=\"fraction\",model=\"{model}\",version=\"1\"}} {blocks}\n\
                 nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type=\"max\",model=\"{model}\",version=\"1\"}} 6239\n"
            );
        }
        let report = read(&page);
        assert_eq!((report.running, report.waiting), (Some(5), Some(7)));
        assert_eq!(
            (report.max_sequences, report.kv_cache_usage),
            (Some(16), Some(0.75))
        );
        assert_eq!(report.degraded, []);
    }

    #[test]
    fn another_backend_tells_what_waits_and_that_the_rest_is_unknown_is_said() {
        let report = read("nv_inference_pending_request_count{model=\"vllm_model\",version=\"1\"} 2\n");
        assert_eq!(
            (report.running, report.waiting, report.kv_cache_usage),
            (None, Some(2), None)
        );
        assert_eq!(degraded(&report), [Signal::Running, Signal::KvCache]);
        let name = "nv_trt_llm_request_metrics{request_type=\"scheduled\"}";
        assert_eq!(report.degraded[0].expected, name);
    }

    #[test]
    fn what_is_no_count_is_unknown() {
        let report = read(
            "nv_inference_pending_request_count{model=\"a\"} -1\n\
             nv_trt_llm_request_metrics{model=\"a\",request_type=\"scheduled\"} 0.5\n\
             nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\",model=\"a\"} 42\n",
        );
        assert_eq!(
            (report.running, report.waiting, report.kv_cache_usage),
            (None, None, None)
        );
        assert_eq!(
            degraded(&report),
            [Signal::Waiting, Signal::Running, Signal::KvCache]
        );
        let mut report = Report::new();
        read_metrics(404, b"", &mut report);
        assert_eq!(
            degraded(&report),
            [Signal::Running, Signal::Waiting, Signal::KvCache]
        );
    }

    #[test]
    fn a_model_of_which_no_version_is_ready_is_not_listed_and_none_twice() {
        let index = br#"[{"name":"b","version":"1","state":"READY"},{"name":"a","version":"2","state":"READY"},
            {"name":"b","version":"2","state":"READY"},{"name":"c","version":"1","state":"LOADING","reason":""},{"name":"d"}]"#;
        let mut report = Report::new();
        read_index(200, index, &mut report);
        let names = ["a", "b"].map(ModelEntry::new);
        assert_eq!(report.models, Some(Models::Listed(names.into())));
        for (status, body, said) in [
            (404, "", 0),
            (405, r#"{"error":"Method Not Allowed"}"#, 0),
            (403, r#"{"error":"This API is restricted"}"#, 1),
            (200, "{}", 1),
            (200, "<p>", 1),
        ] {
            let mut report = Report::new();
            read_index(status, body.as_bytes(), &mut report);
            assert_eq!(
                (report.models, report.degraded.len()),
                (None, said),
                "{status} {body}"
            );
        }
    }

    #[test]
    fn it_is_ready_when_it_says_so() {
        for (status, health, said) in [
            (200, Some(Health::Ready), 0),
            (404, None, 0),
            (400, Some(Health::Loading), 0),
            (503, Some(Health::Loading), 0),
            (500, Some(Health::Failing), 0),
            (403, None, 1),
        ] {
            let mut report = Report::new();
            read_ready(status, b"", &mut report);
            assert_eq!((report.health, report.degraded.len()), (health, said), "{status}");
        }
    }
}
