//! Does everybody get a slot, and nobody more than there are?

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use paddler_core::observe::names;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::levels::{Front, Way, begun, each_way};
use crate::servers::{Llama, Load, SLOTS, Servers, figure, heard_from, open_weight, servers};
use crate::support::client::{Answer, Ask, Client, ask, chat, eventually, get, post, streamed};
use crate::support::program::Gateway;

/// As many tokens as a slot has room for: such an answer takes seconds.
const LONG: u32 = 3_900;

each_way! {
    a_request_takes_as_many_slots_as_it_has_prompts_and_choices,
    forty_at_once_wait_here_and_never_in_an_engine,
    models_and_health_are_told_while_every_slot_is_busy,
    two_thousand_requests_of_all_kinds_fail_never,
    a_client_that_hangs_up_frees_its_slot,
}

/// Watches what servers say of themselves until it is told to stop.
struct Watch {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Seen>,
}

/// The most that was seen at once.
#[derive(Debug, Default)]
struct Seen {
    samples: usize,
    deferred: u32,
    processing: u32,
    busy_slots: usize,
}

impl Watch {
    fn over<'a>(servers: impl IntoIterator<Item = &'a Llama>) -> Self {
        let (stop, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for server in servers {
            let (stop, mut client) = (stop.clone(), Client::to(server.address));
            tasks.spawn(async move {
                let mut seen = Seen::default();
                while !stop.load(SeqCst) {
                    let load = Load::read(&mut client).await;
                    seen.samples += 1;
                    seen.deferred = seen.deferred.max(load.deferred);
                    seen.processing = seen.processing.max(load.processing);
                    seen.busy_slots = seen.busy_slots.max(load.busy_slots);
                    sleep(Duration::from_millis(20)).await;
                }
                seen
            });
        }
        Self { stop, tasks }
    }

    async fn seen(self) -> Vec<Seen> {
        self.stop.store(true, SeqCst);
        self.tasks.join_all().await
    }
}

async fn a_request_takes_as_many_slots_as_it_has_prompts_and_choices(way: Way) {
    let Some(servers) = servers().await else { return };
    let gateway = Front::of(way, &[("b-1", servers.b.url())], &["--poll-interval=100ms"]);
    heard_from(&gateway, &["b-1"]).await;
    let prompts = json!({"prompt": ["one", "two", "three", "four"], "max_tokens": 600, "model": "tiny-b"});
    let mut choices = chat("tiny-b", 600);
    choices["n"] = 3.into();
    for (path, body, weight) in [
        ("/v1/completions", prompts, 4),
        ("/v1/chat/completions", choices, 3),
    ] {
        let watch = Watch::over([&servers.b]);
        let asked = tokio::spawn(ask(gateway.address, post(path, &body)));
        eventually("its whole weight is open", async || {
            let open = open_weight(&gateway, "b-1").await;
            assert!(open == 0.0 || open == f64::from(weight), "{open} is open");
            assert!(!asked.is_finished() || open > 0.0, "it has ended unseen");
            open > 0.0
        })
        .await;
        let answer = asked.await.unwrap();
        assert!(answer.is_good(), "{answer:?}");
        assert_eq!(
            answer.json()["choices"].as_array().unwrap().len(),
            weight as usize
        );
        assert_eq!(open_weight(&gateway, "b-1").await, 0.0);
        let seen = watch.seen().await;
        assert_eq!(
            (seen[0].busy_slots, seen[0].deferred),
            (weight as usize, 0),
            "{seen:?}"
        );
    }
}

async fn forty_at_once_wait_here_and_never_in_an_engine(way: Way) {
    let Some(servers) = servers().await else { return };
    let gateway = servers
        .gateway(way, &["--max-requests=100", "--max-wait=60s"])
        .await;
    let watch = Watch::over(servers.all());
    let mut asks = JoinSet::new();
    for index in 0..40 {
        let model = if index % 3 == 0 { "tiny-b" } else { "tiny-a" };
        let mut body = chat(model, 100);
        body["stream"] = (index % 2 == 0).into();
        asks.spawn(ask(gateway.address, post("/v1/chat/completions", &body)));
    }
    for answer in asks.join_all().await {
        assert!(answer.is_good(), "{answer:?}");
    }
    for seen in watch.seen().await {
        assert_eq!(seen.deferred, 0, "{seen:?}");
        assert!(seen.processing as usize <= SLOTS && seen.samples > 0, "{seen:?}");
    }
    let waited = figure(&gateway, names::WAITING).await;
    assert_eq!(waited, Some(0.0));
}

async fn models_and_health_are_told_while_every_slot_is_busy(way: Way) {
    let Some(servers) = servers().await else { return };
    let gateway = servers.gateway(way, &["--max-wait=60s"]).await;
    let ended = Arc::new(AtomicUsize::new(0));
    let mut streams = JoinSet::new();
    for index in 0..3 * SLOTS {
        let model = if index < 2 * SLOTS { "tiny-a" } else { "tiny-b" };
        let (client, mut reply) = begun(&gateway, chat(model, LONG)).await;
        let ended = ended.clone();
        streams.spawn(async move {
            while reply.more().await.is_some() {}
            ended.fetch_add(1, SeqCst);
            drop(client);
        });
    }
    // One more has to wait, for as long as they go on.
    let waiting = tokio::spawn(ask(
        gateway.address,
        post("/v1/chat/completions", &chat("tiny-b", 8)),
    ));
    eventually("it waits", async || {
        figure(&gateway, names::WAITING).await == Some(1.0)
    })
    .await;
    for path in ["/v1/models", "/health"] {
        let answer = ask(gateway.address, get(path)).await;
        assert!(answer.is_good(), "{answer:?}");
    }
    let full = figure(&gateway, names::WAITING).await == Some(1.0) && !waiting.is_finished();
    assert!(full && ended.load(SeqCst) == 0, "{ended:?} have ended");
    // Who waits is served as soon as others hang up.
    streams.shutdown().await;
    let answer = waiting.await.unwrap();
    assert!(answer.is_good(), "{answer:?}");
}

