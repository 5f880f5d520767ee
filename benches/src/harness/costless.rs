//! What stands behind proxies, cheap enough never to be what is measured?
//!
//! It answers at once and reads no more of a request than it must. Chats get a small answer, or a stream of events at an even
//! pace; paths that routers ask about an engine get what vLLM says there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::Failure;
use super::wire::{self, Framing};
use crate::pages::Page;

/// The one model that is served.
pub const MODEL: &str = "bench";

/// Stands once in each event and nowhere else in a stream.
pub const MARK: u8 = b'~';

/// The bytes of an event.
const EVENT: usize = 208;

/// The answer to a chat.
pub const ANSWER: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1764500000,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"All is well."},"finish_reason":"stop"}],"usage":{"prompt_tokens":200,"completion_tokens":4,"total_tokens":204}}"#;

const MODELS: &str = r#"{"object":"list","data":[{"id":"bench","object":"model","created":1764500000,"owned_by":"vllm","root":"bench","parent":null,"max_model_len":1000000,"permission":[]}]}"#;

/// How much of a body is looked at.
const LOOKED_AT: usize = 16 << 10;

/// How streams go.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Between two events.
    pub every: Duration,
    /// Events after which one ends: nobody who forgets one has it for ever.
    pub events: u64,
}

/// An engine. Dropped, it is gone with all its connections.
#[derive(Debug)]
pub struct Engine {
    /// Where it listens.
    pub address: SocketAddr,
    asked: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Engine {
    /// Starts one on a free port of this machine.
    ///
    /// # Errors
    /// When there is none.
    pub async fn start(pace: Pace) -> Result<Self, Failure> {
        Self::start_at(Ipv4Addr::LOCALHOST.into(), pace).await
    }

    /// Starts one on a free port of this address.
    ///
    /// # Errors
    /// When there is none.
    pub async fn start_at(address: IpAddr, pace: Pace) -> Result<Self, Failure> {
        let listener = TcpListener::bind((address, 0)).await?;
        let address = listener.local_addr()?;
        let asked = Arc::new(AtomicU64::new(0));
        let count = asked.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let count = count.clone();
                connections.spawn(async move {
                    // Whoever asks sees how its connection ends, and reports it.
                    drop(serve(stream, pace, &count).await);
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self {
            address,
            asked,
            _tasks: tasks,
        })
    }

    /// How often it was asked for its metrics.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked.load(Relaxed)
    }
}

async fn serve(mut stream: TcpStream, pace: Pace, asked: &AtomicU64) -> Result<(), std::io::Error> {
    stream.set_nodelay(true)?;
    let mut bytes = Vec::with_capacity(64 << 10);
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{ANSWER}",
        ANSWER.len()
    );
    loop {
        bytes.clear();
        let head = loop {
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
            if let Some(head) = wire::head(&bytes) {
                break head;
            }
        };
        read_body(&mut stream, &mut bytes, head).await?;
        if bytes.starts_with(b"POST /v1/chat/completions") {
            if is_streamed(&bytes[head.end..]) {
                send_events(&mut stream, pace).await?;
            } else {
                stream.write_all(answer.as_bytes()).await?;
            }
        } else {
            let path = bytes.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
            asked.fetch_add(u64::from(path == b"/metrics"), Relaxed);
            stream.write_all(answer_at(path).as_bytes()).await?;
        }
    }
}

/// Reads the rest of a body, and keeps its beginning.
async fn read_body(
    stream: &mut TcpStream,
    bytes: &mut Vec<u8>,
    head: wire::Head,
) -> Result<(), std::io::Error> {
    match head.framing {
        Framing::Length(length) => {
            let mut left = (head.end + length).saturating_sub(bytes.len());
            while left > 0 {
                bytes.truncate(head.end + LOOKED_AT);
                bytes.reserve(left.min(256 << 10));
                let read = stream.read_buf(bytes).await?;
                if read == 0 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                left = left.saturating_sub(read);
            }
        }
        Framing::Chunked => {
            while wire::chunked(&bytes[head.end..]).is_none() {
                if stream.read_buf(bytes).await? == 0 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
    Ok(())
}

/// Whether a body asks for a stream, however it is spaced.
fn is_streamed(body: &[u8]) -> bool {
    const KEY: &[u8] = b"\"stream\":";
    let body = &body[..body.len().min(LOOKED_AT)];
    let place = body.windows(KEY.len()).position(|window| window == KEY);
    place.is_some_and(|place| body[place + KEY.len()..].trim_ascii_start().starts_with(b"true"))
}

async fn send_events(stream: &mut TcpStream, pace: Pace) -> Result<(), std::io::Error> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
    let event = event();
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    stream.write_all(format!("{head}{chunk}").as_bytes()).await?;
    let mut ticks = interval(pace.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    ticks.tick().await;
    let mut gone = [0; 1];
    for _ in 1..pace.events {
        tokio::select! {
            _ = ticks.tick() => stream.write_all(chunk.as_bytes()).await?,
            // Nobody sends anything meanwhile: the asker has left.
            _ = stream.read(&mut gone) => return Err(std::io::ErrorKind::ConnectionReset.into()),
        }
    }
    stream.write_all(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n").await
}

/// An event as vLLM sends it, of 208 bytes.
#[must_use]
pub fn event() -> String {
    let start = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764500000,"model":"bench","choices":[{"index":0,"delta":{"content":""#;
    let end = "~\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
    let text = "a".repeat(EVENT.saturating_sub(start.len() + end.len()));
    format!("{start}{text}{end}")
}

/// What it says about itself at a path: status, kind and body.
#[must_use]
pub fn about(path: &[u8]) -> (u16, &'static str, &'static str) {
    match path {
        b"/v1/models" => (200, "application/json", MODELS),
        b"/metrics" => (
            200,
            "text/plain; version=1.0.0; charset=utf-8",
            Page::VLLM_IDLE.body(),
        ),
        b"/version" => (200, "application/json", r#"{"version":"0.32.0"}"#),
        b"/health" | b"/ping" => (200, "text/plain", ""),
        _ => (404, "application/json", r#"{"detail":"Not Found"}"#),
    }
}

fn answer_at(path: &[u8]) -> String {
    let (status, kind, body) = about(path);
    let reason = if status == 200 { "OK" } else { "Not Found" };
    format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_of_the_size_that_is_told_and_has_one_mark() {
        let event = event();
        assert_eq!(event.len(), EVENT);
        assert_eq!(event.bytes().filter(|byte| *byte == MARK).count(), 1);
        assert!(!ANSWER.as_bytes().contains(&MARK));
    }

    #[test]
    fn a_stream_is_known_however_it_is_spaced() {
        assert!(is_streamed(br#"{"stream":true}"#));
        assert!(is_streamed(br#"{"stream": true, "n": 1}"#));
        assert!(!is_streamed(br#"{"stream":false}"#));
        assert!(!is_streamed(br#"{"model":"true"}"#));
    }
}
