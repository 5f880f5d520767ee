//! How do spans get to a collector of OpenTelemetry?
//!
//! By OTLP over HTTP, with JSON, in batches. What is to be sent waits in a bounded queue; a collector that takes nothing, or not
//! as fast as it comes, costs spans, which are counted, and neither memory nor time of a request.

mod spans;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::spans::{Spans, Wall};
use crate::config;
use crate::forward::{Body, BoxError, chain};
use crate::observe::{Telemetry, Trail};
use crate::upstream::http::{HttpConnect, HttpOptions};
use crate::upstream::{Connect, Upstream, UpstreamSpec};

/// Requests whose spans wait to be sent. More are lost.
const WAITING: usize = 2_048;

/// Requests whose spans are sent at once.
const BATCH: usize = 256;

/// How long spans wait for others, so that they go together.
const GATHER: Duration = Duration::from_secs(1);

/// How long the collector may take for a batch.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a batch is sent that the collector cannot take now.
const ATTEMPTS: u32 = 4;

/// The longest wait between two of them, whatever the collector asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The longest answer that is read.
const LONGEST_ANSWER: usize = 64 << 10;

/// The most headers that are sent besides our own.
const MOST_HEADERS: usize = 64;

/// Headers that are about the connection or the body.
const FRAMING: [HeaderName; 4] = [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING];

/// How long what waits at the end may take.
const LAST: Duration = Duration::from_secs(3);

#[derive(Debug)]
enum Message {
    /// The spans of a request.
    Spans(Vec<Value>),
    /// What came before is to be sent now.
    Flush(oneshot::Sender<()>),
}

/// Sends the spans of requests to a collector: a [`Telemetry`]. A trace that the caller records is gone on with, one that he does not
/// is not, and of requests without one a share is made into traces.
///
/// | span | kind | from, to | says |
/// |---|---|---|---|
/// | `chat MODEL` | server | arrival, last byte | `gen_ai.operation.name` (`chat`, `text_completion`, `embeddings`, or our own word for others), `gen_ai.request.model`, `gen_ai.usage.input_tokens` and `output_tokens` where answers are read for them, `http.request.method`, `url.path`, `http.response.status_code`, `client.address`, `error.type`: the word of a refusal; `paddler.request.id`, `paddler.client`, `paddler.upstream`, `paddler.end`; the event `first byte` |
/// | `find a place` | internal | read, placed | |
/// | `chat MODEL` | client | sent, last byte or failure | of each attempt: `paddler.upstream`, `http.request.resend_count`, `error.type` |
///
/// Nothing of prompts and answers is in any of them. An upstream is told that it belongs to the span of its attempt. The
/// variables of OpenTelemetry's own libraries (`OTEL_...`) are not read: what leaves this machine is said in one place.
#[derive(Debug)]
pub struct Otlp {
    /// Trace ids whose lower 56 bits are below this are recorded.
    below: u64,
    to: Sender<Message>,
    lost: Arc<AtomicU64>,
    headers: Arc<ArcSwap<HeaderMap>>,
    /// Until it is followed.
    exporter: Mutex<Option<Exporter>>,
}

