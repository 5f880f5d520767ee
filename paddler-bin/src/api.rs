//! What does the management API answer, and whom?
//!
//! | path | does |
//! |---|---|
//! | `GET /api/v1/upstreams`, `/api/v1/upstreams/{id}` | tells how they are |
//! | `POST /api/v1/upstreams` | adds one, in the words of a config file, or puts it in the place of one that was added so |
//! | `DELETE /api/v1/upstreams/{id}` | takes one away that was added so |
//! | `POST /api/v1/upstreams/{id}/drain`, `/undrain` | takes one out of every pick at once, or lets it back in, also one that is away |
//! | `POST /api/v1/explain?path=/v1/chat/completions` | tells where a request with this body would go now, and why |
//! | `GET /api/v1/snapshot` | the statuses that requests are routed by, for `paddler explain --snapshot` |
//! | `GET /api/v1/reload` | tells how the last reload went |
//! | `POST /api/v1/reload` | reads the config again |

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use paddler_core::config::{UpstreamConfig, Value as Written};
use paddler_core::forward::bearer;
use paddler_core::observe::UpstreamStatus;
use paddler_core::request::RequestFacts;
use paddler_core::request::path::decode_part as decoded;
use paddler_core::upstream::{UpstreamId, UpstreamSpec};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::control::Control;
use crate::explain;

pub(crate) const PREFIX: &str = "/api/";

/// The name of the source for which the API speaks.
pub(crate) const OWN: &str = "api";

/// The largest body, in bytes: an upstream with a few hundred models.
const LARGEST: usize = 64 * 1024;

/// The largest request that is explained, in bytes, whose prompt nobody keeps.
const LARGEST_REQUEST: usize = 16 << 20;

type Answer = (StatusCode, Value);

/// Answers a request to a path under [`PREFIX`]. `local`: the listener is reached from this machine alone.
pub(crate) async fn answer(control: &Control, request: &Parts, body: Incoming, local: bool) -> Answer {
    if let Err(refused) = allowed(control, request, local) {
        return refused;
    }
    let path = request.uri.path().strip_prefix("/api/v1/").unwrap_or_default();
    let segments: Vec<&str> = path.split('/').collect();
    match (
        segments.as_slice(),
        reads(request),
        request.method == Method::POST,
    ) {
        (["upstreams"], true, _) => (StatusCode::OK, json!({"upstreams": all(control)})),
        (["upstreams", id], true, _) => match known(control, id) {
            Ok(upstream) => (StatusCode::OK, json!(upstream)),
            Err(unknown) => unknown,
        },
        (["upstreams"], _, true) => match added(control, body).await {
            Ok(added) | Err(added) => added,
        },
        (["upstreams", id], ..) if request.method == Method::DELETE => remove(control, id).await,
        (["upstreams", id, "drain"], _, true) => drain(control, id, true).await,
        (["upstreams", id, "undrain"], _, true) => drain(control, id, false).await,
        (["snapshot"], true, _) => (StatusCode::OK, json!(control.router.published().load().record())),
        (["explain"], _, true) => match explained(control, request, body).await {
            Ok(answer) | Err(answer) => answer,
        },
        (["reload"], true, _) => {
            let last = control.last_reload().map(|report| report.json(control.now()));
            (StatusCode::OK, json!({"last": last}))
        }
        (["reload"], _, true) => reload(control).await,
        (
            ["upstreams" | "reload" | "snapshot" | "explain"]
            | ["upstreams", _]
            | ["upstreams", _, "drain" | "undrain"],
            ..,
        ) => error(
            StatusCode::METHOD_NOT_ALLOWED,
            "GET tells, POST changes, and DELETE takes away what was added here",
        ),
        _ => error(
            StatusCode::NOT_FOUND,
            "here are /api/v1/upstreams, /api/v1/upstreams/ID, its /drain and /undrain, /api/v1/explain, /api/v1/snapshot and \
             /api/v1/reload",
        ),
    }
}

/// Whether it changes nothing.
fn reads(request: &Parts) -> bool {
    request.method == Method::GET || request.method == Method::HEAD
}

/// The methods that a path of the management listener takes.
pub(crate) fn methods(path: &str) -> &'static str {
    if path.ends_with("/drain") || path.ends_with("/undrain") || path == "/api/v1/explain" {
        "POST"
    } else if path == "/api/v1/reload" || path == "/api/v1/upstreams" {
        "GET, HEAD, POST"
    } else if path.starts_with("/api/v1/upstreams/") {
        "GET, HEAD, DELETE"
    } else {
        "GET, HEAD"
    }
}

fn error(status: StatusCode, message: &str) -> Answer {
    (status, json!({"error": message}))
}

