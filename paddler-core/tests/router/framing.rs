//! Is every answer, and every request, exactly one?

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use paddler_core::forward::{Body, Keys};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use super::client::{CHAT, Client, End, HANG, ask, chat, get, post};
use super::stub::{Do, Stub, read_to_end};
use super::world::{Setup, spec};

#[tokio::test]
async fn a_body_that_no_engine_reads_is_no_second_request() {
    let stub = Stub::start([Do::ok("first"), Do::ok("smuggled")]).await;
    let with_keys = Setup::new().with(|setup| {
        setup.options.keys = Some(Arc::new(Keys::read("sk-1").unwrap()));
    });
    for (setup, method, headers) in [
        (Setup::new(), "GET", ""),
        (Setup::new(), "HEAD", ""),
        (Setup::new(), "TRACE", ""),
        (Setup::new(), "PROPFIND", ""),
        (
            with_keys,
            "OPTIONS",
            "origin: http://a\r\naccess-control-request-method: POST\r\n",
        ),
    ] {
        let world = setup.start([spec("a", &stub.url)]).await;
        let hidden = "POST /slots/0?action=erase HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
        let answer = ask(world.addr, method, "/x", headers, hidden).await;
        assert_eq!(
            (answer.status, answer.reason()),
            (400, "unexpected_body"),
            "{method}"
        );
        // A host may hand over a body that no header announces.
        let request = http::Request::builder().method(method).uri("/x");
        let request = request
            .header("origin", "http://a")
            .header("access-control-request-method", "POST")
            .body(Body::full(hidden))
            .unwrap();
        assert_eq!(world.router.handle(request).await.status(), 400, "{method}");
        world.quiet().await;
    }
    assert!(stub.seen().is_empty(), "{:?}", stub.seen());
}

#[tokio::test]
async fn a_method_is_what_it_is_in_capital_letters() {
    let stub = Stub::start([Do::ok("x")]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let answer = ask(world.addr, "post", CHAT, "", chat(1).to_string()).await;
    assert_eq!((answer.status, answer.reason()), (400, "bad_method"));
    assert!(stub.seen().is_empty());
}

#[tokio::test]
async fn an_answer_in_chunks_has_no_other_length() {
    let both = |status: &str, length: u32| {
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\ntransfer-encoding: chunked\r\n");
        Do::say(&format!(
            "{head}content-type: text/plain\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        ))
    };
    for (status, length) in [
        ("200 OK", 2),
        ("200 OK", 0),
        ("200 OK", 100),
        ("404 Not Found", 2),
    ] {
        let stub = Stub::start([both(status, length)]).await;
        let world = Setup::new().start([spec("a", &stub.url)]).await;
        let answer = post(world.addr, CHAT, &chat(1)).await;
        assert_eq!(
            (answer.text(), answer.end),
            ("hello", End::Whole),
            "{status}, {length}"
        );
        world.quiet().await;
    }
    // One that is kept, and passed on when nobody else takes the request: the next answer stands by itself.
    let stub = Stub::start([both("429 Too Many Requests\r\nretry-after: 300", 20)]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, &chat(1)).await;
    assert_eq!(client.answer().await.text(), "hello");
    client.send("GET", "/v1/models", "", "").await;
    assert!(client.answer().await.json()["data"].is_array());
}

#[tokio::test]
async fn an_answer_that_is_none_is_said_to_be_none() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nhi",
        "HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\nhi",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nhi",
    ] {
        let stub = Stub::start([Do::say(answer)]).await;
        let world = Setup::new().start([spec("a", &stub.url)]).await;
        for method in ["POST", "HEAD"] {
            let answered = match method {
                "POST" => post(world.addr, CHAT, &chat(1)).await,
                _ => {
                    let mut client = Client::connect(world.addr).await;
                    client.send(method, "/x", "", "").await;
                    client.head().await.unwrap()
                }
            };
            assert_eq!(
                (answered.status, answered.reason()),
                (502, "upstream_broke"),
                "{method} {answer}"
            );
        }
        world.quiet().await;
    }
}

#[tokio::test]
async fn an_error_over_an_unread_body_ends_its_connection() {
    // An engine that refuses by the head alone takes the body for the next request, and answers it, too.
    let refused = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno";
    let stub = Stub::start([Do::say(refused), Do::ok("for the victim")]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 401);
    assert_eq!(get(world.addr, "/victim").await.text(), "for the victim");
    assert_eq!(stub.connections(), 2);
    // Without a body there is nothing left to read.
    let stub = Stub::start([Do::say("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    for _ in 0..3 {
        assert_eq!(get(world.addr, "/x").await.status, 404);
    }
    assert_eq!(stub.connections(), 1);
}

#[tokio::test]
async fn a_body_may_not_come_for_ever() {
    let stub = Stub::start([Do::ok("x")]).await;
    let setup = Setup::new().with(|setup| setup.options.timeouts.body_idle = Duration::from_millis(150));
    let world = setup.start([spec("a", &stub.url)]).await;
    let mut client = Client::connect(world.addr).await;
    client
        .write(format!(
            "POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{{"
        ))
        .await;
    // Each pause is shorter than what is allowed, and the whole is slower.
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.try_write(b" ").await;
        if client.has_answer().await {
            break;
        }
    }
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.reason()), (408, "slow_body"));
    world.quiet().await;
}

