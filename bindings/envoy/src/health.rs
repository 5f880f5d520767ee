//! Is it alive, and can it serve?
//!
//! By the gRPC health service, under the names that gateways ask for: `liveness` says that it answers; `readiness`, the
//! ext_proc service and no name at all say that somebody can serve and it is not about to stop.

use std::pin::Pin;
use std::time::Duration;

use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_server::SERVICE_NAME as EXT_PROC;
use paddler_core::forward::Router;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// How often one who watches is told news: what it goes by is polled once a second.
const LOOK: Duration = Duration::from_secs(1);

/// Answers for a router.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) router: Router,
    /// True once nobody is let in any more: who watches is told, and let go.
    pub(crate) stopping: watch::Receiver<bool>,
}

fn status(router: &Router, service: &str) -> Option<ServingStatus> {
    match service {
        "liveness" => Some(ServingStatus::Serving),
        "" | "readiness" | EXT_PROC if router.is_ready() => Some(ServingStatus::Serving),
        "" | "readiness" | EXT_PROC => Some(ServingStatus::NotServing),
        _ => None,
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status.into(),
    }
}

#[tonic::async_trait]
impl Health for Answers {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = &request.get_ref().service;
        let unknown = || Status::not_found("ask for liveness, readiness or the ext_proc service");
        let status = status(&self.router, service).ok_or_else(unknown)?;
        Ok(Response::new(answer(status)))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (router, service) = (self.router.clone(), request.into_inner().service);
        let mut stopping = self.stopping.clone();
        let (tell, told) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            let mut before = None;
            loop {
                let now = status(&router, &service).unwrap_or(ServingStatus::ServiceUnknown);
                if before != Some(now) && tell.send(Ok(answer(now))).await.is_err() {
                    return;
                }
                before = Some(now);
                if *stopping.borrow() {
                    return;
                }
                tokio::select! {
                    () = tell.closed() => return,
                    _ = stopping.changed() => {}
                    () = sleep(LOOK) => {}
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(told))))
    }
}
