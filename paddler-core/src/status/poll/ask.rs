//! What is an upstream asked, and what does its answer come to?

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, SERVER};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt, Limited};

use super::elsewhere::Elsewhere;
use crate::forward::{Body, BoxError, chain};
use crate::source::vllm::VllmNames;
use crate::source::{Answer, Endpoint, Plan, ProbeAnswers, identify, refusal};
use crate::source::{llamacpp, ollama, openai, paddler, sglang, triton, trtllm, vllm};
use crate::status::{Degraded, Failure, FailureKind, Health, Report, Signal};
use crate::upstream::http::OutOfFiles;
use crate::upstream::{
    Abilities, CallError, Connect, Engine, Models, SampleToken, Sent, Transport, Upstream, UpstreamSpec,
};

/// The largest answer that is read.
const MAX_ANSWER: usize = 16 << 20;

/// Asks one upstream, and remembers what it need not be asked each time.
#[derive(Debug)]
pub(crate) struct Asker {
    spec: Arc<UpstreamSpec>,
    upstream: Arc<dyn Upstream>,
    /// Makes the way to its metrics, where that is another one.
    connect: Arc<dyn Connect>,
    names: VllmNames,
    /// What it is, once that is known.
    engine: Option<Engine>,
    /// Where its metrics stand, if that is elsewhere, once that is known.
    elsewhere: Option<Elsewhere>,
    /// Polls since everything was last to be asked.
    poll: u64,
    memory: Memory,
}

/// What slow paths told, until they are asked again.
#[derive(Debug, Default)]
struct Memory {
    models: Option<Models>,
    abilities: Abilities,
    loaded_adapters: Option<Vec<Arc<str>>>,
    slots_total: Option<u32>,
    degraded: Vec<Degraded>,
}

impl Memory {
    fn complete(&self, report: &mut Report) {
        if report.models.is_none() {
            report.models.clone_from(&self.models);
        }
        report.abilities.can.clone_from(&self.abilities.can);
        report.abilities.context = report.abilities.context.or(self.abilities.context);
        report.loaded_adapters.clone_from(&self.loaded_adapters);
        report.slots_total = report.slots_total.or(self.slots_total);
        report.degraded.extend(self.degraded.iter().cloned());
    }
}

/// What one path answered.
pub(super) struct Answered {
    status: u16,
    server: Option<String>,
    body: bytes::Bytes,
}

impl Answered {
    fn view(&self) -> Answer<'_> {
        let answer = Answer::new(self.status, &self.body);
        self.server
            .as_deref()
            .map_or(answer, |server| answer.server(server))
    }
}

impl Asker {
    /// `None`: there is no way to it.
    pub(crate) fn new(spec: Arc<UpstreamSpec>, connect: Arc<dyn Connect>) -> Option<Self> {
        let upstream = spec.extensions.get::<Transport>()?.0.clone();
        let names = spec.extensions.get::<VllmNames>().cloned().unwrap_or_default();
        let mut asker = Self {
            spec,
            upstream,
            connect,
            names,
            engine: None,
            elsewhere: None,
            poll: 0,
            memory: Memory::default(),
        };
        asker.forget();
        Some(asker)
    }

    /// Another engine, or another model, may come up where nobody is: ask everything again.
    fn forget(&mut self) {
        self.poll = 0;
        self.engine = Some(self.spec.engine).filter(|engine| *engine != Engine::Auto);
        self.elsewhere = None;
    }

    /// Whether it is not known what engine answers there, if one does.
    pub(crate) fn knows_no_engine(&self) -> bool {
        self.engine.is_none()
    }

    /// Asks once, which may take until `limit`. `sample` is called just before the first question about load.
    pub(crate) async fn ask(
        &mut self,
        limit: Duration,
        sample: impl FnOnce() -> Option<SampleToken>,
    ) -> Result<(Report, Option<SampleToken>), Failure> {
        let answer = self.ask_plan(limit, sample).await;
        if answer
            .as_ref()
            .is_err_and(|failure| failure.kind == FailureKind::Unreachable)
        {
            self.forget();
        }
        answer
    }

    async fn ask_plan(
        &mut self,
        limit: Duration,
        sample: impl FnOnce() -> Option<SampleToken>,
    ) -> Result<(Report, Option<SampleToken>), Failure> {
        let engine = match self.engine {
            Some(engine) => engine,
            None => match self.find_out().await? {
                Ok(engine) => engine,
                Err(none) => return Ok((none, sample())),
            },
        };
        if self.elsewhere.is_none() {
            self.elsewhere = Elsewhere::of(&self.spec, engine, &*self.connect);
        }
        let plan = Plan::for_spec(&self.spec, engine);
        let token = sample();
        let mut report = Report::new();
        if self.spec.is_hosted() {
            report.health = Some(Health::Ready);
        }
        let (mut quickly_degraded, mut page) = (0, None);
        for (number, endpoint) in plan.asks(self.poll).enumerate() {
            if number == plan.quick.len() {
                quickly_degraded = report.degraded.len();
            }
            if self.elsewhere.is_some() && endpoint.is_metrics() {
                page = Some(endpoint);
                continue;
            }
            if Plan::is_told(engine, endpoint, &report) {
                continue;
            }
            if !self.ask_path(engine, endpoint, &mut report).await? {
                self.poll = 0;
                return Ok((report, token));
            }
        }
        self.remember(plan, quickly_degraded, &mut report);
        // Last, so that whoever hangs there keeps back nothing that the upstream itself tells.
        if let Some(page) = page {
            self.ask_elsewhere(engine, page, limit, &mut report).await;
        }
        Ok((report, token))
    }

