//! Does who is only fallen back to, or gets only what names a model, change anything for whom it cannot serve?

use std::time::Duration;

use paddler_core::Moment;
use paddler_core::health::HealthState;
use paddler_core::request::{ModelRule, ModelRules};
use paddler_core::schedule::trees;
use paddler_core::status::{StatusBoard, StatusEvent};
use paddler_core::upstream::{
    Abilities, Capability, Engine, ModelEntry, Models, Traffic, UpstreamId, UpstreamSpec,
};
use serde_json::{Value, json};

use super::client::{CHAT, HANG, eventually, get, post};
use super::stub::{Do, Stub};
use super::world::{Setup, World, spec};

/// Who is ejected stays so, and who waits in vain for that finds out after half a minute at most.
fn setup() -> Setup {
    Setup::new().queue(9, HANG).with(|setup| {
        let health = &mut setup.board.health;
        (health.slow_start, health.largest_share) = (Duration::ZERO, 1.0);
        (health.eject_time, health.longest_time) = (10 * HANG, 10 * HANG);
    })
}

fn listed(name: &str) -> Models {
    Models::Listed([ModelEntry::new(name)].into())
}

fn own(id: &str, stub: &Stub) -> UpstreamSpec {
    spec(id, &stub.url).models(listed("big"))
}

/// Somebody else's API.
fn hosted(traffic: Traffic, models: Option<Models>, stub: &Stub) -> UpstreamSpec {
    let mut spec = spec("hosted", &stub.url);
    (spec.engine, spec.traffic, spec.models) = (Engine::Openai, traffic, models);
    spec
}

/// Each is another one: of the same nobody is ejected.
fn chat(model: Option<&str>, number: usize) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": format!("number {number}")}]});
    if let Some(model) = model {
        body["model"] = json!(model);
    }
    body
}

fn with_image(model: Option<&str>) -> Value {
    let mut body = chat(model, 0);
    let url = json!({"url": "data:image/png;base64,AA=="});
    body["messages"][0]["content"] = json!([{"type": "image_url", "image_url": url}]);
    body
}

/// Answers with 500 so many times, and then as it should.
async fn failing(times: usize) -> Stub {
    let fails = Do::say("HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n");
    let mut script = vec![fails; times];
    script.push(Do::ok("{}"));
    Stub::start(script).await
}

