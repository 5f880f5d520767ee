//! Who is served first when there is not enough for all?
//!
//! Judged by the order in which requests reach the engine, never by the clock.

use http::HeaderMap;
use paddler_core::forward::Annotate;
use paddler_core::queue::QueueLimits;
use paddler_core::request::RequestFacts;
use paddler_core::upstream::UpstreamId;
use serde_json::{Value, json};

use super::client::{CHAT, Client, HANG, chat, eventually, post, stream};
use super::stub::{Do, Stub};
use super::world::{Setup, World, engine, of, quick, slow, spec};

/// Whose it is and how important, as headers say; the weight is that of the tenant's name.
#[derive(Debug)]
struct Believes;

impl Annotate for Believes {
    fn annotate(&self, headers: &HeaderMap, facts: &mut RequestFacts) {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        facts.tenant = text("x-tenant").map(Into::into);
        facts.tenant_weight = text("x-weight").and_then(|text| text.parse().ok()).unwrap_or(1);
        facts.priority = text("x-priority").and_then(|text| text.parse().ok()).unwrap_or(0);
    }
}

fn setup(queue: usize) -> Setup {
    Setup::new()
        .queue(queue, HANG)
        .with(|setup| setup.options.annotate = Some(std::sync::Arc::new(Believes)))
}

/// Sends a request with these headers, and waits until one more stands in the queue.
async fn enqueue(world: &World, headers: &str, body: &Value) -> Client {
    let before = world.waiting();
    let mut client = Client::connect(world.addr).await;
    let headers = format!("content-type: application/json\r\n{headers}");
    client.send("POST", CHAT, &headers, body.to_string()).await;
    eventually("it waits", || world.waiting() == before + 1).await;
    client
}

/// Takes the only place of the stub, until the client is dropped.
async fn occupy(world: &World) -> Client {
    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, &stream(1_000)).await;
    eventually("it is there", || world.open_weight() > 0).await;
    client
}

/// One place, whose first request never ends by itself; each other one is answered with this.
async fn one_place(queue: usize, answer: &str) -> (Stub, World, Client) {
    let stub = Stub::start([Do::Stall, Do::ok(answer)]).await;
    let world = setup(queue).start([spec("a", &stub.url).max_in_flight(1)]).await;
    let first = occupy(&world).await;
    (stub, world, first)
}

/// The tenants, in the order in which the engine got their requests.
fn order(stub: &Stub) -> Vec<String> {
    let tenant = |seen: &String| {
        let rest = seen.split("\"who\":\"").nth(1)?;
        Some(rest.split('"').next()?.to_owned())
    };
    stub.seen().iter().filter_map(tenant).collect()
}

fn from(who: &str) -> Value {
    let mut body = chat(1);
    body["who"] = json!(who);
    body
}

