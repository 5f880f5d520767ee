//! How does a WebSocket get through?
//!
//! Its request goes the way of every other: it is judged, waits for a place, and takes one. When the upstream agrees, bytes are
//! passed on in both directions, and the place is held until one end has gone. What is said inside is not looked at.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{CONNECTION, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until, timeout};

use super::body::Body;
use super::headers::lists;
use super::refusal::Refusal;
use super::rights::InUse;
use super::story::Story;
use crate::clock::after;
use crate::config::WebSockets;
use crate::observe::{End, InFlight, Metrics};
use crate::upstream::http::Io;
use crate::upstream::{Lease, Upgraded};

const WEBSOCKET: &str = "websocket";

/// How long one end may go on once the other has said its last word. A WebSocket says when it ends (RFC 6455, 7); who only
/// falls silent has most likely gone.
const AFTERWARDS: Duration = Duration::from_secs(10);

/// A client that asks for a WebSocket.
pub(super) struct Asked {
    client: OnUpgrade,
    within: Option<Within>,
}

impl Asked {
    /// Whether the request asks for one, and may. Other upgrades are passed over, as whoever does not know them does
    /// (RFC 9110, 7.8); so HTTP/2 is never begun by one.
    pub(super) fn by(parts: &Parts, allowed: WebSockets) -> Result<Option<Self>, Refusal> {
        let asks = parts.version == Version::HTTP_11
            && lists(&parts.headers, &CONNECTION, "upgrade")
            && lists(&parts.headers, &UPGRADE, WEBSOCKET);
        if !asks {
            return Ok(None);
        }
        if allowed == WebSockets::Closed {
            let message = "WebSockets are closed here: what is said inside cannot be judged";
            return Err(Refusal::new(StatusCode::FORBIDDEN, "websocket", message));
        }
        if parts.method != Method::GET {
            let message = format!("a WebSocket begins with GET, not with {}", parts.method);
            return Err(Refusal::bad_request("websocket", message).closing());
        }
        let Some(client) = parts.extensions.get::<OnUpgrade>().cloned() else {
            let message = "the server around this router lets no connection be upgraded";
            return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, "no_upgrade", message));
        };
        let within = parts.extensions.get().cloned();
        Ok(Some(Self { client, within }))
    }

    /// Passes bytes on from now on.
    pub(super) fn tunnel(self, answer: Response<Body>, tunnel: Tunnel) -> Response<Body> {
        let (mut head, _) = answer.into_parts();
        let upstream = head.extensions.remove::<Upgraded>();
        let upstream = upstream.and_then(|upgraded| upgraded.take());
        // It was asked for on our behalf, and is now for the client.
        ask(&mut head.headers);
        let passing = async move {
            if let Some(upstream) = upstream {
                tunnel.run(self.client, upstream).await;
            }
        };
        match self.within {
            Some(within) => within.put(Box::pin(passing)),
            None => drop(tokio::spawn(passing)),
        }
        Response::from_parts(head, Body::empty())
    }
}

/// Puts in what asks for a WebSocket, or agrees to one.
pub(super) fn ask(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
}

/// Whether an answer agrees to what [`ask`] asks for.
pub(super) fn agrees(answer: &Response<Body>) -> bool {
    let upgraded = answer.extensions().get::<Upgraded>().is_some();
    upgraded && lists(answer.headers(), &UPGRADE, WEBSOCKET)
}

type Passing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where a connection keeps what goes on in it after its last request, as an extension of its requests: it ends with the
/// connection's server, not before and not after.
#[derive(Clone, Default)]
pub(super) struct Within(Arc<Mutex<Option<Passing>>>);

impl Within {
    fn put(&self, passing: Passing) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(passing);
    }

    pub(super) fn take(&self) -> Option<Passing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// What a WebSocket holds while it is open.
pub(super) struct Tunnel {
    pub(super) lease: Lease,
    /// How long nothing may come from either end.
    pub(super) idle: Duration,
    pub(super) metrics: Arc<Metrics>,
    pub(super) in_flight: InFlight,
    pub(super) story: Story,
    /// What the client uses of its allowance.
    pub(super) _in_use: Option<InUse>,
}

/// Which end of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Upstream,
}

impl Tunnel {
    async fn run(mut self, client: OnUpgrade, upstream: Box<dyn Io>) {
        self.lease.first_byte();
        let client = match client.await {
            Ok(client) => TokioIo::new(client),
            Err(error) => {
                tracing::debug!(%error, "a WebSocket has ended before it began");
                return;
            }
        };
        match pass(client, upstream, self.idle).await {
            // The engine is rid of it.
            Some(Side::Upstream) => {
                self.lease.complete();
                self.story.end(End::Complete, None);
            }
            Some(Side::Client) => self.story.end(End::Complete, None),
            None => {
                tracing::debug!("nothing came through a WebSocket for too long");
                self.metrics.truncated("tunnel_idle");
                self.story.end(End::CutShort, Some("tunnel_idle"));
            }
        }
        drop(self.in_flight);
    }
}

