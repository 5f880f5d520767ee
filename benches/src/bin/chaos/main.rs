//! Does the router lose a request while everything around it fails?
//!
//! ```sh
//! cargo run --release -p paddler-benches --bin chaos -- --seconds 600
//! ```
//!
//! Six simulated engines and `paddler gateway` run as processes of their own. Clients begin at drawn times, whether or not
//! earlier ones are served. Meanwhile engines are killed, stopped and started again, and show every kind of fault; the
//! router's config is reloaded twice and two engines are drained. At the end the clients' notes are joined with the engines'
//! journals by the id of each request:
//!
//! - *lost*: any answer but 2xx, or none, or one that broke off without its engine's doing, though an able engine was there
//!   for the whole wait. What the engine itself answered, and what broke off visibly with its engine, is not lost.
//! - *corrupt*: an answer that looks whole and whose checksum is wrong.
//! - *leaked*: a lease, a queue place, a buffered byte or an engine's task that is left when all is quiet.
//! - *panics*, of the router and of the engines.
//!
//! The last line gives the four numbers; the exit status is non-zero when one of them is, and when memory grew.

mod admin;
mod judge;
mod kill;
mod load;
mod trouble;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use paddler_benches::harness::Failure;
use paddler_benches::harness::draw::Draw;
use paddler_benches::harness::engines::EngineProcess;
use paddler_benches::harness::gateway::{GatewayProcess, sum};
use paddler_benches::harness::programs::Programs;
use paddler_benches::harness::trial::run;
use serde_json::json;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::{Instant, sleep};

use judge::{Journals, Verdict};
use load::Outcome;
use trouble::Fleet;

/// Fails everything around the router and counts what it loses.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// What all chance is drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sessions that begin in a second; one has two requests on average.
    #[arg(long, default_value_t = 15.0)]
    rate: f64,
    /// How many losses are told of in full.
    #[arg(long, default_value_t = 10)]
    show: usize,
    /// Leave out reloads and drains.
    #[arg(long)]
    no_admin: bool,
    /// Instead of all that: three engines, one of which is killed after a third of the time and stays away.
    #[arg(long)]
    kill_one: bool,
}

/// What the router is told, besides its upstreams. Short times, so that a short run meets them all.
const SETTINGS: &str = "\
queue: {max_requests: 1000, max_wait: 10s}
poll: {interval: 200ms, timeout: 1s}
timeouts: {connect: 500ms, first_byte: 5s, idle: 3s}
";

/// So many engines.
const ENGINES: usize = 6;

/// The longest that all may take to become quiet: a place that a client left may settle for 10 s.
const QUIET: Duration = Duration::from_secs(25);

fn main() -> ExitCode {
    run("chaos", async |arguments: &Arguments, programs, folder| {
        if arguments.kill_one {
            kill::trial(arguments, programs, folder).await
        } else {
            trial(arguments, programs, folder).await
        }
    })
}

async fn start_engines(
    count: usize,
    programs: &Programs,
    folder: &Path,
) -> Result<Vec<EngineProcess>, Failure> {
    let mut engines = Vec::new();
    for number in 0..count {
        let (face, slots) = if number % 2 == 0 {
            ("vllm", "12")
        } else {
            ("llamacpp", "6")
        };
        let seed = number.to_string();
        let args = [
            "--face",
            face,
            "--slots",
            slots,
            "--seed",
            &seed,
            "--decode-tokens-per-second",
            "100",
        ];
        engines
            .push(EngineProcess::start(&programs.engine, &format!("engine-{number}"), &args, folder).await?);
    }
    Ok(engines)
}

