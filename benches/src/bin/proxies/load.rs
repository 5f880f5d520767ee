//! Who asks, how much at once, and what counts as answered?

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use paddler_benches::harness::Failure;
use paddler_benches::harness::costless::{ANSWER, MARK, MODEL};
use paddler_benches::harness::draw::Draw;
use paddler_benches::harness::wire;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// The longest that there may be nothing of an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The bytes of a small request, head and body.
const SMALL: usize = 900;

/// The bytes of a large request's body.
const LARGE: usize = 1 << 20;

/// Whom the requests for the first byte's time come from, one at a time each.
const ASKERS: usize = 16;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Small chats, each connection one after another.
    Plain,
    /// Streams of events.
    Stream,
    /// Chats of 1 MiB.
    Large,
}

impl Workload {
    pub(crate) const ALL: [Self; 3] = [Self::Plain, Self::Stream, Self::Large];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Stream => "stream",
            Self::Large => "large",
        }
    }

    /// What is counted.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Plain | Self::Large => "request",
            Self::Stream => "event",
        }
    }

    /// A whole request, as it goes over the wire.
    pub(crate) fn request(self, address: SocketAddr) -> Vec<u8> {
        let stream = self == Self::Stream;
        let start = format!(
            r#"{{"model":"{MODEL}","stream":{stream},"max_tokens":100000,"messages":[{{"role":"user","content":""#
        );
        let end = r#""}]}"#;
        let head = |length: usize| {
            format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nuser-agent: bench\r\naccept: */*\r\n\
                 content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
            )
        };
        let length = match self {
            Self::Large => LARGE,
            Self::Plain | Self::Stream => SMALL - head(SMALL).len(),
        };
        let words = r#"Say in one word how it goes, and why \u2014 or \"nothing\".\n"#;
        let mut text = words.repeat(length / words.len() + 1);
        // An escape that is cut is none: the last words are spaces.
        let room = length - start.len() - end.len();
        text.truncate(room / words.len() * words.len());
        let spaces = " ".repeat(room - text.len());
        format!("{}{start}{text}{spaces}{end}", head(length)).into_bytes()
    }
}

/// What has been done so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Requests answered as they should be, or events.
    pub(crate) done: AtomicU64,
    /// Answers that were not as they should be, and connections that broke.
    pub(crate) errors: AtomicU64,
    /// Streams that have begun.
    begun: AtomicU64,
}

/// Requests that go on until this is dropped.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) counts: Arc<Counts>,
    _askers: JoinSet<()>,
}

impl Load {
    /// So many askers at once, all of whom have begun, or failed, when this is here.
    pub(crate) async fn start(
        workload: Workload,
        address: SocketAddr,
        askers: usize,
        over: Duration,
    ) -> Self {
        let counts = Arc::new(Counts::default());
        let request: Arc<[u8]> = workload.request(address).into();
        let mut tasks = JoinSet::new();
        for number in 0..askers {
            let (counts, request) = (counts.clone(), request.clone());
            // Begun evenly over this time, so that events do not all fall together.
            let begin = over.mul_f64(number as f64 / askers.max(1) as f64);
            tasks.spawn(async move {
                sleep(begin).await;
                if workload == Workload::Stream {
                    if read_events(address, &request, &counts).await.is_err() {
                        counts.errors.fetch_add(1, Relaxed);
                    }
                } else {
                    ask_on(address, &request, &counts).await;
                }
            });
        }
        if workload == Workload::Stream {
            let until = Instant::now() + over + PATIENCE;
            let begun = || counts.begun.load(Relaxed) + counts.errors.load(Relaxed);
            while begun() < askers as u64 && Instant::now() < until {
                sleep(Duration::from_millis(10)).await;
            }
            counts
                .errors
                .fetch_add((askers as u64).saturating_sub(begun()), Relaxed);
        }
        Self {
            counts,
            _askers: tasks,
        }
    }
}

/// Asks one after another on a connection, and on a new one where it closes, until so much fails that it is no use.
async fn ask_on(address: SocketAddr, request: &[u8], counts: &Counts) {
    let mut bytes = Vec::with_capacity(4 << 10);
    for failures in 0..100 {
        if failures > 0 {
            counts.errors.fetch_add(1, Relaxed);
            sleep(Duration::from_millis(10)).await;
        }
        while let Ok(()) = connection(address, request, counts, &mut bytes).await {}
    }
}

/// One connection's requests, until its end is announced.
async fn connection(
    address: SocketAddr,
    request: &[u8],
    counts: &Counts,
    bytes: &mut Vec<u8>,
) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    loop {
        stream.write_all(request).await?;
        bytes.clear();
        let head = loop {
            if timeout(PATIENCE, stream.read_buf(bytes)).await?? == 0 {
                return Err("the connection ends within an answer".into());
            }
            if let Some((head, length)) = wire::whole(bytes) {
                check(bytes, length)?;
                break head;
            }
        };
        counts.done.fetch_add(1, Relaxed);
        if head.closes {
            return Ok(());
        }
    }
}

fn check(bytes: &[u8], length: usize) -> Result<(), Failure> {
    if wire::is_ok(bytes) && length == ANSWER.len() {
        return Ok(());
    }
    Err(format!("not the answer: {}", String::from_utf8_lossy(bytes)).into())
}

/// Reads a stream and counts its events. It ends in an error only: nobody waits for the end.
async fn read_events(address: SocketAddr, request: &[u8], counts: &Counts) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(request).await?;
    let mut bytes = vec![0; 16 << 10];
    let mut begun = false;
    loop {
        let read = timeout(PATIENCE, stream.read(&mut bytes)).await??;
        if read == 0 {
            return Err("a stream ends".into());
        }
        if !begun {
            if !wire::is_ok(&bytes[..read]) {
                return Err("a stream is refused".into());
            }
            begun = true;
            counts.begun.fetch_add(1, Relaxed);
        }
        let events = bytes[..read].iter().filter(|byte| **byte == MARK).count();
        counts.done.fetch_add(events as u64, Relaxed);
    }
}

/// Whether this address gives the answer that the engine gives; the reason where it does not.
pub(crate) async fn answers(address: SocketAddr) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&Workload::Plain.request(address)).await?;
    let mut bytes = Vec::new();
    loop {
        if timeout(PATIENCE, stream.read_buf(&mut bytes)).await?? == 0 {
            return Err("the connection ends within an answer".into());
        }
        if let Some((_, length)) = wire::whole(&bytes) {
            return check(&bytes, length);
        }
    }
}

/// Times until the first byte of small chats that come at random, so many a second whether or not others are answered.
pub(crate) async fn first_bytes(
    address: SocketAddr,
    rate: f64,
    time: Duration,
    seed: u64,
) -> Result<Vec<Duration>, Failure> {
    let mut askers = JoinSet::new();
    for number in 0..ASKERS {
        let draw = Draw::new(seed).part(number as u64);
        // Threads of their own: a runtime's timers go by the millisecond.
        askers.spawn_blocking(move || first_bytes_of_one(address, rate / ASKERS as f64, time, draw));
    }
    let mut times = Vec::new();
    while let Some(of_one) = askers.join_next().await {
        times.extend(of_one??);
    }
    Ok(times)
}

fn first_bytes_of_one(
    address: SocketAddr,
    rate: f64,
    time: Duration,
    mut draw: Draw,
) -> Result<Vec<Duration>, Failure> {
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = Workload::Plain.request(address);
    let (mut times, mut bytes, mut buffer) = (Vec::new(), Vec::new(), [0; 4 << 10]);
    let end = Instant::now() + time;
    let mut due = Instant::now();
    loop {
        due += Duration::from_secs_f64(-(1.0 - draw.unit()).ln() / rate);
        if due >= end {
            return Ok(times);
        }
        let early = due.saturating_duration_since(Instant::now());
        // Waiting for the answer before counts, oversleeping does not.
        let began = if early.is_zero() {
            due
        } else {
            std::thread::sleep(early);
            Instant::now()
        };
        stream.write_all(&request)?;
        bytes.clear();
        let mut first = None;
        let closes = loop {
            let read = stream.read(&mut buffer)?;
            first.get_or_insert_with(|| began.elapsed());
            bytes.extend_from_slice(&buffer[..read]);
            if let Some((head, length)) = wire::whole(&bytes) {
                check(&bytes, length)?;
                break head.closes;
            }
            if read == 0 {
                return Err("the connection ends within an answer".into());
            }
        };
        times.extend(first);
        if closes {
            stream = std::net::TcpStream::connect(address)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_of_the_size_that_is_told_and_sound() {
        let address = SocketAddr::from(([127, 0, 0, 1], 12_345));
        for (workload, whole, body) in [
            (Workload::Plain, Some(SMALL), None),
            (Workload::Stream, Some(SMALL), None),
            (Workload::Large, None, Some(LARGE)),
        ] {
            let bytes = workload.request(address);
            let (head, length) = wire::whole(&bytes).unwrap();
            // The head says how long the body is, in one digit less or more.
            assert!(
                whole.is_none_or(|whole| bytes.len().abs_diff(whole) <= 1),
                "{}",
                bytes.len()
            );
            assert!(body.is_none_or(|body| length == body));
            let read: serde_json::Value = serde_json::from_slice(&bytes[head.end..]).unwrap();
            assert_eq!(read["model"], MODEL);
            assert_eq!(read["stream"], workload == Workload::Stream);
        }
    }
}
