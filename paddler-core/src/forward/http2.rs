//! How is a connection served by HTTP/2?
//!
//! hyper speaks it. Here is what keeps one connection with many streams to what a connection with one request is held to:
//! each stream has a task, which ends with the connection; a stream of which the client takes nothing is reset; what a client
//! is still sending when it has been answered is taken; a connection without streams is closed; and so is one on which most
//! requests are taken back.

use std::convert::Infallible;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::body::{Body, BoxError};
use super::rest::{self, Rest};
use super::server::ServeOptions;
use crate::clock::after;
use crate::config::LEAST_HEAD;

/// How often a client that is silent is asked whether it is still there. One that has vanished is noticed by that.
const ASK_AFTER: Duration = Duration::from_secs(30);

/// The longest piece of an answer that is handed over at once. What is handed over waits in memory until the client takes
/// it, however little that is.
const PIECE: usize = 16 * 1024;

/// What HTTP/2 begins with, which is too little for nothing, and the most that it can count to.
const WINDOWS: RangeInclusive<u32> = 65_535..=(1 << 31) - 1;

/// What the connection knows of its streams.
struct Streams {
    tasks: Mutex<JoinSet<()>>,
    open: watch::Sender<usize>,
    whole: AtomicU64,
    taken_back: AtomicU64,
    idle: Duration,
}

impl Streams {
    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn surplus_taken_back(&self) -> u64 {
        let (back, whole) = (self.taken_back.load(Relaxed), self.whole.load(Relaxed));
        back.saturating_sub(whole)
    }

    /// Ready once there has been no stream for so long.
    async fn quiet(&self, long: Duration) {
        let mut open = self.open.subscribe();
        loop {
            if open.wait_for(|open| *open == 0).await.is_err() {
                return;
            }
            if timeout(long, open.wait_for(|open| *open > 0)).await.is_err() {
                return;
            }
        }
    }

    /// Ready once so many more have been taken back than have come to their end.
    async fn mostly_taken_back(&self, surplus: u64) {
        let mut open = self.open.subscribe();
        while self.surplus_taken_back() <= surplus {
            if open.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Runs each stream in a task of its own, until the stream, or all of them, end.
#[derive(Clone)]
struct InTasks(Arc<Streams>);

impl<F> hyper::rt::Executor<F> for InTasks
where
    F: Future + Send + 'static,
{
    fn execute(&self, stream: F) {
        let open = Open::new(self.0.clone());
        let mut tasks = self.0.tasks();
        // Those that have ended are let go of as we go.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let takes = open.takes.clone();
            let ended = tokio::select! {
                biased;
                _ = TAKES.scope(takes.clone(), stream) => true,
                // Dropped, a stream is reset.
                () = takes.nothing_for(open.streams.idle) => {
                    tracing::debug!("a client took nothing of an answer for too long; its stream is reset");
                    false
                }
            };
            if ended {
                // Until that is over, it is not reset.
                takes.discard_rest().await;
            }
        });
    }
}

/// A stream that is open.
struct Open {
    streams: Arc<Streams>,
    takes: Arc<Takes>,
}

impl Open {
    fn new(streams: Arc<Streams>) -> Self {
        streams.open.send_modify(|open| *open += 1);
        Self {
            streams,
            takes: Arc::default(),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let counter = if self.takes.whole.load(Relaxed) {
            &self.streams.whole
        } else {
            &self.streams.taken_back
        };
        counter.fetch_add(1, Relaxed);
        self.streams.open.send_modify(|open| *open -= 1);
    }
}

tokio::task_local! {
    static TAKES: Arc<Takes>;
}

/// Whether the client takes the answer of a stream.
#[derive(Default)]
struct Takes {
    /// Since when a piece waits.
    waits: Mutex<Option<Instant>>,
    /// The answer has come to its end.
    whole: AtomicBool,
    /// What was not read of the request that it answers.
    rest: Mutex<Option<Rest>>,
}

impl Takes {
    fn set(&self, waits: Option<Instant>) {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = waits;
    }

    fn rest(&self) -> MutexGuard<'_, Option<Rest>> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn discard_rest(&self) {
        let rest = self.rest().take();
        if let Some(rest) = rest {
            rest.discard().await;
        }
    }

    /// Ready once a piece has waited for so long.
    async fn nothing_for(&self, long: Duration) {
        loop {
            let waits = *self.waits.lock().unwrap_or_else(PoisonError::into_inner);
            // A piece that begins to wait later is looked at later.
            let due = after(waits.unwrap_or_else(Instant::now), long);
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }
}

/// An answer as a stream takes it: in pieces, each of which the client has to take in time.
struct Paced {
    body: Body,
    piece: Bytes,
    takes: Option<Arc<Takes>>,
}

impl Paced {
    fn new(body: Body) -> Self {
        let takes = TAKES.try_with(Arc::clone).ok();
        let paced = Self {
            body,
            piece: Bytes::new(),
            takes,
        };
        paced.note_end();
        paced
    }

    fn note_end(&self) {
        if self.is_end_stream() {
            self.ended();
        }
    }

