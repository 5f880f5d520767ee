//! A router in this process, from the clients' bytes to an upstream that keeps what it is asked.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use paddler_core::Clock;
use paddler_core::forward::{Accept, Body, BoxError, Connection, Router, RouterOptions, ServeOptions, serve};
use paddler_core::schedule::trees;
use paddler_core::status::{FixedList, StatusBoard, StatusLoop};
use paddler_core::upstream::{Connect, Models, Upstream, UpstreamSpec};
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// What the upstream was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) body: Vec<u8>,
}

/// It answers each request with its method and target.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<Vec<Arrived>>>);

/// What is about one connection, and may not arrive.
const ENDS_HERE: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
];

#[async_trait]
impl Upstream for Kept {
    async fn call(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let target = head.uri.to_string();
        for name in ENDS_HERE {
            assert!(!head.headers.contains_key(name), "{name} arrived: {head:?}");
        }
        // That trailers are taken may be said on.
        let mut codings = head.headers.get_all("te").iter();
        assert!(codings.all(|te| te == "trailers"), "{head:?}");
        let lengths: Vec<_> = head.headers.get_all("content-length").iter().collect();
        match lengths.as_slice() {
            [] => assert!(body.is_empty(), "a body without a length: {head:?}"),
            [only] => assert_eq!(only.as_bytes(), body.len().to_string().as_bytes(), "{head:?}"),
            more => panic!("{more:?}"),
        }
        assert!(target.starts_with('/') && !target.contains(' '), "{target:?}");
        let echo = format!("{} {target}", head.method);
        let answer = if head.method == http::Method::HEAD {
            Body::empty()
        } else {
            Body::from(echo.clone())
        };
        self.0.lock().unwrap().push(Arrived {
            method: head.method.to_string(),
            target,
            body: body.to_vec(),
        });
        let echo = http::HeaderValue::from_bytes(echo.as_bytes())?;
        let mut response = Response::new(answer);
        response.headers_mut().insert("x-echo", echo);
        Ok(response)
    }
}

impl Connect for Kept {
    fn connect(&self, _spec: &UpstreamSpec) -> Result<Arc<dyn Upstream>, BoxError> {
        Ok(Arc::new(self.clone()))
    }
}

/// Clients in this process.
struct InProcess(mpsc::UnboundedReceiver<DuplexStream>);

impl Accept for InProcess {
    async fn accept(&mut self) -> io::Result<(Connection, SocketAddr)> {
        match self.0.recv().await {
            Some(stream) => Ok((Connection::new(stream), (Ipv4Addr::LOCALHOST, 1).into())),
            None => std::future::pending().await,
        }
    }
}

pub(crate) struct Memory {
    kept: Kept,
    connect: mpsc::UnboundedSender<DuplexStream>,
    serving: AbortHandle,
    _statuses: StatusLoop,
}

impl Memory {
    /// Needs paused time: it waits long for what does not come.
    pub(crate) async fn start() -> Self {
        let (kept, clock) = (Kept::default(), Clock::new());
        let spec = UpstreamSpec::new("a", "http://127.0.0.1:9")
            .unwrap()
            .models(Models::Any);
        let statuses = StatusLoop::start(
            StatusBoard::new(trees::gateway()),
            vec![Box::new(FixedList::new([spec]))],
            Arc::new(kept.clone()),
            None,
            clock,
        );
        let published = statuses.published();
        while published.load().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let router = Router::new(published, clock, RouterOptions::default());
        let (connect, incoming) = mpsc::unbounded_channel();
        let never = std::future::pending;
        let serving = serve(
            InProcess(incoming),
            router,
            ServeOptions::default(),
            never(),
            never(),
        );
        Self {
            kept,
            connect,
            serving: tokio::spawn(async { drop(serving.await) }).abort_handle(),
            _statuses: statuses,
        }
    }

    pub(crate) fn connect(&self) -> DuplexStream {
        let (client, server) = tokio::io::duplex(1 << 16);
        self.connect.send(server).unwrap();
        client
    }

    /// What has arrived since this was last asked.
    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        std::mem::take(&mut *self.kept.0.lock().unwrap())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
