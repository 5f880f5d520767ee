//! Who gets nothing more once it fails, and how does it come back?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use paddler_core::config::HealthRules;
use paddler_core::health::HealthState;
use paddler_core::upstream::UpstreamId;
use paddler_engine::{Engine, EngineConfig, Fault, FaultRule};
use serde_json::{Value, json};

use super::client::{Answer, CHAT, Client, End, HANG, ask, chat, eventually, get, post, stream};
use super::stub::{Do, Stub};
use super::world::{Setup, World, engine, nowhere, of, quick, spec};

/// Who is out stays out while a test runs, and who comes back does so at once.
fn strict() -> Setup {
    with_health(|health| {
        health.unreachable_time = HANG;
        health.eject_time = HANG;
    })
}

fn with_health(change: impl FnOnce(&mut HealthRules)) -> Setup {
    Setup::new().with(|setup| {
        setup.board.health.slow_start = Duration::ZERO;
        change(&mut setup.board.health);
    })
}

fn state(world: &World, id: &str) -> HealthState {
    let snapshot = world.router.published().load_full();
    snapshot.health(snapshot.index(id).unwrap()).unwrap().state
}

fn is_ejected(world: &World, id: &str) -> bool {
    matches!(state(world, id), HealthState::Ejected { .. })
}

/// A chat that no other test has sent.
fn another(n: usize) -> Value {
    json!({ "messages": [{ "role": "user", "content": format!("number {n}") }], "max_tokens": 1 })
}

/// What became of the streams of a load, and from whom they came.
#[derive(Default)]
struct Seen {
    whole: AtomicUsize,
    of_the_dead: AtomicUsize,
    wrong: std::sync::Mutex<Vec<String>>,
}

