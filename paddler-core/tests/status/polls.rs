//! When upstreams are asked, what they are asked, and when no more: with a clock that stands still.

use std::sync::Arc;
use std::time::Duration;

use paddler_core::status::{FailureKind, Health, PollOptions, StatusEvent};
use paddler_core::upstream::{Engine, ModelEntry, Models, Transport, UpstreamSpec};
use tokio::time::{Instant, sleep};

use crate::fake::{Fake, Net, Reply, llama};
use crate::rig::{Rig, id, spec};

/// An upstream that is known to be a llama.cpp.
fn llamacpp(name: &str, url: &str) -> UpstreamSpec {
    let mut spec = spec(name, url);
    spec.engine = Engine::Llamacpp;
    spec
}

fn gaps(at: &[Instant]) -> Vec<f64> {
    at.windows(2)
        .map(|pair| (pair[1] - pair[0]).as_secs_f64())
        .collect()
}

fn one(fake: &Arc<Fake>) -> Rig {
    Rig::net(
        [llamacpp("a", "http://a")],
        Net::of([("http://a", fake.clone())]),
        PollOptions::default(),
    )
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn polls_come_an_interval_apart_give_or_take_a_tenth() {
    let fake = Fake::llama(0, 4);
    let _rig = one(&fake);
    sleep(5 * MINUTE).await;
    let gaps = gaps(&fake.polls());
    assert!(gaps.len() > 270, "{}", gaps.len());
    // The runtime's timer is a millisecond coarse.
    assert!(gaps.iter().all(|gap| (0.899..=1.102).contains(gap)), "{gaps:?}");
    let (low, high) = (|gap: &&f64| **gap < 0.95, |gap: &&f64| **gap > 1.05);
    assert!(
        gaps.iter().filter(low).count() > 30 && gaps.iter().filter(high).count() > 30,
        "{gaps:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn another_interval_holds_from_now_on_and_none_is_no_poll() {
    let fake = Fake::llama(0, 4);
    let rig = one(&fake);
    sleep(MINUTE).await;
    let before = fake.polls().len();
    let mut slower = PollOptions::default();
    slower.interval = Duration::from_secs(10);
    rig.statuses.set_poll(Some(slower)).await.unwrap();
    sleep(10 * MINUTE).await;
    let polls = fake.polls();
    let gaps = gaps(&polls[before..]);
    assert!(gaps.len() > 50, "{}", gaps.len());
    assert!(gaps.iter().all(|gap| (8.9..=11.1).contains(gap)), "{gaps:?}");
    rig.statuses.set_poll(None).await.unwrap();
    sleep(MINUTE).await;
    assert_eq!(fake.polls().len(), polls.len());
    assert!(
        rig.snapshot().find("a").unwrap().report().is_some(),
        "what is known stays known"
    );
}

#[tokio::test(start_paused = true)]
async fn polls_of_many_do_not_come_in_step() {
    let fakes: Vec<_> = (0..20)
        .map(|at| (format!("http://{at}"), Fake::llama(0, 4)))
        .collect();
    let net = Net::of(fakes.iter().map(|(url, fake)| (url.as_str(), fake.clone())));
    let specs = fakes
        .iter()
        .enumerate()
        .map(|(at, (url, _))| llamacpp(&format!("u{at}"), url));
    let _rig = Rig::net(specs, net, PollOptions::default());
    sleep(MINUTE).await;
    let mut phases: Vec<_> = fakes.iter().map(|(_, fake)| fake.polls()[40]).collect();
    phases.sort_unstable();
    phases.dedup();
    assert!(phases.len() > 15, "{phases:?}");
}

#[tokio::test(start_paused = true)]
async fn who_cannot_be_asked_is_asked_less_often_until_he_can() {
    let fake = Fake::new(|path, polls| match polls {
        0..8 => Reply::Refuses,
        _ => llama(path, 0, 4, "m"),
    });
    let rig = one(&fake);
    rig.report("a", "a report", |_| true).await;
    sleep(Duration::from_secs(5)).await;
    let gaps = gaps(&fake.polls());
    assert!(gaps.len() >= 10, "{gaps:?}");
    for (gap, expected) in gaps
        .iter()
        .zip([1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 10.0, 1.0, 1.0])
    {
        let within = (0.9 * expected - 0.002)..=(1.1 * expected + 0.002);
        assert!(within.contains(gap), "{gap} is not about {expected}: {gaps:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_holds_up_nobody_else() {
    let (hung, well) = (Fake::new(|_, _| Reply::Hangs), Fake::llama(0, 4));
    let net = Net::of([("http://hung", hung.clone()), ("http://well", well.clone())]);
    let mut options = PollOptions::default();
    options.concurrency = 2;
    let specs = [llamacpp("hung", "http://hung"), llamacpp("well", "http://well")];
    let rig = Rig::net(specs, net, options);
    sleep(MINUTE).await;
    assert!(well.polls().len() >= 54, "{}", well.polls().len());
    let entry = rig.snapshot().find("hung").unwrap().clone();
    assert_eq!(entry.last_failure().unwrap().kind, FailureKind::Timeout);
    assert_eq!(entry.last_failure().unwrap().message, "no answer within 3s");
}

#[tokio::test(start_paused = true)]
async fn no_more_polls_than_allowed_are_under_way() {
    // All are one upstream behind different ids, so that what is open is counted over all.
    let hung = Fake::new(|_, _| Reply::Hangs);
    let mut options = PollOptions::default();
    options.concurrency = 3;
    let specs = (0..20).map(|at| llamacpp(&format!("u{at}"), "http://hung"));
    let rig = Rig::net(specs, Net::of([("http://hung", hung.clone())]), options);
    sleep(10 * MINUTE).await;
    assert_eq!(hung.most_open(), 3);
    let snapshot = rig.snapshot();
    assert!(
        snapshot.iter().all(|(_, entry)| entry.failures() > 3),
        "everybody has had turns"
    );
}

#[tokio::test(start_paused = true)]
async fn what_seldom_changes_is_asked_every_tenth_time_and_remembered() {
    let fake = Fake::llama(1, 4);
    let rig = one(&fake);
    sleep(Duration::from_secs(35)).await;
    let polls = fake.polls();
    for (path, every) in [("/slots", 1), ("/metrics", 1), ("/props", 10), ("/v1/models", 10)] {
        let expected = polls.len().div_ceil(every);
        assert_eq!(
            fake.asked_at(path).len(),
            expected,
            "{path} of {} polls",
            polls.len()
        );
    }
    let models = Some(Models::Listed(vec![ModelEntry::new("m")]));
    assert!(polls.len() % 10 > 1, "the last poll asked no slow path");
    assert_eq!(rig.snapshot().find("a").unwrap().report().unwrap().models, models);
}

#[tokio::test(start_paused = true)]
async fn what_a_slow_path_lacks_is_remembered_too() {
    let fake = Fake::new(|path, _| match path {
        "/slots" => Reply::Says(501, String::new()),
        "/props" => Reply::ok("{}"),
        path => llama(path, 0, 4, "m"),
    });
    let rig = one(&fake);
    sleep(Duration::from_millis(4_500)).await;
    let snapshot = rig.snapshot();
    let expected: Vec<_> = snapshot
        .find("a")
        .unwrap()
        .report()
        .unwrap()
        .degraded
        .iter()
        .map(|one| &one.expected)
        .collect();
    assert_eq!(
        expected,
        ["/slots", "/props total_slots"],
        "and each stands there once"
    );
}

#[tokio::test(start_paused = true)]
async fn after_loading_everything_is_asked_again() {
    let loading = r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#;
    let fake = Fake::new(move |path, polls| match polls {
        0..3 => llama(path, 0, 4, "old"),
        3..5 => Reply::Says(503, loading.into()),
        _ => llama(path, 0, 8, "new"),
    });
    let rig = one(&fake);
    let report = rig
        .report("a", "loading", |report| report.health == Some(Health::Loading))
        .await;
    assert_eq!((report.models, report.slots_total), (None, None));
    let report = rig
        .report("a", "ready again", |report| report.health == Some(Health::Ready))
        .await;
    assert_eq!(report.models, Some(Models::Listed(vec![ModelEntry::new("new")])));
    assert_eq!(report.slots_total, Some(8));
    assert_eq!(
        fake.asked_at("/slots").len(),
        4,
        "while it loads, one question is enough"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_breaks_off_where_it_knows_no_path_is_found_out_all_the_same() {
    let fake = Fake::new(|path, _| match path {
        "/props" | "/metrics" | "/version" => Reply::Breaks,
        "/v1/models" => Reply::ok(r#"{"data":[{"id":"m"}]}"#),
        _ => Reply::not_found(),
    });
    let rig = Rig::net(
        [spec("a", "http://a")],
        Net::of([("http://a", fake)]),
        PollOptions::default(),
    );
    let report = rig.report("a", "a report", |_| true).await;
    assert_eq!(report.models, Some(Models::Listed(vec![ModelEntry::new("m")])));
}

#[tokio::test(start_paused = true)]
async fn a_poll_ends_with_its_upstream() {
    let fake = Fake::new(|path, _| match path {
        "/health" => Reply::Late(Duration::from_millis(100), 200, String::new()),
        path => llama(path, 0, 4, "m"),
    });
    let rig = one(&fake);
    rig.report("a", "a report", |_| true).await;
    rig.statuses.apply(StatusEvent::Remove(id("a"))).await.unwrap();
    rig.until("it has left", |snapshot| snapshot.is_empty()).await;
    let asked = fake.polls().len();
    sleep(MINUTE).await;
    assert_eq!((fake.polls().len(), fake.open()), (asked, 0));
}

#[tokio::test(start_paused = true)]
async fn another_url_is_another_transport_and_another_poll() {
    let (old, new) = (Fake::new(|_, _| Reply::Hangs), Fake::llama(3, 4));
    let net = Net::of([("http://old", old.clone()), ("http://new", new.clone())]);
    let rig = Rig::net([llamacpp("a", "http://old")], net, PollOptions::default());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(old.open(), 1);
    // As somebody would do it who has only what is published: the spec that is in force, with its transport.
    let mut moved = (**rig.snapshot().find("a").unwrap().spec()).clone();
    moved.url = "http://new".into();
    rig.statuses.apply(StatusEvent::Upsert(moved)).await.unwrap();
    let report = rig
        .report("a", "what the new one says", |report| {
            report.slots_busy == Some(3)
        })
        .await;
    assert_eq!(report.slots_total, Some(4));
    let asked = old.polls().len();
    sleep(MINUTE).await;
    assert_eq!(
        (old.polls().len(), old.open()),
        (asked, 0),
        "the old one is left alone"
    );
    assert_eq!(rig.snapshot().find("a").unwrap().generation(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_transport_that_is_brought_along_is_kept() {
    let (own, other) = (Fake::llama(1, 4), Fake::llama(2, 4));
    let mut brings = llamacpp("a", "http://a");
    brings.extensions.insert(Transport(own.clone()));
    let rig = Rig::net(
        [brings],
        Net::of([("http://a", other.clone())]),
        PollOptions::default(),
    );
    rig.report("a", "a report", |report| report.slots_busy == Some(1))
        .await;
    assert!(other.polls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_spec_without_a_way_to_it_is_passed_over() {
    let fake = Fake::llama(0, 4);
    let rig = Rig::net(
        [llamacpp("nowhere", "http://nowhere"), llamacpp("a", "http://a")],
        Net::of([("http://a", fake)]),
        PollOptions::default(),
    );
    rig.report("a", "a report", |_| true).await;
    assert_eq!(rig.snapshot().len(), 1);
    // A change that cannot be made leaves things as they were.
    rig.statuses
        .apply(StatusEvent::Upsert(llamacpp("a", "http://nowhere")))
        .await
        .unwrap();
    sleep(MINUTE).await;
    let entry = rig.snapshot().find("a").unwrap().clone();
    assert_eq!(
        (entry.spec().url.as_str(), entry.failures(), entry.generation()),
        ("http://a", 0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn own_requests_are_not_taken_for_those_of_others() {
    let fake = Fake::llama(3, 4);
    let rig = one(&fake);
    let entry = rig.entry("a", "a report", |entry| entry.report().is_some()).await;
    assert_eq!(entry.others(), 3);
    let leases: Vec<_> = std::iter::from_fn(|| rig.reserve()).collect();
    assert_eq!(leases.len(), 1, "others hold three of the four slots");
    // From the next poll on, one of the three that it reports is our own: that leaves another slot to us.
    let polls = fake.polls().len();
    let entry = rig
        .entry("a", "a later report", |_| fake.polls().len() > polls + 1)
        .await;
    assert_eq!(entry.others(), 2);
    assert!(rig.reserve().is_some());
}

#[tokio::test(start_paused = true)]
async fn the_sample_is_taken_after_it_is_known_what_the_engine_is() {
    // To find out takes a second here, in which we take two slots; the report that follows shows both.
    let fake = Fake::new(|path, _| match path {
        "/version" => Reply::Late(Duration::from_secs(1), 404, String::new()),
        path => llama(path, 2, 4, "m"),
    });
    let rig = Rig::net(
        [spec("a", "http://a")],
        Net::of([("http://a", fake)]),
        PollOptions::default(),
    );
    rig.until("it stands there", |snapshot| snapshot.len() == 1).await;
    let leases = [rig.reserve().unwrap(), rig.reserve().unwrap()];
    let entry = rig.entry("a", "a report", |entry| entry.report().is_some()).await;
    assert_eq!(entry.others(), 0);
    drop(leases);
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_panics_is_begun_anew() {
    let fake = Fake::new(|path, polls| match polls {
        0 => Reply::Panics,
        _ => llama(path, 0, 4, "m"),
    });
    let rig = one(&fake);
    let entry = rig.entry("a", "a failure", |entry| entry.failures() == 1).await;
    assert!(
        entry
            .last_failure()
            .unwrap()
            .message
            .contains("a transport of the host's has a fault")
    );
    rig.report("a", "a report", |_| true).await;
    assert_eq!(gaps(&fake.polls())[0].round(), 10.0, "after the longest rest");
}