/// Engines and a router that knows all of them to be able.
async fn start(
    count: usize,
    programs: &Programs,
    folder: &Path,
) -> Result<(Vec<EngineProcess>, GatewayProcess), Failure> {
    let engines = start_engines(count, programs, folder).await?;
    let named: Vec<_> = engines
        .iter()
        .map(|engine| (engine.id.as_str(), engine.address))
        .collect();
    let gateway = GatewayProcess::start(&programs.paddler, folder, &named, SETTINGS).await?;
    all_able(&gateway, count).await?;
    Ok((engines, gateway))
}

async fn trial(arguments: &Arguments, programs: &Programs, folder: &Path) -> Result<bool, Failure> {
    let (engines, mut gateway) = start(ENGINES, programs, folder).await?;
    let upstreams: Vec<(String, SocketAddr)> = engines
        .iter()
        .map(|engine| (engine.id.clone(), engine.address))
        .collect();
    let (began, time) = (Instant::now(), Duration::from_secs(arguments.seconds));
    let (end, draw) = (began + time, Draw::new(arguments.seed));
    let fleet = Fleet::new(engines, began);
    let (notes, outcomes) = mpsc::unbounded_channel();
    let load = load::run(gateway.address, began, end, arguments.rate, draw.part(1), notes);
    let administer = async {
        if arguments.no_admin {
            return Ok(admin::Done::default());
        }
        admin::run(&fleet, &gateway, &upstreams, time, draw.part(4)).await
    };
    let (broken, troubled, done, memory, ()) = tokio::join!(
        trouble::break_engines(&fleet, end, draw.part(2)),
        trouble::trouble_engines(&fleet, end, draw.part(3)),
        administer,
        watch_memory(&gateway, end),
        load,
    );
    let (broken, troubled, done) = (broken?, troubled?, done?);
    println!(
        "{} s, seed {}: engines broken {broken} times, troubled {troubled} times; {} reloads, {} drains",
        arguments.seconds, arguments.seed, done.reloads, done.drains
    );
    if done.strays > 0 {
        println!("{} requests came to an engine that was to get none", done.strays);
    }
    let flat = tell_memory(&memory);
    let sound = conclude(arguments, &mut gateway, &fleet, outcomes, done.strays).await?;
    Ok(flat && sound)
}

/// Waits for all answers and for quiet, judges, and tells the four numbers.
async fn conclude(
    arguments: &Arguments,
    gateway: &mut GatewayProcess,
    fleet: &Arc<Fleet>,
    mut outcomes: UnboundedReceiver<Outcome>,
    strays: u64,
) -> Result<bool, Failure> {
    let mut all = Vec::new();
    while let Some(outcome) = outcomes.recv().await {
        all.push(outcome);
    }
    let leaks = leaks(gateway, fleet).await?;
    let mut panics = gateway.panics();
    let mut journals = Journals::default();
    for (number, engine) in fleet.engines.iter().enumerate() {
        let engine = engine.lock().await;
        journals.add(number, &engine.journal()?);
        panics += engine.panics();
    }
    println!("{} requests:", all.len());
    let (lost, corrupt) = tell_verdicts(&all, &journals, fleet, arguments.show);
    let lost = lost + strays as usize;
    leaks.iter().for_each(|leak| println!("left: {leak}"));
    let runs = gateway.program().runs();
    if !runs {
        println!("the router has ended: {:#?}", gateway.program().log());
    }
    println!(
        "lost {lost} corrupt {corrupt} leaked {} panics {panics}",
        leaks.len()
    );
    Ok(runs && lost + corrupt + leaks.len() + panics == 0)
}

/// Waits until the router knows of every engine that it is able.
async fn all_able(gateway: &GatewayProcess, count: usize) -> Result<(), Failure> {
    for _ in 0..1_000 {
        if gateway.metric("paddler_upstream_able").await? as usize == count {
            return Ok(());
        }
        sleep(Duration::from_millis(20)).await;
    }
    Err("the router does not find all engines able".into())
}

