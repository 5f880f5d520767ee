//! How is one upstream asked how it is, again and again?

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::SERVER;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use super::{Degraded, Failure, FailureKind, Published, Report, StatusEvent};
use crate::clock::Clock;
use crate::forward::{Body, BoxError};
use crate::schedule::{mix, stable_hash};
use crate::source::{Answer, Endpoint, Plan, ProbeAnswers, identify, llamacpp, openai, vllm};
use crate::status::{Health, Signal};
use crate::upstream::{CallError, Engine, Models, Sent, Upstream, UpstreamId};

/// How upstreams are polled.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PollOptions {
    /// The time from one poll of an upstream to the next, plus or minus a tenth. Default 1 s: our own requests are
    /// counted exactly in between, so polls only tell of others, and of health.
    pub interval: Duration,
    /// The longest that one poll may take. Default 3 s.
    pub timeout: Duration,
    /// The most polls at once, over all upstreams. Default 64.
    pub concurrency: usize,
    /// The longest time between polls of an upstream that cannot be asked; it doubles from the interval. Default 10 s.
    pub max_backoff: Duration,
}

impl Default for PollOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            timeout: Duration::from_secs(3),
            concurrency: 64,
            max_backoff: Duration::from_secs(10),
        }
    }
}

/// The largest answer that is read.
const MAX_ANSWER: usize = 16 << 20;

/// Polls one upstream for as long as its events are taken.
#[derive(Debug)]
pub(super) struct Poller {
    pub(super) id: UpstreamId,
    pub(super) engine: Engine,
    pub(super) upstream: Arc<dyn Upstream>,
    pub(super) published: Published,
    pub(super) clock: Clock,
    pub(super) options: PollOptions,
    pub(super) permits: Arc<Semaphore>,
    pub(super) events: mpsc::Sender<StatusEvent>,
}

/// What slow paths told, until they are asked again.
#[derive(Debug, Default)]
struct Memory {
    models: Option<Models>,
    slots_total: Option<u32>,
    degraded: Vec<Degraded>,
}

struct Answered {
    status: u16,
    server: Option<String>,
    body: bytes::Bytes,
}

impl Answered {
    fn view(&self) -> Answer<'_> {
        let answer = Answer::new(self.status, &self.body);
        self.server.as_deref().map_or(answer, |server| answer.server(server))
    }
}

impl Poller {
    pub(super) async fn run(mut self) {
        let mut memory = Memory::default();
        let mut poll: u64 = 0;
        let mut failures: u32 = 0;
        loop {
            let Some(event) = self.poll(&mut poll, &mut memory).await else { return };
            failures = match &event {
                StatusEvent::Failed { .. } => failures.saturating_add(1),
                _ => 0,
            };
            if self.events.send(event).await.is_err() {
                return;
            }
            sleep(self.pause(poll, failures)).await;
        }
    }

    /// The time to the next poll: with jitter, so that polls of many upstreams do not come in step.
    fn pause(&self, poll: u64, failures: u32) -> Duration {
        let backoff = self.options.interval.saturating_mul(1 << failures.saturating_sub(1).min(16));
        let base = if failures == 0 {
            self.options.interval
        } else {
            backoff.min(self.options.max_backoff.max(self.options.interval))
        };
        let draw = mix(stable_hash(self.id.as_str().as_bytes()) ^ poll ^ self.clock.now().as_nanos());
        base.mul_f64(0.9 + 0.2 * (draw % 1_000) as f64 / 1_000.0)
    }

    /// One poll; `None` when nobody takes polls any more.
    async fn poll(&mut self, poll: &mut u64, memory: &mut Memory) -> Option<StatusEvent> {
        let permits = self.permits.clone();
        let _permit = permits.acquire().await.ok()?;
        let sample = self.published.load().sample(self.id.as_str(), self.clock.now());
        let id = self.id.clone();
        let limit = self.options.timeout;
        Some(match timeout(limit, self.ask(*poll, memory)).await {
            Ok(Ok(report)) => {
                // An engine that loads may come back as another model: ask everything again.
                *poll = if report.health == Some(Health::Loading) { 0 } else { *poll + 1 };
                StatusEvent::Report { id, report, sample }
            }
            Ok(Err(failure)) => StatusEvent::Failed { id, failure },
            Err(_) => {
                let failure = Failure::new(FailureKind::Timeout, format!("no answer within {limit:?}"));
                StatusEvent::Failed { id, failure }
            }
        })
    }

