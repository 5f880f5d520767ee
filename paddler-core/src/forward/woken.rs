//! How does who is seldom heard of wait beside who is heard of all the time?
//!
//! A task that waits for several is woken by one of them, and does not know by which: it would ask all. Whoever is asked here has
//! a waker of his own, and is asked again only once he has used it. An event of a stream then costs nothing of what waits beside
//! it: for the client to hang up, for the server to stop, for a time limit.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

pub(super) use bell::Woken;

mod bell;

/// What `often` comes to, or `None` if `seldom` is done before.
pub(super) async fn before<T>(
    mut often: Pin<&mut impl Future<Output = T>>,
    mut seldom: Pin<&mut impl Future<Output = ()>>,
) -> Option<T> {
    let mut woken = Woken::new();
    poll_fn(|cx| {
        if let Poll::Ready(done) = often.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        woken.poll(cx, |cx| seldom.as_mut().poll(cx)).map(|()| None)
    })
    .await
}

#[cfg(test)]
mod tests;
