//! Is it alive, and can it serve?
//!
//! By the gRPC health service, under the names that gateways ask for: `liveness` says that it answers; `readiness`, the
//! ext_proc service and no name at all say that somebody was heard to be able to serve, and it is not about to stop.

use std::time::Duration;

use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_server::SERVICE_NAME as EXT_PROC;
use paddler_core::forward::Router;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::exchange::{Out, Said};

/// How often one who watches is told news: what it goes by is polled once a second.
const LOOK: Duration = Duration::from_secs(1);

/// Answers for a router.
#[derive(Debug, Clone)]
pub(crate) struct Answers {
    pub(crate) router: Router,
    /// True once nobody is let in any more: who watches is told, and let go.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Answers {
    fn status(&self, service: &str) -> Option<ServingStatus> {
        match service {
            "liveness" => Some(ServingStatus::Serving),
            "" | "readiness" | EXT_PROC if self.router.is_ready() && !*self.stopping.borrow() => {
                Some(ServingStatus::Serving)
            }
            "" | "readiness" | EXT_PROC => Some(ServingStatus::NotServing),
            _ => None,
        }
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
        let status = self.status(service).ok_or_else(unknown)?;
        Ok(Response::new(answer(status)))
    }

    type WatchStream = BoxStream<HealthCheckResponse>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (mut answers, service) = (self.clone(), request.into_inner().service);
        let said = Said::by(async move |out: Out<HealthCheckResponse>| {
            let mut before = None;
            loop {
                let stops = *answers.stopping.borrow();
                let now = answers.status(&service).unwrap_or(ServingStatus::ServiceUnknown);
                if before != Some(now) {
                    out.send(answer(now)).await;
                }
                before = Some(now);
                if stops {
                    return Ok(());
                }
                // Whichever comes first.
                timeout(LOOK, answers.stopping.changed()).await.ok();
            }
        });
        Ok(Response::new(Box::pin(said)))
    }
}
