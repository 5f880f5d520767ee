//! Who stands behind the router and speaks HTTP/2?
//!
//! Chats get one event, and then nothing for as long as anybody waits; questions what vLLM says of itself.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use paddler_benches::harness::Failure;
use paddler_benches::harness::costless::{about, event};
use paddler_core::forward::Body;
use tokio::net::TcpListener;
use tokio::sync::mpsc::channel;
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

async fn answer(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let is_chat = request.uri().path() == "/v1/chat/completions";
    let (status, kind, body) = about(request.uri().path().as_bytes());
    let (status, kind) = if is_chat {
        (200, "text/event-stream")
    } else {
        (status, kind)
    };
    let body = if is_chat {
        one_event()
    } else {
        Bytes::from_static(body.as_bytes()).into()
    };
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    response
        .headers_mut()
        .insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    Ok(response)
}

/// An event, and then nothing until whoever reads is gone.
fn one_event() -> Body {
    let (sender, pieces) = channel(1);
    tokio::spawn(async move {
        if sender.send(event().into()).await.is_ok() {
            sender.closed().await;
        }
    });
    Body::from_channel(pieces)
}
