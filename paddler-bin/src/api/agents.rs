//! Who tells of engines at the management listener, and how is he told himself?
//!
//! Whoever may be an agent says where requests go, and so reads what is in them. With keys he has to have one, of `agents.key_file` or of
//! the API. Without keys, any program of this machine may be one, if the listener is on loopback; `agents: {access: open}` lets in
//! whoever reaches it, as Paddler 1.x did, whose agents have no keys.

use std::time::Duration;

use bytes::Bytes;
use http::header::ORIGIN;
use http::{HeaderMap, StatusCode};
use paddler_core::agent::{Agents, Dialect};
use paddler_core::config::AgentAccess;
use paddler_core::forward::{Body, Peer, bearer};
use paddler_core::upstream::UpstreamId;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::{Answer, Asked, Reach, Reply, error, is_of_web_page, long, no_place};
use crate::control::Control;

/// How often it is looked at whether an agent still may be one: keys and rules are read again while it speaks.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// How often the stream says that it is there, as with Paddler 1.x.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The shortest time between two events: each one has all agents in it.
const PAUSE: Duration = Duration::from_millis(250);

/// Listens to an agent until it ends, or is not wanted any more.
pub(super) async fn hear(
    control: &Control,
    asked: &Asked<'_>,
    dialect: Dialect,
    body: Body,
    reach: Reach,
) -> Answer {
    let (id, headers) = (asked.id(), &asked.parts.headers);
    if let Err(refused) = may_speak(control, headers, reach) {
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
    let from = asked.parts.extensions.get::<Peer>().map(|peer| peer.0.ip());
    let mut listening = std::pin::pin!(control.agents.listen(&id, dialect, from, body));
    let end = loop {
        match timeout(LOOK_AGAIN, &mut listening).await {
            Ok(end) => break end,
            Err(_) => {
                if let Err(refused) = may_speak(control, headers, reach) {
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

/// All agents. Of thousands it takes its time.
pub(super) async fn all(agents: &Agents) -> Result<Value, Answer> {
    let agents = agents.clone();
    long(move || json!(agents.document())).await
}

/// All agents at once, and then at each change.
pub(super) fn follow(control: &Control) -> Result<Reply, Answer> {
    let place = control.feed.place().ok_or_else(no_place)?;
    let agents = control.agents.clone();
    let (to, body) = mpsc::channel(1);
    tokio::spawn(async move {
        // Held for as long as it is read.
        let _place = place;
        tokio::select! {
            () = to.closed() => {}
            () = tell(agents, &to) => {}
        }
    });
    Ok(Reply::Events(Body::from_channel(body)))
}

async fn tell(agents: Agents, to: &mpsc::Sender<Bytes>) {
    let mut changes = agents.changes();
    loop {
        changes.mark_unchanged();
        // Where it is not its turn for too long, it says that it is there, and asks again.
        let told = all(&agents).await.ok();
        let event = told.as_ref().map(|all| Bytes::from(format!("data: {all}\n\n")));
        if to
            .send(event.unwrap_or(Bytes::from_static(b":\n\n")))
            .await
            .is_err()
        {
            return;
        }
        sleep(PAUSE).await;
        while told.is_some() && timeout(KEEP_ALIVE, changes.changed()).await.is_err() {
            if to.send(Bytes::from_static(b":\n\n")).await.is_err() {
                return;
            }
        }
    }
}
