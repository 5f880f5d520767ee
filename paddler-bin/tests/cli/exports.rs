//! Does what the program tells of requests get where it is to go?

use std::fs;
use std::path::Path;

use paddler_engine::{Engine, EngineConfig};
use serde_json::Value;
use tokio::net::UdpSocket;
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
