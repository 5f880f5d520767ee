//! How is one client's connection served?
//!
//! Its first bytes say whether it speaks HTTP/2; anything else is HTTP/1.1. Whatever it speaks, it is seen to when it hangs
//! up, when it takes nothing, and when the server stops.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use http::header::CONNECTION;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

#[cfg(feature = "tls")]
use super::accept::OverTls;
use super::accept::{Connection, Peer};
use super::body::Body;
#[cfg(feature = "http2")]
use super::http2;
use super::line::Line;
use super::server::ServeOptions;
use super::upgrade::Within;
use super::vetting::vet;
use crate::config::LEAST_HEAD;
use crate::request::Dialect;

/// What a connection is served with.
pub(super) struct Serving<S> {
    pub(super) service: S,
    pub(super) peer: Peer,
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

    fn answer(&self, mut request: Request<Incoming>) -> impl Future<Output = Response<Body>> + use<S> {
        request.extensions_mut().insert(self.peer);
        request.extensions_mut().insert(self.within.clone());
        #[cfg(feature = "tls")]
        if self.over_tls {
            request.extensions_mut().insert(OverTls);
        }
        let answer = match vet(&mut request) {
            Ok(()) => Ok(self.service.call(request)),
            // What it is about is not to be trusted, so neither is the dialect that its path would tell.
            Err(refusal) => {
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
    let result = tokio::select! {
        // First: how it ended by itself counts.
        biased;
        result = begin(io, line.clone(), serving) => result,
        // All that goes on for it is dropped.
        () = line.hung_up() => return,
    };
    if let Err(error) = &result {
        tracing::debug!(%error, "a client's connection has ended");
    }
    if let Some(passing) = within.take() {
        // Who says the last word in one direction may go on to listen.
        return passing.await;
    }
    if line.was_told_to_close() || result.is_err_and(|error| error.is_parse()) {
        line.linger().await;
    }
}

/// Encrypts the connection, if it is to be, and speaks.
#[cfg(feature = "tls")]
async fn begin<S>(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    line: Arc<Line>,
    serving: Serving<S>,
) -> hyper::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + 'static,
    S::Future: Send + 'static,
{
    match serving.options.tls.clone() {
        None => speak(io, line, serving).await,
        // It is larger than all the rest, so whoever does not encrypt holds no room for it.
        Some(tls) => Box::pin(encrypted(tls, io, line, serving)).await,
    }
}

#[cfg(feature = "tls")]
async fn encrypted<S>(
    tls: super::tls::Tls,
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    line: Arc<Line>,
    mut serving: Serving<S>,
) -> hyper::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + 'static,
    S::Future: Send + 'static,
{
    let stop = serving.stop();
    let accepted = tokio::select! {
        biased;
        accepted = tls.accept(io) => accepted,
        // Nothing goes on yet.
        () = stop => return Ok(()),
    };
    serving.over_tls = true;
    match accepted {
        #[cfg(feature = "http2")]
        Ok((io, true)) => speak(io, line, serving).await,
        Ok((io, _)) => http1(io, line, serving).await,
        Err(error) => {
            if super::tls::is_plain(&error) {
                // It was answered, and may still be sending.
                line.answered(true);
            }
            tracing::debug!(%error, peer = %serving.peer.0, "no TLS with a client");
            Ok(())
        }
    }
}

/// Speaks.
#[cfg(not(feature = "tls"))]
async fn begin<S>(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    line: Arc<Line>,
    serving: Serving<S>,
) -> hyper::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + 'static,
    S::Future: Send + 'static,
{
    speak(io, line, serving).await
}

/// Speaks what the client speaks.
#[cfg(feature = "http2")]
async fn speak<S>(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    line: Arc<Line>,
    serving: Serving<S>,
) -> hyper::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + 'static,
    S::Future: Send + 'static,
{
    use super::preface::{Read, preface};
    let (limit, stop) = (serving.options.header_timeout, serving.stop());
    let read = tokio::select! {
        biased;
        read = tokio::time::timeout(limit, preface(io)) => read,
        // Nothing goes on yet.
        () = stop => return Ok(()),
    };
    match read {
        Ok(Ok(Read { io, http2: true })) => {
            let (options, stop) = (serving.options.clone(), serving.stop());
            // What most connections never come to is not held room for in each.
            Box::pin(http2::serve(
                io,
                &options,
                move |request| serving.answer(request),
                stop,
            ))
            .await
        }
        Ok(Ok(Read { io, http2: false })) => http1(io, line, serving).await,
        // It has left before it said a word, or said none in time.
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}

/// Speaks what the client speaks.
#[cfg(not(feature = "http2"))]
async fn speak<S>(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    line: Arc<Line>,
    serving: Serving<S>,
) -> hyper::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + 'static,
{
    http1(io, line, serving).await
}

fn builder(options: &ServeOptions) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(options.header_timeout)
        .max_buf_size(options.max_header_bytes.max(LEAST_HEAD as usize));
    builder
}

async fn http1<S>(
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    line: Arc<Line>,
    serving: Serving<S>,
) -> hyper::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + 'static,
{
    let (builder, stop, watched) = (builder(&serving.options), serving.stop(), line.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        watched.asked(request.version());
        let (answer, watched) = (serving.answer(request), watched.clone());
        async move {
            let answer = answer.await;
            watched.answered(answer.headers().contains_key(CONNECTION));
            Ok::<_, Infallible>(answer)
        }
    });
    let mut connection = pin!(
        builder
            .serve_connection(TokioIo::new(io), service)
            .with_upgrades()
    );
    let result = tokio::select! {
        biased;
        result = connection.as_mut() => result,
        () = stop => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if result.as_ref().is_err_and(hyper::Error::is_user) {
        line.break_off();
    }
    result
}
