//! What does the head of a request say before its body is read?

use http::Uri;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};

use super::Passage;
use crate::forward::accept::Peer;
use crate::forward::asked::{Standing, Times};
use crate::forward::headers::{Kinds, announces_body, strip_hop_by_hop, takes_trailers};
use crate::forward::peer::Origin;
use crate::forward::permit;
use crate::forward::refusal::Refusal;
use crate::forward::rights::InUse;
use crate::forward::upgrade;

/// The head of a request that goes to an upstream, judged, and without what is about the client's connection.
pub(super) struct Head<'a> {
    pub(super) parts: &'a mut Parts,
    pub(super) kinds: Kinds,
    /// The host that it was asked in absolute form.
    pub(super) authority: Option<Authority>,
    pub(super) uri: Uri,
    pub(super) origin: Origin,
    pub(super) times: Times,
    pub(super) standing: Standing,
    pub(super) websocket: Option<upgrade::Asked>,
    /// What the client uses of his allowance.
    pub(super) in_use: Option<InUse>,
    pub(super) announces_body: bool,
    pub(super) takes_trailers: bool,
}

impl Passage<'_> {
    /// Judges what can be judged before the body is read, and takes out what is for us.
    pub(super) fn head<'p>(&self, parts: &'p mut Parts, peer: Option<Peer>) -> Result<Head<'p>, Refusal> {
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
