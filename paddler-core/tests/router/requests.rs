//! Does the engine get what the client sent?

use std::time::Duration;

use paddler_core::upstream::http::UpstreamKey;
use serde_json::json;

use super::client::{CHAT, Client, End, ask, chat, get, post};
use super::stub::{Do, Stub};
use super::world::{Setup, engine, of, quick, spec};

const JSON: &str = "content-type: application/json\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_arrive_byte_by_byte_as_they_were_sent() {
    let engine = engine(quick()).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    let bodies = [
        r#"{"max_tokens":1,"messages":[{"content":"a","role":"user"}],"model":"tiny"}"#,
        "\t{ \"model\" :\r\n\"t\\u0069ny\", \"messages\": [ {\"role\":\"user\",\"content\":\"\\ud83d\\ude00 \\/\"} ] ,\n\"max_tokens\": 1}\n ",
        r#"{"seed":1.0e2,"messages":[{"role":"user","content":"é"}],"max_tokens":1,"seed":12345678901234567890}"#,
    ];
    for body in bodies {
        let answer = ask(world.addr, "POST", CHAT, JSON, body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let seen = engine.last_request().unwrap();
        assert_eq!(seen.body, body);
        assert_eq!(seen.headers["content-length"], body.len().to_string());
        assert!(!seen.headers.contains_key("transfer-encoding"));
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_in_chunks_gets_its_length() {
    let engine = engine(quick()).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    let body = chat(1).to_string();
    let mut client = Client::connect(world.addr).await;
    client
        .write(format!(
            "POST {CHAT} HTTP/1.1\r\nhost: r\r\ntransfer-encoding: chunked\r\n\r\n"
        ))
        .await;
    for byte in body.bytes() {
        client.write(format!("1\r\n{}\r\n", char::from(byte))).await;
    }
    client.write("0\r\n\r\n").await;
    assert_eq!(client.answer().await.status, 200);
    let seen = engine.last_request().unwrap();
    assert_eq!(seen.body, body);
    assert_eq!(seen.headers["content-length"], body.len().to_string());
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_a_body_gets_none() {
    let stub = Stub::start([Do::ok("{}")]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    get(world.addr, "/page?b=2&a=1").await;
    let host = stub.url.strip_prefix("http://").unwrap();
    let seen = stub.seen()[0].clone();
    let ours = |line: &&str| !line.starts_with("via: ") && !line.starts_with("x-request-id: ");
    let theirs: Vec<_> = seen.split("\r\n").filter(ours).collect();
    let expected = ["GET /page?b=2&a=1 HTTP/1.1", &format!("host: {host}"), "", ""];
    assert_eq!(theirs, expected, "{seen}");
    ask(world.addr, "DELETE", "/page", "content-length: 0\r\n", "").await;
    assert!(stub.seen()[1].contains("content-length: 0\r\n"));
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_about_one_connection_ends_at_the_router() {
    let stub = Stub::start([Do::ok("{}")]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let headers = "content-type: application/json\r\nconnection: keep-alive, X-Hop\r\nconnection: authorization\r\n\
                   keep-alive: timeout=5\r\nte: trailers\r\nupgrade: websocket\r\nproxy-authorization: Basic eA==\r\n\
                   x-hop: 1\r\nauthorization: Bearer k\r\nx-request-id: 7\r\naccept: a\r\naccept: b\r\nx-stainless-os: L\r\n";
    assert_eq!(
        ask(world.addr, "POST", CHAT, headers, chat(1).to_string())
            .await
            .status,
        200
    );
    let seen = stub.seen()[0].to_ascii_lowercase();
    let mut names: Vec<_> = seen
        .lines()
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line.split(':').next().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "accept",
            "accept",
            "connection",
            "content-length",
            "content-type",
            "host",
            "te",
            "via",
            "x-request-id",
            "x-stainless-os"
        ]
    );
    assert!(
        seen.contains("\r\nconnection: te\r\n"),
        "the upstream's own connection, for `te` alone: {seen}"
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_that_is_dropped_is_not_judged_by() {
    // Or a body could be said to be encoded to the router and not to the engine, and so dodge being read.
    let stub = Stub::start([Do::ok("{}")]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let headers = "content-encoding: gzip\r\nconnection: content-encoding\r\n";
    let answer = ask(
        world.addr,
        "POST",
        "/custom",
        headers,
        r#"{"model":"a","MODEL":"b"}"#,
    )
    .await;
    assert_eq!((answer.status, stub.seen().len()), (400, 0));
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_expects_to_be_told_is_told() {
    let engine = engine(quick()).await;
    let world = Setup::new()
        .with(|setup| setup.options.max_body = 1_000)
        .start([of("a", &engine)])
        .await;
    let body = chat(1).to_string();
    let mut client = Client::connect(world.addr).await;
    let expect = format!("{JSON}expect: 100-continue\r\ncontent-length: {}\r\n", body.len());
    client.send("POST", CHAT, &expect, "").await;
    assert_eq!(client.head().await.unwrap().status, 100);
    client.write(&body).await;
    assert_eq!(client.answer().await.status, 200);
    assert!(!engine.last_request().unwrap().headers.contains_key("expect"));

    client
        .send(
            "POST",
            CHAT,
            &format!("{JSON}expect: 100-continue\r\ncontent-length: 1001\r\n"),
            "",
        )
        .await;
    assert_eq!(client.answer().await.status, 413, "before a byte of the body");
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_that_clients_send_json_with_are_json() {
    let engine = engine(quick()).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    let types = [
        "",
        "content-type: application/x-www-form-urlencoded\r\n",
        "content-type: text/plain;charset=UTF-8\r\n",
        "content-type: APPLICATION/JSON; charset=utf-8\r\n",
        "content-type: application/vnd.api+json\r\n",
    ];
    for content_type in types {
        assert_eq!(
            ask(world.addr, "POST", CHAT, content_type, chat(1).to_string())
                .await
                .status,
            200,
            "{content_type}"
        );
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_path_that_was_judged_is_the_path_that_is_sent() {
    let stub = Stub::start([Do::ok("{}")]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    for (asked, sent) in [
        ("//v1///chat/./completions/", "/v1/chat/completions"),
        (
            "/v1/%63hat/x/../completions?a=%2F&b",
            "/v1/chat/completions?a=%2F&b",
        ),
        ("http://localhost:80/v1/completions", "/v1/completions"),
        ("http://[::1]/v1/completions", "/v1/completions"),
    ] {
        assert_eq!(
            post(world.addr, asked, &json!({ "prompt": "a" })).await.status,
            200,
            "{asked}"
        );
        let line = stub.seen().last().unwrap().lines().next().unwrap().to_owned();
        assert_eq!(line, format!("POST {sent} HTTP/1.1"));
    }
    let mut client = Client::connect(world.addr).await;
    client.send("OPTIONS", "*", "", "").await;
    assert_eq!(client.answer().await.status, 200);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_upstream_gets_its_own_key_and_no_other() {
    let engine = engine(quick().api_key("engine-key")).await;
    let mut upstream = of("a", &engine);
    upstream
        .extensions
        .insert(UpstreamKey::new("engine-key").unwrap());
    let world = Setup::new().start([upstream]).await;
    let headers = format!("{JSON}authorization: Bearer mine\r\nx-api-key: mine\r\n");
    assert_eq!(
        ask(world.addr, "POST", CHAT, &headers, chat(1).to_string())
            .await
            .status,
        200
    );
    let seen = engine.last_request().unwrap().headers;
    assert_eq!(
        seen.get_all("authorization").iter().collect::<Vec<_>>(),
        ["Bearer engine-key"]
    );
    assert!(!seen.contains_key("x-api-key"));
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clients_own_key_passes_where_the_router_has_none() {
    let engine = engine(quick().api_key("theirs")).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 401);
    let headers = format!("{JSON}authorization: Bearer theirs\r\n");
    assert_eq!(
        ask(world.addr, "POST", CHAT, &headers, chat(1).to_string())
            .await
            .status,
        200
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_one_after_the_other_on_one_connection_keep_apart() {
    let engine = engine(quick()).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    let mut client = Client::connect(world.addr).await;
    let body = chat(1).to_string();
    let one = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: r\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client
        .write(format!("{one}{one}GET /health HTTP/1.1\r\nhost: r\r\n\r\n{one}"))
        .await;
    for _ in 0..4 {
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.end), (200, End::Whole));
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_bytes_have_a_limit_and_are_given_back() {
    let engine = engine(quick()).await;
    let setup = Setup::new().with(|setup| {
        setup.options.max_body = 200_000;
        setup.options.max_buffered = 250_000;
        setup.options.timeouts.body_idle = Duration::from_secs(5);
    });
    let world = setup.start([of("a", &engine)]).await;
    let large = json!({ "messages": [{ "role": "user", "content": "x".repeat(150_000) }], "max_tokens": 1 })
        .to_string();
    let mut first = Client::connect(world.addr).await;
    first
        .write(format!(
            "POST {CHAT} HTTP/1.1\r\nhost: r\r\ncontent-length: {}\r\n\r\n{}",
            large.len(),
            &large[..140_000]
        ))
        .await;
    super::client::eventually("they are held", || {
        world.metric("paddler_buffered_bytes") == 140_000.0
    })
    .await;
    let second = ask(world.addr, "POST", CHAT, "", &large).await;
    assert_eq!(
        (second.status, second.reason(), second.header("retry-after")),
        (429, "buffers_full", Some("2"))
    );
    first.write(&large[140_000..]).await;
    assert_eq!(
        first.answer().await.status,
        400,
        "the engine finds it too long, so it got it"
    );
    assert_eq!(engine.last_request().unwrap().body, large);
    world.quiet().await;
}
