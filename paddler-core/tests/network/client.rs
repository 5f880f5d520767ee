//! A client that asks and notes what it got.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use turmoil::net::TcpStream;

use super::world::PORT;

/// What came of a request: its status (0: none) and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) id: String,
    pub(crate) sent: Duration,
    pub(crate) took: Duration,
    pub(crate) status: u16,
    pub(crate) text: String,
}

type Answer = Result<(u16, String), Box<dyn std::error::Error + Send + Sync>>;

/// Asks once, on a connection of its own.
async fn ask(method: &str, path: &str, id: &str, body: &str) -> Answer {
    let stream = TcpStream::connect(("router", PORT)).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move { drop(connection.await) });
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "router")
        .header("content-type", "application/json")
        .header("x-request-id", id)
        .body(Full::<Bytes>::from(body.to_owned()))?;
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let text = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&text).into_owned()))
}

/// Asks for a chat.
pub(crate) async fn chat(id: String) -> Got {
    let sent = turmoil::sim_elapsed().unwrap_or_default();
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hello"}]}"#;
    let answer = ask("POST", "/v1/chat/completions", &id, body).await;
    let (status, text) = answer.unwrap_or_else(|error| (0, error.to_string()));
    Got {
        id,
        sent,
        took: turmoil::sim_elapsed().unwrap_or_default() - sent,
        status,
        text,
    }
}

/// What clients have got, in the order in which it came.
pub(crate) type All = Arc<Mutex<Vec<Got>>>;

/// Asks `count` times, so far apart, whatever becomes of the earlier ones; then waits until nothing is left in the router.
pub(crate) async fn many(count: usize, apart: Duration, all: All) -> turmoil::Result {
    settled_in().await?;
    let (began, mut asked) = (Instant::now(), JoinSet::new());
    for number in 0..count {
        sleep_until(began + apart * number as u32).await;
        let all = all.clone();
        asked.spawn(async move {
            let got = chat(format!("r{number}")).await;
            all.lock().unwrap().push(got);
        });
    }
    while let Some(done) = asked.join_next().await {
        done?;
    }
    quiet().await
}

/// Waits until the router knows all three engines to be able.
pub(crate) async fn settled_in() -> turmoil::Result {
    for _ in 0..100 {
        if figure("paddler_upstream_able").await? == 3.0
            && figure("paddler_upstream_failed_polls").await? == 0.0
        {
            return Ok(());
        }
        sleep(Duration::from_millis(100)).await;
    }
    Err("the router does not find the engines".into())
}

/// Waits until no lease, no place in the queue and no byte is held.
pub(crate) async fn quiet() -> turmoil::Result {
    const HELD: [&str; 5] = [
        "paddler_in_flight_requests",
        "paddler_waiting_requests",
        "paddler_buffered_bytes",
        "paddler_settling_weight",
        "paddler_upstream_open_weight",
    ];
    let mut held = Vec::new();
    for _ in 0..200 {
        held.clear();
        for name in HELD {
            if figure(name).await? != 0.0 {
                held.push(name);
            }
        }
        if held.is_empty() {
            return Ok(());
        }
        sleep(Duration::from_millis(100)).await;
    }
    Err(format!("these are not back at zero: {held:?}").into())
}

/// The sum of a metric over its labels.
pub(crate) async fn figure(name: &str) -> turmoil::Result<f64> {
    let (_, page) = ask("GET", "/figures", "", "")
        .await
        .map_err(|error| error.to_string())?;
    if !page.contains(&format!("# TYPE {name} ")) {
        return Err(format!("no metric {name}").into());
    }
    let samples = page.lines().filter_map(|line| line.strip_prefix(name));
    Ok(samples
        .filter(|rest| rest.starts_with([' ', '{']))
        .map(|rest| rest.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum())
}
