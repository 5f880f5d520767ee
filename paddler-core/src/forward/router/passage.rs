//! How does one request go from end to end?
//!
//! Its head is judged before its body is read; body and head together say what is asked for; that and who asks say whether
//! he may. Then it is made into what upstreams get, and sent until one of them answers.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT_ENCODING, HOST};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};
use tokio::time::Instant;
use tracing::Span;

use super::{Inner, Router};
use crate::config::{Forwarded, NameUpstream, Traceparent};
use crate::forward::accept::{OverTls, Peer};
use crate::forward::admission::{admit, check_body};
use crate::forward::asked::{Standing, Times};
use crate::forward::attempt::{Answered, Outgoing};
use crate::forward::body::Body;
use crate::forward::fallback::Chain;
use crate::forward::forwarded::Hop;
use crate::forward::headers::{Kinds, announces_body, for_upstream, strip_hop_by_hop, takes_trailers};
use crate::forward::held::Held;
use crate::forward::intake::{self, Intake};
use crate::forward::local;
use crate::forward::metered::Bill;
use crate::forward::options::RouterOptions;
use crate::forward::owners;
use crate::forward::peer::Origin;
use crate::forward::permit;
use crate::forward::refusal::Refusal;
use crate::forward::relay::{self, Relay};
use crate::forward::renamed::renamed;
use crate::forward::rewrite::{self, Naming};
use crate::forward::rights::{Client, InUse};
use crate::forward::sending::{Means, Outcome, Sending};
use crate::forward::shown::Shown;
use crate::forward::story::Story;
use crate::forward::timeouts::Allowed;
use crate::forward::trace::{self, REQUEST_ID};
use crate::forward::upgrade;
use crate::forward::waiting::Owed;
use crate::observe::{End, InFlight, Metrics, Trail};
use crate::request::path::{PathError, normalise};
use crate::request::{Dialect, RequestClass, RequestFacts, Route, Scanned, model_in};
use crate::schedule::Detail;
use crate::upstream::http::spare;
use crate::upstream::{Carried, Dispatch, Only, UpstreamId};

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

