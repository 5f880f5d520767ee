//! Do checksums and the journal tell what became of an answer?

use paddler_engine::{Corrupt, End as Over, Engine, EngineConfig, Happened, digest, verify_stream};
use serde_json::{Value, json};

use crate::client::{Client, End, chat, endless, eventually, get, post_with, slow, start};

const CHAT: &str = "/v1/chat/completions";

fn quick() -> EngineConfig {
    EngineConfig::vllm("tiny").instant()
}

fn streamed() -> Value {
    let mut body = chat("hello");
    body["stream"] = json!(true);
    body
}

/// What the engine tells of this request.
fn told(engine: &Engine, id: &str) -> Vec<Happened> {
    let lines = engine.journal().into_iter();
    lines
        .filter(|line| line.id == id)
        .map(|line| line.happened)
        .collect()
}

async fn ask(engine: &Engine, id: &str, fault: &str, body: &Value) -> crate::client::Answer {
    let fault = if fault.is_empty() {
        String::new()
    } else {
        format!("x-sim-fault: {fault}\r\n")
    };
    let headers = format!("x-request-id: {id}\r\nx-sim-checksum: 1\r\n{fault}");
    post_with(engine, CHAT, &headers, body).await
}

#[tokio::test]
async fn a_checksum_is_right_where_all_has_arrived_and_else_not() {
    for config in [quick(), EngineConfig::llamacpp("tiny").instant()] {
        let engine = start(config).await;
        let stream = ask(&engine, "a", "", &streamed()).await;
        assert_eq!(verify_stream(&stream.body), Ok(()));
        let mut altered = stream.body.clone();
        altered[20] ^= 1;
        assert_eq!(verify_stream(&altered), Err(Corrupt::Altered));
        for lost in 1..stream.body.len() {
            assert!(
                verify_stream(&stream.body[..stream.body.len() - lost]).is_err(),
                "{lost}"
            );
        }
        let odd = ask(
            &engine,
            "b",
            "quote-done, unicode, pieces=3, padding=99",
            &streamed(),
        )
        .await;
        assert_eq!(verify_stream(&odd.body), Ok(()));
        let whole = ask(&engine, "c", "", &chat("hello")).await;
        assert_eq!(whole.header("x-sim-digest"), Some(digest(&whole.body).as_str()));
        let plain = post_with(&engine, CHAT, "", &streamed()).await;
        assert_eq!(
            verify_stream(&plain.body),
            Err(Corrupt::Unfinished),
            "nobody asked for one"
        );
    }
}

#[tokio::test]
async fn the_journal_tells_how_each_request_ended() {
    let engine = start(quick()).await;
    for (id, fault, body, end) in [
        ("whole", "", chat("hello"), Over::Whole),
        ("stream", "", streamed(), Over::Whole),
        ("cut", "reset-after=40", streamed(), Over::Cut),
        ("failed", "error-event-after=40", streamed(), Over::Failed),
        ("none", "reset", streamed(), Over::Cut),
        ("refused", "status=503", chat("hello"), Over::Whole),
    ] {
        let answer = ask(&engine, id, fault, &body).await;
        let over = |told: &Happened| matches!(told, Happened::Ended { .. });
        eventually(id, || told(&engine, id).iter().any(over)).await;
        let told = told(&engine, id);
        let faults = fault.split('=').next().filter(|name| !name.is_empty());
        let faults: Vec<_> = faults.into_iter().map(str::to_owned).collect();
        assert_eq!(
            told[0],
            Happened::Began {
                path: CHAT.into(),
                faults
            }
        );
        let bytes = answer.body.len() as u64;
        assert_eq!(told.last(), Some(&Happened::Ended { end, bytes }), "{id}");
        assert_eq!(told.contains(&Happened::FirstByte), bytes > 0);
    }
    get(&engine, "/health").await;
    let about = |id: &str| engine.journal().iter().filter(|line| line.id == id).count();
    assert_eq!(about(""), 1, "no notes are taken of polls, only of the start");
}

#[tokio::test]
async fn a_client_that_leaves_is_told_as_cancelled() {
    let engine = start(slow(quick())).await;
    let mut client = Client::connect(&engine).await;
    let mut body = streamed();
    body["max_tokens"] = json!(1000);
    client.post(CHAT, "x-request-id: leaver\r\n", &body).await;
    client.fill_to(20).await;
    drop(client);
    let silent = endless(&engine, CHAT, chat("hello")).await;
    eventually("the second runs", || engine.stats().running >= 1).await;
    drop(silent);
    let cancelled = |told: &Happened| {
        matches!(
            told,
            Happened::Ended {
                end: Over::Cancelled,
                ..
            }
        )
    };
    eventually("it is told", || told(&engine, "leaver").iter().any(cancelled)).await;
    eventually("before a byte, too", || told(&engine, "").iter().any(cancelled)).await;
}

#[tokio::test]
async fn the_journal_is_kept_in_a_file_and_told_over_http() {
    let file = std::env::temp_dir().join(format!("paddler-engine-journal-{}", std::process::id()));
    std::fs::remove_file(&file).ok();
    for _ in 0..2 {
        let engine = start(quick().journal_file(Some(file.clone()))).await;
        assert_eq!(ask(&engine, "one", "", &chat("hello")).await.end, End::Whole);
        let over_http = get_log(&engine).await;
        assert_eq!(over_http.len(), 5, "{over_http:?}");
        engine.shutdown().await;
    }
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let lines: Vec<paddler_engine::JournalLine> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 10);
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.happened == Happened::Started)
            .count(),
        2
    );
}

async fn get_log(engine: &Engine) -> Vec<Value> {
    let answer = get(engine, "/sim/log").await;
    answer
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
