//! Is a compressed body read for its facts, and forwarded as it came?

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use paddler_core::upstream::{ModelEntry, Models};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::client::{Answer, CHAT, ask, eventually};
use super::stub::{Do, Stub};
use super::world::{Setup, World, spec};

/// `{"model":"tiny", ...}` with a long prompt, as another implementation of brotli wrote it.
const BROTLI: &str = "1b4c01008cd315f32384750f6a73a95f689666e886b160fb216c6520a60e4b974e6e07d6c3416e87e669d412c73cc6ce\
                      21498cc38d2ea0f022326e44734b49d30e9ae884a754bf883e065ce638fbaf35f6830d";

/// 8 MiB of blanks.
const BROTLI_BOMB: &str = "9bffff7ff82540e2b14020f7fe0f";

fn from_hex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn deflate(body: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn zstd(body: &[u8]) -> Vec<u8> {
    compress_to_vec(body, CompressionLevel::Fastest)
}

fn body(model: &str, prompt: &str) -> Vec<u8> {
    let body = serde_json::json!({
        "model": model, "max_tokens": 1, "messages": [{"role": "user", "content": prompt}],
    });
    body.to_string().into_bytes()
}

async fn send(world: &World, path: &str, encoding: &str, body: &[u8]) -> Answer {
    let headers = format!("content-type: application/json\r\ncontent-encoding: {encoding}\r\n");
    ask(world.addr, "POST", path, &headers, body).await
}

/// What was sent to it last, headers and body.
fn last(stub: &Stub) -> (String, String) {
    let seen = stub.seen().pop().unwrap();
    let (head, body) = seen.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[tokio::test]
async fn a_compressed_body_is_routed_by_its_model_and_arrives_as_it_came() {
    let (tiny, other) = (
        Stub::start([Do::ok("{}")]).await,
        Stub::start([Do::ok("{}")]).await,
    );
    let listed = |model| Models::Listed(vec![ModelEntry::new(model)]);
    let upstreams = [
        spec("tiny", &tiny.url).models(listed("tiny")),
        spec("other", &other.url).models(listed("other")),
    ];
    let world = Setup::new().start(upstreams).await;
    let plain = body("tiny", &"Hello there. ".repeat(20_000));
    let (first, second) = plain.split_at(plain.len() / 2);
    let encoded = [
        ("gzip", gzip(&plain)),
        ("X-GZIP", gzip(&plain)),
        ("deflate", deflate(&plain)),
        ("zstd", zstd(&plain)),
        ("identity, br", from_hex(BROTLI)),
        ("gzip", [gzip(first), gzip(second)].concat()),
        ("zstd", [zstd(first), zstd(second)].concat()),
    ];
    for (number, (encoding, body)) in encoded.iter().enumerate() {
        let answer = send(&world, CHAT, encoding, body).await;
        assert_eq!(answer.status, 200, "{encoding}: {}", answer.text());
        assert_eq!(tiny.seen().len(), number + 1, "{encoding}");
        let (head, sent) = last(&tiny);
        assert_eq!(sent, String::from_utf8_lossy(body), "{encoding}");
        assert!(
            head.contains(&format!("content-encoding: {encoding}\r\n")),
            "{head}"
        );
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{head}"
        );
    }
    assert!(other.seen().is_empty());
    world.quiet().await;
}

#[tokio::test]
async fn a_body_that_becomes_too_much_is_too_large() {
    let stub = Stub::start([Do::ok("{}")]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let blanks = vec![b' '; 8 << 20];
    for (encoding, bomb) in [
        ("gzip", gzip(&blanks)),
        ("deflate", deflate(&blanks)),
        ("zstd", zstd(&blanks)),
        ("br", from_hex(BROTLI_BOMB)),
    ] {
        for path in [CHAT, "/custom"] {
            let answer = send(&world, path, encoding, &bomb).await;
            assert_eq!(
                (answer.status, answer.reason()),
                (413, "body_too_large"),
                "{encoding}"
            );
        }
    }
    world.quiet().await;
    let setup = Setup::new().with(|setup| setup.options.max_body = 100_000);
    let world = setup.start([spec("a", &stub.url)]).await;
    let answer = send(&world, CHAT, "gzip", &gzip(&body("m", &"x".repeat(100_000)))).await;
    assert_eq!(
        (answer.status, answer.reason()),
        (413, "body_too_large"),
        "it is as long as it becomes"
    );
    assert!(stub.seen().is_empty());
    world.quiet().await;
}

#[tokio::test]
async fn a_body_that_is_not_compressed_as_it_says_is_refused() {
    let stub = Stub::start([Do::ok("{}")]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let plain = body("tiny", "Hi");
    for (encoding, whole) in [
        ("gzip", gzip(&plain)),
        ("deflate", deflate(&plain)),
        ("zstd", zstd(&plain)),
        ("br", from_hex(BROTLI)),
    ] {
        for broken in [&plain[..], &whole[..whole.len() / 2], &whole[..1], b"x"] {
            for path in [CHAT, "/custom"] {
                let answer = send(&world, path, encoding, broken).await;
                assert_eq!(
                    (answer.status, answer.reason()),
                    (400, "malformed_body"),
                    "{encoding}"
                );
            }
        }
    }
    let answer = send(&world, CHAT, "gzip", &gzip(b"no JSON")).await;
    assert_eq!((answer.status, answer.reason()), (400, "malformed_body"));
    assert!(stub.seen().is_empty());
    world.quiet().await;
}

#[tokio::test]
async fn what_cannot_be_decoded_is_said_where_the_model_has_to_be_known() {
    let stub = Stub::start([Do::ok("{}")]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let twice = gzip(&gzip(&body("tiny", "Hi")));
    for encoding in [
        "compress",
        "gzip, gzip",
        "gzip\r\ncontent-encoding: gzip",
        "gzip, br",
        "dcb",
    ] {
        let answer = send(&world, CHAT, encoding, &twice).await;
        assert_eq!(
            (answer.status, answer.reason()),
            (415, "content_encoding"),
            "{encoding}"
        );
    }
    assert!(stub.seen().is_empty());
    // Of a path that nobody knows it is not known that it has one.
    assert_eq!(send(&world, "/custom", "compress", &twice).await.status, 200);
    assert_eq!(last(&stub).1, String::from_utf8_lossy(&twice));
    world.quiet().await;
}

#[tokio::test]
async fn two_models_cannot_hide_in_a_compressed_body() {
    let stub = Stub::start([Do::ok("{}")]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    for path in [CHAT, "/custom"] {
        let answer = send(&world, path, "gzip", &gzip(br#"{"model":"a","MODEL":"b"}"#)).await;
        assert_eq!(
            (answer.status, answer.reason()),
            (400, "malformed_body"),
            "{path}"
        );
    }
    assert!(stub.seen().is_empty());
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_bodies_than_are_decoded_at_once_all_have_their_turn() {
    let stub = Stub::start([Do::ok("{}")]).await;
    let world = std::sync::Arc::new(Setup::new().start([spec("a", &stub.url)]).await);
    let body = gzip(&body("tiny", &"Hello there. ".repeat(30_000)));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..24 {
        let (world, body) = (world.clone(), body.clone());
        clients.spawn(async move { send(&world, CHAT, "gzip", &body).await.status });
    }
    assert_eq!(clients.join_all().await, [200; 24]);
    eventually("all were sent", || stub.seen().len() == 24).await;
    world.quiet().await;
}
