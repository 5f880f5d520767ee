//! How do hundreds of agents speak?
//!
//! As `paddler agent` does: once a second, in requests of ten words, each of which is answered before the next one begins. Each
//! has an upstream of its own, under an address of its own of this machine; behind all of them is one engine.

use std::net::SocketAddr;
use std::time::Duration;

use paddler_benches::harness::Failure;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Between two words of an agent.
const BEAT: Duration = Duration::from_secs(1);

/// The words of a request.
const WORDS: u64 = 10;

/// Slots that each engine is said to have.
const SLOTS: u64 = 8;

/// What the agents say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// That all is as it was.
    None,
    /// Something new each time.
    EachSecond,
}

/// So many agents, for as long as this is there. `engine`: the port behind all of them; `model`: what it serves.
pub(crate) fn start(
    management: SocketAddr,
    many: usize,
    news: News,
    (engine, model): (u16, &'static str),
) -> JoinSet<Result<(), Failure>> {
    let mut speakers = JoinSet::new();
    for number in 0..many {
        // Not all at once.
        let first = Instant::now() + BEAT.mul_f64(number as f64 / many as f64);
        let words = Words {
            number,
            news,
            engine,
            model,
        };
        speakers.spawn(async move {
            sleep_until(first).await;
            speak(management, first, &words).await
        });
    }
    speakers
}

/// What one agent has to say.
#[derive(Debug)]
struct Words {
    number: usize,
    news: News,
    engine: u16,
    model: &'static str,
}

impl Words {
    fn message(&self, word: u64) -> Value {
        let busy = match self.news {
            News::None => 1,
            News::EachSecond => word % SLOTS,
        };
        let mut message = json!({
            "age_ms": 2,
            "report": {
                "health": "ready", "slots_total": SLOTS, "slots_busy": busy, "running": busy, "waiting": 0,
                "models": {"listed": [{"id": self.model}]},
            },
        });
        if word.is_multiple_of(WORDS) {
            let (row, place) = (self.number / 250, self.number % 250 + 1);
            message["version"] = 1.into();
            message["beat_ms"] = (BEAT.as_millis() as u64).into();
            message["upstream"] = json!({"url": format!("http://127.1.{row}.{place}:{}", self.engine)});
        }
        message
    }
}

async fn speak(management: SocketAddr, first: Instant, words: &Words) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(management).await?;
    let head = format!(
        "POST /api/v1/agents/gpu-{}/status HTTP/1.1\r\nhost: {management}\r\ntransfer-encoding: chunked\r\n\r\n",
        words.number
    );
    let mut next = first;
    for word in 0_u64.. {
        let message = format!("{}\n", words.message(word));
        let chunk = format!("{:x}\r\n{message}\r\n", message.len());
        let begins = word.is_multiple_of(WORDS);
        let bytes = if begins { format!("{head}{chunk}") } else { chunk };
        if let Err(error) = stream.write_all(bytes.as_bytes()).await {
            // What it was answered says why.
            let answer = answer(&mut stream).await;
            return Err(format!("{error} at word {word}: {answer:?}").into());
        }
        next += BEAT;
        sleep_until(next).await;
        if (word + 1).is_multiple_of(WORDS) {
            stream.write_all(b"0\r\n\r\n").await?;
            answer(&mut stream).await?;
        }
    }
    Ok(())
}

/// Reads an answer, which must be a good one.
async fn answer(stream: &mut TcpStream) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length:")?
                    .trim()
                    .parse()
                    .ok()
            });
            if body.len() >= length.unwrap_or(0) {
                let good = head.starts_with("HTTP/1.1 202");
                return if good { Ok(()) } else { Err(text.into()) };
            }
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(format!("the connection ends after {text:?}").into());
        }
    }
}