fn is_ejected(world: &World, id: &str) -> bool {
    let snapshot = world.router.published().load_full();
    let health = snapshot.health(snapshot.index(id).unwrap()).unwrap();
    matches!(health.state, HealthState::Ejected { .. })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ones_own_last_engine_stays_in_service_beside_a_spare() {
    for models in [Some(listed("big")), Some(Models::Any), None] {
        let (engine, other) = (failing(5).await, Stub::start([Do::ok("{}")]).await);
        let spare = hosted(Traffic::Fallback, models.clone(), &other);
        let world = setup().start([own("own", &engine), spare]).await;
        for number in 0..7 {
            let expected = if number < 5 { 500 } else { 200 };
            let answer = post(world.addr, CHAT, &chat(Some("big"), number)).await;
            assert_eq!(answer.status, expected, "{models:?}: {number}");
        }
        assert!(!is_ejected(&world, "own") && other.seen().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_last_resort_is_asked_though_one_is_well_whom_the_request_does_not_reach() {
    for traffic in [Traffic::Fallback, Traffic::Named] {
        let (a, b) = (failing(3).await, failing(3).await);
        let other = Stub::start([Do::ok("{}")]).await;
        let spare = hosted(traffic, Some(listed("hosted")), &other);
        let world = setup().start([own("a", &a), own("b", &b), spare]).await;
        let mut number = 0;
        while !["a", "b"].iter().any(|id| is_ejected(&world, id)) {
            post(world.addr, CHAT, &chat(Some("big"), number)).await;
            number += 1;
            assert!(number < 20, "nobody is ejected");
        }
        let (out, well) = if is_ejected(&world, "a") {
            ("a", "b")
        } else {
            ("b", "a")
        };
        let leaves = StatusEvent::Remove(UpstreamId::new(well).unwrap());
        world.statuses.apply(leaves).await.unwrap();
        eventually("it has left", || world.router.published().load().len() == 2).await;
        assert!(is_ejected(&world, out), "{traffic:?}");
        let answer = post(world.addr, CHAT, &chat(None, 99)).await;
        assert_eq!((answer.status, answer.reason()), (200, ""), "{traffic:?}");
        assert!(other.seen().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spare_that_can_do_it_is_not_waited_for() {
    let (engine, other) = (
        Stub::start([Do::ok("{}")]).await,
        Stub::start([Do::ok("{}")]).await,
    );
    let chats = Abilities::only([Capability::Chat]);
    let spare = hosted(Traffic::Fallback, Some(Models::Any), &other);
    let world = setup().start([own("own", &engine).abilities(chats), spare]).await;
    for model in [Some("big"), None] {
        let answer = post(world.addr, CHAT, &with_image(model)).await;
        assert_eq!(
            (answer.status, answer.reason()),
            (404, "not_capable"),
            "{model:?}"
        );
    }
    assert!(engine.seen().is_empty() && other.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_waited_for_while_all_but_a_spare_have_asked_to_be_left_alone() {
    let busy = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 3600\r\ncontent-length: 0\r\n\r\n";
    let (engine, other) = (
        Stub::start([Do::say(busy)]).await,
        Stub::start([Do::ok("{}")]).await,
    );
    let spare = hosted(Traffic::Fallback, Some(Models::Any), &other);
    // For less long than others are left alone because of one answer.
    let setup = setup().queue(9, Duration::from_secs(3));
    let world = setup.start([own("own", &engine), spare]).await;
    let first = post(world.addr, CHAT, &chat(Some("big"), 0)).await;
    assert_eq!((first.status, first.reason()), (429, ""), "the engine's own");
    let second = post(world.addr, CHAT, &chat(Some("big"), 1)).await;
    assert_eq!((second.status, second.reason()), (429, "upstreams_busy"));
    assert!(other.seen().is_empty());
}

#[test]
fn what_a_spare_can_do_is_not_told_to_a_router_in_front() {
    let told = |traffic: Option<Traffic>| {
        let mut board = StatusBoard::new(trees::gateway());
        let mut chats = Abilities::only([Capability::Chat]);
        chats.context = Some(8_192);
        let mut all = vec![spec("own", "http://a").models(listed("big")).abilities(chats)];
        all.extend(traffic.map(|traffic| {
            let mut spec = spec("hosted", "https://b");
            (spec.engine, spec.traffic) = (Engine::Openai, traffic);
            spec
        }));
        for spec in all {
            board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
        }
        let fleet = board.publish(Moment::ZERO).aggregate(0);
        let is_complete = fleet.degraded.is_empty();
        (fleet.abilities, fleet.models, is_complete)
    };
    let alone = told(None);
    assert_eq!((alone.0.context, alone.2), (Some(8_192), true));
    assert_eq!(told(Some(Traffic::Fallback)), alone);
    assert_eq!(
        told(Some(Traffic::Named)).0.context,
        None,
        "who names a model gets there"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spare_alone_makes_nobody_ready_but_those_who_fall_back() {
    let other = Stub::start([Do::ok("{}")]).await;
    for (falls_back, expected) in [(false, (503, "unhealthy")), (true, (200, ""))] {
        let rule = ("big", ModelRule::default().or_else(["hosted"]));
        let rules = ModelRules::new(falls_back.then_some(rule)).unwrap();
        let setup = setup().with(|setup| setup.options.models = rules.into());
        let spare = hosted(Traffic::Fallback, Some(listed("hosted")), &other);
        let world = setup.start([spare]).await;
        let health = get(world.addr, "/health").await;
        assert_eq!((health.status, health.reason()), expected);
        assert_eq!(world.router.is_ready(), falls_back);
        let answer = post(world.addr, CHAT, &chat(Some("big"), 0)).await;
        assert_eq!(answer.status == 200, falls_back, "{}", answer.text());
    }
}
