//! Does a host that sends its requests itself get its places from the same queue?

use std::time::Duration;

use paddler_core::forward::{Acquired, Refusal, Router};
use paddler_core::queue::{Tried, Used};
use paddler_core::request::{Facts, RequestFacts};
use paddler_core::upstream::{ModelEntry, Models, UpstreamId, UpstreamSpec};
use paddler_core::{Clock, Moment};
use tokio::task::JoinHandle;

use super::client::{HANG, eventually};
use super::world::{Setup, World, spec};

struct Host {
    world: World,
    /// The router's own clock began a moment before this one, so that nobody has arrived in its future.
    clock: Clock,
}

impl Host {
    async fn with(upstreams: impl IntoIterator<Item = UpstreamSpec>) -> Self {
        let world = Setup::new().queue(2, HANG).start(upstreams).await;
        Self {
            world,
            clock: Clock::new(),
        }
    }

    fn facts(&self, model: &str) -> RequestFacts {
        Facts::new().model(model).arrived(self.clock.now()).into()
    }

    fn ask(&self, facts: RequestFacts) -> JoinHandle<Result<Acquired, Refusal>> {
        let router: Router = self.world.router.clone();
        tokio::spawn(async move { router.acquire(&facts, &Tried::default()).await })
    }

    async fn get(&self) -> Acquired {
        self.ask(self.facts("m")).await.unwrap().unwrap()
    }

    /// Asks, and stands in the queue.
    async fn wait(&self) -> JoinHandle<Result<Acquired, Refusal>> {
        let before = self.world.waiting();
        let asked = self.ask(self.facts("m"));
        eventually("it waits", || self.world.waiting() == before + 1).await;
        asked
    }
}

fn one_place(id: &str) -> UpstreamSpec {
    spec(id, "http://127.0.0.1:1").max_in_flight(1)
}

#[tokio::test]
async fn a_place_that_is_given_back_goes_to_who_waits() {
    let host = Host::with([one_place("a")]).await;
    let first = host.get().await;
    assert_eq!(
        (first.lease.upstream(), &*first.spec.url),
        (&first.spec.id, "http://127.0.0.1:1")
    );
    let waits = host.wait().await;
    first.lease.complete();
    let second = waits.await.unwrap().unwrap();
    let charge = second.charge.expect("who has waited was charged");
    host.world.router.charge_used(charge, Used::Nothing);
    second.lease.complete();
    host.world.quiet().await;
}

#[tokio::test]
async fn who_gives_up_is_out_of_the_queue_and_who_has_no_time_left_is_told_why() {
    let host = Host::with([one_place("a")]).await;
    let first = host.get().await;
    let gives_up = host.wait().await;
    gives_up.abort();
    eventually("nobody waits", || host.world.waiting() == 0).await;

    let mut hurried = host.facts("m");
    hurried.deadline = Some(hurried.arrived.saturating_add(Duration::from_millis(20)));
    let refusal = host.ask(hurried).await.unwrap().unwrap_err();
    assert_eq!((refusal.status.as_u16(), &*refusal.reason), (429, "slots_busy"));
    assert!(refusal.message.contains("after waiting"), "{}", refusal.message);
    assert!(refusal.retry_after.is_some());
    drop(first);
    host.world.quiet().await;
}

#[tokio::test]
async fn a_full_queue_says_so() {
    let host = Host::with([one_place("a")]).await;
    let _first = host.get().await;
    let _waiting = (host.wait().await, host.wait().await);
    let refusal = host.ask(host.facts("m")).await.unwrap().unwrap_err();
    assert_eq!((refusal.status.as_u16(), &*refusal.reason), (429, "queue_full"));
}

#[tokio::test]
async fn a_name_that_nobody_knows_is_answered_with_those_that_are_known() {
    let models = Models::Listed(vec![ModelEntry::new("small"), ModelEntry::new("large")]);
    let host = Host::with([one_place("a").models(models)]).await;
    let refusal = host.ask(host.facts("huge")).await.unwrap().unwrap_err();
    assert_eq!(
        (refusal.status.as_u16(), &*refusal.reason),
        (404, "model_not_found")
    );
    assert!(
        refusal.message.ends_with("known: large, small"),
        "{}",
        refusal.message
    );
}

#[tokio::test]
async fn who_was_tried_and_who_is_not_allowed_get_nothing() {
    let host = Host::with([one_place("a"), one_place("b"), one_place("c")]).await;
    let id = |name: &str| UpstreamId::new(name).unwrap();
    let mut tried = Tried::default();
    tried.add(id("a"), Moment::ZERO, Some(Duration::MAX));
    let mut facts = host.facts("m");
    facts.only = Some([id("a"), id("b")].into());
    let got = host.world.router.acquire(&facts, &tried).await.unwrap();
    assert_eq!(got.lease.upstream().as_str(), "b");
}
