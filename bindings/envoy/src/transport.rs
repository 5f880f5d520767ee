//! How does a request get to an upstream that Envoy speaks to?
//!
//! Envoy is told where to go, and gets the request's body back if it has given it away; then the head of the response is
//! waited for. What has no stream of Envoy's, such as the router's own questions, goes over HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use envoy_types::pb::envoy::service::ext_proc::v3::HeaderMutation;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use paddler_core::forward::{Body, BoxError};
use paddler_core::upstream::http::UpstreamKey;
use paddler_core::upstream::{
    CallError, Carried, Connect, Dispatch, Progress, Sent, ServedBy, Upstream, UpstreamId, UpstreamSpec,
};

use crate::addresses::is_same;

use crate::answers::{self, About, Destination, overwrite};
use crate::exchange::{Exchange, Out};
use crate::gateway::{BASE_MODEL, MODEL, SYSTEM_OWNED};
use crate::heads::{ABOUT_THE_BODY, difference};
use crate::modes::RequestBody;

/// Makes of each spec an upstream that Envoy speaks to. What goes there without Envoy, which is polls, goes the way of another
/// [`Connect`], which also says where the upstream listens.
#[derive(Debug, Clone)]
pub struct EnvoyConnect {
    direct: Arc<dyn Connect>,
}

impl EnvoyConnect {
    /// `direct`: how the router itself asks upstreams how they are, such as an
    /// [`HttpConnect`](paddler_core::upstream::http::HttpConnect).
    pub fn new(direct: Arc<dyn Connect>) -> Self {
        Self { direct }
    }
}

impl Connect for EnvoyConnect {
    fn connect(&self, spec: &UpstreamSpec) -> Result<Arc<dyn Upstream>, BoxError> {
        Ok(Arc::new(EnvoyUpstream {
            direct: self.direct.connect(spec)?,
            id: spec.id.clone(),
            key: spec.extensions.get::<UpstreamKey>().cloned(),
        }))
    }
}

/// Marks a response that came from Envoy: any other is the router's own.
#[derive(Debug, Clone)]
pub(crate) struct FromEnvoy {
    /// Its headers as Envoy has them.
    pub(crate) headers: Arc<HeaderMap>,
    /// A body comes after them.
    pub(crate) has_body: bool,
}

/// What rides from the stream to the call.
#[derive(Debug)]
pub(crate) struct Rider(pub(crate) Arc<Exchange>);

#[derive(Debug)]
struct EnvoyUpstream {
    direct: Arc<dyn Upstream>,
    id: UpstreamId,
    key: Option<UpstreamKey>,
}

#[async_trait]
impl Upstream for EnvoyUpstream {
    async fn call(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let carried = request.extensions().get::<Carried>();
        let exchange = carried.and_then(|carried| Some(carried.0.get::<Rider>()?.0.clone()));
        let Some(exchange) = exchange else {
            return self.direct.call(request).await;
        };
        let (mut parts, body) = request.into_parts();
        let progress = parts.extensions.remove::<Progress>().unwrap_or_default();
        progress.set_sending(false);
        let dispatch = parts.extensions.remove::<Dispatch>().unwrap_or_default();
        if dispatch.rewritten && !exchange.modes.request.is_read() {
            let error = "another model is asked for than in the body, which Envoy does not show before";
            return Err(CallError::new(Sent::No, error).into());
        }
        let addresses = self.direct.addresses().await.map_err(CallError::unreachable)?;
        // It may have had another one when it was found to be in the subset.
        let nowhere = || {
            CallError::new(
                Sent::No,
                "none of its addresses is one that the request may go to",
            )
        };
        let address = exchange.choose(addresses).ok_or_else(nowhere)?;
        let endpoints = self.endpoints(address, &dispatch, &exchange);
        let destination = self.destination(&endpoints, &parts, &dispatch, &exchange);
        let Some(head) = exchange.place() else {
            return Err(CallError::new(Sent::Yes, "Envoy is told one place alone").into());
        };
        progress.set_sending(true);
        tell(&exchange, destination, body, &dispatch).await?;
        let Ok(head) = head.await else {
            // Envoy has ended the stream, which is no fault of the upstream's: whoever serves the stream drops all of it.
            return std::future::pending().await;
        };
        let mut response = Response::new(Body::new(head.body));
        *response.status_mut() = head.status;
        let extensions = response.extensions_mut();
        extensions.insert(FromEnvoy {
            headers: Arc::new(head.headers.clone()),
            has_body: head.has_body,
        });
        if let Some(at) = head.served.filter(|at| !is_same(*at, address))
            && let Some(other) = self.who(at, &endpoints, &exchange).await
        {
            extensions.insert(ServedBy(other));
        }
        *response.headers_mut() = head.headers;
        Ok(response)
    }

    fn sends_once(&self) -> bool {
        true
    }

    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.direct.addresses().await
    }
}

/// An address that Envoy is told, and whose it is.
type Endpoint = (UpstreamId, SocketAddr);

