//! What do the clients do, and what do they note?
//!
//! Sessions begin at times that were drawn beforehand, however the earlier ones fare (an open loop). A session is one
//! connection with one to three requests.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use paddler_benches::harness::draw::Draw;
use paddler_benches::harness::http::Connection;
use paddler_engine::{Corrupt, digest, verify_stream};
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// The longest that a client waits for all of its answer.
const PATIENCE: Duration = Duration::from_secs(40);

/// After how many pieces a slow client hurries: an answer in thousands of them would outlast its patience by its own doing.
const PAUSES: u32 = 300;

/// How an answer ended for its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As HTTP has it.
    Whole,
    /// The connection broke, before the head or within the body.
    Broken(String),
    /// The client left, as it was meant to.
    Left,
    /// It did not end in time.
    Late,
}

/// What a client notes about one request.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) id: String,
    /// Milliseconds since the trial began.
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) status: Option<u16>,
    /// The router's word for why it refused.
    pub(crate) reason: String,
    pub(crate) bytes: usize,
    pub(crate) ending: Ending,
    /// What the checksum says.
    pub(crate) check: Result<(), Corrupt>,
    /// Whether the stream tells of an error.
    pub(crate) error_event: bool,
}

/// One request, as it was drawn.
#[derive(Debug, Clone)]
struct Plan {
    stream: bool,
    tokens: usize,
    /// After which time the client leaves.
    leaves: Option<Duration>,
    /// How long it pauses between two pieces of the answer.
    pause: Duration,
}

impl Plan {
    fn draw(draw: &mut Draw) -> Self {
        Self {
            stream: draw.chance(0.6),
            tokens: 3 + draw.below(50),
            leaves: draw
                .chance(0.05)
                .then(|| Duration::from_secs_f64(draw.between(0.005, 0.6))),
            pause: if draw.chance(0.03) {
                Duration::from_millis(30)
            } else {
                Duration::ZERO
            },
        }
    }

    fn body(&self, id: &str) -> Bytes {
        let text = format!("Tell me about {id}.");
        let body = json!({
            "model": "tiny", "stream": self.stream, "max_tokens": self.tokens,
            "messages": [{ "role": "user", "content": text }],
        });
        Bytes::from(body.to_string())
    }
}

/// Begins sessions at this rate until `end`; each tells its outcomes.
pub(crate) async fn run(
    address: SocketAddr,
    began: Instant,
    end: Instant,
    sessions_per_second: f64,
    draw: Draw,
    notes: UnboundedSender<Outcome>,
) {
    let mut arrivals = draw.part(0);
    let mut at = Instant::now();
    for number in 0.. {
        // Arrivals of independent clients: exponential gaps.
        at += Duration::from_secs_f64(-(1.0 - arrivals.unit()).ln() / sessions_per_second);
        if at >= end {
            return;
        }
        sleep_until(at).await;
        let client = Client {
            address,
            began,
            notes: notes.clone(),
        };
        tokio::spawn(client.session(number, draw.part(number + 1)));
    }
}

struct Client {
    address: SocketAddr,
    began: Instant,
    notes: UnboundedSender<Outcome>,
}

impl Client {
    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    async fn session(self, number: u64, mut draw: Draw) {
        let mut connection = None;
        for request in 0..=draw.below(3) {
            let plan = Plan::draw(&mut draw);
            let mut outcome = Outcome {
                id: format!("c{number}-{request}"),
                began: self.now(),
                ended: 0,
                status: None,
                reason: String::new(),
                bytes: 0,
                ending: Ending::Late,
                check: Err(Corrupt::Unfinished),
                error_event: false,
            };
            let leaves = plan.leaves.unwrap_or(PATIENCE);
            let asked = self.ask(&plan, &mut connection, &mut outcome);
            if timeout(leaves, asked).await.is_err() && plan.leaves.is_some() {
                outcome.ending = Ending::Left;
            }
            outcome.ended = self.now();
            let goes_on = outcome.ending == Ending::Whole;
            // Nobody listens only when the trial has been given up.
            self.notes.send(outcome).ok();
            if !goes_on {
                return;
            }
            sleep(Duration::from_secs_f64(draw.between(0.0, 0.3))).await;
        }
    }

    async fn ask(&self, plan: &Plan, connection: &mut Option<Connection>, outcome: &mut Outcome) {
        let id = outcome.id.clone();
        let asked = async {
            // The router may close an idle connection at any time, which is no loss: then a new one is opened.
            if connection.as_ref().is_none_or(Connection::is_closed) {
                *connection = Some(Connection::open(self.address).await?);
            }
            let connection = connection.as_mut().ok_or("no connection")?;
            let mut headers = HeaderMap::new();
            headers.insert("content-type", HeaderValue::from_static("application/json"));
            headers.insert("x-sim-checksum", HeaderValue::from_static("1"));
            headers.insert("x-request-id", HeaderValue::try_from(&id)?);
            connection
                .send(Method::POST, "/v1/chat/completions", headers, plan.body(&id))
                .await
        };
        match asked.await {
            Ok(response) => read(response, plan, outcome).await,
            Err(error) => outcome.ending = Ending::Broken(error.to_string()),
        }
    }
}

async fn read(response: Response<Incoming>, plan: &Plan, outcome: &mut Outcome) {
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    outcome.status = Some(response.status().as_u16());
    outcome.reason = header("x-paddler-reason").unwrap_or_default().to_owned();
    let told = header("x-sim-digest").map(str::to_owned);
    let mut body = response.into_body();
    let mut all = Vec::new();
    let mut pauses = PAUSES;
    outcome.ending = loop {
        match body.frame().await {
            None => break Ending::Whole,
            Some(Err(error)) => break Ending::Broken(error.to_string()),
            Some(Ok(frame)) => all.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
        }
        outcome.bytes = all.len();
        if !plan.pause.is_zero() && pauses > 0 {
            pauses -= 1;
            sleep(plan.pause).await;
        }
    };
    outcome.check = match told {
        Some(told) if told == digest(&all) => Ok(()),
        Some(_) => Err(Corrupt::Altered),
        None => verify_stream(&all),
    };
    outcome.error_event = tells_error(&all);
}

/// Whether an event of a stream is an error.
fn tells_error(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter_map(|data| serde_json::from_str::<serde_json::Value>(data).ok())
        .any(|event| event.get("error").is_some_and(|error| !error.is_null()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_an_event_of_its_own_and_not_a_word_in_a_text() {
        assert!(tells_error(
            b"data: {\"a\":1}\n\ndata: {\"error\":{\"code\":502}}\n\n"
        ));
        assert!(!tells_error(
            b"data: {\"text\":\"\\\"error\\\": yes\"}\n\ndata: [DONE]\n\n"
        ));
    }
}
