//! How are thousands of idle streams held open?

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Failure;

/// How many streams are being opened at once.
const AT_ONCE: usize = 64;

/// The longest that anything may take to come to an end: thousands of tasks are given up at once, on a busy machine.
pub const END: Duration = Duration::from_secs(60);

/// Streams that wait for their next event. Dropped, they are let go.
#[derive(Debug)]
pub struct IdleStreams {
    counts: Arc<Counts>,
    _tasks: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Counts {
    open: AtomicUsize,
    dropped: AtomicUsize,
}

impl IdleStreams {
    /// Opens so many, each with this body, and waits for the first event of each. One that ends before it is let go counts as
    /// dropped.
    ///
    /// # Errors
    /// When too many are asked for.
    pub async fn open(many: usize, address: SocketAddr, body: &str) -> Result<Self, Failure> {
        let text: Arc<str> = request(address, body, "").into();
        let (places, counts) = (Arc::new(Semaphore::new(AT_ONCE)), Arc::<Counts>::default());
        let mut tasks = JoinSet::new();
        for _ in 0..many {
            let place = places.clone().acquire_owned().await?;
            let (text, counts) = (text.clone(), counts.clone());
            tasks.spawn(async move {
                if let Ok(stream) = first_bytes(address, &text).await {
                    counts.open.fetch_add(1, Relaxed);
                    drop(place);
                    until_its_end(stream).await;
                }
                counts.dropped.fetch_add(1, Relaxed);
            });
        }
        // All places are free again: the last have their first bytes, or have failed.
        drop(places.acquire_many(u32::try_from(AT_ONCE)?).await?);
        Ok(Self {
            counts,
            _tasks: tasks,
        })
    }

    /// How many have been opened.
    #[must_use]
    pub fn open_ones(&self) -> usize {
        self.counts.open.load(Relaxed)
    }

    /// How many have failed, or have ended.
    #[must_use]
    pub fn dropped(&self) -> usize {
        self.counts.dropped.load(Relaxed)
    }
}

/// A chat that is answered in so many tokens, one after another.
#[must_use]
pub fn chat(model: &str, tokens: u64) -> String {
    format!(
        r#"{{"model":"{model}","stream":true,"max_tokens":{tokens},"messages":[{{"role":"user","content":"Go on."}}]}}"#
    )
}

/// A whole request for it, with these lines of headers besides.
#[must_use]
pub fn request(address: SocketAddr, body: &str, headers: &str) -> String {
    let length = body.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n{headers}\r\n{body}"
    )
}

/// How an answer begins that is no refusal.
const OK: &[u8] = b"HTTP/1.1 200";

/// Asks, and reads the head and the first event.
async fn first_bytes(address: SocketAddr, text: &str) -> Result<TcpStream, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(text.as_bytes()).await?;
    let mut got = Vec::new();
    while !got.windows(6).any(|window| window == b"data: ") {
        if timeout(END, stream.read_buf(&mut got)).await?? == 0 {
            return Err("the stream ended before it began".into());
        }
        let status = &got[..got.len().min(OK.len())];
        if !OK.starts_with(status) {
            return Err(String::from_utf8_lossy(&got).into_owned().into());
        }
    }
    Ok(stream)
}

async fn until_its_end(mut stream: TcpStream) {
    let mut buffer = [0; 512];
    while stream.read(&mut buffer).await.is_ok_and(|length| length > 0) {}
}
