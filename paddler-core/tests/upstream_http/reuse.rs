//! Is a kept connection used again only where nothing has happened on it, and what is known where it was lost?

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use paddler_core::upstream::http::{Dial, HttpOptions, HttpUpstream, Io};
use paddler_core::upstream::{CallError, Progress, Sent, Upstream as _, UpstreamSpec};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep, timeout};

use super::ends::{OK, Others, call, get, kept, sent, text, until, upstream};
use super::net::{eventually, soon};

/// The next connection is answered, and stays open.
fn answer_next(mut others: Others) {
    tokio::spawn(async move {
        let mut end = others.recv().await.unwrap();
        until(&mut end, "\r\n\r\n").await;
        end.write_all(OK).await.unwrap();
        std::future::pending::<()>().await;
    });
}

#[tokio::test]
async fn kept_connections_that_were_all_closed_cost_nothing_however_many() {
    // More than what a task may do at once, by tokio's count.
    for count in [2, 200] {
        let (upstream, mut others) = upstream(1 << 16);
        let calls: Vec<_> = (0..count).map(|_| call(&upstream, get())).collect();
        let mut ends = Vec::new();
        for _ in &calls {
            ends.push(soon(others.recv()).await.unwrap());
        }
        for end in &mut ends {
            until(end, "\r\n\r\n").await;
            end.write_all(OK).await.unwrap();
        }
        for one in calls {
            text(soon(one).await.unwrap().unwrap()).await;
        }
        drop(ends);
        let asked = call(&upstream, get());
        answer_next(others);
        assert_eq!(text(soon(asked).await.unwrap().unwrap()).await, "ok", "{count}");
    }
}

/// What is asked by a task that has done so much since it last waited, by tokio's count.
async fn asked_after(units: usize, upstream: Arc<HttpUpstream>) -> bytes::Bytes {
    let asked = tokio::spawn(async move {
        tokio::task::yield_now().await;
        for _ in 0..units {
            consume_budget().await;
        }
        text(upstream.call(get()).await.unwrap()).await
    });
    soon(asked).await.unwrap()
}

#[tokio::test]
async fn what_was_said_unasked_is_seen_also_by_a_task_that_has_done_much() {
    for units in [0, 127, 128] {
        let (upstream, mut others) = upstream(1 << 16);
        let mut end = kept(&upstream, &mut others).await;
        let unasked = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil";
        end.write_all(unasked).await.unwrap();
        answer_next(others);
        assert_eq!(asked_after(units, upstream).await, "ok", "{units}");
    }
}

