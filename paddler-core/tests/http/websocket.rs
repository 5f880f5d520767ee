//! Does a WebSocket get through, hold a place for as long as it is open, and lose nothing?

use std::sync::Arc;
use std::time::Duration;

use paddler_core::config::WebSockets;
use paddler_core::forward::{Keys, Served};
use paddler_core::request::{ModelRule, ModelRules};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::client::{CHAT, Client, End, HANG, chat, eventually};
use super::stub::{Do, Stub};
use super::world::{Setup, World, spec};

/// An upstream that agrees to everything, and gives the test each connection with the head that came.
struct Peer {
    url: String,
    accepted: mpsc::UnboundedReceiver<(String, TcpStream)>,
    serving: AbortHandle,
}

impl Peer {
    /// `behind`: what it says right behind its agreement, in the same write.
    async fn start(behind: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (told, accepted) = mpsc::unbounded_channel();
        let serving = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let agreed = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n\
                     Sec-WebSocket-Accept: x\r\n\r\n{behind}"
                );
                stream.write_all(agreed.as_bytes()).await.unwrap();
                let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
                told.send((head, stream)).unwrap();
            }
        });
        Self {
            url,
            accepted,
            serving: serving.abort_handle(),
        }
    }

    async fn next(&mut self) -> (String, TcpStream) {
        let next = tokio::time::timeout(HANG, self.accepted.recv()).await;
        next.expect("nobody comes").unwrap()
    }

    /// A router in front of it, with one place.
    async fn world(&self, setup: Setup) -> World {
        let setup = setup.with(|setup| setup.options.websockets = WebSockets::Open);
        setup.start([spec("a", &self.url).max_in_flight(1)]).await
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

const ASK: &str = "GET /v1/realtime?model=m HTTP/1.1\r\nhost: x\r\nconnection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\n\
                   sec-websocket-key: k\r\nsec-websocket-version: 13\r\n\r\n";

/// Asks for one, says this at once, and reads the agreement.
async fn open(world: &World, at_once: &str) -> Client {
    let mut client = Client::connect(world.addr).await;
    client.write(format!("{ASK}{at_once}")).await;
    let head = client.head().await.unwrap();
    assert_eq!((head.status, head.header("upgrade")), (101, Some("websocket")));
    assert_eq!(
        (head.header("connection"), head.header("sec-websocket-accept")),
        (Some("upgrade"), Some("x"))
    );
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_go_both_ways_and_a_place_is_held() {
    let mut peer = Peer::start("").await;
    let world = peer.world(Setup::new().queue(9, HANG)).await;
    let mut client = open(&world, "").await;
    let (head, mut upstream) = peer.next().await;
    for line in [
        "connection: upgrade\r\n",
        "upgrade: websocket\r\n",
        "sec-websocket-key: k\r\n",
    ] {
        assert!(head.contains(line), "{head}");
    }
    assert!(
        head.starts_with("get /v1/realtime?model=m http/1.1\r\n"),
        "{head}"
    );
    client.write("from the client").await;
    let mut heard = [0; 15];
    upstream.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"from the client");
    upstream.write_all(b"from the upstream").await.unwrap();
    client.until("from the upstream").await;
    assert_eq!(
        (world.open_weight(), world.metric("paddler_in_flight_requests")),
        (1, 1.0)
    );
    // It takes the only place, so others wait.
    let mut waits = Client::connect(world.addr).await;
    waits.post(CHAT, &chat(1)).await;
    eventually("it waits", || world.waiting() == 1).await;
    // The upstream hangs up, and is free at once.
    drop(upstream);
    assert_eq!(client.rest().await.0, End::Eof);
    let (head, _next) = peer.next().await;
    assert!(head.starts_with("post"), "{head}");
    drop(waits);
    world.quiet().await;
}

#[tokio::test]
async fn the_query_names_what_is_meant() {
    let rules = ModelRules::new([("m", ModelRule::alias("a & b"))]).unwrap();
    let mut peer = Peer::start("").await;
    let setup = Setup::new().with(|setup| setup.options.models = Arc::new(rules));
    let world = peer.world(setup).await;
    let _client = open(&world, "").await;
    let (head, _upstream) = peer.next().await;
    assert!(
        head.starts_with("get /v1/realtime?model=a%20%26%20b http/1.1\r\n"),
        "{head}"
    );
}

#[tokio::test]
async fn an_upstream_that_hangs_up_has_nothing_left_to_do() {
    let mut peer = Peer::start("").await;
    let world = peer.world(Setup::new()).await;
    let mut client = open(&world, "").await;
    let (_, upstream) = peer.next().await;
    drop(upstream);
    assert_eq!(client.rest().await.0, End::Eof);
    drop(client);
    eventually("it is over", || world.metric("paddler_in_flight_requests") == 0.0).await;
    // One that was only left would settle for a while.
    assert_eq!((world.settling(), world.open_weight()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_right_behind_the_agreement_is_not_lost() {
    let mut peer = Peer::start("at once").await;
    let world = peer.world(Setup::new()).await;
    for _ in 0..50 {
        let mut client = open(&world, "before it is agreed").await;
        let (_, mut upstream) = peer.next().await;
        client.until("at once").await;
        let mut heard = [0; 19];
        upstream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"before it is agreed");
        drop(client);
        let mut rest = Vec::new();
        upstream.read_to_end(&mut rest).await.ok();
        drop(upstream);
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_said_the_last_word_still_hears_the_other() {
    let mut peer = Peer::start("").await;
    let world = peer.world(Setup::new()).await;
    let socket = TcpStream::connect(world.addr).await.unwrap();
    let (mut reads, mut writes) = socket.into_split();
    writes.write_all(ASK.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(reads.read_u8().await.unwrap());
    }
    let (_, mut upstream) = peer.next().await;
    writes.write_all(b"goodbye").await.unwrap();
    writes.shutdown().await.unwrap();
    let mut heard = String::new();
    upstream.read_to_string(&mut heard).await.unwrap();
    assert_eq!(heard, "goodbye");
    upstream.write_all(b"and to you").await.unwrap();
    drop(upstream);
    heard.clear();
    reads.read_to_string(&mut heard).await.unwrap();
    assert_eq!(heard, "and to you");
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_ends_when_nothing_is_said_for_too_long() {
    let mut peer = Peer::start("").await;
    let world = peer
        .world(Setup::new().with(|setup| setup.options.timeouts.tunnel_idle = Duration::from_millis(200)))
        .await;
    let mut client = open(&world, "").await;
    let (_, mut upstream) = peer.next().await;
    assert_eq!(client.rest().await.0, End::Eof);
    assert_eq!(upstream.read(&mut [0]).await.unwrap(), 0);
    // The engine may be at it still, so its place settles first.
    eventually("it settles", || world.settling() == 0).await;
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_leaves_websockets_the_grace_time() {
    for cut in [false, true] {
        let mut peer = Peer::start("").await;
        let world = peer
            .world(Setup::new().with(|setup| setup.serve.grace = HANG * 9))
            .await;
        let mut client = open(&world, "").await;
        let (_, mut upstream) = peer.next().await;
        world.stop();
        eventually("it stops", || std::net::TcpStream::connect(world.addr).is_err()).await;
        upstream.write_all(b"still here").await.unwrap();
        client.until("still here").await;
        if cut {
            world.cut();
            assert_eq!(world.served().await, Served::Cut(1));
            assert_eq!(upstream.read(&mut [0]).await.unwrap_or(0), 0);
        } else {
            drop(upstream);
            assert_eq!(world.served().await, Served::Whole);
        }
        assert_ne!(client.rest().await.0, End::Whole);
    }
}

#[tokio::test]
async fn upgrades_that_are_not_passed_on_are_refused_or_passed_over() {
    let stub = Stub::start([Do::ok("plain")]).await;
    // Closed is the default, and said clearly.
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let mut client = Client::connect(world.addr).await;
    client.write(ASK).await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.reason()), (403, "websocket"));
    // The connection is of use still.
    client.send("GET", "/health", "", "").await;
    assert_eq!(client.answer().await.status, 200);
    assert!(stub.seen().is_empty());

    let keys = Keys::read("sk-1").unwrap();
    let open = |setup: &mut Setup| setup.options.websockets = WebSockets::Open;
    let world = Setup::new().with(open).start([spec("a", &stub.url)]).await;
    let upgrade = |to: &str| {
        format!("connection: upgrade, http2-settings\r\nupgrade: {to}\r\nhttp2-settings: AAMAAABk\r\n")
    };
    // Others than WebSockets are passed over, and so is what a client of HTTP/1.0 says.
    for (to, version) in [("h2c", "1.1"), ("TLS/1.2", "1.1"), ("websocket", "1.0")] {
        let mut client = Client::connect(world.addr).await;
        let head = format!("GET /x HTTP/{version}\r\nhost: x\r\n{}\r\n", upgrade(to));
        client.write(head).await;
        assert_eq!(client.answer().await.text(), "plain", "{to}");
    }
    for head in stub.seen() {
        assert!(
            !head.contains("upgrade") && !head.contains("http2-settings"),
            "{head}"
        );
    }
    // An upstream that does not agree says so itself.
    let mut client = Client::connect(world.addr).await;
    client.write(ASK).await;
    assert_eq!(client.answer().await.text(), "plain");
    // It begins with GET, and with a key where there are keys.
    let mut client = Client::connect(world.addr).await;
    client.send("POST", "/x", &upgrade("websocket"), "").await;
    assert_eq!(client.answer().await.reason(), "websocket");
    let world = Setup::new()
        .with(open)
        .with(|setup| setup.options.keys = Some(Arc::new(keys)))
        .start([spec("a", &stub.url)])
        .await;
    let mut client = Client::connect(world.addr).await;
    client.write(ASK).await;
    assert_eq!(client.answer().await.status, 401);
    // A host that hands requests on without their connection cannot have any.
    let world = Setup::new().with(open).start([spec("a", &stub.url)]).await;
    let request = http::Request::get("/x")
        .header("connection", "upgrade")
        .header("upgrade", "websocket");
    let response = world
        .router
        .handle(request.body(paddler_core::forward::Body::empty()).unwrap())
        .await;
    assert_eq!(response.status(), 501);
}
