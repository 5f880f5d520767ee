//! What does the program cost as it is run: to start, to ask a thousand engines how they are, to hold streams, to go on for long?

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use paddler_benches::harness::Failure;
use paddler_benches::harness::costless::{Engine, MODEL, Pace};
use paddler_benches::harness::figures::median;
use paddler_benches::harness::gateway::GatewayProcess;
use paddler_benches::harness::http::Connection;
use paddler_benches::harness::streams::{IdleStreams, chat};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::arguments::Arguments;
use super::goals;
use super::http2::Http2Engine;
use super::table::Row;

/// Between two events of an idle stream: under the router's limit for silence, 60 s.
const IDLE: Pace = Pace {
    every: Duration::from_secs(30),
    events: 100,
};

/// How long it may take until all upstreams are asked regularly.
const SETTLE: Duration = Duration::from_secs(3);

/// How often an upstream is asked in a second.
const POLLS: f64 = 4.0;

/// How many ask at once.
const ASKERS: usize = 8;

const KIB: f64 = 1_024.0;

/// What was seen of a router that asks engines how they are.
pub(crate) struct Polled {
    upstreams: f64,
    a_second: f64,
    /// CPU time of a poll, in seconds.
    pub(crate) each: f64,
    /// Bytes: what is held whatever there is to ask, and for each upstream.
    pub(crate) memory: [f64; 2],
}

/// Where the router is, and where it may write.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    paddler: &'a Path,
    folder: &'a Path,
}

impl<'a> Place<'a> {
    pub(crate) fn new(paddler: &'a Path, folder: &'a Path) -> Self {
        Self { paddler, folder }
    }

    pub(crate) async fn gateway(
        self,
        upstreams: &[(&str, SocketAddr)],
        settings: &str,
    ) -> Result<GatewayProcess, Failure> {
        GatewayProcess::start(self.paddler, self.folder, upstreams, settings).await
    }
}

/// From the start of the process until it has answered a chat, for which it has to know its engine.
pub(crate) async fn start(arguments: &Arguments, place: Place<'_>) -> Result<Vec<Row>, Failure> {
    let engine = Engine::start(IDLE).await?;
    let mut times = Vec::new();
    for _ in 0..arguments.starts {
        let began = Instant::now();
        let gateway = place.gateway(&[("engine", engine.address)], "").await?;
        ask(gateway.address, 0..1, StatusCode::OK, |_| {
            body(MODEL, "Are you there?")
        })
        .await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        drop(gateway);
    }
    let what = format!("from start to the first answer, in the middle of {}", times.len());
    let bytes = std::fs::metadata(place.paddler)?.len();
    Ok(vec![
        Row::new(what, goals::START, median(times)),
        Row::new("the program's file", goals::FILE, bytes as f64 / 1e6),
    ])
}

/// The CPU time of asking this many engines how they are. Each has an address of its own of this machine.
pub(crate) async fn polls(arguments: &Arguments, place: Place<'_>) -> Result<Polled, Failure> {
    eprintln!("polls {} upstreams", arguments.upstreams);
    let engine = Engine::start_at(Ipv4Addr::UNSPECIFIED.into(), IDLE).await?;
    let port = engine.address.port();
    let address = |number: usize| {
        let [_, _, row, column] = (number as u32).to_be_bytes();
        SocketAddr::from(([127, 2, row, column], port))
    };
    let names: Vec<String> = (1..=arguments.upstreams)
        .map(|number| format!("gpu-{number}"))
        .collect();
    let upstreams: Vec<_> = names.iter().map(String::as_str).zip((1..).map(address)).collect();
    let settings = "poll: {interval: 250ms, concurrency: 1000}\n";
    let one = place.gateway(&upstreams[..1], settings).await?;
    sleep(SETTLE).await;
    let one_memory = one.memory() as f64;
    drop(one);
    let mut gateway = place.gateway(&upstreams, settings).await?;
    sleep(SETTLE).await;
    let (began, asked, cpu) = (Instant::now(), engine.asked(), gateway.program().cpu());
    sleep(Duration::from_secs_f64(arguments.seconds)).await;
    let (took, cpu) = (began.elapsed().as_secs_f64(), gateway.program().cpu() - cpu);
    let asked = (engine.asked() - asked) as f64;
    if asked == 0.0 {
        return Err("no engine was asked how it is".into());
    }
    let upstreams = arguments.upstreams as f64;
    let more = (gateway.memory() as f64 - one_memory).max(0.0) / (upstreams - 1.0).max(1.0);
    Ok(Polled {
        upstreams,
        a_second: asked / took,
        each: cpu.as_secs_f64() / asked,
        memory: [(one_memory - more).max(0.0), more],
    })
}

