//! Who stands behind the router and speaks HTTP/2?
//!
//! Chats get one event, and then nothing for as long as anybody waits; questions what vLLM says of itself.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use paddler_benches::harness::Failure;
use paddler_benches::harness::costless::{about, event};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// An engine. Dropped, it is gone with all its connections.
pub(crate) struct Http2Engine {
    pub(crate) address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Http2Engine {
    pub(crate) async fn start() -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let served = Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service_fn(answer));
                connections.spawn(async move {
                    // Whoever asks sees how its connection ends.
                    drop(served.await);
                });
            }
        });
        Ok(Self {
            address,
            _tasks: tasks,
        })
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<OneFrame>, Infallible> {
    let is_chat = request.uri().path() == "/v1/chat/completions";
    let (status, kind, body) = about(request.uri().path().as_bytes());
    let (status, kind) = if is_chat {
        (200, "text/event-stream")
    } else {
        (status, kind)
    };
    let bytes = if is_chat {
        event().into()
    } else {
        Bytes::from_static(body.as_bytes())
    };
    let mut response = Response::new(OneFrame {
        bytes: Some(bytes),
        ends: !is_chat,
    });
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    response
        .headers_mut()
        .insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    Ok(response)
}

/// Some bytes, and then the end or nothing more.
struct OneFrame {
    bytes: Option<Bytes>,
    ends: bool,
}

impl Body for OneFrame {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.bytes.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}
