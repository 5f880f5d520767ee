//! Does a request by HTTP/2 get what one by HTTP/1.1 gets?

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use paddler_core::forward::{Keys, Served};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::client::{CHAT, HANG, chat, eventually, get, post, stream};
use super::stub::{Do, Stub};
use super::wire::{Frame, Raw, data, frame, literal, post as post_head};
use super::world::{Setup, World, engine, of, quick, slow, spec};

/// A client of HTTP/2, and what becomes of its connection.
pub(crate) struct Client {
    send: SendRequest<Full<Bytes>>,
    addr: SocketAddr,
    socket: std::net::TcpStream,
    pub(crate) connection: JoinHandle<hyper::Result<()>>,
}

impl Client {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        Self::connect_as(addr, |_| {}).await
    }

    async fn connect_as(addr: SocketAddr, with: impl FnOnce(&mut Builder<TokioExecutor>)) -> Self {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new());
        with(&mut builder);
        let socket = TcpStream::connect(addr).await.unwrap().into_std().unwrap();
        let stream = TcpStream::from_std(socket.try_clone().unwrap()).unwrap();
        let (send, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        Self {
            send,
            addr,
            socket,
            connection: tokio::spawn(connection),
        }
    }

    /// A request with its authority, as HTTP/2 has it.
    fn request(&self, method: Method, path: &str) -> http::request::Builder {
        let uri = format!("http://{}{path}", self.addr);
        Request::builder().method(method).uri(uri)
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        self.send.ready().await?;
        timeout(HANG, self.send.send_request(request))
            .await
            .expect("no answer")
    }

    async fn get(&mut self, method: Method, path: &str) -> Response<Incoming> {
        let request = self.request(method, path).body(Full::default()).unwrap();
        self.send(request).await.unwrap()
    }

    async fn post(&mut self, body: &serde_json::Value) -> Response<Incoming> {
        let request = self.request(Method::POST, CHAT);
        self.send(request.body(Full::from(body.to_string())).unwrap())
            .await
            .unwrap()
    }

    async fn ended(self) -> hyper::Result<()> {
        let Self { send, connection, .. } = self;
        let ended = timeout(HANG, connection)
            .await
            .expect("it was not closed")
            .unwrap();
        drop(send);
        ended
    }
}

async fn whole(response: Response<Incoming>) -> String {
    let body = timeout(HANG, response.into_body().collect())
        .await
        .expect("no end");
    String::from_utf8(body.unwrap().to_bytes().to_vec()).unwrap()
}

fn reason(response: &Response<Incoming>) -> &str {
    response
        .headers()
        .get("x-paddler-reason")
        .map_or("", |reason| reason.to_str().unwrap())
}

async fn one(setup: Setup) -> (World, paddler_engine::Engine) {
    let engine = engine(quick()).await;
    (setup.start([of("a", &engine)]).await, engine)
}

