//! Who may go back to where it has been, and who is told at once that waiting is in vain?

use std::time::Duration;

use paddler_core::queue::QueueLimits;
use paddler_core::upstream::{ModelEntry, Models};

use super::client::{CHAT, Client, HANG, ask, chat, eventually, get, of_model, post};
use super::stub::{Do, Stub};
use super::world::{Setup, World, engine, of, quick, slow, spec};

const NOT_NOW: &str = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 300\r\ncontent-length: 0\r\n\r\n";

fn listed(name: &str) -> Models {
    Models::Listed(vec![ModelEntry::new(name)])
}

/// Two upstreams with a model each, the first of which wants to be left alone. Whoever waits for nobody would hang.
async fn two_models() -> ([Stub; 2], World) {
    let stubs = [
        Stub::start([Do::say(NOT_NOW)]).await,
        Stub::start([Do::ok("{}")]).await,
    ];
    let mut limits = QueueLimits::new(9, 1 << 20, Duration::from_secs(2));
    limits.max_wait_starting = HANG * 10;
    let world = Setup::new()
        .with(|setup| setup.options.queue = limits)
        .start([
            spec("a", &stubs[0].url).models(listed("x")),
            spec("b", &stubs[1].url).models(listed("y")),
        ])
        .await;
    (stubs, world)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_refused_by_the_only_one_with_its_model_is_told_at_once() {
    let (stubs, world) = two_models().await;
    let first = post(world.addr, CHAT, &of_model("x")).await;
    assert_eq!((first.status, first.header("retry-after")), (429, Some("300")));
    // Whoever comes next is told that it is a pause, and of when it ends.
    let second = post(world.addr, CHAT, &of_model("x")).await;
    assert_eq!((second.status, second.reason()), (429, "upstreams_busy"));
    assert_eq!(post(world.addr, CHAT, &of_model("y")).await.status, 200);
    assert_eq!(
        post(world.addr, CHAT, &of_model("z")).await.status,
        404,
        "and that nobody has it is no pause"
    );
    assert_eq!(stubs[0].seen().len(), 1);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_nobody_has_is_not_found_also_while_all_want_to_be_left_alone() {
    let stub = Stub::start([Do::say(NOT_NOW)]).await;
    let world = Setup::new()
        .queue(9, Duration::from_millis(100))
        .start([spec("a", &stub.url).models(listed("x"))])
        .await;
    assert_eq!(post(world.addr, CHAT, &of_model("x")).await.status, 429);
    assert_eq!(
        post(world.addr, CHAT, &of_model("x")).await.reason(),
        "upstreams_busy"
    );
    assert_eq!(post(world.addr, CHAT, &of_model("z")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_will_not_wait_is_served_by_whoever_is_idle() {
    let (busy, idle) = (engine(slow().slots(1)).await, engine(quick()).await);
    let world = Setup::new()
        .queue(9, HANG)
        .start([
            of("a", &busy).models(listed("x")),
            of("b", &idle).models(listed("y")),
        ])
        .await;
    let mut holds = Client::connect(world.addr).await;
    holds.post(CHAT, &of_model("x")).await;
    eventually("it is there", || world.open_weight() > 0).await;
    let mut waits = Client::connect(world.addr).await;
    waits.post(CHAT, &of_model("x")).await;
    eventually("it waits", || world.waiting() == 1).await;
    let headers = "content-type: application/json\r\nx-paddler-max-wait: 0\r\n";
    let answer = ask(world.addr, "POST", CHAT, headers, of_model("y").to_string()).await;
    assert_eq!((answer.status, answer.reason()), (200, ""), "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_lost_in_a_closed_connection_is_sent_again_also_where_it_may_not_wait() {
    let stub = Stub::start([Do::ok("{}"), Do::Close, Do::ok("{}")]).await;
    let world = Setup::new().queue(9, HANG).start([spec("a", &stub.url)]).await;
    for _ in 0..2 {
        let answer = get(world.addr, "/version").await;
        assert_eq!((answer.status, answer.reason()), (200, ""), "{}", answer.text());
    }
    assert_eq!(stub.seen().len(), 3);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_may_go_back_to_one_that_had_too_much_to_do_for_a_moment() {
    let full = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n";
    let stub = Stub::start([Do::say(full), Do::ok("{}")]).await;
    let world = Setup::new().queue(9, HANG).start([spec("a", &stub.url)]).await;
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    assert_eq!(stub.seen().len(), 2);
    world.quiet().await;
}
