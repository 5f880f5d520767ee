//! What does a refusal of a router behind this one say of that router?

use std::time::Duration;

use paddler_core::health::{HealthState, UpstreamHealth};

use super::client::{CHAT, of_model, post};
use super::stub::{Do, Stub};
use super::world::{Setup, World, spec};

fn refusal(status: &str, reason: &str) -> Do {
    Do::say(&format!(
        "HTTP/1.1 {status} No\r\nx-paddler-reason: {reason}\r\nretry-after: 300\r\ncontent-length: 0\r\n\r\n"
    ))
}

/// A router that refuses the first three requests and is well after that.
async fn in_front_of(status: &str, reason: &str) -> (Stub, World) {
    let no = || refusal(status, reason);
    let inner = Stub::start([no(), no(), no(), Do::ok("{}")]).await;
    let world = Setup::new()
        .queue(9, Duration::from_millis(100))
        .start([spec("inner", &inner.url)])
        .await;
    (inner, world)
}

fn health(world: &World) -> UpstreamHealth {
    let snapshot = world.router.published().load_full();
    snapshot.health(snapshot.index("inner").unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_model_in_trouble_behind_a_router_holds_up_no_other() {
    for (status, reason) in [
        ("429", "slots_busy"),
        ("429", "queue_full"),
        ("429", "upstreams_busy"),
        ("429", "key_rate"),
        ("429", "words-of-a-tree"),
        ("503", "unhealthy"),
        ("503", "draining"),
        ("502", "upstream_broke"),
        ("504", "first_byte_timeout"),
    ] {
        let (inner, world) = in_front_of(status, reason).await;
        for asked in 1..=3 {
            let answer = post(world.addr, CHAT, &of_model("x")).await;
            assert_eq!(
                (answer.status.to_string().as_str(), answer.reason()),
                (status, reason)
            );
            assert_eq!(inner.seen().len(), asked, "{reason}");
        }
        let health = health(&world);
        assert_eq!((health.state, health.paused_until), (HealthState::Healthy, None));
        assert_eq!(post(world.addr, CHAT, &of_model("y")).await.status, 200);
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_that_can_serve_nobody_is_left_alone() {
    for (status, reason) in [("429", "buffers_full"), ("503", "no_upstream")] {
        let (inner, world) = in_front_of(status, reason).await;
        let answer = post(world.addr, CHAT, &of_model("x")).await;
        assert_eq!(answer.reason(), reason);
        assert!(health(&world).paused_until.is_some());
        let other = post(world.addr, CHAT, &of_model("y")).await;
        assert_eq!((other.status, other.reason()), (429, "upstreams_busy"));
        let after: u64 = other.header("retry-after").unwrap().parse().unwrap();
        assert!(
            (1..=15).contains(&after),
            "{after}: what one is told may not be for all"
        );
        assert_eq!(inner.seen().len(), 1);
        world.quiet().await;
    }
}
