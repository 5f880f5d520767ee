//! May this client ask for this, and now?

use std::collections::BTreeSet;
use std::sync::Arc;

use http::StatusCode;

use super::options::RouterOptions;
use super::refusal::Refusal;
use super::rights::{Client, Exceeded, InUse, Limit};
use crate::Moment;
use crate::request::path::decode_part;
use crate::request::{AskedAdapter, RequestFacts, Scanned};
use crate::status::Snapshot;

/// A request of this client begins, unless too many are under way or came lately. Its body has not been read.
pub(super) fn begin(client: &Client, options: &RouterOptions, now: Moment) -> Result<InUse, Refusal> {
    client
        .begin(now)
        .map_err(|exceeded| refused(client, exceeded, options).closing())
}

/// The body has been read: is the model one of his, and are there tokens for it?
pub(super) fn permit(
    client: &Client,
    in_use: &mut InUse,
    (path, query): (&str, Option<&str>),
    (facts, scanned): (&RequestFacts, Option<&Scanned>),
    (options, snapshot, now): (&RouterOptions, &Snapshot, Moment),
) -> Result<(), Refusal> {
    let asked = (facts, scanned.is_some());
    check_model(client, (path, query), asked, (options, snapshot))?;
    if let Some(scanned) = scanned {
        check_adapter(client, &scanned.adapter, snapshot)?;
    }
    let charged = client.charge(in_use, u64::from(facts.tokens).max(1), now);
    charged.map_err(|exceeded| refused(client, exceeded, options))
}

fn check_model(
    client: &Client,
    (path, query): (&str, Option<&str>),
    (facts, has_body): (&RequestFacts, bool),
    (options, snapshot): (&RouterOptions, &Snapshot),
) -> Result<(), Refusal> {
    let Some(listed) = &client.models else {
        return Ok(());
    };
    let by_path = path.strip_prefix("/v1/models/").map(decode_part);
    let asked = facts.asked.as_deref().or(facts.model.as_deref());
    // Some engines take a model there, too, and which of two they believe nobody knows.
    let by_query = query.into_iter().flat_map(models_in);
    // Where there is no body, the query has been made to name what is meant.
    let mut others = by_query.filter(|model| has_body || facts.model.as_deref() != Some(&**model));
    let is_his = match (asked, &by_path) {
        (None, Some(model)) => client.may_use(Some(model), snapshot),
        _ => client.may_have(facts, &options.models, snapshot),
    };
    let refused = match others.find(|model| !client.may_use(Some(model), snapshot)) {
        Some(model) => Some(model),
        None if is_his => return Ok(()),
        None => asked.or(by_path.as_deref()).map(str::to_owned),
    };
    let what = match refused {
        Some(model) => format!("this key may not use the model {model:?}"),
        None => "with this key, a request has to name its model".to_owned(),
    };
    Err(not_listed(&what, listed))
}

/// Some engines take an adapter beside the model; it would be served whatever that is.
fn check_adapter(client: &Client, adapter: &AskedAdapter, snapshot: &Snapshot) -> Result<(), Refusal> {
    let Some(listed) = &client.models else {
        return Ok(());
    };
    let what = match adapter {
        AskedAdapter::None => return Ok(()),
        AskedAdapter::Named(name) if client.may_use(Some(name), snapshot) => return Ok(()),
        AskedAdapter::Named(name) => format!("this key may not use the adapter {name:?}"),
        AskedAdapter::Unclear => "with this key, a request may name one adapter, and by its name".to_owned(),
    };
    Err(not_listed(&what, listed))
}

fn not_listed(what: &str, listed: &BTreeSet<Arc<str>>) -> Refusal {
    let mut may: Vec<_> = listed.iter().take(20).map(|name| &**name).collect();
    if listed.len() > may.len() {
        may.push("...");
    }
    let message = format!("{what}; it may use: {}", may.join(", "));
    Refusal::new(StatusCode::FORBIDDEN, "model_not_allowed", message)
}

/// The models that a query names.
fn models_in(query: &str) -> impl Iterator<Item = String> {
    let pairs = query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs
        .filter(|(name, _)| decode_part(name).eq_ignore_ascii_case("model"))
        .map(|(_, value)| decode_part(value))
}

fn refused(client: &Client, exceeded: Exceeded, options: &RouterOptions) -> Refusal {
    let Exceeded { limit, most, wait } = exceeded;
    let name = &client.name;
    let what = match limit {
        Limit::Concurrency => format!("as many requests of {name:?} are under way as may be: {most}"),
        Limit::Requests => format!("{name:?} has sent its {most} requests a minute"),
        Limit::Tokens => format!("{name:?} has used its {most} tokens a minute"),
    };
    let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, limit.word(), what);
    refusal.retry_after(wait.unwrap_or(options.retry_after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_hides_no_model() {
        let found = |query| models_in(query).collect::<Vec<_>>();
        assert_eq!(
            found("a=b&model=x&%6d%6Fdel=y%2Fz&MODEL&models=w"),
            ["x", "y/z", ""]
        );
        assert!(found("").is_empty() && found("remodel=x").is_empty());
    }
}
