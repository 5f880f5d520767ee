//! Is what the client gets what the engine said?

use paddler_engine::{EngineConfig, Fault};
use serde_json::{Value, json};

use super::client::{Answer, CHAT, Client, End, ask, chat, get, post, stream};
use super::stub::{Do, Stub};
use super::world::{Setup, engine, of, quick, spec};

/// Headers without those that are about one connection, in order of name. hyper's own server adds a date where there is
/// none, and the router the request's id.
fn end_to_end(answer: &Answer) -> Vec<(String, String)> {
    let hop = [
        "connection",
        "keep-alive",
        "transfer-encoding",
        "date",
        "x-request-id",
    ];
    let mut headers: Vec<_> = answer
        .headers
        .iter()
        .filter(|(name, _)| !hop.contains(&name.as_str()))
        .cloned()
        .collect();
    headers.sort();
    headers
}

fn all_kinds() -> Vec<(&'static str, Value)> {
    let prompt = json!({ "prompt": "Once upon a time", "max_tokens": 5, "n": 2 });
    let messages =
        json!({ "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": 5, "stream": true });
    vec![
        (CHAT, chat(12)),
        (CHAT, stream(12)),
        ("/v1/completions", prompt),
        ("/v1/messages", messages),
        ("/v1/embeddings", json!({ "input": ["a", "b", "c"] })),
        (
            "/v1/responses",
            json!({ "input": "Hi", "max_output_tokens": 3, "stream": true }),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_and_headers_are_those_of_a_direct_call() {
    for config in [quick(), EngineConfig::vllm("tiny").instant().fixed_ids(true)] {
        let engine = engine(config).await;
        let world = Setup::new().start([of("a", &engine)]).await;
        for (path, mut body) in all_kinds() {
            body["model"] = json!("tiny");
            // vLLM makes the answer's id of the request's.
            let headers = "content-type: application/json\r\nx-request-id: 7\r\n";
            let direct = ask(engine.addr(), "POST", path, headers, body.to_string()).await;
            let routed = ask(world.addr, "POST", path, headers, body.to_string()).await;
            assert_eq!((routed.status, routed.end), (200, End::Whole), "{path}");
            assert_eq!(routed.text(), direct.text(), "{path}");
            assert_eq!(end_to_end(&routed), end_to_end(&direct), "{path}");
        }
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_byte_at_a_time_is_the_same_stream() {
    let engine = engine(quick()).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    let whole = post(world.addr, CHAT, &stream(2)).await;
    engine
        .set_fault(Some(Fault::Drip {
            every: std::time::Duration::from_micros(10),
        }))
        .unwrap();
    let dripped = post(world.addr, CHAT, &stream(2)).await;
    assert_eq!((dripped.text(), dripped.end), (whole.text(), End::Whole));
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mebibyte_passes_in_both_directions() {
    let text: String = (0..1 << 20)
        .map(|at: u32| char::from(b'a' + (at % 26) as u8))
        .collect();
    let stub = Stub::start([Do::ok(&text)]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let body = json!({ "messages": [{ "role": "user", "content": text }] }).to_string();
    let answer = ask(world.addr, "POST", CHAT, "", &body).await;
    assert!(answer.text() == text && answer.end == End::Whole);
    assert!(stub.seen()[0].ends_with(&body));
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_status_of_an_upstream_passes_untouched() {
    let engine = engine(quick()).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    for code in [400, 401, 404, 409, 413, 418, 422, 500, 502, 504] {
        engine
            .set_fault(Some(Fault::Status {
                code,
                retry_after: Some(7),
            }))
            .unwrap();
        let direct = post(engine.addr(), CHAT, &chat(2)).await;
        let before = engine.stats().requests;
        let routed = post(world.addr, CHAT, &chat(2)).await;
        assert_eq!((routed.status, routed.text()), (code, direct.text()));
        assert_eq!(end_to_end(&routed), end_to_end(&direct));
        assert_eq!(
            engine.stats().requests,
            before + 1,
            "{code} is no reason to ask again"
        );
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_html_passes_untouched() {
    let page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\
                content-encoding: gzip\r\nconnection: x-drop, close\r\nx-drop: 1\r\ncontent-length: 6\r\n\r\n<html>";
    let stub = Stub::start([Do::say(page)]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let answer = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!((answer.status, answer.text()), (200, "<html>"));
    let cookies: Vec<_> = answer
        .headers
        .iter()
        .filter(|(name, _)| name == "set-cookie")
        .collect();
    assert_eq!(cookies.len(), 2);
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    assert_eq!(
        (answer.header("x-drop"), answer.header("connection")),
        (None, None)
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_without_a_body_keep_their_headers() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 1234\r\nx-a: 1\r\n\r\n";
    let empty = "HTTP/1.1 204 No Content\r\nx-a: 2\r\n\r\n";
    let same = "HTTP/1.1 304 Not Modified\r\netag: \"e\"\r\n\r\n";
    let stub = Stub::start([Do::say(head), Do::say(empty), Do::say(same)]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let mut client = Client::connect(world.addr).await;
    client.send("HEAD", "/some/page", "", "").await;
    let answer = client.head().await.unwrap();
    assert_eq!(
        (
            answer.status,
            answer.header("content-length"),
            answer.header("x-a")
        ),
        (200, Some("1234"), Some("1"))
    );
    client.send("GET", "/some/page", "", "").await;
    let answer = client.answer().await;
    assert_eq!(
        (
            answer.status,
            answer.header("x-a"),
            answer.header("content-length")
        ),
        (204, Some("2"), None)
    );
    client
        .send("GET", "/some/page", "if-none-match: \"e\"\r\n", "")
        .await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.header("etag")), (304, Some("\"e\"")));
    assert!(stub.seen()[2].contains("if-none-match: \"e\"\r\n"));
    assert_eq!(stub.seen().len(), 3, "all over one connection of the client");
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_upstream_is_no_reason_to_speak_an_old_language() {
    let stub = Stub::start([Do::SayAndClose(
        b"HTTP/1.0 200 OK\r\nx-a: 1\r\n\r\nall of it".to_vec(),
    )])
    .await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let mut client = Client::connect(world.addr).await;
    for _ in 0..2 {
        client.send("GET", "/page", "", "").await;
        let answer = client.answer().await;
        assert_eq!(
            (answer.text(), answer.end),
            ("all of it", End::Whole),
            "its end is told, and the connection stays"
        );
    }
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_client_gets_what_it_can_read() {
    let engine = engine(quick()).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    let direct = post(engine.addr(), CHAT, &stream(3)).await;
    let body = stream(3).to_string();
    let mut client = Client::connect(world.addr).await;
    client
        .write(format!(
            "POST {CHAT} HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
    let answer = client.answer().await;
    assert_eq!(
        (answer.header("transfer-encoding"), answer.text(), answer.end),
        (None, direct.text(), End::Eof)
    );
    assert_eq!(get(world.addr, "/health").await.status, 200);
    world.quiet().await;
}

#[tokio::test]
async fn trailers_reach_a_client_that_takes_them() {
    let answer = "HTTP/1.1 200 OK\r\ntrailer: x-usage, x-other\r\ntransfer-encoding: chunked\r\n\r\n\
                  5\r\nhello\r\n0\r\nx-usage: 7\r\nx-other: 8\r\n\r\n";
    let stub = Stub::start([Do::say(answer)]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let mut client = Client::connect(world.addr).await;
    client
        .send("GET", "/page", "te: deflate;q=0.5, Trailers\r\n", "")
        .await;
    let head = client.head().await.unwrap();
    assert_eq!(head.header("trailer"), Some("x-usage, x-other"));
    client
        .until("5\r\nhello\r\n0\r\nx-usage: 7\r\nx-other: 8\r\n\r\n")
        .await;
    assert!(
        stub.seen()[0].contains("te: trailers\r\n"),
        "the upstream is told that somebody takes them"
    );
    // Who takes none gets none, and the connection goes on.
    let mut client = Client::connect(world.addr).await;
    for _ in 0..2 {
        client.send("GET", "/page", "", "").await;
        let answer = client.answer().await;
        assert_eq!((answer.text(), answer.end), ("hello", End::Whole));
        assert!(!stub.seen().last().unwrap().contains("te: "));
    }
    world.quiet().await;
}

#[tokio::test]
async fn words_before_the_answer_are_read_over() {
    let answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n\
                  HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
    let stub = Stub::start([Do::say(answer)]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let mut client = Client::connect(world.addr).await;
    for _ in 0..2 {
        client.post(CHAT, &chat(1)).await;
        let answer = client.answer().await;
        assert_eq!((answer.status, answer.text()), (200, "hi"));
    }
    assert_eq!(stub.connections(), 1);
    world.quiet().await;
}

#[tokio::test]
async fn an_answer_that_has_no_body_has_no_framing() {
    // The length of what a 304 does not send may be told, and hyper's server does not tell it.
    let same = "HTTP/1.1 304 Not Modified\r\netag: \"e\"\r\ncontent-length: 1234\r\n\r\n";
    let gone = "HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n";
    let stub = Stub::start([Do::say(same), Do::say(gone), Do::ok("next")]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let mut client = Client::connect(world.addr).await;
    client.send("GET", "/page", "", "").await;
    let framing = |answer: &Answer| {
        let names = ["content-length", "transfer-encoding"];
        names.iter().any(|name| answer.header(name).is_some())
    };
    let answer = client.head().await.unwrap();
    assert_eq!((answer.status, framing(&answer)), (304, false));
    assert_eq!(answer.header("etag"), Some("\"e\""));
    client.send("GET", "/page", "", "").await;
    let answer = client.head().await.unwrap();
    assert_eq!((answer.status, framing(&answer)), (204, false));
    client.send("GET", "/page", "", "").await;
    assert_eq!(client.answer().await.text(), "next");
    world.quiet().await;
}
