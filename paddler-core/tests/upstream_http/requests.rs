//! Does a request get onto the connection as one, and is it known how far it came?

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::Frame;
use http_body_util::BodyExt as _;
use paddler_core::forward::{Body, BoxError};
use paddler_core::upstream::http::{Dial, HttpOptions, HttpUpstream, Io};
use paddler_core::upstream::{Sent, UpstreamSpec};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufWriter, DuplexStream};
use tokio::sync::mpsc;

use super::ends::{OK, call, get, is_closed, kept, sent, text, until, upstream};
use super::net::soon;

/// A body that comes through a channel.
struct Channel(mpsc::UnboundedReceiver<Result<Frame<Bytes>, BoxError>>);

impl http_body::Body for Channel {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.poll_recv(cx)
    }
}

type Frames = mpsc::UnboundedSender<Result<Frame<Bytes>, BoxError>>;

fn streamed(headers: &[(&str, &str)]) -> (Frames, Request<Body>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut request = Request::post("/x").body(Body::new(Channel(receiver))).unwrap();
    for (name, value) in headers {
        let name: http::HeaderName = name.parse().unwrap();
        request.headers_mut().append(name, value.parse().unwrap());
    }
    (sender, request)
}

fn data(text: &'static str) -> Result<Frame<Bytes>, BoxError> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

#[tokio::test]
async fn a_request_is_written_as_it_is() {
    for room in [1, 7, 1 << 16] {
        let (upstream, mut others) = upstream(room);
        let body = Body::chunks([Bytes::from("one"), Bytes::from("two")]);
        let request = Request::post("/a?b=c")
            .header("x-a", "\u{e4}")
            .body(body)
            .unwrap();
        let answer = call(&upstream, request);
        let mut end = soon(others.recv()).await.unwrap();
        let written = until(&mut end, "onetwo").await;
        let head = "POST /a?b=c HTTP/1.1\r\nx-a: \u{e4}\r\nhost: 127.0.0.1:9\r\ncontent-length: 6\r\n\r\n";
        assert_eq!(written, format!("{head}onetwo"));
        let read = async { text(soon(answer).await.unwrap().unwrap()).await };
        let (written, read) = tokio::join!(end.write_all(OK), read);
        assert_eq!((written.is_ok(), read), (true, "ok".into()));
    }
}

#[tokio::test]
async fn a_body_of_unknown_length_goes_in_chunks_as_it_comes() {
    for room in [1, 7, 1 << 16] {
        let (upstream, mut others) = upstream(room);
        let (frames, request) = streamed(&[("transfer-encoding", "gzip"), ("transfer-encoding", "x")]);
        let answer = call(&upstream, request);
        let mut end = soon(others.recv()).await.unwrap();
        let head = until(&mut end, "\r\n\r\n").await;
        assert!(head.contains("\r\ntransfer-encoding: chunked\r\n"), "{head}");
        assert!(!head.contains("gzip"), "{head}");
        for piece in ["hello", "", "sixteen letters!"] {
            frames.send(data(piece)).unwrap();
        }
        assert_eq!(
            until(&mut end, "!\r\n").await,
            "5\r\nhello\r\n10\r\nsixteen letters!\r\n"
        );
        let trailers = HeaderMap::from_iter([("x-end".parse().unwrap(), "1".parse().unwrap())]);
        frames.send(Ok(Frame::trailers(trailers))).unwrap();
        assert_eq!(until(&mut end, "\r\n\r\n").await, "0\r\nx-end: 1\r\n\r\n");
        let read = async { text(soon(answer).await.unwrap().unwrap()).await };
        let (written, read) = tokio::join!(end.write_all(OK), read);
        assert_eq!((written.is_ok(), read), (true, "ok".into()));
    }
}

#[tokio::test]
async fn a_body_is_as_long_as_was_announced_or_fails() {
    for pieces in [&["12", "3"][..], &["12", "345"], &["12", "34", "5"]] {
        let (upstream, mut others) = upstream(1 << 16);
        let (frames, request) = streamed(&[("content-length", "4")]);
        let answer = call(&upstream, request);
        pieces.iter().for_each(|piece| frames.send(data(piece)).unwrap());
        drop(frames);
        assert_eq!(sent(soon(answer).await.unwrap()), Sent::Yes);
        assert!(is_closed(&mut others.recv().await.unwrap()).await);
    }
    for headers in [
        &[("content-length", "+4")][..],
        &[("content-length", "4"), ("content-length", "5")],
    ] {
        let (upstream, _others) = upstream(1 << 16);
        let (_frames, request) = streamed(headers);
        assert!(soon(call(&upstream, request)).await.unwrap().is_err());
    }
}

#[tokio::test]
async fn a_body_that_breaks_off_ends_the_exchange() {
    let (upstream, mut others) = upstream(1 << 16);
    // Over a connection that was used before: that it may be sent again is not said.
    let first = call(&upstream, get());
    let mut end = soon(others.recv()).await.unwrap();
    end.write_all(OK).await.unwrap();
    text(first.await.unwrap().unwrap()).await;
    let (frames, request) = streamed(&[]);
    let answer = call(&upstream, request);
    frames.send(data("some")).unwrap();
    until(&mut end, "some\r\n").await;
    frames.send(Err("it is gone".into())).unwrap();
    assert_eq!(sent(soon(answer).await.unwrap()), Sent::Yes);
    assert!(is_closed(&mut end).await);
    // In the middle of the answer.
    let (frames, request) = streamed(&[]);
    let answer = call(&upstream, request);
    let mut end = soon(others.recv()).await.unwrap();
    end.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nan")
        .await
        .unwrap();
    let mut body = soon(answer).await.unwrap().unwrap().into_body();
    assert_eq!(
        soon(body.frame()).await.unwrap().unwrap().into_data().unwrap(),
        "an"
    );
    frames.send(Err("it is gone".into())).unwrap();
    assert!(soon(body.frame()).await.unwrap().is_err());
    assert!(is_closed(&mut end).await);
}

#[tokio::test]
async fn a_request_goes_on_while_it_is_answered() {
    let (upstream, mut others) = upstream(1 << 16);
    let (frames, request) = streamed(&[]);
    let answer = call(&upstream, request);
    let mut end = soon(others.recv()).await.unwrap();
    end.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        .await
        .unwrap();
    let mut body = soon(answer).await.unwrap().unwrap().into_body();
    for (piece, chunk) in [("one", "3\r\none\r\n"), ("four", "4\r\nfour\r\n")] {
        frames.send(data(piece)).unwrap();
        let echo = async {
            let chunk = until(&mut end, chunk).await;
            let chunk = chunk
                .split_once("\r\n\r\n")
                .map_or(chunk.as_str(), |(_, chunk)| chunk);
            end.write_all(chunk.as_bytes()).await.unwrap();
        };
        let (frame, ()) = tokio::join!(soon(body.frame()), echo);
        assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), piece);
    }
    drop(frames);
    let last = async {
        until(&mut end, "0\r\n\r\n").await;
        end.write_all(b"0\r\n\r\n").await.unwrap();
    };
    let (frame, ()) = tokio::join!(soon(body.frame()), last);
    assert!(frame.is_none());
}

