//! Does HTTP/2 to an upstream lose nothing, hold nothing up, and say how far a request had come?

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{Request, Version};
use http_body_util::BodyExt as _;
use paddler_core::forward::{Body, BoxError};
use paddler_core::upstream::http::{Dial, HttpOptions, HttpUpstream, Io, Tcp};
use paddler_core::upstream::{CallError, Http2, NewConnection, Sent, Upstream as _, UpstreamSpec};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::frames::{DATA, Do, Frames, HEADERS, RESET, SETTINGS, WINDOW_UPDATE, serve};
use super::net::{Net, eventually, soon};

fn over_http2(url: &str) -> Arc<HttpUpstream> {
    let mut spec = UpstreamSpec::new("engine", url).unwrap();
    spec.protocol.http2 = Http2::Always;
    Arc::new(HttpUpstream::over(Arc::new(Tcp), &spec, HttpOptions::default()).unwrap())
}

fn post() -> Request<Body> {
    Request::post("/v1/completions?a=b")
        .body(Body::from("{}".to_owned()))
        .unwrap()
}

async fn call(upstream: &HttpUpstream) -> Result<http::Response<Body>, BoxError> {
    soon(upstream.call(post())).await
}

fn sent(result: Result<http::Response<Body>, BoxError>) -> Sent {
    result.unwrap_err().downcast_ref::<CallError>().unwrap().sent()
}

#[tokio::test]
async fn many_requests_at_once_share_one_connection() {
    let engine = Frames::start(100, [Do::Begin("a")]).await;
    let upstream = over_http2(&engine.url());
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let upstream = upstream.clone();
        calls.spawn(async move { call(&upstream).await.unwrap() });
    }
    let answers = soon(calls.join_all()).await;
    assert_eq!((answers.len(), engine.connections()), (50, 1));
    assert!(
        answers
            .iter()
            .all(|answer| answer.status() == 200 && answer.version() == Version::HTTP_2)
    );
}

#[tokio::test]
async fn no_connection_carries_more_streams_than_the_upstream_allows() {
    let engine = Frames::start(4, [Do::Begin("a")]).await;
    let upstream = over_http2(&engine.url());
    let mut answers = Vec::new();
    for open in 1..=9usize {
        answers.push(call(&upstream).await.unwrap());
        assert_eq!(engine.connections(), open.div_ceil(4));
    }
    // Room that is given back is used again.
    answers.drain(..4);
    answers.push(call(&upstream).await.unwrap());
    assert_eq!(engine.connections(), 3);
    // And in a burst, to begin with.
    let upstream = over_http2(&engine.url());
    let mut calls = JoinSet::new();
    for _ in 0..8 {
        let upstream = upstream.clone();
        calls.spawn(async move { call(&upstream).await.unwrap() });
    }
    let _held = soon(calls.join_all()).await;
    assert_eq!(engine.connections(), 5);
}

#[tokio::test]
async fn an_upstream_that_takes_no_stream_at_all_was_sent_nothing() {
    let engine = Frames::start(0, [Do::Ok]).await;
    let upstream = over_http2(&engine.url());
    for tried in 1..=2 {
        assert_eq!(sent(soon(call(&upstream)).await), Sent::No);
        assert_eq!(engine.connections(), tried, "none of them is kept");
    }
}

#[tokio::test]
async fn trailers_and_the_end_come_as_they_were_sent() {
    let engine = Frames::start(100, [Do::Whole("words")]).await;
    let upstream = over_http2(&engine.url());
    let body = soon(call(&upstream).await.unwrap().into_body().collect())
        .await
        .unwrap();
    assert_eq!(body.trailers().unwrap()["x-end"], "1");
    assert_eq!(body.to_bytes(), "words");
}

#[tokio::test]
async fn a_refused_stream_was_not_sent() {
    let engine = Frames::start(100, [Do::Reset(7), Do::Ok]).await;
    let upstream = over_http2(&engine.url());
    assert_eq!(sent(call(&upstream).await), Sent::No);
    assert_eq!(call(&upstream).await.unwrap().status(), 200);
    assert_eq!(
        engine.connections(),
        1,
        "the others on the connection are not concerned"
    );
}

#[tokio::test]
async fn any_other_reset_may_have_been_worked_on() {
    let engine = Frames::start(100, [Do::Ok, Do::Reset(2), Do::Reset(8)]).await;
    let upstream = over_http2(&engine.url());
    call(&upstream).await.unwrap();
    for _ in 0..2 {
        assert_eq!(sent(call(&upstream).await), Sent::Yes);
    }
}

