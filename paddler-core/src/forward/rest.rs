//! What becomes of a request's body that its answer did not wait for?
//!
//! Over HTTP/2 a stream is reset when nobody holds it while its client is still sending. Some clients then throw away the answer
//! that they have (RFC 9113, 8.1, asks them not to). So the body is put aside by whoever drops it, and what still comes is taken,
//! within bounds, once the answer has been sent. Over HTTP/1.1 the answer says that the connection ends with it, and what comes
//! is taken from the [line](super::line) for a while.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
#[cfg(feature = "http2")]
use std::time::Duration;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{Extensions, HeaderValue, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
#[cfg(feature = "http2")]
use http_body_util::BodyExt as _;
#[cfg(feature = "http2")]
use tokio::time::timeout;

use super::body::{Body, BoxError};

/// How long that goes on. It is as long over HTTP/1.1.
#[cfg(feature = "http2")]
const LINGER: Duration = Duration::from_secs(1);

/// And how many bytes are taken.
#[cfg(feature = "http2")]
const MOST: usize = 16 * 1024 * 1024;

/// Where the body of one request is put aside. An extension of the request, until it is handled.
#[derive(Clone, Default)]
pub(super) struct Rest(Arc<Mutex<Option<Body>>>);

impl Rest {
    fn lock(&self) -> MutexGuard<'_, Option<Body>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is still coming, for a while.
    #[cfg(feature = "http2")]
    pub(super) async fn discard(&self) {
        let Some(mut body) = self.lock().take() else {
            return;
        };
        let mut left = MOST;
        let to_its_end = async {
            while let Some(Ok(frame)) = body.frame().await {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                match left.checked_sub(bytes) {
                    Some(rest) => left = rest,
                    None => return false,
                }
            }
            true
        };
        if timeout(LINGER, to_its_end).await != Ok(true) {
            tracing::debug!("a client was still sending when its stream was closed");
        }
    }
}

/// Where the body of this request will be put, if it has one.
#[cfg(feature = "http2")]
pub(super) fn of<B: HttpBody>(request: &mut Request<B>) -> Option<Rest> {
    let rest = (!request.body().is_end_stream()).then(Rest::default)?;
    request.extensions_mut().insert(rest.clone());
    Some(rest)
}

/// The body of a request, which is put aside when it is dropped before its end, if there is a place for it.
pub(super) fn put_aside<B>(extensions: &mut Extensions, body: B) -> Body
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let body = Body::new(body);
    match extensions.remove::<Rest>() {
        Some(rest) => Body::new(PutAside {
            body,
            rest,
            ended: false,
        }),
        None => body,
    }
}

/// Answers a request, and hears its client out whose body the answer did not wait for: what he still sends is taken for a while,
/// so that he can read the answer, where he would else meet a reset. For services behind [`serve`](super::serve) that may answer
/// early; a [`Router`](super::Router) sees to it by itself.
pub async fn hear_out<B, F>(request: Request<B>, answer: impl FnOnce(Request<Body>) -> F) -> Response<Body>
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    F: Future<Output = Response<Body>>,
{
    let (mut parts, body) = request.into_parts();
    // Over HTTP/2 the stream has a place for it already.
    let has_no_place = !body.is_end_stream() && parts.extensions.get::<Rest>().is_none();
    let of_line = has_no_place.then(Rest::default);
    if let Some(rest) = of_line.clone() {
        parts.extensions.insert(rest);
    }
    let body = put_aside(&mut parts.extensions, body);
    let mut response = answer(Request::from_parts(parts, body)).await;
    if of_line.is_some_and(|rest| rest.lock().take().is_some()) {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

struct PutAside {
    body: Body,
    rest: Rest,
    /// A body without a length told does not know its end but by being read.
    ended: bool,
}

impl HttpBody for PutAside {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.ended |= !matches!(frame, Some(Ok(_)));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for PutAside {
    fn drop(&mut self) {
        let body = std::mem::take(&mut self.body);
        if !self.ended && !body.is_end_stream() {
            *self.rest.lock() = Some(body);
        }
    }
}

#[cfg(all(test, feature = "http2"))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use tokio::time::Instant;

    use super::*;

    /// Pieces of so many bytes, without end; and how many were taken.
    struct Endless(usize, Arc<AtomicUsize>);

    impl HttpBody for Endless {
        type Data = Bytes;
        type Error = super::super::body::BoxError;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            if self.0 == 0 {
                return Poll::Pending;
            }
            self.1.fetch_add(self.0, Relaxed);
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![0; self.0])))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_of_a_body_is_taken_within_bounds() {
        for (piece, most) in [(0, 0), (100_000, MOST + 100_000)] {
            let taken = Arc::default();
            let mut request = Request::new(Endless(piece, Arc::clone(&taken)));
            let rest = of(&mut request).unwrap();
            let (mut parts, body) = request.into_parts();
            drop(put_aside(&mut parts.extensions, body));
            assert!(parts.extensions.is_empty(), "it goes no further");
            let began = Instant::now();
            rest.discard().await;
            assert_eq!(began.elapsed().as_secs(), u64::from(piece == 0));
            let taken = taken.load(Relaxed);
            assert!((most.saturating_sub(100_000)..=most).contains(&taken), "{taken}");
            assert_eq!(Arc::strong_count(&rest.0), 1);
            assert!(rest.lock().is_none());
        }
    }

    #[tokio::test]
    async fn a_body_that_was_read_is_not_put_aside() {
        let mut request = Request::new(Body::full("a"));
        let rest = of(&mut request).unwrap();
        let (mut parts, body) = request.into_parts();
        put_aside(&mut parts.extensions, body).collect().await.unwrap();
        assert!(rest.lock().is_none());
        assert!(of(&mut Request::new(Body::empty())).is_none());
    }

    #[tokio::test]
    async fn who_is_heard_out_is_told_that_the_connection_ends_where_there_are_no_streams() {
        for (http2, reads) in [(false, false), (false, true), (true, false), (true, true)] {
            let (pieces, body) = tokio::sync::mpsc::channel(1);
            pieces.send(Bytes::from("a")).await.unwrap();
            drop(pieces);
            let mut request = Request::new(Body::from_channel(body));
            let rest = if http2 { of(&mut request) } else { None };
            let answer = |request: Request<Body>| async move {
                assert!(request.extensions().is_empty(), "it goes no further");
                if reads {
                    request.into_body().collect().await.unwrap();
                }
                Response::new(Body::empty())
            };
            let response = hear_out(request, answer).await;
            let ends = response.headers().contains_key(CONNECTION);
            assert_eq!(ends, !http2 && !reads, "{http2} {reads}");
            let is_left = rest.is_some_and(|rest| rest.lock().is_some());
            assert_eq!(is_left, http2 && !reads, "{http2} {reads}");
        }
    }
}
