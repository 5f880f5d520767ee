//! What is asked of the router meanwhile, and how long does it take?

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use paddler_benches::harness::Failure;
use paddler_benches::harness::http::Connection;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

/// The longest that anything may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the router tells, and how often somebody asks for each.
pub(crate) const DOCUMENTS: [&str; 4] = ["/", "/api/v1/upstreams", "/api/v1/agents", "/metrics"];
const EVERY: Duration = Duration::from_millis(250);

/// How long each of some answers took, in milliseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Times {
    pub(crate) taken: Vec<f64>,
    /// The bytes of the last answer.
    pub(crate) bytes: usize,
    pub(crate) errors: usize,
}

impl Times {
    fn add(&mut self, taken: Duration, answer: Result<usize, Failure>) {
        match answer {
            Ok(bytes) => {
                self.taken.push(taken.as_secs_f64() * 1e3);
                self.bytes = bytes;
            }
            Err(error) => {
                eprintln!("agents: {error}");
                self.errors += 1;
            }
        }
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.taken.extend(&other.taken);
        self.bytes = self.bytes.max(other.bytes);
        self.errors += other.errors;
    }
}

/// Sends so many small chats a second, whether or not those before are answered.
pub(crate) async fn chats(address: SocketAddr, model: &str, per_second: u32, time: Duration) -> Times {
    let body = json!({
        "model": model, "max_tokens": 4,
        "messages": [{"role": "user", "content": "Say in one word how it goes. ".repeat(20)}],
    });
    let body = Bytes::from(body.to_string());
    let idle = Arc::new(Mutex::new(Vec::new()));
    let (mut tick, mut answers) = (interval(Duration::from_secs(1) / per_second), JoinSet::new());
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for _ in 0..(f64::from(per_second) * time.as_secs_f64()) as u64 {
        tick.tick().await;
        let (idle, body) = (idle.clone(), body.clone());
        answers.spawn(async move {
            let began = Instant::now();
            let answer = timeout(PATIENCE, chat(address, body, &idle)).await;
            let answer = answer.unwrap_or_else(|_| Err("a chat is not answered".into()));
            (began.elapsed(), answer)
        });
    }
    let mut times = Times::default();
    while let Some(Ok((taken, answer))) = answers.join_next().await {
        times.add(taken, answer);
    }
    times
}

/// One chat, over a connection that nobody uses, or else a new one. Tells how long the answer is.
async fn chat(address: SocketAddr, body: Bytes, idle: &Mutex<Vec<Connection>>) -> Result<usize, Failure> {
    let free = || idle.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = free().pop().filter(|connection| !connection.is_closed());
    let mut connection = match kept {
        Some(connection) => connection,
        None => Connection::open(address).await?,
    };
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    let bytes = asked(
        &mut connection,
        Method::POST,
        "/v1/chat/completions",
        headers,
        body,
    )
    .await?;
    free().push(connection);
    Ok(bytes)
}

async fn asked(
    connection: &mut Connection,
    method: Method,
    path: &str,
    headers: HeaderMap,
    body: Bytes,
) -> Result<usize, Failure> {
    let response = connection.send(method, path, headers, body).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    if status == StatusCode::OK {
        return Ok(body.len());
    }
    Err(format!("{path}: {status} {}", String::from_utf8_lossy(&body)).into())
}

/// Asks for each document four times a second until this is dropped or the time is over, and says how long each took.
pub(crate) async fn documents(
    management: SocketAddr,
    time: Duration,
) -> Result<[Times; DOCUMENTS.len()], Failure> {
    let mut all = DOCUMENTS.map(|_| Times::default());
    let mut connection = Connection::open(management).await?;
    let (end, mut tick) = (Instant::now() + time, interval(EVERY));
    while tick.tick().await < end {
        for (path, times) in DOCUMENTS.iter().zip(&mut all) {
            let began = Instant::now();
            let document = asked(&mut connection, Method::GET, path, HeaderMap::new(), Bytes::new());
            let answer = timeout(PATIENCE, document).await;
            times.add(
                began.elapsed(),
                answer.unwrap_or_else(|_| Err(format!("no {path}").into())),
            );
        }
    }
    Ok(all)
}

/// Drains an upstream and lets it back in again and again, and says how long it took until the event of it was here.
pub(crate) async fn events(management: SocketAddr, upstream: &str, time: Duration) -> Result<Times, Failure> {
    let mut reader = Connection::open(management).await?;
    let stream = reader.send(Method::GET, "/api/v1/events", HeaderMap::new(), Bytes::new());
    let mut stream = stream.await?.into_body();
    let mut writer = Connection::open(management).await?;
    let (mut times, end) = (Times::default(), Instant::now() + time);
    let name = format!("\"{upstream}\"");
    // Whoever was drained is let back in.
    while Instant::now() < end {
        for verb in ["drain", "undrain"] {
            let began = Instant::now();
            let path = format!("/api/v1/upstreams/{upstream}/{verb}");
            asked(&mut writer, Method::POST, &path, HeaderMap::new(), Bytes::new()).await?;
            let heard = timeout(PATIENCE, event_of(&mut stream, &name)).await;
            let heard = heard.unwrap_or_else(|_| Err("no event".into()));
            times.add(began.elapsed(), heard);
            sleep(EVERY).await;
        }
    }
    Ok(times)
}

/// Waits for an event that has this in it. Tells how long all is that came until then.
async fn event_of(stream: &mut Incoming, name: &str) -> Result<usize, Failure> {
    let mut text = String::new();
    // An event ends with an empty line.
    while !text
        .rsplit_once("\n\n")
        .is_some_and(|(whole, _)| whole.contains(name))
    {
        let frame = stream.frame().await.ok_or("the events end")??;
        text.push_str(&String::from_utf8_lossy(
            frame.data_ref().map_or(&[], |data| data),
        ));
    }
    Ok(text.len())
}