    /// Asks for one path. Says whether the others are worth a question: one that loads says so on every path, and may come
    /// back as another model.
    async fn ask_path(
        &self,
        engine: Engine,
        endpoint: Endpoint,
        report: &mut Report,
    ) -> Result<bool, Failure> {
        let answer = get(&*self.upstream, endpoint).await?;
        self.read(engine, endpoint, &answer, report);
        if (engine, endpoint, answer.status) == (Engine::Triton, Endpoint::Ready, 404) {
            let Answered { status, body, .. } = get(&*self.upstream, Endpoint::Models).await?;
            triton::read_frontend(status, &body, report);
            return Ok(report.health == Some(Health::Ready));
        }
        Ok(report.health != Some(Health::Loading))
    }

    /// Keeps what slow paths have told, and says it where they were not asked.
    fn remember(&mut self, plan: Plan, quickly_degraded: usize, report: &mut Report) {
        if plan.slow.is_empty() {
            return;
        }
        if self.poll.is_multiple_of(Plan::SLOW_EVERY) {
            self.memory = Memory {
                models: report.models.clone(),
                abilities: report.abilities.clone(),
                loaded_adapters: report.loaded_adapters.clone(),
                slots_total: report.slots_total,
                degraded: report.degraded.split_off(quickly_degraded),
            };
        }
        self.memory.complete(report);
        // Without its models an upstream gets little to do, so that is asked again at once, not ten polls later.
        self.poll = if report.models.is_some() { self.poll + 1 } else { 0 };
    }

    async fn ask_elsewhere(&mut self, engine: Engine, page: Endpoint, limit: Duration, report: &mut Report) {
        let Some(elsewhere) = &mut self.elsewhere else {
            return;
        };
        if Plan::is_told(engine, page, report) {
            return;
        }
        match elsewhere.get(limit).await {
            Ok(answer) => self.read(engine, page, &answer, report),
            Err(why) => elsewhere.missing(engine, &why, report),
        }
    }

    fn read(&self, engine: Engine, endpoint: Endpoint, answer: &Answered, report: &mut Report) {
        let Answered { status, body, .. } = answer;
        let status = *status;
        match (engine, endpoint) {
            (Engine::Llamacpp, Endpoint::Health) => llamacpp::read_health(status, body, report),
            (Engine::Llamacpp, Endpoint::Slots) => llamacpp::read_slots(status, body, report),
            (Engine::Llamacpp, Endpoint::Props) => llamacpp::read_props(status, body, report),
            (Engine::Llamacpp, Endpoint::Metrics) => llamacpp::read_metrics(status, body, report),
            (Engine::Llamacpp, Endpoint::Models) => llamacpp::read_models(status, body, report),
            (Engine::Llamacpp, Endpoint::LoraAdapters) => llamacpp::read_lora_adapters(status, body, report),
            (Engine::Vllm | Engine::Sglang | Engine::Trtllm, Endpoint::Health) => {
                vllm::read_health(status, body, report);
            }
            // One of these that has no list is not what it is said to be.
            (Engine::Vllm | Engine::Sglang | Engine::Trtllm | Engine::Triton, Endpoint::Models) => {
                vllm::read_models(status, body, report);
            }
            (Engine::Triton, Endpoint::Ready) => triton::read_ready(status, body, report),
            (Engine::Triton, Endpoint::Metrics) => triton::read_metrics(status, body, report),
            (Engine::Triton, Endpoint::Index) => triton::read_index(status, body, report),
            (Engine::Vllm, Endpoint::Metrics) => vllm::read_metrics(status, body, &self.names, report),
            (Engine::Sglang, Endpoint::Loads) => sglang::read_loads(status, body, report),
            (Engine::Sglang, Endpoint::Metrics) => {
                vllm::read_metrics(status, body, &sglang::names(), report);
            }
            (Engine::Trtllm, Endpoint::PrometheusMetrics) => {
                vllm::read_metrics(status, body, &trtllm::names(), report);
            }
            (Engine::Ollama, Endpoint::Tags) => ollama::read_tags(status, body, report),
            (Engine::Paddler, Endpoint::Models) => openai::read_models(status, body, report),
            (Engine::Paddler, Endpoint::Fleet) => paddler::read_status(status, body, report),
            (_, Endpoint::Health) => openai::read_health(status, body, report),
            (_, Endpoint::Models) => openai::read_models(status, body, report),
            _ => {}
        }
    }

