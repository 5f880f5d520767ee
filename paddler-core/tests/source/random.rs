//! Whatever an upstream answers, nothing panics, and what is believed of it is in range.

use std::sync::LazyLock;

use paddler_core::source::prometheus::{Selector, samples};
use paddler_core::source::vllm::VllmNames;
use paddler_core::source::{Answer, ProbeAnswers, identify};
use paddler_core::source::{llamacpp, ollama, openai, paddler, sglang, triton, vllm};
use paddler_core::status::Report;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::sample::Recorded;

static BODIES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let names = [
        "llamacpp/metrics_busy",
        "llamacpp/slots_busy",
        "llamacpp/props",
        "llamacpp/models",
        "llamacpp/lora_adapters",
        "llamacpp/health_loading",
        "vllm/metrics_busy_lora",
        "vllm/v1_models",
        "vllm/version",
        "vllm/err_401_models",
    ];
    names.map(|name| Recorded::read(name).body).to_vec()
});

/// Texts that readers have stumbled over, somewhere.
const AWKWARD: [&str; 18] = [
    "NaN",
    "-1",
    "1e999",
    "-1e999",
    "9223372036854775808",
    "0.5",
    "\"",
    "\\",
    "{",
    "}",
    ",",
    "\n",
    "\r\n",
    "# EOF",
    "null",
    "\0",
    "é",
    "[[[[",
];

fn run_all(status: u16, body: &[u8]) {
    let names = VllmNames {
        lora_expected: true,
        ..VllmNames::default()
    };
    let mut report = Report::new();
    for reader in [
        llamacpp::read_health,
        llamacpp::read_slots,
        llamacpp::read_props,
        llamacpp::read_models,
        llamacpp::read_metrics,
        llamacpp::read_lora_adapters,
        openai::read_health,
        openai::read_models,
        vllm::read_health,
        vllm::read_models,
        sglang::read_loads,
        triton::read_ready,
        triton::read_index,
        triton::read_metrics,
        ollama::read_tags,
        paddler::read_status,
    ] {
        reader(status, body, &mut report);
        check(&report);
    }
    vllm::read_metrics(status, body, &names, &mut report);
    check(&report);
    let answer = Some(Answer::new(status, body));
    let answers = ProbeAnswers {
        health: answer,
        props: answer,
        metrics: answer,
        version: answer,
        models: answer,
        metadata: answer,
        tags: answer,
    };
    identify(&answers);
}

fn check(report: &Report) {
    assert!(
        report
            .kv_cache_usage
            .is_none_or(|usage| (0.0..=1.0).contains(&usage))
    );
    assert!(
        report
            .running
            .max(report.waiting)
            .is_none_or(|count| count <= 1 << 31)
    );
    assert!(report.slots_busy <= report.slots_total);
    assert!(report.degraded.iter().all(|degraded| degraded.found.len() < 1000));
}

fn status() -> impl Strategy<Value = u16> {
    prop_oneof![3 => Just(200), 1 => prop::sample::select(vec![401, 404, 500, 501, 503]), 1 => any::<u16>()]
}

/// One change of a body: what is taken out, where, and what is put there.
fn change() -> impl Strategy<Value = (Index, usize, Vec<u8>)> {
    let awkward = prop::sample::select(AWKWARD.to_vec()).prop_map(|text| text.as_bytes().to_vec());
    (
        any::<Index>(),
        0..40_usize,
        prop_oneof![awkward, vec(any::<u8>(), 0..8)],
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(status in status(), body in vec(any::<u8>(), 0..2000)) {
        run_all(status, &body);
    }

    #[test]
    fn random_lines(lines in vec("[a-c:\\{\\}=\",\\\\# 0-9.\\-\r\n]{0,60}", 0..40)) {
        run_all(200, lines.join("\n").as_bytes());
    }

    #[test]
    fn changed_answers(status in status(), body in any::<Index>(), changes in vec(change(), 1..12)) {
        let mut body = body.get(&BODIES).clone();
        for (at, length, put) in changes {
            let start = at.index(body.len() + 1);
            let end = body.len().min(start + length);
            body.splice(start..end, put);
        }
        run_all(status, &body);
    }

    #[test]
    fn what_is_written_is_read(
        name in "[a-z_:][a-z0-9_:]{0,8}",
        labels in prop::collection::btree_map("[a-z_][a-z0-9_]{0,4}", ".{0,12}|[\\\\\"\n,{}=]{0,6}", 0..4),
        value in any::<f64>(),
        timestamp_ms in any::<Option<i64>>(),
    ) {
        let mut selector = Selector::new(name.as_str());
        for (label, value) in &labels {
            selector = selector.label(label, value);
        }
        let time = timestamp_ms.map(|time| time.to_string()).unwrap_or_default();
        let line = format!("{selector} {value:?} {time}\n");

        let mut on_page = samples(line.as_bytes());
        let sample = on_page.next().expect("a sample");
        prop_assert!(on_page.next().is_none());
        prop_assert_eq!(on_page.malformed(), 0);
        prop_assert_eq!((sample.name, sample.timestamp_ms), (name.as_str(), timestamp_ms));
        prop_assert!(sample.value == value || (sample.value.is_nan() && value.is_nan()));
        let read: Vec<_> = sample.labels.into_iter().map(|l| (l.name.to_owned(), l.value().into_owned())).collect();
        prop_assert_eq!(read, labels.into_iter().collect::<Vec<_>>());
        prop_assert!(selector.matches(&sample));
        prop_assert_eq!(Selector::parse(&selector.to_string()), Ok(selector.clone()));
    }

    #[test]
    fn any_text_is_a_selector_or_a_fault(text in ".{0,40}|[am\\{\\}=\",\\\\ ]{0,20}") {
        if let Ok(selector) = Selector::parse(&text) {
            prop_assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
        }
    }
}

#[test]
fn large_awkward_pages() {
    const SIZE: usize = 10 << 20;
    let lines = |line: &str| line.repeat(SIZE / line.len());
    let ranks: String = (0..150_000)
        .map(|rank| format!("vllm:num_requests_running{{engine=\"{rank}\"}} 1\n"))
        .collect();
    let names: String = (0..9_000).map(|name| format!("l{name},")).collect();
    for page in [
        lines("vllm:num_requests_running 1\n"),
        lines("\n"),
        lines("a"),
        lines("{"),
        lines("["),
        lines("a{b=\""),
        lines("a{b=\"c\",\n"),
        lines("a{b=\"\\"),
        format!(
            "vllm:lora_requests_info{{running_lora_adapters=\"{}\"}} 1\n",
            "x".repeat(1 << 20)
        ),
        lines(&format!(
            "vllm:lora_requests_info{{running_lora_adapters=\"{names}\"}} 1\n"
        )),
        format!("vllm:num_requests_running {}\n", "9".repeat(60_000)),
        ranks,
    ] {
        run_all(200, page.as_bytes());
    }
}
