//! Does each fault have its effect, on the requests it is meant for, and for as long as it is meant?

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;

use paddler_engine::{Engine, EngineConfig, Fault, FaultRule, Scope};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{
    Answer, Client, End, HANG, chat, endless, eventually, families, get, post, post_with, slow, start,
};

const CHAT: &str = "/v1/chat/completions";

fn quick() -> EngineConfig {
    EngineConfig::llamacpp("tiny").instant()
}

fn streamed() -> Value {
    let mut body = chat("hello");
    body["stream"] = json!(true);
    body
}

async fn under(engine: &Engine, fault: &str, body: &Value) -> Answer {
    post_with(engine, CHAT, &format!("x-sim-fault: {fault}\r\n"), body).await
}

#[tokio::test]
async fn refuse_closes_the_port_until_cleared() {
    let engine = start(quick()).await;
    engine.set_fault(Some(Fault::Refuse)).unwrap();
    for _ in 0..3 {
        let refused = TcpStream::connect(engine.addr()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
    engine.set_fault(None).unwrap();
    assert_eq!(get(&engine, "/health").await.status(), 200);
}

#[tokio::test]
async fn refuse_can_end_by_itself_and_leaves_open_connections() {
    let engine = start(quick()).await;
    let mut client = Client::connect(&engine).await;
    client.send("GET", "/health", "", "").await;
    client.answer().await;
    engine
        .add_fault(FaultRule::new(Fault::Refuse).lasting(Duration::from_millis(40)))
        .unwrap();
    client.send("GET", "/health", "", "").await;
    assert_eq!(client.answer().await.status(), 200);
    timeout(HANG, async {
        while TcpStream::connect(engine.addr()).await.is_err() {}
    })
    .await
    .unwrap();
    assert_eq!(get(&engine, "/health").await.status(), 200);
}

#[tokio::test]
async fn reset_and_close_before_a_byte() {
    let engine = start(quick()).await;
    for (fault, end) in [("reset", End::Reset), ("close", End::Eof)] {
        for body in [chat("hello"), streamed()] {
            let answer = under(&engine, fault, &body).await;
            assert_eq!((answer.head.as_str(), answer.end), ("", end), "{fault}");
        }
    }
    assert_eq!(engine.stats().running, 0);
    assert_eq!(post(&engine, CHAT, &chat("hello")).await.status(), 200);
}

#[tokio::test]
async fn reset_and_end_of_file_after_some_bytes() {
    for config in [quick(), EngineConfig::vllm("tiny").instant()] {
        let engine = start(config.fixed_ids(true)).await;
        for body in [chat("hello"), streamed()] {
            let whole = post(&engine, CHAT, &body).await;
            for (fault, end) in [("reset-after", End::Reset), ("eof-after", End::Eof)] {
                for bytes in [0, 100] {
                    let answer = under(&engine, &format!("{fault}={bytes}"), &body).await;
                    assert_eq!((answer.status(), answer.end), (200, end), "{fault}={bytes}");
                    assert_eq!(answer.body, whole.body[..bytes]);
                    assert_eq!(answer.head, whole.head);
                }
            }
        }
    }
}

#[tokio::test]
async fn stalls_send_no_more() {
    let engine = start(quick()).await;
    let mut client = Client::connect(&engine).await;
    client
        .post(CHAT, "x-sim-fault: stall-after=50\r\n", &streamed())
        .await;
    client.fill_to(50).await;
    let more = timeout(Duration::from_millis(50), client.rest()).await;
    assert!(more.is_err());
    let mut silent = Client::connect(&engine).await;
    silent.post(CHAT, "x-sim-fault: stall\r\n", &chat("hello")).await;
    eventually("it holds its slot", || engine.stats().running == 1).await;
    assert!(timeout(Duration::from_millis(50), silent.fill()).await.is_err());
    drop(silent);
    eventually("its slot is free", || engine.stats().running == 0).await;
    let mut health = Client::connect(&engine).await;
    health.send("GET", "/health", "x-sim-fault: stall\r\n", "").await;
    assert!(timeout(Duration::from_millis(50), health.fill()).await.is_err());
}

#[tokio::test]
async fn drip_sends_byte_after_byte() {
    let engine = start(quick().fixed_ids(true)).await;
    let body = json!({ "messages": [], "max_tokens": 1, "stream": true });
    let whole = post(&engine, CHAT, &body).await;
    let mut client = Client::connect(&engine).await;
    client.post(CHAT, "x-sim-fault: drip=0\r\n", &body).await;
    let (_, raw) = client.rest().await;
    // Each byte is a chunk of its own, `1\r\nx\r\n`, and the last chunk is `0\r\n\r\n`.
    assert_eq!(raw.len(), whole.head.len() + 6 * whole.body.len() + 5);
    assert_eq!(under(&engine, "drip=0", &body).await.body, whole.body);
}

#[tokio::test]
async fn loading_answers_503_everywhere() {
    for config in [quick(), EngineConfig::vllm("tiny")] {
        let engine = start(config).await;
        engine.set_fault(Some(Fault::Loading)).unwrap();
        for path in ["/health", "/metrics", "/v1/models", "/nowhere"] {
            let answer = get(&engine, path).await;
            assert_eq!(
                (answer.status(), &answer.json()["error"]["code"]),
                (503, &json!(503)),
                "{path}"
            );
        }
        assert_eq!(post(&engine, CHAT, &chat("hello")).await.status(), 503);
        engine.set_fault(None).unwrap();
        assert_eq!(get(&engine, "/health").await.status(), 200);
    }
}

#[tokio::test]
async fn an_engine_loads_at_its_start() {
    let engine = start(quick().load_time(Duration::from_millis(60))).await;
    assert_eq!(get(&engine, "/health").await.status(), 503);
    timeout(HANG, async {
        while get(&engine, "/health").await.status() != 200 {}
    })
    .await
    .unwrap();
    let engine = start(EngineConfig::vllm("tiny").load_time(Duration::from_millis(60))).await;
    assert!(TcpStream::connect(engine.addr()).await.is_err());
    timeout(HANG, async {
        while TcpStream::connect(engine.addr()).await.is_err() {}
    })
    .await
    .unwrap();
    assert_eq!(get(&engine, "/health").await.status(), 200);
}

#[tokio::test]
async fn a_status_with_and_without_retry_after() {
    let engine = start(quick()).await;
    let answer = under(&engine, "status=429;retry-after=3", &chat("hello")).await;
    assert_eq!((answer.status(), answer.header("retry-after")), (429, Some("3")));
    assert_eq!(answer.json()["error"]["code"], 429);
    let answer = under(&engine, "status=500", &chat("hello")).await;
    assert_eq!((answer.status(), answer.header("retry-after")), (500, None));
    assert_eq!(engine.stats().completed, 0);
}

#[tokio::test]
async fn html_where_a_status_is_expected() {
    let engine = start(quick()).await;
    engine.set_fault(Some(Fault::Html)).unwrap();
    for path in ["/slots", "/metrics"] {
        let answer = get(&engine, path).await;
        assert_eq!(
            (answer.status(), answer.header("content-type")),
            (200, Some("text/html; charset=utf-8"))
        );
        assert!(answer.text().starts_with("<!DOCTYPE html>"));
    }
    assert_eq!(
        post(&engine, CHAT, &chat("hello")).await.json()["object"],
        "chat.completion"
    );
}

#[tokio::test]
async fn a_length_that_is_wrong() {
    let engine = start(quick().fixed_ids(true)).await;
    let body = chat("hello");
    let whole = post(&engine, CHAT, &body).await;
    let longer = under(&engine, "wrong-length=10", &body).await;
    assert_eq!(
        longer.header("content-length"),
        Some((whole.body.len() + 10).to_string().as_str())
    );
    assert_eq!((&longer.body, longer.end), (&whole.body, End::Eof));
    let mut client = Client::connect(&engine).await;
    client
        .post(
            CHAT,
            "connection: close\r\nx-sim-fault: wrong-length=-10\r\n",
            &body,
        )
        .await;
    let shorter = client.answer().await;
    let cut = whole.body.len() - 10;
    assert_eq!(
        (shorter.body.as_slice(), shorter.end),
        (&whole.body[..cut], End::Whole)
    );
    let (end, surplus) = client.rest().await;
    assert_eq!((end, surplus.as_slice()), (End::Eof, &whole.body[cut..]));
}

#[tokio::test]
async fn hang_on_disconnect_keeps_the_slot() {
    let engine = start(slow(quick())).await;
    engine.set_fault(Some(Fault::HangOnDisconnect)).unwrap();
    let client = endless(&engine, CHAT, chat("hello")).await;
    eventually("it runs", || engine.stats().running == 1).await;
    drop(client);
    eventually("the connection is gone", || engine.stats().open_connections == 0).await;
    get(&engine, "/health").await;
    assert_eq!((engine.stats().running, engine.stats().cancelled), (1, 0));
    let mut quick = Client::connect(&engine).await;
    let mut body = chat("hello");
    body["max_tokens"] = json!(1);
    quick.post(CHAT, "", &body).await;
    assert_eq!(quick.answer().await.status(), 200);
}

#[tokio::test]
async fn metrics_renamed_and_absent() {
    let engine = start(quick()).await;
    let names = BTreeMap::from([
        (
            "llamacpp:requests_processing".to_owned(),
            Some("llamacpp:busy".to_owned()),
        ),
        ("llamacpp:requests_deferred".to_owned(), None),
    ]);
    engine.set_fault(Some(Fault::MetricNames { names })).unwrap();
    let page = get(&engine, "/metrics").await;
    let known = families(page.text());
    assert!(known.contains(&"llamacpp:busy"));
    assert!(!page.text().contains("llamacpp:requests_"));
    assert!(page.text().contains("\nllamacpp:busy 0\n"));
}

#[tokio::test]
async fn slots_off_and_slow_status() {
    let engine = start(quick()).await;
    engine.set_fault(Some(Fault::SlotsOff)).unwrap();
    let answer = get(&engine, "/slots").await;
    assert_eq!(
        (answer.status(), &answer.json()["error"]["type"]),
        (501, &json!("not_supported_error"))
    );
    assert_eq!(get(&engine, "/health").await.status(), 200);
    engine
        .set_fault(Some(Fault::SlowStatus {
            delay: Duration::from_secs(3600),
        }))
        .unwrap();
    let mut client = Client::connect(&engine).await;
    client.send("GET", "/health", "", "").await;
    assert!(timeout(Duration::from_millis(50), client.fill()).await.is_err());
    assert_eq!(post(&engine, CHAT, &chat("hello")).await.status(), 200);
}

#[tokio::test]
async fn an_error_event_in_a_stream() {
    for config in [quick(), EngineConfig::vllm("tiny").instant()] {
        let engine = start(config).await;
        let answer = under(&engine, "error-event-after=0", &streamed()).await;
        assert_eq!((answer.status(), answer.end), (200, End::Whole));
        let events = answer.events();
        let error: Value = serde_json::from_str(events[0]).unwrap();
        assert_eq!((&error["error"]["code"], events[1]), (&json!(500), "[DONE]"));
        assert_eq!(
            under(&engine, "error-event-after=0", &chat("x")).await.json()["object"],
            "chat.completion"
        );
    }
}

#[tokio::test]
async fn a_rule_hits_as_often_and_where_it_says() {
    let engine = start(quick()).await;
    let down = Fault::Status {
        code: 500,
        retry_after: None,
    };
    engine.add_fault(FaultRule::new(down.clone()).times(2)).unwrap();
    engine
        .add_fault(FaultRule::new(down).on(Scope::Path("/props".into())))
        .unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(post(&engine, CHAT, &chat("hello")).await.status());
    }
    assert_eq!(seen, [500, 500, 200]);
    assert_eq!(get(&engine, "/props").await.status(), 500);
    assert_eq!(get(&engine, "/health").await.status(), 200);
    assert_eq!(engine.faults().len(), 1);
}

#[tokio::test]
async fn control_over_http() {
    let engine = start(quick()).await;
    let rule = json!({ "fault": "status", "code": 503, "retry_after": 1, "times": 1 });
    let set = post(&engine, "/sim/fault", &rule).await;
    assert_eq!((set.status(), &set.json()[0]["on"]), (200, &json!("inference")));
    assert_eq!(get(&engine, "/sim/fault").await.json()[0]["times"], 1);
    assert_eq!(post(&engine, CHAT, &chat("hello")).await.status(), 503);
    assert_eq!(post(&engine, CHAT, &chat("hello")).await.status(), 200);
    let several = json!([{ "fault": "slots-off" }, { "fault": "html", "on": "/props" }]);
    assert_eq!(
        post(&engine, "/sim/fault", &several)
            .await
            .json()
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(get(&engine, "/slots").await.status(), 501);
    let mut client = Client::connect(&engine).await;
    client.send("DELETE", "/sim/fault", "", "").await;
    assert_eq!(client.answer().await.json(), json!([]));
    assert_eq!(
        post(&engine, "/sim/fault", &json!({ "fault": "no-such" }))
            .await
            .status(),
        400
    );
    assert_eq!(get(&engine, "/sim/nothing").await.status(), 404);
    let stats = get(&engine, "/sim/stats").await.json();
    assert_eq!((&stats["requests"], &stats["completed"]), (&json!(3), &json!(1)));
    let requests = get(&engine, "/sim/requests").await.json();
    assert_eq!(
        (&requests[0]["path"], &requests[2]["path"]),
        (&json!(CHAT), &json!("/slots"))
    );
}

#[tokio::test]
async fn a_header_that_is_no_fault_is_told() {
    let engine = start(quick()).await;
    let answer = under(&engine, "reset-aftr=1", &chat("hello")).await;
    assert_eq!(answer.status(), 400);
    assert!(answer.text().contains("reset-aftr"));
}
