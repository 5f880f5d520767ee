//! What if an agent is gone, or says nothing, while its engine is at work?

use serde_json::json;

use crate::levels::{Fleet, begun, can_serve, is_ready};
use crate::servers::{Llama, python};
use crate::support::client::{ask, chat, eventually, post};
use crate::support::program::Gateway;

/// So many tokens that the answer has not ended when the engine is stopped in the middle of it.
const LONG: u32 = 3_900;

/// Two servers of one model, each with an agent that tells a balancer of its own, and a gateway above.
async fn two() -> Option<([Llama; 2], [Fleet; 2], Gateway)> {
    let python = python()?;
    let servers = [0, 1].map(|_| Llama::start(&python, "tiny-a", 0));
    let fleets = [
        Fleet::ready("a-1", &servers[0]).await,
        Fleet::ready("a-2", &servers[1]).await,
    ];
    let upstreams = fleets.each_ref().map(Fleet::upstream);
    let gateway = Gateway::start(
        "gateway",
        &upstreams,
        &["--poll-interval=100ms", "--max-wait=60s"],
    );
    for id in ["a-1", "a-2"] {
        is_ready(&gateway, id).await;
    }
    Some((servers, fleets, gateway))
}

/// Asks for chats, all of which must be answered, and says how many tokens each server has read and written for them.
async fn tokens_of_chats(many: usize, gateway: &Gateway, servers: &[Llama; 2]) -> [f64; 2] {
    let told = async || [servers[0].load().await.tokens, servers[1].load().await.tokens];
    let before = told().await;
    for _ in 0..many {
        let answer = ask(gateway.address, post("/v1/chat/completions", &chat("tiny-a", 8))).await;
        assert!(answer.is_good(), "{answer:?}");
    }
    let after = told().await;
    [after[0] - before[0], after[1] - before[1]]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_in_the_middle_of_a_stream_harms_no_stream() {
    let Some((servers, mut fleets, gateway)) = two().await else {
        return;
    };
    let mut streams = Vec::new();
    let mut asked = chat("tiny-a", LONG);
    asked["stream_options"] = json!({"include_usage": true});
    for _ in 0..2 {
        streams.push(begun(&gateway, asked.clone()).await);
    }
    // Both are in the middle when their agents go, and stay there until the balancers have taken note of it.
    for server in &servers {
        assert_eq!(server.load().await.processing, 1);
        server.signal("STOP");
    }
    for fleet in &fleets {
        fleet.lose_agent().await;
    }
    for id in ["a-1", "a-2"] {
        eventually("the gateway knows", async || !can_serve(&gateway, id).await).await;
    }
    for server in &servers {
        server.signal("CONT");
    }
    for (_client, stream) in streams {
        let whole = stream.whole().await;
        assert!(whole.is_good(), "{whole:?}");
        let tokens = format!("\"completion_tokens\":{LONG},");
        assert!(whole.text().contains(&tokens), "{whole:?}");
    }
    // With an agent again, each is asked again.
    for (fleet, id) in fleets.iter_mut().zip(["a-1", "a-2"]) {
        fleet.start_agent();
        is_ready(&gateway, id).await;
    }
    tokens_of_chats(8, &gateway, &servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_agents_engine_is_asked_no_more_until_it_thaws() {
    let Some((servers, fleets, gateway)) = two().await else {
        return;
    };
    fleets[0].agent.signal("STOP");
    // Until three beats are missing nobody can know, and nobody is harmed: the engine is well.
    tokens_of_chats(4, &gateway, &servers).await;
    let balancer = &fleets[0].balancer;
    eventually("its balancer knows", async || !can_serve(balancer, "a-1").await).await;
    eventually("the gateway knows", async || !can_serve(&gateway, "a-1").await).await;
    let [frozen, other] = tokens_of_chats(16, &gateway, &servers).await;
    assert!(frozen == 0.0 && other > 0.0, "{frozen} and {other} tokens");
    fleets[0].agent.signal("CONT");
    is_ready(&gateway, "a-1").await;
    eventually("it is asked again", async || {
        tokens_of_chats(4, &gateway, &servers).await[0] > 0.0
    })
    .await;
}
