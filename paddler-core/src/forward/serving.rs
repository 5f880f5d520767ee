//! How is one client's connection served?
//!
//! Its first bytes say whether it speaks HTTP/2; anything else is HTTP/1.1. Whatever it speaks, it is seen to when it hangs
//! up, when it takes nothing, and when the server stops.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use http::header::{CONNECTION, UPGRADE};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;

#[cfg(feature = "tls")]
use super::accept::OverTls;
use super::accept::{Connection, Io, Peer};
use super::body::Body;
#[cfg(feature = "http2")]
use super::http2;
use super::lane::{Answer, beside};
use super::line::{Line, LineIo};
use super::server::ServeOptions;
use super::spurious::deferrable;
use super::upgrade::Within;
use super::vetting::vet;
use super::woken::before;
use crate::config::LEAST_HEAD;
use crate::request::Dialect;

/// What a connection is served with.
pub(super) struct Serving<S> {
    pub(super) service: S,
    pub(super) peer: Peer,
    /// The service has been told, so no request has to carry it.
    pub(super) knows_peer: bool,
    pub(super) options: ServeOptions,
    /// True once the server is to stop.
    pub(super) stopping: watch::Receiver<bool>,
    /// What goes on after the last request.
    pub(super) within: Within,
    #[cfg(feature = "tls")]
    pub(super) over_tls: bool,
}

impl<S> Serving<S>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + 'static,
{
    /// Ready once the server is to stop. Without a server there is nothing to go on for, either.
    fn stop(&self) -> impl Future<Output = ()> + use<S> {
        let mut stopping = self.stopping.clone();
        async move {
            stopping.wait_for(|stop| *stop).await.ok();
        }
    }

    /// Whether bytes go over the line as they are.
    fn in_clear(&self) -> bool {
        #[cfg(feature = "tls")]
        return !self.over_tls;
        #[cfg(not(feature = "tls"))]
        true
    }

    fn answer(&self, mut request: Request<Incoming>) -> impl Future<Output = Response<Body>> + use<S> {
        if !self.knows_peer {
            request.extensions_mut().insert(self.peer);
        }
        if request.headers().contains_key(UPGRADE) {
            request.extensions_mut().insert(self.within.clone());
        }
        #[cfg(feature = "tls")]
        if self.over_tls {
            request.extensions_mut().insert(OverTls);
        }
        let answer = match vet(&mut request) {
            Ok(()) => Ok(self.service.call(request)),
            // What it is about is not to be trusted, so neither is the dialect that its path would tell.
            Err(refusal) => {
                let (mut parts, body) = request.into_parts();
                drop(super::rest::put_aside(&mut parts.extensions, body));
                tracing::debug_span!("request", peer = %self.peer.0).in_scope(|| refusal.say());
                Err(refusal.into_response(Dialect::Openai))
            }
        };
        async move {
            match answer {
                Err(refused) => refused,
                Ok(answer) => match answer.await {
                    Ok(response) => response,
                    Err(never) => match never {},
                },
            }
        }
    }
}

/// Serves a connection to its end.
pub(super) async fn connection<S>(connection: Connection, serving: Serving<S>)
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + 'static,
    S::Future: Send + 'static,
{
    let (line, io) = Line::new(connection, serving.options.client_idle);
    let within = serving.within.clone();
    let result = {
        let speaking = pin!(speak(io, line.clone(), serving));
        // How it ended by itself counts first.
        beside(&line, pin!(before(speaking, pin!(line.hung_up())))).await
    };
    // The client has hung up, or takes nothing: all that went on for it is dropped.
    let Some(Some(result)) = result else { return };
    if let Err(error) = &result {
        tracing::debug!(%error, "a client's connection has ended");
    }
    if let Some(passing) = within.take() {
        // Who says the last word in one direction may go on to listen.
        return passing.await;
    }
    if line.was_told_to_close() || line.has_unread() || result.is_err_and(|error| error.is_parse()) {
        line.linger().await;
    }
}

/// A connection of which it is known what is spoken over it.
struct Begun {
    io: Box<dyn Io>,
    #[cfg(feature = "http2")]
    http2: bool,
    #[cfg(feature = "tls")]
    over_tls: bool,
}