#[tokio::test]
async fn trailers_say_nothing_of_another_connection() {
    let said = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx-end: 1\r\nconnection: x-hop\r\n\
                x-hop: 1\r\nkeep-alive: 5\r\ntransfer-encoding: gzip\r\ncontent-length: 7\r\n\r\n";
    let stub = Stub::start([Do::say(said)]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let mut client = Client::connect(world.addr).await;
    let request = client.request(Method::GET, "/x").header("te", "trailers");
    let response = client.send(request.body(Full::default()).unwrap()).await.unwrap();
    let body = timeout(HANG, response.into_body().collect())
        .await
        .expect("no end");
    let body = body.unwrap();
    let trailers = body.trailers().unwrap();
    assert_eq!((trailers.len(), &trailers["x-end"]), (1, &"1".parse().unwrap()));
    assert_eq!(body.to_bytes(), "hi");
}

#[tokio::test]
async fn both_are_spoken_at_one_listener() {
    let (world, _engine) = one(Setup::new()).await;
    let by_h1 = post(world.addr, CHAT, &chat(4)).await;
    let mut client = Client::connect(world.addr).await;
    for _ in 0..3 {
        let response = client.post(&chat(4)).await;
        assert_eq!(
            (response.status(), response.version()),
            (StatusCode::OK, Version::HTTP_2)
        );
        assert_eq!(whole(response).await, by_h1.text());
    }
    let streamed = client.post(&stream(4)).await;
    assert!(whole(streamed).await.ends_with("data: [DONE]\n\n"));
    world.quiet().await;
}

#[tokio::test]
async fn refusals_are_the_same_but_for_the_connection() {
    let keys = Keys::read("sk-1").unwrap();
    let (world, _engine) = one(Setup::new().with(|setup| setup.options.keys = Some(Arc::new(keys)))).await;
    let mut client = Client::connect(world.addr).await;
    for _ in 0..3 {
        let response = client.post(&chat(4)).await;
        assert_eq!(
            (response.status(), reason(&response)),
            (StatusCode::UNAUTHORIZED, "api_key")
        );
        assert!(response.headers().get("connection").is_none());
        assert!(whole(response).await.contains("API key"));
    }
    // The connection is of use still, though bodies were left unread.
    let health = client.get(Method::GET, "/health").await;
    assert_eq!(health.status(), StatusCode::OK);
    let connect = client
        .request(Method::CONNECT, "")
        .uri("x:80")
        .body(Full::default())
        .unwrap();
    assert_eq!(
        client.send(connect).await.unwrap().status(),
        StatusCode::METHOD_NOT_ALLOWED
    );
    let two_hosts = client.request(Method::GET, "/health").header("host", "other");
    let refused = client
        .send(two_hosts.body(Full::default()).unwrap())
        .await
        .unwrap();
    assert_eq!(
        (refused.status(), reason(&refused)),
        (StatusCode::BAD_REQUEST, "bad_host")
    );
}

/// Reads until a PING is answered; all that comes before.
async fn until_pong(raw: &mut Raw) -> Vec<Frame> {
    raw.write(&frame(6, 0, 0, b"12345678")).await;
    let mut seen = Vec::new();
    loop {
        let next = timeout(HANG, raw.frame()).await.expect("no PING");
        match next.expect("it was closed") {
            Frame {
                kind: 6, flags: 1, ..
            } => return seen,
            other => seen.push(other),
        }
    }
}

#[tokio::test]
async fn who_is_refused_while_he_sends_may_finish_and_is_not_reset() {
    let keys = Keys::read("sk-1").unwrap();
    let (world, _engine) = one(Setup::new().with(|setup| setup.options.keys = Some(Arc::new(keys)))).await;
    let mut raw = Raw::handshake(world.addr).await;
    for (stream, more) in [(1, vec![]), (3, literal("host", "other"))] {
        let mut head = post_head(stream);
        head.extend(&more);
        let length = u32::try_from(head.len() - 9).unwrap().to_be_bytes();
        head[..3].copy_from_slice(&length[1..]);
        raw.write(&head).await;
        // Its answer is whole before its body is.
        loop {
            let next = timeout(HANG, raw.frame()).await.expect("no answer").unwrap();
            assert_ne!(next.kind, 3, "{stream} is reset");
            if next.stream == stream && next.kind < 2 && next.flags & 1 == 1 {
                break;
            }
        }
        for (piece, flags) in [("{", 0), ("}", 1)] {
            let seen = until_pong(&mut raw).await;
            assert!(seen.iter().all(|frame| frame.kind != 3), "{stream}: {seen:?}");
            raw.write(&data(stream, flags, piece.as_bytes())).await;
        }
        let seen = until_pong(&mut raw).await;
        assert!(seen.iter().all(|frame| frame.kind != 3), "{stream}: {seen:?}");
    }
}

#[tokio::test]
async fn answers_without_a_body_have_none() {
    let answers = [
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\netag: \"x\"\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    ];
    let methods = [Method::GET, Method::GET, Method::HEAD, Method::OPTIONS];
    let stub = Stub::start(answers.map(Do::say)).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let mut client = Client::connect(world.addr).await;
    for (method, length) in methods.into_iter().zip([None, Some("7"), Some("7"), Some("0")]) {
        let response = client.get(method.clone(), "/x").await;
        let said = response
            .headers()
            .get("content-length")
            .map(|length| length.to_str().unwrap());
        assert_eq!(said, length, "{method} {}", response.status());
        assert_eq!(whole(response).await, "");
    }
    // The same for what is answered here.
    for path in ["/health", "/v1/models", "/slots"] {
        let with_body = whole(client.get(Method::GET, path).await).await;
        let head = client.get(Method::HEAD, path).await;
        assert_eq!(
            head.headers()["content-length"],
            with_body.len().to_string(),
            "{path}"
        );
        assert_eq!(whole(head).await, "");
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_resets_a_stream_ends_its_request_and_no_other() {
    let engine = engine(slow().slots(2)).await;
    let world = Setup::new().queue(9, HANG).start([of("a", &engine)]).await;
    let mut client = Client::connect(world.addr).await;
    let first = client.post(&stream(100)).await;
    let mut second = client.post(&stream(100)).await;
    assert!(second.frame().await.unwrap().is_ok());
    // A third one waits, and is taken back.
    let mut queued = Box::pin(
        client.send.send_request(
            client
                .request(Method::POST, CHAT)
                .body(Full::from(chat(1).to_string()))
                .unwrap(),
        ),
    );
    tokio::select! {
        _ = &mut queued => panic!("there is no room"),
        () = eventually("it waits", || world.waiting() == 1) => {}
    }
    drop(queued);
    eventually("it waits no more", || world.waiting() == 0).await;
    drop(first);
    eventually("the engine is rid of it", || engine.stats().cancelled == 1).await;
    assert_eq!(world.metric("paddler_in_flight_requests"), 1.0);
    drop(second);
    eventually("the engine is rid of both", || engine.stats().cancelled == 2).await;
    // A connection that is gone takes its streams along.
    let waits = client.post(&stream(100)).await;
    client.socket.shutdown(std::net::Shutdown::Both).unwrap();
    eventually("the engine is rid of all", || engine.stats().cancelled == 3).await;
    drop(waits);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_on_is_finished_when_the_server_stops() {
    let engine = engine(quick().decode_tokens_per_second(100.0).slots(4)).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    let idle = Client::connect(world.addr).await;
    let mut busy = Client::connect(world.addr).await;
    let mut streamed = busy.post(&stream(30)).await;
    assert!(streamed.frame().await.unwrap().is_ok());
    world.stop();
    idle.ended().await.unwrap();
    assert!(whole(streamed).await.ends_with("data: [DONE]\n\n"));
    busy.ended().await.unwrap();
    assert_eq!(world.served().await, Served::Whole);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_which_nothing_is_taken_is_reset() {
    let long = "x".repeat(1 << 20);
    let stub = Stub::start([Do::ok(&long)]).await;
    let world = Setup::new()
        .with(|setup| setup.serve.client_idle = Duration::from_millis(300))
        .start([spec("a", &stub.url)])
        .await;
    for window in [1, 1000, 65_535] {
        let mut client = Client::connect_as(world.addr, |builder| {
            builder.initial_stream_window_size(window);
        })
        .await;
        // Its bytes are not read, so there is soon no room for more.
        let unread = client.get(Method::GET, "/x").await;
        eventually("nothing goes on", || {
            world.metric("paddler_in_flight_requests") == 0.0
        })
        .await;
        assert!(
            unread.into_body().collect().await.is_err(),
            "it was cut, and is seen to be"
        );
        // The connection is of use still.
        assert_eq!(client.get(Method::GET, "/health").await.status(), StatusCode::OK);
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_taken_slowly_comes_whole() {
    let long = "x".repeat(200_000);
    let stub = Stub::start([Do::ok(&long)]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let mut client = Client::connect_as(world.addr, |builder| {
        builder.initial_stream_window_size(777);
    })
    .await;
    assert_eq!(whole(client.get(Method::GET, "/x").await).await, long);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_streams_is_closed_after_a_while() {
    let setup = Setup::new().with(|setup| setup.serve.header_timeout = Duration::from_millis(200));
    let (world, _engine) = one(setup).await;
    Client::connect(world.addr).await.ended().await.unwrap();
    let mut used = Client::connect(world.addr).await;
    assert!(whole(used.post(&chat(1)).await).await.contains("usage"));
    used.ended().await.unwrap();
    // One that does not even say what it speaks.
    for part in [
        "PRI",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0",
    ] {
        let mut silent = super::client::Client::connect(world.addr).await;
        silent.write(part).await;
        timeout(HANG, silent.rest()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_back_most_requests_needs_a_new_connection() {
    let engine = engine(slow().slots(1)).await;
    let world = Setup::new().queue(1000, HANG).start([of("a", &engine)]).await;
    // Answers that were on their way already are no fault of the client's own library, however late they come.
    let mut client = Client::connect_as(world.addr, |builder| {
        builder.max_concurrent_reset_streams(2_000);
    })
    .await;
    let mut sent = 0;
    while !client.connection.is_finished() && sent < 2_000 {
        let request = client
            .request(Method::POST, CHAT)
            .body(Full::from(chat(1).to_string()))
            .unwrap();
        if client.send.ready().await.is_err() {
            break;
        }
        // Begun, and given up at once.
        let mut asked = Box::pin(client.send.send_request(request));
        let _begun = timeout(Duration::from_millis(1), &mut asked).await;
        sent += 1;
    }
    let ended = client.ended().await;
    assert!((100..2_000).contains(&sent), "{sent}, {ended:?}");
    assert_eq!(get(world.addr, "/health").await.status, 200);
    eventually("all are gone", || world.waiting() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_without_room_or_beyond_what_can_be_counted_hold_up_no_body() {
    let engine = engine(quick()).await;
    for (stream_window, connection_window) in [(0, 0), (0, u32::MAX), (u32::MAX, 0), (u32::MAX, u32::MAX)] {
        let set = |setup: &mut Setup| {
            setup.serve.stream_window = stream_window;
            setup.serve.connection_window = connection_window;
        };
        let world = Setup::new().with(set).start([of("a", &engine)]).await;
        let mut client = Client::connect(world.addr).await;
        for _ in 0..3 {
            let mut body = chat(1);
            body["user"] = "x".repeat(100_000).into();
            assert_eq!(client.post(&body).await.status(), StatusCode::OK);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_has_as_many_fields_over_either_protocol() {
    let (world, _engine) = one(Setup::new()).await;
    for (fields, status) in [(100, 200), (101, 431)] {
        let mut client = Client::connect(world.addr).await;
        let mut request = client.request(Method::GET, "/health");
        for n in 0..fields {
            request = request.header(format!("x-{n}"), "1");
        }
        let answer = client.send(request.body(Full::default()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), status);
        let told = if status == 431 { "too_many_headers" } else { "" };
        assert_eq!(reason(&answer), told);
        // There it has a Host as well.
        let head: String = (1..fields).map(|n| format!("x-{n}: 1\r\n")).collect();
        let mut http1 = super::client::Client::connect(world.addr).await;
        http1.send("GET", "/health", &head, "").await;
        assert_eq!(http1.answer().await.status, status);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_and_streams_have_their_limits() {
    let engine = engine(slow().slots(9)).await;
    let world = Setup::new()
        .with(|setup| {
            setup.serve.max_streams = 2;
            setup.serve.max_header_bytes = 0;
        })
        .start([of("a", &engine)])
        .await;
    let mut client = Client::connect_as(world.addr, |builder| {
        builder.max_header_list_size(1 << 20);
    })
    .await;
    let large = client
        .request(Method::GET, "/health")
        .header("x-a", "a".repeat(9_000));
    let refused = client.send(large.body(Full::default()).unwrap()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    let _first = client.post(&stream(9)).await;
    let _second = client.post(&stream(9)).await;
    // The client knows the limit, and keeps the third one to itself.
    let third = client
        .request(Method::GET, "/health")
        .body(Full::default())
        .unwrap();
    assert!(
        timeout(Duration::from_millis(200), client.send.send_request(third))
            .await
            .is_err()
    );
    assert_eq!(world.metric("paddler_in_flight_requests"), 2.0);
}
