//! An answer is passed on byte by byte, and is late, cut or whole by the clock.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Wake, Waker};
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::time::timeout;

use super::*;
use crate::Moment;
use crate::request::Facts;
use crate::schedule::{Ask, Scratch, trees};
use crate::status::{StatusBoard, StatusEvent};
use crate::upstream::UpstreamSpec;

/// A body that comes through a channel.
struct Channel(tokio::sync::mpsc::UnboundedReceiver<Bytes>);

impl HttpBody for Channel {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0
            .poll_recv(cx)
            .map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

fn lease() -> Lease {
    let mut board = StatusBoard::new(trees::balancer());
    let spec = UpstreamSpec::new("a", "http://127.0.0.1:9").unwrap();
    board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
    let facts = Facts::new();
    let ask = Ask::new(&facts, Moment::ZERO, 1);
    board
        .publish(Moment::ZERO)
        .reserve(&ask, &mut Scratch::default(), &mut ())
        .unwrap()
}

fn request(stages: Stages) -> Request {
    let metrics = Arc::new(Metrics::default());
    Request {
        lease: lease(),
        bill: Bill {
            place: None,
            client: None,
            clock: Clock::new(),
            wrong: false,
        },
        sent: Instant::now(),
        stages,
        hurried: false,
        span: Span::none(),
        dialect: Dialect::Openai,
        learner: None,
        story: Story::default(),
        in_flight: metrics.arrived(),
        metrics,
    }
}

#[tokio::test(start_paused = true)]
async fn only_time_in_which_a_byte_is_waited_for_counts() {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let second = Duration::from_secs(1);
    let request = request(Stages {
        first_byte: second * 1_000,
        idle: second,
        ends: None,
    });
    let mut relay = Relay::new(Body::new(Channel(receiver)), &HeaderMap::new(), request);
    assert!(
        timeout(second * 99, relay.frame()).await.is_err(),
        "the first byte has its own time"
    );
    sender.send(Bytes::from("a")).unwrap();
    assert!(relay.frame().await.unwrap().is_ok());
    // The client takes nothing for long; nothing is waited for meanwhile.
    tokio::time::advance(second * 50).await;
    assert!(timeout(second / 2, relay.frame()).await.is_err());
    sender.send(Bytes::from("b")).unwrap();
    assert!(relay.frame().await.unwrap().is_ok());
    let cut = timeout(second * 2, relay.frame()).await.unwrap();
    assert!(cut.unwrap().is_err(), "no byte for a second");
    assert!(relay.frame().await.is_none());
}

/// What it brings, and that it then breaks off.
struct Breaks(Option<Bytes>);

impl HttpBody for Breaks {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let next = self.0.take().map(Frame::data);
        Poll::Ready(Some(next.ok_or_else(|| "it is gone".into())))
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn what_came_before_a_break_is_written_out_before_it_is_told() {
    let second = Duration::from_secs(1);
    let request = request(Stages {
        first_byte: second,
        idle: second,
        ends: None,
    });
    let body = Body::new(Breaks(Some(Bytes::from("half"))));
    let mut relay = Box::pin(Relay::new(body, &HeaderMap::new(), request));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    assert!(matches!(
        relay.as_mut().poll_frame(&mut cx),
        Poll::Ready(Some(Ok(_)))
    ));
    // A server writes out what it has when it has to wait.
    assert!(relay.as_mut().poll_frame(&mut cx).is_pending());
    assert!(woken.0.load(Relaxed), "it does not wait for ever");
    assert!(matches!(
        relay.as_mut().poll_frame(&mut cx),
        Poll::Ready(Some(Err(_)))
    ));
}

#[test]
fn an_open_event_is_closed_before_another_is_added() {
    let after = |text: &str| {
        let mut tail = Tail::default();
        text.bytes().for_each(|byte| tail.push(&[byte]));
        let mut at_once = Tail::default();
        at_once.push(text.as_bytes());
        assert_eq!(tail.closing(), at_once.closing(), "{text:?}");
        tail.closing()
    };
    assert_eq!(after(""), "");
    assert_eq!(after("data: 1\n\n"), "");
    assert_eq!(after("data: 1\r\n\r\n"), "");
    assert_eq!(after("data: 1\r\r"), "");
    assert_eq!(after("data: 1\n"), "\n");
    assert_eq!(after("data: 1\r\n"), "\n");
    assert_eq!(after("data: 1\r"), "\n\n");
    assert_eq!(after("data: 1\r\n\r"), "\n\n");
    assert_eq!(after("data: {\"a"), "\n\n");
    assert_eq!(after("x"), "\n\n");
}
