//! What agents say and do not say, as it comes onto a board, in simulated time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::*;
use crate::Clock;
use crate::forward::{Body, BoxError};
use crate::request::Facts;
use crate::schedule::{Ask, Scratch, trees};
use crate::status::{FixedList, Snapshot, StatusBoard, StatusLoop, StatusSource};
use crate::upstream::http::HttpConnect;
use crate::upstream::{Connect, Lease, Upstream, UpstreamId, UpstreamSpec};

mod rivals;

const UUID: &str = "0b9e4a52-6a8e-4e9c-9f0e-5c1f6f5d2a11";

struct Rig {
    agents: Agents,
    statuses: StatusLoop,
    clock: Clock,
}

/// What is said on one stream.
struct Speaker {
    to: mpsc::Sender<Bytes>,
    end: JoinHandle<Result<u64, StreamEnd>>,
}

impl Rig {
    fn start() -> Self {
        Self::with(AgentsOptions::default(), Vec::new())
    }

    fn with(options: AgentsOptions, mut before: Vec<Box<dyn StatusSource>>) -> Self {
        let clock = Clock::new();
        let board = StatusBoard::new(trees::balancer());
        let (agents, list) = Agents::new(options, board.published(), clock);
        before.push(Box::new(list));
        let connect = Arc::new(HttpConnect::default());
        let statuses = StatusLoop::start(board, before, connect, None, clock);
        Self {
            agents,
            statuses,
            clock,
        }
    }

    fn stream(&self, agent: &str, dialect: Dialect) -> Speaker {
        let (to, body) = mpsc::channel(16);
        let (agents, agent) = (self.agents.clone(), UpstreamId::new(agent).unwrap());
        let end = tokio::spawn(async move {
            agents
                .listen(&agent, dialect, None, Body::from_channel(body))
                .await
        });
        Speaker { to, end }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.statuses.published().load_full()
    }

    /// Asks for a place, as a request does.
    fn reserve(&self) -> Option<Lease> {
        let facts = Facts::new();
        let ask = Ask::new(&facts, self.clock.now(), 1);
        self.snapshot()
            .reserve(&ask, &mut Scratch::default(), &mut ())
            .ok()
    }

    fn ids(&self) -> Vec<String> {
        let snapshot = self.snapshot();
        let mut ids: Vec<_> = snapshot
            .iter()
            .map(|(_, entry)| entry.spec().id.to_string())
            .collect();
        ids.sort_unstable();
        ids
    }
}

impl Speaker {
    async fn says(&self, message: impl std::fmt::Display) {
        self.to.send(Bytes::from(message.to_string())).await.unwrap();
        settle().await;
    }

    /// It comes to its end.
    async fn ends(self) -> Result<u64, StreamEnd> {
        drop(self.to);
        let end = self.end.await.unwrap();
        settle().await;
        end
    }

    /// It breaks off.
    async fn breaks(self) {
        self.end.abort();
        settle().await;
    }
}

/// Time for what was said to come onto the board.
async fn settle() {
    sleep(Duration::from_millis(25)).await;
}

fn old(idle: u32, busy: u32) -> serde_json::Value {
    json!({
        "agent_name": "größe", "error": null, "external_llamacpp_addr": "10.0.0.3:8080", "is_authorized": true,
        "is_slots_endpoint_enabled": true, "slots_idle": idle, "slots_processing": busy,
    })
}

