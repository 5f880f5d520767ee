//! How does a host that sends its requests itself get a place for one?
//!
//! By the same queue and in the same order as what the router forwards: only the sending is the host's.

use std::sync::Arc;

use super::fallback::Chain;
use super::no_place::Circumstances;
use super::refusal::Refusal;
use super::router::Router;
use super::waiting::{NoPlace, Owed};
use crate::queue::{Charge, Tried, Used};
use crate::request::RequestFacts;
use crate::upstream::{Lease, UpstreamId, UpstreamSpec};

/// A place for a request that the host sends itself.
#[derive(Debug)]
#[must_use = "dropped, the place is given back"]
#[non_exhaustive]
pub struct Acquired {
    /// The right to send it there. The host tells it how far the request has come, and how it went.
    pub lease: Lease,
    /// Where that is, as it was when the place was found.
    pub spec: Arc<UpstreamSpec>,
    /// Who comes next, the best first: as many as
    /// [`RouterOptions::alternatives`](super::RouterOptions::alternatives) says, or as there are.
    pub alternatives: Vec<UpstreamId>,
    /// What its tenant was charged, if it had to wait: for [`Router::charge_used`], once it is known what was used. Without
    /// that it stays as it was estimated.
    pub charge: Option<Charge>,
}

impl Router {
    /// A place for a request that the host sends itself: at once, or after waiting in turn with all others, until the limit
    /// of the queue or the deadline of the facts. Dropped, the future leaves the queue. The [`StatusLoop`] that publishes
    /// has to run.
    ///
    /// `facts.arrived` is a moment of the router's clock, and `facts.model` is the model that is meant: where names stand for others,
    /// [`ModelRules::resolve`](crate::request::ModelRules::resolve) comes first. Who was tried before, and may not be asked again, is in `tried`.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paddler_core::Clock;
    /// use paddler_core::forward::{Router, RouterOptions};
    /// use paddler_core::queue::Tried;
    /// use paddler_core::request::{Facts, RequestFacts};
    /// use paddler_core::schedule::trees;
    /// use paddler_core::status::{StatusBoard, StatusEvent, StatusLoop};
    /// use paddler_core::upstream::{UpstreamSpec, http::HttpConnect};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (clock, board) = (Clock::new(), StatusBoard::new(trees::balancer()));
    /// let statuses = StatusLoop::start(board, vec![], Arc::new(HttpConnect::default()), None, clock);
    /// let only_one = UpstreamSpec::new("gpu-1", "http://127.0.0.1:8080")?.max_in_flight(1);
    /// statuses.apply(StatusEvent::Upsert(only_one)).await?;
    /// let router = Router::new(statuses.published(), clock, RouterOptions::default());
    ///
    /// let facts = || RequestFacts::from(Facts::new().arrived(clock.now()));
    /// let first = router.acquire(&facts(), &Tried::default()).await.unwrap();
    /// let (waits, facts) = (router.clone(), facts());
    /// let second = tokio::spawn(async move { waits.acquire(&facts, &Tried::default()).await });
    /// // ... send the first; its answer has come to its end:
    /// first.lease.complete();
    /// assert_eq!(second.await?.unwrap().lease.upstream().as_str(), "gpu-1");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// What the client is to be told: nobody can serve it, or nobody had room in time.
    ///
    /// [`StatusLoop`]: crate::status::StatusLoop
    pub async fn acquire(&self, facts: &RequestFacts, tried: &Tried) -> Result<Acquired, Refusal> {
        self.acquire_along(&mut Chain::alone(facts), tried).await
    }

    /// The same, and where the model has no place, one of those that serve it [otherwise](crate::request::Fallback) by the rules of
    /// the options. `facts` then asks for that model: what the host sends has to, too. Who is to go nowhere else, since he builds on
    /// what was kept somewhere, is for [`acquire`](Self::acquire).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use paddler_core::Clock;
    /// use paddler_core::forward::{Router, RouterOptions};
    /// use paddler_core::queue::Tried;
    /// use paddler_core::request::{Facts, ModelRule, ModelRules, RequestFacts};
    /// use paddler_core::schedule::trees;
    /// use paddler_core::status::{StatusBoard, StatusEvent, StatusLoop};
    /// use paddler_core::upstream::{ModelEntry, Models, UpstreamSpec, http::HttpConnect};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (clock, board) = (Clock::new(), StatusBoard::new(trees::gateway()));
    /// let statuses = StatusLoop::start(board, vec![], Arc::new(HttpConnect::default()), None, clock);
    /// let small = UpstreamSpec::new("gpu-1", "http://127.0.0.1:8080")?;
    /// let small = small.models(Models::Listed(vec![ModelEntry::new("small")]));
    /// statuses.apply(StatusEvent::Upsert(small)).await?;
    /// let mut options = RouterOptions::default();
    /// options.models = Arc::new(ModelRules::new([("big", ModelRule::default().or_else(["small"]))]).unwrap());
    /// let router = Router::new(statuses.published(), clock, options);
    ///
    /// let mut facts = RequestFacts::from(Facts::new().model("big").arrived(clock.now()));
    /// let acquired = router.acquire_or_fallback(&mut facts, &Tried::default()).await.unwrap();
    /// assert_eq!(acquired.lease.upstream().as_str(), "gpu-1");
    /// assert_eq!((facts.model.as_deref(), facts.instead_of.as_deref()), (Some("small"), Some("big")));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), of its own model; the message says what else was asked for.
    pub async fn acquire_or_fallback(
        &self,
        facts: &mut RequestFacts,
        tried: &Tried,
    ) -> Result<Acquired, Refusal> {
        let (own, options) = (facts.clone(), self.options_in_force());
        let mut chain = Chain::of(&own, &options.models, self.clock());
        let acquired = self.acquire_along(&mut chain, tried).await?;
        *facts = chain.facts().clone();
        facts.patience = own.patience;
        Ok(acquired)
    }

    async fn acquire_along(&self, chain: &mut Chain<'_>, tried: &Tried) -> Result<Acquired, Refusal> {
        let (places, options) = (self.places(), self.options_in_force());
        let no_place = match chain.place(places, tried, self.clock()).await {
            Ok(place) => {
                return Ok(Acquired {
                    lease: place.lease,
                    spec: place.spec,
                    alternatives: place.alternatives,
                    charge: place.owed.map(Owed::into_charge),
                });
            }
            Err(no_place) => no_place.unwrap_or_else(NoPlace::in_vain),
        };
        Err(chain.refusal(
            no_place,
            &Circumstances {
                places,
                models: &options.models,
                published: self.published(),
                now: self.clock().now(),
                retry_after: options.retry_after,
                facts: chain.facts(),
                client: None,
            },
        ))
    }

    /// What an [`acquired`](Self::acquire) request has used in the end is known now, so that its tenant is charged for that
    /// and no more.
    pub fn charge_used(&self, charge: Charge, used: Used) {
        self.places().settle(charge, used);
    }
}
