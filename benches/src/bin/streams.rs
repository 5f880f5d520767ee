//! What do thousands of idle streams cost, and do slow readers slow others down?
//!
//! ```sh
//! cargo run --release -p paddler-benches --bin streams -- --streams 9500 --seconds 300
//! ```
//!
//! Router and engines are processes of their own, so that the memory is the router's alone; each stream takes it two open
//! files. First others' time to the first byte is measured with nothing else going on, then with all streams open, then with
//! slow readers besides: each has an answer of 16 MB and reads one byte a second.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::BodyExt as _;
use paddler_benches::harness::Failure;
use paddler_benches::harness::engines::EngineProcess;
use paddler_benches::harness::gateway::GatewayProcess;
use paddler_benches::harness::http::Connection;
use paddler_benches::harness::programs::{Programs, raise_open_files};
use paddler_benches::harness::streams::{END, IdleStreams, chat, request};
use paddler_benches::harness::trial::run;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Opens streams and tells what they cost.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many streams.
    #[arg(long, default_value_t = 9_500)]
    streams: usize,
    /// How long they stay open once all are.
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// How many slow readers.
    #[arg(long, default_value_t = 100)]
    readers: usize,
    /// The most memory for a stream, in KiB: more is a failure.
    #[arg(long)]
    max_kib: Option<f64>,
}

/// Between two tokens of an idle stream: under the router's limit for silence, 60 s.
const TOKEN_EVERY: u64 = 30;

/// How many answers of others are measured each time.
const OTHERS: usize = 300;

fn main() -> ExitCode {
    run("streams", trial)
}

fn enough_files(streams: usize) -> Result<(), Failure> {
    let (files, needed) = (raise_open_files()?, 2 * streams as u64 + 1_000);
    if files < needed {
        return Err(format!("{needed} open files are needed, and {files} may be had").into());
    }
    Ok(())
}

/// An engine for idle streams, one for slow readers, and one for others.
async fn start_engines(programs: &Programs, folder: &Path) -> Result<[EngineProcess; 3], Failure> {
    let pace = (1.0 / TOKEN_EVERY as f64).to_string();
    let start = async |model: &str, per_second: &str| {
        let args = [
            "--face=vllm",
            "--slots=20000",
            "--num-gpu-blocks=1000000",
            "--prefill-tokens-per-second=inf",
            "--decode-tokens-per-second",
            per_second,
            "--model",
            model,
        ];
        EngineProcess::start(&programs.engine, model, &args, folder).await
    };
    Ok([
        start("idle", &pace).await?,
        start("large", "inf").await?,
        start("quick", "inf").await?,
    ])
}

async fn trial(arguments: &Arguments, programs: &Programs, folder: &Path) -> Result<bool, Failure> {
    enough_files(arguments.streams)?;
    let engines = start_engines(programs, folder).await?;
    let upstreams: Vec<_> = engines
        .iter()
        .map(|engine| (engine.id.as_str(), engine.address))
        .collect();
    let settings = format!("limits: {{connections: {}}}\n", arguments.streams + 1_000);
    let gateway = GatewayProcess::start(&programs.paddler, folder, &upstreams, &settings).await?;
    // The first answers warm caches and pools.
    others(gateway.address).await?;
    let alone = others(gateway.address).await?;

    let before = gateway.memory();
    // None comes to its end by itself while it is watched.
    let tokens = arguments.seconds / TOKEN_EVERY + 100;
    let streams = IdleStreams::open(arguments.streams, gateway.address, &chat("idle", tokens)).await?;
    let among_streams = others(gateway.address).await?;
    let memory = gateway.memory().saturating_sub(before);
    let kib = memory as f64 / 1024.0 / arguments.streams.max(1) as f64;
    println!(
        "{} streams open; {} MiB of the router's memory: {kib:.1} KiB each",
        streams.open_ones(),
        memory >> 20
    );

    let readers = slow_readers(arguments.readers, gateway.address).await?;
    let with_readers = others(gateway.address).await?;
    println!(
        "first byte of others (median, 95 %): {} alone, {} with the streams, {} with slow readers",
        show(&alone),
        show(&among_streams),
        show(&with_readers)
    );
    sleep(Duration::from_secs(arguments.seconds)).await;
    let dropped = streams.dropped();
    let later = gateway.memory().saturating_sub(before);
    println!(
        "after {} s: {dropped} dropped; {} MiB",
        arguments.seconds,
        later >> 20
    );
    drop((streams, readers));
    let left = left(&gateway, &engines).await?;
    let ratio = with_readers[OTHERS / 2].as_secs_f64() / among_streams[OTHERS / 2].as_secs_f64().max(1e-9);
    println!("dropped {dropped} left {left} kib {kib:.1} readers_ratio {ratio:.2}");
    Ok(dropped == 0 && left == 0.0 && arguments.max_kib.is_none_or(|most| kib <= most))
}

fn show(sorted: &[Duration]) -> String {
    let at = |share: usize| sorted[(sorted.len() * share / 100).min(sorted.len() - 1)].as_secs_f64() * 1e3;
    format!("{:.2} and {:.2} ms", at(50), at(95))
}

/// How long others wait for the first byte of an answer, in order of size.
async fn others(address: SocketAddr) -> Result<Vec<Duration>, Failure> {
    let mut connection = Connection::open(address).await?;
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    let mut times = Vec::with_capacity(OTHERS);
    for _ in 0..OTHERS {
        let (began, body) = (Instant::now(), Bytes::from(chat("quick", 2)));
        let response = connection
            .send(Method::POST, "/v1/chat/completions", headers.clone(), body)
            .await?;
        let mut body = response.into_body();
        body.frame().await.ok_or("an empty answer")??;
        times.push(began.elapsed());
        body.collect().await?;
    }
    times.sort_unstable();
    Ok(times)
}

/// Clients that read one byte a second of a large answer.
async fn slow_readers(count: usize, address: SocketAddr) -> Result<JoinSet<()>, Failure> {
    let text = request(address, &chat("large", 2), "x-sim-fault: padding=16000000\r\n");
    let mut readers = JoinSet::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(text.as_bytes()).await?;
        readers.spawn(async move {
            while stream.read_u8().await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });
    }
    // Until buffers everywhere are full.
    sleep(Duration::from_secs(2)).await;
    Ok(readers)
}

/// What is still held once everybody has left: open weight in the router, and tasks in the engines. Who is too busy with
/// that to tell is asked again.
async fn left(gateway: &GatewayProcess, engines: &[EngineProcess]) -> Result<f64, Failure> {
    let until = Instant::now() + END;
    loop {
        let held = held(gateway, engines).await;
        if matches!(held, Ok(0.0)) || Instant::now() >= until {
            return held;
        }
        sleep(Duration::from_millis(200)).await;
    }
}

async fn held(gateway: &GatewayProcess, engines: &[EngineProcess]) -> Result<f64, Failure> {
    let mut held = gateway.metric("paddler_upstream_open_weight").await?;
    held += gateway.metric("paddler_in_flight_requests").await?;
    for engine in engines {
        held += engine.tasks().await? as f64;
    }
    Ok(held)
}
