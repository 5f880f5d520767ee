//! Who may open a stream, and how is it served?

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;

use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_server::{
    ExternalProcessor, ExternalProcessorServer, SERVICE_NAME as EXT_PROC,
};
use envoy_types::pb::envoy::service::ext_proc::v3::{ProcessingRequest, ProcessingResponse};
use http::{StatusCode, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use paddler_core::forward::{self, Accept, Body, Peer, Refusal, Router, ServeOptions, Served};
use paddler_core::request::Dialect;
use tokio::sync::{Semaphore, watch};
use tonic::codegen::{BoxStream, Service as _};
use tonic::{Request, Response, Status, Streaming};
use tonic_health::pb::health_server::{HealthServer, SERVICE_NAME as HEALTH};

use crate::addresses::Map;
use crate::counts::Counts;
use crate::exchange::Said;
use crate::health;
use crate::options::{GatewayHeaders, PickerOptions};
use crate::stream::{self, Shared};

/// How much of a stream may be under way, in bytes: what is read of a body of some size without a stop for each 64 KiB, which
/// HTTP/2 begins with.
const STREAM_WINDOW: u32 = 256 * 1024;

/// The same of a connection, at most: as much as all of its streams, so that one which is not read holds up no other. What
/// HTTP/2 can count to.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;

/// The other end of Envoy's streams. Cheap to clone; clones are the same picker.
#[derive(Debug, Clone)]
pub struct Picker {
    shared: Arc<Shared>,
    streams: Arc<Semaphore>,
    max_message: usize,
    max_streams: usize,
}

impl Picker {
    /// A picker over a router whose upstreams are made by an [`EnvoyConnect`](crate::EnvoyConnect), and whose options were
    /// [adapted](PickerOptions::adapt).
    pub fn new(router: Router, options: &PickerOptions) -> Self {
        let max_streams = options.max_streams.min(Semaphore::MAX_PERMITS);
        Self {
            shared: Arc::new(Shared {
                map: Map(router.published().clone()),
                router,
                counts: Counts::default(),
                believes_headers: options.gateway_headers == GatewayHeaders::Believed,
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
    /// | `paddler_picker_streams` | gauge | Streams that are open: requests, from their headers to the end of their answer. |
    /// | `paddler_picker_streams_total` | counter | Streams that were opened. |
    /// | `paddler_picker_unfollowed_streams_total` | counter | Streams without a response body phase: when their answer ended is not known. |
    /// | `paddler_picker_refused_total` | counter | Streams that were refused before the router saw a request: 400, 413, 429. |
    /// | `paddler_picker_faults_total` | counter | Streams on which Envoy said what it may not, or what cannot be read. |
    pub fn metrics_page(&self) -> String {
        self.shared.counts.page()
    }
}

#[tonic::async_trait]
impl ExternalProcessor for Picker {
    type ProcessStream = BoxStream<ProcessingResponse>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        let peer = request.extensions().get::<Peer>().copied();
        let inbound = request.into_inner();
        let shared = self.shared.clone();
        let permit = self.streams.clone().try_acquire_owned();
        let said = Said::by(async move |out| {
            let Ok(_permit) = permit else {
                let message = "as many requests are under way as may be";
                let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", message)
                    .retry_after(shared.router.options().retry_after);
                stream::refuse(&shared, &out, refusal).await;
                return Ok(());
            };
            stream::serve(shared, inbound, peer, out).await
        });
        Ok(Response::new(Box::pin(said)))
    }
}

/// What a connection is asked for, by the name of its service.
#[derive(Clone)]
struct Services {
    picker: ExternalProcessorServer<Picker>,
    health: HealthServer<health::Answers>,
}

impl Services {
    async fn answer(mut self, request: http::Request<Incoming>) -> http::Response<Body> {
        let service = request.uri().path().split('/').nth(1).unwrap_or_default();
        let answered = match service {
            _ if request.version() != Version::HTTP_2 => {
                let message =
                    "an endpoint picker is asked by Envoy, over gRPC: send requests for models to Envoy";
                let refusal = Refusal::new(StatusCode::HTTP_VERSION_NOT_SUPPORTED, "grpc_alone", message);
                return refusal.into_response(Dialect::Openai);
            }
            EXT_PROC => self.picker.call(request).await,
            HEALTH => self.health.call(request).await,
            _ => Ok(Status::unimplemented(format!("there are {EXT_PROC} and {HEALTH}")).into_http()),
        };
        answered.unwrap_or_else(|never| match never {}).map(Body::new)
    }
}

/// Serves a picker, and the gRPC health service beside it, as the core [serves](forward::serve) anything else. How many streams
/// there may be is said by [`PickerOptions`], and not by `options`.
///
/// # Errors
/// As [`forward::serve`].
pub async fn serve(
    listener: impl Accept,
    picker: Picker,
    mut options: ServeOptions,
    stop: impl Future<Output = ()>,
    cut: impl Future<Output = ()>,
) -> io::Result<Served> {
    let (going, stopping) = watch::channel(false);
    options.max_streams = u32::try_from(picker.max_streams).unwrap_or(u32::MAX);
    options.stream_window = STREAM_WINDOW;
    options.connection_window = CONNECTION_WINDOW;
    // Envoy takes back what its clients do, and each connection of its is many clients'.
    options.taken_back = u64::MAX;
    let health = health::Answers {
        router: picker.router().clone(),
        stopping,
    };
    let largest = picker.max_message;
    let services = Services {
        picker: ExternalProcessorServer::new(picker).max_decoding_message_size(largest),
        health: HealthServer::new(health),
    };
    let service = service_fn(move |request| {
        let answer = services.clone().answer(request);
        async { Ok::<_, Infallible>(answer.await) }
    });
    let stop = async {
        stop.await;
        // Who watches is let go.
        going.send_replace(true);
    };
    forward::serve(listener, service, options, stop, cut).await
}
