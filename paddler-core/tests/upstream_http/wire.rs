//! Does what HTTP/1.1 says beside the body get through: hosts, trailers, upgrades?

use std::sync::Arc;

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use paddler_core::forward::Body;
use paddler_core::upstream::http::{HttpOptions, HttpUpstream, Tcp};
use paddler_core::upstream::{HostHeader, Upgraded, Upstream as _, UpstreamSpec};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::net::soon;
use super::server::Server;

fn upstream(server: &Server, change: impl FnOnce(&mut UpstreamSpec)) -> HttpUpstream {
    let mut spec = UpstreamSpec::new("engine", format!("http://{}", server.addr)).unwrap();
    change(&mut spec);
    HttpUpstream::over(Arc::new(Tcp), &spec, HttpOptions::default()).unwrap()
}

#[tokio::test]
async fn the_host_is_the_upstreams_or_the_clients() {
    let server = Server::start().await;
    let own = server.addr.to_string();
    let keep = |spec: &mut UpstreamSpec| spec.protocol.host = HostHeader::Keep;
    for (upstream, host, asked) in [
        (upstream(&server, |_| {}), Some("llm.example.com"), own.as_str()),
        (upstream(&server, |_| {}), None, own.as_str()),
        (
            upstream(&server, keep),
            Some("llm.example.com"),
            "llm.example.com",
        ),
        (upstream(&server, keep), None, own.as_str()),
    ] {
        let mut request = Request::get("/").body(Body::empty()).unwrap();
        if let Some(host) = host {
            request.headers_mut().append("host", host.parse().unwrap());
            request
                .headers_mut()
                .append("host", "twice.example.com".parse().unwrap());
        }
        soon(upstream.call(request)).await.unwrap();
        let seen = server.seen().remove(0);
        let hosts: Vec<_> = seen.headers().get_all("host").iter().collect();
        assert_eq!(hosts, [asked]);
        assert_eq!(seen.uri(), "/");
    }
}

#[tokio::test]
async fn trailers_of_an_answer_get_through() {
    let server = Server::start().await;
    let request = Request::get("/")
        .header("te", "trailers")
        .body(Body::empty())
        .unwrap();
    let response = soon(upstream(&server, |_| {}).call(request)).await.unwrap();
    let body = soon(response.into_body().collect()).await.unwrap();
    assert_eq!(body.trailers().unwrap()["x-end"], "1");
    assert_eq!(body.to_bytes(), "words");
    assert_eq!(server.seen()[0].headers()["connection"], "te");
}

#[tokio::test]
async fn a_connection_that_is_upgraded_belongs_to_whoever_asked() {
    let server = Server::start().await;
    let upstream = upstream(&server, |_| {});
    let request = Request::get("/")
        .header("connection", "upgrade")
        .header("upgrade", "echo");
    let response = soon(upstream.call(request.body(Body::empty()).unwrap()))
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut io = response.extensions().get::<Upgraded>().unwrap().take().unwrap();
    // The answer is of no more use, nor is the upstream; what was agreed upon stays.
    drop(response);
    for text in [b"one", b"two"] {
        io.write_all(text).await.unwrap();
        let mut echo = [0; 3];
        soon(io.read_exact(&mut echo)).await.unwrap();
        assert_eq!(&echo, text);
    }
    // It never comes back among those that are kept.
    let plain = || Request::get("/").body(Body::empty()).unwrap();
    for _ in 0..2 {
        let response = soon(upstream.call(plain())).await.unwrap();
        soon(response.into_body().collect()).await.unwrap();
        assert_eq!(server.connections(), 2);
    }
    drop(upstream);
    io.write_all(b"end").await.unwrap();
    soon(io.read_exact(&mut [0; 3])).await.unwrap();
}
