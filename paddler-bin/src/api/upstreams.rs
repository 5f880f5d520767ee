//! How are upstreams looked at, added, taken away and drained by the management API?

use std::ops::RangeInclusive;
use std::time::Duration;

use http::StatusCode;
use paddler_core::config::{UpstreamConfig, Value as Written};
use paddler_core::forward::Body;
use paddler_core::manage::{STATES, UpstreamPage, UpstreamQuery, UpstreamSort};
use paddler_core::observe::UpstreamStatus;
use paddler_core::status::Entry;
use paddler_core::upstream::{UpstreamId, UpstreamSpec};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::table::JSON;
use super::{Answer, Asked, Reply, error, long, whole};
use crate::control::{Control, MOST_ADDED, NotAdded};

/// The name of the source for which the API speaks.
pub(crate) const OWN: &str = "api";

/// The largest upstream that is added, in bytes: one with a few hundred models.
const LARGEST: usize = 64 * 1024;

/// The most that are told of at once, where it is said how many; without, it is all.
const MOST: usize = 1_000;

/// The most that are told of with details, also where it is not said how many: each may have hundreds of models.
const MOST_WITH_DETAILS: usize = 100;

/// The longest that is looked for, in bytes, and in words: each word is looked for in all that each upstream is called.
const LONGEST_FIND: usize = 256;
const MOST_WORDS: usize = 16;

/// Those that are looked for. To go through thousands takes its time.
pub(super) async fn list(control: &Control, asked: &Asked<'_>) -> Result<Reply, Answer> {
    let query = query(asked)?;
    let (snapshot, now) = (control.router.published().load_full(), control.now());
    let written = long(move || serde_json::to_string(&UpstreamPage::of(&snapshot, &query, now)));
    match written.await? {
        Ok(written) => Ok(Reply::Text(JSON, written + "\n")),
        Err(why) => Err(error(StatusCode::INTERNAL_SERVER_ERROR, &why.to_string())),
    }
}

fn query(asked: &Asked<'_>) -> Result<UpstreamQuery, Answer> {
    let mut query = UpstreamQuery::default();
    query.details = match asked.query("details").as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => return Err(wrong("details", other, "true or false")),
    };
    let with = if query.details { "with details, " } else { "" };
    let number = |name: &str, range: RangeInclusive<usize>| {
        let Some(said) = asked.query(name) else {
            return Ok(None);
        };
        let number = said.parse().ok().filter(|number| range.contains(number));
        number
            .map(Some)
            .ok_or_else(|| match (range.start(), range.end()) {
                (least, &usize::MAX) => wrong(name, &said, &format!("a whole number from {least} on")),
                (least, most) => wrong(
                    name,
                    &said,
                    &format!("{with}a whole number from {least} to {most}"),
                ),
            })
    };
    query.find = find(asked)?;
    query.offset = number("offset", 0..=usize::MAX)?.unwrap_or(0);
    query.limit = if query.details {
        let limit = number("limit", 1..=MOST_WITH_DETAILS)?;
        limit.or(Some(MOST_WITH_DETAILS))
    } else {
        number("limit", 1..=MOST)?
    };
    query.state = asked.query("state");
    if let Some(state) = query.state.as_deref().filter(|state| !STATES.contains(state)) {
        return Err(wrong("state", state, &format!("one of {}", STATES.join(", "))));
    }
    if let Some(said) = asked.query("sort") {
        let found = UpstreamSort::ALL.into_iter().find(|(word, _)| *word == said);
        let words = UpstreamSort::ALL.map(|(word, _)| word).join(", ");
        (_, query.sort) = found.ok_or_else(|| wrong("sort", &said, &format!("one of {words}")))?;
    }
    Ok(query)
}

fn find(asked: &Asked<'_>) -> Result<String, Answer> {
    let find = asked.query("find").unwrap_or_default();
    let words = find.split_whitespace().count();
    if find.len() > LONGEST_FIND || words > MOST_WORDS {
        let message = format!(
            "find has {} bytes and {words} words: at most {LONGEST_FIND} bytes and {MOST_WORDS} words are looked for",
            find.len()
        );
        return Err(error(StatusCode::BAD_REQUEST, &message));
    }
    Ok(find)
}

fn wrong(name: &str, said: &str, wanted: &str) -> Answer {
    let message = format!("{name}={said}: {wanted} should stand there");
    error(StatusCode::BAD_REQUEST, &message)
}

pub(super) fn known(control: &Control, id: &str) -> Result<UpstreamStatus, Answer> {
    let known = UpstreamStatus::find(&control.router.published().load(), id, control.now());
    known.ok_or_else(|| {
        let snapshot = control.router.published().load();
        let mut ids: Vec<_> = snapshot
            .iter()
            .map(|(_, entry)| entry.spec().id.clone())
            .collect();
        ids.sort();
        let message = format!("there is no upstream {id:?}");
        (StatusCode::NOT_FOUND, json!({"error": message, "known": ids}))
    })
}

fn name(id: &str) -> Result<UpstreamId, Answer> {
    UpstreamId::new(id).map_err(|_| error(StatusCode::NOT_FOUND, "no upstream has such an id"))
}

