//! How does TensorRT-LLM's `trtllm-serve` say how it is?
//!
//! Its load stands on `/prometheus/metrics`, if it was started so that it counts (`return_perf_metrics: true`); `/metrics` is
//! something else there. Health and models are told as vLLM tells them.

use super::prometheus::Selector;
use super::vllm::VllmNames;

/// Under which names its metrics are looked for.
///
/// ```
/// use paddler_core::source::{trtllm, vllm};
/// use paddler_core::status::Report;
///
/// let mut report = Report::new();
/// let page = b"trtllm_num_requests_running 4\ntrtllm_num_requests_waiting 1\ntrtllm_kv_cache_utilization 0.5\n";
/// vllm::read_metrics(200, page, &trtllm::names(), &mut report);
/// assert_eq!((report.running, report.waiting, report.kv_cache_usage), (Some(4), Some(1), Some(0.5)));
/// ```
pub fn names() -> VllmNames {
    let one = |name| vec![Selector::new(name)];
    VllmNames {
        running: one("trtllm_num_requests_running"),
        waiting: one("trtllm_num_requests_waiting"),
        kv: one("trtllm_kv_cache_utilization"),
        ..VllmNames::none()
    }
}
