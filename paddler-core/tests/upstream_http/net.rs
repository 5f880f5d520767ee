//! Names that the tests answer, servers that say who they are, and requests to them.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use http::Request;
use http_body_util::BodyExt as _;
use paddler_core::forward::{Body, BoxError};
use paddler_core::upstream::Upstream;
use paddler_core::upstream::http::{Dial, Io, Tcp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Nothing takes so long: a test that waits longer hangs.
pub(crate) const HANG: Duration = Duration::from_secs(30);

/// Waits until it is so.
pub(crate) async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let waited = timeout(HANG, async {
        while !so() {
            sleep(Duration::from_millis(1)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Waits for it, but not for ever.
pub(crate) async fn soon<T>(it: impl Future<Output = T>) -> T {
    timeout(HANG, it).await.expect("it hangs")
}

const HANGS: &str = "it hangs";

/// A network in which one name stands for what the test says, and some addresses are silent.
#[derive(Debug)]
pub(crate) struct Net {
    addresses: Mutex<Result<Vec<SocketAddr>, &'static str>>,
    silent: Mutex<HashSet<SocketAddr>>,
    within: Mutex<HashMap<SocketAddr, &'static str>>,
    pub(crate) asked: AtomicUsize,
    pub(crate) dialled: Mutex<Vec<SocketAddr>>,
}

impl Net {
    pub(crate) fn new(addresses: &[SocketAddr]) -> Arc<Self> {
        Arc::new(Self {
            addresses: Mutex::new(Ok(addresses.to_vec())),
            silent: Mutex::default(),
            within: Mutex::default(),
            asked: AtomicUsize::new(0),
            dialled: Mutex::default(),
        })
    }

    /// What the name stands for from now on.
    pub(crate) fn now(&self, addresses: &[SocketAddr]) {
        *self.addresses.lock().unwrap() = Ok(addresses.to_vec());
    }

    /// The resolver has no answer from now on.
    pub(crate) fn fail(&self) {
        *self.addresses.lock().unwrap() = Err("try again later");
    }

    /// The resolver does not answer from now on.
    pub(crate) fn hang(&self) {
        *self.addresses.lock().unwrap() = Err(HANGS);
    }

    pub(crate) fn silence(&self, address: SocketAddr) {
        self.silent.lock().unwrap().insert(address);
    }

    /// Somebody with this name answers there, without sockets, so that time can be paused.
    pub(crate) fn within(&self, address: SocketAddr, name: &'static str) {
        self.within.lock().unwrap().insert(address, name);
    }

    /// Whom it has connected to since this was last asked.
    pub(crate) fn dialled(&self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.dialled.lock().unwrap())
    }
}

#[async_trait]
impl Dial for Net {
    async fn resolve(&self, host: &str, _port: u16) -> io::Result<Vec<SocketAddr>> {
        assert_eq!(host, "engine.test");
        self.asked.fetch_add(1, Relaxed);
        let answer = self.addresses.lock().unwrap().clone();
        if answer == Err(HANGS) {
            std::future::pending::<()>().await;
        }
        answer.map_err(io::Error::other)
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<Box<dyn Io>> {
        self.dialled.lock().unwrap().push(address);
        let silent = self.silent.lock().unwrap().contains(&address);
        if silent {
            std::future::pending::<()>().await;
        }
        let within = self.within.lock().unwrap().get(&address).copied();
        match within {
            Some(name) => {
                let (ours, theirs) = tokio::io::duplex(1 << 16);
                tokio::spawn(answer(theirs, name));
                Ok(Box::new(ours))
            }
            None => Tcp.dial(address).await,
        }
    }
}

/// A server that answers each request with its name, over connections that it keeps.
pub(crate) struct Named {
    pub(crate) addr: SocketAddr,
    open: Arc<AtomicUsize>,
    serving: AbortHandle,
}

impl Named {
    pub(crate) async fn start(name: &'static str, ip: &str) -> Self {
        let listener = TcpListener::bind((ip.parse::<IpAddr>().unwrap(), 0))
            .await
            .unwrap();
        let addr = listener.local_addr().unwrap();
        let open = Arc::new(AtomicUsize::new(0));
        let count = open.clone();
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Relaxed);
                let count = count.clone();
                connections.spawn(async move {
                    answer(stream, name).await;
                    count.fetch_sub(1, Relaxed);
                });
            }
        });
        let serving = serving.abort_handle();
        Self { addr, open, serving }
    }

    /// How many connections to it are open.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// It is gone, with all its connections.
    pub(crate) async fn stop(&self) {
        self.serving.abort();
        soon(async { while TcpStream::connect(self.addr).await.is_ok() {} }).await;
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Requests have no body here.
async fn answer(mut stream: impl Io, name: &str) {
    let mut buffer = Vec::new();
    while matches!(stream.read_buf(&mut buffer).await, Ok(1..)) {
        if buffer.ends_with(b"\r\n\r\n") {
            buffer.clear();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

/// The text that a GET is answered with.
pub(crate) async fn get(upstream: &dyn Upstream) -> Result<String, BoxError> {
    let request = Request::get("/who").body(Body::empty()).unwrap();
    let response = soon(upstream.call(request)).await?;
    let body = soon(response.into_body().collect()).await?;
    Ok(String::from_utf8(body.to_bytes().to_vec()).unwrap())
}
