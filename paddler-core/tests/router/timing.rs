//! How long may a request take, as the config, its model, its upstream and its client have it?

use std::time::Duration;

use paddler_core::config::ModelTimeouts;
use paddler_core::request::{ModelRule, ModelRules};

use super::client::{CHAT, Client, End, HANG, ask, chat, eventually, of_model, stream};
use super::stub::{Do, Stub};
use super::world::{Setup, engine, of, slow, spec};

const SHORT: Duration = Duration::from_millis(60);

const EVENTS: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

#[tokio::test]
async fn a_client_may_have_less_time_for_the_first_byte() {
    let stub = Stub::start([Do::Stall]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    for headers in [
        "x-paddler-timeout-first-byte: 60ms\r\n",
        "x-paddler-timeout-first-byte: 0.06\r\n",
    ] {
        let late = ask(world.addr, "POST", CHAT, headers, chat(1).to_string()).await;
        assert_eq!((late.status, late.reason()), (504, "first_byte_timeout"));
    }
    let headers = "x-paddler-timeout-whole: 60ms\r\n";
    let late = ask(world.addr, "POST", CHAT, headers, chat(1).to_string()).await;
    assert_eq!((late.status, late.reason()), (504, "whole_timeout"));
    world.quiet().await;
}

#[tokio::test]
async fn a_client_cannot_have_more_time_than_there_is() {
    let stub = Stub::start([Do::Stall]).await;
    let setup = Setup::new().with(|setup| setup.options.timeouts.first_byte = SHORT);
    let world = setup.start([spec("a", &stub.url)]).await;
    let headers = "x-paddler-timeout-first-byte: 24h\r\nx-paddler-timeout-whole: 99999h\r\n";
    let late = ask(world.addr, "POST", CHAT, headers, chat(1).to_string()).await;
    assert_eq!((late.status, late.reason()), (504, "first_byte_timeout"));
    world.quiet().await;
}

#[tokio::test]
async fn a_time_that_cannot_be_read_is_refused_by_name() {
    let stub = Stub::start([Do::ok("{}")]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    for name in ["max-wait", "timeout-first-byte", "timeout-idle", "timeout-whole"] {
        let headers = format!("x-paddler-{name}: soon\r\n");
        let refused = ask(world.addr, "POST", CHAT, &headers, chat(1).to_string()).await;
        assert_eq!((refused.status, refused.reason()), (400, "bad_header"));
        assert!(
            refused.text().contains(&format!("x-paddler-{name}")),
            "{}",
            refused.text()
        );
    }
    assert!(stub.seen().is_empty());
    world.quiet().await;
}

#[tokio::test]
async fn a_client_may_wait_less_for_a_place() {
    let engine = engine(slow().slots(1)).await;
    let world = Setup::new().queue(9, HANG).start([of("a", &engine)]).await;
    let mut first = Client::connect(world.addr).await;
    first.post(CHAT, &stream(1_000)).await;
    eventually("it is there", || world.open_weight() == 1).await;
    for wait in ["0", "30ms", "0.03"] {
        let headers = format!("x-paddler-max-wait: {wait}\r\n");
        let busy = ask(world.addr, "POST", CHAT, &headers, chat(1).to_string()).await;
        assert_eq!((busy.status, busy.reason()), (429, "slots_busy"), "{wait}");
    }
    // What is left of the whole is all that can be waited.
    let headers = "x-paddler-timeout-whole: 50ms\r\n";
    let busy = ask(world.addr, "POST", CHAT, headers, chat(1).to_string()).await;
    assert_eq!((busy.status, busy.reason()), (429, "slots_busy"));
    drop(first);
    world.quiet().await;
}

#[tokio::test]
async fn a_client_cannot_wait_longer_than_there_is() {
    let engine = engine(slow().slots(1)).await;
    let world = Setup::new().queue(9, SHORT).start([of("a", &engine)]).await;
    let mut first = Client::connect(world.addr).await;
    first.post(CHAT, &stream(1_000)).await;
    eventually("it is there", || world.open_weight() == 1).await;
    let busy = ask(
        world.addr,
        "POST",
        CHAT,
        "x-paddler-max-wait: 1h\r\n",
        chat(1).to_string(),
    )
    .await;
    assert_eq!((busy.status, busy.reason()), (429, "slots_busy"));
    drop(first);
    world.quiet().await;
}

#[tokio::test]
async fn a_pause_that_the_client_does_not_want_ends_the_answer() {
    let stub = Stub::start([Do::say(&format!("{EVENTS}9\r\ndata: 1\n\n\r\n"))]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let headers = "x-paddler-timeout-idle: 60ms\r\n";
    let cut = ask(world.addr, "POST", CHAT, headers, stream(1).to_string()).await;
    assert!(
        cut.text().starts_with("data: 1\n\ndata: ") && cut.text().contains("upstream_idle"),
        "{}",
        cut.text()
    );
    world.quiet().await;
}

#[tokio::test]
async fn the_whole_of_an_answer_may_have_its_time_and_its_end_is_seen() {
    // Bytes come without a pause, for longer than a test runs.
    let engine = engine(slow().decode_tokens_per_second(200.0)).await;
    let setup = Setup::new().with(|setup| setup.options.timeouts.whole = Some(SHORT * 5));
    let world = setup.start([of("a", &engine)]).await;
    let cut = ask(world.addr, "POST", CHAT, "", stream(1_000_000).to_string()).await;
    assert_eq!((cut.status, cut.end), (200, End::Whole));
    let text = cut.text();
    assert!(
        text.matches("data: ").count() > 3 && text.contains("whole_timeout"),
        "{text}"
    );
    assert!(!text.contains("[DONE]"));
    world.quiet().await;
    // Where no event can say it, the answer is broken off.
    let stub = Stub::start([Do::say("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf ")]).await;
    let setup = Setup::new().with(|setup| setup.options.timeouts.whole = Some(SHORT));
    let world = setup.start([spec("a", &stub.url)]).await;
    let cut = ask(world.addr, "POST", CHAT, "", chat(1).to_string()).await;
    assert_eq!((cut.text(), cut.end == End::Whole), ("half ", false));
    world.quiet().await;
}

#[tokio::test]
async fn models_and_upstreams_have_their_own_times() {
    let stub = Stub::start([Do::Stall]).await;
    let setup = Setup::new().with(|setup| {
        let mut hasty = ModelTimeouts::default();
        hasty.first_byte = Some(SHORT);
        let mut rule = ModelRule::default();
        rule.settings.timeouts = hasty;
        setup.options.models = ModelRules::new([("hasty", rule)]).unwrap().into();
    });
    let mut patient = spec("patient", &stub.url);
    patient.timeouts.first_byte = Some(HANG * 9);
    let world = setup.start([patient]).await;
    let late = ask(world.addr, "POST", CHAT, "", of_model("hasty").to_string()).await;
    assert_eq!(
        (late.status, late.reason()),
        (504, "first_byte_timeout"),
        "the model goes before the upstream"
    );
    world.quiet().await;
    let mut hasty = spec("hasty", &stub.url);
    hasty.timeouts.first_byte = Some(SHORT);
    let world = Setup::new().start([hasty]).await;
    let late = ask(world.addr, "POST", CHAT, "", of_model("any").to_string()).await;
    assert_eq!(
        (late.status, late.reason()),
        (504, "first_byte_timeout"),
        "the upstream goes before all"
    );
    world.quiet().await;
}
