use std::sync::Arc;

use paddler_core::source::prometheus::Selector;
use paddler_core::source::vllm::{VllmNames, read_health, read_metrics, read_models};
use paddler_core::status::{Adapters, Health, Report, Signal};
use paddler_core::upstream::{ModelEntry, Models};

use crate::sample::{Recorded, WANTS_A_KEY};

pub(crate) fn read_page(page: impl AsRef<[u8]>, names: &VllmNames) -> Report {
    let mut report = Report::new();
    read_metrics(200, page.as_ref(), names, &mut report);
    report
}

fn adapters(max: Option<u32>, running: &[&str], waiting: &[&str]) -> Option<Adapters> {
    let owned = |names: &[&str]| names.iter().copied().map(Arc::from).collect();
    Some(Adapters {
        max,
        running: owned(running),
        waiting: owned(waiting),
    })
}

#[test]
fn recorded_pages() {
    let idle = adapters(Some(1), &[], &[]);
    let cases = [
        ("vllm/metrics_idle", 0, 0, 0.0, idle.clone()),
        ("vllm/metrics_busy_base", 4, 3, 0.000_732_511_292_882_431_8, idle),
        (
            "vllm/metrics_busy_lora",
            2,
            2,
            0.000_488_340_861_921_621_2,
            adapters(Some(1), &["lora-a"], &["lora-a"]),
        ),
        (
            "vllm/metrics_busy_kv",
            4,
            6,
            0.589_147_286_821_705_4,
            adapters(Some(2), &[], &[]),
        ),
    ];
    let names = VllmNames {
        lora_expected: true,
        ..VllmNames::default()
    };
    for (name, running, waiting, kv_cache_usage, adapters) in cases {
        let report = read_page(Recorded::read(name).body, &names);
        assert_eq!(
            (report.running, report.waiting),
            (Some(running), Some(waiting)),
            "{name}"
        );
        assert_eq!(report.kv_cache_usage, Some(kv_cache_usage), "{name}");
        assert_eq!(report.adapters, adapters, "{name}");
        assert_eq!(report.degraded, [], "{name}");
    }
}

#[test]
fn health() {
    let recorded = Recorded::read("vllm/health");
    for (status, health) in [
        (recorded.status, Some(Health::Ready)),
        (503, Some(Health::Failing)),
        (401, None),
    ] {
        let mut report = Report::new();
        read_health(status, &recorded.body, &mut report);
        assert_eq!(report.health, health);
        assert_eq!(report.degraded.len(), usize::from(health.is_none()));
    }
}

#[test]
fn adapters_are_models_with_a_parent() {
    let adapter = |name| ModelEntry::adapter(name, "tiny");
    let before = vec![ModelEntry::new("tiny"), adapter("lora-a"), adapter("lora-b")];
    let mut after = before.clone();
    after.push(adapter("lora-c"));
    for (name, entries) in [("vllm/v1_models", before), ("vllm/v1_models_after_load", after)] {
        let recorded = Recorded::read(name);
        let mut report = Report::new();
        read_models(recorded.status, &recorded.body, &mut report);
        assert_eq!(report.models, Some(Models::Listed(entries)), "{name}");
    }
}

#[test]
fn a_refused_list_of_models_is_degraded() {
    for (name, found) in [
        ("vllm/err_401_models", WANTS_A_KEY),
        ("vllm/err_401_no_key", WANTS_A_KEY),
        ("vllm/err_404_path", "404: Not Found"),
    ] {
        let recorded = Recorded::read(name);
        let mut report = Report::new();
        read_models(recorded.status, &recorded.body, &mut report);
        assert_eq!((report.models, report.degraded[0].found.as_str()), (None, found));
    }
}

#[test]
fn a_refused_page_degrades_all_that_was_looked_for() {
    let mut report = Report::new();
    read_metrics(
        404,
        br#"{"detail":"Not Found"}"#,
        &VllmNames::default(),
        &mut report,
    );
    let signals: Vec<_> = report.degraded.iter().map(|degraded| degraded.signal).collect();
    assert_eq!(signals, [Signal::Running, Signal::Waiting, Signal::KvCache]);
    assert!(
        report
            .degraded
            .iter()
            .all(|degraded| degraded.found == "404: Not Found")
    );

    let mut report = Report::new();
    let names = VllmNames {
        lora_expected: true,
        running: Vec::new(),
        ..VllmNames::default()
    };
    read_metrics(500, b"", &names, &mut report);
    let signals: Vec<_> = report.degraded.iter().map(|degraded| degraded.signal).collect();
    assert_eq!(signals, [Signal::Waiting, Signal::KvCache, Signal::Adapters]);
}

#[test]
fn ranks_are_summed_and_the_fullest_cache_counts() {
    let page = "vllm:num_requests_running{engine=\"0\"} 4\nvllm:num_requests_running{engine=\"1\"} 3\n\
        vllm:num_requests_running{engine=\"1\"} 100\n\
        vllm:num_requests_waiting{engine=\"0\"} 1 10\nvllm:num_requests_waiting{engine=\"0\"} 2 20\n\
        vllm:num_requests_waiting{engine=\"1\"} 5 1\n\
        vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.75\n";
    let report = read_page(page, &VllmNames::default());
    assert_eq!(
        (report.running, report.waiting, report.kv_cache_usage),
        (Some(7), Some(7), Some(0.75))
    );
}

