//! Does what the program tells of requests get where it is to go?

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use paddler_engine::{Engine, EngineConfig};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UdpSocket};
use tokio::time::timeout;

use crate::file;
use crate::support::client::{HANG, ask, chat, eventually, post, streamed};
use crate::support::program::{Gateway, Program, address_in};

async fn engine() -> Engine {
    Engine::start(EngineConfig::llamacpp("m").instant())
        .await
        .unwrap()
}

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_access_log_has_a_line_a_request_and_is_opened_anew_on_sighup() {
    let engine = engine().await;
    let url = engine.url();
    let text = format!(
        "upstreams: [{{id: a, url: '{url}'}}]\naccess_log: {{file: exports-access.jsonl}}\ncount_tokens: always\n"
    );
    let config = file("exports.yaml", &text);
    // It is looked for beside the config.
    let log = config.with_file_name("exports-access.jsonl");
    let moved = config.with_file_name("exports-access.jsonl.1");
    for old in [&log, &moved] {
        fs::remove_file(old).ok();
    }
    let args = ["gateway", "--listen=127.0.0.1:0", "--management=off", "--config"];
    let program = Program::start(&[&args[..], &[config.to_str().unwrap()]].concat(), &[]);
    let address = address_in(&program.logs(|line| line.contains("listening for requests")));
    let secret = "nobody may read this";
    let mut body = streamed(chat("m", 5));
    body["messages"][0]["content"] = secret.into();
    assert_eq!(
        ask(address, post("/v1/chat/completions", &body)).await.status,
        200
    );
    eventually("it is written", async || lines(&log).len() == 1).await;
    let line = lines(&log).remove(0);
    for (field, value) in [
        ("method", "POST"),
        ("path", "/v1/chat/completions"),
        ("class", "chat"),
        ("model", "m"),
        ("upstream", "a"),
        ("address", "127.0.0.1"),
        ("end", "complete"),
    ] {
        assert_eq!(line[field], value, "{line}");
    }
    assert_eq!(
        (&line["status"], &line["attempts"]),
        (&200.into(), &1.into()),
        "{line}"
    );
    assert_eq!(line["output_tokens"], 5, "{line}");
    assert!(!fs::read_to_string(&log).unwrap().contains(secret));

    fs::rename(&log, &moved).unwrap();
    program.signal("HUP");
    eventually("it is there again", async || log.exists()).await;
    assert_eq!(
        ask(address, post("/v1/chat/completions", &chat("n", 1)))
            .await
            .status,
        404
    );
    program.signal("TERM");
    assert!(program.ended().await.status.success());
    let after = lines(&log);
    assert_eq!(
        (lines(&moved).len(), after.len()),
        (1, 1),
        "what has ended is written at the end"
    );
    assert_eq!(
        (&after[0]["status"], &after[0]["reason"]),
        (&404.into(), &"model_not_found".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn statsd_gets_the_three_gauges_of_paddler_1() {
    let (engine, server) = (engine().await, UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let address = server.local_addr().unwrap().to_string();
    let flags = [
        "--statsd-addr",
        address.as_str(),
        "--statsd-reporting-interval=100",
    ];
    let _balancer = Gateway::start("balancer", &[engine.url()], &flags);
    let slots = EngineConfig::llamacpp("m").slots;
    let wanted =
        format!("paddler.slots_idle:{slots}|g\npaddler.slots_processing:0|g\npaddler.requests_buffered:0|g");
    let mut told = [0; 1500];
    // Before the engine has said how many slots it has, there are none.
    let hears = async {
        loop {
            let many = server.recv(&mut told).await.unwrap();
            if told[..many] == *wanted.as_bytes() {
                return;
            }
        }
    };
    timeout(HANG, hears)
        .await
        .expect("the slots of the engine are told");
}

/// Takes what it is sent, and keeps it.
async fn collector() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keeps = seen.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut text = Vec::new();
            // The last that a batch of spans says.
            while !text.ends_with(b"]}]}]}") {
                if !matches!(stream.read_buf(&mut text).await, Ok(1..)) {
                    break;
                }
            }
            keeps.lock().unwrap().push(String::from_utf8(text).unwrap());
            let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
            stream.write_all(answer).await.ok();
        }
    });
    (url, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_go_to_the_collector_with_the_headers_that_it_wants() {
    let (engine, (url, seen)) = (engine().await, collector().await);
    let headers = file("exports-headers.txt", "authorization: Bearer one\n");
    let text = format!(
        "upstreams: [{{url: '{}'}}]\notlp: {{endpoint: '{url}', headers_file: exports-headers.txt}}\n",
        engine.url()
    );
    let config = file("exports-otlp.yaml", &text);
    let args = ["gateway", "--listen=127.0.0.1:0", "--management=off", "--config"];
    let program = Program::start(&[&args[..], &[config.to_str().unwrap()]].concat(), &[]);
    let address = address_in(&program.logs(|line| line.contains("listening for requests")));
    let told = |header: &str| {
        let seen = seen.lock().unwrap();
        seen.iter()
            .any(|text| text.starts_with("POST /v1/traces ") && text.contains(header))
    };
    for key in ["one", "two"] {
        fs::write(&headers, format!("authorization: Bearer {key}\n")).unwrap();
        program.signal("HUP");
        program.logs(|line| line.contains("the config is in force"));
        eventually("its key is told", async || {
            ask(address, post("/v1/chat/completions", &chat("m", 1))).await;
            told(&format!("authorization: Bearer {key}\r\n"))
        })
        .await;
    }
    // What has ended before the program does is not lost.
    let mut body = post("/v1/chat/completions", &chat("m", 1));
    body.headers_mut()
        .insert("x-request-id", "the-last".parse().unwrap());
    assert_eq!(ask(address, body).await.status, 200);
    program.signal("TERM");
    assert!(program.ended().await.status.success());
    assert!(told("\"the-last\""));

    fs::write(&headers, "Bearer one\n").unwrap();
    let ended = crate::support::program::run(&["check", config.to_str().unwrap()], &[]).await;
    assert!(
        !ended.status.success() && ended.log.contains(":1 (otlp.headers_file)"),
        "{ended:?}"
    );
    fs::remove_file(&headers).unwrap();
    let ended = crate::support::program::run(&["check", config.to_str().unwrap()], &[]).await;
    assert!(
        ended.log.contains("exports-otlp.yaml:2:") && ended.log.contains("is not there"),
        "{ended:?}"
    );
}
