//! An upstream whose connections end in the test: what is said there is what comes, and when.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use paddler_core::forward::{Body, BoxError};
use paddler_core::upstream::http::{Dial, HttpOptions, HttpUpstream, Io};
use paddler_core::upstream::{CallError, Sent, Upstream as _, UpstreamSpec};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;

use super::net::soon;

/// Gives the other end of each connection to the test.
#[derive(Debug)]
struct Ends(mpsc::UnboundedSender<DuplexStream>, usize);

#[async_trait]
impl Dial for Ends {
    async fn dial(&self, _address: SocketAddr) -> io::Result<Box<dyn Io>> {
        let (ours, theirs) = tokio::io::duplex(self.1);
        self.0.send(theirs).unwrap();
        Ok(Box::new(ours))
    }
}

pub(crate) type Others = mpsc::UnboundedReceiver<DuplexStream>;

/// An upstream, and the other ends of its connections, which take so many bytes at once.
pub(crate) fn upstream(room: usize) -> (Arc<HttpUpstream>, Others) {
    let (ends, others) = mpsc::unbounded_channel();
    let spec = UpstreamSpec::new("a", "http://127.0.0.1:9").unwrap();
    let upstream = HttpUpstream::over(Arc::new(Ends(ends, room)), &spec, HttpOptions::default()).unwrap();
    (Arc::new(upstream), others)
}

pub(crate) type Call = tokio::task::JoinHandle<Result<Response<Body>, BoxError>>;

pub(crate) fn call(upstream: &Arc<HttpUpstream>, request: Request<Body>) -> Call {
    let upstream = upstream.clone();
    tokio::spawn(async move { upstream.call(request).await })
}

pub(crate) async fn until(end: &mut DuplexStream, text: &str) -> String {
    let mut read = Vec::new();
    while !read.ends_with(text.as_bytes()) {
        read.push(soon(end.read_u8()).await.unwrap());
    }
    String::from_utf8(read).unwrap()
}

pub(crate) fn get() -> Request<Body> {
    Request::get("/x").body(Body::empty()).unwrap()
}

pub(crate) fn sent(result: Result<Response<Body>, BoxError>) -> Sent {
    result.unwrap_err().downcast_ref::<CallError>().unwrap().sent()
}

pub(crate) async fn text(response: Response<Body>) -> Bytes {
    soon(response.into_body().collect()).await.unwrap().to_bytes()
}

pub(crate) async fn is_closed(end: &mut DuplexStream) -> bool {
    let mut rest = Vec::new();
    soon(end.read_to_end(&mut rest)).await.is_ok()
}

pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Asks once over a new connection, and gives its other end.
pub(crate) async fn kept(upstream: &Arc<HttpUpstream>, others: &mut Others) -> DuplexStream {
    let answer = call(upstream, get());
    let mut end = soon(others.recv()).await.unwrap();
    until(&mut end, "\r\n\r\n").await;
    end.write_all(OK).await.unwrap();
    assert_eq!(text(soon(answer).await.unwrap().unwrap()).await, "ok");
    end
}