    async fn ask(&mut self, poll: u64, memory: &mut Memory) -> Result<Report, Failure> {
        if self.engine == Engine::Auto {
            self.engine = self.find_out().await?;
            tracing::info!(upstream = %self.id, engine = ?self.engine, "found out what the upstream is");
        }
        let plan = Plan::of(self.engine);
        let slow = poll.is_multiple_of(Plan::SLOW_EVERY);
        let mut report = Report::new();
        for endpoint in plan.asks(poll) {
            let answer = self.get(endpoint).await?;
            self.read(endpoint, &answer, &mut report);
            if report.health == Some(Health::Loading) {
                // It says the same on every path.
                return Ok(report);
            }
        }
        if slow {
            memory.models.clone_from(&report.models);
            memory.slots_total = report.slots_total;
            memory.degraded = report.degraded.iter().filter(|one| one.signal == Signal::Models).cloned().collect();
        } else {
            report.models.clone_from(&memory.models);
            report.slots_total = report.slots_total.or(memory.slots_total);
            report.degraded.extend(memory.degraded.iter().cloned());
        }
        Ok(report)
    }

    fn read(&self, endpoint: Endpoint, answer: &Answered, report: &mut Report) {
        let Answered { status, body, .. } = answer;
        let status = *status;
        match (self.engine, endpoint) {
            (Engine::Llamacpp, Endpoint::Health) => llamacpp::read_health(status, body, report),
            (Engine::Llamacpp, Endpoint::Slots) => llamacpp::read_slots(status, body, report),
            (Engine::Llamacpp, Endpoint::Props) => llamacpp::read_props(status, body, report),
            (Engine::Llamacpp, Endpoint::Metrics) => llamacpp::read_metrics(status, body, report),
            (Engine::Llamacpp, Endpoint::Models) => llamacpp::read_models(status, body, report),
            (Engine::Vllm, Endpoint::Health) => vllm::read_health(status, body, report),
            (Engine::Vllm, Endpoint::Models) => vllm::read_models(status, body, report),
            (Engine::Vllm, Endpoint::Metrics) => {
                vllm::read_metrics(status, body, &vllm::VllmNames::default(), report);
            }
            (_, Endpoint::Health) => openai::read_health(status, body, report),
            (_, Endpoint::Models) => openai::read_models(status, body, report),
            _ => {}
        }
    }

    /// Asks what tells engines apart.
    async fn find_out(&self) -> Result<Engine, Failure> {
        let health = self.get(Endpoint::Health).await?;
        let props = self.get(Endpoint::Props).await?;
        let metrics = self.get(Endpoint::Metrics).await?;
        let version = self.get(Endpoint::Version).await?;
        let models = self.get(Endpoint::Models).await?;
        let answers = ProbeAnswers {
            health: Some(health.view()),
            props: Some(props.view()),
            metrics: Some(metrics.view()),
            version: Some(version.view()),
            models: Some(models.view()),
        };
        let refused = matches!(models.status, 404 | 405 | 501);
        match identify(&answers) {
            Some(engine) => Ok(engine),
            // It answers HTTP and has no list of models: only what we send there ourselves is to be known.
            None if refused => Ok(Engine::Openai),
            None => {
                let said = format!("/v1/models answered {}, and nothing says which engine it is", models.status);
                Err(Failure::new(FailureKind::Unreadable, said))
            }
        }
    }

    async fn get(&self, endpoint: Endpoint) -> Result<Answered, Failure> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = http::Uri::from_static(endpoint.path());
        let response = self.upstream.call(request).await.map_err(|error| failure(&*error))?;
        let unreadable = |error: BoxError| {
            Failure::new(FailureKind::Unreadable, format!("{}: {error}", endpoint.path()))
        };
        let (head, body) = Response::into_parts(response);
        let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(unreadable)?.to_bytes();
        let server = head.headers.get(SERVER).and_then(|value| Some(value.to_str().ok()?.to_owned()));
        Ok(Answered { status: head.status.as_u16(), server, body })
    }
}

/// Says what kind of failure an error of the transport is.
fn failure(error: &(dyn std::error::Error + 'static)) -> Failure {
    let sent = error.downcast_ref::<CallError>().map(CallError::sent);
    let mut chain = vec![error.to_string()];
    let mut kind = if sent == Some(Sent::No) { FailureKind::Unreachable } else { FailureKind::Unreadable };
    let mut source = error.source();
    while let Some(cause) = source {
        chain.push(cause.to_string());
        if cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            // No connection within the time: a machine that is gone looks like this too.
            kind = FailureKind::Unreachable;
        }
        source = cause.source();
    }
    Failure::new(kind, chain.join(": "))
}