/// With keys, who has one. Without, whoever is on this machine, but for web pages: a browser would send what any page asks for.
fn allowed(control: &Control, request: &Parts, local: bool) -> Result<(), Answer> {
    match control.management_keys() {
        Some(keys) => match bearer(&request.headers) {
            Some(key) if keys.has(key) => Ok(()),
            Some(_) => Err(error(StatusCode::UNAUTHORIZED, "the key is not known here")),
            None => Err(error(
                StatusCode::UNAUTHORIZED,
                "a key is needed: send it as Authorization: Bearer KEY",
            )),
        },
        None if local && is_of_web_page(&request.headers) => {
            let message = "without management_key_file, web pages may not ask: ask by localhost or 127.0.0.1, without Origin";
            Err(error(StatusCode::FORBIDDEN, message))
        }
        None if local || reads(request) => Ok(()),
        None => {
            let message = "other machines reach this listener: set management_key_file, and send a key of it";
            Err(error(StatusCode::FORBIDDEN, message))
        }
    }
}

/// A browser says for which page it asks. It also asks under a name that leads here only since a moment ago, if the page has
/// that name: so only names count that cannot be made to lead here.
fn is_of_web_page(headers: &HeaderMap) -> bool {
    let by_page = headers.contains_key(ORIGIN)
        || headers
            .get("sec-fetch-site")
            .is_some_and(|site| site.as_bytes() != b"none" && site.as_bytes() != b"same-origin");
    let host = headers
        .get(HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let is_here =
        bare.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    by_page || !is_here
}

fn all(control: &Control) -> Vec<UpstreamStatus> {
    let mut all = UpstreamStatus::all(&control.router.published().load(), control.now());
    all.sort_by(|one, other| one.id.cmp(&other.id));
    all
}

fn known(control: &Control, id: &str) -> Result<UpstreamStatus, Answer> {
    let id = decoded(id);
    let known = UpstreamStatus::find(&control.router.published().load(), &id, control.now());
    known.ok_or_else(|| {
        let ids: Vec<_> = all(control).into_iter().map(|upstream| upstream.id).collect();
        let message = format!("there is no upstream {id:?}");
        (StatusCode::NOT_FOUND, json!({"error": message, "known": ids}))
    })
}

async fn drain(control: &Control, id: &str, draining: bool) -> Answer {
    let Ok(name) = UpstreamId::new(decoded(id)) else {
        return error(StatusCode::NOT_FOUND, "no upstream has such an id");
    };
    let done = match control.statuses.set_draining(name.clone(), draining).await {
        Ok(done) => done,
        Err(ended) => return error(StatusCode::SERVICE_UNAVAILABLE, &ended.to_string()),
    };
    if done {
        tracing::info!(upstream = %name, draining, "told by the management API");
    }
    match known(control, id) {
        Ok(upstream) => (StatusCode::OK, json!(upstream)),
        // It is away, and was drained when it left.
        Err(_) if done => (
            StatusCode::OK,
            json!({"id": name.as_str(), "draining": draining, "away": true}),
        ),
        Err(unknown) => unknown,
    }
}

/// The body, if it is no larger than this.
async fn whole(body: Incoming, largest: usize) -> Result<Bytes, Answer> {
    let body = Limited::new(body, largest).collect().await;
    let unread = |why: &dyn std::fmt::Display| {
        error(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("the body cannot be read: {why}"),
        )
    };
    Ok(body.map_err(|why| unread(&why))?.to_bytes())
}

/// Where a request with this body would go now, and why.
async fn explained(control: &Control, request: &Parts, body: Incoming) -> Result<Answer, Answer> {
    let asked = |name: &str| {
        let query = request.uri.query().unwrap_or_default();
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .find(|(key, _)| *key == name)
            .map(|(_, value)| decoded(value))
    };
    let path = asked("path").unwrap_or_else(|| explain::PATH.to_owned());
    let method = asked("method").unwrap_or_else(|| "POST".to_owned());
    let body = whole(body, LARGEST_REQUEST).await?;
    // Each time another draw.
    let now = control.now();
    let facts = RequestFacts::read(&method, &path, &body, now, now.as_nanos());
    let facts = facts.map_err(|why| error(StatusCode::BAD_REQUEST, &why.to_string()))?;
    let why = control.router.explain(&facts, explain::NAMED);
    why.map(|why| (StatusCode::OK, json!(why)))
        .map_err(|panicked| error(StatusCode::INTERNAL_SERVER_ERROR, &panicked.to_string()))
}

/// The upstream of this body, added. It is there until it is taken away or the program ends.
async fn added(control: &Control, body: Incoming) -> Result<Answer, Answer> {
    let body = whole(body, LARGEST).await?;
    let json: Value = serde_json::from_slice(&body)
        .map_err(|why| error(StatusCode::BAD_REQUEST, &format!("this is no JSON: {why}")))?;
    let read = Written::from_json(&json).and_then(|value| UpstreamConfig::from_value(&value, ""));
    let upstream = read.map_err(|faults| {
        let faults: Vec<_> = faults.faults.iter().map(ToString::to_string).collect();
        (
            StatusCode::UNPROCESSABLE_ENTITY,
            json!({"error": faults.join("; "), "faults": faults}),
        )
    })?;
    let tls = &upstream.spec.protocol.tls;
    let names_files = [&upstream.api_key_file, &tls.ca, &tls.certificate, &tls.key]
        .iter()
        .any(|file| file.is_some());
    if names_files || upstream.by_name {
        let message = "files and dns+ names are for the config file: whoever may ask here may not have files of this machine read";
        return Err(error(StatusCode::UNPROCESSABLE_ENTITY, message));
    }
    let spec = upstream.spec;
    let id = spec.id.to_string();
    if let Some(owner) = teller(control, &spec.id).await?.filter(|owner| *owner != OWN) {
        return Err(error(
            StatusCode::CONFLICT,
            &format!("{id} is told by the {owner}: change it there"),
        ));
    }
    let there = control.router.published().load_full();
    let same_place =
        |other: &UpstreamSpec| other.id != spec.id && other.host_and_port() == spec.host_and_port();
    if let Some((_, other)) = there.iter().find(|(_, entry)| same_place(entry.spec())) {
        let message = format!(
            "{} is there already, as {}: one upstream that is named twice is one",
            spec.url,
            other.spec().id
        );
        return Err(error(StatusCode::CONFLICT, &message));
    }
    tracing::info!(upstream = id, url = spec.url, "added by the management API");
    let replaced = control.add(spec);
    let status = if replaced {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    settled(control, &id, true).await;
    Ok(
        match UpstreamStatus::find(&control.router.published().load(), &id, control.now()) {
            Some(upstream) => (status, json!(upstream)),
            // It is not on the board yet, or cannot be connected to, as the log says.
            None => (StatusCode::ACCEPTED, json!({"id": id})),
        },
    )
}

/// Waits, for as long as the board takes at most, until an upstream is there, or is not.
async fn settled(control: &Control, id: &str, there: bool) {
    let until = async {
        while control.router.published().load().find(id).is_some() != there {
            sleep(Duration::from_millis(5)).await;
        }
    };
    // It is told as it is then.
    timeout(Duration::from_secs(1), until).await.ok();
}

async fn teller(control: &Control, id: &UpstreamId) -> Result<Option<&'static str>, Answer> {
    let told = control.statuses.who_tells(id.clone()).await;
    told.map_err(|ended| error(StatusCode::SERVICE_UNAVAILABLE, &ended.to_string()))
}

async fn remove(control: &Control, id: &str) -> Answer {
    let Ok(name) = UpstreamId::new(decoded(id)) else {
        return error(StatusCode::NOT_FOUND, "no upstream has such an id");
    };
    if control.remove(&name) {
        tracing::info!(upstream = %name, "taken away by the management API");
        settled(control, name.as_str(), false).await;
        return (StatusCode::OK, json!({"id": name.as_str(), "removed": true}));
    }
    match teller(control, &name).await {
        Ok(Some(owner)) => error(
            StatusCode::CONFLICT,
            &format!("{name} is told by the {owner}: take it away there, or drain it"),
        ),
        Ok(None) => known(control, id)
            .err()
            .unwrap_or_else(|| error(StatusCode::NOT_FOUND, "it has left")),
        Err(ended) => ended,
    }
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

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn each_path_says_which_methods_it_takes() {
        for (path, takes) in [
            ("/api/v1/upstreams", "GET, HEAD, POST"),
            ("/api/v1/upstreams/gpu-1", "GET, HEAD, DELETE"),
            ("/api/v1/upstreams/gpu-1/drain", "POST"),
            ("/api/v1/upstreams/gpu-1/undrain", "POST"),
            ("/api/v1/reload", "GET, HEAD, POST"),
            ("/api/v1/explain", "POST"),
            ("/api/v1/snapshot", "GET, HEAD"),
            ("/metrics", "GET, HEAD"),
        ] {
            assert_eq!(methods(path), takes, "{path}");
        }
    }

    #[test]
    fn a_web_page_is_known_by_what_its_browser_says() {
        let of = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            is_of_web_page(&headers)
        };
        for host in [
            "127.0.0.1:8081",
            "localhost",
            "LOCALHOST:1",
            "[::1]:8081",
            "127.9.9.9",
        ] {
            assert!(!of(&[("host", host)]), "{host}");
            assert!(of(&[("host", host), ("origin", "http://127.0.0.1:8081")]));
            assert!(of(&[("host", host), ("origin", "null")]));
            assert!(of(&[("host", host), ("sec-fetch-site", "cross-site")]));
        }
        for host in [
            "rebound.example.com:8081",
            "10.0.0.1",
            "localhost.example.com",
            "",
            "127.0.0.1.nip.io:80",
        ] {
            assert!(of(&[("host", host)]), "{host}");
        }
        assert!(of(&[]));
    }
}