#[test]
fn one_rank_that_cannot_be_read_makes_the_sum_unknown() {
    let page = "vllm:num_requests_running{engine=\"0\"} 4\nvllm:num_requests_running{engine=\"1\"} -1\n";
    let report = read_page(page, &VllmNames::default());
    assert_eq!(report.running, None);
    assert_eq!(report.degraded[0].found, "not a count: -1.0");
}

#[test]
fn the_newest_series_counts_and_the_first_of_equals() {
    let names = VllmNames {
        running: vec![Selector::new("r")],
        ..VllmNames::none()
    };
    for (page, running) in [
        ("r 1 100\nr 2 200\nr 3 150\n", 2),
        ("r 1\nr 2\n", 1),
        ("r 1 5\nr 2 5\n", 1),
        ("r 1\nr 2 5\n", 2),
        ("r{model_name=\"a\"} 1\nr{model_name=\"b\"} 2\n", 1),
    ] {
        assert_eq!(read_page(page, &names).running, Some(running), "{page}");
    }
}

#[test]
fn a_preferred_name_wins_wherever_it_stands() {
    let old = "vllm:gpu_cache_usage_perc 0.5\n";
    let new = "vllm:kv_cache_usage_perc 0.25\n";
    let names = VllmNames::default();
    assert_eq!(read_page(old, &names).kv_cache_usage, Some(0.5));
    assert_eq!(
        read_page(format!("{old}{new}"), &names).kv_cache_usage,
        Some(0.25)
    );
    assert_eq!(
        read_page(format!("{new}{old}"), &names).kv_cache_usage,
        Some(0.25)
    );
}

#[test]
fn adapters_of_the_series_with_the_largest_value() {
    let series = |labels: &str, value: &str| format!("vllm:lora_requests_info{{{labels}}} {value}\n");
    let one = |labels: &str| series(labels, "1.7e9");
    let cases = [
        (
            one(r#"running_lora_adapters=" a,b ,, a",waiting_lora_adapters="c",max_lora="4""#),
            Some(4),
            vec!["a", "b"],
            vec!["c"],
        ),
        (one(r#"max_lora="2""#), Some(2), vec![], vec![]),
        (one("other=\"x\""), None, vec![], vec![]),
        (
            series(r#"running_lora_adapters="a""#, "5") + &series(r#"running_lora_adapters="b""#, "5"),
            None,
            vec!["a"],
            vec![],
        ),
        (
            series(r#"running_lora_adapters="a""#, "NaN") + &series(r#"running_lora_adapters="b""#, "-1"),
            None,
            vec!["b"],
            vec![],
        ),
        (
            series(r#"running_lora_adapters="a""#, "7 1") + &series(r#"running_lora_adapters="b""#, "5 9"),
            None,
            vec!["a"],
            vec![],
        ),
        (
            r#"vllm:info_active_adapters_info{active_adapters="a,b"} 1"#.to_owned(),
            None,
            vec!["a", "b"],
            vec![],
        ),
        (
            r#"vllm:info_active_adapters_info{active_adapters="old"} 9e9"#.to_owned()
                + "\n"
                + &one(r#"running_lora_adapters="new""#),
            None,
            vec!["new"],
            vec![],
        ),
    ];
    for (page, max, running, waiting) in cases {
        assert_eq!(
            read_page(&page, &VllmNames::default()).adapters,
            adapters(max, &running, &waiting),
            "{page}"
        );
    }
}

#[test]
fn a_maximum_that_is_no_number_is_unknown() {
    let page = r#"vllm:lora_requests_info{running_lora_adapters="a",max_lora="2a"} 1"#;
    let names = VllmNames {
        lora: VllmNames::default().lora,
        ..VllmNames::none()
    };
    let report = read_page(page, &names);
    assert_eq!(report.adapters, adapters(None, &["a"], &[]));
    assert_eq!(report.degraded.len(), 1);
    assert_eq!(report.degraded[0].signal, Signal::Adapters);
    assert_eq!(report.degraded[0].expected, "vllm:lora_requests_info max_lora");
    assert_eq!(report.degraded[0].found, "not a count: 2a");
}

#[test]
fn names_can_be_written_as_data() {
    let names: VllmNames =
        serde_json::from_str(r#"{"waiting":["q{kind=chat}"],"lora_expected":true}"#).unwrap();
    assert_eq!(names.waiting, [Selector::new("q").label("kind", "chat")]);
    assert_eq!(names.running, VllmNames::default().running);
    let written = serde_json::to_string(&names).unwrap();
    assert_eq!(serde_json::from_str::<VllmNames>(&written).unwrap(), names);
    assert!(serde_json::from_str::<VllmNames>(r#"{"queue":[]}"#).is_err());
}

#[test]
fn the_longest_prompt_is_that_of_the_base_models() {
    let recorded = Recorded::read("vllm/v1_models");
    let context = |body: &[u8]| {
        let mut report = Report::new();
        read_models(200, body, &mut report);
        report.abilities.context
    };
    assert_eq!(context(&recorded.body), Some(2048), "adapters tell none");
    let two = br#"{"data":[{"id":"a","max_model_len":10},{"id":"b","max_model_len":20}]}"#;
    assert_eq!(context(two), Some(20));
    assert_eq!(
        context(br#"{"data":[{"id":"a","max_model_len":10},{"id":"b"}]}"#),
        None
    );
}