/// Judges all requests; how many were lost, and how many answers were corrupt.
fn tell_verdicts(all: &[Outcome], journals: &Journals, fleet: &Fleet, show: usize) -> (usize, usize) {
    let (mut lost, mut corrupt) = (Vec::new(), Vec::new());
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let able =
        |engine: Option<usize>, outcome: &Outcome| fleet.was_able(engine, outcome.began, outcome.ended);
    for outcome in all {
        let word = match judge::judge(outcome, journals.of(&outcome.id), &able) {
            Verdict::Good => "whole",
            Verdict::Left => "left by the client",
            Verdict::Excused(word) => word,
            Verdict::Lost(text) => {
                lost.push(text);
                continue;
            }
            Verdict::Corrupt(text) => {
                corrupt.push(text);
                continue;
            }
        };
        *counts.entry(word).or_default() += 1;
    }
    counts
        .iter()
        .for_each(|(word, count)| println!("{count:8} {word}"));
    for (word, texts) in [("lost", &lost), ("corrupt", &corrupt)] {
        texts
            .iter()
            .take(show)
            .for_each(|text| println!("{word}: {text}"));
    }
    (lost.len(), corrupt.len())
}

/// What is left once everybody has gone.
async fn leaks(gateway: &GatewayProcess, fleet: &Arc<Fleet>) -> Result<Vec<String>, Failure> {
    for engine in &fleet.engines {
        let engine = engine.lock().await;
        if engine.program().is_some() {
            engine.fault(&json!([])).await?;
        }
    }
    let until = Instant::now() + QUIET;
    loop {
        let left = left(gateway, fleet).await?;
        if left.is_empty() || Instant::now() >= until {
            return Ok(left);
        }
        sleep(Duration::from_millis(200)).await;
    }
}

async fn left(gateway: &GatewayProcess, fleet: &Arc<Fleet>) -> Result<Vec<String>, Failure> {
    const MUST_BE_ZERO: [&str; 5] = [
        "paddler_in_flight_requests",
        "paddler_waiting_requests",
        "paddler_buffered_bytes",
        "paddler_settling_weight",
        "paddler_upstream_open_weight",
    ];
    let (_, page) = gateway.manage(http::Method::GET, "/metrics").await?;
    let mut left = Vec::new();
    for name in MUST_BE_ZERO {
        match sum(&page, name) {
            Some(0.0) => {}
            Some(value) => left.push(format!("{name} is {value}")),
            None => left.push(format!("there is no {name}")),
        }
    }
    for engine in &fleet.engines {
        let engine = engine.lock().await;
        if engine.program().is_none() {
            continue;
        }
        let tasks = engine.tasks().await?;
        if tasks > 0 {
            left.push(format!("{} has {tasks} tasks", engine.id));
        }
    }
    Ok(left)
}

/// The router's memory, four times a second.
async fn watch_memory(gateway: &GatewayProcess, end: Instant) -> Vec<u64> {
    let mut samples = Vec::new();
    while Instant::now() < end {
        samples.push(gateway.memory());
        sleep(Duration::from_millis(250)).await;
    }
    samples
}

/// Whether the last third of the time took about as much as the second: more than a third and 8 MiB above is growth.
fn tell_memory(samples: &[u64]) -> bool {
    let third = samples.len() / 3;
    let mean = |part: &[u64]| part.iter().sum::<u64>() / part.len().max(1) as u64;
    let (second, last) = (mean(&samples[third..2 * third]), mean(&samples[2 * third..]));
    let flat = last <= second + second / 3 + (8 << 20);
    let word = if flat { "flat" } else { "it grows" };
    println!(
        "memory of the router: {} MiB, then {} MiB: {word}",
        second >> 20,
        last >> 20
    );
    flat
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_doubles_is_not_flat() {
        let mib = |values: [u64; 6]| values.map(|value| value << 20);
        assert!(tell_memory(&mib([10, 10, 50, 50, 52, 51])));
        assert!(!tell_memory(&mib([10, 10, 50, 50, 99, 102])));
    }
}
