//! How does a client ask that sees how each answer ends?

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Failure;

/// The longest that a page about a program may take.
const PAGE: Duration = Duration::from_secs(10);

/// A connection.
#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    address: SocketAddr,
}

impl Connection {
    /// Opens one.
    ///
    /// # Errors
    /// When nobody takes it.
    pub async fn open(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // How it ends is seen at the requests.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, address })
    }

    /// Whether the other end has closed it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends a request; answers when the head of the response is here.
    ///
    /// # Errors
    /// When there is none.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        self.sender.ready().await?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.address.to_string())
            .body(Full::new(body))?;
        request.headers_mut().extend(headers);
        Ok(self.sender.send_request(request).await?)
    }
}

/// Asks once, on a connection of its own, and reads the answer to its end.
///
/// # Errors
/// When there is no answer, or it takes longer than 10 s.
pub async fn ask(
    address: SocketAddr,
    method: Method,
    path: &str,
    body: Bytes,
) -> Result<(StatusCode, String), Failure> {
    let asked = async {
        let mut connection = Connection::open(address).await?;
        let response = connection.send(method, path, HeaderMap::new(), body).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    };
    timeout(PAGE, asked)
        .await
        .map_err(|_| format!("{address}{path}: no answer in {PAGE:?}"))?
}

/// An address of this machine at which nobody listens now.
///
/// # Errors
/// When there is none left.
pub fn free_address() -> Result<SocketAddr, Failure> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
