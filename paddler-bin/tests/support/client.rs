//! How is a server asked, and what did it say?

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// No wait in these tests is meant to take this long.
pub(crate) const HANG: Duration = Duration::from_secs(120);

/// A request, with its whole body.
pub(crate) type Ask = Request<Full<Bytes>>;

pub(crate) fn get(path: &str) -> Ask {
    let mut ask = Request::new(Full::default());
    *ask.uri_mut() = path.parse().unwrap();
    ask
}

pub(crate) fn post(path: &str, body: &Value) -> Ask {
    let mut ask = get(path);
    *ask.method_mut() = Method::POST;
    *ask.body_mut() = Full::from(body.to_string());
    let json = HeaderValue::from_static("application/json");
    ask.headers_mut().insert(CONTENT_TYPE, json);
    ask
}

/// A chat whose answer is the same each time, whoever gives it.
pub(crate) fn chat(model: &str, max_tokens: u32) -> Value {
    json!({
        "model": model, "max_tokens": max_tokens, "temperature": 0, "seed": 7,
        "messages": [{"role": "user", "content": "Say something."}],
    })
}

/// The same, in pieces.
pub(crate) fn streamed(mut body: Value) -> Value {
    body["stream"] = true.into();
    body
}

/// One connection to a server; another one when that has been closed.
#[derive(Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self {
            address,
            sender: None,
        }
    }

    /// Sends, and waits for the head of the answer.
    pub(crate) async fn send(&mut self, mut ask: Ask) -> Reply {
        let host = HeaderValue::from_str(&self.address.to_string()).unwrap();
        ask.headers_mut().insert(HOST, host);
        let response = timeout(HANG, self.sender().await.send_request(ask)).await;
        let response = response.expect("the server does not answer").unwrap();
        let (head, body) = response.into_parts();
        Reply {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
        }
    }

    pub(crate) async fn ask(&mut self, ask: Ask) -> Answer {
        self.send(ask).await.whole().await
    }

    async fn sender(&mut self) -> &mut SendRequest<Full<Bytes>> {
        let open = match &mut self.sender {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !open {
            self.sender = None;
        }
        match &mut self.sender {
            Some(sender) => sender,
            none => {
                let stream = TcpStream::connect(self.address).await.unwrap();
                let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
                // What goes wrong there is told to whoever waits for the answer.
                tokio::spawn(connection);
                none.insert(sender)
            }
        }
    }
}

/// One request over a connection of its own.
pub(crate) async fn ask(address: SocketAddr, ask: Ask) -> Answer {
    Client::to(address).ask(ask).await
}

/// An answer whose body is still coming. Dropped with its client, it is a client that hangs up.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    body: Incoming,
}

impl Reply {
    /// More of the body; `None` at its end, and an error where it was cut short.
    pub(crate) async fn more(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        let frame = timeout(HANG, self.body.frame()).await;
        let frame = frame.expect("the answer does not go on")?;
        Some(frame.map(|frame| frame.into_data().unwrap_or_default()))
    }

    pub(crate) async fn whole(mut self) -> Answer {
        let (mut body, mut cut) = (Vec::new(), false);
        while let Some(more) = self.more().await {
            match more {
                Ok(bytes) => body.extend_from_slice(&bytes),
                Err(_) => cut = true,
            }
        }
        let (status, headers) = (self.status, self.headers);
        Answer {
            status,
            headers,
            body,
            cut,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// The body ended before its end.
    pub(crate) cut: bool,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Whether it is a whole answer to what was asked: for a stream, one that came to its regular end.
    pub(crate) fn is_good(&self) -> bool {
        let kind = self
            .headers
            .get(CONTENT_TYPE)
            .map_or(&b""[..], HeaderValue::as_bytes);
        let events = kind.starts_with(b"text/event-stream");
        let ended = !events || self.text().ends_with("data: [DONE]\n\n");
        self.status == 200 && !self.cut && ended
    }
}

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let so = timeout(HANG, wait).await.is_ok();
    assert!(so, "it never became so: {what}");
}

/// The value of a series on a page of metrics, named with its labels.
pub(crate) fn series(page: &str, name: &str) -> Option<f64> {
    let rest = page
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    rest.trim().parse().ok()
}

/// The sum of a metric over all its labels.
pub(crate) fn total(page: &str, name: &str) -> f64 {
    let of_it = |line: &&str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
    };
    let value = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
    page.lines().filter(of_it).filter_map(value).sum()
}