    fn ended(&self) {
        if let Some(takes) = &self.takes {
            takes.whole.store(true, Relaxed);
        }
    }
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        // What was handed over before was taken.
        if let Some(takes) = &this.takes {
            takes.set(None);
        }
        if this.piece.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.piece = data,
                    Err(trailers) => {
                        // Nothing comes after trailers.
                        this.ended();
                        return Poll::Ready(Some(Ok(trailers)));
                    }
                },
                None => {
                    this.ended();
                    return Poll::Ready(None);
                }
                error => {
                    // It is the upstream's, and not the client who takes it back.
                    this.ended();
                    return Poll::Ready(error);
                }
            }
        }
        let piece = this.piece.split_to(this.piece.len().min(PIECE));
        if let Some(takes) = &this.takes {
            takes.set(Some(Instant::now()));
        }
        this.note_end();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.piece.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let piece = self.piece.len() as u64;
        let mut hint = self.body.size_hint();
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + piece);
        }
        hint.set_lower(hint.lower() + piece);
        hint
    }
}

/// What says how a connection of HTTP/1.1 goes on, and is an error in HTTP/2 (RFC 9113, 8.2.2).
const OF_HTTP_1: [HeaderName; 5] = [
    CONNECTION,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// The answer as HTTP/2 has it. hyper does not know there that some answers have no body.
fn for_http2(response: Response<Body>, is_head: bool) -> Response<Paced> {
    let (mut head, mut body) = response.into_parts();
    for name in OF_HTTP_1 {
        head.headers.remove(name);
    }
    let bodiless = matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if is_head || bodiless {
        let length = body
            .size_hint()
            .exact()
            .filter(|_| is_head && !body.is_end_stream());
        if let Some(length) = length {
            let length = HeaderValue::from(length);
            head.headers.entry(CONTENT_LENGTH).or_insert(length);
        }
        body = Body::empty();
    }
    Response::from_parts(head, Paced::new(body))
}

fn window(asked: u32) -> u32 {
    asked.clamp(*WINDOWS.start(), *WINDOWS.end())
}

fn builder(options: &ServeOptions, streams: Arc<Streams>) -> http2::Builder<InTasks> {
    let mut builder = http2::Builder::new(InTasks(streams));
    let header_bytes = options.max_header_bytes.max(LEAST_HEAD as usize);
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(header_bytes).unwrap_or(u32::MAX))
        .max_concurrent_streams(options.max_streams.max(1))
        .initial_stream_window_size(window(options.stream_window))
        .initial_connection_window_size(window(options.connection_window))
        .keep_alive_interval(ASK_AFTER)
        // What is buffered for one stream beside the piece that waits.
        .max_send_buf_size(4 * PIECE);
    if options.taken_back == u64::MAX {
        // Nor does the protocol's own bound on that hold: one client's would end what all others have on the connection.
        let streams = usize::try_from(options.max_streams).unwrap_or(usize::MAX);
        builder
            .max_pending_accept_reset_streams(streams.max(1))
            .max_local_error_reset_streams(None);
    }
    builder
}

/// Serves a connection to its end, or gracefully to the end of its streams once `stop` is ready.
pub(super) async fn serve<F>(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    options: &ServeOptions,
    answer: impl Fn(Request<Incoming>) -> F,
    stop: impl Future<Output = ()>,
) -> hyper::Result<()>
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let streams = Arc::new(Streams {
        tasks: Mutex::default(),
        open: watch::Sender::new(0),
        whole: AtomicU64::new(0),
        taken_back: AtomicU64::new(0),
        idle: options.client_idle,
    });
    let _all_end = EndAll(streams.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        let is_head = request.method() == Method::HEAD;
        let rest = rest::of(&mut request);
        let answer = answer(request);
        async move {
            let answer = answer.await;
            TAKES.try_with(|takes| *takes.rest() = rest).ok();
            Ok::<_, Infallible>(for_http2(answer, is_head))
        }
    });
    let serving = builder(options, streams.clone()).serve_connection(TokioIo::new(io), service);
    let mut serving = pin!(serving);
    tokio::select! {
        biased;
        result = serving.as_mut() => return result,
        () = stop => {}
        () = streams.quiet(options.header_timeout) => {}
        () = streams.mostly_taken_back(options.taken_back) => {
            tracing::debug!("a client takes back most of what it asks; its connection ends");
        }
    }
    serving.as_mut().graceful_shutdown();
    tokio::select! {
        biased;
        result = serving => result,
        // It does not confirm that it has understood, or takes nothing of what is left.
        () = streams.quiet(options.client_idle.min(options.header_timeout)) => Ok(()),
        // Until it has confirmed, it may ask for more.
        () = streams.mostly_taken_back(options.taken_back.saturating_mul(2)) => Ok(()),
    }
}

/// Dropped, all streams end. They are not left to the runtime, which would go on with them.
struct EndAll(Arc<Streams>);

impl Drop for EndAll {
    fn drop(&mut self) {
        let tasks = std::mem::take(&mut *self.0.tasks());
        drop(tasks);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    /// A byte, and then an error.
    struct Cut(bool);

    impl HttpBody for Cut {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            let begun = std::mem::replace(&mut self.0, true);
            let piece = Frame::data(Bytes::from_static(b"a"));
            Poll::Ready(Some(if begun { Err("gone".into()) } else { Ok(piece) }))
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_by_its_upstream_was_not_taken_back() {
        let whole_after = |read: bool| async move {
            let takes = Arc::new(Takes::default());
            let paced = async { Paced::new(Body::new(Cut(false))) };
            let mut paced = TAKES.scope(takes.clone(), paced).await;
            if read {
                while let Some(Ok(_)) = paced.frame().await {}
            }
            takes.whole.load(Relaxed)
        };
        assert!(whole_after(true).await);
        assert!(!whole_after(false).await, "the client went before its end");
    }
}
