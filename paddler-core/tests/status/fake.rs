//! Upstreams without a network, for tests in which the clock stands still.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use paddler_core::forward::{Body, BoxError};
use paddler_core::upstream::{CallError, Connect, Sent, Upstream, UpstreamSpec};
use tokio::time::{Instant, sleep};

/// What an upstream does with a question.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Says(u16, String),
    /// Says it after a while.
    Late(Duration, u16, String),
    /// No connection.
    Refuses,
    /// Breaks off.
    Breaks,
    Hangs,
    Panics,
}

impl Reply {
    pub(crate) fn ok(body: impl Into<String>) -> Self {
        Self::Says(200, body.into())
    }

    pub(crate) fn not_found() -> Self {
        Self::Says(404, String::new())
    }
}

type Answer = dyn Fn(&str, usize) -> Reply + Send + Sync;

/// An upstream that answers as a closure says, which is told the path and how many polls came before.
pub(crate) struct Fake {
    answer: Mutex<Box<Answer>>,
    asked: Mutex<Vec<(Instant, String)>>,
    polls: AtomicUsize,
    open: AtomicUsize,
    most_open: AtomicUsize,
}

impl Fake {
    pub(crate) fn new(answer: impl Fn(&str, usize) -> Reply + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            answer: Mutex::new(Box::new(answer)),
            asked: Mutex::default(),
            polls: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            most_open: AtomicUsize::new(0),
        })
    }

    /// A llama.cpp with so many slots, busy ones among them.
    pub(crate) fn llama(busy: usize, slots: usize) -> Arc<Self> {
        Self::new(move |path, _| llama(path, busy, slots, "m"))
    }

    /// From now on it answers like this.
    pub(crate) fn becomes(&self, answer: impl Fn(&str, usize) -> Reply + Send + Sync + 'static) {
        *self.answer.lock().unwrap() = Box::new(answer);
    }

    /// When each poll began, by its first question.
    pub(crate) fn polls(&self) -> Vec<Instant> {
        self.asked_at("/health")
    }

    pub(crate) fn asked_at(&self, path: &str) -> Vec<Instant> {
        let asked = self.asked.lock().unwrap();
        asked
            .iter()
            .filter(|(_, asked)| asked == path)
            .map(|(at, _)| *at)
            .collect()
    }

    /// The most questions that were open at once.
    pub(crate) fn most_open(&self) -> usize {
        self.most_open.load(SeqCst)
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(SeqCst)
    }
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fake")
    }
}

struct Open<'a>(&'a Fake);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, SeqCst);
    }
}

#[async_trait::async_trait]
impl Upstream for Fake {
    async fn call(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let path = request.uri().path().to_owned();
        let polls = match &*path {
            "/health" => self.polls.fetch_add(1, SeqCst),
            _ => self.polls.load(SeqCst).saturating_sub(1),
        };
        self.asked.lock().unwrap().push((Instant::now(), path.clone()));
        let open = self.open.fetch_add(1, SeqCst) + 1;
        self.most_open.fetch_max(open, SeqCst);
        let _open = Open(self);
        let reply = (self.answer.lock().unwrap())(&path, polls);
        let says = |status, body: String| {
            let mut response = Response::new(Body::from(body));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            Ok(response)
        };
        let io = |kind| io::Error::from(kind);
        match reply {
            Reply::Says(status, body) => says(status, body),
            Reply::Late(after, status, body) => {
                sleep(after).await;
                says(status, body)
            }
            Reply::Refuses => Err(CallError::new(Sent::No, io(io::ErrorKind::ConnectionRefused)).into()),
            Reply::Breaks => Err(CallError::new(Sent::Yes, io(io::ErrorKind::ConnectionReset)).into()),
            Reply::Hangs => std::future::pending().await,
            Reply::Panics => panic!("a transport of the host's has a fault"),
        }
    }
}

/// What a llama.cpp answers.
pub(crate) fn llama(path: &str, busy: usize, slots: usize, model: &str) -> Reply {
    match path {
        "/health" => Reply::ok(r#"{"status":"ok"}"#),
        "/slots" => {
            let slot = |at| format!(r#"{{"is_processing":{}}}"#, at < busy);
            Reply::ok(format!(
                "[{}]",
                (0..slots).map(slot).collect::<Vec<_>>().join(",")
            ))
        }
        "/metrics" => Reply::ok(format!(
            "llamacpp:requests_processing {busy}\nllamacpp:requests_deferred 0\n"
        )),
        "/props" => Reply::ok(format!(r#"{{"total_slots":{slots}}}"#)),
        "/lora-adapters" => Reply::ok("[]"),
        "/v1/models" => Reply::ok(format!(
            r#"{{"data":[{{"id":"{model}","object":"model","owned_by":"llamacpp"}}]}}"#
        )),
        _ => Reply::not_found(),
    }
}

/// The upstreams that there are, by their URLs.
#[derive(Debug, Default)]
pub(crate) struct Net(Mutex<HashMap<String, Arc<Fake>>>);

impl Net {
    pub(crate) fn of<'u>(all: impl IntoIterator<Item = (&'u str, Arc<Fake>)>) -> Arc<Self> {
        let all = all.into_iter().map(|(url, fake)| (url.to_owned(), fake));
        Arc::new(Self(Mutex::new(all.collect())))
    }
}

impl Connect for Net {
    fn connect(&self, spec: &UpstreamSpec) -> Result<Arc<dyn Upstream>, BoxError> {
        match self.0.lock().unwrap().get(&spec.url) {
            Some(fake) => Ok(fake.clone()),
            None => Err("there is nothing at that URL".into()),
        }
    }
}
