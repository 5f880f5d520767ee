//! Does each fault of an answer's form have the form it promises?

use std::time::Duration;

use paddler_engine::{Engine, EngineConfig, Fault, FaultRule, Scope};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{
    Answer, Client, End, HANG, chat, endless, eventually, get, post, post_with, slow, start,
};

const CHAT: &str = "/v1/chat/completions";

fn quick() -> EngineConfig {
    EngineConfig::llamacpp("tiny").instant().fixed_ids(true)
}

fn streamed() -> Value {
    let mut body = chat("hello");
    body["stream"] = json!(true);
    body
}

async fn under(engine: &Engine, fault: &str, body: &Value) -> Answer {
    post_with(engine, CHAT, &format!("x-sim-fault: {fault}\r\n"), body).await
}

/// All that comes on a connection of its own for one request.
async fn raw(engine: &Engine, fault: &str, body: &Value) -> String {
    let mut client = Client::connect(engine).await;
    let headers = format!("connection: close\r\nx-sim-fault: {fault}\r\n");
    client.post(CHAT, &headers, body).await;
    let (_, bytes) = client.rest().await;
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn pieces_and_slow_heads_change_no_byte() {
    let engine = start(quick()).await;
    for body in [chat("hello"), streamed()] {
        let plain = post(&engine, CHAT, &body).await;
        for fault in ["pieces=1", "pieces=7", "slow-head=0"] {
            let answer = under(&engine, fault, &body).await;
            assert_eq!(answer.head, plain.head, "{fault}");
            assert_eq!(
                (answer.body, answer.end),
                (plain.body.clone(), End::Whole),
                "{fault}"
            );
        }
    }
}

#[tokio::test]
async fn a_slow_head_takes_its_time_for_each_byte() {
    let engine = start(quick()).await;
    let mut client = Client::connect(&engine).await;
    client
        .post(CHAT, "x-sim-fault: slow-head=1\r\n", &chat("hello"))
        .await;
    let began = tokio::time::Instant::now();
    let answer = client.answer().await;
    let least = Duration::from_millis(1) * (answer.head.len() as u32 - 1);
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
}

#[tokio::test]
async fn text_can_be_wide_or_quote_its_own_end() {
    let engine = start(quick()).await;
    let wide = under(&engine, "unicode", &streamed()).await;
    assert!(!wide.body.is_ascii());
    let quoting = under(&engine, "quote-done", &streamed()).await;
    let events = quoting.events();
    assert!(events[1].contains(r"\n\ndata: [DONE]\n\n"), "{}", events[1]);
    assert_eq!(events.iter().filter(|event| **event == "[DONE]").count(), 1);
}

#[tokio::test]
async fn a_stream_can_lack_its_last_event() {
    for config in [quick(), EngineConfig::vllm("tiny").instant()] {
        let engine = start(config).await;
        let answer = under(&engine, "no-done", &streamed()).await;
        assert_eq!(answer.end, End::Whole);
        assert!(!answer.text().contains("[DONE]"));
        assert!(answer.events().len() > 8);
    }
}

#[tokio::test]
async fn errors_of_other_shapes() {
    let engine = start(quick()).await;
    for (fault, status, kind, begin) in [
        ("html-error=502", 502, "text/html; charset=utf-8", "<!DOCTYPE"),
        ("text-error=503", 503, "text/plain", "upstream"),
        ("body-null", 200, "application/json; charset=utf-8", "null"),
    ] {
        let answer = under(&engine, fault, &chat("hello")).await;
        assert_eq!(
            (answer.status(), answer.header("content-type")),
            (status, Some(kind))
        );
        assert!(answer.text().starts_with(begin), "{fault}");
    }
}

#[tokio::test]
async fn headers_twice_too_many_and_missing() {
    let engine = start(quick()).await;
    let double = under(&engine, "duplicate-headers", &chat("hello")).await;
    for name in ["Server: ", "Content-Type: "] {
        assert_eq!(double.head.matches(name).count(), 2, "{name}");
    }
    let many = under(&engine, "many-headers=200", &chat("hello")).await;
    assert_eq!(many.head.to_ascii_lowercase().matches("x-sim-more-").count(), 200);
    let untyped = under(&engine, "no-content-type", &chat("hello")).await;
    assert_eq!((untyped.status(), untyped.header("content-type")), (200, None));
}

#[tokio::test]
async fn what_says_gzip_and_what_is() {
    let engine = start(quick()).await;
    let plain = post(&engine, CHAT, &chat("hello")).await;
    let labelled = under(&engine, "label-gzip", &chat("hello")).await;
    assert_eq!(
        (labelled.header("content-encoding"), &labelled.body),
        (Some("gzip"), &plain.body)
    );
    let packed = under(&engine, "gzip", &chat("hello")).await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert_eq!(&packed.body[..2], [0x1f, 0x8b]);
    assert!(
        packed
            .body
            .windows(plain.body.len())
            .any(|window| window == plain.body)
    );
}

#[tokio::test]
async fn chunks_trailers_and_interim_answers() {
    let engine = start(quick()).await;
    let plain = post(&engine, CHAT, &chat("hello")).await;
    let chunked = under(&engine, "chunked", &chat("hello")).await;
    assert_eq!(
        (
            chunked.header("content-length"),
            chunked.header("transfer-encoding")
        ),
        (None, Some("chunked"))
    );
    assert_eq!(chunked.body, plain.body);
    for body in [chat("hello"), streamed()] {
        let with_trailer = raw(&engine, "trailers", &body).await;
        assert!(
            with_trailer.ends_with("\r\n0\r\nx-sim-trailer: last\r\n\r\n"),
            "{with_trailer}"
        );
    }
    let interim = raw(&engine, "informational=103", &chat("hello")).await;
    assert!(interim.starts_with("HTTP/1.1 103 Interim\r\n"), "{interim}");
    assert!(interim.contains("\r\n\r\nHTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn any_bytes_can_be_the_answer() {
    let engine = start(quick()).await;
    let text = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab".to_owned();
    engine.set_fault(Some(Fault::Raw { text: text.clone() })).unwrap();
    assert_eq!(raw(&engine, "loading", &chat("hello")).await, text);
}

#[tokio::test]
async fn a_connection_can_end_without_notice() {
    let engine = start(quick()).await;
    let mut client = Client::connect(&engine).await;
    client
        .post(CHAT, "x-sim-fault: close-after-answer\r\n", &chat("hello"))
        .await;
    let answer = client.answer().await;
    assert_eq!((answer.header("connection"), answer.end), (None, End::Whole));
    assert_eq!(client.rest().await, (End::Eof, Vec::new()));
}

#[tokio::test]
async fn padding_makes_a_body_longer_and_means_nothing() {
    let engine = start(quick()).await;
    let whole = under(&engine, "padding=100000", &chat("hello")).await;
    assert!(whole.body.len() > 100_000);
    assert_eq!(whole.json()["object"], "chat.completion");
    let stream = under(&engine, "padding=100000", &streamed()).await;
    assert!(stream.body.len() > 100_000);
    assert!(stream.text().starts_with(": ..."));
    assert!(stream.text().ends_with("\n\ndata: [DONE]\n\n"));
}

#[tokio::test]
async fn lists_of_models_and_pages_of_metrics_can_be_odd() {
    for config in [quick(), EngineConfig::vllm("tiny")] {
        let engine = start(config).await;
        let names = ["b", "a", "b"].map(str::to_owned).to_vec();
        engine.add_fault(Fault::ModelList { names }).unwrap();
        engine.add_fault(Fault::OddMetrics).unwrap();
        let list = get(&engine, "/v1/models").await.json();
        let ids: Vec<_> = list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|model| &model["id"])
            .collect();
        assert_eq!(ids, ["b", "a", "b"]);
        let page = get(&engine, "/metrics").await;
        assert!(page.text().contains(r#"text="a \"quoted\" } word""#));
    }
}

#[tokio::test]
async fn a_client_can_be_hung_up_on_and_can_take_all_along() {
    let engine = start(slow(quick())).await;
    engine.add_fault(FaultRule::new(Fault::HangUp).times(2)).unwrap();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(engine.addr()).await.unwrap();
        let read = timeout(HANG, stream.read_u8()).await.unwrap();
        assert!(read.is_err());
    }
    assert_eq!(get(&engine, "/health").await.status(), 200);
    engine.set_fault(Some(Fault::CrashOnDisconnect)).unwrap();
    let leaver = endless(&engine, CHAT, streamed()).await;
    let mut stayer = endless(&engine, CHAT, streamed()).await;
    eventually("both run", || engine.stats().running == 2).await;
    drop(leaver);
    assert_eq!(stayer.answer().await.end, End::Reset);
    eventually("nothing runs", || engine.stats().running == 0).await;
    assert_eq!(get(&engine, "/health").await.status(), 200, "and it serves on");
}

#[tokio::test]
async fn requests_can_be_refused_for_their_form() {
    let engine = start(quick()).await;
    engine.set_fault(Some(Fault::RefuseChunked)).unwrap();
    assert_eq!(post(&engine, CHAT, &chat("hello")).await.status(), 200);
    let mut stream = TcpStream::connect(engine.addr()).await.unwrap();
    let text = "POST /v1/chat/completions HTTP/1.1\r\nhost: e\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut begin = [0; 12];
    timeout(HANG, stream.read_exact(&mut begin))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(&begin, b"HTTP/1.1 411");
    engine.set_fault(Some(Fault::VirtualHost)).unwrap();
    assert_eq!(get(&engine, "/health").await.status(), 404);
    let mut client = Client::connect(&engine).await;
    let right = format!("GET /health HTTP/1.1\r\nhost: {}\r\n\r\n", engine.addr());
    client.write(&right).await;
    assert_eq!(client.answer().await.status(), 200);
}

#[tokio::test]
async fn a_rule_can_spare_the_first_flap_and_draw() {
    let engine = start(quick().seed(7)).await;
    let down = || Fault::Status {
        code: 503,
        retry_after: None,
    };
    let on_health = |rule: FaultRule| rule.on(Scope::Path("/health".into()));
    let mut seen = Vec::new();
    for rule in [
        FaultRule::new(down()).after(2),
        FaultRule::new(down()).every(2),
        FaultRule::new(down()).chance(0.5),
        FaultRule::new(down()).chance(0.5),
        FaultRule::new(down()).chance(0.0),
    ] {
        engine.set_fault(None).unwrap();
        engine.add_fault(on_health(rule)).unwrap();
        let mut row = String::new();
        for _ in 0..12 {
            row.push(if get(&engine, "/health").await.status() == 200 {
                '.'
            } else {
                'x'
            });
        }
        seen.push(row);
    }
    assert_eq!(seen[0], "..xxxxxxxxxx");
    assert_eq!(seen[1], "x.x.x.x.x.x.");
    assert!(seen[2].contains('x') && seen[2].contains('.'), "{}", seen[2]);
    assert_eq!(seen[2], seen[3], "the draws are the seed's");
    assert_eq!(seen[4], "............");
}