impl EnvoyUpstream {
    /// Where to go, and where next.
    fn endpoints(&self, address: SocketAddr, dispatch: &Dispatch, exchange: &Exchange) -> Vec<Endpoint> {
        let mut endpoints = vec![(self.id.clone(), address)];
        for id in &dispatch.alternatives {
            // Whose name leads nowhere is left out, and so is one who stands there already.
            let next = exchange.choose(exchange.listening.known_of(id));
            if let Some(next) = next.filter(|next| endpoints.iter().all(|(_, told)| told != next)) {
                endpoints.push((id.clone(), next));
            }
        }
        endpoints
    }

    /// Whose address this is, if it is somebody else's.
    async fn who(&self, at: SocketAddr, told: &[Endpoint], exchange: &Exchange) -> Option<UpstreamId> {
        if let Some((id, _)) = told.iter().find(|(_, told)| is_same(*told, at)) {
            return Some(id.clone());
        }
        // Who was named as a place is known.
        let all = exchange.listening.at(false, |other| is_same(other, at)).await;
        all.iter()
            .all(|id| *id != self.id)
            .then(|| all.into_iter().next())?
    }

    /// What Envoy is told: addresses, and the headers that the upstream gets.
    fn destination(
        &self,
        endpoints: &[Endpoint],
        parts: &http::request::Parts,
        dispatch: &Dispatch,
        exchange: &Exchange,
    ) -> Destination {
        let endpoints: Vec<_> = endpoints.iter().map(|(_, address)| address.to_string()).collect();
        let mut headers = parts.headers.clone();
        for name in &SYSTEM_OWNED {
            headers.remove(name);
        }
        if let Some(key) = &self.key {
            key.put_into(&mut headers);
        }
        name_model(&mut headers, dispatch, exchange);
        let but: &[HeaderName] = if exchange.modes.request.is_read() {
            &[]
        } else {
            &ABOUT_THE_BODY
        };
        let mut mutation = difference(&exchange.request.headers, &headers, but);
        let target = parts.uri.path_and_query();
        if let Some(target) = target.filter(|target| Some(*target) != exchange.request.uri.path_and_query()) {
            mutation
                .set_headers
                .push(overwrite(":path", target.as_str().as_bytes()));
        }
        Destination {
            endpoints: endpoints.join(","),
            mutation,
            body: None,
        }
    }
}

/// Says in headers which model is asked for: routes may go by it.
fn name_model(headers: &mut HeaderMap, dispatch: &Dispatch, exchange: &Exchange) {
    headers.remove(MODEL);
    headers.remove(BASE_MODEL);
    let Some(model) = &dispatch.model else { return };
    let snapshot = exchange.listening.0.load_full();
    let base = snapshot
        .model(model)
        .and_then(|row| row.parent())
        .unwrap_or(model);
    for (name, model) in [(MODEL, &**model), (BASE_MODEL, base)] {
        if let Ok(value) = HeaderValue::from_str(model) {
            headers.insert(name, value);
        }
    }
}

/// Tells Envoy where to go, and what to take along.
async fn tell(
    exchange: &Exchange,
    mut destination: Destination,
    body: Body,
    dispatch: &Dispatch,
) -> Result<(), BoxError> {
    let Exchange { modes, out, .. } = exchange;
    match modes.request {
        RequestBody::Duplex => {
            length_of(&mut destination.mutation, body.size_hint().exact());
            out.send(destination.answer(false)).await;
            return give(About::Request, body, out).await;
        }
        RequestBody::Whole => {
            if dispatch.rewritten {
                let bytes = body.collect().await?.to_bytes();
                length_of(&mut destination.mutation, Some(bytes.len() as u64));
                destination.body = Some(bytes.into());
            }
            out.send(destination.answer(true)).await;
        }
        RequestBody::Empty | RequestBody::Late | RequestBody::Hidden => {
            out.send(destination.answer(false)).await;
        }
    }
    Ok(())
}

/// Envoy forgets the length of a body that goes both ways, unless it is let to keep it (`allow_content_length_header`), and not
/// every engine reads one in chunks.
fn length_of(mutation: &mut HeaderMutation, length: Option<u64>) {
    if let Some(length) = length {
        let value = HeaderValue::from(length);
        mutation
            .set_headers
            .push(overwrite(CONTENT_LENGTH.as_str(), value.as_bytes()));
    }
}

/// Gives Envoy a body back, each piece as it comes, and its trailers.
pub(crate) async fn give(about: About, mut body: Body, out: &Out) -> Result<(), BoxError> {
    let mut ended = false;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            out.send(answers::pass_trailers(about)).await;
            return Ok(());
        };
        ended = body.is_end_stream();
        for piece in answers::pieces(about, data, ended) {
            out.send(piece).await;
        }
    }
    if !ended {
        for piece in answers::pieces(about, Bytes::new(), true) {
            out.send(piece).await;
        }
    }
    Ok(())
}
