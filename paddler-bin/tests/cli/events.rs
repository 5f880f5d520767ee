//! Are changes told as they happen, to each who follows?

use http::{HeaderValue, Method};
use paddler_engine::EngineConfig;
use serde_json::{Value, json};

use crate::api::{Seen, engine, ready, with};
use crate::path;
use crate::support::client::{Answer, Ask, Client, Reply, ask, eventually, get, post};
use crate::support::program::Gateway;
use crate::support::schema::check;

/// A stream of events that is read.
struct Stream {
    // Dropped, it is hung up.
    _client: Client,
    reply: Reply,
    text: String,
}

impl Stream {
    async fn of(gateway: &Gateway, after: Option<&str>) -> Self {
        let mut asked: Ask = get("/api/v1/events");
        if let Some(after) = after {
            asked
                .headers_mut()
                .insert("last-event-id", HeaderValue::from_str(after).unwrap());
        }
        let mut client = Client::to(gateway.management);
        let reply = client.send(asked).await;
        assert_eq!(
            (reply.status, &reply.headers["content-type"]),
            (200, &"text/event-stream".parse().unwrap())
        );
        let (text, _client) = (String::new(), client);
        Self { _client, reply, text }
    }

    /// The next event: its id, and kind and data. `None`: the stream has ended.
    async fn next(&mut self) -> Option<(String, Value)> {
        let mut quiet = 0;
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let event = event.to_owned();
                self.text = rest.to_owned();
                if event.starts_with(':') {
                    quiet += 1;
                    assert!(quiet < 20, "nothing is told any more");
                    continue;
                }
                let field = |name: &str| {
                    let line = event
                        .lines()
                        .find_map(|line| line.strip_prefix(&format!("{name}: ")));
                    line.unwrap_or_else(|| panic!("no {name} in {event}")).to_owned()
                };
                let data: Value = serde_json::from_str(&field("data")).unwrap();
                return Some((field("id"), json!({"event": field("event"), "data": data})));
            }
            let more = self.reply.more().await?.unwrap();
            self.text.push_str(std::str::from_utf8(&more).unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_told_in_their_shapes_and_it_ends_with_the_program() {
    let (one, two) = (
        engine(EngineConfig::llamacpp("m")).await,
        engine(EngineConfig::llamacpp("n")).await,
    );
    let gateway = Gateway::by(&path(
        "events.yaml",
        &format!("upstreams: [{{id: a, url: '{}'}}]\n", one.url()),
    ));
    ready(&gateway, 1).await;
    let document = ask(gateway.management, get("/api/v1/openapi.json")).await.json();
    let mut stream = Stream::of(&gateway, None).await;
    let mut first = None;
    let mut wait_for = async |kind: &str| loop {
        let (id, event) = stream.next().await.unwrap();
        check(&document, &document["components"]["schemas"]["Event"], &event);
        first.get_or_insert(id);
        if event["event"] == kind {
            return event["data"].clone();
        }
    };
    let tell = async |path: &str| ask(gateway.management, post(path, &json!({}))).await.status;
    let new = json!({"id": "b", "url": two.url()});
    ask(gateway.management, post("/api/v1/upstreams", &new)).await;
    // The other one may have joined as late.
    while wait_for("upstream.joined").await["upstream"]["id"] != "b" {}
    tell("/api/v1/upstreams/a/drain").await;
    while wait_for("upstream.state").await["state"] != "draining" {}
    ask(
        gateway.management,
        with(Method::DELETE, "/api/v1/upstreams/b", ""),
    )
    .await;
    assert_eq!(wait_for("upstream.left").await["id"], "b");
    ask(
        gateway.management,
        with(Method::PUT, "/api/v1/tree", "tree: gateway"),
    )
    .await;
    wait_for("tree.replaced").await;
    tell("/api/v1/reload").await;
    assert_eq!(wait_for("config.reloaded").await["result"], "success");

    // Who comes back goes on where he was; who was elsewhere is told so.
    let first = first.unwrap();
    let mut again = Stream::of(&gateway, Some(&first)).await;
    let (id, event) = again.next().await.unwrap();
    assert!(id != first && event["event"] != "gap", "{first} {id} {event}");
    let mut strange = Stream::of(&gateway, Some("1-1")).await;
    let (_, event) = strange.next().await.unwrap();
    assert_eq!(event, json!({"event": "gap", "data": {"missed": null}}));
    check(&document, &document["components"]["schemas"]["Event"], &event);

    gateway.program.signal("TERM");
    for stream in [&mut stream, &mut strange] {
        let mut last = None;
        while let Some((_, event)) = stream.next().await {
            last = Some(event);
        }
        assert_eq!(last.unwrap()["event"], "stopping");
    }
    assert!(gateway.program.ended().await.status.success());
}

/// The head of an answer that goes on, and its first event or comment.
async fn begins(gateway: &Gateway, path: &str) -> ((Client, Reply), Answer) {
    let mut client = Client::to(gateway.management);
    let mut reply = client.send(get(path)).await;
    let answer = Answer {
        status: reply.status,
        headers: reply.headers.clone(),
        body: reply.more().await.unwrap().unwrap().to_vec(),
        cut: true,
    };
    ((client, reply), answer)
}

pub(crate) async fn are_answered_as_documented(gateway: &Gateway, seen: &mut Seen) {
    let (events, agents) = ("/api/v1/events", "/api/v1/agents/stream");
    let mut followed = Vec::new();
    for path in [events, agents] {
        let (follows, answer) = begins(gateway, path).await;
        seen.check(path, "get", 200, &answer);
        if path == agents {
            let data = answer.text().strip_prefix("data: ").unwrap();
            let schema = &seen.document["components"]["schemas"]["Agents"];
            check(&seen.document, schema, &serde_json::from_str(data).unwrap());
        }
        followed.push(follows);
    }
    // Together they are as many as may be.
    for at in 2..64 {
        followed.push(begins(gateway, [events, agents][at % 2]).await.0);
    }
    for path in [events, agents] {
        let refused = ask(gateway.management, get(path)).await;
        seen.check(path, "get", 503, &refused);
        assert_eq!(refused.headers["retry-after"], "5");
        assert!(refused.text().contains("64 together"), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_follow_than_may_and_who_leaves_makes_room() {
    let one = engine(EngineConfig::llamacpp("m")).await;
    let gateway = Gateway::start("gateway", &[one.url()], &[]);
    ready(&gateway, 1).await;
    let before = gateway.program.open_files();
    let follows = |at: usize| ["/api/v1/events", "/api/v1/agents/stream"][at % 2];
    for _ in 0..3 {
        let mut followed = Vec::new();
        for at in 0..64 {
            followed.push(begins(&gateway, follows(at)).await.0);
        }
        for at in 0..2 {
            assert_eq!(ask(gateway.management, get(follows(at))).await.status, 503);
        }
        drop(followed);
        for at in 0..2 {
            eventually("there is room", async || {
                let mut client = Client::to(gateway.management);
                client.send(get(follows(at))).await.status == 200
            })
            .await;
        }
    }
    eventually("no connection is left", async || {
        gateway.program.open_files() <= before + 2
    })
    .await;
}
