//! What was to be reached, and what is?
//!
//! ```sh
//! cargo run --release -p paddler-benches --bin goals                 # all of it, in some minutes
//! cargo run --release -p paddler-benches --bin goals -- --only picks
//! ```
//!
//! It prints a table in Markdown of what `proxies` does not measure, and judges nothing: the figures are goals.
//!
//! - `picks`: a pick with each built-in tree, as in the bench `scheduling`; nothing is reserved.
//! - `threads`: how fast each of two threads picks, of what one alone does, while snapshots are published.
//! - `reading`: facts from bodies, and an engine's page.
//! - `polls`: the CPU time of the program that asks a thousand engines how they are, as it would be were all asked in time.
//! - `start`: from the start of the program until it is ready, with one engine; and the size of its file.
//! - `streams`: memory of a stream that waits for its next event.
//! - `events`: how late an event comes through the router, beside how late without.
//! - `flat`: memory that is more after many prompts and names, each of which comes once.
//! - `crates`: those that are compiled for an embedder.
//! - `growth`: tables of their own. How costs grow: what is fixed, and what each upstream, model, filter, byte more adds. And what
//!   follows for a router, and for 100 of them over 100,000 upstreams.
//!
//! What is done in this process is measured in CPU time of its thread, so that a machine that does other things tells nearly the
//! same; the program's CPU time is the system's count.

mod crates;
mod decisions;
mod events;
mod growth;
mod http2;
mod model;
mod program;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use paddler_benches::baseline::processor;
use paddler_benches::harness::Failure;
use paddler_benches::harness::programs::{Programs, raise_open_files};
use paddler_benches::harness::trial::run_in_folder;

use program::Place;
use table::Row;

/// Measures what was to be reached, and prints it beside the goals.
#[derive(Debug, Parser)]
struct Arguments {
    /// Measure this alone; more of them with commas between.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// How many rounds there are of what takes no time.
    #[arg(long, default_value_t = 51)]
    rounds: usize,
    /// How long the program is measured while it asks engines how they are, and while it passes on events.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// How many engines it asks.
    #[arg(long, default_value_t = 1_000)]
    upstreams: usize,
    /// How often it is started.
    #[arg(long, default_value_t = 10)]
    starts: usize,
    /// How many idle streams it holds.
    #[arg(long, default_value_t = 1_000)]
    streams: usize,
    /// How many prompts it is asked, and as many before.
    #[arg(long, default_value_t = 200_000)]
    prompts: usize,
    /// For how many models it is asked that nobody has, and for as many before.
    #[arg(long, default_value_t = 100_000)]
    names: usize,
    /// The program `paddler` [default: this workspace's, built in the profile of this program].
    #[arg(long)]
    paddler: Option<PathBuf>,
}

/// What is measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Picks,
    Threads,
    Reading,
    Polls,
    Start,
    Streams,
    Events,
    Flat,
    Crates,
    Growth,
}

fn main() -> ExitCode {
    run_in_folder("goals", async |arguments: &Arguments, folder| {
        raise_open_files()?;
        let is_wanted = |part: &Part| arguments.only.is_empty() || arguments.only.contains(part);
        let mut rows = Vec::new();
        for part in Part::value_variants().iter().filter(|part| is_wanted(part)) {
            eprintln!("{part:?}");
            rows.extend(measure(*part, arguments, folder).await?);
        }
        if !rows.is_empty() {
            println!("{}", table::table(&rows));
        }
        if is_wanted(&Part::Growth) {
            let laws = growth::laws(arguments.rounds)?;
            let paddler = paddler(arguments)?;
            let polled = program::polls(arguments, Place::new(&paddler, folder)).await?;
            println!("{}", growth::table(&laws));
            println!("{}", model::tables(&model::Costs::of(&laws, &polled)?));
        }
        println!("{}", machine());
        Ok(true)
    })
}

async fn measure(part: Part, arguments: &Arguments, folder: &Path) -> Result<Vec<Row>, Failure> {
    match part {
        Part::Picks => return decisions::picks(arguments.rounds),
        Part::Threads => return decisions::threads(arguments.rounds),
        Part::Reading => return decisions::reading(arguments.rounds),
        Part::Crates => return crates::crates(),
        // A table of its own.
        Part::Growth => return Ok(Vec::new()),
        Part::Polls | Part::Start | Part::Streams | Part::Events | Part::Flat => {}
    }
    let paddler = paddler(arguments)?;
    let place = Place::new(&paddler, folder);
    match part {
        Part::Polls => Ok(program::polls(arguments, place).await?.rows()),
        Part::Start => program::start(arguments, place).await,
        Part::Streams => program::streams(arguments, place).await,
        Part::Events => events::events(arguments, place).await,
        _ => program::flat(arguments, place).await,
    }
}

fn paddler(arguments: &Arguments) -> Result<PathBuf, Failure> {
    match &arguments.paddler {
        Some(file) => Ok(file.clone()),
        None => Ok(Programs::build()?.paddler),
    }
}

/// On what all this was measured.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("an unknown number");
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    format!(
        "On {cores} cores ({}), with {load} processes ready to run in the last minute; built for {profile}.",
        processor()
    )
}
