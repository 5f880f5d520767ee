//! The page that Prometheus reads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use paddler_core::Moment;
use paddler_core::observe::names::{ALL, Family, Kind};
use paddler_core::observe::{Metrics, MetricsPage};
use paddler_core::request::Facts;
use paddler_core::schedule::{Ask, Scratch, trees};
use paddler_core::source::prometheus::samples;
use paddler_core::status::{Failure, FailureKind, Report, Signal, StatusBoard, StatusEvent};
use paddler_core::upstream::UpstreamSpec;

fn board() -> StatusBoard {
    StatusBoard::new(trees::gateway())
}

fn join(board: &mut StatusBoard, name: &str) {
    let spec = UpstreamSpec::new(name, "http://127.0.0.1:1").unwrap();
    board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
}

fn says(board: &mut StatusBoard, name: &str, report: Report) {
    let id = paddler_core::upstream::UpstreamId::new(name).unwrap();
    board.apply(
        StatusEvent::Report {
            id,
            report,
            sample: None,
        },
        Moment::ZERO,
    );
}

fn text(board: &mut StatusBoard, now: Moment) -> String {
    let metrics = Metrics::default();
    MetricsPage::new(&metrics, &board.publish(Moment::ZERO), now).to_string()
}

/// The value of the one series with this name and upstream.
fn of(page: &str, name: &str, upstream: &str) -> Option<f64> {
    let mut all = samples(page.as_bytes()).filter(|sample| {
        sample.name == name && sample.label("upstream").is_none_or(|label| label == upstream)
    });
    let found = all.next().map(|sample| sample.value);
    assert!(all.next().is_none(), "{name} of {upstream} is there twice");
    found
}

/// The family that a sample of this name belongs to.
fn family(sample: &str) -> &'static Family {
    let of = |family: &&Family| {
        let rest = sample.strip_prefix(family.name);
        rest == Some("")
            || (family.kind == Kind::Histogram && matches!(rest, Some("_bucket" | "_sum" | "_count")))
    };
    ALL.iter()
        .find(of)
        .unwrap_or_else(|| panic!("{sample} belongs to no family"))
}

#[test]
fn every_family_is_there_once_and_the_page_can_be_read() {
    let mut board = board();
    join(&mut board, "a");
    let mut report = Report::new();
    (report.running, report.waiting, report.kv_cache_usage) = (Some(1), Some(2), Some(0.5));
    report.degrade(Signal::Slots, "/slots", "501");
    says(&mut board, "a", report);
    let page = text(&mut board, Moment::from_millis(1_500));
    for Family { name, kind, help, .. } in ALL {
        let head = format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.as_str());
        assert_eq!(page.matches(&head).count(), 1, "{name}");
    }
    assert_eq!(page.matches("# TYPE ").count(), ALL.len());
    assert!(page.ends_with('\n'));

    let mut read = samples(page.as_bytes());
    let mut order = Vec::new();
    for sample in &mut read {
        let family = family(sample.name);
        if order.last() != Some(&family.name) {
            order.push(family.name);
        }
        let labels: Vec<_> = sample
            .labels
            .into_iter()
            .map(|label| label.name)
            .filter(|name| *name != "le")
            .collect();
        assert_eq!(labels, family.labels, "{}", family.name);
    }
    assert_eq!(read.malformed(), 0, "{page}");
    assert_eq!(
        order.iter().collect::<BTreeSet<_>>().len(),
        order.len(),
        "samples of a family stand together"
    );
    for (name, value) in [
        ("paddler_upstream_able", 1.0),
        ("paddler_upstream_running_requests", 1.0),
        ("paddler_upstream_waiting_requests", 2.0),
        ("paddler_upstream_kv_cache_ratio", 0.5),
        ("paddler_upstream_report_age_seconds", 1.5),
        ("paddler_snapshot_age_seconds", 1.5),
        ("paddler_upstream_failed_polls", 0.0),
        ("paddler_upstream_signal_missing", 1.0),
    ] {
        assert_eq!(of(&page, name, "a"), Some(value), "{name}");
    }
}

