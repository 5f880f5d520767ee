//! What do engines say of themselves, and how is it read?

use std::sync::LazyLock;

use paddler_core::source::vllm::{self, VllmNames};
use paddler_core::source::{llamacpp, sglang};
use paddler_core::status::Report;

/// A page on which an engine tells how it is.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// Whose it is, and which.
    pub name: &'static str,
    answer: &'static str,
    read: fn(&[u8], &mut Report),
}

impl Page {
    /// The metrics of a real vLLM with adapters, 60 KB.
    pub const VLLM: Self = Self {
        name: "vllm",
        answer: include_str!("../../paddler-core/tests/samples/vllm/metrics_busy_lora.http"),
        read: |body, report| vllm::read_metrics(200, body, &NAMES, report),
    };

    /// Those of one that has nothing to do.
    pub const VLLM_IDLE: Self = Self {
        name: "vllm/idle",
        answer: include_str!("../../paddler-core/tests/samples/vllm/metrics_idle.http"),
        ..Self::VLLM
    };

    /// One of each kind.
    pub const ALL: [Self; 4] = [
        Self::VLLM,
        Self {
            name: "sglang",
            answer: LOADS,
            read: |body, report| sglang::read_loads(200, body, report),
        },
        Self {
            name: "llamacpp/slots",
            answer: include_str!("../../paddler-core/tests/samples/llamacpp/slots_busy.http"),
            read: |body, report| llamacpp::read_slots(200, body, report),
        },
        Self {
            name: "llamacpp/metrics",
            answer: include_str!("../../paddler-core/tests/samples/llamacpp/metrics_busy.http"),
            read: |body, report| llamacpp::read_metrics(200, body, report),
        },
    ];

    /// What stands below the head that it came with.
    #[must_use]
    pub fn body(&self) -> &'static str {
        self.answer
            .split_once("\r\n\r\n")
            .map_or(self.answer, |(_, body)| body)
    }

    /// What it says.
    #[must_use]
    pub fn read(&self) -> Report {
        let mut report = Report::new();
        (self.read)(self.body().as_bytes(), &mut report);
        report
    }
}

/// Made once, as the router makes them.
static NAMES: LazyLock<VllmNames> = LazyLock::new(VllmNames::default);

/// As SGLang tells it at `/v1/loads`, of two ranks.
const LOADS: &str = r#"{"timestamp":"2026-11-29T17:16:52+00:00","version":"0.5.23","dp_rank_count":2,"loads":[{"dp_rank":0,"num_running_reqs":3,"num_waiting_reqs":1,"num_used_tokens":4096,"max_total_num_tokens":65536,"token_usage":0.0625,"gen_throughput":123.4,"cache_hit_rate":0.5,"utilization":0.1,"max_running_requests":64},{"dp_rank":1,"num_running_reqs":1,"num_waiting_reqs":0,"num_used_tokens":1024,"max_total_num_tokens":65536,"token_usage":0.015625,"gen_throughput":41.1,"cache_hit_rate":0.25,"utilization":0.02,"max_running_requests":64}]}"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_says_how_its_engine_is() {
        for page in Page::ALL {
            let report = page.read();
            assert_eq!(report.degraded, [], "{}", page.name);
            let tells = report.running.or(report.slots_busy);
            assert!(tells.is_some(), "{}", page.name);
        }
    }
}
