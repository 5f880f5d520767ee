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

mod upstreams;

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use paddler_core::forward::bearer;
use paddler_core::request::RequestFacts;
use paddler_core::request::path::decode_part as decoded;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::control::Control;
use crate::explain;
pub(crate) use upstreams::OWN;

pub(crate) const PREFIX: &str = "/api/";

/// It has in it what each upstream is, also which files of this machine.
const SNAPSHOT: &str = "/api/v1/snapshot";

/// How long a body may take.
const UPLOAD: Duration = Duration::from_secs(30);

/// The largest request that is explained, in bytes, whose prompt nobody keeps.
const LARGEST_REQUEST: usize = 16 << 20;

type Answer = (StatusCode, Value);

/// What a path is about.
#[derive(Debug, PartialEq, Eq)]
enum Route {
    Upstreams,
    Upstream(String),
    /// Take it out of every pick, or let it back in.
    Drain(String, bool),
    Explain,
    Snapshot,
    Reload,
}

/// Where things are, for those who look elsewhere.
pub(crate) const PATHS: &str = "/api/v1/upstreams, /api/v1/upstreams/ID, its /drain and /undrain, /api/v1/explain, \
                                /api/v1/snapshot and /api/v1/reload";

impl Route {
    fn of(path: &str) -> Option<Self> {
        let segments: Vec<&str> = path.strip_prefix("/api/v1/")?.split('/').collect();
        Some(match segments.as_slice() {
            ["upstreams"] => Self::Upstreams,
            ["upstreams", id] => Self::Upstream(decoded(id)),
            ["upstreams", id, "drain"] => Self::Drain(decoded(id), true),
            ["upstreams", id, "undrain"] => Self::Drain(decoded(id), false),
            ["explain"] => Self::Explain,
            ["snapshot"] => Self::Snapshot,
            ["reload"] => Self::Reload,
            _ => return None,
        })
    }

    fn methods(&self) -> &'static str {
        match self {
            Self::Upstreams | Self::Reload => "GET, HEAD, POST",
            Self::Upstream(_) => "GET, HEAD, DELETE",
            Self::Drain(..) | Self::Explain => "POST",
            Self::Snapshot => "GET, HEAD",
        }
    }
}

/// The methods that a path of the management listener takes.
pub(crate) fn methods(path: &str) -> &'static str {
    Route::of(path).map_or("GET, HEAD", |route| route.methods())
}

/// Answers a request to a path under [`PREFIX`]. `local`: the listener is reached from this machine alone.
pub(crate) async fn answer(control: &Control, request: &Parts, body: Incoming, local: bool) -> Answer {
    let answer = match allowed(control, request, local) {
        Ok(()) => carry_out(control, request, body).await,
        Err(refused) => Err(refused),
    };
    answer.unwrap_or_else(|refused| refused)
}

/// `Err`: what is answered in the place of what was asked for.
async fn carry_out(control: &Control, request: &Parts, body: Incoming) -> Result<Answer, Answer> {
    let Some(route) = Route::of(request.uri.path()) else {
        return Err(error(StatusCode::NOT_FOUND, &format!("here are {PATHS}")));
    };
    let told = |told: Value| Ok((StatusCode::OK, told));
    match (route, &request.method) {
        (Route::Upstreams, &Method::GET | &Method::HEAD) => {
            told(json!({"upstreams": upstreams::all(control)}))
        }
        (Route::Upstreams, &Method::POST) => upstreams::add(control, body).await,
        (Route::Upstream(id), &Method::GET | &Method::HEAD) => told(json!(upstreams::known(control, &id)?)),
        (Route::Upstream(id), &Method::DELETE) => upstreams::remove(control, &id).await,
        (Route::Drain(id, draining), &Method::POST) => upstreams::drain(control, &id, draining).await,
        (Route::Explain, &Method::POST) => explained(control, request, body).await,
        (Route::Snapshot, &Method::GET | &Method::HEAD) => snapshot(control).await,
        (Route::Reload, &Method::GET | &Method::HEAD) => {
            let last = control.last_reload().map(|report| report.json(control.now()));
            told(json!({"last": last}))
        }
        (Route::Reload, &Method::POST) => Ok(reload(control).await),
        (route, _) => {
            let message = format!("only {}", route.methods());
            Err(error(StatusCode::METHOD_NOT_ALLOWED, &message))
        }
    }
}

/// Whether it changes nothing.
fn reads(request: &Parts) -> bool {
    request.method == Method::GET || request.method == Method::HEAD
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
        None if local || (reads(request) && request.uri.path() != SNAPSHOT) => Ok(()),
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

/// The body, if it is no larger than this.
async fn whole(body: Incoming, largest: usize) -> Result<Bytes, Answer> {
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

/// The statuses in force. Of thousands of upstreams it takes its time, in which no stream must stand still.
async fn snapshot(control: &Control) -> Result<Answer, Answer> {
    let state = control.router.published().load_full();
    let record = spawn_blocking(move || json!(state.record())).await;
    record
        .map(|record| (StatusCode::OK, record))
        .map_err(|why| error(StatusCode::INTERNAL_SERVER_ERROR, &why.to_string()))
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
            ("/api/v1/upstreams/drain", "GET, HEAD, DELETE"),
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
