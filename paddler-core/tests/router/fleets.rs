//! Is a router an upstream like any other: seen as one engine, balanced, and never sent what would come back?

use std::sync::Arc;
use std::time::Duration;

use paddler_core::request::{ModelRule, ModelRules};
use paddler_core::source::paddler::read_status;
use paddler_core::status::{Adapters, Health, Report, StatusEvent};
use paddler_core::upstream::{Abilities, Engine, ModelEntry, Models, UpstreamId, UpstreamSpec};
use paddler_engine::EngineConfig;
use serde_json::json;

use super::client::{CHAT, Client, ask, eventually, of_model, post, stream};
use super::world::{Setup, World, engine, nowhere};

fn serving(model: &str, slots: usize) -> EngineConfig {
    EngineConfig::llamacpp(model)
        .instant()
        .fixed_ids(true)
        .slots(slots)
}

fn at(id: &str, engine: &paddler_engine::Engine) -> UpstreamSpec {
    UpstreamSpec::new(id, engine.url()).unwrap()
}

fn fleet(id: &str, world: &World) -> UpstreamSpec {
    UpstreamSpec::new(id, format!("paddler://{}", world.addr)).unwrap()
}

fn id(name: &str) -> UpstreamId {
    UpstreamId::new(name).unwrap()
}

fn report(world: &World, name: &str) -> Report {
    let snapshot = world.router.published().load_full();
    let report = snapshot.find(name).and_then(|entry| entry.report().cloned());
    report.unwrap_or_default()
}

