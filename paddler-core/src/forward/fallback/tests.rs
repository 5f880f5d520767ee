//! Every order of events, in a time of its own.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use async_trait::async_trait;
use http::{Request, Response};
use proptest::prelude::*;
use tokio::time::{Instant, sleep_until, timeout};

use super::*;
use crate::forward::{Body, BoxError};
use crate::observe::UpstreamStatus;
use crate::queue::QueueLimits;
use crate::request::ModelRule;
use crate::schedule::{Tree, trees};
use crate::status::{StatusBoard, StatusEvent};
use crate::upstream::{Lease, ModelEntry, Models, Transport, Upstream, UpstreamId, UpstreamSpec};

#[derive(Debug)]
struct Nobody;

#[async_trait]
impl Upstream for Nobody {
    async fn call(&self, _request: Request<Body>) -> Result<Response<Body>, BoxError> {
        Err("nobody is there".into())
    }
}

const MODELS: [&str; 3] = ["big", "small", "hosted"];
const MAX_WAIT: Duration = Duration::from_secs(30);

/// An upstream with one place, for this model.
fn serves(model: &str) -> UpstreamSpec {
    let spec = UpstreamSpec::new(model, "http://127.0.0.1:9")
        .unwrap()
        .max_in_flight(1);
    let mut spec = spec.models(Models::Listed([ModelEntry::new(model)].into()));
    spec.extensions.insert(Transport(Arc::new(Nobody)));
    spec
}

struct World {
    clock: Clock,
    board: StatusBoard,
    places: Arc<Places>,
}

impl World {
    /// Upstreams with one place each, for these models, and somebody who hands places out.
    fn new(models: impl IntoIterator<Item = &'static str>, waiting: usize) -> Self {
        Self::by(trees::gateway(), models, waiting)
    }

    fn by(tree: Tree, models: impl IntoIterator<Item = &'static str>, waiting: usize) -> Self {
        let (clock, mut board) = (Clock::new(), StatusBoard::new(tree));
        for model in models {
            board.apply(StatusEvent::Upsert(serves(model)), clock.now());
        }
        board.publish(clock.now());
        let limits = QueueLimits::new(waiting, 1 << 20, MAX_WAIT);
        let places = Arc::new(Places::new(board.published(), clock, limits, 1));
        tokio::spawn(places.clone().keep_handing_out());
        Self { clock, board, places }
    }

    fn joins(&mut self, model: &str) {
        self.board
            .apply(StatusEvent::Upsert(serves(model)), self.clock.now());
        self.board.publish(self.clock.now());
    }

    fn facts(&self, model: &str) -> RequestFacts {
        let mut facts = RequestFacts::new();
        (facts.model, facts.arrived) = (Some(model.into()), self.clock.now());
        facts
    }

    async fn occupy(&self, model: &str) -> Lease {
        let place = self.places.place(&self.facts(model), &Tried::default()).await;
        place.unwrap().lease
    }

    fn waiting(&self) -> usize {
        self.places.waiting().iter().map(|waits| waits.waiting).sum()
    }

    fn open(&self) -> u32 {
        let snapshot = self.board.published().load_full();
        let rows = UpstreamStatus::all(&snapshot, self.clock.now());
        rows.iter().map(|row| row.open_weight).sum()
    }
}

fn rules(patience: Duration) -> ModelRules {
    let mut rule = ModelRule::default().or_else(MODELS[1..].iter().copied());
    rule.patience = Some(patience);
    ModelRules::new([(MODELS[0], rule)]).unwrap()
}

/// How a model is: nobody has it, or somebody who is busy until then. 0: he is idle.
type State = Option<u64>;

/// What comes of a request: the model that serves it and when, or which was refused, why and when.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Served(&'static str, u64),
    Refused(&'static str, &'static str, u64),
}

/// What has to come of it. All times are in seconds.
fn expected(states: [State; 3], patience: u64) -> End {
    let (mut now, max_wait) = (0, MAX_WAIT.as_secs());
    for (at, state) in states.iter().enumerate() {
        let Some(until) = state else { continue };
        let last = at + 1 == states.len();
        let end = if last {
            max_wait
        } else {
            (now + patience).min(max_wait)
        };
        if *until <= end {
            return End::Served(MODELS[at], now.max(*until));
        }
        now = end;
    }
    let busy = states.iter().rposition(Option::is_some);
    let Some(last) = busy else {
        return End::Refused(MODELS[0], "model_not_found", 0);
    };
    match states[last] {
        Some(until) if until <= max_wait => End::Served(MODELS[last], now.max(until)),
        _ => {
            let first = states.iter().position(Option::is_some).unwrap_or(last);
            End::Refused(MODELS[first], "slots_busy", max_wait)
        }
    }
}

