//! Who may open a stream, and how is it served?

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_server::{
    ExternalProcessor, ExternalProcessorServer,
};
use envoy_types::pb::envoy::service::ext_proc::v3::{ProcessingRequest, ProcessingResponse};
use http::StatusCode;
use paddler_core::forward::{Accept, Refusal, Router, ServeOptions, Served};
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;
use tokio_stream::Stream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};
use tonic_health::pb::health_server::HealthServer;

use crate::addresses::Map;
use crate::counts::Counts;
use crate::exchange::Out;
use crate::health;
use crate::incoming::incoming;
use crate::options::{GatewayHeaders, PickerOptions};
use crate::stream::{self, Shared};
use crate::transport::EnvoyConnect;

/// How much of a stream may be under way, in bytes: what HTTP/2 begins with.
const STREAM_WINDOW: u32 = 65_535;

/// The same of a connection, at most: as much as all of its streams, so that one which is not read holds up no other. What
/// HTTP/2 can count to.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;

/// How often a connection on which nothing is said is asked whether anybody is there, and how long it may take to answer.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));

/// The other end of Envoy's streams. Cheap to clone; clones are the same picker.
#[derive(Debug, Clone)]
pub struct Picker {
    shared: Arc<Shared>,
    streams: Arc<Semaphore>,
    max_message: usize,
    max_streams: usize,
}

impl Picker {
    /// A picker over a router whose upstreams are made by `connect`, and whose options were
    /// [adapted](PickerOptions::adapt).
    pub fn new(router: Router, connect: &EnvoyConnect, options: &PickerOptions) -> Self {
        let map = Map {
            published: router.published().clone(),
            addresses: connect.addresses.clone(),
        };
        let max_streams = options.max_streams.min(Semaphore::MAX_PERMITS);
        Self {
            shared: Arc::new(Shared {
                router,
                map,
                counts: Counts::default(),
                believes_headers: options.gateway_headers == GatewayHeaders::Believed,
                cut: watch::Sender::new(false),
            }),
            streams: Arc::new(Semaphore::new(max_streams)),
            max_message: options.max_message,
            max_streams,
        }
    }

    /// The router that decides.
    pub fn router(&self) -> &Router {
        &self.shared.router
    }

    /// The picker's own figures, as lines for Prometheus: they come after the router's
    /// [page](Router::metrics_page).
    ///
    /// | metric | kind | says |
    /// |---|---|---|
    /// | `paddler_picker_streams` | gauge | Streams that are open. |
    /// | `paddler_picker_streams_total` | counter | Streams that were opened. |
    /// | `paddler_picker_unfollowed_streams_total` | counter | Streams without a response body phase. |
    /// | `paddler_picker_faults_total` | counter | Streams on which Envoy said what it may not. |
    pub fn metrics_page(&self) -> String {
        self.shared.counts.page()
    }
}

#[tonic::async_trait]
impl ExternalProcessor for Picker {
    type ProcessStream = Pin<Box<dyn Stream<Item = Result<ProcessingResponse, Status>> + Send>>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        let peer = request.remote_addr();
        let inbound = request.into_inner();
        let (out, said) = Out::new();
        let Ok(permit) = self.streams.clone().try_acquire_owned() else {
            let message = "as many requests are under way as may be";
            let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", message)
                .retry_after(self.shared.router.options().retry_after);
            stream::refuse(&out, refusal).await;
            return Ok(Response::new(Box::pin(said)));
        };
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let mut cut = shared.cut.subscribe();
            tokio::select! {
                biased;
                _ = cut.wait_for(|cut| *cut) => {}
                () = stream::serve(shared.clone(), inbound, peer, out) => {}
            }
            drop(permit);
        });
        Ok(Response::new(Box::pin(said)))
    }
}

/// Serves a picker, and the gRPC health service beside it, over TLS if the options say so. Of them, `tls` and `grace` count:
/// how many streams there may be is said by [`PickerOptions`].
///
/// Once `stop` is done, nobody is let in any more, and Envoy is told to open its streams elsewhere; those that are open go on
/// for the grace time, or until `cut` is done. Says how many streams were cut then.
///
/// # Errors
/// When nobody can be let in any more.
pub async fn serve(
    listener: impl Accept,
    picker: Picker,
    options: ServeOptions,
    stop: impl Future<Output = ()> + Send,
    cut: impl Future<Output = ()> + Send,
) -> io::Result<Served> {
    let shared = picker.shared.clone();
    let (going, stopping) = watch::channel(false);
    let health = HealthServer::new(health::Answers {
        router: picker.router().clone(),
        stopping: stopping.clone(),
    });
    let streams = u32::try_from(picker.max_streams).unwrap_or(u32::MAX);
    let largest = picker.max_message;
    let service = ExternalProcessorServer::new(picker).max_decoding_message_size(largest);
    let server = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(streams)
        .http2_keepalive_interval(Some(KEEP_ALIVE.0))
        .http2_keepalive_timeout(Some(KEEP_ALIVE.1))
        .add_service(health)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming(listener, options.tls), async {
            stop.await;
            going.send_replace(true);
        });
    let over = async {
        let mut stopping = stopping;
        stopping.wait_for(|stopping| *stopping).await.ok();
        sleep(options.grace).await;
    };
    tokio::select! {
        ended = server => ended.map(|()| Served::Whole).map_err(io::Error::other),
        () = over => Ok(shared.cut()),
        () = cut => Ok(shared.cut()),
    }
}