#[tokio::test]
async fn what_an_upstream_does_not_read_is_not_held() {
    // It answers early and keeps the connection: the rest of the body must not wait there for it.
    let stub = Stub::early("HTTP/1.1 413 Payload Too Large\r\ncontent-length: 0\r\n\r\n").await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let body = format!("{{\"messages\":[],\"x\":\"{}\"}}", "y".repeat(8 << 20));
    let request = http::Request::post(CHAT).body(Body::full(body)).unwrap();
    let response = world.router.handle(request).await;
    assert_eq!(response.status(), 413);
    response.into_body().collect().await.unwrap();
    stub.closed().await;
    world.quiet().await;
}

#[tokio::test]
async fn what_comes_behind_an_answer_ends_its_connection() {
    for (said, text) in [
        ("content-length: 2\r\n\r\nhi!", "hi"),
        ("content-length: 0\r\n\r\n\r\n", ""),
        (
            "content-length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nsmuggled",
            "hi",
        ),
    ] {
        let stub = Stub::start([Do::say(&format!("HTTP/1.1 200 OK\r\n{said}")), Do::ok("its own")]).await;
        let world = Setup::new().start([spec("a", &stub.url)]).await;
        assert_eq!(post(world.addr, CHAT, &chat(1)).await.text(), text);
        assert_eq!(post(world.addr, CHAT, &chat(1)).await.text(), "its own");
        assert_eq!(stub.connections(), 2, "{said}");
        world.quiet().await;
    }
}

#[tokio::test]
async fn an_answer_before_all_of_its_request_was_taken_ends_its_connection() {
    // Else the rest of the body would be missing there, and the next request be taken for it.
    let stub = Stub::early("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let size = 8 << 20;
    let body = format!("{{\"messages\":[],\"x\":\"{}\"}}", "y".repeat(size));
    let request = http::Request::post(CHAT).body(Body::full(body)).unwrap();
    let response = world.router.handle(request).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
    let (first, listener) = stub.answered().await;
    let (addr, next) = (world.addr, listener.accept());
    let asked = tokio::spawn(async move { get(addr, "/next").await });
    let next = tokio::time::timeout(HANG, next).await;
    assert!(next.is_ok(), "the next request went over the same connection");
    assert!(read_to_end(first).await < size, "all of it was taken");
    asked.abort();
    drop(next);
    world.quiet().await;
}

#[tokio::test]
async fn what_comes_behind_the_last_request_costs_it_nothing_of_its_answer() {
    // A socket that is closed with bytes unread takes back what it has not sent yet. There is no room for so much on the way, so it is
    // still being written when they come.
    let text = "x".repeat(8 << 20);
    let stub = Stub::start([Do::ok(&text)]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut client = socket.connect(world.addr).await.unwrap();
    let body = chat(1).to_string();
    let length = body.len();
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    client.write_all((head + &body).as_bytes()).await.unwrap();
    let mut got = Vec::new();
    client.read_buf(&mut got).await.unwrap();
    client.write_all(b"\r\n").await.unwrap();
    let read = tokio::time::timeout(HANG, client.read_to_end(&mut got)).await;
    read.expect("it ends").expect("it ends well");
    assert!(got.ends_with(text.as_bytes()), "{} bytes came", got.len());
    world.quiet().await;
}
