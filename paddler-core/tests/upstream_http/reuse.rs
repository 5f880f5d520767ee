//! Is a kept connection used again only where nothing has happened on it, and what is known where it was lost?

use std::sync::Arc;

use paddler_core::upstream::Upstream as _;
use paddler_core::upstream::http::HttpUpstream;
use tokio::io::AsyncWriteExt as _;
use tokio::task::coop::consume_budget;

use super::ends::{OK, Others, call, get, kept, text, until, upstream};
use super::net::soon;

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
