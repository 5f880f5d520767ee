//! Does what passes through keep its shape, and is what goes wrong told in the words of who said it?

use std::sync::Arc;
use std::time::Duration;

use paddler_core::config::{Registry, tree_from_yaml};
use paddler_core::forward::Keys;
use paddler_core::status::{Report, StatusEvent};
use paddler_core::upstream::http::UpstreamKey;
use paddler_core::upstream::{ModelEntry, Models, UpstreamId, UpstreamSpec};
use paddler_engine::{Fault, FaultRule};
use serde_json::json;
use tokio::task::JoinSet;

use super::client::{Answer, CHAT, Client, End, HANG, ask, chat, get, of_model, post, stream};
use super::stub::{Do, Stub};
use super::world::{Setup, World, engine, of, quick, spec};

const SHORT: Duration = Duration::from_millis(80);

fn plain(status: &str, more: &str, text: &str) -> Do {
    let length = text.len();
    Do::say(&format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\n{more}content-length: {length}\r\n\r\n{text}"
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_in_plain_text_is_passed_on_in_plain_text() {
    let text = "upstream connect error or disconnect/reset before headers";
    for status in [
        "503 Service Unavailable",
        "500 Internal Server Error",
        "429 Too Many Requests",
    ] {
        let stub = Stub::start([plain(status, "", text)]).await;
        let world = Setup::new().queue(9, SHORT).start([spec("a", &stub.url)]).await;
        let answer = post(world.addr, CHAT, &chat(1)).await;
        assert!(
            status.starts_with(&answer.status.to_string()),
            "{}",
            answer.status
        );
        assert_eq!(
            (answer.text(), answer.header("content-type")),
            (text, Some("text/plain"))
        );
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_are_said_once_come_once() {
    let stub = Stub::start([plain(
        "200 OK",
        "server: llama.cpp\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\n",
        "a",
    )])
    .await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let answer = post(world.addr, CHAT, &chat(1)).await;
    for (name, value) in [
        ("server", "llama.cpp"),
        ("date", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("content-type", "text/plain"),
        ("content-length", "1"),
    ] {
        let values: Vec<_> = answer.headers.iter().filter(|(known, _)| known == name).collect();
        assert_eq!(values, [&(name.to_owned(), value.to_owned())]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_is_asked_by_its_own_name_and_at_its_own_port() {
    let stub = Stub::start([Do::ok("{}")]).await;
    let own = stub.url.replace("http://127.0.0.1", "localhost");
    let world = Setup::new().start([spec("a", format!("http://{own}"))]).await;
    let mut client = Client::connect(world.addr).await;
    let body = chat(1).to_string();
    client
        .write(format!(
            "POST {CHAT} HTTP/1.1\r\nHOST: chat.example.com:8443\r\nx-target-port: 1\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
    assert_eq!(client.answer().await.status, 200);
    let seen = stub.seen()[0].to_ascii_lowercase();
    let hosts: Vec<_> = seen.lines().filter(|line| line.starts_with("host:")).collect();
    assert_eq!(hosts, [format!("host: {own}")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_routers_in_a_row_change_no_more_than_one() {
    let engine = engine(quick()).await;
    let near = Setup::new().start([of("engine", &engine)]).await;
    let far = Setup::new()
        .start([spec("near", format!("http://{}", near.addr))])
        .await;
    let speech = json!({ "input": "a" });
    for (path, body) in [
        (CHAT, chat(4)),
        (CHAT, stream(4)),
        ("/v1/embeddings", speech),
        (CHAT, json!({ "messages": 1 })),
    ] {
        let (direct, routed) = (
            post(engine.addr(), path, &body).await,
            post(far.addr, path, &body).await,
        );
        assert_eq!((routed.status, routed.end), (direct.status, End::Whole));
        assert_eq!(routed.text(), direct.text());
        assert!(routed.header("content-type").is_some());
        assert_eq!(routed.header("content-type"), direct.header("content-type"));
    }
    // What the first one refuses comes through the second one, too.
    let refused = get(far.addr, "/v1/../slots").await;
    assert_eq!((refused.status, refused.reason()), (403, "admin_path"));
    far.quiet().await;
    near.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_may_be_as_long_as_the_limit_says_and_no_longer() {
    let stub = Stub::start([Do::ok("{}")]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let picture = |bytes: usize| {
        let url = format!("data:image/png;base64,{}", "A".repeat(bytes));
        json!({ "messages": [{ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": url } }] }] }).to_string()
    };
    let body = picture(20 << 20);
    assert_eq!(
        ask(world.addr, "POST", CHAT, "", &body).await.status,
        200,
        "by default"
    );
    assert!(stub.seen()[0].ends_with(&body));
    world.quiet().await;

    let limit = body.len() as u64;
    let setup = || Setup::new().with(|setup| setup.options.max_body = limit);
    let world = setup().start([spec("a", &stub.url)]).await;
    assert_eq!(ask(world.addr, "POST", CHAT, "", &body).await.status, 200);
    let answer = ask(world.addr, "POST", CHAT, "", picture((20 << 20) + 1)).await;
    assert_eq!((answer.status, answer.reason()), (413, "body_too_large"));
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains(&limit.to_string()), "{message}");
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_refused_everywhere_is_told_the_soonest_time() {
    let limited = |seconds: u32| {
        plain(
            "429 Too Many Requests",
            &format!("retry-after: {seconds}\r\n"),
            "slow down",
        )
    };
    for seconds in [[3_600, 60], [60, 3_600]] {
        for seed in 0..6 {
            let stubs = [
                Stub::start([limited(seconds[0])]).await,
                Stub::start([limited(seconds[1])]).await,
            ];
            let setup = Setup::new()
                .queue(9, HANG)
                .with(|setup| setup.options.seed = Some(seed));
            let world = setup
                .start([spec("a", &stubs[0].url), spec("b", &stubs[1].url)])
                .await;
            let answer = post(world.addr, CHAT, &chat(1)).await;
            assert_eq!((answer.status, answer.header("retry-after")), (429, Some("60")));
            assert_eq!(stubs.map(|stub| stub.seen().len()), [1, 1]);
            world.quiet().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_at_fault_do_not_count_against_who_says_so() {
    for code in [400, 401, 404, 413, 422] {
        let engine = engine(quick()).await;
        let world = Setup::new().start([of("a", &engine)]).await;
        let wrong = Fault::Status {
            code,
            retry_after: None,
        };
        engine.add_fault(FaultRule::new(wrong).times(20)).unwrap();
        for _ in 0..20 {
            assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, code);
        }
        assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
        assert_eq!(engine.stats().requests, 21, "each was asked once");
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_is_asked_how_it_is_with_the_key_that_it_wants() {
    let engine = engine(quick().api_key("sk-engine")).await;
    let mut keyed = UpstreamSpec::new("a", engine.url()).unwrap();
    keyed.extensions.insert(UpstreamKey::new("sk-engine").unwrap());
    let world = Setup::polled().start([keyed]).await;
    let snapshot = world.router.published().load_full();
    let report = snapshot.find("a").unwrap().report().unwrap();
    assert_eq!(
        (report.slots_total, report.degraded.len()),
        (Some(4), 0),
        "{report:?}"
    );
    assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_an_upstream_comes_and_goes() {
    let engine = engine(quick()).await;
    let world = Setup::new().queue(100, HANG).start([of("a", &engine)]).await;
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let addr = world.addr;
        clients.spawn(async move {
            let mut client = Client::connect(addr).await;
            for number in 0..100 {
                client
                    .post(CHAT, &if number % 2 == 0 { chat(2) } else { stream(2) })
                    .await;
                let answer = client.answer().await;
                assert_eq!(
                    (answer.status, answer.end),
                    (200, End::Whole),
                    "{}",
                    answer.text()
                );
            }
        });
    }
    let id = UpstreamId::new("a").unwrap();
    let mut swaps = 0;
    while !clients.is_empty() {
        world
            .statuses
            .apply(StatusEvent::Remove(id.clone()))
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(swaps % 4)).await;
        world
            .statuses
            .apply(StatusEvent::Upsert(of("a", &engine)))
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(swaps % 16)).await;
        swaps += 1;
        while let Some(client) = clients.try_join_next() {
            client.unwrap();
        }
    }
    assert!(swaps > 2 && engine.stats().requests == 400, "{swaps}");
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_every_engine_has_too_much_to_do_it_is_said_at_once() {
    let engines = [engine(quick()).await, engine(quick()).await];
    let text = "tree:\n  - require: {queue_depth: {at_most: 5}}\n    else: shed\n  - pick: random\n";
    let tree = tree_from_yaml(text, "test", &Registry::new()).unwrap();
    let setup = Setup::new()
        .queue(100, HANG * 100)
        .with(|setup| setup.tree = tree);
    let world = setup.start([of("a", &engines[0]), of("b", &engines[1])]).await;
    for (id, waiting) in [("a", 6), ("b", 9)] {
        let mut report = Report::new();
        report.waiting = Some(waiting);
        let id = UpstreamId::new(id).unwrap();
        world
            .statuses
            .apply(StatusEvent::Report {
                id,
                report,
                sample: None,
            })
            .await
            .unwrap();
    }
    let published = world.router.published().clone();
    super::client::eventually("both have said so", || {
        published.load().iter().all(|(_, entry)| entry.report().is_some())
    })
    .await;
    let answer = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("2")));
    assert!(engines.iter().all(|engine| engine.stats().requests == 0));
    world.quiet().await;
}

fn is_an_openai_error(answer: &Answer, status: u16) {
    assert_eq!(
        (answer.status, answer.end),
        (status, End::Whole),
        "{}",
        answer.text()
    );
    let error = &answer.json()["error"];
    let keys: Vec<_> = error.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["code", "message", "param", "type"], "{status}");
    assert!(error["message"].is_string() && error["type"].is_string() && error["param"].is_null());
    assert_eq!(error["code"], answer.reason());
    assert_eq!(answer.header("content-type"), Some("application/json"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_refusal_has_the_form_that_openais_clients_read() {
    let engine = engine(quick()).await;
    let own = || of("a", &engine).models(Models::Listed([ModelEntry::new("tiny")].into()));
    let setup = Setup::new().queue(9, SHORT).with(|setup| {
        setup.options.max_body = 1_000;
        setup.options.timeouts.first_byte = SHORT;
        setup.options.timeouts.body_idle = SHORT;
    });
    let world: World = setup.start([own()]).await;
    let body = chat(1).to_string();
    let long = json!({ "pad": "x".repeat(2_000) }).to_string();
    for (method, path, headers, body, status) in [
        ("POST", CHAT, "", "[]", 400),
        ("POST", "/a%2Fb", "", "{}", 400),
        ("GET", "/x", "", "{}", 400),
        ("POST", "/v1/load_lora_adapter", "", "{}", 403),
        (
            "POST",
            CHAT,
            "content-type: multipart/form-data; boundary=x\r\n",
            "--x--",
            415,
        ),
        ("POST", CHAT, "", &long, 413),
        ("GET", "http://example.com/", "", "", 421),
        ("CONNECT", "example.com:443", "", "", 405),
        ("POST", CHAT, "content-length: 10\r\n", "", 408),
    ] {
        is_an_openai_error(&ask(world.addr, method, path, headers, body).await, status);
    }
    is_an_openai_error(&post(world.addr, CHAT, &of_model("other")).await, 404);
    for (fault, status) in [(Fault::Close, 502), (Fault::Stall, 504)] {
        engine.set_fault(Some(fault)).unwrap();
        is_an_openai_error(&post(world.addr, CHAT, &chat(1)).await, status);
    }
    let nobody = Setup::new().queue(9, SHORT).start([]).await;
    is_an_openai_error(&post(nobody.addr, CHAT, &chat(1)).await, 503);
    let full = Setup::new().queue(0, SHORT).start([own().max_in_flight(0)]).await;
    is_an_openai_error(&post(full.addr, CHAT, &chat(1)).await, 429);
    let keys = Keys::read("sk-1").unwrap();
    let setup = Setup::new().with(|setup| setup.options.keys = Some(Arc::new(keys)));
    is_an_openai_error(
        &ask(setup.start([own()]).await.addr, "POST", CHAT, "", &body).await,
        401,
    );
}