    /// Asks what tells engines apart. The inner `Err`: how one is that has none of it, and so is none.
    async fn find_out(&mut self) -> Result<Result<Engine, Report>, Failure> {
        let mut told = Vec::new();
        for endpoint in Plan::of(Engine::Auto).asks(0) {
            match get(&*self.upstream, endpoint).await {
                Ok(answer) => told.push((endpoint, answer)),
                // Not every server knows each of these paths, and some break off.
                Err(failure) if failure.kind == FailureKind::Unreadable && endpoint != Endpoint::Models => {}
                Err(failure) => return Err(failure),
            }
        }
        let answer = |asked| {
            told.iter()
                .find_map(|(endpoint, answer)| (*endpoint == asked).then(|| answer.view()))
        };
        let answers = ProbeAnswers {
            health: answer(Endpoint::Health),
            props: answer(Endpoint::Props),
            metrics: answer(Endpoint::Metrics),
            version: answer(Endpoint::Version),
            models: answer(Endpoint::Models),
            metadata: answer(Endpoint::Metadata),
            tags: answer(Endpoint::Tags),
        };
        let words = answers
            .models
            .map(|models| refusal(models.status, models.body))
            .unwrap_or_default();
        if answers.have_none() {
            return Ok(Err(no_engine(&told)));
        }
        // It answers something else and has no list of models: only what we send there ourselves is to be known.
        let has_no_list = answers.models.is_some_and(|models| models.has_no_such_path());
        let plain = has_no_list.then_some(Engine::Openai);
        let Some(engine) = identify(&answers).or(plain) else {
            let path = Endpoint::Models.path();
            let said = format!("{path} answered {words}; nothing says which engine it is");
            return Err(Failure::new(FailureKind::Unreadable, said));
        };
        tracing::info!(upstream = %self.spec.id, ?engine, "found out which engine the upstream is");
        self.engine = Some(engine);
        Ok(Ok(engine))
    }
}

async fn get(upstream: &dyn Upstream, endpoint: Endpoint) -> Result<Answered, Failure> {
    let path = endpoint.path();
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = Uri::from_static(path);
    if let Some(json) = endpoint.posts() {
        *request.method_mut() = Method::POST;
        let json_type = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json_type);
        *request.body_mut() = Body::from(json.to_owned());
    }
    call(upstream, path, request).await
}

pub(super) async fn call(
    upstream: &dyn Upstream,
    path: &str,
    request: Request<Body>,
) -> Result<Answered, Failure> {
    let failed = |error: BoxError| failure(path, &*error);
    let response = upstream.call(request).await.map_err(failed)?;
    let (head, body) = Response::into_parts(response);
    let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|error| {
        // There was an answer, so somebody is there.
        Failure::new(FailureKind::Unreadable, format!("{path}: {}", chain(&*error)))
    })?;
    let server = head
        .headers
        .get(SERVER)
        .and_then(|value| Some(value.to_str().ok()?.to_owned()));
    Ok(Answered {
        status: head.status.as_u16(),
        server,
        body: body.to_bytes(),
    })
}

/// How a server is that has none of the paths that tell engines apart.
fn no_engine(told: &[(Endpoint, Answered)]) -> Report {
    let paths: Vec<_> = told.iter().map(|(endpoint, _)| endpoint.path()).collect();
    let statuses: BTreeSet<_> = told.iter().map(|(_, answer)| answer.status.to_string()).collect();
    let statuses = Vec::from_iter(statuses).join(" or ");
    let found =
        format!("{statuses}: no engine; one that tells nothing of itself is one with `engine: openai`");
    let mut report = Report::new();
    report.health = Some(Health::Failing);
    // Nobody need wait to hear which models it has.
    report.models = Some(Models::Listed(Vec::new()));
    report.degrade(Signal::Health, paths.join(", "), found);
    report
}

/// Says what kind of failure an error of the transport is.
fn failure(path: &str, error: &(dyn std::error::Error + 'static)) -> Failure {
    let not_sent = error
        .downcast_ref::<CallError>()
        .is_some_and(|error| error.sent() == Sent::No);
    // The network's own time limit, which a machine that is gone runs into.
    let lost = causes(error).any(|cause| {
        let io = cause.downcast_ref::<io::Error>();
        io.is_some_and(|io| io.kind() == io::ErrorKind::TimedOut)
    });
    let kind = if causes(error).any(|cause| cause.is::<OutOfFiles>()) {
        // We have not asked, so it has not answered, and is no more gone than before.
        FailureKind::Timeout
    } else if not_sent || lost {
        FailureKind::Unreachable
    } else {
        FailureKind::Unreadable
    };
    Failure::new(kind, format!("{path}: {}", chain(error)))
}

fn causes<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}
