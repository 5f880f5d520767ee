//! Is an answer the same, and its connection used again or not, whether it is taken at once or later?

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use async_trait::async_trait;
use http::{HeaderMap, Uri};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::upstream::UpstreamSpec;
use crate::upstream::http::{Dial, HttpOptions, HttpUpstream, Io};

/// Says the same to each request.
#[derive(Debug)]
struct Says {
    answer: String,
    connections: AtomicUsize,
}

#[async_trait]
impl Dial for Says {
    async fn dial(&self, _address: SocketAddr) -> io::Result<Box<dyn Io>> {
        self.connections.fetch_add(1, Relaxed);
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        let answer = self.answer.clone();
        tokio::spawn(async move {
            let mut request = [0; 1 << 10];
            while let Ok(1..) = theirs.read(&mut request).await {
                theirs.write_all(answer.as_bytes()).await?;
            }
            io::Result::Ok(())
        });
        Ok(Box::new(ours))
    }
}

/// What is read of it, and over how many connections two requests go.
async fn read(method: &Method, body: &'static str, answer: &str, at_once: bool) -> (u16, Bytes, usize) {
    let says = Arc::new(Says {
        answer: answer.to_owned(),
        connections: AtomicUsize::new(0),
    });
    let spec = UpstreamSpec::new("a", "http://127.0.0.1:9").unwrap();
    let upstream = HttpUpstream::over(says.clone(), &spec, HttpOptions::default()).unwrap();
    let uri = Uri::from_static("/x");
    let (mut status, mut text) = (0, Bytes::new());
    for _ in 0..2 {
        let mut outbound = Outbound::new(method, &uri, Cow::Owned(HeaderMap::new()));
        outbound.at_once = at_once;
        let held_back = AtomicBool::new(false);
        let response = upstream
            .ask(outbound, Body::full(body), &held_back)
            .await
            .unwrap();
        status = response.status().as_u16();
        text = response.into_body().collect().await.unwrap().to_bytes();
    }
    (status, text, says.connections.load(Relaxed))
}

#[tokio::test]
async fn when_it_is_taken_makes_no_difference() {
    let (get, head, post) = (Method::GET, Method::HEAD, Method::POST);
    for (method, body, said, status, text, connections) in [
        (&get, "", "200 OK\r\ncontent-length: 2\r\n\r\nhi", 200, "hi", 1),
        (&get, "", "200 OK\r\ncontent-length: 2\r\n\r\nhi!", 200, "hi", 2),
        (
            &get,
            "",
            "200 OK\r\ncontent-length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n",
            200,
            "hi",
            2,
        ),
        (&get, "", "200 OK\r\ncontent-length: 0\r\n\r\n", 200, "", 1),
        (&get, "", "200 OK\r\ncontent-length: 0\r\n\r\n\r\n", 200, "", 2),
        (&get, "", "204 No Content\r\n\r\n", 204, "", 1),
        (&get, "", "204 No Content\r\n\r\nhi", 204, "", 2),
        (
            &get,
            "",
            "304 Not Modified\r\ncontent-length: 2\r\n\r\n",
            304,
            "",
            1,
        ),
        (
            &get,
            "",
            "304 Not Modified\r\ncontent-length: 2\r\n\r\nhi",
            304,
            "",
            2,
        ),
        (&head, "", "200 OK\r\ncontent-length: 2\r\n\r\n", 200, "", 1),
        (&head, "", "200 OK\r\ncontent-length: 2\r\n\r\nhi", 200, "", 2),
        (
            &get,
            "",
            "200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi",
            200,
            "hi",
            2,
        ),
        (&post, "x", "200 OK\r\ncontent-length: 2\r\n\r\nhi", 200, "hi", 1),
        (
            &post,
            "x",
            "404 Not Found\r\ncontent-length: 2\r\n\r\nhi",
            404,
            "hi",
            2,
        ),
        (
            &post,
            "",
            "404 Not Found\r\ncontent-length: 2\r\n\r\nhi",
            404,
            "hi",
            1,
        ),
        (
            &get,
            "",
            "200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n!",
            200,
            "hi",
            2,
        ),
    ] {
        for at_once in [false, true] {
            let read = read(method, body, &format!("HTTP/1.1 {said}"), at_once).await;
            let expected = (status, Bytes::from_static(text.as_bytes()), connections);
            assert_eq!(read, expected, "{method} {said:?}, at once: {at_once}");
        }
    }
}