/// Speaks what the client speaks.
async fn speak<S>(io: LineIo, line: Arc<Line>, serving: Serving<S>) -> hyper::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + 'static,
    S::Future: Send + 'static,
{
    let begun = tokio::select! {
        biased;
        begun = begin(io, line.clone(), serving.options.clone(), serving.peer) => begun,
        // Nothing goes on yet.
        () = serving.stop() => None,
    };
    let Some(begun) = begun else {
        return Ok(());
    };
    #[cfg(feature = "tls")]
    let serving = Serving {
        over_tls: begun.over_tls,
        ..serving
    };
    #[cfg(feature = "http2")]
    if begun.http2 {
        let (options, stop) = (serving.options.clone(), serving.stop());
        let answer = move |request| serving.answer(request);
        // What most connections never come to is not held room for in each.
        return Box::pin(http2::serve(begun.io, &options, answer, stop)).await;
    }
    http1(begun.io, line, serving).await
}

/// Encrypts the connection, if it is to be, and reads until it is clear what the client speaks. `None`: it has ended.
#[cfg_attr(
    not(feature = "tls"),
    expect(unused_variables, reason = "there is nothing to encrypt with")
)]
async fn begin(io: LineIo, line: Arc<Line>, options: ServeOptions, peer: Peer) -> Option<Begun> {
    #[cfg(feature = "tls")]
    if let Some(tls) = options.tls.clone() {
        // It is larger than all the rest, so who waits in clear holds no room for it.
        return Box::pin(encrypt(tls, io, line, options.header_timeout, peer)).await;
    }
    listen(io, options.header_timeout).await
}

/// Encrypts the connection, and reads on.
#[cfg(feature = "tls")]
#[cfg_attr(
    not(feature = "http2"),
    expect(unused_variables, reason = "there is one protocol")
)]
async fn encrypt(
    tls: super::tls::Tls,
    io: LineIo,
    line: Arc<Line>,
    limit: std::time::Duration,
    peer: Peer,
) -> Option<Begun> {
    let begun = match tls.accept(io).await {
        #[cfg(feature = "http2")]
        Ok((io, true)) => listen(io, limit).await,
        Ok((io, _)) => Some(Begun::http1(io)),
        Err(error) => {
            if super::tls::is_plain(&error) {
                // It was answered, and may still be sending.
                line.answered(true);
            }
            tracing::debug!(%error, peer = %peer.0, "no TLS with a client");
            None
        }
    };
    begun.map(|begun| Begun {
        over_tls: true,
        ..begun
    })
}

/// What a client speaks who has not said it yet. `None`: it has left before it said a word, or said none in time.
#[cfg_attr(
    not(feature = "http2"),
    expect(unused_variables, clippy::unused_async, reason = "there is one protocol")
)]
async fn listen(io: impl Io + 'static, limit: std::time::Duration) -> Option<Begun> {
    #[cfg(feature = "http2")]
    return match tokio::time::timeout(limit, super::preface::preface(io)).await {
        Ok(Ok(read)) => Some(Begun {
            http2: read.http2,
            ..Begun::http1(read.io)
        }),
        Ok(Err(_)) | Err(_) => None,
    };
    #[cfg(not(feature = "http2"))]
    Some(Begun::http1(io))
}

impl Begun {
    /// In clear, as far as is known.
    fn http1(io: impl Io + 'static) -> Self {
        Self {
            io: Box::new(io),
            #[cfg(feature = "http2")]
            http2: false,
            #[cfg(feature = "tls")]
            over_tls: false,
        }
    }
}

fn builder(options: &ServeOptions) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(options.header_timeout)
        .max_buf_size(options.max_header_bytes.max(LEAST_HEAD as usize));
    builder
}

async fn http1<S>(io: Box<dyn Io>, line: Arc<Line>, serving: Serving<S>) -> hyper::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + 'static,
{
    let stop = serving.stop();
    let mut connection = pin!({
        let (mut builder, watched) = (builder(&serving.options), line.clone());
        let in_clear = serving.in_clear();
        // hyper would keep a buffer of 8 KiB for each answer that goes on, to read ahead and see that the client has hung up.
        builder.half_close(line.tells_hang_up(in_clear));
        let service = service_fn(move |request: Request<Incoming>| {
            watched.asked(request.version());
            let (answer, watched) = (serving.answer(request), watched.clone());
            async move {
                let answer = answer.await;
                watched.answered(answer.headers().contains_key(CONNECTION));
                Ok::<_, Infallible>(Answer::of(answer, &watched, in_clear))
            }
        });
        builder
            .serve_connection(TokioIo::new(io), service)
            .with_upgrades()
    });
    let served = {
        let serve = pin!(deferrable(connection.as_mut()));
        before(serve, pin!(stop)).await
    };
    let result = match served {
        Some(result) => result,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if result.as_ref().is_err_and(hyper::Error::is_user) {
        line.break_off();
    }
    result
}
