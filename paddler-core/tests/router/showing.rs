//! Is it told on demand where a request went, and only to who may know?

use std::sync::Arc;

use paddler_core::config::NameUpstream;
use paddler_core::forward::Keys;

use super::client::{Answer, CHAT, ask, of_model};
use super::stub::{Do, Stub};
use super::world::{Setup, World, spec};
use paddler_core::upstream::{ModelEntry, Models};

const ASKS: &str = "x-paddler-explain: 1\r\n";

async fn send(world: &World, headers: &str, model: &str) -> Answer {
    ask(world.addr, "POST", CHAT, headers, of_model(model).to_string()).await
}

/// What an answer shows: why, and who.
fn shown(answer: &Answer) -> (Option<&str>, Option<&str>) {
    (
        answer.header("x-paddler-explain"),
        answer.header("x-paddler-upstream"),
    )
}

fn models(name: &str) -> Models {
    Models::Listed(vec![ModelEntry::new(name)])
}

async fn world(setup: Setup, stub: &Stub, other: &Stub) -> World {
    setup
        .start([
            spec("a", &stub.url).models(models("m")),
            spec("b", &other.url).models(models("n")),
        ])
        .await
}

#[tokio::test]
async fn a_trusted_peer_is_told_the_way_and_nobody_else_is() {
    let (stub, other) = (
        Stub::start([Do::ok("{}")]).await,
        Stub::start([Do::ok("{}")]).await,
    );
    let trusting =
        Setup::new().with(|setup| setup.options.trusted_peers = vec!["127.0.0.0/8".parse().unwrap()]);
    let trusted = world(trusting, &stub, &other).await;
    let answer = send(&trusted, ASKS, "m").await;
    let (why, who) = shown(&answer);
    assert_eq!((answer.status, who), (200, Some("a")));
    let why = why.unwrap();
    assert!(
        why.starts_with("require model 1 of 2") && why.ends_with("-> a"),
        "{why}"
    );
    assert!(
        !stub.seen().pop().unwrap().contains("x-paddler-explain"),
        "it is asked of us"
    );
    // Nobody was found: it is told why.
    let lost = send(&trusted, ASKS, "o").await;
    let why = shown(&lost).0.unwrap();
    assert!(
        lost.status == 404 && why.contains("require model 0 of 2 -> never"),
        "{why}"
    );
    assert_eq!(
        shown(&send(&trusted, "", "m").await),
        (None, None),
        "who does not ask is not told"
    );
    assert_eq!(
        shown(&send(&trusted, "x-paddler-explain: 0\r\n", "m").await),
        (None, None)
    );
    assert_eq!(
        send(&trusted, "x-paddler-explain: please\r\n", "m").await.status,
        400
    );
    trusted.quiet().await;

    let open = world(Setup::new(), &stub, &other).await;
    for asked in [ASKS, "x-paddler-explain: please\r\n"] {
        let answer = send(&open, asked, "m").await;
        assert_eq!((answer.status, shown(&answer)), (200, (None, None)), "{asked}");
        assert!(!stub.seen().pop().unwrap().contains("x-paddler-explain"));
    }
    open.quiet().await;
}

#[tokio::test]
async fn a_key_may_have_the_right_and_the_config_may_name_who_answers() {
    let (stub, other) = (
        Stub::start([Do::ok("{}")]).await,
        Stub::start([Do::ok("{}")]).await,
    );
    let keys = "keys: [{name: ops, key: sk-ops, explain: true}, {name: team, key: sk-team}]";
    let keyed = Setup::new().with(|setup| setup.options.keys = Some(Arc::new(Keys::read(keys).unwrap())));
    let keyed = world(keyed, &stub, &other).await;
    let as_key = async |key: &str| send(&keyed, &format!("{ASKS}authorization: Bearer {key}\r\n"), "n").await;
    let answer = as_key("sk-ops").await;
    assert_eq!(shown(&answer).1, Some("b"));
    assert!(shown(&answer).0.is_some());
    assert_eq!(shown(&as_key("sk-team").await), (None, None));
    keyed.quiet().await;

    let named = Setup::new().with(|setup| setup.options.forwarding.name_upstream = NameUpstream::Always);
    let named = world(named, &stub, &other).await;
    assert_eq!(shown(&send(&named, ASKS, "m").await), (None, Some("a")));
    assert_eq!(
        shown(&send(&named, "", "o").await),
        (None, None),
        "nobody answered"
    );
    named.quiet().await;
}