impl Otlp {
    /// By this config. Nothing is sent before it [runs](Self::run).
    ///
    /// # Errors
    /// The endpoint is none, or the file with the headers cannot be read.
    pub fn open(config: &config::Otlp) -> io::Result<Self> {
        let (origin, path) = config.split();
        let bad = |error: BoxError| io::Error::new(io::ErrorKind::InvalidInput, error);
        let spec = UpstreamSpec::new("otlp", origin).map_err(|error| bad(error.into()))?;
        let options = HttpOptions {
            max_idle: 1,
            ..HttpOptions::default()
        };
        let upstream = HttpConnect::new(options).connect(&spec).map_err(bad)?;
        let uri = format!("{path}/v1/traces").parse::<Uri>();
        let headers = match &config.headers_file {
            Some(file) => Self::read_headers(file)?,
            None => HeaderMap::new(),
        };
        let headers = Arc::new(ArcSwap::from_pointee(headers));
        let (to, messages) = mpsc::channel(WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let exporter = Exporter {
            endpoint: config.endpoint.clone(),
            upstream,
            uri: uri.map_err(|error| bad(error.into()))?,
            headers: headers.clone(),
            messages,
            lost: lost.clone(),
            fails: false,
        };
        Ok(Self {
            below: (config.sample.clamp(0.0, 1.0) * (1_u64 << 56) as f64) as u64,
            to,
            lost,
            headers,
            exporter: Mutex::new(Some(exporter)),
        })
    }

    /// Reads headers from a file: `name: value` a line; what begins with `#` is a remark. At most 64.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is no header: with its place, and without what stands there.
    pub fn read_headers(file: &Path) -> io::Result<HeaderMap> {
        let text = std::fs::read_to_string(file);
        let text = text
            .map_err(|error| io::Error::other(format!("{} (otlp.headers_file): {error}", file.display())))?;
        let lines = text.lines().enumerate();
        let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        let mut headers = HeaderMap::new();
        for (number, line) in lines {
            let pair = line.split_once(':').and_then(|(name, value)| {
                let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
                let mut value = HeaderValue::from_str(value.trim()).ok()?;
                value.set_sensitive(true);
                Some((name, value))
            });
            // What is in there may be secret, so it is not repeated.
            let (name, value) = pair.ok_or_else(|| {
                let (file, line) = (file.display(), number + 1);
                io::Error::other(format!(
                    "{file}:{line} (otlp.headers_file): this is no header; write `name: value`"
                ))
            })?;
            let (file, line) = (file.display(), number + 1);
            let wrong = |what: &str| io::Error::other(format!("{file}:{line} (otlp.headers_file): {what}"));
            if FRAMING.contains(&name) {
                return Err(wrong("this one is for the connection, and set here"));
            }
            if headers.len() == MOST_HEADERS {
                return Err(wrong("more headers than are sent: 64"));
            }
            headers.append(name, value);
        }
        Ok(headers)
    }

    /// Sends these headers from now on, besides our own.
    pub fn set_headers(&self, headers: HeaderMap) {
        self.headers.store(Arc::new(headers));
    }

    /// What sends the spans, for ever: to be spawned. `None`: it was taken before.
    pub fn run(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let exporter = self
            .exporter
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        exporter.map(Exporter::run)
    }

    /// Done when all that has ended until now is sent, or some seconds are over.
    pub async fn flush(&self) {
        let (tell, told) = oneshot::channel();
        // It may have much to send, which is when this matters.
        let flushed = async {
            if self.to.send(Message::Flush(tell)).await.is_ok() {
                told.await.ok();
            }
        };
        timeout(LAST, flushed).await.ok();
    }
}

impl Telemetry for Otlp {
    fn traces(&self, parent: Option<bool>, trace_id: u128) -> bool {
        // The lower 56 bits are where chance is, also in ids of others (W3C Trace Context 2).
        let drawn = (trace_id as u64) & ((1 << 56) - 1);
        parent.unwrap_or(drawn < self.below)
    }

    fn ended(&self, trail: &Trail) {
        let (Some(span), Some(now)) = (&trail.span, trail.ended) else {
            return;
        };
        let wall = Wall::at(now);
        let spans = Spans { trail, span, wall }.all();
        let many = spans.len() as u64;
        if self.to.try_send(Message::Spans(spans)).is_err() {
            self.lost.fetch_add(many, Relaxed);
        }
    }

