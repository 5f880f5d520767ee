//! Does a request about something that is kept go to whoever keeps it?

use http::Request;
use http_body_util::BodyExt as _;
use paddler_core::forward::Body;
use paddler_core::status::StatusEvent;
use paddler_core::upstream::{Only, UpstreamId};
use serde_json::json;

use super::client::{ask, get, post};
use super::stub::{Do, Stub};
use super::world::{Setup, World, spec};

/// Two upstreams, each with an answer of its own.
async fn two() -> ([(&'static str, Stub); 2], World) {
    let stub = |id: &str| Stub::start([Do::ok(&format!(r#"{{"id":"{id}","object":"thing"}}"#))]);
    let stubs = [
        ("thing_a", stub("thing_a").await),
        ("thing_b", stub("thing_b").await),
    ];
    let each = stubs.iter().map(|(id, stub)| spec(id, &stub.url));
    let world = Setup::new().start(each.collect::<Vec<_>>()).await;
    (stubs, world)
}

fn seen(stubs: &[(&str, Stub); 2]) -> [usize; 2] {
    [stubs[0].1.seen().len(), stubs[1].1.seen().len()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_made_it_is_asked_for_it_and_builds_on_it() {
    for path in ["/v1/responses", "/v1/files", "/v1/batches", "/v1/conversations"] {
        let (stubs, world) = two().await;
        let made = ask(world.addr, "POST", path, "", r#"{"input":"a"}"#).await;
        let id = made.json()["id"].as_str().unwrap().to_owned();
        let owner = usize::from(id == "thing_b");
        let before = seen(&stubs);
        for _ in 0..8 {
            for (method, below) in [
                ("GET", ""),
                ("POST", "/cancel"),
                ("DELETE", ""),
                ("GET", "/content"),
            ] {
                let answer = ask(world.addr, method, &format!("{path}/{id}{below}"), "", "").await;
                assert_eq!(answer.json()["id"], *id, "{method} {path}{below}");
            }
        }
        for name in ["previous_response_id", "conversation", "input_file_id"] {
            let on = json!({"input": "b", (name): id});
            for path in ["/v1/responses", "/v1/batches"] {
                assert_eq!(post(world.addr, path, &on).await.json()["id"], *id, "{name}");
            }
        }
        let mut after = before;
        after[owner] += 8 * 4 + 3 * 2;
        assert_eq!(seen(&stubs), after);
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_in_a_stream_is_known_before_the_stream_ends() {
    let stream = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let event = "data: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\"}}\n\n";
    let begins = format!("{stream}{:x}\r\n{event}\r\n", event.len());
    let rest = Do::SayRestToTwo(begins.into_bytes(), b"0\r\n\r\n".to_vec());
    let keeps = Stub::start([rest, Do::ok("{}")]).await;
    let world = Setup::new().start([spec("keeps", &keeps.url)]).await;
    let mut client = super::client::Client::connect(world.addr).await;
    client
        .post("/v1/responses", &json!({"input": "a", "stream": true}))
        .await;
    client.until("resp_1").await;
    // Another one joins, who knows nothing of it.
    let other = Stub::start([Do::say("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")]).await;
    let joins = StatusEvent::Upsert(spec("other", &other.url));
    world.statuses.apply(joins).await.unwrap();
    super::client::eventually("it has joined", || world.router.published().load().len() == 2).await;
    for _ in 0..8 {
        let cancel = ask(world.addr, "POST", "/v1/responses/resp_1/cancel", "", "").await;
        assert_eq!(cancel.status, 200);
    }
    assert_eq!(other.seen().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_what_nobody_keeps_any_more_another_may_say_so() {
    let (stubs, world) = two().await;
    let made = post(world.addr, "/v1/responses", &json!({"input": "a"})).await;
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let gone = UpstreamId::new(&*id).unwrap();
    world.statuses.apply(StatusEvent::Remove(gone)).await.unwrap();
    super::client::eventually("it has left", || world.router.published().load().len() == 1).await;
    let before = seen(&stubs);
    let answer = get(world.addr, &format!("/v1/responses/{id}")).await;
    assert_eq!(answer.status, 200);
    assert_ne!(answer.json()["id"], *id, "the other one was asked");
    assert_eq!(
        seen(&stubs).iter().sum::<usize>(),
        before.iter().sum::<usize>() + 1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_its_host_lets_it_go_counts_before_who_keeps_it() {
    let (stubs, world) = two().await;
    let made = post(world.addr, "/v1/responses", &json!({"input": "a"})).await;
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let on = json!({"input": "b", "previous_response_id": id}).to_string();
    for (name, _) in &stubs {
        let only = Only([UpstreamId::new(*name).unwrap()].into());
        let by_path = Request::get(format!("/v1/responses/{id}")).body(Body::empty());
        let by_body = Request::post("/v1/responses").body(Body::full(on.clone()));
        for request in [by_path, by_body] {
            let mut request = request.unwrap();
            request.extensions_mut().insert(only.clone());
            let answer = world.router.handle(request).await.into_body();
            let answer: serde_json::Value =
                serde_json::from_slice(&answer.collect().await.unwrap().to_bytes()).unwrap();
            assert_eq!(answer["id"], *name, "the one that made it is {id}");
        }
    }
    world.quiet().await;
}