/// Passes bytes on until both ends have said their last word, one is gone, or nothing comes for too long. Gives who ended it.
async fn pass<C, U>(client: C, upstream: U, idle: Duration) -> Option<Side>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    let last = Mutex::new(Instant::now());
    let touch = || *last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    let (client_reads, client_writes) = tokio::io::split(client);
    let (upstream_reads, upstream_writes) = tokio::io::split(upstream);
    let mut up = std::pin::pin!(one_way(client_reads, upstream_writes, touch));
    let mut down = std::pin::pin!(one_way(upstream_reads, client_writes, touch));
    let silence = async {
        loop {
            let due = after(*last.lock().unwrap_or_else(PoisonError::into_inner), idle);
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    };
    // Who could not be written to is the one that is gone.
    let gone = |other: Side, result: io::Result<Way>, reader: Side| match result {
        Ok(Way::Ended) => (reader, true),
        Ok(Way::NotTaken) => (other, false),
        Err(_) => (reader, false),
    };
    let (end, goes_on) = tokio::select! {
        result = &mut up => gone(Side::Upstream, result, Side::Client),
        result = &mut down => gone(Side::Client, result, Side::Upstream),
        () = silence => return None,
    };
    if goes_on {
        let rest = async {
            match end {
                Side::Client => up_or_down(&mut down).await,
                Side::Upstream => up_or_down(&mut up).await,
            }
        };
        // An upstream that has answered the last word with its own is through, too.
        if timeout(AFTERWARDS, rest).await.is_ok_and(|ended| ended) {
            return Some(Side::Upstream);
        }
    }
    Some(end)
}

async fn up_or_down(way: impl Future<Output = io::Result<Way>>) -> bool {
    matches!(way.await, Ok(Way::Ended))
}

/// How one direction has come to its end.
enum Way {
    /// With the last word of who speaks, which was passed on.
    Ended,
    /// Nobody takes it.
    NotTaken,
}

async fn one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    touch: impl Fn(),
) -> io::Result<Way> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        touch();
        let taken = if read == 0 {
            to.shutdown().await
        } else {
            match to.write_all(&buffer[..read]).await {
                Ok(()) => to.flush().await,
                error => error,
            }
        };
        match taken {
            Err(_) => return Ok(Way::NotTaken),
            Ok(()) if read == 0 => return Ok(Way::Ended),
            Ok(()) => touch(),
        }
    }
}

/// The model that a query names: a WebSocket has no body that could.
pub(super) fn model(query: Option<&str>) -> Option<Arc<str>> {
    let named = query?.split('&').find_map(|pair| pair.strip_prefix("model="))?;
    // What is encoded would have to be read as the upstream reads it.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:@".contains(&byte);
    let is_plain = !named.is_empty() && named.len() <= 256 && named.bytes().all(plain);
    is_plain.then(|| named.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn both_may_say_their_last_word() {
        let (mut client, ours) = tokio::io::duplex(64);
        let (theirs, mut upstream) = tokio::io::duplex(64);
        let passing = tokio::spawn(pass(ours, theirs, Duration::from_secs(60)));
        client.write_all(b"hello").await.unwrap();
        client.shutdown().await.unwrap();
        let mut heard = String::new();
        upstream.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "hello");
        upstream.write_all(b"and goodbye").await.unwrap();
        upstream.shutdown().await.unwrap();
        heard.clear();
        client.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "and goodbye");
        assert_eq!(passing.await.unwrap(), Some(Side::Upstream));
    }

    #[tokio::test(start_paused = true)]
    async fn no_limit_of_silence_is_none() {
        let (client, ours) = tokio::io::duplex(64);
        let (theirs, _upstream) = tokio::io::duplex(64);
        let passing = tokio::spawn(pass(ours, theirs, Duration::MAX));
        tokio::time::sleep(Duration::from_secs(86_400)).await;
        assert!(!passing.is_finished());
        drop(client);
        assert!(passing.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_it_and_words_put_that_off() {
        let (mut client, ours) = tokio::io::duplex(64);
        let (theirs, _upstream) = tokio::io::duplex(4096);
        let began = Instant::now();
        let passing = tokio::spawn(pass(ours, theirs, Duration::from_secs(60)));
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_secs(50)).await;
            client.write_all(b"x").await.unwrap();
        }
        assert_eq!(passing.await.unwrap(), None);
        assert_eq!(began.elapsed().as_secs(), 210);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_gone_is_known() {
        let (client, ours) = tokio::io::duplex(64);
        let (theirs, mut upstream) = tokio::io::duplex(64);
        let passing = tokio::spawn(pass(ours, theirs, Duration::from_secs(60)));
        drop(client);
        upstream.write_all(b"nobody hears").await.unwrap();
        assert_eq!(passing.await.unwrap(), Some(Side::Client));
        let (_client, ours) = tokio::io::duplex(64);
        let (theirs, upstream) = tokio::io::duplex(64);
        let passing = tokio::spawn(pass(ours, theirs, Duration::from_secs(60)));
        drop(upstream);
        assert_eq!(passing.await.unwrap(), Some(Side::Upstream));
    }

    #[test]
    fn a_query_names_a_model_in_plain_letters() {
        assert_eq!(
            model(Some("a=b&model=org/x-1.5:q4")).as_deref(),
            Some("org/x-1.5:q4")
        );
        for query in [
            None,
            Some(""),
            Some("model="),
            Some("model=a%20b"),
            Some("xmodel=a"),
        ] {
            assert_eq!(model(query), None, "{query:?}");
        }
    }
}
