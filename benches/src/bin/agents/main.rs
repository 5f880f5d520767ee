//! What CPU time do the statuses of hundreds of agents take, and does the router answer beside them?
//!
//! ```sh
//! cargo run --release -p paddler-benches --bin agents
//! ```
//!
//! The router is a process of its own, so that the time is its alone; agents, clients and whoever asks for documents are in this
//! one. Each case has a router of its own. What is printed are the medians of the rounds, as tables in Markdown.

mod cases;
mod speakers;
mod traffic;

use std::path::Path;
use std::process::ExitCode;

use cases::{Case, Seen};
use clap::Parser;
use paddler_benches::harness::Failure;
use paddler_benches::harness::engines::EngineProcess;
use paddler_benches::harness::figures::{median, percentile};
use paddler_benches::harness::programs::{Programs, raise_open_files};
use paddler_benches::harness::trial::run;
use traffic::{DOCUMENTS, Times};

/// Has agents speak and clients ask, and tells what that costs.
#[derive(Debug, Parser)]
struct Arguments {
    /// The most agents.
    #[arg(long, default_value_t = 500)]
    agents: usize,
    /// Requests a second, where there are any.
    #[arg(long, default_value_t = 1_000)]
    rate: u32,
    /// How long each case is measured.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// How often all of them are.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// What the one engine behind all upstreams serves.
const MODEL: &str = "llama-3.1-8b-instruct";

fn main() -> ExitCode {
    run("agents", trial)
}

async fn trial(arguments: &Arguments, programs: &Programs, folder: &Path) -> Result<bool, Failure> {
    raise_open_files()?;
    // At every address of this machine, so that each upstream has one of its own.
    let engine =
        "--address=0.0.0.0 --slots=1024 --prefill-tokens-per-second=inf --decode-tokens-per-second=inf";
    let mut words: Vec<_> = ["--face=llamacpp", "--model", MODEL].into();
    words.extend(engine.split(' '));
    let engine = EngineProcess::start(&programs.engine, "engine", &words, folder).await?;
    let cases = Case::all(arguments.agents, arguments.rate);
    let mut seen = vec![Vec::new(); cases.len()];
    for round in 0..arguments.rounds {
        for (case, seen) in cases.iter().zip(&mut seen) {
            eprintln!("round {} of {}: {case}", round + 1, arguments.rounds);
            seen.push(case.run(programs, folder, &engine, arguments.seconds).await?);
        }
    }
    print_cpu(&cases, &seen);
    print_times(&cases, &seen);
    let all: Vec<_> = seen.iter().flatten().collect();
    let errors: usize = all.iter().map(|seen| seen.errors()).sum();
    let panics: usize = all.iter().map(|seen| seen.panics).sum();
    println!("\n{errors} errors, {panics} panics");
    Ok(errors + panics == 0)
}

/// Of each case, what the router took.
fn print_cpu(cases: &[Case], seen: &[Vec<Seen>]) {
    println!("| agents | what they say | requests | user | system | of a core | memory |");
    println!("|---:|---|---|---:|---:|---:|---:|");
    for (case, seen) in cases.iter().zip(seen) {
        let middle = |of: fn(&Seen) -> f64| median(seen.iter().map(of));
        let (user, system) = (middle(|seen| seen.cpu[0]), middle(|seen| seen.cpu[1]));
        let whole = middle(|seen| seen.cpu[0] + seen.cpu[1]);
        let memory = middle(|seen| seen.memory as f64) / f64::from(1 << 20);
        println!(
            "| {} | {user:.0} ms/s | {system:.0} ms/s | {:.1} % | {memory:.0} MiB |",
            case.columns(),
            whole / 10.0
        );
    }
    println!();
}

/// Of each case with requests, how long answers took, over all rounds.
fn print_times(cases: &[Case], seen: &[Vec<Seen>]) {
    println!("| with | what | bytes | answers | p50 | p95 | p99 | most |");
    println!("|---|---|---:|---:|---:|---:|---:|---:|");
    for (case, seen) in cases.iter().zip(seen) {
        let row = |what: &str, of: &dyn Fn(&Seen) -> &Times| {
            let mut all = Times::default();
            seen.iter().for_each(|seen| all.join(of(seen)));
            let mut taken = all.taken;
            if taken.is_empty() {
                return;
            }
            taken.sort_by(f64::total_cmp);
            let [p50, p95, p99, most] = [50, 95, 99, 100].map(|percent| percentile(&taken, percent));
            println!(
                "| {case} | {what} | {} | {} | {p50:.1} ms | {p95:.1} ms | {p99:.1} ms | {most:.1} ms |",
                all.bytes,
                taken.len()
            );
        };
        row("chats", &|seen| &seen.chats);
        for (place, path) in DOCUMENTS.iter().enumerate() {
            row(&format!("`{path}`"), &|seen| &seen.documents[place]);
        }
        row("a drain, until its event", &|seen| &seen.events);
    }
}
