//! How does one request go from end to end?
//!
//! Its head is judged before its body is read; body and head together say what is asked for; that and who asks say whether
//! he may. Then it is made into what upstreams get, and sent until one of them answers.

mod answered;
mod facts;
mod head;
mod outgoing;

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use tokio::time::Instant;
use tracing::Span;

use super::{Inner, Router};
use crate::config::NameUpstream;
use crate::forward::accept::Peer;
use crate::forward::admission::admit;
use crate::forward::attempt::Outgoing;
use crate::forward::body::Body;
use crate::forward::fallback::Chain;
use crate::forward::intake::{self, Intake};
use crate::forward::local;
use crate::forward::options::RouterOptions;
use crate::forward::permit;
use crate::forward::refusal::Refusal;
use crate::forward::rewrite::{self, Naming};
use crate::forward::rights::{Client, InUse};
use crate::forward::sending::{Means, Outcome, Sending};
use crate::forward::shown::Shown;
use crate::forward::story::Story;
use crate::forward::upgrade;
use crate::observe::{End, InFlight, Metrics, Trail};
use crate::request::path::{PathError, normalise};
use crate::request::{RequestClass, RequestFacts, Route, Scanned, model_in};
use crate::schedule::Detail;
use crate::upstream::http::spare;
use head::Head;
use outgoing::ask_plain;

/// A request from its arrival to its answer. Dropped before that, its client has left.
pub(super) struct Arrival {
    pub(super) metrics: Arc<Metrics>,
    pub(super) in_flight: Option<InFlight>,
    pub(super) began: Instant,
    pub(super) id: HeaderValue,
    pub(super) span: Span,
    pub(super) story: Story,
    pub(super) shown: Shown,
}

impl Arrival {
    /// That it is under way is for its answer to say from now on.
    fn hand_over(&mut self) -> InFlight {
        self.in_flight.take().unwrap_or_else(|| self.metrics.arrived())
    }

    /// What becomes of it is for its answer to tell from now on.
    fn tell(&mut self, status: StatusCode) -> Story {
        self.story.status(status.as_u16(), None);
        std::mem::take(&mut self.story)
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if self.in_flight.is_some() {
            self.metrics.cancelled();
        }
    }
}

/// A request as it came.
pub(super) struct Came<'a> {
    pub(super) parts: &'a mut Parts,
    pub(super) peer: Option<Peer>,
    /// Its path as it is judged.
    pub(super) path: &'a str,
    pub(super) route: &'a Route,
    /// It came by our own server, which takes the answer at once.
    pub(super) at_once: bool,
}

/// A request that was read, and is to be sent.
struct Ready {
    facts: RequestFacts,
    outgoing: Outgoing,
    /// It is bound to what a request before has left.
    stays: bool,
    websocket: Option<upgrade::Asked>,
    in_use: Option<InUse>,
}

/// What a request is taken through.
struct Passage<'a> {
    inner: &'a Inner,
    options: &'a RouterOptions,
    method: &'a Method,
    path: &'a str,
    route: &'a Route,
    /// The answer is taken at once.
    at_once: bool,
    /// Who asks, if that is known.
    client: Option<&'a Client>,
}

impl Router {
    /// Takes a request through.
    pub(super) async fn route(
        &self,
        came: Came<'_>,
        body: Body,
        (options, arrival): (&RouterOptions, &mut Arrival),
    ) -> Result<Response<Body>, Refusal> {
        let inner = &*self.0;
        let Came { path, route, .. } = came;
        let client = admit(came.parts, path, route, options)?;
        if let Some(client) = &client {
            arrival.story.client(&client.name);
        }
        let (rules, client) = (&*options.models, client.as_deref());
        if route.class == RequestClass::Local {
            let known = local::Basis {
                snapshot: &inner.published.load(),
                stopping: inner.is_stopping(),
                rules,
                client,
                name: inner.via.name(),
                places: &inner.places,
            };
            return local::answer(path, &known);
        }
        if let Some(answer) = local::alias(path, route, &inner.published, (rules, client)) {
            return answer;
        }
        let method = came.parts.method.clone();
        let passage = Passage {
            inner,
            options,
            method: &method,
            path,
            route,
            at_once: came.at_once,
            client,
        };
        // What is needed no more once it is read takes no room while it is sent.
        let ready = {
            let head = passage.head(came.parts, came.peer)?;
            let budget = inner.budget.clone();
            let body = (body, arrival.began);
            let intake = intake::read(&head.parts.headers, route.body, body, options, budget).await?;
            passage.ready(head, intake, arrival)?
        };
        let Ready {
            facts,
            mut outgoing,
            stays,
            websocket,
            mut in_use,
        } = ready;
        let chain = passage.chain(&facts, outgoing.naming.can_change(), stays);
        let rename = passage.rename(&mut outgoing.headers, &chain);
        let (in_use_now, told) = (in_use.as_mut(), (&mut arrival.story, &mut arrival.shown));
        let mut sending = Sending::new(passage.means(), chain, &mut outgoing, in_use_now, told);
        match sending.run().await? {
            // What its tokens come to is not seen.
            Outcome::Live(answered, _) if answered.response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                Ok(passage.tunnel(answered, websocket, in_use, arrival))
            }
            Outcome::Live(answered, owed) => {
                spare::keep(std::mem::take(&mut outgoing.headers));
                Ok(passage.relay((answered, rename), owed, in_use, arrival))
            }
            Outcome::Kept(response) => {
                arrival.tell(response.status()).end(End::Complete, None);
                Ok(response)
            }
        }
    }
}

