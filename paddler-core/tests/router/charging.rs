//! What does a tenant pay for a request that comes to nothing?
//!
//! Judged by the order in which requests reach the engine: who has paid less is first.

use http::HeaderMap;
use paddler_core::forward::Annotate;
use paddler_core::request::RequestFacts;
use paddler_core::upstream::{ModelEntry, Models};
use serde_json::{Value, json};

use super::client::{CHAT, Client, HANG, chat, eventually, of_model, stream};
use super::stub::{Do, Stub};
use super::world::{Setup, World, spec};

#[derive(Debug)]
struct Believes;

impl Annotate for Believes {
    fn annotate(&self, headers: &HeaderMap, facts: &mut RequestFacts) {
        let tenant = headers.get("x-tenant").and_then(|value| value.to_str().ok());
        facts.tenant = tenant.map(Into::into);
    }
}

fn setup() -> Setup {
    Setup::new().queue(100, HANG).with(|setup| {
        setup.options.annotate = Some(std::sync::Arc::new(Believes));
        setup.board.health.largest_share = 0.0;
    })
}

async fn send(world: &World, tenant: &str, mut body: Value) -> Client {
    body["who"] = json!(tenant);
    let mut client = Client::connect(world.addr).await;
    let headers = format!("content-type: application/json\r\nx-tenant: {tenant}\r\n");
    client.send("POST", CHAT, &headers, body.to_string()).await;
    client
}

/// Sends it, and waits until one more stands in the queue.
async fn enqueue(world: &World, tenant: &str, body: Value) -> Client {
    let before = world.waiting();
    let client = send(world, tenant, body).await;
    eventually("it waits", || world.waiting() == before + 1).await;
    client
}

/// The tenants, in the order in which the engine got their requests.
fn order(stub: &Stub) -> Vec<String> {
    let tenant = |seen: &String| {
        let rest = seen.split("\"who\":\"").nth(1)?;
        Some(rest.split('"').next()?.to_owned())
    };
    stub.seen().iter().filter_map(tenant).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_request_costs_no_more_than_its_place() {
    let stub = Stub::start([Do::Stall, Do::Stall, Do::ok("{}")]).await;
    let world = setup().start([spec("a", &stub.url).max_in_flight(1)]).await;
    let first = send(&world, "nobody", stream(1_000)).await;
    eventually("it is there", || world.open_weight() > 0).await;
    let mut heavy = chat(1);
    heavy["n"] = json!(1_000_000);
    let cancelled = enqueue(&world, "one", heavy).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(enqueue(&world, "one", chat(1)).await);
        clients.push(enqueue(&world, "two", chat(1)).await);
    }
    drop(first);
    eventually("the heavy one is there", || stub.seen().len() == 2).await;
    drop(cancelled);
    for mut client in clients {
        assert_eq!(client.answer().await.status, 200);
    }
    let ones = order(&stub)[2..10].iter().filter(|who| *who == "one").count();
    assert!(ones >= 3, "{ones} of eight");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_broke_and_is_sent_once_more_is_paid_for_once() {
    let a = Stub::start([
        Do::Stall,
        Do::Close,
        Do::Close,
        Do::Close,
        Do::Stall,
        Do::ok("{}"),
    ])
    .await;
    let b = Stub::start([Do::Stall]).await;
    let listed = |names: &[&str]| Models::Listed(names.iter().map(|name| ModelEntry::new(*name)).collect());
    let world = setup()
        .start([
            spec("a", &a.url).max_in_flight(1).models(listed(&["x"])),
            spec("b", &b.url).max_in_flight(1).models(listed(&["x", "y"])),
        ])
        .await;
    let _busy = send(&world, "nobody", of_model("y")).await;
    eventually("b is busy", || world.open_weight() == 1).await;
    let first = send(&world, "nobody", of_model("x")).await;
    eventually("a is busy", || world.open_weight() == 2).await;
    // Somebody of the other waits all the time, so he is lifted to nobody's account.
    let _two = enqueue(&world, "two", of_model("y")).await;
    let mut breaks = Vec::new();
    for _ in 0..3 {
        breaks.push(enqueue(&world, "one", of_model("x")).await);
    }
    drop(first);
    eventually("all broke", || a.seen().len() == 4 && world.waiting() == 4).await;
    let again = send(&world, "nobody", of_model("x")).await;
    eventually("a is busy again", || a.seen().len() == 5).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(enqueue(&world, "one", of_model("x")).await);
        clients.push(enqueue(&world, "two", of_model("x")).await);
    }
    drop(again);
    for mut client in clients {
        assert_eq!(client.answer().await.status, 200);
    }
    let order = order(&a)[5..].to_vec();
    let ones = order[..4].iter().filter(|who| *who == "one").count();
    assert_eq!(ones, 2, "{order:?}");
}
