//! What is answered here?

use std::collections::BTreeMap;

use http::header::{CONTENT_TYPE, SERVER};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::body::Body;
use super::refusal::Refusal;
use super::rights::Client;
use super::waiting::Places;
use crate::request::path::decode_part;
use crate::request::{Dialect, ModelRules, RequestClass, Route, STATUS};
use crate::source::paddler::{Behind, StatusPage};
use crate::status::{Health, ModelRoom, ModelRow, Published, Report, Snapshot};
use crate::upstream::{ModelEntry, Models};

/// What an answer goes by.
pub(super) struct Basis<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) stopping: bool,
    pub(super) rules: &'a ModelRules,
    pub(super) client: Option<&'a Client>,
    /// What the router is called among routers.
    pub(super) name: &'a str,
    /// Who waits here.
    pub(super) places: &'a Places,
}

/// The answer to a path of class local, in its one form.
pub(super) fn answer(path: &str, known: &Basis<'_>) -> Result<Response<Body>, Refusal> {
    match path {
        "/health" | "/v1/health" => health(known),
        STATUS => Ok(json_response(&status(known))),
        _ => Ok(json_response(&models(
            known.snapshot,
            (known.rules, known.client),
        ))),
    }
}

/// How all upstreams are together, for a router in front: with the names that stand for others here, since it can be asked for
/// them, too.
fn status(known: &Basis<'_>) -> Value {
    let Basis { snapshot, client, .. } = *known;
    let queued: usize = known.places.waiting().iter().map(|class| class.waiting).sum();
    let queued = u32::try_from(queued).unwrap_or(u32::MAX);
    let mut status = snapshot.aggregate(queued);
    if known.stopping {
        status.health = Some(Health::Failing);
    }
    if let Some(Models::Listed(models)) = &mut status.models {
        let rows = rows(snapshot, (known.rules, client)).into_iter();
        let entries = rows.map(|(name, row)| match row.and_then(ModelRow::parent) {
            Some(parent) => ModelEntry::adapter(name, parent),
            None => ModelEntry::new(name),
        });
        *models = entries.collect();
        name_rooms(known, &mut status.rooms);
    }
    if let Some(client) = client {
        for_client(client, snapshot, &mut status);
    }
    let reports = snapshot.iter().filter_map(|(_, entry)| entry.report());
    let behind = reports.filter_map(|report| report.extensions.get::<Behind>());
    json!(StatusPage::new(Behind::of(known.name, behind), status))
}

/// Room is known by the names that can be asked for: those that stand for others among them, where it is one room that they stand
/// for.
fn name_rooms(known: &Basis<'_>, rooms: &mut [ModelRoom]) {
    // Each name has one room.
    let mut of = BTreeMap::new();
    for (at, room) in rooms.iter_mut().enumerate() {
        of.extend(room.models.drain(..).map(|model| (model, at)));
    }
    for alias in known.rules.aliases() {
        of.remove(alias);
        let room = {
            let mut each = known.rules.targets(alias).map(|target| of.get(&*target).copied());
            let first = each.next().flatten();
            first.filter(|_| each.all(|other| other == first))
        };
        of.extend(room.map(|room| (alias.clone(), room)));
    }
    let his = |name: &str| {
        known
            .client
            .is_none_or(|client| client.may_ask(name, known.rules, known.snapshot))
    };
    for (name, at) in of.into_iter().filter(|(name, _)| his(name)) {
        rooms[at].models.push(name);
    }
}

/// Of models and adapters, what this client may use.
fn for_client(client: &Client, snapshot: &Snapshot, status: &mut Report) {
    let his = |name: &str| client.may_use(Some(name), snapshot);
    if let (Some(any @ Models::Any), Some(listed)) = (&mut status.models, &client.models) {
        let entries = listed.iter().map(|name| ModelEntry::new(name.clone()));
        *any = Models::Listed(entries.collect());
    }
    if let Some(adapters) = &mut status.adapters {
        adapters.running.retain(|name| his(name));
        adapters.waiting.retain(|name| his(name));
    }
}

