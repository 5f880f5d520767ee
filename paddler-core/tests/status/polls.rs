//! When upstreams are asked, what they are asked, and when no more: with a clock that stands still.

use std::sync::Arc;
use std::time::Duration;

use paddler_core::status::{FailureKind, Health, PollOptions, Report, Signal, StatusEvent};
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

/// A process that has no file descriptor left.
#[cfg(unix)]
#[derive(Debug)]
struct Short;

#[cfg(unix)]
#[async_trait::async_trait]
impl paddler_core::upstream::http::Dial for Short {
    async fn dial(
        &self,
        _: std::net::SocketAddr,
    ) -> std::io::Result<Box<dyn paddler_core::upstream::http::Io>> {
        Err(std::io::Error::from_raw_os_error(24))
    }
}

#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn nobody_is_gone_since_we_have_no_file_descriptor_left_to_ask() {
    let connect = paddler_core::upstream::http::HttpConnect::default().dial(Arc::new(Short));
    let rig = Rig::net(
        [llamacpp("a", "http://127.0.0.1:9")],
        Arc::new(connect),
        PollOptions::default(),
    );
    let entry = rig
        .entry("a", "it was asked often", |entry| entry.failures() > 3)
        .await;
    let failure = entry.last_failure().unwrap();
    assert_eq!(failure.kind, FailureKind::Timeout, "{failure}");
    assert!(failure.message.contains("no file descriptor left"), "{failure}");
    assert!(!entry.is_unreachable());
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
async fn what_is_no_engine_is_asked_less_often_until_it_is_one() {
    let fake = Fake::new(|_, _| Reply::not_found());
    let net = Net::of([("http://a", fake.clone())]);
    let rig = Rig::net([spec("a", "http://a")], net, PollOptions::default());
    sleep(2 * MINUTE).await;
    let asked = gaps(&fake.polls());
    assert!(asked.len() >= 10, "{asked:?}");
    let longer = [1.0, 2.0, 4.0, 8.0].into_iter().chain(std::iter::repeat(10.0));
    for (gap, expected) in asked.iter().zip(longer) {
        let within = (0.9 * expected - 0.002)..=(1.1 * expected + 0.002);
        assert!(within.contains(gap), "{gap} is not about {expected}: {asked:?}");
    }
    fake.becomes(|path, _| llama(path, 0, 4, "m"));
    let since = Instant::now();
    rig.report("a", "an engine", |report| report.health == Some(Health::Ready))
        .await;
    assert!(since.elapsed() < Duration::from_secs(12), "{:?}", since.elapsed());
    let before = fake.polls().len();
    sleep(MINUTE).await;
    assert!(
        fake.polls().len() > before + 50,
        "as often as any other from then on"
    );
}

/// What an engine answers that lists one model and has nothing else.
fn lists(path: &str) -> Reply {
    match path {
        "/v1/models" => Reply::ok(r#"{"data":[{"id":"m","object":"model"}]}"#),
        _ => Reply::not_found(),
    }
}

#[tokio::test(start_paused = true)]
async fn who_hangs_where_metrics_stand_is_asked_seldom_and_fails_no_poll() {
    let own = Fake::new(|path, _| match path {
        "/health" => Reply::ok(""),
        path => lists(path),
    });
    let page = Fake::new(|_, _| Reply::Hangs);
    let mut spec = spec("v", "http://v");
    spec.engine = Engine::Vllm;
    spec.metrics_url = Some("http://page/m?token=secret".into());
    let net = Net::of([("http://v", own.clone()), ("http://page:80", page.clone())]);
    let mut options = PollOptions::default();
    options.timeout = Duration::from_millis(600);
    let rig = Rig::net([spec], net, options);
    sleep(2 * MINUTE).await;
    let entry = rig.entry("v", "a report", |entry| entry.report().is_some()).await;
    assert_eq!(entry.failures(), 0);
    assert_eq!(page.asked_at("/m").len(), own.polls().len().div_ceil(10));
    let degraded = &entry.report().unwrap().degraded;
    assert_eq!(degraded.len(), 3, "it is said between, too");
    for one in degraded {
        let said = (one.expected.as_str(), one.found.as_str());
        assert_eq!(
            said,
            ("http://page:80/m", "no answer within 200ms"),
            "its query is nobody else's business"
        );
    }
    page.becomes(|_, _| Reply::ok("vllm:num_requests_running 2\n"));
    rig.report("v", "its load", |report| report.running == Some(2))
        .await;
    let before = (page.asked_at("/m").len(), own.polls().len());
    sleep(MINUTE).await;
    let after = (page.asked_at("/m").len(), own.polls().len());
    assert_eq!(
        after.0 - before.0,
        after.1 - before.1,
        "each poll asks where somebody answers"
    );
}

#[tokio::test(start_paused = true)]
async fn what_answers_404_to_everything_is_no_triton_and_never_stays_one() {
    let fake = Fake::new(|_, _| Reply::not_found());
    let mut spec = spec("t", "http://t");
    spec.engine = Engine::Triton;
    let rig = Rig::net(
        [spec],
        Net::of([("http://t", fake.clone())]),
        PollOptions::default(),
    );
    let failing = |report: &Report| report.health == Some(Health::Failing);
    let why = |report: &Report| {
        let mut degraded = report.degraded.iter();
        let told = degraded.find(|one| one.signal == Signal::Health).unwrap();
        assert_eq!(told.expected, "/v2/health/ready, /v1/models");
        assert!(told.found.contains("ends before /v2"), "{told:?}");
        told.found.clone()
    };
    let report = rig.report("t", "a report", |_| true).await;
    assert!(failing(&report), "{report:?}");
    assert_eq!(
        report.models,
        Some(Models::Listed(Vec::new())),
        "nobody waits for it"
    );
    assert!(why(&report).starts_with("404 and 404: "));

    fake.becomes(|path, _| lists(path));
    let ready = |report: &Report| report.health == Some(Health::Ready);
    let report = rig.report("t", "its frontend for OpenAI", ready).await;
    assert_eq!(report.models, Some(Models::Listed(vec![ModelEntry::new("m")])));
    sleep(Duration::from_secs(5)).await;
    for (status, found) in [
        (404, "404 and 404: "),
        (200, "404 and 200 without a list of models: "),
    ] {
        fake.becomes(move |path, _| match path {
            "/v1/models" => Reply::Says(status, "<html>".into()),
            _ => Reply::not_found(),
        });
        let report = rig
            .report("t", found, |report| {
                failing(report) && why(report).starts_with(found)
            })
            .await;
        assert_eq!(report.models, Some(Models::Listed(Vec::new())));
    }
    fake.becomes(|path, _| match path {
        "/v2/health/ready" => Reply::ok(""),
        "/v2/repository/index" => Reply::ok(r#"[{"name":"own","version":"1","state":"READY"}]"#),
        _ => Reply::Says(400, String::new()),
    });
    let report = rig.report("t", "Triton itself", ready).await;
    let own = Some(Models::Listed(vec![ModelEntry::new("own")]));
    assert_eq!(report.models, own, "asked for at once");
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
