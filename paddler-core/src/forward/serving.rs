//! How is one client's connection served?

use std::convert::Infallible;
use std::pin::pin;

use http::header::CONNECTION;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;

use super::accept::{Connection, Peer};
use super::body::Body;
use super::client::Client;
use super::server::ServeOptions;

/// What a connection is served with.
pub(super) struct Serving<S> {
    pub(super) service: S,
    pub(super) peer: Peer,
    pub(super) options: ServeOptions,
    /// True once the server is to stop.
    pub(super) stopping: watch::Receiver<bool>,
}

fn builder(options: &ServeOptions) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(options.header_timeout)
        .max_buf_size(options.max_header_bytes.max(8 * 1024));
    builder
}

/// Serves a connection to its end.
pub(super) async fn connection<S>(connection: Connection, serving: Serving<S>)
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>,
{
    let Serving {
        service,
        peer,
        options,
        mut stopping,
    } = serving;
    let (client, io) = Client::new(connection, options.client_idle);
    let watched = client.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        watched.asked(request.version());
        request.extensions_mut().insert(peer);
        let (answer, watched) = (service.call(request), watched.clone());
        async move {
            let answer = answer.await;
            watched.answered(
                answer
                    .as_ref()
                    .is_ok_and(|answer| answer.headers().contains_key(CONNECTION)),
            );
            answer
        }
    });
    let serving = builder(&options).serve_connection(TokioIo::new(io), service);
    let stop = async { stopping.wait_for(|stop| *stop).await.map(drop) };
    let served = async {
        let mut serving = pin!(serving);
        let result = tokio::select! {
            biased;
            result = serving.as_mut() => result,
            // Without a server there is nothing to go on for, either.
            _ = stop => {
                serving.as_mut().graceful_shutdown();
                serving.as_mut().await
            }
        };
        if result.as_ref().is_err_and(hyper::Error::is_user) {
            client.break_off();
        }
        result
    };
    let result = tokio::select! {
        // First: how it ended by itself counts.
        biased;
        result = served => result,
        // All that goes on for it is dropped.
        () = client.hung_up() => return,
    };
    if let Err(error) = &result {
        tracing::debug!(%error, "a client's connection has ended");
    }
    if client.was_told_to_close() || result.is_err_and(|error| error.is_parse()) {
        client.linger().await;
    }
}