async fn actual(states: [State; 3], patience: u64) -> End {
    let there = MODELS
        .into_iter()
        .zip(states)
        .filter(|(_, state)| state.is_some());
    let world = World::new(there.map(|(model, _)| model).chain(["other"]), 9);
    let began = Instant::now();
    for (model, state) in MODELS.into_iter().zip(states) {
        if let Some(until @ 1..) = state {
            let lease = world.occupy(model).await;
            tokio::spawn(async move {
                sleep_until(began + Duration::from_secs(until)).await;
                lease.complete();
            });
        }
    }
    let facts = world.facts(MODELS[0]);
    let rules = rules(Duration::from_secs(patience));
    let mut chain = Chain::of(&facts, &rules, world.clock);
    let result = chain.place(&world.places, &Tried::default(), world.clock).await;
    let name = |model: Option<&Arc<str>>| {
        MODELS
            .into_iter()
            .find(|name| Some(*name) == model.map(|model| &**model))
    };
    let (model, now) = (
        name(chain.facts().model.as_ref()).unwrap(),
        began.elapsed().as_secs(),
    );
    assert_eq!(world.waiting(), 0);
    match result {
        Ok(place) => {
            assert_eq!(place.lease.upstream().as_str(), model);
            assert_eq!(chain.facts().instead_of.is_some(), model != MODELS[0]);
            End::Served(model, now)
        }
        Err(no_place) => {
            let reason = match no_place.unwrap().ending().reason.as_str() {
                "model_not_found" => "model_not_found",
                "slots_busy" => "slots_busy",
                other => panic!("{other}"),
            };
            End::Refused(model, reason, now)
        }
    }
}

fn state() -> impl Strategy<Value = State> {
    // Never at the very moment at which somebody's patience ends.
    prop_oneof![
        Just(None),
        Just(Some(0)),
        (0u64..20).prop_map(|half| Some(2 * half + 1))
    ]
}

