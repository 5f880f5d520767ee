//! Does whoever waits get a place in turn, and is nobody lost?

use std::time::Duration;

use paddler_core::config::{Registry, tree_from_yaml};
use paddler_core::status::StatusEvent;
use paddler_core::upstream::{ModelEntry, Models, UpstreamId};
use paddler_engine::{EngineConfig, Fault};
use serde_json::json;
use tokio::task::JoinSet;

use super::client::{CHAT, Client, End, HANG, ask, chat, eventually, get, of_model, post, stream};
use super::stub::{Do, Stub};
use super::world::{Setup, World, engine, of, quick, slow, spec};

const SHORT: Duration = Duration::from_millis(60);

fn listed(names: &[&str]) -> Models {
    Models::Listed(names.iter().map(|name| ModelEntry::new(*name)).collect())
}

/// Sends a request, and waits until one more stands in the queue.
async fn enqueue(world: &World, body: &serde_json::Value) -> Client {
    let before = world.waiting();
    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, body).await;
    eventually("it waits", || world.waiting() == before + 1).await;
    client
}

/// Takes the only place, until the client is dropped.
async fn occupy(world: &World) -> Client {
    let before = world.open_weight();
    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, &stream(1_000)).await;
    eventually("it is there", || world.open_weight() > before).await;
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_slot_serves_many_and_the_engine_never_queues() {
    let config = quick().slots(1).decode_tokens_per_second(4_000.0);
    let engine = engine(config).await;
    let world = Setup::new().queue(100, HANG).start([of("a", &engine)]).await;
    let mut clients = JoinSet::new();
    for number in 0..60u32 {
        let addr = world.addr;
        clients.spawn(async move {
            let body = if number % 2 == 0 { chat(3) } else { stream(3) };
            let answer = post(addr, CHAT, &body).await;
            assert_eq!((answer.status, answer.end), (200, End::Whole));
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    let stats = engine.stats();
    assert_eq!(
        (stats.max_running, stats.max_waiting, stats.completed),
        (1, 0, 60)
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_came_first_is_served_first() {
    let stub = Stub::start([Do::Stall, Do::ok("{}")]).await;
    let world = Setup::new().start([spec("a", &stub.url).max_in_flight(1)]).await;
    let first = occupy(&world).await;
    let mut waiting = Vec::new();
    for number in 0..8 {
        let mut body = chat(1);
        body["number"] = json!(number);
        waiting.push(enqueue(&world, &body).await);
    }
    drop(first);
    for client in &mut waiting {
        assert_eq!(client.answer().await.status, 200);
    }
    let order: Vec<_> = stub.seen()[1..]
        .iter()
        .map(|seen| seen.split("\"number\":").nth(1).unwrap()[..1].to_owned())
        .collect();
    assert_eq!(order, ["0", "1", "2", "3", "4", "5", "6", "7"]);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_leaves_is_gone_at_once() {
    let engine = engine(slow().slots(1)).await;
    let world = Setup::new().queue(2, HANG).start([of("a", &engine)]).await;
    let first = occupy(&world).await;
    let waiters = [enqueue(&world, &chat(1)).await, enqueue(&world, &chat(1)).await];
    let full = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!(
        (full.status, full.reason(), full.header("retry-after")),
        (429, "queue_full", Some("2"))
    );
    for (client, left) in waiters.into_iter().zip([1, 0]) {
        drop(client);
        eventually("it is out", || world.waiting() == left).await;
    }
    let _again = enqueue(&world, &chat(1)).await;
    assert_eq!(engine.stats().requests, 1, "those that left were never sent");
    drop((first, _again));
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_handed_to_those_who_leave_are_handed_on() {
    let engine = engine(quick().slots(1).decode_tokens_per_second(2_000.0)).await;
    let world = Setup::new().queue(100, HANG).start([of("a", &engine)]).await;
    for round in 0..8u64 {
        let mut leaving = Vec::new();
        for _ in 0..4 {
            let mut client = Client::connect(world.addr).await;
            client.post(CHAT, &chat(2)).await;
            leaving.push(client);
        }
        let stays = tokio::spawn({
            let addr = world.addr;
            async move { post(addr, CHAT, &chat(2)).await.status }
        });
        tokio::time::sleep(Duration::from_micros(round * 700)).await;
        drop(leaving);
        assert_eq!(stays.await.unwrap(), 200);
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_model_is_not_held_up_even_when_the_queue_is_full() {
    let (busy, free) = (engine(slow().slots(1)).await, engine(quick()).await);
    let upstreams = [
        of("busy", &busy).models(listed(&["big"])),
        of("free", &free).models(listed(&["small"])),
    ];
    let world = Setup::new().queue(1, HANG).start(upstreams).await;
    let mut big = Client::connect(world.addr).await;
    let mut endless = of_model("big");
    endless["max_tokens"] = json!(1_000);
    big.post(CHAT, &endless).await;
    eventually("it is there", || busy.stats().running == 1).await;
    let waiter = enqueue(&world, &of_model("big")).await;
    for _ in 0..3 {
        assert_eq!(post(world.addr, CHAT, &of_model("small")).await.status, 200);
    }
    assert_eq!(
        post(world.addr, CHAT, &of_model("big")).await.reason(),
        "queue_full"
    );
    drop((big, waiter));
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_too_long_is_told_when_to_come_again() {
    let engine = engine(slow().slots(1)).await;
    let world = Setup::new().queue(9, SHORT).start([of("a", &engine)]).await;
    let first = occupy(&world).await;
    let late = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!(
        (late.status, late.reason(), late.header("retry-after")),
        (429, "slots_busy", Some("2"))
    );
    assert!(
        late.json()["error"]["message"]
            .as_str()
            .unwrap()
            .contains("after waiting")
    );
    drop(first);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_there_and_then_somebody_is() {
    let world = Setup::new().queue(9, SHORT).start([]).await;
    let nobody = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!(
        (nobody.status, nobody.reason(), nobody.header("retry-after")),
        (503, "no_upstream", Some("2"))
    );
    assert_eq!(
        get(world.addr, "/some/page").await.status,
        503,
        "what weighs nothing does not wait"
    );

    let world = Setup::new().queue(9, HANG).start([]).await;
    let mut client = enqueue(&world, &chat(1)).await;
    let engine = engine(quick()).await;
    world
        .statuses
        .apply(StatusEvent::Upsert(of("late", &engine)))
        .await
        .unwrap();
    assert_eq!(client.answer().await.status, 200);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_model_is_known_to_be_unknown_only_when_all_have_told() {
    let engine = engine(quick()).await;
    let told = of("a", &engine).models(listed(&["one", "two"]));
    let mut silent = of("b", &engine);
    silent.models = None;
    let world = Setup::new().queue(9, SHORT).start([told.clone()]).await;
    let unknown = post(world.addr, CHAT, &of_model("three")).await;
    assert_eq!((unknown.status, unknown.reason()), (404, "model_not_found"));
    assert!(
        unknown.json()["error"]["message"]
            .as_str()
            .unwrap()
            .ends_with("known: one, two")
    );

    let world = Setup::new().queue(9, SHORT).start([told, silent]).await;
    let unknown = post(world.addr, CHAT, &of_model("three")).await;
    assert_eq!((unknown.status, unknown.reason()), (503, "models_unknown"));
    assert_eq!(post(world.addr, CHAT, &of_model("two")).await.status, 200);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_learns_that_waiting_is_in_vain() {
    let engine = engine(quick()).await;
    let mut silent = of("a", &engine);
    silent.models = None;
    let world = Setup::new().queue(9, HANG).start([silent.clone()]).await;
    let mut client = enqueue(&world, &of_model("three")).await;
    world
        .statuses
        .apply(StatusEvent::Upsert(silent.models(listed(&["one"]))))
        .await
        .unwrap();
    assert_eq!(client.answer().await.reason(), "model_not_found");
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_upstream_gets_nothing_until_it_is_back() {
    let engine = engine(quick()).await;
    let world = Setup::new().queue(9, HANG).start([of("a", &engine)]).await;
    let id = UpstreamId::new("a").unwrap();
    assert_eq!(world.statuses.set_draining(id.clone(), true).await, Ok(true));
    let mut client = enqueue(&world, &chat(1)).await;
    assert_eq!(engine.stats().requests, 0);
    assert_eq!(world.statuses.set_draining(id, false).await, Ok(true));
    assert_eq!(client.answer().await.status, 200);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_says_that_all_are_drained_and_waits_as_for_a_place() {
    let engine = engine(quick()).await;
    let world = Setup::new()
        .queue(9, Duration::from_millis(50))
        .with(|setup| setup.options.queue.max_wait_starting = HANG)
        .start([of("a", &engine)])
        .await;
    let id = UpstreamId::new("a").unwrap();
    assert_eq!(world.statuses.set_draining(id, true).await, Ok(true));
    let refused = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!((refused.status, refused.reason()), (503, "draining"));
    assert!(!world.router.is_ready());
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_patience_of_an_alternative_ends_though_nothing_happens() {
    let (mine, other) = (engine(slow().slots(1)).await, engine(quick()).await);
    let text = "tree:\n  first_of:\n    - tree: [require: {label: {who: mine}}, require: slot, pick: random]\n      \
                patience: 100ms\n    - [require: slot, pick: random]\n";
    let tree = tree_from_yaml(text, "test", &Registry::new()).unwrap();
    let upstreams = [
        of("mine", &mine).label("who", "mine"),
        of("other", &other).label("who", "other"),
    ];
    let world = Setup::new()
        .queue(9, HANG)
        .with(|setup| setup.tree = tree)
        .start(upstreams)
        .await;
    let first = occupy(&world).await;
    assert_eq!(
        post(world.addr, CHAT, &chat(1)).await.status,
        200,
        "served by the other, after its patience"
    );
    assert_eq!(other.stats().requests, 1);
    drop(first);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_weighs_nothing_never_waits() {
    let engine = engine(slow().slots(1)).await;
    let world = Setup::new().queue(9, HANG).start([of("a", &engine)]).await;
    let first = occupy(&world).await;
    let waiter = enqueue(&world, &chat(1)).await;
    let tokens = ask(world.addr, "POST", "/tokenize", "", r#"{"content":"Hi there"}"#).await;
    assert_eq!(tokens.status, 200);
    assert_eq!(get(world.addr, "/v1/models").await.status, 200);
    assert_eq!(
        get(world.addr, "/v1/models/tiny").await.status,
        404,
        "as the engine has it"
    );
    assert_eq!(world.waiting(), 1);
    drop((first, waiter));
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heavy_request_takes_as_many_places() {
    let engine = engine(slow().slots(3)).await;
    let world = Setup::new().queue(9, HANG).start([of("a", &engine)]).await;
    let mut client = Client::connect(world.addr).await;
    let mut body = chat(1_000);
    body["n"] = json!(3);
    client.post(CHAT, &body).await;
    eventually("all three run", || engine.stats().running == 3).await;
    let waiter = enqueue(&world, &chat(1)).await;
    assert_eq!((world.open_weight(), engine.stats().waiting), (3, 0));
    drop((client, waiter));
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_was_refused_can_use_the_one_that_is_ready_again() {
    // One is busy with something endless, the other refuses twice and then serves.
    let (busy, loads) = (engine(slow().slots(1)).await, engine(quick().slots(1)).await);
    let world = Setup::new().queue(9, HANG).start([of("busy", &busy)]).await;
    let first = occupy(&world).await;
    loads
        .add_fault(paddler_engine::FaultRule::new(Fault::Loading).times(2))
        .unwrap();
    world
        .statuses
        .apply(StatusEvent::Upsert(of("loads", &loads)))
        .await
        .unwrap();
    let answer = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!((answer.status, loads.stats().requests), (200, 3));
    drop(first);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_slots_many_clients_and_nothing_is_lost() {
    let config = EngineConfig::llamacpp("tiny")
        .instant()
        .slots(3)
        .decode_tokens_per_second(8_000.0);
    let engines = [engine(config.clone()).await, engine(config).await];
    let upstreams = [of("a", &engines[0]), of("b", &engines[1])];
    let world = Setup::new().queue(1_000, HANG).start(upstreams).await;
    let mut clients = JoinSet::new();
    for number in 0..48u32 {
        let addr = world.addr;
        clients.spawn(async move {
            let mut client = Client::connect(addr).await;
            for round in 0..10 {
                client
                    .post(
                        CHAT,
                        &if (number + round) % 3 == 0 {
                            stream(3)
                        } else {
                            chat(3)
                        },
                    )
                    .await;
                if (number + round) % 7 == 6 {
                    // Leaves without reading.
                    client = Client::connect(addr).await;
                    continue;
                }
                let answer = client.answer().await;
                assert_eq!((answer.status, answer.end), (200, End::Whole));
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    world.quiet().await;
    assert!(
        engines.iter().all(|engine| engine.stats().requests > 50),
        "both were used"
    );
}
