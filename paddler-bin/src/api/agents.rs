//! Who tells of engines at the management listener, and how is he told himself?
//!
//! | path | does |
//! |---|---|
//! | `POST /api/v1/agents/{id}/status` | listens to `paddler agent`: see [`paddler_core::agent`] |
//! | `POST /api/v1/agent_status_update/{id}`, `/status_update/{id}` | listens to an agent of Paddler 1.x, of July 2025 and before |
//! | `GET /api/v1/agents` | all agents, in the words of Paddler 1.x |
//! | `GET /api/v1/agents/stream` | the same as an event stream: at once, then at each change |
//!
//! Whoever may be an agent says where requests go, and so reads what is in them. With keys he has to have one, of `agents.key_file` or of
//! the API. Without keys, any program of this machine may be one, if the listener is on loopback; `agents: {access: open}` lets in
//! whoever reaches it, as Paddler 1.x did, whose agents have no keys.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use paddler_core::agent::{Agents, Dialect};
use paddler_core::config::AgentAccess;
use paddler_core::forward::{Body, Peer, bearer};
use paddler_core::request::path::decode_part as decoded;
use paddler_core::upstream::UpstreamId;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::{Answer, Reach, allowed, error, is_of_web_page};
use crate::control::Control;
use crate::management::response;

/// How often it is looked at whether an agent still may be one: keys and rules are read again while it speaks.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// How often the stream says that it is there, as with Paddler 1.x.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The shortest time between two events: each one has all agents in it.
const PAUSE: Duration = Duration::from_millis(250);

/// What a path is about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The agent with this id speaks.
    Speak(String, Dialect),
    All,
    Stream,
}

impl Route {
    pub(crate) fn of(path: &str) -> Option<Self> {
        let segments: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        Some(match segments.as_slice() {
            ["api", "v1", "agents"] => Self::All,
            ["api", "v1", "agents", "stream"] => Self::Stream,
            ["api", "v1", "agents", id, "status"] => Self::Speak(decoded(id), Dialect::Own),
            ["api", "v1", "agent_status_update", id] | ["status_update", id] => {
                Self::Speak(decoded(id), Dialect::Paddler1)
            }
            _ => return None,
        })
    }
}

/// Answers a request to one of these paths. `reach`: how the listener is reached.
pub(crate) async fn answer(
    control: &Arc<Control>,
    route: Route,
    request: Request<Incoming>,
    reach: Reach,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let speaks = matches!(route, Route::Speak(..));
    let (status, answer) = match (route, request.method()) {
        (Route::Speak(id, dialect), &Method::POST) => listen(control, &id, dialect, request, reach).await,
        (Route::Speak(..), _) => error(StatusCode::METHOD_NOT_ALLOWED, "only POST"),
        (route, &Method::GET | &Method::HEAD) => {
            let (parts, _) = request.into_parts();
            match (allowed(control, &parts, None, reach), route) {
                (Err(refused), _) => refused,
                (Ok(()), Route::Stream) if parts.method == Method::GET => {
                    return events(control.agents.clone());
                }
                (Ok(()), _) => (StatusCode::OK, json!(document(&control.agents).await)),
            }
        }
        _ => error(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD"),
    };
    let mut response = response(&path, status, "application/json", format!("{answer}\n").into());
    if status == StatusCode::METHOD_NOT_ALLOWED {
        let methods = if speaks { "POST" } else { "GET, HEAD" };
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static(methods));
    }
    response
}