async fn all_answered(clients: Vec<Client>) {
    for mut client in clients {
        assert_eq!(client.answer().await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_times_the_load_does_not_make_the_other_tenant_wait() {
    let (stub, world, first) = one_place(100, "{}").await;
    let mut clients = Vec::new();
    // All of the large one's stand there before the first of the small one comes.
    for _ in 0..40 {
        clients.push(enqueue(&world, "x-tenant: large\r\n", &from("large")).await);
    }
    for _ in 0..4 {
        clients.push(enqueue(&world, "x-tenant: small\r\n", &from("small")).await);
    }
    drop(first);
    all_answered(clients).await;
    let order = order(&stub);
    assert_eq!(order.len(), 44);
    let small: Vec<_> = (0..44).filter(|place| order[*place] == "small").collect();
    // Equal charges: each of the small one's comes after one of the large one's at most.
    for (number, place) in small.iter().enumerate() {
        assert!(*place <= 2 * number + 1, "{small:?}");
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tenant_with_twice_the_weight_gets_twice_as_much() {
    let (stub, world, first) = one_place(100, "{}").await;
    let mut clients = Vec::new();
    for _ in 0..12 {
        clients.push(enqueue(&world, "x-tenant: one\r\n", &from("one")).await);
        clients.push(enqueue(&world, "x-tenant: two\r\nx-weight: 2\r\n", &from("two")).await);
    }
    drop(first);
    all_answered(clients).await;
    let twos = order(&stub)[..15].iter().filter(|who| *who == "two").count();
    assert!((9..=11).contains(&twos), "{twos} of 15");
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_uses_more_tokens_gets_fewer_places() {
    // The answers say what they used: those to one tenant ten times as much.
    let engine = engine(quick().slots(1).decode_tokens_per_second(20_000.0)).await;
    let world = setup(200).start([of("a", &engine)]).await;
    let id = UpstreamId::new("a").unwrap();
    world.statuses.set_draining(id.clone(), true).await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..30 {
        for (tenant, tokens) in [("long", 400), ("short", 40)] {
            let client = enqueue(&world, &format!("x-tenant: {tenant}\r\n"), &chat(tokens)).await;
            clients.push((tokens, client));
        }
    }
    world.statuses.set_draining(id, false).await.unwrap();
    let (done, mut finished) = tokio::sync::mpsc::unbounded_channel();
    for (tokens, mut client) in clients {
        let done = done.clone();
        tokio::spawn(async move {
            assert_eq!(client.answer().await.status, 200);
            done.send(tokens).unwrap();
        });
    }
    let mut ended = Vec::new();
    while ended.len() < 22 {
        ended.push(finished.recv().await.unwrap());
    }
    let long = ended.iter().filter(|tokens| **tokens == 400).count();
    // By places it would be half. The first are charged alike, until it is seen what they use.
    assert!(long <= 7, "{long} long ones of 22");
    while ended.len() < 60 {
        ended.push(finished.recv().await.unwrap());
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_at_which_no_work_was_done_is_not_charged() {
    let refusal = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
    let stub = Stub::start([Do::Stall, Do::say(refusal), Do::ok("{}")]).await;
    let world = setup(100).start([spec("a", &stub.url).max_in_flight(1)]).await;
    let first = occupy(&world).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        for tenant in ["one", "two"] {
            clients.push(enqueue(&world, &format!("x-tenant: {tenant}\r\n"), &from(tenant)).await);
        }
    }
    drop(first);
    all_answered(clients).await;
    let ones = order(&stub)[..8].iter().filter(|who| *who == "one").count();
    assert_eq!(ones, 5, "the refusal comes on top of what is a tenant's part");
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_refused_as_wrong_is_charged_its_prompt_alone() {
    let wrong = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    let stub = Stub::start([Do::Stall, Do::say(wrong), Do::ok("{}")]).await;
    let world = setup(100).start([spec("a", &stub.url).max_in_flight(1)]).await;
    let first = occupy(&world).await;
    let mut heavy = from("one");
    heavy["n"] = json!(1_000_000);
    let mut refused = enqueue(&world, "x-tenant: one\r\n", &heavy).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        for tenant in ["one", "two"] {
            clients.push(enqueue(&world, &format!("x-tenant: {tenant}\r\n"), &from(tenant)).await);
        }
    }
    drop(first);
    assert_eq!(refused.answer().await.status, 400);
    all_answered(clients).await;
    let ones = order(&stub)[..9].iter().filter(|who| *who == "one").count();
    assert!((4..=5).contains(&ones), "{ones} of the first nine");
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_important_come_first_and_nobody_starves() {
    let (stub, world, first) = one_place(100, "{}").await;
    let mut clients = Vec::new();
    for (priority, who, many) in [(-1, "sheddable", 3), (0, "standard", 6), (5, "high", 40)] {
        for _ in 0..many {
            clients.push(enqueue(&world, &format!("x-priority: {priority}\r\n"), &from(who)).await);
        }
    }
    drop(first);
    all_answered(clients).await;
    let order = order(&stub);
    assert_eq!(order[..3], ["high"; 3], "nothing is owed at first");
    // 25% and 5%: one of any 5 and of any 21 places in a row while some of them wait.
    for (who, bound) in [("standard", 5), ("sheddable", 21)] {
        let last = order.iter().rposition(|one| one == who).unwrap();
        let starved = order[..=last]
            .windows(bound)
            .any(|run| !run.contains(&who.to_owned()));
        assert!(!starved, "{who}: {order:?}");
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_the_least_important() {
    let (_stub, world, first) = one_place(2, "{}").await;
    let mut shed = enqueue(&world, "x-priority: -1\r\n", &from("shed")).await;
    let standard = enqueue(&world, "", &from("standard")).await;
    let mut high = Client::connect(world.addr).await;
    let headers = "content-type: application/json\r\nx-priority: 3\r\n";
    high.send("POST", CHAT, headers, from("high").to_string()).await;
    let refused = shed.answer().await;
    assert_eq!(
        (refused.status, refused.reason(), refused.header("retry-after")),
        (429, "evicted", Some("2"))
    );
    let page = world.router.metrics_page();
    assert!(
        page.contains("paddler_evictions_total{priority=\"sheddable\"} 1\n"),
        "{page}"
    );
    assert!(
        page.contains("paddler_waiting_requests{priority=\"high\"} 1\n"),
        "{page}"
    );
    let full = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!(
        (full.status, full.reason()),
        (429, "queue_full"),
        "nobody less important is left"
    );
    drop(first);
    all_answered(vec![standard, high]).await;
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_earliest_deadline_of_a_tenant_is_first() {
    #[derive(Debug)]
    struct Deadlines;
    impl Annotate for Deadlines {
        fn annotate(&self, headers: &HeaderMap, facts: &mut RequestFacts) {
            let within = headers
                .get("x-within")
                .and_then(|value| value.to_str().ok()?.parse().ok());
            let after = |seconds| {
                facts
                    .arrived
                    .saturating_add(std::time::Duration::from_secs(seconds))
            };
            facts.deadline = within.map(after);
        }
    }
    let stub = Stub::start([Do::Stall, Do::ok("{}")]).await;
    let world = setup(100)
        .with(|setup| setup.options.annotate = Some(std::sync::Arc::new(Deadlines)))
        .start([spec("a", &stub.url).max_in_flight(1)])
        .await;
    let first = occupy(&world).await;
    let mut clients = Vec::new();
    for (headers, who) in [
        ("", "3"),
        ("x-within: 16\r\n", "2"),
        ("x-within: 12\r\n", "1"),
        ("", "4"),
    ] {
        clients.push(enqueue(&world, headers, &from(who)).await);
    }
    drop(first);
    all_answered(clients).await;
    assert_eq!(order(&stub), ["1", "2", "3", "4"]);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_the_queue_change_while_it_serves() {
    let engine = engine(slow().slots(1)).await;
    let world = setup(1).start([of("a", &engine)]).await;
    let first = occupy(&world).await;
    let waits = enqueue(&world, "", &chat(1)).await;
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.reason(), "queue_full");
    let mut options = world.router.options();
    options.queue = QueueLimits::new(2, 1 << 30, HANG);
    world.router.reconfigure(options);
    let waits_too = enqueue(&world, "", &chat(1)).await;
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.reason(), "queue_full");
    drop((first, waits, waits_too));
    world.quiet().await;
}
