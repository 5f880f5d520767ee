//! How much time does the endpoint picker add to a request through Envoy?
//!
//! ```sh
//! cargo build --release -p paddler-bin --features envoy
//! cargo run --release -p paddler-benches --bin picker -- --envoy path/to/envoy --paddler target/release/paddler
//! ```
//!
//! The same Envoy config is run with the picker and without: with it, Envoy goes where it is told; without, it goes round. Both
//! are asked in turn, so that whatever else the machine does meets both. Engines are simulated and take no time. It prints a
//! table, and judges nothing.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use paddler_benches::harness::Failure;
use paddler_benches::harness::http::{Connection, ask, free_address};
use paddler_benches::harness::programs::Program;
use paddler_engine::{Engine, EngineConfig};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// Measures what the picker adds.
#[derive(Debug, Parser)]
struct Arguments {
    /// The program `envoy`.
    #[arg(long)]
    envoy: PathBuf,
    /// The program `paddler`, built with the feature `envoy`.
    #[arg(long)]
    paddler: PathBuf,
    /// How many requests of each kind.
    #[arg(long, default_value_t = 300)]
    requests: usize,
}

const EXAMPLE: &str = include_str!("../../../bindings/envoy/examples/override-host.yaml");

/// The longest that a program may take to listen, and a request to be answered.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = runtime
        .map_err(Failure::from)
        .and_then(|runtime| runtime.block_on(measure(&arguments)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("picker: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(arguments: &Arguments) -> Result<(), Failure> {
    let config = || {
        EngineConfig::llamacpp("tiny")
            .instant()
            .slots(64)
            .context_tokens(10_000_000)
    };
    let engines = [Engine::start(config()).await?, Engine::start(config()).await?];
    let folder = std::env::temp_dir().join(format!("paddler-picker-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let result = compare(arguments, &engines, &folder).await;
    std::fs::remove_dir_all(&folder)?;
    result
}

async fn compare(arguments: &Arguments, engines: &[Engine; 2], folder: &Path) -> Result<(), Failure> {
    let listen = free_address()?;
    let mut args = vec![
        "endpoint-picker".to_owned(),
        format!("--listen={listen}"),
        "--management=off".to_owned(),
    ];
    args.extend(
        engines
            .iter()
            .map(|engine| format!("--upstream={}", engine.url())),
    );
    let _picker = Program::start(&arguments.paddler, &args)?;
    wait_for(listen).await?;
    let (_with, picked) = envoy(arguments, engines, listen, folder, true).await?;
    let (_without, direct) = envoy(arguments, engines, listen, folder, false).await?;
    println!("| body | at once | Envoy p50 | p95 | with picker p50 | p95 | added p50 | p95 |");
    println!("|---|---|---|---|---|---|---|---|");
    for (name, bytes) in [("1 byte", 1), ("100 KiB", 100 << 10), ("1 MiB", 1 << 20)] {
        for at_once in [1, 8] {
            let body = json!({
                "model": "tiny", "max_tokens": 1,
                "messages": [{"role": "user", "content": "a".repeat(bytes)}],
            });
            let body = Bytes::from(body.to_string());
            let [direct, picked] = times([direct, picked], &body, at_once, arguments.requests).await?;
            let [d50, d95, p50, p95] = [at(&direct, 50), at(&direct, 95), at(&picked, 50), at(&picked, 95)];
            let (a50, a95) = (p50 - d50, p95 - d95);
            println!(
                "| {name} | {at_once} | {d50:.2} ms | {d95:.2} ms | {p50:.2} ms | {p95:.2} ms | {a50:.2} ms | {a95:.2} ms |"
            );
        }
    }
    Ok(())
}

/// Runs Envoy by the example, with the filter that asks the picker or without.
async fn envoy(
    arguments: &Arguments,
    engines: &[Engine; 2],
    picker: SocketAddr,
    folder: &Path,
    asks: bool,
) -> Result<(Program, SocketAddr), Failure> {
    let address = free_address()?;
    let mut text = EXAMPLE.to_owned();
    let ports = [8080, 9002, 8001, 8002].into_iter();
    for (example, real) in ports.zip([address, picker, engines[0].addr(), engines[1].addr()]) {
        text = text.replace(
            &format!("port_value: {example}}}"),
            &format!("port_value: {}}}", real.port()),
        );
    }
    let filter = text
        .find("          - name: envoy.filters.http.ext_proc")
        .zip(text.find("          - name: envoy.filters.http.router"));
    let (from, to) = filter.ok_or("the example has no filter")?;
    if !asks {
        text.replace_range(from..to, "");
    }
    let file = folder.join(format!("envoy-{asks}.yaml"));
    std::fs::write(&file, text)?;
    let args = [
        "-c",
        &file.to_string_lossy(),
        "--concurrency",
        "1",
        "-l",
        "error",
        "--disable-hot-restart",
    ];
    let program = Program::start(&arguments.envoy, &args.map(str::to_owned))?;
    wait_for(address).await?;
    Ok((program, address))
}

async fn wait_for(address: SocketAddr) -> Result<(), Failure> {
    let listens = async {
        while tokio::net::TcpStream::connect(address).await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let listens = timeout(PATIENCE, listens).await;
    Ok(listens.map_err(|_| format!("nobody listens at {address}"))?)
}

/// How long each answer takes, from both addresses in turn, in milliseconds.
async fn times(
    addresses: [SocketAddr; 2],
    body: &Bytes,
    at_once: usize,
    requests: usize,
) -> Result<[Vec<f64>; 2], Failure> {
    let mut all = [Vec::new(), Vec::new()];
    // The first ones open connections everywhere.
    for address in addresses {
        for _ in 0..4 {
            let (status, text) = ask(address, Method::POST, "/v1/chat/completions", body.clone()).await?;
            if status != StatusCode::OK {
                return Err(format!("{address} answers {status}: {text}").into());
            }
        }
    }
    let mut connections = [Vec::new(), Vec::new()];
    for (connections, address) in connections.iter_mut().zip(addresses) {
        for _ in 0..at_once {
            connections.push(Connection::open(address).await?);
        }
    }
    for _ in 0..requests.div_ceil(at_once) {
        for (connections, times) in connections.iter_mut().zip(&mut all) {
            let mut asked = JoinSet::new();
            for connection in connections.drain(..) {
                asked.spawn(timeout(PATIENCE, once(connection, body.clone())));
            }
            while let Some(done) = asked.join_next().await {
                let (connection, took) = done?.map_err(|_| "a request takes too long")??;
                connections.push(connection);
                times.push(took);
            }
        }
    }
    Ok(all)
}

/// Asks once and reads the answer to its end.
async fn once(mut connection: Connection, body: Bytes) -> Result<(Connection, f64), Failure> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let began = Instant::now();
    let response = connection
        .send(Method::POST, "/v1/chat/completions", headers, body)
        .await?;
    let status = response.status();
    response.into_body().collect().await?;
    let took = began.elapsed().as_secs_f64() * 1e3;
    if status == StatusCode::OK {
        Ok((connection, took))
    } else {
        Err(format!("it answers {status}").into())
    }
}

/// The time under which so many in a hundred are.
fn at(times: &[f64], percent: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(place).copied().unwrap_or_default()
}