/// The head of a request that goes to an upstream, judged, and without what is about the client's connection.
struct Head<'a> {
    parts: &'a mut Parts,
    kinds: Kinds,
    /// The host that it was asked in absolute form.
    authority: Option<Authority>,
    uri: Uri,
    origin: Origin,
    times: Times,
    standing: Standing,
    websocket: Option<upgrade::Asked>,
    /// What the client uses of his allowance.
    in_use: Option<InUse>,
    announces_body: bool,
    takes_trailers: bool,
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
        let names = (&*options.models, client.as_deref());
        if route.class == RequestClass::Local {
            let known = local::Basis {
                snapshot: &inner.published.load(),
                stopping: inner.is_stopping(),
                rules: names.0,
                client: names.1,
                name: inner.via.name(),
                places: &inner.places,
            };
            return local::answer(path, &known);
        }
        if let Some(answer) = local::alias(path, route, &inner.published, names) {
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
            client: client.as_deref(),
        };
        // What is needed no more once it is read takes no room while it is sent.
        let ready = {
            let head = passage.head(came.parts, came.peer)?;
            let budget = inner.budget.clone();
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
    /// Judges what can be judged before the body is read, and takes out what is for us.
    fn head<'p>(&self, parts: &'p mut Parts, peer: Option<Peer>) -> Result<Head<'p>, Refusal> {
        let (inner, options) = (self.inner, self.options);
        let kinds = Kinds::of(&parts.headers);
        if kinds.has(Kinds::VIA) {
            inner.via.check(&parts.headers)?;
        }
        let of_connection = kinds.has(Kinds::HOP_BY_HOP);
        let websocket = match of_connection {
            true => upgrade::Asked::by(parts, options.websockets)?,
            false => None,
        };
        let in_use = self
            .client
            .map(|client| permit::begin(client, options, inner.clock.now()))
            .transpose()?;
        let (authority, uri) = upstream_uri(self.path, std::mem::take(&mut parts.uri))?;
        let announces_body = announces_body(&parts.headers);
        let takes_trailers = of_connection && takes_trailers(&parts.headers);
        if of_connection {
            strip_hop_by_hop(&mut parts.headers, &[]);
        }
        let origin = Origin::of(peer, &options.trusted_peers);
        let (mut times, mut standing) = (Times::default(), Standing::default());
        if kinds.has(Kinds::OURS) {
            let may_ask = self.client.is_some_and(|client| client.explain);
            times = Times::read(&parts.headers)?;
            standing = Standing::take(&mut parts.headers, origin.trusted, may_ask)?;
        }
        Ok(Head {
            parts,
            kinds,
            authority,
            uri,
            origin,
            times,
            standing,
            websocket,
            in_use,
            announces_body,
            takes_trailers,
        })
    }

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
        let mut rewritten = false;
        if let Some(model) = &facts.model {
            head.uri = naming.in_uri(head.uri, model)?;
            rewritten = naming.ask_for(model, &mut intake.held)?;
        }
        let (websocket, in_use) = (head.websocket.take(), head.in_use.take());
        let mut outgoing = self.outgoing(head, intake.held, allowed, (&arrival.id, websocket.is_some()))?;
        (outgoing.naming, outgoing.model) = (naming, facts.model.clone());
        if let Some((_, dispatch)) = &mut outgoing.carried {
            (dispatch.model, dispatch.rewritten) = (facts.model.clone(), rewritten);
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

    /// What is asked for, by whom, and how long it may take.
    fn facts(
        &self,
        head: &Head<'_>,
        intake: &Intake,
        began: Instant,
    ) -> Result<(RequestFacts, Allowed), Refusal> {
        let Self { inner, options, .. } = *self;
        let (now, seed) = (inner.clock.now(), inner.places.next_seed());
        let mut facts = match &intake.scanned {
            None => RequestFacts::from_route(self.route, intake.held.bytes(), now, seed),
            Some(scanned) => RequestFacts::from_scan(self.route, scanned, now, seed)
                .map_err(|error| Refusal::new(StatusCode::NOT_FOUND, "model_not_found", error.to_string()))?,
        };
        facts = facts.named_in(self.path, self.route);
        if head.websocket.is_some() {
            // It is room that is taken for as long as it is open, whatever its path is good for otherwise.
            facts.weight = facts.weight.max(1);
            facts.model = facts.model.or_else(|| upgrade::model(head.uri.query()));
            facts.replayable = false;
        }
        if let Some(client) = self.client {
            client.annotate(&mut facts);
        }
        options.models.resolve(&mut facts);
        let settings = options.models.settings(&facts);
        let allowed = Allowed::new(&options.timeouts, settings.timeouts, head.times, began);
        // How long anybody waits is for the queue to say. A client may want less, and what is left of the whole counts.
        let left = allowed
            .ends
            .map(|ends| ends.saturating_duration_since(Instant::now()));
        let wait = [head.times.max_wait, settings.max_wait, left]
            .into_iter()
            .flatten()
            .min();
        facts.deadline = wait.map(|wait| now.saturating_add(wait));
        // Whoever is trusted to say so knows better.
        facts.priority = head.standing.priority.unwrap_or(facts.priority);
        if let Some(tenant) = head.standing.tenant.clone() {
            // The weight of a gateway's own key is not that of each tenant behind it.
            (facts.tenant, facts.tenant_weight) = (Some(tenant), 1);
        }
        let only = head.parts.extensions.get().map(|Only(ids)| ids.clone());
        let owner = only.is_none().then(|| self.owner(intake)).flatten();
        (facts.only, facts.to_keeper) = (only.or_else(|| owner.clone()), owner.is_some());
        if let Some(host) = &options.annotate {
            host.annotate(&head.parts.headers, &mut facts);
            // Where a host sends it instead is for nobody to keep.
            facts.to_keeper &= facts.only == owner;
        }
        Ok((facts, allowed))
    }

    /// Who keeps what it refers to, in its path or in its body: nobody else could answer. Who has left or cannot be reached
    /// keeps nothing: others say so at once.
    fn owner(&self, intake: &Intake) -> Option<Arc<[UpstreamId]>> {
        let by_body = || intake.scanned.as_ref()?.refers.as_deref();
        let id = owners::in_path(self.path).or_else(by_body)?;
        let owner = self.inner.owners.of(id)?;
        let snapshot = self.inner.published.load();
        let is_there = snapshot
            .find(owner.as_str())
            .is_some_and(|entry| !entry.is_unreachable());
        is_there.then(|| [owner].into())
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
        let (rules, now) = (&self.options.models, self.inner.clock.now());
        match (can_change, stays) {
            (true, false) => Chain::of(facts, rules, now),
            (true, true) if facts.only.is_some() => Chain::bound(facts, rules, now),
            _ => Chain::alone(facts),
        }
    }

    /// Whether it is bound to what a request before has left, which no other model knows.
    fn stays(&self, intake: &Intake) -> bool {
        let by_body = |scanned: &Scanned| scanned.builds_on_kept;
        intake.scanned.as_ref().is_some_and(by_body) || owners::in_path(self.path).is_some()
    }

    /// The name that answers are to have, where that is not the engine's.
    fn rename(&self, headers: &mut HeaderMap, chain: &Chain<'_>) -> Option<Arc<str>> {
        let facts = chain.facts();
        let settings = self.options.models.settings(facts);
        let own = facts.model.as_ref().filter(|_| chain.has_others());
        let name = facts.asked.as_ref().or(own).cloned();
        let name = name.filter(|_| settings.rewrite_response == Some(true))?;
        // It can be put into what can be read.
        let plain = HeaderValue::from_static("identity");
        headers.insert(ACCEPT_ENCODING, plain);
        Some(name)
    }

    /// The request as upstreams get it.
    fn outgoing(
        &self,
        mut head: Head<'_>,
        held: Held,
        allowed: Allowed,
        (id, websocket): (&HeaderValue, bool),
    ) -> Result<Outgoing, Refusal> {
        let carried = head.parts.extensions.remove::<Carried>();
        let bytes = held.bytes();
        if bytes > 0 {
            check_body(self.method)?;
        }
        self.say_whence(&mut head, id);
        let parts = head.parts;
        // Nobody reads what its server or its host has put there any more, and it may be on its way for long.
        drop(std::mem::take(&mut parts.extensions));
        let body = (head.announces_body || bytes > 0).then_some(bytes);
        let own_keys = self.options.keys.is_some();
        // A connection that becomes a WebSocket has no answer with trailers.
        let trailers = head.takes_trailers && !websocket;
        for_upstream(&mut parts.headers, body, own_keys, trailers);
        Ok(Outgoing {
            method: self.method.clone(),
            uri: head.uri,
            headers: std::mem::take(&mut parts.headers),
            held,
            allowed,
            websocket,
            carried: carried.map(|carried| (carried, Dispatch::default())),
            naming: Naming::default(),
            model: None,
        })
    }

    /// Tells the upstream which request it is, and where it comes from.
    fn say_whence(&self, head: &mut Head<'_>, id: &HeaderValue) {
        let Inner { via, places, .. } = self.inner;
        let forwarding = &self.options.forwarding;
        let Parts {
            headers,
            extensions,
            version,
            ..
        } = &mut *head.parts;
        if forwarding.forwarded != Forwarded::Off || head.kinds.has(Kinds::CLAIM) {
            let asked_by = headers.get(HOST).cloned();
            let asked_by = asked_by.as_ref().and_then(|host| host.to_str().ok());
            let over_tls = extensions.get::<OverTls>().is_some();
            let hop = Hop {
                from: head.origin,
                host: head.authority.as_ref().map(Authority::as_str).or(asked_by),
                scheme: if over_tls { "https" } else { "http" },
            };
            hop.say(headers, forwarding.forwarded);
        }
        via.say(headers, *version);
        headers.insert(REQUEST_ID, id.clone());
        if forwarding.traceparent == Traceparent::Make || head.kinds.has(Kinds::TRACE) {
            trace::settle_trace(headers, forwarding.traceparent, || places.next_seed());
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

    fn tunnel(
        &self,
        answered: Answered,
        asked: Option<upgrade::Asked>,
        in_use: Option<InUse>,
        arrival: &mut Arrival,
    ) -> Response<Body> {
        let Answered { response, lease, .. } = answered;
        let idle: Duration = self.options.timeouts.tunnel_idle;
        let tunnel = upgrade::Tunnel {
            lease,
            idle,
            metrics: self.inner.metrics.clone(),
            in_flight: arrival.hand_over(),
            story: arrival.tell(StatusCode::SWITCHING_PROTOCOLS),
            _in_use: in_use,
        };
        match asked {
            Some(asked) => asked.tunnel(response, tunnel),
            None => response,
        }
    }

    fn relay(
        &self,
        (answered, rename): (Answered, Option<Arc<str>>),
        owed: Option<Owed>,
        in_use: Option<InUse>,
        arrival: &mut Arrival,
    ) -> Response<Body> {
        let Answered {
            response,
            lease,
            sent,
            stages,
            hurried,
        } = answered;
        let (mut head, mut body) = response.into_parts();
        if let Some(name) = rename {
            let key = match self.route.dialect {
                Dialect::Triton => "model_name",
                _ => "model",
            };
            body = renamed(body, &mut head.headers, (key, &name));
        }
        let asked = (self.method, self.path);
        let told = (head.status.is_success(), &head.headers);
        let request = relay::Request {
            learner: self.inner.owners.learn(asked, told),
            lease,
            bill: Bill {
                place: owed,
                client: in_use,
                clock: self.inner.clock,
                wrong: head.status.is_client_error(),
            },
            sent,
            stages,
            hurried,
            span: arrival.span.clone(),
            dialect: self.route.dialect,
            story: arrival.tell(head.status),
            metrics: self.inner.metrics.clone(),
            in_flight: arrival.hand_over(),
        };
        let relay = Relay::new(body, &head.headers, request);
        Response::from_parts(head, relay.into_body(self.at_once))
    }
}

/// What a request uses is read from its answer, which has to be readable.
fn ask_plain(headers: &mut HeaderMap) {
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
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

/// The host that was asked in absolute form; and the path in the form in which it was judged, with the query as it came.
fn upstream_uri(path: &str, uri: Uri) -> Result<(Option<Authority>, Uri), Refusal> {
    let parts = uri.into_parts();
    let query = match parts.path_and_query {
        Some(as_it_came) if as_it_came.path() == path => return Ok((parts.authority, as_it_came.into())),
        other => other,
    };
    let query = query.as_ref().and_then(PathAndQuery::query);
    let text = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let parsed = text.parse::<PathAndQuery>().map(Uri::from);
    let parsed = parsed
        .map_err(|error| Refusal::bad_request("bad_path", format!("the path cannot be sent on: {error}")))?;
    Ok((parts.authority, parsed))
}
