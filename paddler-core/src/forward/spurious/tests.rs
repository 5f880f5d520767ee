use std::cell::Cell;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Wake, Waker};
use std::thread;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;

use super::super::body::Body;
use super::*;

/// How often somebody was woken.
#[derive(Default)]
struct Counted(AtomicUsize);

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl Counted {
    fn deferrable(self: &Arc<Self>) -> Waker {
        Arc::new(Deferrable(self.clone().into())).into()
    }

    fn take(&self) -> usize {
        self.0.swap(0, Relaxed)
    }
}

#[test]
fn who_is_deferred_is_woken_later_unless_that_is_spurious() {
    let woken = Arc::<Counted>::default();
    let waker = woken.deferrable();
    waker.wake_by_ref();
    assert_eq!(woken.take(), 1, "nobody is deferred");

    let deferred = DeferWake::begin();
    waker.wake_by_ref();
    assert_eq!(woken.take(), 0);
    drop(deferred);
    assert_eq!(woken.take(), 1);

    let (deferred, given_away) = (DeferWake::begin(), waker.clone());
    given_away.wake();
    deferred.discard();
    assert_eq!(woken.take(), 0);
    drop(DeferWake::begin());
    assert_eq!(woken.take(), 0, "it is over");
    waker.wake_by_ref();
    assert_eq!(woken.take(), 1);
}

#[test]
fn one_alone_is_deferred_by_the_outermost_and_on_his_thread() {
    let (woken, other) = (Arc::<Counted>::default(), Arc::<Counted>::default());
    let (waker, another) = (woken.deferrable(), other.deferrable());
    let deferred = DeferWake::begin();
    let waker = &waker;
    thread::scope(|scope| scope.spawn(move || waker.wake_by_ref()).join()).unwrap();
    assert_eq!(woken.take(), 1, "another thread");
    waker.wake_by_ref();
    DeferWake::begin().discard();
    assert_eq!(woken.take(), 0, "still deferred");
    another.wake_by_ref();
    assert_eq!(other.take(), 1, "a second one");
    waker.wake_by_ref();
    assert_eq!(woken.take(), 1, "a second time");
    drop(deferred);
    assert_eq!((woken.take(), other.take()), (1, 0));
}

#[test]
fn a_panic_defers_nobody() {
    let woken = Arc::<Counted>::default();
    let waker = woken.deferrable();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _deferred = DeferWake::begin();
        waker.wake_by_ref();
        panic!("as a body might");
    }));
    assert!(panicked.is_err());
    assert_eq!(woken.take(), 1);
    waker.wake_by_ref();
    assert_eq!(woken.take(), 1);
}

/// Polls a server for as long as it is woken, and says how often that was.
async fn polls(server: &mut Pin<&mut impl Future<Output = ()>>) -> usize {
    let (woken, mut polls) = (Arc::<Counted>::default(), 0);
    let waker = Waker::from(woken.clone());
    loop {
        let polled = server.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        polls += 1;
        if woken.take() == 0 {
            return polls;
        }
    }
}

#[tokio::test]
async fn a_request_that_has_come_whole_is_asked_once_and_others_are_read_to_their_end() {
    let (whole, chunked) = ("content-length: 4", "transfer-encoding: chunked");
    for (length, body, once) in [
        (whole, &["abcd"][..], true),
        (whole, &["", "abcd"], false),
        (whole, &["ab", "c", "d"], false),
        (chunked, &["4\r\nabcd\r\n0\r\n\r\n"], false),
        (chunked, &["2\r\nab\r\n", "2\r\ncd\r\n", "0\r\n\r\n"], false),
    ] {
        let (mut client, line) = tokio::io::duplex(1024);
        let read = Cell::new(None);
        let service = service_fn(async |request: Request<Incoming>| {
            let body = Body::new(request.into_body());
            read.set(Some(body.collect().await.unwrap().to_bytes()));
            // The engine thinks.
            std::future::pending::<Result<Response<Body>, Infallible>>().await
        });
        let mut builder = http1::Builder::new();
        builder.half_close(true);
        let connection = pin!(builder.serve_connection(TokioIo::new(line), service));
        let mut served = pin!(async { deferrable(connection).await.unwrap() });
        let mut head = format!("POST / HTTP/1.1\r\nhost: a\r\n{length}\r\n\r\n");
        let mut asked = 0;
        for piece in body {
            head.push_str(piece);
            client.write_all(head.as_bytes()).await.unwrap();
            head.clear();
            asked += polls(&mut served).await;
        }
        assert_eq!(read.take().as_deref(), Some(&b"abcd"[..]), "{length}: {body:?}");
        assert_eq!(asked == 1, once, "{length}: {body:?}: {asked}");
    }
}
