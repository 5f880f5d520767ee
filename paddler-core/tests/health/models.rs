//! Who gets what only one upstream could serve?

use std::collections::BTreeSet;

use paddler_core::upstream::{ModelEntry, Models};

use super::*;

/// Upstreams with these models.
fn with_models(all: &[(&str, &[&str])]) -> StatusBoard {
    let mut board = StatusBoard::new(trees::gateway());
    for (name, models) in all {
        let models = models.iter().map(|model| ModelEntry::new(*model)).collect();
        let spec = UpstreamSpec::new(*name, "http://a")
            .unwrap()
            .models(Models::Listed(models));
        board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
    }
    board.publish(Moment::ZERO);
    board
}

fn ask(snapshot: &Snapshot, model: Option<&str>, seed: u64) -> Result<UpstreamId, Reason> {
    let facts = model.map_or_else(Facts::new, |model| Facts::new().model(model));
    let ask = Ask::new(&facts, at(9), seed);
    let lease = snapshot.reserve(&ask, &mut Scratch::default(), &mut ());
    lease
        .map(|lease| lease.upstream().clone())
        .map_err(|ending| ending.reason)
}

#[test]
fn the_only_upstream_of_a_model_gets_its_requests_though_it_is_out_and_no_others() {
    let board = with_models(&[("a", &["big", "small"]), ("b", &["small"]), ("c", &["other"])]);
    let snapshot = board.published().load_full();
    lease_at(&snapshot, "a", at(1))
        .unwrap()
        .report(UNREACHABLE, at(1));
    for seed in 0..50 {
        assert_eq!(ask(&snapshot, Some("big"), seed), Ok(id("a")));
        assert_eq!(ask(&snapshot, Some("small"), seed), Ok(id("b")));
        assert_ne!(ask(&snapshot, None, seed), Ok(id("a")));
    }
    assert!(snapshot.pool_health().panicking);
    // Where nobody is well, all are asked.
    lease_at(&snapshot, "b", at(1))
        .unwrap()
        .report(UNREACHABLE, at(1));
    let asked: BTreeSet<_> = (0..50)
        .map(|seed| ask(&snapshot, Some("small"), seed).unwrap())
        .collect();
    assert_eq!(asked.len(), 2);
    // One that is well and full, or that has asked for patience, is waited for.
    lease_at(&snapshot, "b", at(1))
        .unwrap()
        .report(Verdict::Answered, at(1));
    let index = snapshot.index("b").unwrap();
    lease_at(&snapshot, "b", at(1))
        .unwrap()
        .report(Verdict::Busy(Some(Duration::from_secs(9))), at(1));
    assert_eq!(snapshot.health(index).unwrap().state, HealthState::Healthy);
    assert_eq!(
        snapshot.all_paused_until(Some("small"), at(2)),
        None,
        "the other one is not paused"
    );
    assert_eq!(snapshot.all_paused_until(Some("other"), at(2)), None);
}

#[test]
fn who_has_told_no_models_may_serve_what_nobody_lists_while_the_others_are_paused() {
    let mut board = with_models(&[("lists", &["small"])]);
    let any = UpstreamSpec::new("any", "http://a").unwrap().models(Models::Any);
    board.apply(StatusEvent::Upsert(any), Moment::ZERO);
    let starts = UpstreamSpec::new("starts", "http://b").unwrap();
    board.apply(StatusEvent::Upsert(starts), Moment::ZERO);
    let snapshot = board.publish(Moment::ZERO);
    for paused in ["any", "lists"] {
        let mut lease = lease_at(&snapshot, paused, at(1)).unwrap();
        lease.report(Verdict::Busy(Some(Duration::from_secs(9))), at(1));
    }
    assert_eq!(snapshot.all_paused_until(Some("small"), at(2)), Some(at(9_001)));
    assert_eq!(snapshot.all_paused_until(Some("new"), at(2)), None);
    assert_eq!(snapshot.all_paused_until(None, at(2)), None);
}

#[test]
fn models_that_are_told_later_count_from_then_on() {
    let mut board = StatusBoard::new(trees::gateway());
    for name in ["a", "b"] {
        board.apply(
            StatusEvent::Upsert(UpstreamSpec::new(name, "http://a").unwrap()),
            at(0),
        );
    }
    let snapshot = board.publish(at(0));
    lease_at(&snapshot, "a", at(1))
        .unwrap()
        .report(UNREACHABLE, at(1));
    let index = snapshot.index("a").unwrap();
    assert!(!snapshot.health(index).unwrap().last_resort);
    let tell = |board: &mut StatusBoard, name: &str, model: &str| {
        let mut report = Report::new();
        report.models = Some(Models::Listed(vec![ModelEntry::new(model)]));
        board.apply(
            StatusEvent::Report {
                id: id(name),
                report,
                sample: None,
            },
            at(2),
        );
        board.published().load().health(index).unwrap().last_resort
    };
    assert!(tell(&mut board, "a", "big"));
    assert!(tell(&mut board, "b", "small"));
    assert!(!tell(&mut board, "b", "big"));
    let spec = UpstreamSpec::new("b", "http://a").unwrap();
    let spec = spec.models(Models::Listed(vec![ModelEntry::new("small")]));
    board.apply(StatusEvent::Upsert(spec), at(3));
    assert!(snapshot.health(index).unwrap().last_resort, "by its config");
}

#[test]
fn who_is_drained_or_says_that_it_cannot_serve_stands_in_for_nobody() {
    let mut board = with_models(&[("a", &["m"]), ("b", &["m"])]);
    let snapshot = board.published().load_full();
    lease_at(&snapshot, "a", at(1))
        .unwrap()
        .report(UNREACHABLE, at(1));
    assert_eq!(ask(&snapshot, Some("m"), 1), Ok(id("b")));
    board.set_draining("b", true);
    assert_eq!(ask(&snapshot, Some("m"), 1), Ok(id("a")));
    board.set_draining("b", false);
    assert_eq!(ask(&snapshot, Some("m"), 1), Ok(id("b")));
    let mut report = Report::new();
    report.health = Some(Health::Loading);
    let (id_b, sample) = (id("b"), None);
    board.apply(
        StatusEvent::Report {
            id: id_b,
            report,
            sample,
        },
        at(2),
    );
    let snapshot = board.publish(at(2));
    for seed in 0..20 {
        assert_eq!(ask(&snapshot, Some("m"), seed), Ok(id("a")));
    }
}
