//! An upstream that speaks whatever is agreed upon, and tells what it was asked.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::header::{CONNECTION, TE, TRAILER, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use paddler_core::forward::Body;
use paddler_core::upstream::http::Io;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

/// A request as it came, without its body.
pub(crate) type Asked = Request<()>;

pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    seen: Arc<Mutex<Vec<Asked>>>,
    connections: Arc<AtomicUsize>,
    serving: AbortHandle,
    #[cfg(feature = "tls")]
    pub(crate) tls: Arc<Mutex<Option<Arc<rustls::ServerConfig>>>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        #[cfg(feature = "tls")]
        let tls = Arc::new(Mutex::new(None));
        let (log, count) = (seen.clone(), connections.clone());
        #[cfg(feature = "tls")]
        let config = tls.clone();
        let serving = tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((io, _)) = listener.accept().await {
                count.fetch_add(1, Relaxed);
                let log = log.clone();
                #[cfg(feature = "tls")]
                if let Some(config) = config.lock().unwrap().clone() {
                    open.spawn(super::tls::accept(io, config, log));
                    continue;
                }
                open.spawn(speak_http1(io, log));
            }
        });
        Self {
            addr,
            seen,
            connections,
            serving: serving.abort_handle(),
            #[cfg(feature = "tls")]
            tls,
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// What it was asked since this was last asked.
    pub(crate) fn seen(&self) -> Vec<Asked> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

pub(crate) type Log = Arc<Mutex<Vec<Asked>>>;

pub(crate) async fn speak_http1(io: impl Io, log: Log) {
    let service = service_fn(move |request| answer(request, log.clone()));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(io), service);
    // Whoever left, left.
    drop(connection.with_upgrades().await);
}

#[cfg(feature = "http2")]
pub(crate) async fn speak_http2(io: impl Io, log: Log) {
    let service = service_fn(move |request| answer(request, log.clone()));
    let builder = hyper::server::conn::http2::Builder::new(hyper_util::rt::TokioExecutor::new());
    drop(builder.serve_connection(TokioIo::new(io), service).await);
}

/// `words`, with a trailer where it may be sent; an echo after an upgrade.
pub(crate) async fn answer(mut request: Request<Incoming>, log: Log) -> Result<Response<Body>, Infallible> {
    let mut asked = Asked::default();
    asked.headers_mut().clone_from(request.headers());
    asked.uri_mut().clone_from(request.uri());
    *asked.method_mut() = request.method().clone();
    *asked.version_mut() = request.version();
    log.lock().unwrap().push(asked);
    if request.headers().contains_key(UPGRADE) {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgrade.await.unwrap());
            let mut buffer = [0; 16];
            while let Ok(read @ 1..) = io.read(&mut buffer).await {
                io.write_all(&buffer[..read]).await.unwrap();
            }
        });
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("upgrade"));
        response
            .headers_mut()
            .insert(UPGRADE, HeaderValue::from_static("echo"));
        return Ok(response);
    }
    let wants_trailers = request.headers().contains_key(TE);
    // All of the request is read before it is answered.
    drop(request.into_body().collect().await);
    let mut response = Response::new(Body::from(Bytes::from("words")));
    if wants_trailers {
        let end = HeaderMap::from_iter([(HeaderName::from_static("x-end"), HeaderValue::from_static("1"))]);
        let body = Full::new(Bytes::from("words")).with_trailers(async move { Some(Ok(end)) });
        // Its length is not said, or there could be no trailers.
        let body = body.map_frame(|frame| frame);
        *response.body_mut() = Body::new(body);
        response
            .headers_mut()
            .insert(TRAILER, HeaderValue::from_static("x-end"));
    }
    Ok(response)
}
