//! Who may open a stream, and how is it served?

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;

use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_server::{
    ExternalProcessor, ExternalProcessorServer, SERVICE_NAME as EXT_PROC,
};
use envoy_types::pb::envoy::service::ext_proc::v3::{ProcessingRequest, ProcessingResponse};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use hyper::body::Incoming;
use hyper::service::service_fn;
use paddler_core::Clock;
use paddler_core::forward::{self, Accept, Body, Peer, Refusal, Router, RouterOptions, ServeOptions, Served};
use paddler_core::request::Dialect;
use paddler_core::status::Published;
use tokio::sync::{Semaphore, watch};
use tonic::codegen::{BoxStream, Service as _};
use tonic::{Request, Response, Status, Streaming};
use tonic_health::pb::health_server::{HealthServer, SERVICE_NAME as HEALTH};

use crate::addresses::Listening;
use crate::counts::Counts;
use crate::exchange::Said;
use crate::health;
use crate::options::{GatewayHeaders, PickerOptions};
use crate::stream::{self, Shared};

/// How much of a stream may be under way, in bytes: what is read of a body of some size without a stop for each 64 KiB, which
/// HTTP/2 begins with.
const STREAM_WINDOW: u32 = 256 * 1024;

/// The other end of Envoy's streams. Cheap to clone; clones are the same picker.
#[derive(Debug, Clone)]
pub struct Picker {
    shared: Arc<Shared>,
    streams: Arc<Semaphore>,
    max_streams: usize,
    options: Arc<PickerOptions>,
}

impl Picker {
    /// A picker with a router of its own over the published state, whose upstreams are made by an
    /// [`EnvoyConnect`](crate::EnvoyConnect).
    ///
    /// # Panics
    /// When there is no tokio runtime.
    pub fn new(published: Published, clock: Clock, router: RouterOptions, options: PickerOptions) -> Self {
        let max_streams = options.max_streams.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            shared: Arc::new(Shared {
                listening: Listening(published.clone()),
                router: Router::new(published, clock, options.adapt(router)),
                counts: Counts::default(),
                believes_headers: options.gateway_headers == GatewayHeaders::Believed,
            }),
            streams: Arc::new(Semaphore::new(max_streams)),
            max_streams,
            options: Arc::new(options),
        }
    }

    /// Puts other options of the router in force, as [`Router::reconfigure`] does.
    pub fn reconfigure(&self, router: RouterOptions) {
        self.router().reconfigure(self.options.adapt(router));
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
    /// | `paddler_picker_faults_total` | counter | Streams on which Envoy said what it may not, or what cannot be read. |
    pub fn metrics_page(&self) -> String {
        self.shared.counts.page()
    }
}

/// The streams that Envoy opens.
#[derive(Debug)]
struct Streams(Picker);

#[tonic::async_trait]
impl ExternalProcessor for Streams {
    type ProcessStream = BoxStream<ProcessingResponse>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        let peer = request.extensions().get::<Peer>().copied();
        let inbound = request.into_inner();
        let shared = self.0.shared.clone();
        let permit = self.0.streams.clone().try_acquire_owned();
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
    streams: ExternalProcessorServer<Streams>,
    health: HealthServer<health::Answers>,
    router: Router,
}

impl Services {
    async fn answer(mut self, request: http::Request<Incoming>) -> http::Response<Body> {
        let kind = request.headers().get(CONTENT_TYPE);
        if kind.is_none_or(|kind| !kind.as_bytes().starts_with(b"application/grpc")) {
            let message =
                "an endpoint picker is asked by Envoy, over gRPC: send requests for models to Envoy";
            let refusal = Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "grpc_alone", message);
            return self.router.refuse(refusal, Dialect::Openai);
        }
        let service = request.uri().path().split('/').nth(1).unwrap_or_default();
        let answered = match service {
            EXT_PROC => self.streams.call(request).await,
            HEALTH => self.health.call(request).await,
            _ => Ok(Status::unimplemented(format!("there are {EXT_PROC} and {HEALTH}")).into_http()),
        };
        answered.unwrap_or_else(|never| match never {}).map(Body::new)
    }
}

/// Serves a picker, and the gRPC health service beside it, as the core [serves](forward::serve) anything else. How many streams
/// there may be is said by [`PickerOptions`]: `max_streams`, `stream_window`, `connection_window` and `taken_back` of `options`
/// count for nothing.
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
    // As much as all streams, so that one which is not read holds up no other.
    options.connection_window = u32::MAX;
    // Envoy takes back what its clients do, and each connection of its is many clients'.
    options.taken_back = u64::MAX;
    let router = picker.router().clone();
    let health = health::Answers {
        router: router.clone(),
        stopping,
    };
    let largest = picker.options.max_message;
    let services = Services {
        streams: ExternalProcessorServer::new(Streams(picker)).max_decoding_message_size(largest),
        health: HealthServer::new(health),
        router,
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
