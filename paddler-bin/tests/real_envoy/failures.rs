//! What happens when somebody dies.

use super::envoy::{Example, World, engine, envoy};
use super::support::client::{chat, eventually, get, post, streamed};

const CHAT: &str = "/v1/chat/completions";

#[tokio::test(flavor = "multi_thread")]
async fn when_the_first_upstream_dies_envoy_goes_to_the_next_and_the_picker_learns_it() {
    let Some(envoy) = envoy() else { return };
    let (dies, stays) = (engine().await, engine().await);
    let upstreams = [dies.addr(), stays.addr()];
    // Nobody is asked in time, so that the picker does not know.
    let more = ["--poll-interval=60s"];
    let world = World::start(&envoy, Example::OverrideHost, &upstreams, &more, |text| text).await;
    dies.shutdown().await;
    for _ in 0..20 {
        let answer = world.ask(post(CHAT, &chat("tiny", 1))).await;
        assert!(answer.is_good(), "{answer:?}");
    }
    assert_eq!(stays.stats().by_path[CHAT], 20);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_is_where_envoy_says_that_the_request_was_served() {
    let Some(envoy) = envoy() else { return };
    let slow = || paddler_engine::EngineConfig::llamacpp("tiny").decode_tokens_per_second(5.0);
    let (dies, stays) = (
        engine().await,
        paddler_engine::Engine::start(slow()).await.unwrap(),
    );
    let upstreams = [dies.addr(), stays.addr()];
    let more = ["--poll-interval=60s"];
    let world = World::start(&envoy, Example::OverrideHost, &upstreams, &more, |text| text).await;
    dies.shutdown().await;
    let mut held = Vec::new();
    for many in 1..=3 {
        let mut client = world.client();
        let mut reply = client.send(post(CHAT, &streamed(chat("tiny", 500)))).await;
        reply.more().await.unwrap().unwrap();
        held.push((client, reply));
        let page =
            super::support::client::ask(world.picker.management, super::support::client::get("/metrics"))
                .await;
        let open = "paddler_upstream_open_weight{upstream=\"e-2\"}";
        assert_eq!(
            super::support::client::series(page.text(), open),
            Some(f64::from(many))
        );
    }
    drop(held);
    eventually("the engine is free", async || stays.stats().running == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_is_gone_is_left_out_by_what_envoy_answers() {
    let Some(envoy) = envoy() else { return };
    let (dies, stays) = (engine().await, engine().await);
    let upstreams = [dies.addr(), stays.addr()];
    let more = ["--fallbacks=0", "--poll-interval=60s"];
    let world = World::start(&envoy, Example::OriginalDst, &upstreams, &more, |text| text).await;
    dies.shutdown().await;
    // Envoy's 503 counts against it.
    eventually("it is left out", async || {
        let answer = world.ask(post(CHAT, &chat("tiny", 1))).await;
        assert!(answer.status == 503 || answer.is_good(), "{answer:?}");
        world.figure("paddler_upstream_ejected").await == 1.0
    })
    .await;
    for _ in 0..5 {
        assert!(world.ask(post(CHAT, &chat("tiny", 1))).await.is_good());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_picker_envoy_does_as_its_failure_mode_says() {
    let Some(envoy) = envoy() else { return };
    let (a, b) = (engine().await, engine().await);
    let upstreams = [a.addr(), b.addr()];
    for (open, mode) in [
        (false, "FULL_DUPLEX_STREAMED"),
        (true, "FULL_DUPLEX_STREAMED"),
        (true, "BUFFERED"),
    ] {
        let edit = |text: String| {
            let text = text.replace(
                "failure_mode_allow: false",
                &format!("failure_mode_allow: {open}"),
            );
            text.replace(
                "request_body_mode: FULL_DUPLEX_STREAMED",
                &format!("request_body_mode: {mode}"),
            )
        };
        let world = World::start(&envoy, Example::OverrideHost, &upstreams, &[], edit).await;
        assert!(world.ask(post(CHAT, &chat("tiny", 1))).await.is_good());
        world.picker.program.signal("KILL");
        eventually("nobody picks", async || {
            tokio::net::TcpStream::connect(world.picker.address)
                .await
                .is_err()
        })
        .await;
        for _ in 0..4 {
            // Envoy does not go on without its picker once it has given a body away, which it does at once where it goes both ways.
            let chat = world.ask(post(CHAT, &chat("tiny", 1))).await;
            let bare = world.ask(get("/health")).await;
            let statuses = (chat.status, bare.status);
            let expected = match (open, mode) {
                (false, _) => (500, 500),
                (true, "BUFFERED") => (200, 200),
                (true, _) => (500, 200),
            };
            assert_eq!(statuses, expected, "{mode} {chat:?} {bare:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_whose_picker_dies_is_seen_to_be_cut_short() {
    let Some(envoy) = envoy() else { return };
    let slow = paddler_engine::EngineConfig::llamacpp("tiny").decode_tokens_per_second(5.0);
    let engine = paddler_engine::Engine::start(slow).await.unwrap();
    let world = World::start(
        &envoy,
        Example::OriginalDst,
        &[engine.addr()],
        &["--fallbacks=0"],
        |text| text,
    )
    .await;
    let mut client = world.client();
    let mut reply = client.send(post(CHAT, &streamed(chat("tiny", 500)))).await;
    reply.more().await.unwrap().unwrap();
    world.picker.program.signal("KILL");
    let answer = reply.whole().await;
    assert!(answer.cut && !answer.is_good());
    eventually("the engine is free", async || engine.stats().running == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picker_that_is_told_to_stop_lets_answers_end() {
    let Some(envoy) = envoy() else { return };
    let slow = paddler_engine::EngineConfig::llamacpp("tiny").decode_tokens_per_second(50.0);
    let engine = paddler_engine::Engine::start(slow).await.unwrap();
    let world = World::start(
        &envoy,
        Example::OriginalDst,
        &[engine.addr()],
        &["--fallbacks=0"],
        |text| text,
    )
    .await;
    let mut client = world.client();
    let mut reply = client.send(post(CHAT, &streamed(chat("tiny", 60)))).await;
    reply.more().await.unwrap().unwrap();
    world.picker.program.signal("TERM");
    world.picker.program.logs(|line| line.contains("stopping"));
    let rest = reply.whole().await;
    assert!(!rest.cut && rest.text().ends_with("data: [DONE]\n\n"), "{rest:?}");
}

/// A config file, as an argument.
fn config(name: &str, text: &str) -> String {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, text).unwrap();
    format!("--config={}", file.display())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_stream_that_goes_silent_ends_with_an_event_and_frees_its_engine() {
    let Some(envoy) = envoy() else { return };
    let engine = engine().await;
    let stall = paddler_engine::Fault::StallAfter { bytes: 700 };
    engine.set_fault(Some(stall)).unwrap();
    let config = config("silent.yaml", "timeouts: {idle: 200ms}\n");
    let more = ["--fallbacks=0", &config];
    let world = World::start(&envoy, Example::OriginalDst, &[engine.addr()], &more, |text| text).await;
    let mut client = world.client();
    let reply = client.send(post(CHAT, &streamed(chat("tiny", 50)))).await;
    let answer = reply.whole().await;
    assert!(
        !answer.cut && answer.text().contains("upstream_idle"),
        "{answer:?}"
    );
    eventually("the engine is free", async || engine.stats().running == 0).await;
    world.quiet().await;
}