/// Says this at once and is gone.
#[derive(Debug)]
struct Gone(&'static [u8]);

#[async_trait]
impl Dial for Gone {
    async fn dial(&self, _address: SocketAddr) -> io::Result<Box<dyn Io>> {
        let (ours, mut theirs) = tokio::io::duplex(64);
        theirs.write_all(self.0).await?;
        Ok(Box::new(ours))
    }
}

#[tokio::test]
async fn an_upstream_that_closes_or_speaks_before_it_was_asked_anything_is_out_of_reach() {
    for said in [&b""[..], b"SSH-2.0-OpenSSH_9\r\n"] {
        let spec = UpstreamSpec::new("a", "http://127.0.0.1:9").unwrap();
        let upstream = HttpUpstream::over(Arc::new(Gone(said)), &spec, HttpOptions::default()).unwrap();
        let error = soon(upstream.call(get())).await.unwrap_err();
        let error = error.downcast_ref::<CallError>().unwrap();
        assert_eq!((error.sent(), error.reached()), (Sent::No, false), "{said:?}");
    }
}

#[tokio::test]
async fn what_begins_as_an_answer_is_one_also_over_a_kept_connection() {
    for said in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhi!",
        &"HTTP/1.1 100 Continue\r\n\r\n".repeat(17),
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nxx",
        "HTTP/1.1 200 OK\n",
        "HTTP/1.1 100 Continue\r\n\r\nrest of it",
    ] {
        let (upstream, mut others) = upstream(1 << 16);
        let mut end = kept(&upstream, &mut others).await;
        let asked = call(&upstream, get());
        until(&mut end, "\r\n\r\n").await;
        end.write_all(said.as_bytes()).await.unwrap();
        assert_eq!(sent(soon(asked).await.unwrap()), Sent::Begun, "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_ends_after_long_silence_had_the_request() {
    for (after, expected) in [
        (0, Sent::Reused),
        (900, Sent::Reused),
        (1_100, Sent::Yes),
        (300_000, Sent::Yes),
    ] {
        let (upstream, mut others) = upstream(1 << 16);
        let mut end = kept(&upstream, &mut others).await;
        let asked = call(&upstream, get());
        until(&mut end, "\r\n\r\n").await;
        sleep(Duration::from_millis(after)).await;
        drop(end);
        assert_eq!(sent(asked.await.unwrap()), expected, "{after} ms");
    }
}

#[test]
fn unused_connections_are_closed_in_time_also_by_another_runtime() {
    let (upstream, mut others) = upstream(1 << 16);
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().unwrap()
    };
    // The one that was to close it ends before that.
    let first = runtime().block_on(kept(&upstream, &mut others));
    drop(first);
    runtime().block_on(async {
        let mut end = kept(&upstream, &mut others).await;
        let mut rest = Vec::new();
        let closed = timeout(Duration::from_secs(60), end.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "it is kept for ever");
    });
}

#[tokio::test(start_paused = true)]
async fn what_has_waited_too_long_is_not_used_though_nobody_has_swept() {
    let (upstream, mut others) = upstream(1 << 16);
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().unwrap()
    };
    let first = std::thread::spawn({
        let upstream = upstream.clone();
        move || runtime().block_on(async { (kept(&upstream, &mut others).await, others) })
    });
    let (mut first, mut others) = first.join().unwrap();
    tokio::time::advance(Duration::from_secs(5)).await;
    drop(kept(&upstream, &mut others).await);
    assert_eq!(first.read_to_end(&mut Vec::new()).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_said_behind_an_answer_closes_the_connection_at_its_end() {
    let (upstream, mut others) = upstream(1 << 16);
    let asked = call(&upstream, get());
    let mut end = others.recv().await.unwrap();
    until(&mut end, "\r\n\r\n").await;
    end.write_all(OK).await.unwrap();
    let answer = asked.await.unwrap().unwrap();
    end.write_all(b"more").await.unwrap();
    let began = Instant::now();
    assert_eq!(text(answer).await, "ok");
    end.read_to_end(&mut Vec::new()).await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO, "it was kept for a while");
}

#[tokio::test(start_paused = true)]
async fn one_lost_connection_takes_the_other_kept_ones_with_it() {
    let (upstream, mut others) = upstream(1 << 16);
    let asked = [call(&upstream, get()), call(&upstream, get())];
    let mut ends = [others.recv().await.unwrap(), others.recv().await.unwrap()];
    for end in &mut ends {
        until(end, "\r\n\r\n").await;
        end.write_all(OK).await.unwrap();
    }
    for one in asked {
        text(one.await.unwrap().unwrap()).await;
    }
    let asked = call(&upstream, get());
    let began = Instant::now();
    let [mut first, mut second] = ends;
    let (lost, mut other) = tokio::select! {
        _ = first.read_u8() => (first, second),
        _ = second.read_u8() => (second, first),
    };
    drop(lost);
    assert_eq!(sent(asked.await.unwrap()), Sent::Reused);
    other.read_to_end(&mut Vec::new()).await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO, "it was kept for a while");
}

/// Connects once, and then never again.
#[derive(Debug)]
struct Once {
    end: Mutex<Option<DuplexStream>>,
    asked: AtomicUsize,
}

#[async_trait]
impl Dial for Once {
    async fn dial(&self, _address: SocketAddr) -> io::Result<Box<dyn Io>> {
        self.asked.fetch_add(1, Relaxed);
        let end = self.end.lock().unwrap().take();
        match end {
            Some(end) => Ok(Box::new(end)),
            None => std::future::pending().await,
        }
    }
}

#[tokio::test]
async fn a_request_that_waits_for_a_new_connection_is_not_on_its_way() {
    let (ours, mut end) = tokio::io::duplex(1 << 16);
    let once = Arc::new(Once {
        end: Mutex::new(Some(ours)),
        asked: AtomicUsize::new(0),
    });
    let spec = UpstreamSpec::new("a", "http://127.0.0.1:9").unwrap();
    let upstream = Arc::new(HttpUpstream::over(once.clone(), &spec, HttpOptions::default()).unwrap());
    let ask = || {
        let (progress, mut request) = (Progress::default(), get());
        progress.set_sending(false);
        request.extensions_mut().insert(progress.clone());
        (progress, call(&upstream, request))
    };
    // Over a new connection, and over one that is kept.
    for _ in 0..2 {
        let (progress, asked) = ask();
        until(&mut end, "\r\n\r\n").await;
        assert!(progress.is_sending());
        end.write_all(OK).await.unwrap();
        text(soon(asked).await.unwrap().unwrap()).await;
    }
    // One that is kept and found closed.
    drop(end);
    let (progress, asked) = ask();
    eventually("it connects", || once.asked.load(Relaxed) == 2).await;
    assert!(!progress.is_sending());
    asked.abort();
}
