//! Who waits for a name that has no answer yet?

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use paddler_core::upstream::UpstreamSpec;
use paddler_core::upstream::http::{Dial, HttpConnect, HttpOptions, Io};

use super::envoy::*;
use super::world::{Setup, World, eventually, spec};

/// A resolver that does not answer about one name. Any other has two addresses.
#[derive(Debug)]
struct Silent;

#[async_trait]
impl Dial for Silent {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if host == "b.test" {
            std::future::pending::<()>().await;
        }
        Ok([8, 9].map(|last| ([10, 0, 0, last], port).into()).to_vec())
    }

    async fn dial(&self, _: SocketAddr) -> io::Result<Box<dyn Io>> {
        Err(io::ErrorKind::ConnectionRefused.into())
    }
}

/// One with an address, and one with a name that is looked up for longer than a test goes on.
fn upstreams() -> [UpstreamSpec; 2] {
    [spec("a", "http://10.0.0.1:8000"), spec("b", "http://b.test:8000")]
}

async fn start(fallbacks: usize, upstreams: impl IntoIterator<Item = UpstreamSpec>) -> World {
    let mut options = HttpOptions::default();
    options.connect_timeout = HANG * 10;
    let setup = Setup::new().with(|setup| {
        setup.polls = HttpConnect::new(options).dial(Arc::new(Silent));
        setup.picker.fallbacks = fallbacks;
    });
    setup.start(upstreams).await
}

/// A stream whose request is the address's, and those that wait for the name.
async fn picked(world: &World) -> (Stream, Vec<Stream>) {
    let mut waiting = Vec::new();
    loop {
        let stream = world.open().await;
        stream.ask((DUPLEX, DUPLEX), &[]).await;
        let many = 1 + u32::try_from(waiting.len()).unwrap();
        eventually("it is picked", || world.open_at("a") + world.open_at("b") == many).await;
        if world.open_at("a") == 1 {
            return (stream, waiting);
        }
        waiting.push(stream);
    }
}

#[tokio::test]
async fn a_fallback_whose_name_is_being_looked_up_is_not_waited_for() {
    let world = start(1, upstreams()).await;
    let (mut stream, _waiting) = picked(&world).await;
    assert_eq!(stream.placed().await.endpoints, ["10.0.0.1:8000"]);
}

#[tokio::test]
async fn an_answer_waits_for_no_name() {
    let world = start(0, upstreams()).await;
    let (mut stream, _waiting) = picked(&world).await;
    stream.placed().await;
    stream.body().await;
    let (head, value) = (response_headers("200", &[], false), text("10.0.0.1:8000"));
    let key = "x-gateway-destination-endpoint-served";
    stream.say(with_metadata(head, "envoy.lb", key, value)).await;
    stream.response_head().await;
}

#[tokio::test]
async fn of_the_addresses_of_a_name_one_is_told_that_the_subset_allows() {
    let two = || [spec("c", "http://c.test:8000"), spec("a", "http://10.0.0.1:8000")];
    for (fallbacks, subset, told) in [
        (0, &["10.0.0.9"][..], &["10.0.0.9:8000"][..]),
        (0, &["10.0.0.9", "10.0.0.8"], &["10.0.0.8:8000"]),
        (1, &["10.0.0.9", "10.0.0.1"], &["10.0.0.1:8000", "10.0.0.9:8000"]),
    ] {
        let world = start(fallbacks, two()).await;
        let mut stream = world.open().await;
        let head = request_headers("POST", CHAT, &[], false);
        let key = "x-gateway-destination-endpoint-subset";
        stream
            .say(with_metadata(head, "envoy.lb.subset_hint", key, list(subset)))
            .await;
        stream.say(request_body(BODY, true)).await;
        let mut endpoints = stream.placed().await.endpoints;
        endpoints.sort_unstable();
        assert_eq!(endpoints, told);
    }
}