/// The `index`-th of many requests, of all kinds in turn.
fn one_of_many(index: u64) -> Ask {
    let completion =
        |model: &str| json!({"model": model, "prompt": format!("number {index}"), "max_tokens": 4});
    match index % 12 {
        0 => post("/v1/chat/completions", &chat("tiny-a", 4)),
        1 | 7 => post("/v1/chat/completions", &streamed(chat("tiny-a", 6))),
        2 => post("/v1/completions", &completion("tiny-b")),
        3 | 9 => post("/v1/completions", &streamed(completion("tiny-b"))),
        4 => get("/v1/models"),
        5 => post("/tokenize", &json!({"content": "some text", "model": "tiny-a"})),
        6 => post(
            "/v1/embeddings",
            &json!({"model": "tiny-e", "input": format!("number {index}")}),
        ),
        8 => get("/health"),
        10 => post(
            "/v1/completions",
            &json!({"model": "tiny-a", "prompt": ["a", "b"], "max_tokens": 3}),
        ),
        _ => post("/v1/chat/completions", &streamed(chat("tiny-e", 4))),
    }
}

async fn two_thousand_requests_of_all_kinds_fail_never(way: Way) {
    const HALF: u64 = 1_000;
    let Some(servers) = servers().await else { return };
    let gateway = servers.gateway(way, &[]).await;
    let next = Arc::new(AtomicU64::new(0));
    for half in 1..=2 {
        let mut workers = JoinSet::new();
        for _ in 0..8 {
            let (next, mut client) = (next.clone(), Client::to(gateway.address));
            workers.spawn(async move {
                let mut failed: Vec<(u64, Answer)> = Vec::new();
                loop {
                    let index = next.fetch_add(1, SeqCst);
                    if index >= half * HALF {
                        return failed;
                    }
                    let answer = client.ask(one_of_many(index)).await;
                    if !answer.is_good() {
                        failed.push((index, answer));
                    }
                }
            });
        }
        let failed: Vec<_> = workers.join_all().await.into_iter().flatten().collect();
        assert!(
            failed.is_empty(),
            "{} failed, such as {:#?}",
            failed.len(),
            failed.first()
        );
        next.store(HALF, SeqCst);
        if half == 1 {
            // The servers close what has been idle for 5 s.
            sleep(Duration::from_secs(6)).await;
        }
    }
    let page = ask(gateway.management, get("/metrics")).await;
    let mut by_status = BTreeMap::new();
    for line in page
        .text()
        .lines()
        .filter(|line| line.starts_with(names::REQUESTS.name))
    {
        let (labels, count) = line.rsplit_once(' ').unwrap();
        let (_, status) = labels.split_once("status=\"").unwrap();
        *by_status
            .entry(status.trim_end_matches("\"}").to_owned())
            .or_insert(0.0) += count.parse::<f64>().unwrap();
    }
    assert_eq!(by_status, BTreeMap::from([("200".to_owned(), 2.0 * HALF as f64)]));
}

async fn a_client_that_hangs_up_frees_its_slot(way: Way) {
    let Some(servers) = servers().await else { return };
    let gateway = Front::of(way, &[("b-1", servers.b.url())], &["--poll-interval=100ms"]);
    heard_from(&gateway, &["b-1"]).await;
    let before = servers.b.load().await;
    let (client, reply) = begun(&gateway, chat("tiny-b", LONG)).await;
    assert_eq!(open_weight(&gateway, "b-1").await, 1.0);
    drop((client, reply));
    eventually("the server's slot is free", async || {
        servers.b.load().await.busy_slots == 0
    })
    .await;
    eventually("the gateway counts it as free", async || {
        open_weight(&gateway, "b-1").await == 0.0
    })
    .await;
    let after = servers.b.load().await;
    assert!(
        after.predicted - before.predicted < f64::from(LONG),
        "it was not ended, it came to its end"
    );
    assert_eq!(figure(&gateway, names::CANCELLATIONS).await, Some(1.0));
    assert_eq!(figure(&gateway, names::IN_FLIGHT).await, Some(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_balancer_spreads_by_share_of_slots() {
    let Some(servers) = servers().await else { return };
    let upstreams = [0, 1].map(|index| format!("a-{}={}", index + 1, servers.a[index].url()));
    let gateway = Gateway::start("balancer", &upstreams, &[]);
    heard_from(&gateway, &["a-1", "a-2"]).await;
    let mut streams = Vec::new();
    for number in 1..=2 * SLOTS {
        // Whatever model it asks for: all serve one.
        streams.push(begun(&gateway, chat("whatever", LONG)).await);
        let loads = both(&servers).await;
        let (fewer, more) = (number / 2, number - number / 2);
        assert!(
            loads == [fewer, more] || loads == [more, fewer],
            "{number} are spread as {loads:?}"
        );
    }
    assert_eq!(both(&servers).await, [SLOTS, SLOTS]);
}

async fn both(servers: &Servers) -> [usize; 2] {
    [
        servers.a[0].load().await.busy_slots,
        servers.a[1].load().await.busy_slots,
    ]
}
