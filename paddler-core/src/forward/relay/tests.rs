//! An answer is passed on byte by byte, and is late, cut or whole by the clock.

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

#[tokio::test(start_paused = true)]
async fn only_time_in_which_a_byte_is_waited_for_counts() {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let (second, metrics) = (Duration::from_secs(1), Arc::new(Metrics::default()));
    let request = Request {
        lease: lease(),
        bill: Bill {
            place: None,
            client: None,
            clock: Clock::new(),
            wrong: false,
        },
        sent: Instant::now(),
        stages: Stages {
            first_byte: second * 1_000,
            idle: second,
            ends: None,
        },
        hurried: false,
        span: Span::none(),
        dialect: Dialect::Openai,
        in_flight: metrics.arrived(),
        metrics,
    };
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