pub(super) async fn drain(control: &Control, id: &str, draining: bool) -> Result<Answer, Answer> {
    let name = name(id)?;
    let done = control.statuses.set_draining(name.clone(), draining).await;
    let done = done.map_err(|ended| error(StatusCode::SERVICE_UNAVAILABLE, &ended.to_string()))?;
    if done {
        tracing::info!(upstream = %name, draining, "told by the management API");
    }
    match known(control, id) {
        // It is away, and was drained when it left.
        Err(_) if done => Ok((
            StatusCode::OK,
            json!({"id": id, "draining": draining, "away": true}),
        )),
        known => Ok((StatusCode::OK, json!(known?))),
    }
}

/// Adds the upstream of this body. It is there until it is taken away or the program ends.
pub(super) async fn add(control: &Control, body: Body) -> Result<Answer, Answer> {
    let spec = read(&whole(body, LARGEST).await?)?;
    if let Some(message) = conflict(control, &spec).await? {
        return Err(error(StatusCode::CONFLICT, &message));
    }
    let replaced = control.add(spec.clone()).map_err(|why| match why {
        NotAdded::IsThere(twin) => error(StatusCode::CONFLICT, &is_there_as(&spec, &twin)),
        NotAdded::TooMany => {
            let message = format!("there are {MOST_ADDED} that were added here: name more in the config");
            error(StatusCode::INSUFFICIENT_STORAGE, &message)
        }
    })?;
    tracing::info!(upstream = %spec.id, url = spec.url, "added by the management API");
    let is_there = |entry: &Entry| {
        let now = entry.spec();
        (&now.url, &now.labels, &now.models, &now.limits)
            == (&spec.url, &spec.labels, &spec.models, &spec.limits)
    };
    settled(control, &spec.id, |entry| entry.is_some_and(is_there)).await;
    Ok(match known(control, spec.id.as_str()) {
        Ok(upstream) if replaced => (StatusCode::OK, json!(upstream)),
        Ok(upstream) => (StatusCode::CREATED, json!(upstream)),
        // It is not on the board yet, or cannot be connected to, as the log says.
        Err(_) => (StatusCode::ACCEPTED, json!({"id": spec.id})),
    })
}

/// An upstream in the words of a config file.
fn read(body: &[u8]) -> Result<UpstreamSpec, Answer> {
    let json: Value = serde_json::from_slice(body)
        .map_err(|why| error(StatusCode::BAD_REQUEST, &format!("this is no JSON: {why}")))?;
    let read = Written::from_json(&json).and_then(|value| UpstreamConfig::from_value(&value, ""));
    let upstream = read.map_err(|faults| {
        let faults: Vec<_> = faults.faults.iter().map(ToString::to_string).collect();
        let all = json!({"error": faults.join("; "), "faults": faults});
        (StatusCode::UNPROCESSABLE_ENTITY, all)
    })?;
    let tls = &upstream.spec.protocol.tls;
    let files = [&upstream.api_key_file, &tls.ca, &tls.certificate, &tls.key];
    if files.iter().any(|file| file.is_some()) || upstream.dns {
        let message = "files and dns+ names are for the config file: whoever may ask here may not have files of this machine read";
        return Err(error(StatusCode::UNPROCESSABLE_ENTITY, message));
    }
    Ok(upstream.spec)
}

/// Why it cannot be added.
async fn conflict(control: &Control, spec: &UpstreamSpec) -> Result<Option<String>, Answer> {
    if let Some(owner) = teller(control, &spec.id).await?.filter(|owner| *owner != OWN) {
        return Ok(Some(format!(
            "{} is told by {}: change it there",
            spec.id,
            named(owner)
        )));
    }
    let there = control.router.published().load();
    let mut others = there.iter().map(|(_, entry)| entry.spec());
    let twin = others.find(|other| other.id != spec.id && other.same_place(spec));
    Ok(twin.map(|twin| is_there_as(spec, &twin.id)))
}

fn is_there_as(spec: &UpstreamSpec, twin: &UpstreamId) -> String {
    let url = &spec.url;
    format!("{url} is there already, as {twin}: one upstream that is named twice is one")
}

/// A source, as people know it.
fn named(source: &str) -> &str {
    match source {
        "config" => "the config",
        "file" => "the config's upstreams_file",
        "dns" => "a dns+ name of the config",
        "agent" => "its agent",
        other => other,
    }
}

/// Waits, for as long as the board takes at most, until it has this.
async fn settled(control: &Control, id: &UpstreamId, holds: impl Fn(Option<&Entry>) -> bool) {
    let settled = control.until(|snapshot| holds(snapshot.find(id.as_str()).map(|entry| &**entry)));
    // It is told as it is then.
    timeout(Duration::from_secs(1), settled).await.ok();
}

async fn teller(control: &Control, id: &UpstreamId) -> Result<Option<&'static str>, Answer> {
    let told = control.statuses.who_tells(id.clone()).await;
    told.map_err(|ended| error(StatusCode::SERVICE_UNAVAILABLE, &ended.to_string()))
}

pub(super) async fn remove(control: &Control, id: &str) -> Result<Answer, Answer> {
    let name = name(id)?;
    if control.remove(&name) {
        tracing::info!(upstream = %name, "taken away by the management API");
        settled(control, &name, |entry| entry.is_none()).await;
        return Ok((StatusCode::OK, json!({"id": id, "removed": true})));
    }
    match teller(control, &name).await? {
        Some(owner) => {
            let message = format!(
                "{name} is told by {}: take it away there, or drain it",
                named(owner)
            );
            Err(error(StatusCode::CONFLICT, &message))
        }
        None => Err(known(control, id)
            .err()
            .unwrap_or_else(|| error(StatusCode::NOT_FOUND, "it has left"))),
    }
}
