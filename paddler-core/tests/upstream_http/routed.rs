//! Does what the transport tells lead the router to do the right thing?

use std::sync::Arc;

use http::Request;
#[cfg(feature = "http2")]
use http_body_util::BodyExt as _;
use paddler_core::Clock;
use paddler_core::forward::{Body, Router, RouterOptions};
use paddler_core::schedule::trees;
use paddler_core::status::{FixedList, StatusBoard, StatusLoop, StatusSource};
use paddler_core::upstream::http::HttpConnect;
use paddler_core::upstream::{HostHeader, Models, UpstreamSpec};

use super::net::soon;
use super::server::Server;
#[cfg(feature = "tls")]
use super::tls::{Ca, Folder, server};

/// A router over these upstreams, the first of which is chosen where it can be.
struct Routed {
    router: Router,
    _statuses: StatusLoop,
}

impl Routed {
    async fn over(specs: Vec<UpstreamSpec>) -> Self {
        let clock = Clock::new();
        let names: Vec<_> = specs.iter().map(|spec| spec.id.clone()).collect();
        let board = StatusBoard::new(trees::gateway());
        let sources: Vec<Box<dyn StatusSource>> = vec![Box::new(FixedList::new(specs))];
        let statuses = StatusLoop::start(board, sources, Arc::new(HttpConnect::default()), None, clock);
        let router = Router::new(statuses.published(), clock, RouterOptions::default());
        let published = statuses.published();
        super::net::eventually("all are there", || {
            let snapshot = published.load();
            names.iter().all(|id| snapshot.find(id.as_str()).is_some())
        })
        .await;
        Self {
            router,
            _statuses: statuses,
        }
    }

    async fn post(&self, host: &str) -> http::Response<Body> {
        let request = Request::post("/v1/completions")
            .header("host", host)
            .header("te", "trailers");
        let body = Body::from(r#"{"model":"m","prompt":"p"}"#.to_owned());
        soon(self.router.handle(request.body(body).unwrap())).await
    }
}

fn spec(id: &str, url: String) -> UpstreamSpec {
    UpstreamSpec::new(id, url).unwrap().models(Models::Any)
}

#[tokio::test]
async fn an_upstream_keeps_the_clients_host_where_it_is_told_to() {
    let (rewrites, keeps) = (Server::start().await, Server::start().await);
    let mut keeping = spec("keeps", format!("http://{}", keeps.addr));
    keeping.protocol.host = HostHeader::Keep;
    let own = rewrites.addr.to_string();
    let rewriting = spec("rewrites", format!("http://{own}"));
    for (server, spec, host) in [
        (&rewrites, rewriting, own.as_str()),
        (&keeps, keeping, "llm.example.com"),
    ] {
        let answer = Routed::over(vec![spec]).await.post("llm.example.com").await;
        assert_eq!(answer.status(), 200);
        assert_eq!(server.seen()[0].headers()["host"], host);
    }
}

#[cfg(feature = "http2")]
mod http2 {
    use paddler_core::upstream::Http2;

    use super::super::frames::{Do, Frames, HEADERS, RESET};
    use super::super::net::eventually;
    use super::*;

    fn speaking_http2(id: &str, engine: &Frames) -> UpstreamSpec {
        let mut spec = spec(id, engine.url());
        spec.protocol.http2 = Http2::Always;
        spec
    }

    #[tokio::test]
    async fn a_refused_stream_is_answered_elsewhere() {
        let (full, free) = (
            Frames::start(100, [Do::Reset(7)]).await,
            Frames::start(100, [Do::Whole("words")]).await,
        );
        let routed = Routed::over(vec![speaking_http2("full", &full), speaking_http2("free", &free)]).await;
        for _ in 0..200 {
            assert_eq!(routed.post("a").await.status(), 200);
            if !full.seen(HEADERS).is_empty() {
                return;
            }
        }
        panic!("the one that refuses was never chosen");
    }

    #[tokio::test]
    async fn a_connection_that_is_closed_in_order_costs_no_request() {
        // As a balancer in front of an engine does it after so many requests; there is nobody else to go to.
        let engine = Frames::start(
            100,
            [
                Do::Whole("1"),
                Do::GoAway,
                Do::Whole("2"),
                Do::GoAway,
                Do::Whole("3"),
            ],
        )
        .await;
        let routed = Routed::over(vec![speaking_http2("only", &engine)]).await;
        for words in ["1", "2", "3"] {
            let answer = routed.post("a").await;
            assert_eq!(answer.status(), 200);
            assert_eq!(
                soon(answer.into_body().collect()).await.unwrap().to_bytes(),
                words
            );
        }
    }

    #[tokio::test]
    async fn a_client_that_leaves_ends_the_work_at_the_engine() {
        let engine = Frames::start(100, [Do::Begin("a"), Do::Whole("b")]).await;
        let routed = Routed::over(vec![speaking_http2("only", &engine)]).await;
        drop(routed.post("a").await);
        eventually("it is reset", || engine.seen(RESET).len() == 1).await;
        assert_eq!(routed.post("a").await.status(), 200);
        assert_eq!(engine.connections(), 1);
    }
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn an_upstream_that_cannot_be_trusted_costs_no_request() {
    let (folder, ours, theirs) = (Folder::new(), Ca::named("ours"), Ca::named("theirs"));
    let trusted = server(&ours.sign("127.0.0.1", |_| {}), None, &[]).await;
    let untrusted = server(&theirs.sign("127.0.0.1", |_| {}), None, &[]).await;
    let over_tls = |id, server: &Server| {
        let mut spec = spec(id, format!("https://{}", server.addr));
        spec.protocol.tls.ca = folder.file("ca.pem", &ours.pem());
        spec
    };
    let routed = Routed::over(vec![
        over_tls("trusted", &trusted),
        over_tls("untrusted", &untrusted),
    ])
    .await;
    for _ in 0..200 {
        assert_eq!(routed.post("a").await.status(), 200);
        if untrusted.connections() > 0 {
            assert!(untrusted.seen().is_empty(), "nothing was sent there");
            return;
        }
    }
    panic!("the one that is not trusted was never chosen");
}