#[tokio::test]
async fn what_came_too_late_on_a_connection_goes_over_another_one() {
    let engine = Frames::start(100, [Do::Begin("a"), Do::GoAway, Do::Ok]).await;
    let upstream = over_http2(&engine.url());
    let before = call(&upstream).await.unwrap();
    assert_eq!(
        call(&upstream).await.unwrap().status(),
        200,
        "sent again, unseen by the caller"
    );
    assert_eq!(engine.connections(), 2);
    // What was under way before goes on.
    let mut before = before.into_body();
    assert_eq!(
        soon(before.frame()).await.unwrap().unwrap().into_data().unwrap(),
        "a"
    );
    // On a new connection it is no coincidence: somebody else should have it.
    let engine = Frames::start(100, [Do::GoAway]).await;
    assert_eq!(sent(call(&over_http2(&engine.url())).await), Sent::No);
}

#[tokio::test]
async fn a_connection_that_was_used_and_is_closed_was_most_likely_gone() {
    let engine = Frames::start(100, [Do::Close, Do::Ok, Do::Close, Do::Ok]).await;
    let upstream = over_http2(&engine.url());
    assert_eq!(
        sent(call(&upstream).await),
        Sent::Yes,
        "a new one that breaks was broken by the request"
    );
    call(&upstream).await.unwrap();
    assert_eq!(sent(call(&upstream).await), Sent::Reused);
    let mut once_more = post();
    once_more.extensions_mut().insert(NewConnection);
    assert_eq!(soon(upstream.call(once_more)).await.unwrap().status(), 200);
    assert_eq!(engine.connections(), 3);
}

#[tokio::test]
async fn a_new_connection_that_was_asked_for_is_new() {
    let engine = Frames::start(100, [Do::Ok]).await;
    let upstream = over_http2(&engine.url());
    for connections in [1, 2, 3] {
        let mut request = post();
        request.extensions_mut().insert(NewConnection);
        soon(upstream.call(request)).await.unwrap();
        assert_eq!(engine.connections(), connections);
    }
}

#[tokio::test]
async fn whoever_leaves_resets_the_stream_and_no_other() {
    let engine = Frames::start(100, [Do::Begin("a"), Do::Begin("b"), Do::Nothing, Do::Whole("c")]).await;
    let upstream = over_http2(&engine.url());
    let stays = call(&upstream).await.unwrap();
    // In the midst of the answer, and before it.
    drop(call(&upstream).await.unwrap());
    let waiting = tokio::spawn({
        let upstream = upstream.clone();
        async move { upstream.call(post()).await.is_ok() }
    });
    eventually("the third request is there", || engine.seen(HEADERS).len() == 3).await;
    waiting.abort();
    eventually("both are reset", || engine.seen(RESET).len() == 2).await;
    let resets = engine.seen(RESET);
    assert_eq!(
        resets.iter().map(|reset| reset.stream).collect::<Vec<_>>(),
        [3, 5]
    );
    assert!(
        resets.iter().all(|reset| reset.payload == 8u32.to_be_bytes()),
        "CANCEL"
    );
    assert_eq!(
        soon(stays.into_body().frame())
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap(),
        "a"
    );
    assert_eq!(call(&upstream).await.unwrap().status(), 200);
    assert_eq!(engine.connections(), 1);
}

#[tokio::test]
async fn each_stream_is_read_ahead_by_no_more_than_its_share() {
    let engine = Frames::start(100, [Do::Ok]).await;
    let upstream = over_http2(&engine.url());
    call(&upstream).await.unwrap();
    let (stream, whole) = (256 * 1024, 128 * 256 * 1024);
    assert_eq!(engine.seen(SETTINGS)[0].setting(4), Some(stream));
    // As many slow clients as there may be do not use up the connection's share, which begins at 65,535.
    let more = engine.seen(WINDOW_UPDATE);
    let more = more.iter().find(|update| update.stream == 0).unwrap();
    assert_eq!(more.payload, (whole - 65_535u32).to_be_bytes());
}

#[tokio::test]
async fn the_body_is_sent_whole_and_with_its_length() {
    let engine = Frames::start(100, [Do::Ok]).await;
    let upstream = over_http2(&engine.url());
    call(&upstream).await.unwrap();
    eventually("the body is there", || {
        engine.seen(DATA).iter().any(|data| data.flags & 1 == 1)
    })
    .await;
    let body: Vec<u8> = engine
        .seen(DATA)
        .into_iter()
        .flat_map(|data| data.payload)
        .collect();
    assert_eq!(body, b"{}");
}