async fn reports(world: &World, id: &str, what: &str, holds: impl Fn(&Report) -> bool) {
    eventually(what, || holds(&report(world, id))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_levels_are_one_engine_to_whoever_asks() {
    let (small, large) = (
        engine(serving("small", 2)).await,
        engine(serving("large", 3)).await,
    );
    let west = Setup::polled().start([at("small", &small)]).await;
    let east = Setup::polled().start([at("large", &large)]).await;
    let site = Setup::polled()
        .start([fleet("west", &west), fleet("east", &east)])
        .await;
    let edge = Setup::polled().start([fleet("site", &site)]).await;
    reports(&edge, "site", "all that is behind it is known", |report| {
        let models = match &report.models {
            Some(Models::Listed(models)) => models.len(),
            _ => 0,
        };
        (report.slots_total, report.health, models) == (None, Some(Health::Ready), 2)
            && report.degraded.is_empty()
    })
    .await;
    for (model, by, other) in [("small", &small, &large), ("large", &large, &small)] {
        let before = (by.stats().completed, other.stats().completed);
        let answer = post(edge.addr, CHAT, &of_model(model)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let after = (by.stats().completed, other.stats().completed);
        assert_eq!(after, (before.0 + 1, before.1), "{model}");
    }
    assert_eq!(
        post(edge.addr, CHAT, &of_model("none")).await.status,
        404,
        "all of them say so"
    );
    for world in [edge, site, west, east] {
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_stand_for_others_and_what_a_fleet_can_do_are_known_in_front_of_it() {
    let engine = engine(serving("tiny", 2)).await;
    let rules = [
        ("chat", ModelRule::alias("tiny")),
        ("nobody", ModelRule::alias("none")),
    ];
    let rules = Arc::new(ModelRules::new(rules).unwrap());
    let inner = Setup::polled().with(|setup| setup.options.models = rules);
    let short = Abilities::default().context(1_000);
    let inner = inner.start([at("a", &engine).abilities(short)]).await;
    let middle = Setup::polled().start([fleet("inner", &inner)]).await;
    let outer = Setup::polled().start([fleet("middle", &middle)]).await;
    let listed = ["chat", "tiny"].map(ModelEntry::new).to_vec();
    reports(&outer, "middle", "its names and its context are told", |report| {
        report.models == Some(Models::Listed(listed.clone())) && report.abilities.context == Some(1_000)
    })
    .await;
    let answer = post(outer.addr, CHAT, &of_model("chat")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(post(outer.addr, CHAT, &of_model("nobody")).await.status, 404);
    let before = inner.router.metrics_page();
    let long = json!({"model": "chat", "messages": [{"role": "user", "content": "x".repeat(20_000)}]});
    let refused = post(outer.addr, CHAT, &long).await;
    assert_eq!(
        (refused.status, refused.reason()),
        (400, "context_length_exceeded")
    );
    let refusals = |page: &str| page.matches("context_length_exceeded").count();
    assert_eq!(
        refusals(&before),
        refusals(&inner.router.metrics_page()),
        "it was not even sent"
    );
    for world in [outer, middle, inner] {
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_passes_three_levels_before_the_next_one_is_made() {
    let slow = EngineConfig::llamacpp("tiny")
        .prefill_tokens_per_second(f64::INFINITY)
        .decode_tokens_per_second(0.001);
    let engine = engine(slow).await;
    let inner = Setup::polled().start([at("a", &engine)]).await;
    let middle = Setup::polled().start([fleet("inner", &inner)]).await;
    let outer = Setup::polled().start([fleet("middle", &middle)]).await;
    reports(&outer, "middle", "it is ready", |report| {
        report.slots_total.is_some()
    })
    .await;
    let mut client = Client::connect(outer.addr).await;
    client.post(CHAT, &stream(9)).await;
    // The second comes in a quarter of an hour.
    client.until("data:").await;
    drop(client);
    eventually("the engine is rid of it", || engine.stats().running == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_fleet_is_passed_over_for_one_with_room() {
    let slow = |slots| {
        let config = EngineConfig::llamacpp("tiny").slots(slots);
        config
            .prefill_tokens_per_second(f64::INFINITY)
            .decode_tokens_per_second(0.001)
    };
    let (one, other) = (engine(slow(1)).await, engine(slow(3)).await);
    let west = Setup::polled().start([at("one", &one)]).await;
    let east = Setup::polled().start([at("other", &other)]).await;
    let front = Setup::polled()
        .start([fleet("west", &west), fleet("east", &east)])
        .await;
    for id in ["west", "east"] {
        reports(&front, id, "it is known", |report| report.slots_total.is_some()).await;
    }
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut client = Client::connect(front.addr).await;
        client.post(CHAT, &stream(9)).await;
        client.until("data:").await;
        clients.push(client);
    }
    assert_eq!((one.stats().running, other.stats().running), (1, 3));
    // Whoever takes a place there by another way is seen here.
    reports(&front, "east", "its slots are told", |report| {
        report.slots_busy == Some(3)
    })
    .await;
    drop(clients);
    for world in [front, west, east] {
        eventually("all is over", || world.open_weight() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_models_of_a_fleet_the_one_may_be_full_and_the_other_not() {
    let slow = |model: &str, slots| {
        let config = EngineConfig::llamacpp(model).slots(slots);
        let config = config.prefill_tokens_per_second(f64::INFINITY);
        config.decode_tokens_per_second(0.001)
    };
    let engines = [
        engine(slow("m", 1)).await,
        engine(slow("n", 1)).await,
        engine(slow("m", 3)).await,
        engine(slow("n", 1)).await,
    ];
    let rules = Arc::new(ModelRules::new([("chat", ModelRule::alias("m"))]).unwrap());
    let west = Setup::polled().with(|setup| setup.options.models = rules.clone());
    let west = west.start([at("m", &engines[0]), at("n", &engines[1])]).await;
    let east = Setup::polled().with(|setup| setup.options.models = rules);
    let east = east.start([at("m", &engines[2]), at("n", &engines[3])]).await;
    let site = Setup::polled()
        .start([fleet("west", &west), fleet("east", &east)])
        .await;
    let edge = Setup::polled().start([fleet("site", &site)]).await;
    let rooms = |world: &World, name: &str| -> Vec<_> {
        let rooms = report(world, name).rooms.into_iter();
        rooms
            .map(|room| (room.models.join(" "), room.limit, room.load))
            .collect()
    };
    let told = |m, n| {
        let (both, one) = ("chat m".to_owned(), "n".to_owned());
        vec![(both, 4, m), (one, 2, n)]
    };
    let sorted = |mut rooms: Vec<(String, u32, u32)>| {
        rooms.sort();
        rooms
    };
    eventually("its room is told by model", || {
        sorted(rooms(&edge, "site")) == told(0, 0)
    })
    .await;
    assert_eq!(report(&edge, "site").slots_total, None);
    let model = |model: &str| {
        let mut asked = stream(9);
        asked["model"] = model.into();
        asked
    };
    let mut clients = Vec::new();
    for asked in ["m", "chat", "m", "m"] {
        let mut client = Client::connect(edge.addr).await;
        client.post(CHAT, &model(asked)).await;
        client.until("data:").await;
        clients.push(client);
    }
    assert_eq!(
        [&engines[0], &engines[2]].map(|engine| engine.stats().running),
        [1, 3]
    );
    // The next one waits at the first of them, and behind it nobody does.
    let mut waits = Client::connect(edge.addr).await;
    waits.post(CHAT, &model("m")).await;
    let waiting =
        |world: &World| serde_json::to_value(world.router.queue_status()).unwrap()["waiting"].clone();
    eventually("it waits", || waiting(&edge) == 1).await;
    let mut other = Client::connect(edge.addr).await;
    other.post(CHAT, &model("n")).await;
    other.until("data:").await;
    eventually("all of it is told", || sorted(rooms(&edge, "site")) == told(4, 1)).await;
    assert_eq!((waiting(&edge), waiting(&site)), (json!(1), json!(0)));
    assert_eq!((waiting(&west), waiting(&east)), (json!(0), json!(0)));
    drop(clients.pop());
    waits.until("data:").await;
    drop((clients, waits, other));
    for world in [edge, site, west, east] {
        eventually("all is over", || world.open_weight() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_in_a_fleet_is_its_queue_and_who_stops_is_sent_nothing() {
    let engine = engine(serving("tiny", 2)).await;
    let inner = Setup::polled().start([at("a", &engine)]).await;
    let outer = Setup::polled().start([fleet("inner", &inner)]).await;
    reports(&outer, "inner", "it is known", |report| report.waiting == Some(0)).await;
    inner.statuses.set_draining(id("a"), true).await.unwrap();
    reports(&outer, "inner", "nobody there is sent work", |report| {
        (report.health, report.slots_total) == (Some(Health::Failing), None)
    })
    .await;
    let mut waits = Client::connect(inner.addr).await;
    waits.post(CHAT, &of_model("tiny")).await;
    reports(&outer, "inner", "its queue is told", |report| {
        report.waiting == Some(1)
    })
    .await;
    inner.statuses.set_draining(id("a"), false).await.unwrap();
    assert_eq!(waits.answer().await.status, 200);
    reports(&outer, "inner", "all is well", |report| {
        report.health == Some(Health::Ready)
    })
    .await;
    inner.router.stop();
    reports(&outer, "inner", "it says that it goes", |report| {
        report.health == Some(Health::Failing)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ring_of_routers_is_seen_before_anything_goes_round() {
    let engine = engine(serving("tiny", 1)).await;
    let worlds = [
        Setup::polled().start([at("engine", &engine)]).await,
        Setup::polled().start([]).await,
        Setup::polled().start([]).await,
    ];
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let next = StatusEvent::Upsert(fleet("next", &worlds[to]));
        worlds[from].statuses.apply(next).await.unwrap();
    }
    for world in &worlds {
        reports(world, "next", "the ring is seen", |report| {
            let says = report.degraded.iter().any(|one| one.found.starts_with("a ring"));
            says && report.health == Some(Health::Failing)
        })
        .await;
    }
    assert_eq!(
        post(worlds[0].addr, CHAT, &of_model("tiny")).await.status,
        200,
        "it has an engine of its own"
    );
    // Opened, it is a row: the last one has no upstream, and the others are well.
    worlds[2]
        .statuses
        .apply(StatusEvent::Remove(id("next")))
        .await
        .unwrap();
    reports(&worlds[0], "next", "the ring is open", |report| {
        !report.degraded.iter().any(|one| one.found.starts_with("a ring"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_is_found_out_by_asking_and_one_with_keys_says_so() {
    let engine = engine(serving("tiny", 2)).await;
    let inner = Setup::polled().start([at("a", &engine)]).await;
    let by_asking = UpstreamSpec::new("inner", format!("http://{}", inner.addr)).unwrap();
    assert_eq!(by_asking.engine, Engine::Auto);
    eventually("its models are known", || {
        inner.router.published().load().models_complete()
    })
    .await;
    let outer = Setup::polled().start([by_asking]).await;
    reports(&outer, "inner", "it is a fleet", |report| {
        report.slots_total == Some(2)
    })
    .await;

    let mut keys = paddler_core::forward::Client::new("anybody");
    keys.max_in_flight = Some(9);
    let keys = Arc::new(Key(Arc::new(keys)));
    let closed = Setup::polled()
        .with(|setup| setup.options.keys = Some(keys))
        .start([at("a", &engine)])
        .await;
    let outer = Setup::polled().start([fleet("closed", &closed)]).await;
    reports(&outer, "closed", "it wants a key", |report| {
        report
            .degraded
            .iter()
            .any(|one| one.found.contains("wants a key"))
    })
    .await;
    let gone = UpstreamSpec::new("gone", nowhere().await.replace("http", "paddler")).unwrap();
    let outer = Setup::polled()
        .queue(1, Duration::from_millis(50))
        .start([gone])
        .await;
    assert_eq!(post(outer.addr, CHAT, &of_model("tiny")).await.status, 503);
}

#[derive(Debug)]
struct Key(Arc<paddler_core::forward::Client>);

impl paddler_core::forward::Authorise for Key {
    fn client(&self, key: &[u8]) -> Option<Arc<paddler_core::forward::Client>> {
        (key == b"open").then(|| self.0.clone())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_in_front_is_told_of_no_more_than_its_key_opens() {
    let mut client = paddler_core::forward::Client::new("front");
    client.models = Some([Arc::from("base")].into());
    let key = Arc::new(Key(Arc::new(client)));
    let entries = || {
        let adapter = ModelEntry::adapter;
        let bases = ["base", "other"].map(ModelEntry::new);
        bases
            .into_iter()
            .chain([adapter("sql", "base"), adapter("far", "other")])
    };
    for (models, known, active) in [
        (
            Models::Listed(entries().collect()),
            &["base", "sql"][..],
            &["sql"][..],
        ),
        // Nobody says that one is over his base.
        (Models::Any, &["base"], &[]),
    ] {
        let keeps = UpstreamSpec::new("a", "http://127.0.0.1:9")
            .unwrap()
            .models(models);
        let setup = Setup::new().with(|setup| setup.options.keys = Some(key.clone()));
        let world = setup.start([keeps]).await;
        let mut said = Report::new();
        said.adapters = Some(Adapters {
            max: Some(4),
            running: ["sql", "far"].map(Arc::from).into(),
            waiting: ["far", "sql"].map(Arc::from).into(),
        });
        let event = StatusEvent::Report {
            id: id("a"),
            report: said,
            sample: None,
        };
        world.statuses.apply(event).await.unwrap();
        eventually("it has said so", || report(&world, "a").adapters.is_some()).await;
        let bearer = "authorization: Bearer open\r\n";
        let told = ask(world.addr, "GET", "/paddler/v1/status", bearer, "").await;
        let mut seen = Report::new();
        read_status(200, told.text().as_bytes(), &mut seen);
        let Some(Models::Listed(models)) = seen.models else {
            panic!("{:?}", seen.models);
        };
        let mut names: Vec<_> = models.iter().map(|model| &*model.id).collect();
        names.sort_unstable();
        assert_eq!(names, known);
        let adapters = seen.adapters.unwrap();
        let active: Vec<Arc<str>> = active.iter().map(|name| Arc::from(*name)).collect();
        assert_eq!(
            (&adapters.running, &adapters.waiting),
            (&active, &active),
            "{known:?}"
        );
    }
}
