//! Does a request go only where it can be served at all, and is it told why where nobody can?

use paddler_core::upstream::{Abilities, Capability};
use serde_json::{Value, json};

use super::client::{CHAT, post};
use super::stub::{Do, Stub};
use super::world::{Setup, World, spec};

/// Two upstreams that can do these things.
async fn two(first: Abilities, second: Abilities) -> ([Stub; 2], World) {
    let stubs = [
        Stub::start([Do::ok("{}")]).await,
        Stub::start([Do::ok("{}")]).await,
    ];
    let upstreams = [
        spec("one", &stubs[0].url).abilities(first),
        spec("two", &stubs[1].url).abilities(second),
    ];
    (stubs, Setup::new().start(upstreams).await)
}

fn of(tokens: u32) -> Abilities {
    Abilities::default().context(tokens)
}

/// A chat whose text has so many bytes.
fn long(bytes: usize) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "x".repeat(bytes)}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_goes_nowhere_where_it_surely_does_not_fit() {
    let (stubs, world) = two(of(100), of(1_000)).await;
    let seen = || stubs.each_ref().map(|stub| stub.seen().len());
    // 16 bytes a token and more is what no text has; `user` and its key are text as well.
    for _ in 0..16 {
        assert_eq!(post(world.addr, CHAT, &long(2_000)).await.status, 200);
    }
    assert_eq!(seen(), [0, 16]);
    // It may well fit.
    for _ in 0..32 {
        assert_eq!(post(world.addr, CHAT, &long(1_000)).await.status, 200);
    }
    assert!(seen()[0] > 0, "it is chosen among both");
    let before = seen();
    let refused = post(world.addr, CHAT, &long(20_000)).await;
    assert_eq!(
        (refused.status, refused.reason()),
        (400, "context_length_exceeded")
    );
    assert_eq!(refused.json()["error"]["code"], "context_length_exceeded");
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(
        message,
        "the prompt is longer than the context of every upstream with the model \"m\": \
         it has at least 1250 tokens, by a low estimate, and the longest context here has 1000"
    );
    assert_eq!(seen(), before);
    // The engine is to cut it, and many prompts are none that is long.
    let mut cut = long(20_000);
    cut["truncate_prompt_tokens"] = json!(50);
    assert_eq!(post(world.addr, CHAT, &cut).await.status, 200);
    let many = json!({"input": vec!["x".repeat(1_000); 20]});
    assert_eq!(post(world.addr, "/v1/embeddings", &many).await.status, 200);
    let ids = json!({"prompt": vec![7; 1_001]});
    assert_eq!(post(world.addr, "/v1/completions", &ids).await.status, 400);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_known_is_neither_yes_nor_no() {
    let (stubs, world) = two(of(10), Abilities::default()).await;
    assert_eq!(post(world.addr, CHAT, &long(1 << 20)).await.status, 200);
    assert_eq!(stubs.each_ref().map(|stub| stub.seen().len()), [0, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_work_goes_to_who_does_it() {
    use Capability::{Chat, Embeddings, Rerank, Vision};
    let (stubs, world) = two(
        Abilities::only([Chat, Vision]),
        Abilities::only([Chat, Embeddings, Rerank]),
    )
    .await;
    let with = |part: Value| json!({"messages": [{"role": "user", "content": [part]}]});
    let image = with(json!({"type": "image_url", "image_url": {"detail": "low", "url": "data:,"}}));
    let response = json!({"input": [{"content": [{"type": "input_image", "image_url": "data:,"}]}]});
    let none = with(json!({"type": "text", "text": "a", "image_url": null}));
    for (path, body, at) in [
        (CHAT, &image, 0),
        ("/v1/responses", &response, 0),
        ("/v1/embeddings", &json!({"input": "a"}), 1),
        ("/v1/rerank", &json!({"query": "a", "documents": ["b"]}), 1),
    ] {
        for _ in 0..4 {
            let before = stubs[at].seen().len();
            assert_eq!(post(world.addr, path, body).await.status, 200, "{path}");
            assert_eq!(stubs[at].seen().len(), before + 1, "{path}");
        }
    }
    let before = stubs[1].seen().len();
    for _ in 0..32 {
        assert_eq!(post(world.addr, CHAT, &none).await.status, 200);
    }
    assert!(stubs[1].seen().len() > before, "no image is none");
    let sound = with(json!({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}));
    for (path, body) in [(CHAT, &sound), ("/v1/audio/speech", &json!({"input": "a"}))] {
        let refused = post(world.addr, path, body).await;
        assert_eq!((refused.status, refused.reason()), (404, "not_capable"), "{path}");
    }
    // What is no work of these kinds is not judged.
    assert_eq!(
        post(world.addr, "/tokenize", &json!({"content": "a"}))
            .await
            .status,
        200
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_could_and_is_busy_is_not_nobody() {
    let busy = Stub::start([Do::say("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n")]).await;
    let upstreams = [
        spec("big", &busy.url).abilities(of(1_000)),
        spec("small", "http://127.0.0.1:9").abilities(of(10)),
    ];
    let setup = Setup::new().queue(0, std::time::Duration::ZERO);
    let world = setup.start(upstreams).await;
    assert_eq!(post(world.addr, CHAT, &long(2_000)).await.status, 503);
    assert_eq!(busy.seen().len(), 1);
}