#[tokio::test]
async fn an_upstream_that_does_not_speak_it_is_found_out_before_anything_is_sent() {
    for (says, why) in [
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak HTTP/2"),
        ("", "closed the connection"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = over_http2(&format!("http://{}", listener.local_addr().unwrap()));
        let engine = tokio::spawn(async move {
            let (mut io, _) = listener.accept().await.unwrap();
            io.read_exact(&mut [0; 24]).await.unwrap();
            io.write_all(says.as_bytes()).await.unwrap();
        });
        let error = call(&upstream).await.unwrap_err();
        let error = error.downcast_ref::<CallError>().unwrap();
        let told = std::error::Error::source(error).unwrap().to_string();
        assert_eq!(error.sent(), Sent::No);
        assert!(told.contains(why), "{told}");
        engine.await.unwrap();
    }
}

#[tokio::test]
async fn an_upgrade_is_refused_where_only_http2_is_spoken() {
    let engine = Frames::start(100, [Do::Ok]).await;
    let upstream = over_http2(&engine.url());
    let request = Request::get("/")
        .header("upgrade", "websocket")
        .body(Body::empty())
        .unwrap();
    assert_eq!(sent(soon(upstream.call(request)).await), Sent::No);
    assert_eq!(engine.connections(), 0);
}

#[tokio::test]
async fn a_connection_ends_with_the_upstream_it_belongs_to_and_not_before_its_streams() {
    let engine = Frames::start(100, [Do::Begin("a")]).await;
    let upstream = over_http2(&engine.url());
    let held = call(&upstream).await.unwrap();
    drop(upstream);
    let mut body = held.into_body();
    assert_eq!(
        soon(body.frame()).await.unwrap().unwrap().into_data().unwrap(),
        "a"
    );
    assert_eq!(engine.open(), 1);
    drop(body);
    eventually("it is closed", || engine.open() == 0).await;
}

#[tokio::test]
async fn a_connection_is_left_when_its_address_has_left_the_names_answer() {
    let (old, new) = (
        Frames::start(100, [Do::Begin("a")]).await,
        Frames::start(100, [Do::Begin("b")]).await,
    );
    let at = |engine: &Frames| engine.authority.parse().unwrap();
    let net = Net::new(&[at(&old)]);
    let mut spec = UpstreamSpec::new("engine", "http://engine.test:80").unwrap();
    spec.protocol.http2 = Http2::Always;
    let mut options = HttpOptions::default();
    options.address_ttl = Duration::ZERO;
    let upstream = HttpUpstream::over(net.clone(), &spec, options).unwrap();
    let held = call(&upstream).await.unwrap();
    net.now(&[at(&new)]);
    soon(async {
        while new.connections() == 0 {
            call(&upstream).await.unwrap();
        }
    })
    .await;
    // What is under way there may end there.
    assert_eq!(old.open(), 1);
    drop(held);
    eventually("it is closed", || old.open() == 0).await;
}

/// A network without sockets, so that time can be paused.
#[derive(Debug)]
struct Within(Vec<Do>);

#[async_trait]
impl Dial for Within {
    async fn dial(&self, _address: SocketAddr) -> io::Result<Box<dyn Io>> {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(serve(
            theirs,
            100,
            self.0.as_slice().into(),
            Arc::default(),
            Arc::default(),
        ));
        Ok(Box::new(ours))
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_falls_silent_is_given_up_and_the_request_may_have_been_worked_on() {
    let mut spec = UpstreamSpec::new("engine", "http://192.0.2.1").unwrap();
    spec.protocol.http2 = Http2::Always;
    let after = |millis| Do::CloseAfter(Duration::from_millis(millis));
    for (way, expected) in [
        (Do::Mute, Sent::Yes),
        (after(900), Sent::Reused),
        (after(1_100), Sent::Yes),
    ] {
        let dial = Arc::new(Within(vec![Do::Ok, way.clone()]));
        let upstream = HttpUpstream::over(dial, &spec, HttpOptions::default()).unwrap();
        upstream.call(post()).await.unwrap();
        assert_eq!(sent(upstream.call(post()).await), expected, "{way:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_given_back_however_they_end() {
    let ways = [
        Do::Whole("a"),
        Do::Begin("b"),
        Do::Nothing,
        Do::Reset(8),
        Do::Reset(7),
        Do::Ok,
    ];
    let script = ways.iter().cycle().take(300).cloned();
    let first = std::iter::repeat_n(Do::Begin("a"), 16);
    let engine = Arc::new(Frames::start(8, first.chain(script).chain([Do::Begin("z")])).await);
    let upstream = over_http2(&engine.url());
    // Two connections, which are enough for the sixteen who call.
    let mut held = Vec::new();
    for _ in 0..16 {
        held.push(call(&upstream).await.unwrap());
    }
    held.clear();
    let mut callers = JoinSet::new();
    for _ in 0..16 {
        let (upstream, engine) = (upstream.clone(), engine.clone());
        callers.spawn(async move {
            while engine.seen(HEADERS).len() <= 316 {
                // Some are answered, some refused, and some given up before or within the answer.
                let whole = async { upstream.call(post()).await.ok()?.into_body().collect().await.ok() };
                drop(timeout(Duration::from_millis(20), whole).await);
            }
        });
    }
    soon(callers.join_all()).await;
    for _ in 0..16 {
        held.push(call(&upstream).await.unwrap());
    }
    assert_eq!(engine.connections(), 2, "there is room for as many as ever");
}