fn own(id: &str, beat_ms: u64) -> serde_json::Value {
    json!({
        "version": 1, "beat_ms": beat_ms, "upstream": {"id": id, "url": format!("http://{id}:8080")},
        "report": {"health": "ready", "slots_total": 2, "slots_busy": 0}, "age_ms": 1,
    })
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_for_three_beats_gets_nothing_and_leaves_after_six() {
    let rig = Rig::start();
    let speaker = rig.stream("gpu-1", Dialect::Own);
    speaker.says(own("gpu-1", 1_000)).await;
    for _ in 0..20 {
        assert!(rig.reserve().is_some());
        sleep(Duration::from_millis(900)).await;
        speaker.says("{}").await;
    }
    let quiet = Instant::now();
    while rig.reserve().is_some() {
        sleep(Duration::from_millis(10)).await;
        assert!(
            quiet.elapsed() < Duration::from_millis(3_200),
            "it is still picked"
        );
    }
    assert!(quiet.elapsed() > Duration::from_millis(2_900));
    let entry = rig.snapshot().find("gpu-1").cloned().unwrap();
    assert!(
        entry
            .last_failure()
            .unwrap()
            .to_string()
            .contains("silent: its agent has said nothing for 3s")
    );

    // It thaws, and nothing was new.
    speaker.says("{}").await;
    assert!(rig.reserve().is_some(), "its last word holds");
    sleep(Duration::from_millis(5_800)).await;
    assert_eq!(rig.ids(), ["gpu-1"]);
    sleep(Duration::from_millis(400)).await;
    assert!(rig.ids().is_empty());
    let end = speaker.end.await.unwrap().unwrap_err();
    assert_eq!(end.status(), StatusCode::REQUEST_TIMEOUT, "{end}");
    assert_eq!(rig.agents.sizes(), [0; 5]);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_able_before_an_agent_has_said_how_its_engine_is() {
    let mut said_nothing = own("gpu-1", 1_000);
    said_nothing.as_object_mut().unwrap().remove("report");
    let rig = Rig::start();
    let speaker = rig.stream("gpu-1", Dialect::Own);
    speaker.says(said_nothing).await;
    assert_eq!((rig.ids().len(), rig.snapshot().anyone_able()), (1, false));
    speaker.says(own("gpu-1", 1_000)).await;
    assert!(rig.snapshot().anyone_able());

    // Nor for the moment that is between the two things that one message says.
    let down = json!({"agent_name": "a", "error": "refused", "external_llamacpp_addr": "10.0.0.3:8080", "is_connect_error": true});
    for (first, able) in [(down, false), (old(4, 0), true)] {
        let rig = Rig::start();
        let speaker = rig.stream(UUID, Dialect::Paddler1);
        let message = Bytes::from(first.to_string());
        speaker.to.send(message).await.unwrap();
        let until = Instant::now() + Duration::from_millis(100);
        while Instant::now() < until {
            let snapshot = rig.snapshot();
            let heard = snapshot.iter().any(|(_, entry)| entry.report().is_some());
            assert_eq!(snapshot.anyone_able(), heard && able);
            sleep(Duration::from_millis(1)).await;
        }
        assert!(rig.snapshot().iter().any(|(_, entry)| entry.report().is_some()));
    }
}

#[tokio::test(start_paused = true)]
async fn the_beat_of_an_old_agent_is_learnt() {
    let rig = Rig::start();
    let speaker = rig.stream(UUID, Dialect::Paddler1);
    speaker.says(old(2, 0)).await;
    sleep(Duration::from_secs(29)).await;
    assert!(rig.reserve().is_some(), "it may be a slow one");
    for _ in 0..4 {
        sleep(Duration::from_secs(2)).await;
        speaker.says(old(2, 0)).await;
    }
    sleep(Duration::from_secs(5)).await;
    assert!(rig.reserve().is_some());
    sleep(Duration::from_secs(2)).await;
    assert!(
        rig.reserve().is_none() && rig.ids() == ["10.0.0.3:8080"],
        "it is stale"
    );
    speaker.says(old(2, 0)).await;
    assert!(rig.reserve().is_some());
}

#[tokio::test(start_paused = true)]
async fn between_two_words_of_an_old_agent_our_own_requests_count_once() {
    let rig = Rig::start();
    let speaker = rig.stream(UUID, Dialect::Paddler1);
    speaker.says(old(2, 0)).await;
    let first = rig.reserve().unwrap();
    let second = rig.reserve().unwrap();
    assert!(rig.reserve().is_none(), "both slots are ours");
    sleep(Duration::from_secs(10)).await;
    speaker.says(old(0, 2)).await;
    assert_eq!(
        rig.snapshot().find("10.0.0.3:8080").unwrap().others(),
        0,
        "it has seen ours"
    );
    assert!(rig.reserve().is_none());
    // What ends is free at once, and stays so for as long as the word holds.
    first.complete();
    rig.reserve().expect("one slot is free").complete();
    sleep(Duration::from_secs(9)).await;
    assert_eq!(rig.snapshot().find("10.0.0.3:8080").unwrap().others(), 0);
    second.complete();
    sleep(Duration::from_secs(11)).await;

    // Somebody else's request counts until the next word.
    speaker.says(old(1, 1)).await;
    let only = rig.reserve().expect("one slot is left");
    assert!(rig.reserve().is_none());
    only.complete();
    sleep(Duration::from_secs(9)).await;
    let snapshot = rig.snapshot();
    let entry = snapshot.find("10.0.0.3:8080").unwrap();
    assert_eq!(entry.others(), 1, "and is told again for as long");
    assert!(
        rig.clock.now().since(entry.reported_at()) < Duration::from_secs(4),
        "so that trees go by it"
    );
}

#[tokio::test(start_paused = true)]
async fn who_leaves_in_the_middle_of_a_request_harms_none() {
    let rig = Rig::start();
    let speaker = rig.stream("gpu-1", Dialect::Own);
    speaker.says(own("gpu-1", 1_000)).await;
    let lease = rig.reserve().unwrap();
    speaker.says(json!({"bye": true})).await;
    assert!(rig.ids().is_empty(), "at once");
    assert_eq!(speaker.ends().await.unwrap(), 2);
    lease.complete();

    // One that breaks off may come back; and one that does not is gone.
    let speaker = rig.stream("gpu-1", Dialect::Own);
    speaker.says(own("gpu-1", 1_000)).await;
    speaker.breaks().await;
    sleep(Duration::from_secs(1)).await;
    assert!(rig.reserve().is_some());
    let speaker = rig.stream("gpu-1", Dialect::Own);
    speaker.says("{}").await;
    sleep(Duration::from_millis(2_500)).await;
    assert!(rig.reserve().is_some(), "it has come back");
    speaker.says("{}").await;
    speaker.breaks().await;
    sleep(Duration::from_millis(3_200)).await;
    assert!(rig.ids().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_newest_stream_counts_and_the_end_of_an_older_one_ends_nothing() {
    let rig = Rig::start();
    let first = rig.stream("gpu-1", Dialect::Own);
    first.says(own("gpu-1", 1_000)).await;
    let second = rig.stream("gpu-1", Dialect::Own);
    second.says(own("gpu-1", 1_000)).await;
    let end = first.end.await.unwrap().unwrap_err();
    assert_eq!(end.status(), StatusCode::CONFLICT, "{end}");
    settle().await;
    assert_eq!(rig.ids(), ["gpu-1"]);

    // An agent of 1.x that was started again has another id, and the same address.
    let before = rig.stream(UUID, Dialect::Paddler1);
    before.says(old(2, 0)).await;
    let after = rig.stream("another", Dialect::Paddler1);
    after.says(old(2, 0)).await;
    before.says(old(0, 2)).await;
    assert_eq!(rig.ids(), ["10.0.0.3:8080", "gpu-1"]);
    assert_eq!(
        rig.snapshot()
            .find("10.0.0.3:8080")
            .unwrap()
            .report()
            .unwrap()
            .slots_busy,
        Some(0)
    );
    assert!(before.ends().await.is_ok());
    assert_eq!(rig.ids().len(), 2);
    assert!(after.ends().await.is_ok());
    assert_eq!(rig.ids(), ["gpu-1"], "whose last stream has ended leaves");
    assert_eq!(rig.agents.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_flaps_leave_nothing() {
    let rig = Rig::start();
    let steady = rig.stream("steady", Dialect::Own);
    steady.says(own("steady", 120_000)).await;
    for flap in 0..1_000_u32 {
        let (id, dialect) = if flap % 2 == 0 {
            ("gpu-1", Dialect::Own)
        } else {
            (UUID, Dialect::Paddler1)
        };
        let speaker = rig.stream(id, dialect);
        let message = if flap % 2 == 0 { own(id, 50) } else { old(1, 0) };
        speaker.to.send(Bytes::from(message.to_string())).await.unwrap();
        if flap % 3 == 0 {
            // It is on the board, too.
            settle().await;
        }
        match flap % 4 {
            0 | 1 => drop(speaker.ends().await.unwrap()),
            _ => speaker.breaks().await,
        }
    }
    sleep(Duration::from_secs(6)).await;
    assert_eq!(rig.ids(), ["steady"]);
    assert_eq!(
        rig.agents.sizes(),
        [1, 1, 1, 0, 0],
        "known, places, told, changed, waiting"
    );
    assert!(steady.ends().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn there_are_no_more_than_may_be_and_the_configs_word_comes_first() {
    let options = AgentsOptions {
        most: 2,
        largest_message: 512,
        ..AgentsOptions::default()
    };
    let config = UpstreamSpec::new("by-config", "http://gpu-1:8080").unwrap();
    let rig = Rig::with(options, vec![Box::new(FixedList::new([config]))]);
    let one = rig.stream("gpu-1", Dialect::Own);
    one.says(own("gpu-1", 1_000)).await;
    let two = rig.stream("gpu-2", Dialect::Own);
    two.says(own("gpu-2", 1_000)).await;
    assert_eq!(rig.ids(), ["by-config", "gpu-2"], "one place is one upstream");
    let three = rig.stream("gpu-3", Dialect::Own);
    three.says(own("gpu-3", 1_000)).await;
    let end = three.end.await.unwrap().unwrap_err();
    assert_eq!(end.status(), StatusCode::INSUFFICIENT_STORAGE);
    two.says(format!("{{\"name\":\"{}\"}}", "x".repeat(600))).await;
    let end = two.end.await.unwrap().unwrap_err();
    assert!(
        end.to_string().contains("message 2") && end.to_string().contains("512 bytes"),
        "{end}"
    );
    assert_eq!(end.status(), StatusCode::BAD_REQUEST);
    let stranger = rig.stream("stranger", Dialect::Own);
    stranger.says("{}").await;
    assert_eq!(
        stranger.end.await.unwrap().unwrap_err().status(),
        StatusCode::GONE
    );
    let far = Some([10, 0, 0, 9].into());
    let id = UpstreamId::new("gpu-1").unwrap();
    let message = old(1, 0).to_string().replace("10.0.0.3", "127.0.0.1");
    let end = rig
        .agents
        .listen(&id, Dialect::Paddler1, far, Body::from(message))
        .await
        .unwrap_err();
    assert!(end.to_string().contains("the balancer's own machine"), "{end}");
}

#[tokio::test(start_paused = true)]
async fn a_ring_through_an_agent_is_seen() {
    let rig = Rig::start();
    rig.statuses.published().named(|| "this".into());
    let speaker = rig.stream("gpu-1", Dialect::Own);
    let mut says = own("gpu-1", 1_000);
    says["routers"] = json!({"other": 0, "elsewhere": 1});
    speaker.says(&says).await;
    assert!(rig.reserve().is_some());
    says["routers"] = json!({"other": 0, "this": 1});
    speaker.says(&says).await;
    assert!(rig.reserve().is_none());
}

#[tokio::test(start_paused = true)]
async fn agents_are_told_as_1_x_told_them() {
    let rig = Rig::start();
    let (busy, free) = (
        rig.stream("gpu-1", Dialect::Own),
        rig.stream(UUID, Dialect::Paddler1),
    );
    let mut says = own("gpu-1", 1_000);
    says["report"]["slots_busy"] = 2.into();
    busy.says(says).await;
    free.says(old(3, 1)).await;
    let document = serde_json::to_value(rig.agents.document()).unwrap();
    let first = &document["agents"][0];
    assert_eq!(
        (&first["agent_id"], &first["quarantined_until"]),
        (&json!(UUID), &json!(null))
    );
    assert!(first["last_update"]["secs_since_epoch"].as_u64().unwrap() > 1_700_000_000);
    let status = &first["status"];
    assert_eq!(status["external_llamacpp_addr"], "10.0.0.3:8080");
    assert_eq!(
        (&status["agent_name"], &status["error"]),
        (&json!("größe"), &json!(null))
    );
    assert_eq!(
        (&status["slots_idle"], &status["slots_processing"]),
        (&json!(3), &json!(1))
    );
    let other = &document["agents"][1]["status"];
    assert_eq!(
        (&other["slots_idle"], &other["slots_processing"]),
        (&json!(0), &json!(2))
    );
    let lease = rig.reserve().unwrap();
    let document = serde_json::to_value(rig.agents.document()).unwrap();
    assert_eq!(
        (
            &document["agents"][0]["slots_taken"],
            &document["agents"][0]["status"]["slots_idle"]
        ),
        (&json!(1), &json!(2))
    );
    lease.complete();
}

/// An engine, and balancers, without a network between them and their agent.
#[derive(Debug, Clone)]
struct World {
    agents: Agents,
    /// What `/health` answers; 0: nobody is there.
    health: Arc<AtomicU16>,
    /// Whether the balancer is there.
    balancer: Arc<AtomicU16>,
}

impl Connect for World {
    fn connect(&self, spec: &UpstreamSpec) -> Result<Arc<dyn Upstream>, BoxError> {
        let world = self.clone();
        Ok(if spec.id.as_str() == "balancer" {
            Arc::new(Balancer(world))
        } else {
            Arc::new(Engine(world))
        })
    }
}

#[derive(Debug)]
struct Engine(World);

#[async_trait]
impl Upstream for Engine {
    async fn call(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let health = self.0.health.load(Relaxed);
        let status = StatusCode::from_u16(health).map_err(|_| "nobody is there")?;
        let body = match request.uri().path() {
            "/slots" => json!([{"id": 0, "is_processing": true}, {"id": 1, "is_processing": false}]),
            "/props" => json!({"total_slots": 2, "default_generation_settings": {}}),
            "/v1/models" => json!({"object": "list", "data": [{"id": "llama", "object": "model"}]}),
            "/health" => json!({"status": "ok"}),
            _ => json!({}),
        };
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = status;
        Ok(response)
    }
}

#[derive(Debug)]
struct Balancer(World);

#[async_trait]
impl Upstream for Balancer {
    async fn call(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        if self.0.balancer.load(Relaxed) == 0 {
            return Err("nobody is there".into());
        }
        assert_eq!(request.uri().path(), "/api/v1/agents/gpu-1/status");
        let id = UpstreamId::new("gpu-1").unwrap();
        let result = self
            .0
            .agents
            .listen(&id, Dialect::Own, None, request.into_body())
            .await;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = result.map_or_else(|end| end.status(), |_| StatusCode::ACCEPTED);
        Ok(response)
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_follows_its_engine_and_comes_back_to_its_balancer() {
    let rig = Rig::start();
    let world = World {
        agents: rig.agents.clone(),
        health: Arc::new(AtomicU16::new(200)),
        balancer: Arc::new(AtomicU16::new(0)),
    };
    let upstream = UpstreamSpec::new("gpu-1", "http://10.0.0.3:8080").unwrap();
    let mut upstream = upstream.label("zone", "a");
    upstream.engine = crate::upstream::Engine::Llamacpp;
    let balancer = UpstreamSpec::new("balancer", "http://balancer:8081").unwrap();
    let agent = Agent::start(AgentOptions::new(upstream, [balancer]), Arc::new(world.clone())).unwrap();
    sleep(Duration::from_secs(60)).await;
    assert!(rig.ids().is_empty());
    world.balancer.store(1, Relaxed);
    sleep(Duration::from_secs(11)).await;
    let entry = rig.snapshot().find("gpu-1").cloned().unwrap();
    assert_eq!(
        (entry.spec().url.as_str(), entry.spec().labels["zone"].as_str()),
        ("http://10.0.0.3:8080", "a")
    );
    let report = entry.report().unwrap();
    assert_eq!((report.slots_total, report.slots_busy), (Some(2), Some(1)));
    assert!(report.models.is_some());

    // For as long as it runs there is no moment without it, whichever request it speaks in.
    for _ in 0..600 {
        sleep(Duration::from_millis(100)).await;
        assert!(rig.reserve().is_some());
        let age = rig
            .clock
            .now()
            .since(rig.snapshot().find("gpu-1").unwrap().reported_at());
        assert!(age < Duration::from_millis(1_400), "{age:?}");
    }
    world.health.store(503, Relaxed);
    sleep(Duration::from_millis(400)).await;
    assert!(rig.reserve().is_none(), "it is told at once");
    world.health.store(0, Relaxed);
    sleep(Duration::from_secs(10)).await;
    assert!(rig.reserve().is_none() && rig.ids() == ["gpu-1"]);
    world.health.store(200, Relaxed);
    sleep(Duration::from_millis(1_500)).await;
    assert!(rig.reserve().is_some());
    agent.stop(Duration::from_secs(5)).await;
    settle().await;
    assert!(rig.ids().is_empty(), "it has said good-bye");
    assert_eq!(rig.agents.sizes(), [0; 5]);
}