    fn lost(&self) -> Vec<(&'static str, u64)> {
        vec![("otlp", self.lost.load(Relaxed))]
    }
}

#[derive(Debug)]
struct Exporter {
    endpoint: String,
    upstream: Arc<dyn Upstream>,
    uri: Uri,
    headers: Arc<ArcSwap<HeaderMap>>,
    messages: Receiver<Message>,
    lost: Arc<AtomicU64>,
    fails: bool,
}

/// What has become of a batch.
enum Delivery {
    /// It is there, but for so many spans.
    Taken { rejected: u64 },
    /// It may be taken later: after this time, if the collector has said so.
    Later(Option<Duration>, String),
    /// It never will be.
    Never(String),
}

impl Exporter {
    async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        while self.messages.recv_many(&mut batch, BATCH).await > 0 {
            let hurries = |message: &Message| matches!(message, Message::Flush(_));
            if batch.len() < BATCH && !batch.iter().any(hurries) {
                let ends = Instant::now() + GATHER;
                while batch.len() < BATCH
                    && !batch.last().is_some_and(hurries)
                    && let Ok(Some(more)) = timeout_at(ends, self.messages.recv()).await
                {
                    batch.push(more);
                }
            }
            let (mut spans, mut asked) = (Vec::new(), Vec::new());
            for message in batch.drain(..) {
                match message {
                    Message::Spans(of_one) => spans.extend(of_one),
                    Message::Flush(tell) => asked.push(tell),
                }
            }
            if !spans.is_empty() {
                self.export(spans).await;
            }
            for tell in asked {
                // Whoever asked may not want to know any more.
                tell.send(()).ok();
            }
        }
    }

    async fn export(&mut self, spans: Vec<Value>) {
        let many = spans.len() as u64;
        let body = bytes::Bytes::from(request(spans).to_string());
        for attempt in 1..=ATTEMPTS {
            let why = match self.send(body.clone()).await {
                Delivery::Taken { rejected } => {
                    self.lost.fetch_add(rejected.min(many), Relaxed);
                    if self.fails {
                        tracing::info!(endpoint = self.endpoint, "spans are taken again");
                    }
                    self.fails = false;
                    return;
                }
                Delivery::Later(after, _) if attempt < ATTEMPTS => {
                    let wait = after.unwrap_or(GATHER * 2_u32.pow(attempt - 1));
                    sleep(wait.min(LONGEST_WAIT)).await;
                    continue;
                }
                Delivery::Later(_, why) | Delivery::Never(why) => why,
            };
            self.lost.fetch_add(many, Relaxed);
            // Once: a collector that is gone must not fill the log.
            if !self.fails {
                tracing::warn!(
                    endpoint = self.endpoint,
                    why,
                    "spans are not taken; they are lost until they are"
                );
            }
            self.fails = true;
            return;
        }
    }

    async fn send(&self, body: bytes::Bytes) -> Delivery {
        let mut request = Request::new(Body::full(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = HeaderMap::clone(&self.headers.load());
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
        let call = async {
            let response = self.upstream.call(request).await?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, LONGEST_ANSWER).collect().await?.to_bytes();
            Ok::<_, BoxError>((head, body))
        };
        let (head, body) = match timeout(PATIENCE, call).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Delivery::Later(None, chain(&*error)),
            Err(_) => return Delivery::Later(None, "no answer in time".to_owned()),
        };
        let status = head.status;
        if status.is_success() {
            let rejected = rejected(&body);
            return Delivery::Taken { rejected };
        }
        let after = head
            .headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        match status.as_u16() {
            429 | 502 | 503 | 504 => {
                Delivery::Later(after.map(Duration::from_secs), format!("it answers {status}"))
            }
            _ => Delivery::Never(format!("it answers {status}")),
        }
    }
}

/// How many spans of a batch that it has taken a collector did not want.
fn rejected(answer: &[u8]) -> u64 {
    let answer = serde_json::from_slice::<Value>(answer).unwrap_or_default();
    let rejected = &answer["partialSuccess"]["rejectedSpans"];
    // 64-bit numbers are text in this JSON, and some write a number all the same.
    let text = rejected.as_str().and_then(|text| text.parse().ok());
    text.or(rejected.as_u64()).unwrap_or(0)
}

/// Spans, and whose they are.
fn request(spans: Vec<Value>) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let text = |key: &str, text: &str| json!({ "key": key, "value": { "stringValue": text } });
    json!({
        "resourceSpans": [{
            "resource": { "attributes": [text("service.name", "paddler"), text("service.version", version)] },
            "scopeSpans": [{ "scope": { "name": "paddler", "version": version }, "spans": spans }],
        }],
    })
}

#[cfg(test)]
mod tests;