impl Polled {
    /// Beside their goals.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let (upstreams, each) = (self.upstreams, self.each);
        let what = format!(
            "{upstreams} upstreams of vLLM polled 4 times a second (asked {:.0} times a second, {:.0} µs each)",
            self.a_second,
            each * 1e6
        );
        let [fixed, more] = self.memory.map(|bytes| bytes / KIB);
        let held = format!(
            "memory for each upstream, of {upstreams}, besides {:.1} MiB in all",
            fixed / KIB
        );
        vec![
            Row::new(what, goals::POLLS, each * POLLS * upstreams),
            Row::new(held, goals::OF_UPSTREAM, more),
        ]
    }
}

/// Memory of a stream that waits for its next event.
pub(crate) async fn streams(arguments: &Arguments, place: Place<'_>) -> Result<Vec<Row>, Failure> {
    let engine = Engine::start(IDLE).await?;
    let over_one = idle(arguments, place, engine.address, "").await?;
    let engine = Http2Engine::start().await?;
    let over_two = idle(arguments, place, engine.address, "http2: always").await?;
    let what = |over: &str| {
        format!(
            "memory of an idle stream, of {}, with {over} to the engine",
            arguments.streams
        )
    };
    Ok(vec![
        Row::new(what("HTTP/1.1"), goals::STREAM, over_one),
        Row::new(what("HTTP/2"), goals::STREAM_OVER_HTTP2, over_two),
    ])
}

async fn idle(
    arguments: &Arguments,
    place: Place<'_>,
    engine: SocketAddr,
    spoken: &str,
) -> Result<f64, Failure> {
    let many = arguments.streams;
    let limits = format!("limits: {{connections: {}}}\n", many + 1_000);
    let upstream = format!("upstreams: [{{id: engine, url: \"http://{engine}\", {spoken}}}]\n");
    let gateway = place.gateway(&[], &format!("{limits}{upstream}")).await?;
    // It knows its engine by then, and takes as many at once as the engine says.
    sleep(SETTLE).await;
    // The first make what is made once.
    drop(IdleStreams::open(many.min(64), gateway.address, &chat(MODEL, 100)).await?);
    sleep(Duration::from_secs(1)).await;
    let before = gateway.memory();
    let streams = IdleStreams::open(many, gateway.address, &chat(MODEL, 100)).await?;
    if streams.dropped() > 0 {
        return Err(format!("{} of {many} streams have failed", streams.dropped()).into());
    }
    Ok(gateway.memory().saturating_sub(before) as f64 / KIB / many as f64)
}

/// The body of a number.
type MakeBody = fn(usize) -> Bytes;

/// How much memory is more after many prompts and after many names of models, of which each comes once.
pub(crate) async fn flat(arguments: &Arguments, place: Place<'_>) -> Result<Vec<Row>, Failure> {
    let engine = Engine::start(IDLE).await?;
    let gateway = place.gateway(&[("engine", engine.address)], "").await?;
    let mut rows = Vec::new();
    let kinds: [(_, _, _, MakeBody); 2] = [
        ("prompts", arguments.prompts, StatusCode::OK, |number| {
            body(MODEL, &format!("{number}: how does it go, and why?"))
        }),
        (
            "names of models that nobody has",
            arguments.names,
            StatusCode::NOT_FOUND,
            |number| body(&format!("model-{number}"), "How does it go?"),
        ),
    ];
    for (kind, many, expected, body) in kinds {
        // As many at first fill what is bounded.
        ask(gateway.address, 0..many, expected, body).await?;
        let before = gateway.memory();
        ask(gateway.address, many..2 * many, expected, body).await?;
        let more = gateway.memory().saturating_sub(before) as f64 / KIB / KIB;
        let what = format!("memory that is more after another {many} different {kind}");
        rows.push(Row::new(what, goals::FLAT, more));
    }
    Ok(rows)
}

fn body(model: &str, prompt: &str) -> Bytes {
    format!(r#"{{"model":"{model}","user":"{prompt}","messages":[{{"role":"user","content":"{prompt}"}}]}}"#)
        .into()
}

/// Asks with the bodies of these numbers, over a few connections.
async fn ask(
    address: SocketAddr,
    numbers: std::ops::Range<usize>,
    expected: StatusCode,
    body: MakeBody,
) -> Result<(), Failure> {
    let mut askers = JoinSet::new();
    for asker in 0..ASKERS {
        let bodies = numbers.clone().skip(asker).step_by(ASKERS).map(body);
        askers.spawn(ask_all(address, bodies, expected));
    }
    while let Some(asked) = askers.join_next().await {
        asked??;
    }
    Ok(())
}

async fn ask_all(
    address: SocketAddr,
    bodies: impl Iterator<Item = Bytes>,
    expected: StatusCode,
) -> Result<(), Failure> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut connection = Connection::open(address).await?;
    for body in bodies {
        if connection.is_closed() {
            connection = Connection::open(address).await?;
        }
        let answer = connection
            .send(Method::POST, "/v1/chat/completions", headers.clone(), body)
            .await?;
        let status = answer.status();
        answer.into_body().collect().await?;
        if status != expected {
            return Err(format!("it answers {status}, and not {expected}").into());
        }
    }
    Ok(())
}