proptest! {
    #[test]
    fn a_request_is_served_by_the_first_in_time(states in [state(), state(), state()], patience in 0u64..9) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let actual = runtime.block_on(actual(states, 2 * patience));
        prop_assert_eq!(actual, expected(states, 2 * patience));
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_is_out_of_the_queue_wherever_the_chain_is() {
    let world = World::new(MODELS, 9);
    let mut held = Vec::new();
    for model in MODELS {
        held.push(world.occupy(model).await);
    }
    let rules = rules(Duration::from_secs(5));
    for seconds in [1, 6, 11] {
        let facts = world.facts(MODELS[0]);
        let mut chain = Chain::of(&facts, &rules, world.clock);
        {
            let (tried, clock) = (Tried::default(), world.clock);
            let place = chain.place(&world.places, &tried, clock);
            assert!(timeout(Duration::from_secs(seconds), place).await.is_err());
        }
        assert_eq!((world.waiting(), world.open()), (0, 3), "after {seconds} s");
        let at = usize::try_from(seconds / 5).unwrap();
        assert_eq!(chain.facts().model.as_deref(), Some(MODELS[at]));
    }
    drop(held);
    // And a place that was handed to somebody who has left is free again.
    let held = world.occupy(MODELS[0]).await;
    let facts = world.facts(MODELS[0]);
    let (mut chain, tried) = (Chain::of(&facts, &rules, world.clock), Tried::default());
    {
        let mut place = pin!(chain.place(&world.places, &tried, world.clock));
        let polled = std::future::poll_fn(|cx| Poll::Ready(place.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        held.complete();
        tokio::task::yield_now().await;
        assert_eq!((world.waiting(), world.open()), (0, 1));
    }
    assert_eq!(world.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_could_serve_now_is_not_waited_for() {
    // Nobody may wait; he who has it was tried; nobody has it any more.
    let world = World::new(MODELS, 0);
    let _held = world.occupy(MODELS[0]).await;
    let rules = rules(Duration::from_secs(3_600));
    let began = Instant::now();
    let facts = world.facts(MODELS[0]);
    let mut chain = Chain::of(&facts, &rules, world.clock);
    let mut tried = Tried::default();
    tried.add(UpstreamId::new(MODELS[1]).unwrap(), world.clock.now(), None);
    let place = chain.place(&world.places, &tried, world.clock).await.unwrap();
    assert_eq!(place.lease.upstream().as_str(), MODELS[2]);
    assert_eq!(
        chain.besides().as_deref(),
        Some(r#""big" (slots_busy), "small" (unhealthy)"#)
    );
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn whoever_serves_instead_has_the_model_though_the_tree_looks_at_none() {
    let world = World::by(trees::balancer(), [MODELS[0], MODELS[1]], 9);
    let (first, second) = (world.occupy(MODELS[0]).await, world.occupy(MODELS[0]).await);
    let (big, small) = if first.upstream().as_str() == MODELS[0] {
        (first, second)
    } else {
        (second, first)
    };
    let (facts, rules) = (world.facts(MODELS[0]), rules(Duration::from_secs(5)));
    let mut chain = Chain::of(&facts, &rules, world.clock);
    {
        // After 5 s it is served by whoever has the other model alone.
        let (tried, clock) = (Tried::default(), world.clock);
        let mut place = pin!(chain.place(&world.places, &tried, clock));
        assert!(timeout(Duration::from_secs(6), &mut place).await.is_err());
        big.complete();
        assert!(timeout(Duration::from_secs(1), &mut place).await.is_err());
        small.complete();
        let place = timeout(Duration::from_secs(1), place).await.unwrap().unwrap();
        assert_eq!(place.lease.upstream().as_str(), MODELS[1]);
    }
    let passed = chain.passed_over();
    assert_eq!(
        (passed.len(), &*passed[0].model, &*passed[0].reason),
        (1, MODELS[0], "slots_busy")
    );
}

#[tokio::test(start_paused = true)]
async fn who_can_go_elsewhere_sends_nobody_away_who_waits() {
    let world = World::new(MODELS, 2);
    let _held = world.occupy(MODELS[0]).await;
    let waits = |_| {
        let (places, mut facts) = (world.places.clone(), world.facts(MODELS[0]));
        facts.tenant = Some("a".into());
        tokio::spawn(async move { places.place(&facts, &Tried::default()).await.map(drop) })
    };
    let waiting: Vec<_> = (0..2).map(waits).collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    for patience in [Duration::ZERO, Duration::from_secs(1)] {
        let mut facts = world.facts(MODELS[0]);
        facts.tenant = Some("b".into());
        let rules = rules(patience);
        let mut chain = Chain::of(&facts, &rules, world.clock);
        let place = chain.place(&world.places, &Tried::default(), world.clock).await;
        assert_eq!(place.unwrap().lease.upstream().as_str(), MODELS[1]);
        assert!(waiting.iter().all(|waits| !waits.is_finished()) && world.waiting() == 2);
    }
}

#[tokio::test(start_paused = true)]
async fn where_all_are_gone_it_waits_for_its_own_to_come_back() {
    let mut world = World::new(MODELS, 9);
    for model in MODELS {
        world.board.set_draining(model, true);
    }
    world.board.publish(world.clock.now());
    let facts = world.facts(MODELS[0]);
    let rules = rules(Duration::from_secs(5));
    let (mut chain, tried) = (Chain::of(&facts, &rules, world.clock), Tried::default());
    let places = world.places.clone();
    let clock = world.clock;
    let mut place = pin!(chain.place(&places, &tried, clock));
    assert!(
        timeout(Duration::from_secs(1), place.as_mut()).await.is_err(),
        "they may come back"
    );
    world.board.set_draining(MODELS[0], false);
    world.board.publish(clock.now());
    let place = timeout(MAX_WAIT, place).await.unwrap().unwrap();
    assert_eq!(place.lease.upstream().as_str(), MODELS[0]);
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_while_nobody_is_there_serves_what_he_can() {
    let mut world = World::new([], 9);
    let facts = world.facts(MODELS[0]);
    let rules = rules(Duration::from_secs(5));
    let (places, clock, tried) = (world.places.clone(), world.clock, Tried::default());
    let mut chain = Chain::of(&facts, &rules, clock);
    {
        let mut place = pin!(chain.place(&places, &tried, clock));
        assert!(
            timeout(Duration::from_secs(1), place.as_mut()).await.is_err(),
            "its own may come"
        );
        world.joins(MODELS[2]);
        let place = timeout(MAX_WAIT, place).await.unwrap().unwrap();
        assert_eq!(place.lease.upstream().as_str(), MODELS[2]);
    }
    assert_eq!(chain.facts().instead_of.as_deref(), Some(MODELS[0]));
    assert_eq!(world.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn attempts_in_vain_lead_on_and_come_to_an_end() {
    let world = World::new(MODELS, 9);
    let facts = world.facts(MODELS[0]);
    let rules = rules(Duration::from_secs(5));
    let mut chain = Chain::of(&facts, &rules, world.clock);
    let mut seen = Vec::new();
    loop {
        let place = chain
            .place(&world.places, &Tried::default(), world.clock)
            .await
            .unwrap();
        seen.push(place.lease.upstream().to_string());
        if !chain.give_up(world.clock.now()) {
            break;
        }
    }
    assert_eq!(seen, MODELS, "each once");
    let alone = world.facts("small");
    assert!(!Chain::alone(&alone).give_up(world.clock.now()));
}