async fn listen(
    control: &Control,
    id: &str,
    dialect: Dialect,
    request: Request<Incoming>,
    reach: Reach,
) -> Answer {
    if let Err(refused) = may_speak(control, request.headers(), reach) {
        if control.is_news_that_refused() {
            tracing::warn!(
                agent = id,
                "an agent is refused: {}",
                refused.1["error"].as_str().unwrap_or_default()
            );
        }
        return refused;
    }
    let Ok(id) = UpstreamId::new(id) else {
        return error(StatusCode::BAD_REQUEST, "no agent has such an id");
    };
    let from = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
    let (parts, body) = request.into_parts();
    let mut listening = std::pin::pin!(control.agents.listen(&id, dialect, from, body));
    let end = loop {
        match timeout(LOOK_AGAIN, &mut listening).await {
            Ok(end) => break end,
            Err(_) => {
                if let Err(refused) = may_speak(control, &parts.headers, reach) {
                    return refused;
                }
            }
        }
    };
    match end {
        Ok(messages) => (StatusCode::ACCEPTED, json!({"messages": messages})),
        Err(end) => {
            tracing::debug!(agent = %id, %end, "an agent is listened to no more");
            error(end.status(), &end.to_string())
        }
    }
}

/// Whether this may be an agent.
fn may_speak(control: &Control, headers: &HeaderMap, reach: Reach) -> Result<(), Answer> {
    let doors = control.doors();
    // Browsers send what any page asks for, and say so where something is sent.
    let by_page = headers.contains_key(ORIGIN) || headers.contains_key("sec-fetch-site");
    let has_key = |key: &[u8]| {
        let of_agents = doors.agent_keys.as_ref().is_some_and(|keys| keys.has(key));
        of_agents || control.management_keys().is_some_and(|keys| keys.has(key))
    };
    let wants_keys = doors.agent_keys.is_some() || control.management_keys().is_some();
    match (doors.agents, bearer(headers)) {
        (AgentAccess::Off, _) => Err(error(StatusCode::FORBIDDEN, "agents are off here")),
        (_, Some(key)) if wants_keys && has_key(key) => Ok(()),
        _ if by_page || (reach.local && is_of_web_page(headers, reach.tls)) => {
            Err(error(StatusCode::FORBIDDEN, "a web page is no agent"))
        }
        (AgentAccess::Open, _) => Ok(()),
        (_, Some(_)) if wants_keys => Err(error(StatusCode::UNAUTHORIZED, "the key is not known here")),
        _ if wants_keys => {
            let message = "an agent needs a key: start it with --token-file; those of Paddler 1.x have none, and come in with \
                           `--agents open` here";
            Err(error(StatusCode::UNAUTHORIZED, message))
        }
        _ if reach.local => Ok(()),
        _ => {
            let message = "other machines reach this listener: set agents.key_file (--agent-key-file) and give agents a key of it, or let \
                           everybody be an agent who reaches it, with --agents open";
            Err(error(StatusCode::FORBIDDEN, message))
        }
    }
}

/// Of thousands of agents it takes its time, in which no stream must stand still.
async fn document(agents: &Agents) -> serde_json::Value {
    let agents = agents.clone();
    let document = spawn_blocking(move || json!(agents.document())).await;
    document.unwrap_or_else(|why| json!({"error": why.to_string()}))
}

/// All agents at once, and then at each change.
fn events(agents: Agents) -> Response<Body> {
    let (to, body) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut changes = agents.changes();
        loop {
            changes.mark_unchanged();
            let event = format!("data: {}\n\n", document(&agents).await);
            if to.send(Bytes::from(event)).await.is_err() {
                return;
            }
            sleep(PAUSE).await;
            while timeout(KEEP_ALIVE, changes.changed()).await.is_err() {
                if to.send(Bytes::from_static(b":\n\n")).await.is_err() {
                    return;
                }
            }
        }
    });
    let mut response = Response::new(Body::from_channel(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_of_agents_is_known() {
        let old = |id: &str| Some(Route::Speak(id.to_owned(), Dialect::Paddler1));
        for (path, route) in [
            ("/api/v1/agents", Some(Route::All)),
            ("/api/v1/agents/stream", Some(Route::Stream)),
            (
                "/api/v1/agents/a%2Fb/status",
                Some(Route::Speak("a/b".to_owned(), Dialect::Own)),
            ),
            ("/api/v1/agent_status_update/x", old("x")),
            ("/status_update/x", old("x")),
            ("/api/v1/agents/x", None),
            ("/status_update", None),
        ] {
            assert_eq!(Route::of(path), route, "{path}");
        }
    }
}
