//! Does an unchanged client library work, errors and all?

use std::fs;
use std::path::Path;

use crate::levels::{Front, Way, each_way};
use crate::servers::{Servers, heard_from, servers};
use crate::support::program::Gateway;

each_way! {
    openais_client_chats_streams_embeds_and_lists,
    openais_client_raises_its_own_errors,
}

fn url(gateway: &Gateway) -> String {
    format!("http://{}", gateway.address)
}

/// Runs a part of the client's script; it has to say that all these hold.
async fn script(servers: &Servers, part: &str, args: Vec<String>, holds: &[&str]) {
    let mut command = servers.python.script("openai_client.py");
    command.arg(part).args(args);
    // What the tests were started with is not about this client.
    command.env_remove("OPENAI_BASE_URL").env_remove("OPENAI_API_KEY");
    let done = tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    let expected: Vec<String> = holds.iter().map(|what| format!("ok {what}")).collect();
    assert_eq!(out.lines().collect::<Vec<_>>(), expected, "{err}");
    assert!(done.status.success(), "{err}");
}

async fn openais_client_chats_streams_embeds_and_lists(way: Way) {
    let Some(servers) = servers().await else { return };
    let gateway = servers.gateway(way, &[]).await;
    let args = vec![url(&gateway), servers.a[0].url(), servers.e.url()];
    script(
        &servers,
        "answers",
        args,
        &["chat", "stream", "embeddings", "models"],
    )
    .await;
}

async fn openais_client_raises_its_own_errors(way: Way) {
    let Some(servers) = servers().await else { return };
    let keys = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("client-keys-{way:?}.txt"));
    fs::write(&keys, "# of a test\nsk-known\n").unwrap();
    let gateway = servers.gateway(way, &[]).await;
    let with_keys = ["--api-key-file", keys.to_str().unwrap()];
    let with_keys = servers.gateway(way, &with_keys).await;
    let without_queue = Front::of(way, &[("b-1", servers.b.url())], &["--max-requests=0"]);
    heard_from(&without_queue, &["b-1"]).await;
    let args = vec![
        url(&gateway),
        url(&with_keys),
        "sk-known".to_owned(),
        url(&without_queue),
    ];
    script(
        &servers,
        "errors",
        args,
        &["unknown model", "bad body", "keys", "full"],
    )
    .await;
}
