//! What does a client see that hides nothing: each header, each byte, and how a connection ends?

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// No wait in these tests is meant to take this long.
pub(crate) const HANG: Duration = Duration::from_secs(20);

/// How an answer, or a connection, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// As its framing says; the connection stays.
    Whole,
    Eof,
    Reset,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) end: End,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn reason(&self) -> &str {
        self.header("x-paddler-reason").unwrap_or_default()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        Self {
            stream: TcpStream::connect(addr).await.unwrap(),
            buffer: Vec::new(),
        }
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        timeout(HANG, self.stream.write_all(bytes.as_ref()))
            .await
            .expect("nothing is taken")
            .unwrap();
    }

    /// Closes its direction, and may read on.
    pub(crate) async fn says_no_more(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Writes to one who may have gone.
    pub(crate) async fn try_write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.ok();
    }

    /// Whether bytes of an answer are here.
    pub(crate) async fn has_answer(&mut self) -> bool {
        let mut byte = [0];
        let look = timeout(Duration::from_millis(1), self.stream.peek(&mut byte)).await;
        !self.buffer.is_empty() || look.is_ok_and(|look| look.is_ok_and(|bytes| bytes > 0))
    }

    /// Sends a request with these header lines, each with its end.
    pub(crate) async fn send(&mut self, method: &str, path: &str, headers: &str, body: impl AsRef<[u8]>) {
        let body = body.as_ref();
        let length = if body.is_empty() {
            String::new()
        } else {
            format!("content-length: {}\r\n", body.len())
        };
        let mut bytes =
            format!("{method} {path} HTTP/1.1\r\nhost: router\r\n{length}{headers}\r\n").into_bytes();
        bytes.extend(body);
        self.write(bytes).await;
    }

    pub(crate) async fn post(&mut self, path: &str, body: &Value) {
        self.send(
            "POST",
            path,
            "content-type: application/json\r\n",
            body.to_string(),
        )
        .await;
    }

    /// Reads more; `Whole` if there was more.
    async fn fill(&mut self) -> End {
        match timeout(HANG, self.stream.read_buf(&mut self.buffer))
            .await
            .expect("nothing comes")
        {
            Ok(0) => End::Eof,
            Ok(_) => End::Whole,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => End::Reset,
            Err(error) => panic!("{error}"),
        }
    }

    /// The next line, without its end.
    async fn line(&mut self) -> Result<String, End> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|window| window == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Ok(String::from_utf8(line[..end].to_vec()).unwrap());
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
            let size = match self.line().await {
                Ok(line) => usize::from_str_radix(&line, 16).unwrap(),
                Err(end) => return end,
            };
            let end = self.take(size, body).await;
            if end != End::Whole {
                return end;
            }
            match self.line().await {
                Ok(_) if size > 0 => {}
                Ok(_) => return End::Whole,
                Err(end) => return end,
            }
        }
    }

    /// Status and headers of the next answer.
    pub(crate) async fn head(&mut self) -> Result<Answer, End> {
        let line = self.line().await?;
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line().await?;
            match line.split_once(": ") {
                Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.to_owned())),
                None => {
                    return Ok(Answer {
                        status,
                        headers,
                        body: Vec::new(),
                        end: End::Whole,
                    });
                }
            }
        }
    }

    /// The body that belongs to a head.
    pub(crate) async fn body(&mut self, mut answer: Answer) -> Answer {
        let mut body = Vec::new();
        let bodiless = matches!(answer.status, 100..200 | 204 | 304);
        let chunked = answer.header("transfer-encoding") == Some("chunked");
        answer.end = match answer.header("content-length") {
            _ if bodiless => End::Whole,
            _ if chunked => self.chunks(&mut body).await,
            Some(length) => {
                let length = length.parse().unwrap();
                self.take(length, &mut body).await
            }
            None => {
                let (end, mut rest) = self.rest().await;
                body.append(&mut rest);
                end
            }
        };
        answer.body = body;
        answer
    }

    /// The next answer.
    pub(crate) async fn answer(&mut self) -> Answer {
        match self.head().await {
            Ok(head) => self.body(head).await,
            Err(end) => Answer {
                status: 0,
                headers: Vec::new(),
                body: Vec::new(),
                end,
            },
        }
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

    /// Reads until the bytes so far hold this text, and leaves them.
    pub(crate) async fn until(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.buffer).contains(text) {
            assert_eq!(self.fill().await, End::Whole, "before {text:?}");
        }
    }

    /// Takes nothing from the system's buffers any more, which are made small.
    pub(crate) async fn deaf(addr: SocketAddr) -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        Self {
            stream: socket.connect(addr).await.unwrap(),
            buffer: Vec::new(),
        }
    }
}

pub(crate) async fn ask(
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: impl AsRef<[u8]>,
) -> Answer {
    let mut client = Client::connect(addr).await;
    client.send(method, path, headers, body).await;
    client.answer().await
}

pub(crate) async fn get(addr: SocketAddr, path: &str) -> Answer {
    ask(addr, "GET", path, "", "").await
}

pub(crate) async fn post(addr: SocketAddr, path: &str, body: &Value) -> Answer {
    ask(
        addr,
        "POST",
        path,
        "content-type: application/json\r\n",
        body.to_string(),
    )
    .await
}

pub(crate) const CHAT: &str = "/v1/chat/completions";

pub(crate) fn chat(tokens: u32) -> Value {
    json!({ "messages": [{ "role": "user", "content": "Hello there" }], "max_tokens": tokens })
}

pub(crate) fn stream(tokens: u32) -> Value {
    let mut body = chat(tokens);
    body["stream"] = json!(true);
    body
}

pub(crate) fn of_model(model: &str) -> Value {
    let mut body = chat(4);
    body["model"] = json!(model);
    body
}

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let held = timeout(HANG, async {
        while !holds() {
            sleep(Duration::from_millis(2)).await;
        }
    });
    held.await
        .unwrap_or_else(|_| panic!("it never became so: {what}"));
}
