//! How is a running engine steered from outside?
//!
//! | request | does |
//! |---|---|
//! | `POST /sim/fault` | replaces the rules in force by the one rule, or the array of rules, in the body |
//! | `DELETE /sim/fault` | clears all rules |
//! | `GET /sim/fault` | lists the rules in force |
//! | `GET /sim/stats` | the counters of [`Stats`](crate::Stats) |
//! | `GET /sim/requests` | the last requests, oldest first |
//! | `GET /sim/log` | what became of the last requests, as lines of JSON, oldest first |

use std::io;
use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode};
use serde_json::{Map, Value, json};

use crate::core::Core;
use crate::fault::book::Refusal;
use crate::fault::{FaultParseError, FaultRule};
use crate::reply::Reply;

/// Puts the rules in force, and opens or closes the door as they want it.
pub(crate) fn set_rules(core: &Core, replace: bool, rules: Vec<FaultRule>) -> io::Result<()> {
    if replace {
        core.faults.clear();
    }
    for rule in rules {
        core.faults.add(rule);
    }
    match core.faults.refusal() {
        Refusal::No => core.door.open(),
        Refusal::Until(_) | Refusal::UntilCleared => {
            core.door.close();
            Ok(())
        }
    }
}

/// Answers a request to `/sim/`.
pub(crate) fn answer(core: &Arc<Core>, method: &Method, path: &str, body: &[u8]) -> Reply {
    match (method, path) {
        (&Method::GET, "/sim/stats") => Reply::ok(&serde_json::to_value(core.stats()).unwrap_or_default()),
        (&Method::GET, "/sim/requests") => Reply::ok(&requests(core)),
        (&Method::GET, "/sim/log") => Reply::new(StatusCode::OK, "application/x-ndjson", log(core)),
        (&Method::GET, "/sim/fault") => Reply::ok(&rules(core)),
        (&Method::DELETE, "/sim/fault") => applied(core, Vec::new()),
        (&Method::POST, "/sim/fault") => match parse(body) {
            Ok(rules) => applied(core, rules),
            Err(error) => failed(StatusCode::BAD_REQUEST, &error.to_string()),
        },
        _ => failed(StatusCode::NOT_FOUND, "there is no such control"),
    }
}

fn applied(core: &Core, new: Vec<FaultRule>) -> Reply {
    match set_rules(core, true, new) {
        Ok(()) => Reply::ok(&rules(core)),
        Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn failed(status: StatusCode, text: &str) -> Reply {
    Reply::json(status, &json!({ "error": text }))
}

fn rules(core: &Core) -> Value {
    core.faults.list().iter().map(FaultRule::to_json).collect()
}

fn parse(body: &[u8]) -> Result<Vec<FaultRule>, FaultParseError> {
    match serde_json::from_slice(body) {
        Ok(Value::Array(rules)) => rules.iter().map(FaultRule::from_json).collect(),
        Ok(rule) => FaultRule::from_json(&rule).map(|rule| vec![rule]),
        Err(_) => FaultRule::from_json(&Value::Null).map(|rule| vec![rule]),
    }
}

fn requests(core: &Core) -> Value {
    let one = |record: &crate::RequestRecord| {
        json!({
            "method": record.method.as_str(),
            "path": record.path,
            "headers": headers(&record.headers),
            "body": String::from_utf8_lossy(&record.body),
        })
    };
    core.ledger.requests().iter().map(one).collect()
}

fn log(core: &Core) -> String {
    let line = |line| serde_json::to_string(&line).unwrap_or_default() + "\n";
    core.journal.lines().into_iter().map(line).collect()
}

/// Each name with all its values.
fn headers(headers: &HeaderMap) -> Value {
    let mut map = Map::new();
    for name in headers.keys() {
        let values = headers
            .get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into());
        map.insert(name.to_string(), Value::Array(values.collect()));
    }
    Value::Object(map)
}
