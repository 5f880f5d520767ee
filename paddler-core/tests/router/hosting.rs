//! Can the router be put into another server?

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Version};
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt as _;
use paddler_core::Clock;
use paddler_core::forward::{Body, Router, RouterOptions};
use paddler_core::schedule::{Class, Condition, Node, Signals, Tree, filter_fn, trees};
use paddler_core::status::{StatusBoard, StatusEvent};
use tower_service::Service;

use super::client::{CHAT, chat, post};
use super::world::{Setup, engine, of, quick, spec};

/// A body as a host may have it: in pieces, with an error of its own, and not to be shared between threads.
struct Pieces(Vec<Bytes>, std::cell::Cell<u32>);

#[derive(Debug)]
struct Trouble;

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("trouble")
    }
}

impl std::error::Error for Trouble {}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Trouble;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Trouble>>> {
        // Every other time it has to be asked once more.
        self.1.set(self.1.get() + 1);
        if self.1.get() % 2 == 1 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let piece = if self.0.is_empty() {
            None
        } else {
            Some(self.0.remove(0))
        };
        Poll::Ready(piece.map(|piece| {
            if piece == "trouble" {
                Err(Trouble)
            } else {
                Ok(Frame::data(piece))
            }
        }))
    }
}

fn pieces(text: &str) -> Pieces {
    Pieces(
        text.as_bytes().chunks(7).map(Bytes::copy_from_slice).collect(),
        std::cell::Cell::new(0),
    )
}

#[tokio::test]
async fn as_a_tower_service_with_a_hosts_own_body() {
    let engine = engine(quick()).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    let mut router = world.router.clone();
    std::future::poll_fn(|cx| Service::<Request<Pieces>>::poll_ready(&mut router, cx))
        .await
        .unwrap();
    let request = Request::post(CHAT).body(pieces(&chat(3).to_string())).unwrap();
    let response = Service::call(&mut router, request).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, post(engine.addr(), CHAT, &chat(3)).await.body);
    assert_eq!(
        engine.requests()[0].headers["content-length"],
        chat(3).to_string().len().to_string()
    );

    let mut broken = pieces("{\"messages\":");
    broken.0.push(Bytes::from("trouble"));
    let response = router.handle(Request::post(CHAT).body(broken).unwrap()).await;
    assert_eq!(
        (
            response.status().as_u16(),
            &response.headers()["x-paddler-reason"]
        ),
        (400, &"broken_body".parse().unwrap())
    );
    world.quiet().await;
}

#[tokio::test]
async fn the_authority_of_http_2_is_no_foreign_host() {
    let engine = engine(quick()).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    let request = |version| {
        let request = Request::post("https://llm.example.com/v1/completions").version(version);
        request
            .body(Body::from(r#"{"prompt":"a","max_tokens":1}"#.to_owned()))
            .unwrap()
    };
    assert_eq!(world.router.handle(request(Version::HTTP_2)).await.status(), 200);
    assert_eq!(world.router.handle(request(Version::HTTP_11)).await.status(), 421);
    assert_eq!(engine.last_request().unwrap().path, "/v1/completions");
}

#[tokio::test]
async fn a_response_that_is_dropped_gives_its_place_back() {
    let engine = engine(quick().slots(1)).await;
    let world = Setup::new().start([of("a", &engine)]).await;
    for _ in 0..3 {
        let request = Request::post(CHAT).body(Body::from(chat(3).to_string())).unwrap();
        drop(world.router.handle(request).await);
        world.quiet().await;
    }
}

#[tokio::test]
async fn a_board_without_transports_refuses_and_does_not_spin() {
    let mut board = StatusBoard::new(trees::gateway());
    let clock = Clock::new();
    board.apply(StatusEvent::Upsert(spec("a", "http://127.0.0.1:9")), clock.now());
    board.publish(clock.now());
    let router = Router::new(board.published(), clock, RouterOptions::default());
    let response = router
        .handle(Request::post(CHAT).body(Body::from(chat(1).to_string())).unwrap())
        .await;
    assert_eq!(
        (
            response.status().as_u16(),
            &response.headers()["x-paddler-reason"]
        ),
        (503, &"unhealthy".parse().unwrap())
    );
}

#[tokio::test]
async fn a_reason_of_a_tree_in_any_script_still_has_a_word() {
    let tree = paddler_core::schedule::Tree::new(
        paddler_core::schedule::Signals::Corrected,
        paddler_core::schedule::Node::reject(paddler_core::schedule::Class::Shed, "пауза"),
    );
    let engine = engine(quick()).await;
    let world = Setup::new()
        .with(|setup| setup.tree = tree.unwrap())
        .start([of("a", &engine)])
        .await;
    let answer = post(world.addr, CHAT, &chat(1)).await;
    assert_eq!(
        (answer.status, answer.reason(), answer.header("retry-after")),
        (429, "rejected", Some("2"))
    );
    assert!(answer.text().contains("пауза"));
}

#[tokio::test]
async fn a_router_ends_with_its_last_clone() {
    let board = StatusBoard::new(trees::gateway());
    let published = board.published();
    let router = Router::new(published.clone(), Clock::new(), RouterOptions::default());
    let marker = Arc::new(());
    drop((router.clone(), router, marker));
    tokio::task::yield_now().await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

/// Takes the priority from a header, as a host may that trusts whoever sends it.
#[derive(Debug)]
struct FromHeader;

impl paddler_core::forward::Annotate for FromHeader {
    fn annotate(&self, headers: &http::HeaderMap, facts: &mut paddler_core::request::RequestFacts) {
        if headers.contains_key("x-sheddable") {
            facts.priority = -1;
        }
    }
}

#[tokio::test]
async fn a_host_says_what_the_body_does_not() {
    let engine = engine(quick()).await;
    let nobody_is_that_idle = Node::require_or(filter_fn("never", |_, _| false), Class::Shed);
    let tree = Node::list([Node::when(
        Condition::Critical,
        Node::random(),
        Node::list([nobody_is_that_idle, Node::random()]),
    )]);
    let setup = Setup::new().with(|setup| {
        setup.tree = Tree::new(Signals::Corrected, tree).unwrap();
        setup.options.annotate = Some(Arc::new(FromHeader));
    });
    let world = setup.start([of("a", &engine)]).await;
    let ask = |shed: bool| {
        let mut request = Request::post(CHAT);
        if shed {
            request = request.header("x-sheddable", "1");
        }
        request
            .body(Body::full(
                r#"{"model":"tiny","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}"#,
            ))
            .unwrap()
    };
    assert_eq!(world.router.handle(ask(false)).await.status(), 200);
    assert_eq!(world.router.handle(ask(true)).await.status(), 429);
}
