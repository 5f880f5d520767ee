//! What does the management API answer, and whom?
//!
//! Which paths there are, and what is asked and answered at each, stands in [`paths`](mod@paths), how that is read in [`table`]; what each does is in a file of its own.

mod agents;
mod browser;
mod decisions;
mod document;
mod explain;
mod long;
mod paths;
mod table;
mod tree;
mod upstreams;

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use paddler_core::agent::Dialect;
use paddler_core::forward::{Body, bearer};
use paddler_core::manage::{LeaseStatus, ModelStatus};
use paddler_core::request::path::decode_part as decoded;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::control::Control;
pub(crate) use browser::Reach;
use browser::is_of_web_page;
use long::long;
use table::{Does, Operation, Verb, Who};
pub(crate) use table::{methods, paths};
pub(crate) use upstreams::OWN;

const PREFIX: &str = "/api/";

/// How long a body may take.
const UPLOAD: Duration = Duration::from_secs(30);

type Answer = (StatusCode, Value);

/// Whether a request to this path is for the API.
pub(crate) fn has(path: &str) -> bool {
    // Agents of old have a path of their own.
    path.starts_with(PREFIX) || table::find(path).is_some()
}

/// What is answered.
pub(crate) enum Reply {
    Json(StatusCode, Value),
    /// Of this media type.
    Text(&'static str, String),
    /// Server-sent events.
    Events(Body),
}

impl From<Answer> for Reply {
    fn from((status, value): Answer) -> Self {
        Self::Json(status, value)
    }
}

/// A request, as far as its path has been understood.
struct Asked<'a> {
    parts: &'a Parts,
    /// What stands for the parts of the path that are open.
    named: Vec<String>,
}

impl Asked<'_> {
    /// What stands for the first part of the path that is open.
    fn id(&self) -> &str {
        self.named.first().map_or("", String::as_str)
    }

    /// What is said behind the `?` under this name.
    fn query(&self, name: &str) -> Option<String> {
        let mut said = pairs(self.parts);
        said.find(|(key, _)| key == name).map(|(_, value)| value)
    }
}

/// What is said behind the `?`.
fn pairs(request: &Parts) -> impl Iterator<Item = (String, String)> {
    let query = request.uri.query().unwrap_or_default();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    })
}

/// Answers a request to a path that is [here](has). `reach`: how the listener is reached.
pub(crate) async fn answer(control: &Control, request: &Parts, body: Body, reach: Reach) -> Reply {
    let found = table::find(request.uri.path());
    let operation = found.as_ref().and_then(|(endpoint, _)| {
        let all = &mut endpoint.operations.iter();
        all.find(|operation| operation.verb.takes(&request.method))
    });
    let refused = match (allowed(control, request, operation, reach), &found, operation) {
        (Err(refused), ..) => refused,
        (_, None, _) => error(StatusCode::NOT_FOUND, &format!("here are {}", paths())),
        (_, Some((endpoint, _)), None) => error(
            StatusCode::METHOD_NOT_ALLOWED,
            &format!("only {}", endpoint.methods()),
        ),
        (_, Some((_, named)), Some(operation)) => {
            let asked = Asked {
                parts: request,
                named: named.clone(),
            };
            match carry_out(control, operation, &asked, body, reach).await {
                Ok(reply) => return reply,
                Err(refused) => refused,
            }
        }
    };
    refused.into()
}

/// `Err`: what is answered in the place of what was asked for.
async fn carry_out(
    control: &Control,
    operation: &Operation,
    asked: &Asked<'_>,
    body: Body,
    reach: Reach,
) -> Result<Reply, Answer> {
    known_names(operation, asked.parts)?;
    let answer = match operation.does {
        Does::TellTree => return tree::in_force(control, asked),
        Does::FollowEvents => return events(control, asked),
        Does::FollowAgents => return agents::follow(control),
        Does::ListAgents => told(agents::all(&control.agents).await?),
        Does::HearAgent => agents::hear(control, asked, Dialect::Own, body, reach).await,
        Does::HearAgentOf2025 | Does::HearAgentOf12 => {
            agents::hear(control, asked, Dialect::Paddler1, body, reach).await
        }
        Does::ListUpstreams => return upstreams::list(control, asked).await,
        Does::TellDocument => told(document::document()),
        Does::AddUpstream => upstreams::add(control, body).await?,
        Does::TellUpstream => told(json!(upstreams::known(control, asked.id())?)),
        Does::RemoveUpstream => upstreams::remove(control, asked.id()).await?,
        Does::DrainUpstream => upstreams::drain(control, asked.id(), true).await?,
        Does::UndrainUpstream => upstreams::drain(control, asked.id(), false).await?,
        Does::TellLeases => told(leases(control)),
        Does::TellQueue => told(json!(control.router.queue_status())),
        Does::ListModels => models(control).await?,
        Does::ReplaceTree => tree::replace(control, body).await?,
        Does::ValidateTree => tree::validate(body).await?,
        Does::TellConfig => told(control.config()),
        Does::Explain => explain::explained(control, asked, body).await?,
        Does::TellSnapshot => explain::snapshot(control).await?,
        Does::ListDecisions => decisions::list(control, asked).await?,
        Does::TellDecision => decisions::one(control, asked.id())?,
        Does::TellReload => {
            let last = control.last_reload().map(|report| report.json(control.now()));
            told(json!({"last": last}))
        }
        Does::Reload => reload(control).await,
    };
    Ok(answer.into())
}