/// The union of what the upstreams list and of the aliases of what they serve, by name: what is listed can be asked for, by
/// this client.
fn models(snapshot: &Snapshot, names: (&ModelRules, Option<&Client>)) -> Value {
    let rows = rows(snapshot, names).into_iter();
    let entries = rows.map(|(name, row)| entry(name, row.and_then(ModelRow::parent)));
    json!({"object": "list", "data": entries.collect::<Vec<_>>()})
}

/// What can be asked for, and what the upstreams list under that name, unless it stands for others.
pub(super) fn rows<'a>(
    snapshot: &'a Snapshot,
    (rules, client): (&'a ModelRules, Option<&Client>),
) -> BTreeMap<&'a str, Option<&'a ModelRow>> {
    let his = |name: &str| client.is_none_or(|client| client.may_ask(name, rules, snapshot));
    let reached = snapshot.models().filter(|(_, row)| snapshot.is_reached(row));
    let mut rows: BTreeMap<&str, Option<&ModelRow>> = reached.map(|(name, row)| (name, Some(row))).collect();
    for alias in rules.aliases() {
        // What an upstream has under this name is not what is meant by it.
        rows.remove(&**alias);
        if is_served(alias, rules, snapshot) {
            rows.insert(alias, None);
        }
    }
    rows.retain(|name, _| his(name));
    rows
}

/// Whether somebody serves one of the models that the name stands for.
fn is_served(alias: &str, rules: &ModelRules, snapshot: &Snapshot) -> bool {
    rules
        .targets(alias)
        .any(|target| snapshot.is_served(Some(&target), false))
}

fn entry(name: &str, parent: Option<&str>) -> Value {
    let mut entry = json!({"id": name, "object": "model", "created": 0, "owned_by": "paddler"});
    if let Some(parent) = parent {
        entry["parent"] = parent.into();
    }
    entry
}

/// The answer to a GET of one model under a name that stands for another, which no upstream would know. `None`: any other
/// request.
pub(super) fn alias(
    path: &str,
    route: &Route,
    published: &Published,
    (rules, client): (&ModelRules, Option<&Client>),
) -> Option<Result<Response<Body>, Refusal>> {
    let name = path.strip_prefix("/v1/models/").map(decode_part)?;
    rules.targets(&name).next()?;
    if route.class != RequestClass::Control {
        return None;
    }
    let snapshot = &**published.load();
    Some(
        if client.is_some_and(|client| !client.may_ask(&name, rules, snapshot)) {
            let message = format!("this key may not use the model {name:?}");
            Err(Refusal::new(StatusCode::FORBIDDEN, "model_not_allowed", message))
        } else if is_served(&name, rules, snapshot) {
            Ok(json_response(&entry(&name, None)))
        } else {
            let message = format!("no upstream serves what the model {name:?} stands for");
            Err(Refusal::new(StatusCode::NOT_FOUND, "model_not_found", message))
        },
    )
}

/// Whether anyone can serve.
fn health(known: &Basis<'_>) -> Result<Response<Body>, Refusal> {
    match unready(known.snapshot, known.rules, known.stopping) {
        Some(why) => Err(why),
        None => Ok(json_response(&json!({"status": "ok"}))),
    }
}

/// Why no work should be sent here, if none should.
pub(super) fn unready(snapshot: &Snapshot, rules: &ModelRules, stopping: bool) -> Option<Refusal> {
    let anyone_able = snapshot.is_anyone_able(rules.falls_back());
    let (reason, message) = if stopping {
        ("stopping", "the router is shutting down".to_owned())
    } else if snapshot.is_empty() {
        ("no_upstream", "no upstream is known".to_owned())
    } else if anyone_able {
        return None;
    } else if snapshot.all_draining() {
        let message = "every upstream is drained: let one back in";
        ("draining", message.to_owned())
    } else {
        let message = match (snapshot.awaited(), snapshot.len()) {
            (0, _) => "no upstream is able to serve".to_owned(),
            (unheard, all) => {
                format!(
                    "no upstream is known to be able to serve: {unheard} of {all} have not said yet how they are"
                )
            }
        };
        ("unhealthy", message)
    };
    Some(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, reason, message))
}

/// llama.cpp's form, since its clients are the ones that read the body of a failed health check.
pub(super) const HEALTH_DIALECT: Dialect = Dialect::Llamacpp;

fn json_response(value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // A router in front finds out by it what this is.
    headers.insert(SERVER, HeaderValue::from_static("paddler"));
    response
}