#[tokio::test]
async fn an_answer_counts_though_the_rest_of_the_request_was_not_taken() {
    let (upstream, mut others) = upstream(64);
    let request = Request::post("/x").body(Body::from("x".repeat(1 << 20))).unwrap();
    let answer = call(&upstream, request);
    let mut end = soon(others.recv()).await.unwrap();
    until(&mut end, "\r\n\r\n").await;
    end.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
        .await
        .unwrap();
    drop(end);
    let response = soon(answer).await.unwrap().unwrap();
    assert_eq!(response.status(), 413);
    assert_eq!(text(response).await, "no");
}

#[tokio::test]
async fn whoever_lets_go_closes_the_connection() {
    let (upstream, mut others) = upstream(1 << 16);
    let asked = call(&upstream, get());
    let mut end = soon(others.recv()).await.unwrap();
    until(&mut end, "\r\n\r\n").await;
    asked.abort();
    assert!(is_closed(&mut end).await);
    let asked = call(&upstream, get());
    let mut end = soon(others.recv()).await.unwrap();
    end.write_all(&OK[..OK.len() - 1]).await.unwrap();
    let mut body = soon(asked).await.unwrap().unwrap().into_body();
    soon(body.frame()).await.unwrap().unwrap();
    drop(body);
    assert!(is_closed(&mut end).await);
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_or_has_spoken_costs_nothing() {
    let (upstream, mut others) = upstream(1 << 16);
    for said in [
        &b""[..],
        b"\r\n",
        b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n",
    ] {
        let mut end = kept(&upstream, &mut others).await;
        end.write_all(said).await.unwrap();
        if said.is_empty() {
            drop(end);
            drop(kept(&upstream, &mut others).await);
        } else {
            drop(kept(&upstream, &mut others).await);
            let mut heard = Vec::new();
            soon(end.read_to_end(&mut heard)).await.unwrap();
            assert_eq!(heard, b"", "nothing was sent into it");
        }
    }
}

#[tokio::test]
async fn it_is_known_how_far_a_request_came() {
    let (upstream, mut others) = upstream(1 << 16);
    for said in [&b""[..], b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200"] {
        // A new connection.
        let asked = call(&upstream, get());
        let mut end = soon(others.recv()).await.unwrap();
        until(&mut end, "\r\n\r\n").await;
        end.write_all(said).await.unwrap();
        drop(end);
        let of_new = if said.is_empty() { Sent::Yes } else { Sent::Begun };
        assert_eq!(sent(soon(asked).await.unwrap()), of_new);
        // One that was used before.
        let mut end = kept(&upstream, &mut others).await;
        let asked = call(&upstream, get());
        until(&mut end, "\r\n\r\n").await;
        end.write_all(said).await.unwrap();
        drop(end);
        let expected = if said.is_empty() {
            Sent::Reused
        } else {
            Sent::Begun
        };
        assert_eq!(sent(soon(asked).await.unwrap()), expected);
    }
    // What is no answer was left behind by the one before.
    let mut end = kept(&upstream, &mut others).await;
    let asked = call(&upstream, get());
    until(&mut end, "\r\n\r\n").await;
    end.write_all(b"rest of it").await.unwrap();
    assert_eq!(sent(soon(asked).await.unwrap()), Sent::Reused);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_nobody_uses_is_closed_in_time() {
    let (upstream, mut others) = upstream(1 << 16);
    let mut end = kept(&upstream, &mut others).await;
    let unused = tokio::time::Instant::now();
    let mut rest = Vec::new();
    end.read_to_end(&mut rest).await.unwrap();
    let idle = HttpOptions::default().idle_timeout;
    assert!((idle..idle + Duration::from_secs(1)).contains(&unused.elapsed()));
    // And again, by whoever lets go of the next.
    let mut end = kept(&upstream, &mut others).await;
    end.read_to_end(&mut rest).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_request_goes_behind_half_of_another() {
    let (upstream, mut others) = upstream(1 << 16);
    let (frames, request) = streamed(&[]);
    let answer = call(&upstream, request);
    let mut end = soon(others.recv()).await.unwrap();
    frames.send(data("half")).unwrap();
    until(&mut end, "half\r\n").await;
    end.write_all(OK).await.unwrap();
    assert_eq!(text(soon(answer).await.unwrap().unwrap()).await, "ok");
    // The next one goes over another connection.
    drop(kept(&upstream, &mut others).await);
    assert!(is_closed(&mut end).await);
}

#[tokio::test]
async fn no_other_protocol_begins_before_the_request_is_over() {
    let (upstream, mut others) = upstream(1 << 16);
    let (frames, request) = streamed(&[("upgrade", "x")]);
    let answer = call(&upstream, request);
    let mut end = soon(others.recv()).await.unwrap();
    until(&mut end, "\r\n\r\n").await;
    end.write_all(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(sent(soon(answer).await.unwrap()), Sent::Begun);
    drop(frames);
}

/// Its connections hold back what is written until they are told to let it go.
#[derive(Debug)]
struct Buffered(mpsc::UnboundedSender<DuplexStream>);

#[async_trait]
impl Dial for Buffered {
    async fn dial(&self, _address: SocketAddr) -> io::Result<Box<dyn Io>> {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        self.0.send(theirs).unwrap();
        Ok(Box::new(BufWriter::new(ours)))
    }
}

#[tokio::test]
async fn nothing_is_held_back_while_more_of_the_body_is_waited_for() {
    let (ends, mut others) = mpsc::unbounded_channel();
    let spec = UpstreamSpec::new("a", "http://127.0.0.1:9").unwrap();
    let upstream = HttpUpstream::over(Arc::new(Buffered(ends)), &spec, HttpOptions::default()).unwrap();
    let (frames, request) = streamed(&[]);
    let answer = call(&Arc::new(upstream), request);
    let mut end = soon(others.recv()).await.unwrap();
    until(&mut end, "\r\n\r\n").await;
    frames.send(data("half")).unwrap();
    until(&mut end, "half\r\n").await;
    drop(frames);
    until(&mut end, "0\r\n\r\n").await;
    end.write_all(OK).await.unwrap();
    assert_eq!(text(soon(answer).await.unwrap().unwrap()).await, "ok");
}
