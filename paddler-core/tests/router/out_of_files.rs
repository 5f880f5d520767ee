//! What if there is no file descriptor left for a connection to an upstream?

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use async_trait::async_trait;
use http::Request;
use http_body_util::BodyExt as _;
use paddler_core::Clock;
use paddler_core::forward::{Body, Router, RouterOptions};
use paddler_core::schedule::trees;
use paddler_core::status::{FixedList, StatusBoard, StatusLoop};
use paddler_core::upstream::http::{Dial, HttpConnect, Io, Tcp};

use super::client::{CHAT, chat, eventually};
use super::world::{engine, of, quick};

/// A process that may have none left.
#[derive(Debug, Default)]
struct Short(AtomicBool);

#[async_trait]
impl Dial for Short {
    async fn dial(&self, address: SocketAddr) -> io::Result<Box<dyn Io>> {
        if self.0.load(SeqCst) {
            // Too many open files.
            return Err(io::Error::from_raw_os_error(24));
        }
        Tcp.dial(address).await
    }
}

#[tokio::test]
async fn that_is_held_against_nobody() {
    let (a, b) = (engine(quick()).await, engine(quick()).await);
    let short = Arc::new(Short::default());
    let clock = Clock::new();
    let statuses = StatusLoop::start(
        StatusBoard::new(trees::gateway()),
        vec![Box::new(FixedList::new([of("a", &a), of("b", &b)]))],
        Arc::new(HttpConnect::default().dial(short.clone())),
        None,
        clock,
    );
    let published = statuses.published();
    eventually("they have joined", || published.load().len() == 2).await;
    let router = Router::new(published.clone(), clock, RouterOptions::default());
    let ask = || async {
        let body = Body::full(chat(1).to_string());
        let request = Request::post(CHAT).header("x-paddler-max-wait", "0");
        let answer = router.handle(request.body(body).unwrap()).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    };
    short.0.store(true, SeqCst);
    for _ in 0..9 {
        let (status, said) = ask().await;
        assert!(
            status == 503 && said.contains("no file descriptor left"),
            "{status} {said}"
        );
    }
    let page = router.metrics_page();
    for id in ["a", "b"] {
        let healthy = format!("paddler_upstream_ejected{{upstream=\"{id}\"}} 0\n");
        assert!(page.contains(&healthy), "{page}");
    }
    assert_eq!(published.load().ledger().settling_weight(), 0);
    short.0.store(false, SeqCst);
    assert_eq!(ask().await.0, 200);
}