fn told(told: Value) -> Answer {
    (StatusCode::OK, told)
}

fn error(status: StatusCode, message: &str) -> Answer {
    (status, json!({"error": message}))
}

/// Whoever misspells a name behind the `?` would else be answered something else than what he has asked for.
fn known_names(operation: &Operation, request: &Parts) -> Result<(), Answer> {
    let known: Vec<_> = operation.query.iter().map(|query| query.name).collect();
    match pairs(request).find(|(name, _)| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some((name, _)) if known.is_empty() => {
            let message = format!("nothing is asked for behind the ?, and there is {name:?}");
            Err(error(StatusCode::BAD_REQUEST, &message))
        }
        Some((name, _)) => {
            let message = format!("{name:?} is not known behind the ?: only {}", known.join(", "));
            Err(error(StatusCode::BAD_REQUEST, &message))
        }
    }
}

/// With keys, who has one. Without, whoever is on this machine, but for web pages that are not ours: a browser would send what
/// any page asks for. Others may read what is not for keys alone.
fn allowed(
    control: &Control,
    request: &Parts,
    operation: Option<&Operation>,
    reach: Reach,
) -> Result<(), Answer> {
    let who = operation.map_or(Who::Reader, |operation| operation.who);
    let reads = who == Who::Reader && operation.is_none_or(|operation| operation.verb == Verb::Get);
    if who == Who::Agent {
        // They have a door of their own.
        return Ok(());
    }
    match control.management_keys() {
        Some(keys) => match bearer(&request.headers) {
            Some(key) if keys.has(key) => Ok(()),
            Some(_) => Err(error(StatusCode::UNAUTHORIZED, "the key is not known here")),
            None => Err(error(
                StatusCode::UNAUTHORIZED,
                "a key is needed: send it as Authorization: Bearer KEY",
            )),
        },
        None if reach.local && is_of_web_page(&request.headers, reach.tls) => {
            let message = "without management_key_file, no web page may ask but our own: ask by localhost or 127.0.0.1, without Origin";
            Err(error(StatusCode::FORBIDDEN, message))
        }
        None if reach.local || reads => Ok(()),
        None => {
            let message = "other machines reach this listener: set management_key_file, and send a key of it";
            Err(error(StatusCode::FORBIDDEN, message))
        }
    }
}

/// The body, if it is no larger than this.
async fn whole(body: Body, largest: usize) -> Result<Bytes, Answer> {
    let late = |_| error(StatusCode::REQUEST_TIMEOUT, "the body takes too long");
    let body = timeout(UPLOAD, Limited::new(body, largest).collect())
        .await
        .map_err(late)?;
    let body = body.map_err(|why| match why.downcast::<LengthLimitError>() {
        Ok(_) => error(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("the body is larger than {} KiB", largest / 1024),
        ),
        Err(why) => error(
            StatusCode::BAD_REQUEST,
            &format!("the body cannot be read: {why}"),
        ),
    })?;
    Ok(body.to_bytes())
}

fn leases(control: &Control) -> Value {
    let mut told = json!(LeaseStatus::of(&control.router.published().load()));
    told["requests"] = control.router.metrics().in_flight().into();
    told
}

/// Of thousands of upstreams with hundreds of models each it takes its time.
async fn models(control: &Control) -> Result<Answer, Answer> {
    let state = control.router.published().load_full();
    let models = long(move || {
        json!({
            "models": ModelStatus::all(&state),
            "serving_any": ModelStatus::serving_any(&state),
            "complete": state.models_complete(),
        })
    });
    models.await.map(told)
}

/// What changes from now on, or since the event whose id is named.
fn events(control: &Control, asked: &Asked<'_>) -> Result<Reply, Answer> {
    let after = asked.parts.headers.get("last-event-id");
    // An id that is no text is one that nobody gave.
    let after = after.map(|id| id.to_str().unwrap_or_default());
    let reader = control.feed.reader(after).ok_or_else(no_place)?;
    Ok(Reply::Events(reader.into_body()))
}

/// Nobody else can follow what changes, for now.
fn no_place() -> Answer {
    let message =
        "as many follow events and agents as may, 64 together: ask again when one of them has ended";
    error(StatusCode::SERVICE_UNAVAILABLE, message)
}

async fn reload(control: &Control) -> Answer {
    match control.reload().await {
        Some(report) if report.is_sound() => (StatusCode::OK, report.json(control.now())),
        Some(report) => (StatusCode::UNPROCESSABLE_ENTITY, report.json(control.now())),
        None => error(
            StatusCode::CONFLICT,
            "there is no config here that could be read again",
        ),
    }
}
