//! Each metric that a report reads, renamed or broken on a real page: the signal is unknown then, and named.

use paddler_core::source::llamacpp;
use paddler_core::source::vllm::VllmNames;
use paddler_core::status::{Report, Signal};

use crate::sample::Recorded;
use crate::vllm::read_page;

const FAMILIES: [(&str, &str, Signal); 6] = [
    (
        "llamacpp/metrics_busy",
        "llamacpp:requests_processing",
        Signal::Running,
    ),
    (
        "llamacpp/metrics_busy",
        "llamacpp:requests_deferred",
        Signal::Waiting,
    ),
    (
        "vllm/metrics_busy_kv",
        "vllm:num_requests_running",
        Signal::Running,
    ),
    (
        "vllm/metrics_busy_kv",
        "vllm:num_requests_waiting",
        Signal::Waiting,
    ),
    (
        "vllm/metrics_busy_kv",
        "vllm:kv_cache_usage_perc",
        Signal::KvCache,
    ),
    (
        "vllm/metrics_busy_kv",
        "vllm:lora_requests_info",
        Signal::Adapters,
    ),
];

fn read(sample: &str, page: &str) -> Report {
    if sample.starts_with("vllm") {
        return read_page(
            page,
            &VllmNames {
                lora_expected: true,
                ..VllmNames::default()
            },
        );
    }
    let mut report = Report::new();
    llamacpp::read_metrics(200, page.as_bytes(), &mut report);
    report
}

fn is_known(report: &Report, signal: Signal) -> bool {
    match signal {
        Signal::Running => report.running.is_some(),
        Signal::Waiting => report.waiting.is_some(),
        Signal::KvCache => report.kv_cache_usage.is_some(),
        Signal::Adapters => report.adapters.is_some(),
        other => unreachable!("no metric tells {other:?}"),
    }
}

/// The page with each line of the family changed.
fn change(page: &str, family: &str, change: impl Fn(&str) -> String) -> String {
    let is_series = |line: &&str| {
        line.strip_prefix(family)
            .is_some_and(|rest| rest.starts_with(['{', ' ']))
    };
    let lines = page.lines().map(|line| {
        if is_series(&line) {
            change(line)
        } else {
            line.to_owned()
        }
    });
    let changed: String = lines.map(|line| line + "\n").collect();
    assert_ne!(changed, page, "{family} is on the page");
    changed
}

#[test]
fn a_renamed_metric_is_unknown_and_named() {
    for (sample, family, signal) in FAMILIES {
        let page = change(&Recorded::read(sample).text(), family, |line| {
            line.replace(family, "renamed")
        });
        let report = read(sample, &page);
        for (_, other, theirs) in FAMILIES
            .iter()
            .filter(|(other_sample, ..)| *other_sample == sample)
        {
            assert_eq!(
                is_known(&report, *theirs),
                *other != family,
                "{other} on a page without {family}"
            );
        }
        assert_eq!(report.degraded.len(), 1, "{family}");
        assert_eq!(report.degraded[0].signal, signal);
        assert_eq!(report.degraded[0].expected, family);
        assert_eq!(report.degraded[0].found, "missing");
    }
}

#[test]
fn a_value_that_cannot_be_is_unknown_and_named() {
    let counts = ["NaN", "+Inf", "-Inf", "-1", "0.5", "2147483649", "1e300"];
    let shares = ["NaN", "+Inf", "-0.1", "1.1", "57.3", "1e300"];
    for (sample, family, signal) in FAMILIES {
        let values: &[&str] = match signal {
            Signal::KvCache => &shares,
            Signal::Adapters => continue, // its value is a time
            _ => &counts,
        };
        for value in values {
            let page = change(&Recorded::read(sample).text(), family, |line| {
                format!("{} {value}", line.rsplit_once(' ').expect("a value").0)
            });
            let report = read(sample, &page);
            assert!(!is_known(&report, signal), "{family} {value}");
            assert_eq!(report.degraded.len(), 1, "{family} {value}");
            assert_eq!(
                (report.degraded[0].signal, report.degraded[0].expected.as_str()),
                (signal, family)
            );
            assert!(
                report.degraded[0].found.starts_with("not a "),
                "{}",
                report.degraded[0].found
            );
        }
    }
}

#[test]
fn a_line_that_cannot_be_read_is_said() {
    for (sample, family, signal) in FAMILIES {
        let page = change(&Recorded::read(sample).text(), family, |line| {
            format!("{line} and more")
        });
        let report = read(sample, &page);
        assert!(!is_known(&report, signal), "{family}");
        assert!(
            report.degraded[0].found.starts_with("missing, and "),
            "{}",
            report.degraded[0].found
        );
    }
}

#[test]
fn bounds_of_what_is_believed() {
    let names = VllmNames::default();
    let page = "vllm:num_requests_running 2147483648\nvllm:num_requests_waiting -0.0\nvllm:kv_cache_usage_perc 1.0000005\n";
    let report = read_page(page, &names);
    assert_eq!(
        (report.running, report.waiting, report.kv_cache_usage),
        (Some(1 << 31), Some(0), Some(1.0))
    );
    assert_eq!(report.degraded, []);
    let page =
        "vllm:num_requests_running{engine=\"0\"} 2147483648\nvllm:num_requests_running{engine=\"1\"} 1\n";
    assert_eq!(read_page(page, &names).running, None);
}

#[test]
fn adapters_that_nobody_expects_are_not_missed() {
    let sample = Recorded::read("vllm/metrics_busy_kv").text();
    let page = change(&sample, "vllm:lora_requests_info", |_| String::new());
    let report = read_page(page, &VllmNames::default());
    assert_eq!((report.adapters, report.degraded.len()), (None, 0));
}
