//! Can any network be served, and is it known who asks?

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::Response;
use hyper::service::service_fn;
use paddler_core::forward::{Accept, Body, Connection, OverTls, Peer, ServeOptions, Served, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use super::client::{Client, get};
use super::world::{Setup, engine, of, quick};

/// Clients that live in this process.
pub(crate) struct InProcess(pub(crate) mpsc::UnboundedReceiver<DuplexStream>);

pub(crate) const SOMEBODY: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)), 4711);

impl Accept for InProcess {
    async fn accept(&mut self) -> io::Result<(Connection, SocketAddr)> {
        match self.0.recv().await {
            Some(stream) => Ok((Connection::new(stream), SOMEBODY)),
            None => std::future::pending().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn any_stream_can_be_served() {
    let (connect, incoming) = mpsc::unbounded_channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let who = |request: http::Request<hyper::body::Incoming>| async move {
        let peer = request.extensions().get::<Peer>().unwrap();
        let tls = request.extensions().get::<OverTls>().is_some();
        Ok::<_, Infallible>(Response::new(Body::from(format!("{} {tls}", peer.0))))
    };
    let stop_told = async { drop(stopped.await) };
    let options = ServeOptions::default();
    let idle = options.client_idle;
    let serving = tokio::spawn(serve(
        InProcess(incoming),
        service_fn(who),
        options,
        stop_told,
        std::future::pending(),
    ));
    let (mut client, server) = tokio::io::duplex(4096);
    connect.send(server).unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("\r\n\r\n192.0.2.7:4711 false"), "{answer}");

    // One that takes nothing is cut here, too.
    let (mut deaf, server) = tokio::io::duplex(16);
    connect.send(server).unwrap();
    deaf.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    deaf.write_all(b"host: x\r\n\r\n").await.unwrap();
    tokio::time::sleep(idle + Duration::from_secs(5)).await;
    let mut rest = Vec::new();
    deaf.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest.len(), 16, "what the pipe holds, and no more");

    stop.send(()).unwrap();
    assert_eq!(serving.await.unwrap().unwrap(), Served::Whole);
}

#[tokio::test]
async fn who_asks_is_known() {
    let engine = engine(quick()).await;
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(address).await.unwrap();
        let at = listener.local_addr().unwrap();
        let who = |request: http::Request<hyper::body::Incoming>| async move {
            let Peer(peer) = request.extensions().get().unwrap();
            Ok::<_, Infallible>(Response::new(Body::from(peer.ip().to_string())))
        };
        let serving = tokio::spawn(serve(
            listener,
            service_fn(who),
            ServeOptions::default(),
            std::future::pending(),
            std::future::pending(),
        ));
        assert_eq!(get(at, "/").await.text(), at.ip().to_string());
        serving.abort();
    }
    // The router is reached by IPv6, too, by its address and by a name.
    let world = Setup::new()
        .with(|setup| setup.listen = "[::1]:0")
        .start([of("a", &engine)])
        .await;
    for target in ["/health", "http://[::1]:8080/health", "http://localhost/health"] {
        let mut client = Client::connect(world.addr).await;
        client
            .write(format!("GET {target} HTTP/1.1\r\nhost: [::1]:8080\r\n\r\n"))
            .await;
        assert_eq!(client.answer().await.status, 200, "{target}");
    }
}