#[test]
fn what_is_not_known_has_no_series() {
    let mut board = board();
    join(&mut board, "never-heard");
    join(&mut board, "strange");
    let mut report = Report::new();
    report.kv_cache_usage = Some(f64::NAN);
    says(&mut board, "strange", report);
    let page = text(&mut board, Moment::ZERO);
    assert!(!page.contains("NaN") && !page.contains("} inf"), "{page}");
    for name in [
        "paddler_upstream_waiting_requests",
        "paddler_upstream_kv_cache_ratio",
        "paddler_upstream_limit_weight",
    ] {
        assert_eq!(
            (of(&page, name, "never-heard"), of(&page, name, "strange")),
            (None, None),
            "{name}"
        );
    }
    assert_eq!(
        of(&page, "paddler_upstream_report_age_seconds", "never-heard"),
        None
    );
}

#[test]
fn labels_are_escaped() {
    let mut board = board();
    let name = r#"a"b\c{}"#;
    join(&mut board, name);
    let mut report = Report::new();
    report.degrade(Signal::Waiting, "two\nlines \"quoted\" \\", "missing");
    says(&mut board, name, report);
    let page = text(&mut board, Moment::ZERO);
    let mut read = samples(page.as_bytes());
    let missing = read
        .find(|sample| sample.name == "paddler_upstream_signal_missing")
        .unwrap();
    assert_eq!(missing.label("upstream").unwrap(), name);
    assert_eq!(missing.label("expected").unwrap(), "two\nlines \"quoted\" \\");
    read.by_ref().for_each(drop);
    assert_eq!(read.malformed(), 0);
}

#[test]
fn one_series_is_never_there_twice() {
    let mut board = board();
    join(&mut board, "a");
    let mut report = Report::new();
    report.degrade(Signal::Slots, "/slots", "501");
    report.degrade(Signal::Slots, "/slots", "not JSON");
    says(&mut board, "a", report);
    let page = text(&mut board, Moment::ZERO);
    let mut series = BTreeMap::<_, u32>::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        *series.entry(line.rsplit_once(' ').unwrap().0).or_default() += 1;
    }
    assert!(series.values().all(|times| *times == 1), "{page}");
}

#[test]
fn the_series_of_an_upstream_end_when_it_leaves() {
    let mut board = board();
    for name in ["stays", "leaves"] {
        join(&mut board, name);
        says(&mut board, name, Report::new());
    }
    assert!(text(&mut board, Moment::ZERO).contains("leaves"));
    board.apply(
        StatusEvent::Remove(paddler_core::upstream::UpstreamId::new("leaves").unwrap()),
        Moment::ZERO,
    );
    let page = text(&mut board, Moment::ZERO);
    assert!(page.contains("stays") && !page.contains("leaves"), "{page}");
}

#[test]
fn drains_failures_and_open_weight_are_seen() {
    let mut board = board();
    for name in ["a", "b"] {
        join(&mut board, name);
    }
    board.set_draining("b", true);
    let id = paddler_core::upstream::UpstreamId::new("b").unwrap();
    for _ in 0..2 {
        let failure = Failure::new(FailureKind::Unreachable, "refused");
        board.apply(
            StatusEvent::Failed {
                id: id.clone(),
                failure,
            },
            Moment::ZERO,
        );
    }
    let snapshot = board.publish(Moment::ZERO);
    let facts = Facts::new();
    let mut lease = snapshot
        .reserve(
            &Ask::new(&facts, Moment::ZERO, 1),
            &mut Scratch::default(),
            &mut (),
        )
        .unwrap();
    let page = text(&mut board, Moment::ZERO);
    let both = |page: &str, name: &str| (of(page, name, "a").unwrap(), of(page, name, "b").unwrap());
    assert_eq!(both(&page, "paddler_upstream_draining"), (0.0, 1.0));
    assert_eq!(both(&page, "paddler_upstream_able"), (1.0, 0.0));
    assert_eq!(both(&page, "paddler_upstream_failed_polls"), (0.0, 2.0));
    assert_eq!(both(&page, "paddler_upstream_open_weight"), (1.0, 0.0));
    lease.sent();
    drop(lease);
    let page = text(&mut board, Moment::ZERO);
    assert_eq!(
        of(&page, "paddler_upstream_open_weight", "a"),
        Some(1.0),
        "it settles"
    );
    assert_eq!(of(&page, "paddler_settling_weight", ""), Some(1.0));
    board.expire(Moment::ZERO);
    board.expire(Moment::ZERO.saturating_add(Duration::from_secs(11)));
    assert_eq!(
        of(&text(&mut board, Moment::ZERO), "paddler_settling_weight", ""),
        Some(0.0)
    );
}
