//! Is an answer of an upstream read the same way however it comes? For the fuzzer, and for the tests that need none.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt as _;
use paddler_core::forward::Body;
use paddler_core::upstream::http::{Dial, HttpOptions, HttpUpstream, Io};
use paddler_core::upstream::{Upgraded, Upstream as _, UpstreamSpec};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Panics if what these bytes are as an answer depends on how they are cut.
pub(crate) fn check(bytes: &[u8]) {
    // The first byte says where to cut, so that a fuzzer can choose.
    let size = bytes.first().map_or(1, |byte| usize::from(*byte) + 2);
    for method in [Method::GET, Method::HEAD] {
        for closes in [false, true] {
            let whole = read(&method, bytes, usize::MAX, closes);
            assert_eq!(whole, read(&method, bytes, 1, closes), "one byte at a time");
            assert_eq!(
                whole,
                read(&method, bytes, size, closes),
                "{size} bytes at a time"
            );
            assert!(whole.body.len() <= bytes.len());
            assert!(!whole.is_kept || whole.end == End::Whole);
        }
    }
}

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    /// It says that more is to come.
    Waits,
    /// It is none, or was broken off.
    Broken,
}

/// What was read.
#[derive(Debug, PartialEq)]
pub(crate) struct Read {
    /// 0 where there is no head.
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
    pub(crate) end: End,
    /// The connection is used again.
    pub(crate) is_kept: bool,
}

impl fmt::Display for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = if self.is_kept { ", kept" } else { "" };
        let body = String::from_utf8_lossy(&self.body);
        write!(f, "{} {body:?} {:?}{kept}", self.status, self.end)
    }
}

/// Asks with this method an upstream that answers with these bytes, so many at a time.
pub(crate) fn read(method: &Method, bytes: &[u8], size: usize, closes: bool) -> Read {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = runtime.expect("a runtime");
    let _entered = runtime.enter();
    let script = Arc::new(Script {
        bytes: bytes.to_vec(),
        size,
        closes,
        dialled: AtomicUsize::new(0),
    });
    let spec = UpstreamSpec::new("a", "http://127.0.0.1:9").expect("a URL");
    let mut options = HttpOptions::default();
    options.rest_after_stream = Duration::ZERO;
    let upstream = HttpUpstream::over(script.clone(), &spec, options).expect("an upstream");
    let request = || {
        let request = Request::builder().method(method).uri("/").header("upgrade", "x");
        request.body(Body::empty()).expect("a request")
    };
    let mut read = Read {
        status: 0,
        headers: HeaderMap::new(),
        body: Vec::new(),
        trailers: None,
        end: End::Waits,
        is_kept: false,
    };
    // All is there at once, so whatever is to come of it comes at once.
    match at_once(upstream.call(request())) {
        Poll::Pending => return read,
        Poll::Ready(Err(_)) => read.end = End::Broken,
        Poll::Ready(Ok(response)) => {
            read.status = response.status().as_u16();
            read.headers = response.headers().clone();
            if response.extensions().get::<Upgraded>().is_some() {
                read.end = End::Whole;
            } else {
                read_body(response.into_body(), &mut read);
            }
        }
    }
    let before = script.dialled.load(Relaxed);
    drop(at_once(upstream.call(request())));
    read.is_kept = script.dialled.load(Relaxed) == before;
    read
}

fn read_body(mut body: Body, read: &mut Read) {
    loop {
        let ended = http_body::Body::is_end_stream(&body);
        match at_once(body.frame()) {
            Poll::Pending => return,
            Poll::Ready(None) => break,
            Poll::Ready(Some(Err(_))) => {
                read.end = End::Broken;
                return;
            }
            Poll::Ready(Some(Ok(frame))) => {
                assert!(!ended, "nothing comes after the end");
                match frame.into_data() {
                    Ok(data) => read.body.extend_from_slice(&data),
                    Err(frame) => read.trailers = frame.into_trailers().ok(),
                }
            }
        }
    }
    read.end = End::Whole;
}

fn at_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// An upstream that says the same over each connection, once it is asked.
#[derive(Debug)]
struct Script {
    bytes: Vec<u8>,
    size: usize,
    closes: bool,
    dialled: AtomicUsize,
}

struct Scripted {
    script: Arc<Script>,
    said: usize,
    asked: bool,
}

#[async_trait]
impl Dial for Script {
    async fn dial(&self, _address: SocketAddr) -> io::Result<Box<dyn Io>> {
        self.dialled.fetch_add(1, Relaxed);
        Ok(Box::new(Scripted {
            script: Arc::new(Self {
                bytes: self.bytes.clone(),
                dialled: AtomicUsize::new(0),
                ..*self
            }),
            said: 0,
            asked: false,
        }))
    }
}

impl AsyncRead for Scripted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let rest = &self.script.bytes[self.said..];
        if !self.asked || (rest.is_empty() && !self.script.closes) {
            return Poll::Pending;
        }
        let some = &rest[..rest.len().min(self.script.size).min(buf.remaining())];
        buf.put_slice(some);
        let some = some.len();
        self.said += some;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Scripted {
    fn poll_write(mut self: Pin<&mut Self>, _cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.asked = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
