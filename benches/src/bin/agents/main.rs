//! What CPU time do the statuses of hundreds of agents take?
//!
//! ```sh
//! cargo run --release -p paddler-benches --bin agents -- --agents 500 --seconds 20
//! ```
//!
//! The router is a process of its own, so that the time is its alone. First nobody speaks, then all agents speak once a second, as they
//! do where nothing is new, and then four times a second, as they do where something always is. Each has an upstream of its own;
//! nothing is sent there.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use http::Method;
use paddler_benches::harness::Failure;
use paddler_benches::harness::engines::EngineProcess;
use paddler_benches::harness::gateway::GatewayProcess;
use paddler_benches::harness::programs::{Programs, raise_open_files};
use paddler_benches::harness::trial::run;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Has agents speak and tells what that costs.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many agents.
    #[arg(long, default_value_t = 500)]
    agents: usize,
    /// How long each time is measured.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
}

/// How long all may take to be there.
const START: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    run("agents", trial)
}

async fn trial(arguments: &Arguments, programs: &Programs, folder: &Path) -> Result<bool, Failure> {
    raise_open_files()?;
    let engine = EngineProcess::start(
        &programs.engine,
        "one",
        &["--face=llamacpp", "--model", "one"],
        folder,
    )
    .await?;
    let settings = "agents: {access: auto}\n";
    let upstreams = [(engine.id.as_str(), engine.address)];
    let mut gateway = GatewayProcess::start(&programs.paddler, folder, &upstreams, settings).await?;
    let long = Duration::from_secs(arguments.seconds);
    let alone = share(&mut gateway, long).await;
    println!(
        "nobody speaks: {alone:.1} % of a core, {} MiB",
        gateway.memory() >> 20
    );
    for per_second in [1, 4] {
        let mut speakers = JoinSet::new();
        for number in 0..arguments.agents {
            speakers.spawn(speak(gateway.management(), number, per_second, arguments.agents));
        }
        let there = async {
            while known(&gateway).await? < arguments.agents {
                sleep(Duration::from_millis(100)).await;
            }
            Ok::<_, Failure>(())
        };
        timeout(START, there)
            .await
            .map_err(|_| "not all agents are there")??;
        let taken = share(&mut gateway, long).await;
        if let Some(ended) = speakers.try_join_next() {
            return Err(format!("an agent is listened to no more: {ended:?}").into());
        }
        let (began, all) = (Instant::now(), known(&gateway).await?);
        println!(
            "{all} agents, {per_second} a second each: {taken:.1} % of a core, {} MiB; a document of all takes {:.1} ms",
            gateway.memory() >> 20,
            began.elapsed().as_secs_f64() * 1e3
        );
        // Their connections are to be gone before the next ones come.
        speakers.shutdown().await;
        sleep(Duration::from_secs(1)).await;
    }
    Ok(gateway.panics() == 0)
}

/// The share of a core that the router takes, in percent.
async fn share(gateway: &mut GatewayProcess, long: Duration) -> f64 {
    let (began, before) = (Instant::now(), gateway.program().cpu());
    sleep(long).await;
    let taken = gateway.program().cpu().saturating_sub(before);
    100.0 * taken.as_secs_f64() / began.elapsed().as_secs_f64()
}

/// How many agents are known.
async fn known(gateway: &GatewayProcess) -> Result<usize, Failure> {
    let (_, document) = gateway.manage(Method::GET, "/api/v1/agents").await?;
    let document: Value = serde_json::from_str(&document)?;
    Ok(document["agents"].as_array().map_or(0, Vec::len))
}

/// One agent, whose engine is a little busier each time.
async fn speak(management: SocketAddr, number: usize, per_second: u32, agents: usize) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(management).await?;
    let head = format!(
        "POST /api/v1/agents/gpu-{number}/status HTTP/1.1\r\nhost: {management}\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    let pause = Duration::from_secs(1) / per_second;
    // Not all at once.
    let mut next = Instant::now() + pause.mul_f64(number as f64 / agents as f64);
    for word in 0_u64.. {
        let mut message = json!({
            "age_ms": 2,
            "report": {
                "health": "ready", "slots_total": 8, "slots_busy": word % 8, "waiting": 0,
                "models": {"listed": [{"id": "llama-3.1-8b-instruct"}]},
            },
        });
        if word == 0 {
            message["version"] = 1.into();
            message["beat_ms"] = 1000.into();
            message["upstream"] =
                json!({"url": format!("http://127.1.{}.{}:8080", number / 250, number % 250 + 1)});
        }
        let message = format!("{message}\n");
        let chunk = format!("{:x}\r\n{message}\r\n", message.len());
        if let Err(error) = stream.write_all(chunk.as_bytes()).await {
            // What it was answered says why.
            let mut answer = vec![0; 1024];
            let length = stream.read(&mut answer).await.unwrap_or_default();
            return Err(format!(
                "{error} at word {word}: {}",
                String::from_utf8_lossy(&answer[..length])
            )
            .into());
        }
        next += pause;
        sleep_until(next).await;
    }
    Ok(())
}
