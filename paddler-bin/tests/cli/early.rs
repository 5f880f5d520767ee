//! Is an answer read that the management listener gives before it has read what it was sent?

use std::net::SocketAddr;

use paddler_engine::EngineConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::api::{engine, ready};
use crate::path;
use crate::support::program::Gateway;

/// A client that sends and sends, and reads its answer when it has sent for a while. `Err`: what it meets in its place.
async fn sends_much(address: SocketAddr, head: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!("{head} HTTP/1.1\r\nhost: {address}\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream
        .write_all(b"content-type: application/json\r\ncontent-length: 100000000\r\n\r\n")
        .await?;
    // More than any body that is read here may have.
    let piece = vec![b' '; 256 << 10];
    for _ in 0..12 {
        stream.write_all(&piece).await?;
    }
    // It has been answered, and does not know.
    stream.readable().await?;
    for _ in 0..8 {
        stream.write_all(&piece[..64 << 10]).await?;
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_answered_while_he_sends_reads_his_answer() {
    let engine = engine(EngineConfig::llamacpp("m")).await;
    let upstreams = format!("upstreams: [{{id: a, url: '{}'}}]\n", engine.url());
    let open = Gateway::by(&path(
        "early.yaml",
        &format!("{upstreams}agents: {{access: off}}\n"),
    ));
    let keys = path("early.keys", "sk-early-1\n");
    let keyed = format!("{upstreams}management_key_file: {keys}\nagents: {{access: auto}}\n");
    let keyed = Gateway::by(&path("early-keyed.yaml", &keyed));
    ready(&open, 1).await;
    let (open, keyed) = (open.management, keyed.management);
    for (address, head, status) in [
        (open, "POST /nowhere", 404),
        (open, "POST /api/v1/nowhere", 404),
        (open, "POST /metrics", 405),
        (open, "PUT /healthz", 405),
        (open, "POST /", 405),
        (open, "POST /api/v1/queue", 405),
        (open, "GET /api/v1/queue", 200),
        (open, "POST /api/v1/reload?now=1", 400),
        (open, "POST /api/v1/upstreams", 413),
        (open, "PUT /api/v1/tree", 413),
        (open, "DELETE /api/v1/upstreams/b", 404),
        (open, "POST /api/v1/agents/x/status", 403),
        (open, "OPTIONS /api/v1/queue", 405),
        (keyed, "PUT /api/v1/tree", 401),
        (keyed, "POST /api/v1/agents/x/status", 401),
        (keyed, "POST /status_update/x", 401),
    ] {
        let answer = sends_much(address, head).await;
        let answer = answer.unwrap_or_else(|error| panic!("{head}: {error} in the place of {status}"));
        let (head_of_it, body) = answer.split_once("\r\n\r\n").unwrap();
        let said = head_of_it.split(' ').nth(1).unwrap();
        assert_eq!(said, status.to_string(), "{head}: {answer}");
        let length = format!("content-length: {}", body.len());
        assert!(head_of_it.contains(&length), "{head}: {answer}");
        assert!(head_of_it.contains("connection: close"), "{head}: {answer}");
    }
}
