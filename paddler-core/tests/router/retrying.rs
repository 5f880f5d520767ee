//! How often is a request sent again, and what is the client told?

use std::time::Duration;

use paddler_core::upstream::{ModelEntry, Models, UpstreamSpec};
use paddler_engine::Fault;
use serde_json::json;

use super::client::{CHAT, Client, ask, chat, eventually, of_model, post};
use super::stub::{Do, Stub};
use super::world::{Setup, World, engine, nowhere, of, quick, slow, spec};

fn denied(world: &World, reason: &str) -> u64 {
    let denied = world.router.metrics().retries_denied();
    denied
        .iter()
        .find(|(known, _)| *known == reason)
        .map_or(0, |(_, count)| *count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_budget_an_upstreams_refusal_is_the_answer() {
    let loads = engine(quick()).await;
    loads
        .set_fault(Some(Fault::Status {
            code: 503,
            retry_after: Some(100),
        }))
        .unwrap();
    let works = engine(quick()).await;
    for per_second in [0, 10] {
        let setup = Setup::new().with(|setup| {
            setup.options.retry.share = 0.0;
            setup.options.retry.per_second = per_second;
            // It stays in.
            setup.board.health.largest_share = 0.0;
        });
        let world = setup.start([of("loads", &loads)]).await;
        let answer = post(world.addr, CHAT, &chat(1)).await;
        assert_eq!(answer.status, 503);
        assert_eq!(answer.header("retry-after"), Some("100"), "in its own words");
        assert_eq!(answer.header("x-should-retry"), None);
        assert_eq!(denied(&world, "budget"), u64::from(per_second == 0));

        let both = setup_of_both(per_second)
            .start([of("loads", &loads), of("works", &works)])
            .await;
        let before = loads.stats().requests;
        let mut refused = 0;
        while loads.stats().requests == before {
            refused += u32::from(post(both.addr, CHAT, &chat(1)).await.status == 503);
        }
        assert_eq!(refused, u32::from(per_second == 0));
        both.quiet().await;
    }
}

fn setup_of_both(per_second: u32) -> Setup {
    Setup::new().with(|setup| {
        setup.options.retry.share = 0.0;
        setup.options.retry.per_second = per_second;
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_finds_no_place_adds_nothing_to_what_may_be_sent_again() {
    let loads = Stub::start([Do::say("HTTP/1.1 503 Loading\r\ncontent-length: 0\r\n\r\n")]).await;
    let setup = Setup::new().with(|setup| {
        (setup.options.retry.share, setup.options.retry.per_second) = (0.2, 0);
        // It stays in.
        setup.board.health.largest_share = 0.0;
    });
    let known = Models::Listed(vec![ModelEntry::new("known")]);
    let world = setup.start([spec("loads", &loads.url).models(known)]).await;
    for _ in 0..50 {
        let refused = post(world.addr, CHAT, &of_model("unknown")).await;
        assert_eq!(refused.status, 404);
    }
    assert_eq!(post(world.addr, CHAT, &of_model("known")).await.status, 503);
    assert_eq!(loads.seen().len(), 1, "a fifth of one request is none");
    assert_eq!(denied(&world, "budget"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_sent_costs_no_budget() {
    let works = engine(quick()).await;
    let gone: Vec<UpstreamSpec> = vec![
        spec("x", nowhere().await),
        spec("y", nowhere().await),
        of("z", &works),
    ];
    let world = setup_of_both(0).start(gone).await;
    for _ in 0..10 {
        assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    }
    assert_eq!(denied(&world, "budget"), 0);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_a_limit_to_attempts() {
    let setup = Setup::new().with(|setup| setup.options.retry.attempts = 2);
    let gone = [
        spec("x", nowhere().await),
        spec("y", nowhere().await),
        spec("z", nowhere().await),
    ];
    let world = setup.start(gone).await;
    let answer = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!((answer.status, answer.reason()), (503, "unreachable"));
    assert_eq!(denied(&world, "attempts"), 1);
    assert_eq!(world.metric("paddler_retries_total"), 2.0);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_502_is_passed_on_where_nobody_else_is() {
    let stub = Stub::start([Do::say(
        "HTTP/1.1 502 Bad\r\nx-of: stub\r\ncontent-length: 3\r\n\r\nbad",
    )])
    .await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    for body in [chat(1), json!({ "messages": [], "store": true })] {
        let before = stub.seen().len();
        let answer = post(world.addr, CHAT, &body).await;
        assert_eq!(
            (answer.status, answer.text(), answer.header("x-of")),
            (502, "bad", Some("stub"))
        );
        assert_eq!(stub.seen().len(), before + 1);
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_504_and_a_500_are_the_answer() {
    for code in [500, 504] {
        let (odd, works) = (engine(quick()).await, engine(quick()).await);
        odd.set_fault(Some(Fault::Status {
            code,
            retry_after: None,
        }))
        .unwrap();
        let world = Setup::new().start([of("odd", &odd), of("works", &works)]).await;
        let mut seen = 0;
        while odd.stats().requests == 0 {
            seen = post(world.addr, CHAT, &chat(1)).await.status;
        }
        assert_eq!(seen, code);
        assert_eq!(world.metric("paddler_retries_total"), 0.0);
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openai_clients_are_told_whether_and_when_to_ask_again() {
    let busy = engine(slow().slots(1)).await;
    let world = Setup::new()
        .queue(0, Duration::ZERO)
        .start([of("a", &busy)])
        .await;
    let mut first = Client::connect(world.addr).await;
    first.post(CHAT, &super::client::stream(1_000)).await;
    eventually("it runs", || busy.stats().running == 1).await;
    let answer = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("x-should-retry"), Some("true"));
    assert_eq!(answer.header("retry-after"), Some("2"));
    assert_eq!(answer.header("retry-after-ms"), Some("2000"));

    let malformed = ask(world.addr, "POST", CHAT, "", "{").await;
    assert_eq!(
        (malformed.status, malformed.header("x-should-retry")),
        (400, Some("false"))
    );
    assert_eq!(malformed.header("retry-after-ms"), None);
    drop(first);

    // What may be done twice may be asked for twice; what may leave traces is for the client to judge.
    let stub = Stub::start([Do::Close]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    for (body, again) in [
        (chat(1), "true"),
        (json!({ "messages": [], "store": true }), "false"),
    ] {
        let answer = post(world.addr, CHAT, &body).await;
        assert_eq!((answer.status, answer.reason()), (502, "upstream_broke"));
        assert_eq!(answer.header("x-should-retry"), Some(again));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_cannot_be_kept_is_sent_once_and_the_refusal_says_so() {
    let large = json!({ "messages": [{ "role": "user", "content": "x".repeat(90_000) }], "max_tokens": 1 });
    let setup = || {
        Setup::new().with(|setup| {
            setup.options.max_body = 100_000;
            setup.options.max_buffered = 100_000;
        })
    };
    let breaks = Stub::start([Do::Close]).await;
    let refuses = Stub::start([Do::say("HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy")]).await;
    for stub in [&breaks, &refuses] {
        let works = Stub::start([Do::ok("{}")]).await;
        let world = setup()
            .start([spec("a", &stub.url), spec("gone", nowhere().await)])
            .await;
        // Whether or not the one that cannot be reached is tried first: that costs nothing of the body.
        let answer = post(world.addr, CHAT, &large).await;
        assert_eq!(answer.reason(), "body_not_kept");
        assert!([502, 503].contains(&answer.status), "{}", answer.status);
        assert_eq!((stub.seen().len(), denied(&world, "body_not_kept")), (1, 1));
        world.quiet().await;

        let world = setup()
            .start([spec("works", &works.url), spec("gone", nowhere().await)])
            .await;
        assert_eq!(post(world.addr, CHAT, &large).await.status, 200);
        assert!(works.seen()[0].ends_with(&large.to_string()), "all of it");
        world.quiet().await;
    }
    // What fits is kept, and sent again.
    let works = Stub::start([Do::ok("{}")]).await;
    for _ in 0..8 {
        let world = setup()
            .start([spec("a", &breaks.url), spec("b", &works.url)])
            .await;
        let small = json!({ "messages": [{ "role": "user", "content": "x".repeat(9_000) }] });
        assert_eq!(post(world.addr, CHAT, &small).await.status, 200);
        world.quiet().await;
    }
}
