//! What does a client see that hides nothing: each header, each byte, and how a connection ends?

use std::io::ErrorKind;
use std::time::Duration;

use paddler_engine::{Engine, EngineConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// No wait in these tests is meant to take this long.
pub(crate) const HANG: Duration = Duration::from_secs(10);

/// How a connection, or an answer, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The answer is whole; the connection stays.
    Whole,
    Eof,
    Reset,
}

#[derive(Debug)]
pub(crate) struct Answer {
    /// Everything before the body, as it was sent. Empty if nothing was.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) end: End,
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.head
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines
            .into_iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The data of each event of a stream.
    pub(crate) fn events(&self) -> Vec<&str> {
        let blocks = self.text().split("\n\n").filter(|block| !block.is_empty());
        blocks
            .map(|block| block.split_once("data: ").unwrap().1)
            .collect()
    }
}

pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(engine: &Engine) -> Self {
        Self {
            stream: TcpStream::connect(engine.addr()).await.unwrap(),
            buffer: Vec::new(),
        }
    }

    pub(crate) async fn send(&mut self, method: &str, path: &str, headers: &str, body: &str) {
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: engine\r\ncontent-length: {length}\r\n{headers}\r\n");
        self.stream
            .write_all(format!("{head}{body}").as_bytes())
            .await
            .unwrap();
    }

    pub(crate) async fn post(&mut self, path: &str, headers: &str, body: &Value) {
        self.send(
            "POST",
            path,
            &format!("content-type: application/json\r\n{headers}"),
            &body.to_string(),
        )
        .await;
    }

    /// Writes exactly this.
    pub(crate) async fn write(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads more; `Whole` if there was more.
    pub(crate) async fn fill(&mut self) -> End {
        match timeout(HANG, self.stream.read_buf(&mut self.buffer))
            .await
            .expect("the engine sends nothing")
        {
            Ok(0) => End::Eof,
            Ok(_) => End::Whole,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => End::Reset,
            Err(error) => panic!("{error}"),
        }
    }

    async fn head(&mut self) -> Result<String, End> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                return Ok(String::from_utf8(head).unwrap());
            }
            match self.fill().await {
                End::Whole => {}
                end => return Err(end),
            }
        }
    }

    /// Moves `length` bytes into `body`, or as many as come.
    async fn take(&mut self, length: usize, body: &mut Vec<u8>) -> End {
        while self.buffer.len() < length {
            let end = self.fill().await;
            if end != End::Whole {
                body.append(&mut self.buffer);
                return end;
            }
        }
        body.extend(self.buffer.drain(..length));
        End::Whole
    }

    async fn chunks(&mut self, body: &mut Vec<u8>) -> End {
        loop {
            let Some(line) = self.buffer.windows(2).position(|window| window == b"\r\n") else {
                match self.fill().await {
                    End::Whole => continue,
                    end => return end,
                }
            };
            let size = usize::from_str_radix(std::str::from_utf8(&self.buffer[..line]).unwrap(), 16).unwrap();
            self.buffer.drain(..line + 2);
            let end = self.take(size, body).await;
            if end != End::Whole {
                return end;
            }
            let end = self.take(2, &mut Vec::new()).await;
            if size == 0 || end != End::Whole {
                return end;
            }
        }
    }

    /// The next answer.
    pub(crate) async fn answer(&mut self) -> Answer {
        let head = match self.head().await {
            Ok(head) => head,
            Err(end) => {
                return Answer {
                    head: String::new(),
                    body: Vec::new(),
                    end,
                };
            }
        };
        let mut answer = Answer {
            head,
            body: Vec::new(),
            end: End::Whole,
        };
        let mut body = Vec::new();
        answer.end = match answer.header("content-length") {
            Some(length) => self.take(length.parse().unwrap(), &mut body).await,
            None => self.chunks(&mut body).await,
        };
        answer.body = body;
        answer
    }

    /// Reads until the connection ends: how it did, and what still came.
    pub(crate) async fn rest(&mut self) -> (End, Vec<u8>) {
        loop {
            let end = self.fill().await;
            if end != End::Whole {
                return (end, std::mem::take(&mut self.buffer));
            }
        }
    }

    /// Reads until this many bytes are there that no answer has taken.
    pub(crate) async fn fill_to(&mut self, length: usize) -> &[u8] {
        while self.buffer.len() < length {
            assert_eq!(self.fill().await, End::Whole);
        }
        &self.buffer
    }
}

pub(crate) async fn get(engine: &Engine, path: &str) -> Answer {
    let mut client = Client::connect(engine).await;
    client.send("GET", path, "", "").await;
    client.answer().await
}

pub(crate) async fn post(engine: &Engine, path: &str, body: &Value) -> Answer {
    post_with(engine, path, "", body).await
}

pub(crate) async fn post_with(engine: &Engine, path: &str, headers: &str, body: &Value) -> Answer {
    let mut client = Client::connect(engine).await;
    client.post(path, headers, body).await;
    client.answer().await
}

/// A connection on which a request is under way that will not end by itself for hours.
pub(crate) async fn endless(engine: &Engine, path: &str, mut body: Value) -> Client {
    body["max_tokens"] = json!(1_000);
    let mut client = Client::connect(engine).await;
    client.post(path, "", &body).await;
    client
}

pub(crate) fn chat(text: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": text }], "max_tokens": 8 })
}

/// A llama.cpp engine whose tokens take so long that a task never ends by itself.
pub(crate) fn slow(config: EngineConfig) -> EngineConfig {
    config
        .prefill_tokens_per_second(f64::INFINITY)
        .decode_tokens_per_second(0.001)
}

pub(crate) async fn start(config: EngineConfig) -> Engine {
    Engine::start(config).await.unwrap()
}

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    timeout(HANG, async {
        while !holds() {
            sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("it never became so: {what}"));
}

/// The value of a metric whose line begins with `series`.
pub(crate) fn metric(page: &str, series: &str) -> Option<f64> {
    let line = page.lines().find(|line| line.starts_with(series))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// The names of the families on a page of metrics.
pub(crate) fn families(page: &str) -> Vec<&str> {
    page.lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect()
}
