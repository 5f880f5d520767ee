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

/// For how long a client is to leave everybody alone who could serve the model and is among these, as it hears when nobody has
/// room.
#[cfg(feature = "proxy")]
fn all_paused_for(snapshot: &Snapshot, model: Option<&str>, only: &[&str]) -> Option<Duration> {
    use paddler_core::forward::Refusal;
    let only: Vec<_> = only.iter().copied().map(id).collect();
    let facts = model.map_or_else(Facts::new, |model| Facts::new().model(model));
    let mut ask = Ask::new(&facts, at(2), 1);
    ask.only = Some(&only);
    let busy = StatusBoard::new(trees::gateway()).publish(at(2));
    let ending = busy.reserve(&ask, &mut Scratch::default(), &mut ());
    let refusal = Refusal::of_walk(&ending.unwrap_err(), snapshot, &ask, Duration::ZERO);
    let (status, reason) = (refusal.status.as_u16(), &*refusal.reason);
    (status == 429 && reason == "upstreams_busy").then_some(refusal.retry_after)?
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
    #[cfg(feature = "proxy")]
    {
        let all_paused = |model| all_paused_for(&snapshot, Some(model), &["a", "b", "c"]);
        assert_eq!(all_paused("small"), None, "the other one is not paused");
        assert_eq!(all_paused("other"), None);
        let for_b = all_paused_for(&snapshot, Some("small"), &["b"]);
        assert_eq!(
            for_b,
            Some(Duration::from_millis(8_999)),
            "it may go nowhere else"
        );
    }
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
    #[cfg(feature = "proxy")]
    {
        let all_paused = |model| all_paused_for(&snapshot, model, &["any", "lists", "starts"]);
        assert_eq!(all_paused(Some("small")), Some(Duration::from_millis(8_999)));
        assert_eq!(all_paused(Some("new")), None);
        assert_eq!(all_paused(None), None);
    }
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