/// One client after the other's answer, until told to stop.
async fn keep_asking(world: Arc<World>, seen: Arc<Seen>, stop: Arc<AtomicBool>, dead: &'static str) {
    while !stop.load(SeqCst) {
        let mut client = Client::connect(world.addr).await;
        client.post(CHAT, &stream(12)).await;
        let answer = client.answer().await;
        let text = answer.text();
        let whole = text.contains("[DONE]") && answer.end == End::Whole;
        let told = text.contains("\"error\"") || answer.end != End::Whole;
        if answer.status == 200 && whole {
            seen.whole.fetch_add(1, SeqCst);
        } else if answer.status == 200 && text.contains(dead) && told {
            seen.of_the_dead.fetch_add(1, SeqCst);
        } else {
            seen.wrong
                .lock()
                .unwrap()
                .push(format!("{} {text}", answer.status));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_one_of_three_dies_under_load_only_the_streams_begun_on_it_fail_and_each_is_told() {
    let working = |name: &str, tokens_per_second: f64| {
        EngineConfig::llamacpp(name)
            .prefill_tokens_per_second(f64::INFINITY)
            .decode_tokens_per_second(tokens_per_second)
            .slots(4)
    };
    // Slow, so that its longest stream does not come to its end before.
    let dies = engine(working("doomed", 10.0)).await;
    let (b, c) = (
        engine(working("b", 100.0)).await,
        engine(working("c", 100.0)).await,
    );
    let world = strict()
        .queue(100, HANG)
        .start([of("a", &dies), of("b", &b), of("c", &c)])
        .await;
    // One stream that does not end by itself is begun on it for certain.
    let id = |id: &str| UpstreamId::new(id).unwrap();
    let drain = async |draining| {
        for other in ["b", "c"] {
            assert_eq!(world.statuses.set_draining(id(other), draining).await, Ok(true));
        }
    };
    drain(true).await;
    let mut long = Client::connect(world.addr).await;
    long.post(CHAT, &stream(1_000_000)).await;
    long.until("doomed").await;
    drain(false).await;

    let (world, seen, stop) = (
        Arc::new(world),
        Arc::<Seen>::default(),
        Arc::<AtomicBool>::default(),
    );
    let clients: Vec<_> = (0..9)
        .map(|_| {
            tokio::spawn(keep_asking(
                Arc::clone(&world),
                Arc::clone(&seen),
                Arc::clone(&stop),
                "doomed",
            ))
        })
        .collect();
    eventually("all work", || seen.whole.load(SeqCst) > 20).await;
    // As with kill -9: the system closes what it had open, and refuses new connections.
    drop(dies);
    eventually("it is left out", || is_ejected(&world, "a")).await;
    let go_on = async |answers| {
        let before = seen.whole.load(SeqCst);
        eventually("the others go on", || seen.whole.load(SeqCst) > before + answers).await;
    };
    // Those who were on their way meanwhile have found it out for themselves.
    go_on(20).await;
    let retries = world.metric("paddler_retries_total");
    go_on(40).await;
    assert_eq!(
        world.metric("paddler_retries_total"),
        retries,
        "nobody is sent there any more"
    );
    stop.store(true, SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    let wrong = std::mem::take(&mut *seen.wrong.lock().unwrap());
    assert!(wrong.is_empty(), "{wrong:?}");
    let told = long.answer().await;
    assert!(told.text().contains("\"error\"") && !told.text().contains("[DONE]"));
    let lost = 1 + seen.of_the_dead.load(SeqCst);
    assert!(lost <= 4, "at most one for each slot: {lost}");
    println!("{lost} streams were lost, {} were not", seen.whole.load(SeqCst));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_new_request_goes_where_one_connection_has_failed() {
    let works = engine(quick()).await;
    let world = strict()
        .start([spec("gone", nowhere().await), of("works", &works)])
        .await;
    for n in 0..40 {
        assert_eq!(post(world.addr, CHAT, &another(n)).await.status, 200);
    }
    assert_eq!(world.metric("paddler_retries_total"), 1.0);
    assert_eq!(world.metric("paddler_upstream_ejected"), 1.0);
    assert_eq!(world.metric("paddler_ejections_total"), 1.0);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_comes_back_is_probed_by_one_request_at_a_time() {
    let (a, b) = (engine(quick()).await, engine(quick()).await);
    let setup = with_health(|health| health.unreachable_time = Duration::from_millis(100));
    let world = setup.start([of("a", &a), of("b", &b)]).await;
    // It is there again, but silent: the one request that is let in finds no answer.
    a.set_fault(Some(Fault::Refuse)).unwrap();
    for n in 0.. {
        if is_ejected(&world, "a") {
            break;
        }
        assert_eq!(post(world.addr, CHAT, &another(n)).await.status, 200);
    }
    a.set_fault(Some(Fault::Stall)).unwrap();
    eventually("its time is over", || state(&world, "a") == HealthState::Probing).await;
    let mut clients = Vec::new();
    for n in 0..30 {
        let mut client = Client::connect(world.addr).await;
        client.post(CHAT, &another(n)).await;
        clients.push(client);
    }
    eventually("the others have answers", || b.stats().completed >= 29).await;
    assert_eq!(a.stats().running, 1, "one probe");
    // The client of the probe leaves: that says nothing, and the next one probes.
    drop(clients);
    eventually("it has left", || a.stats().running == 0).await;
    assert_eq!(state(&world, "a"), HealthState::Probing);
    a.set_fault(None).unwrap();
    for n in 0.. {
        if state(&world, "a") == HealthState::Healthy {
            break;
        }
        assert_eq!(post(world.addr, CHAT, &another(n)).await.status, 200);
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_everybody_is_out_nobody_is() {
    let (a, b) = (engine(quick()).await, engine(quick()).await);
    let world = strict().queue(9, HANG).start([of("a", &a), of("b", &b)]).await;
    a.set_fault(Some(Fault::Refuse)).unwrap();
    b.set_fault(Some(Fault::Refuse)).unwrap();
    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, &chat(1)).await;
    eventually("all are out", || world.metric("paddler_pool_panic") == 1.0).await;
    b.set_fault(None).unwrap();
    assert_eq!(client.answer().await.status, 200, "asked all the same");
    assert_eq!(world.metric("paddler_pool_panic"), 0.0);
    assert!(is_ejected(&world, "a") && state(&world, "b") == HealthState::Healthy);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_gives_no_answers_is_passed_over_and_then_left_out() {
    for does in [
        Do::Close,
        Do::say("HTTP/1.1 502 Bad\r\ncontent-length: 3\r\n\r\nbad"),
    ] {
        let broken = Stub::start([does]).await;
        let works = engine(quick()).await;
        let world = strict()
            .start([spec("broken", &broken.url), of("works", &works)])
            .await;
        for n in 0.. {
            if is_ejected(&world, "broken") {
                break;
            }
            assert_eq!(post(world.addr, CHAT, &another(n)).await.status, 200);
        }
        assert_eq!(broken.seen().len(), 3, "three in a row");
        for n in 0..20 {
            assert_eq!(post(world.addr, CHAT, &another(n)).await.status, 200);
        }
        assert_eq!(broken.seen().len(), 3, "and then no more");
        assert_eq!(world.metric("paddler_retries_total"), 3.0);
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_breaks_two_engines_is_refused_and_ejects_nobody() {
    let stubs = [
        Stub::start([Do::Close]).await,
        Stub::start([Do::Close]).await,
        Stub::start([Do::Close]).await,
    ];
    let specs = stubs
        .iter()
        .zip(["a", "b", "c"])
        .map(|(stub, id)| spec(id, &stub.url));
    let world = strict().start(specs.collect::<Vec<_>>()).await;
    for n in 1..=8 {
        let answer = post(world.addr, CHAT, &chat(1)).await;
        assert_eq!((answer.status, answer.reason()), (502, "suspect_request"));
        assert_eq!(answer.header("x-should-retry"), Some("false"));
        let seen: usize = stubs.iter().map(|stub| stub.seen().len()).sum();
        assert_eq!(seen, 2 * n, "twice, and not once more");
    }
    assert!(
        ["a", "b", "c"]
            .iter()
            .all(|id| state(&world, id) == HealthState::Healthy)
    );
    world.quiet().await;
}

/// A world of one engine that answers so, and one that waits.
async fn beside_another(code: u16, retry_after: Option<u64>) -> (Engine, Engine, World) {
    let (odd, works) = (engine(quick()).await, engine(quick()).await);
    odd.set_fault(Some(Fault::Status { code, retry_after })).unwrap();
    let world = strict().start([of("odd", &odd), of("works", &works)]).await;
    (odd, works, world)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_4xx_never_ejects_and_a_500_only_of_different_requests() {
    for code in [400, 404, 422] {
        let (odd, _works, world) = beside_another(code, None).await;
        for n in 0.. {
            if odd.stats().requests >= 20 {
                break;
            }
            post(world.addr, CHAT, &another(n)).await;
        }
        assert_eq!(state(&world, "odd"), HealthState::Healthy, "{code}");
    }
    let (odd, _works, world) = beside_another(500, None).await;
    while odd.stats().requests < 20 {
        let answer: Answer = post(world.addr, CHAT, &chat(1)).await;
        assert!([200, 500].contains(&answer.status));
    }
    assert_eq!(
        state(&world, "odd"),
        HealthState::Healthy,
        "one request, again and again"
    );
    for n in 0..100 {
        post(world.addr, CHAT, &another(n)).await;
    }
    assert!(is_ejected(&world, "odd"));
    assert!(odd.stats().requests <= 23);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_says_that_he_is_busy_is_left_alone_for_some_seconds() {
    let (busy, works, world) = beside_another(429, Some(3_600)).await;
    for n in 0..40 {
        assert_eq!(post(world.addr, CHAT, &another(n)).await.status, 200);
    }
    assert_eq!((busy.stats().requests, works.stats().requests), (1, 40));
    assert_eq!(state(&world, "odd"), HealthState::Healthy, "it is not a fault");
    assert_eq!(world.metric("paddler_upstream_paused"), 1.0);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_one_key_behind_a_router_is_nobody_elses() {
    let limited = "HTTP/1.1 429 Too Many Requests\r\nx-paddler-reason: key_rate\r\nretry-after: 300\r\n\
                   content-length: 0\r\n\r\n";
    let stub = Stub::start([Do::say(limited), Do::ok("{}")]).await;
    let world = strict().start([spec("a", &stub.url)]).await;
    let first = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!((first.status, first.header("retry-after")), (429, Some("300")));
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_off_counts() {
    let (odd, works) = (engine(quick()).await, engine(quick()).await);
    odd.set_fault(Some(Fault::ResetAfter { bytes: 60 })).unwrap();
    let world = strict().start([of("odd", &odd), of("works", &works)]).await;
    // Others may break off in between: that an answer begins says nothing of its end.
    while !is_ejected(&world, "odd") {
        post(world.addr, CHAT, &stream(9)).await;
    }
    let cut: u64 = world
        .router
        .metrics()
        .truncations()
        .iter()
        .map(|(_, count)| count)
        .sum();
    assert_eq!(cut, 3);
    assert_eq!(ask(world.addr, "GET", "/v1/models", "", "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_all_have_asked_to_be_left_alone_the_client_is_told_for_how_long() {
    let busy = engine(quick()).await;
    busy.set_fault(Some(Fault::Status {
        code: 429,
        retry_after: Some(200),
    }))
    .unwrap();
    let patience = Duration::from_millis(100);
    let world = strict().queue(9, patience).start([of("busy", &busy)]).await;
    let first = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!((first.status, first.header("retry-after")), (429, Some("200")));
    let second = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!((second.status, second.reason()), (429, "upstreams_busy"));
    let after: u64 = second.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=15).contains(&after), "{after}");
    assert_eq!(busy.stats().requests, 1);

    // What is worth waiting for is waited for.
    let busy = engine(quick()).await;
    let once = FaultRule::new(Fault::Status {
        code: 429,
        retry_after: Some(1),
    })
    .times(1);
    busy.add_fault(once).unwrap();
    let world = strict().queue(9, HANG).start([of("busy", &busy)]).await;
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_breaks_each_generation_is_left_out_though_it_answers_looks() {
    let (fails, looks) = (
        "HTTP/1.1 502 Bad\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
    );
    let dead = Stub::start([Do::SayToPost(fails.into(), looks.into())]).await;
    let works = engine(quick().slots(8)).await;
    let world = strict()
        .start([spec("dead", &dead.url), of("works", &works)])
        .await;
    let mut lost = 0;
    for n in 0..40 {
        let mut body = another(n);
        // It may not be sent a second time.
        body["store"] = json!(true);
        lost += u32::from(post(world.addr, CHAT, &body).await.status != 200);
        for _ in 0..6 {
            get(world.addr, "/version").await;
        }
    }
    assert!(is_ejected(&world, "dead"));
    assert_eq!(lost, 3, "as many as eject");
}