impl<'a> Passage<'a> {
    /// Makes of what was read what upstreams get.
    fn ready(&self, mut head: Head<'_>, mut intake: Intake, arrival: &mut Arrival) -> Result<Ready, Refusal> {
        let (mut facts, allowed) = self.facts(&head, &intake, arrival.began)?;
        self.measure(facts.model.as_deref(), &mut head.parts.headers, arrival);
        let told = self.detail(&facts, &head, arrival);
        facts.detail = told;
        arrival.shown = self.shown(&head);
        if arrival.shown.wants_why() {
            facts.detail = facts.detail.max(Detail::Why);
        }
        if let (Some(asked), Some(model), true) = (&facts.asked, &facts.model, head.websocket.is_some()) {
            head.uri = rewrite::in_query(head.uri, asked, model)?;
        }
        self.permit(&mut head, (&facts, intake.scanned.as_ref()))?;
        let Inner { places, .. } = self.inner;
        arrival
            .story
            .trace(&mut head.parts.headers, || places.next_seed());
        let stays = self.stays(&intake);
        let mut naming = intake.scanned.as_mut().map(Naming::take).unwrap_or_default();
        if model_in(self.path).is_some() {
            // Whatever the body has under that name is something else.
            naming = Naming::in_path();
        }
        let (websocket, in_use) = (head.websocket.take(), head.in_use.take());
        let body = (intake.held, naming);
        let mut outgoing = self.outgoing(head, body, allowed, (&arrival.id, websocket.is_some()))?;
        if let Some(model) = &facts.model {
            outgoing.ask_for(model)?;
        }
        arrival.story.traced(&outgoing.headers);
        arrival.story.began(&facts, told);
        Ok(Ready {
            facts,
            outgoing,
            stays,
            websocket,
            in_use,
        })
    }

    /// What the client is shown of where it goes.
    fn shown(&self, head: &Head<'_>) -> Shown {
        let always = self.options.forwarding.name_upstream == NameUpstream::Always;
        Shown::new(head.standing.explain, always)
    }

    /// What asks a model for something counts for that model.
    fn measure(&self, model: Option<&str>, headers: &mut HeaderMap, arrival: &mut Arrival) {
        let Inner {
            metrics, published, ..
        } = self.inner;
        if let RequestClass::Generate(_) = self.route.class {
            let measured = metrics.measure(model, &published.load(), arrival.began);
            arrival.story.measure(measured);
            if arrival.story.reads_usage() {
                ask_plain(headers);
            }
        }
    }

    /// How much of why it gets its place is to be kept.
    fn detail(&self, facts: &RequestFacts, head: &Head<'_>, arrival: &mut Arrival) -> Detail {
        let Arrival { id, began, story, .. } = arrival;
        let begun = || {
            let id = id.to_str().unwrap_or_default();
            let mut trail = Trail::begun(id, self.method.as_str(), "", self.inner.clock.moment(*began));
            trail.asks(self.path, self.route);
            trail.client = self.client.map(|client| client.name.clone());
            trail.address = head.origin.peer.map(|peer| peer.0.ip().to_canonical());
            trail
        };
        story.detail(facts, self.inner.clock, begun)
    }

    /// Whether this client may ask for that, and now.
    fn permit(&self, head: &mut Head<'_>, asked: (&RequestFacts, Option<&Scanned>)) -> Result<(), Refusal> {
        let (Some(client), Some(in_use)) = (self.client, &mut head.in_use) else {
            return Ok(());
        };
        let Inner { published, clock, .. } = self.inner;
        let known = (self.options, &**published.load(), clock.now());
        permit::permit(client, in_use, (self.path, head.uri.query()), asked, known)?;
        if in_use.counts_tokens() {
            ask_plain(&mut head.parts.headers);
        }
        Ok(())
    }

    /// The models that may serve it. What a model is asked about itself, such as for the tokens of a text, no other can answer.
    fn chain<'f>(&self, facts: &'f RequestFacts, can_change: bool, stays: bool) -> Chain<'f> {
        let (rules, clock) = (&self.options.models, self.inner.clock);
        match (can_change, stays) {
            (true, false) => Chain::of(facts, rules, clock),
            (true, true) if facts.only.is_some() => Chain::bound(facts, rules, clock),
            _ => Chain::alone(facts),
        }
    }

    fn means(&self) -> Means<'a> {
        let Inner {
            published,
            clock,
            places,
            retries,
            metrics,
            said_of_keys,
            ..
        } = self.inner;
        Means {
            places,
            retries,
            published,
            clock: *clock,
            options: self.options,
            metrics,
            said_of_keys,
            client: self.client,
        }
    }
}

/// The path that is judged.
pub(super) fn path(uri: &Uri) -> Result<String, PathError> {
    let path = if uri.path().is_empty() { "/" } else { uri.path() };
    // The asterisk of OPTIONS is about the server, not a path.
    if path == "*" {
        Ok("/".to_owned())
    } else {
        normalise(path).map(std::borrow::Cow::into_owned)
    }
}
