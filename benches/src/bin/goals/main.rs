//! What was to be reached, and what is?
//!
//! ```sh
//! cargo run --release -p paddler-benches --bin goals                 # all of it, in some minutes
//! cargo run --release -p paddler-benches --bin goals -- --only picks
//! cargo run --release -p paddler-benches --bin goals -- --help       # what each part measures
//! ```
//!
//! It prints a table in Markdown of what `proxies` does not measure, and judges nothing: the figures are goals.
//!
//! What is done in this process is measured in CPU time of its thread, so that a machine that does other things tells nearly the
//! same; the router's CPU time is the system's count.

mod arguments;
mod crates;
mod decisions;
mod events;
mod goals;
mod growth;
mod http2;
mod model;
mod program;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use paddler_benches::baseline::processor;
use paddler_benches::harness::Failure;
use paddler_benches::harness::programs::{Programs, raise_open_files};
use paddler_benches::harness::trial::run_in_folder;
use tokio::sync::OnceCell;

use arguments::{Arguments, Part};
use program::{Place, Polled};
use table::Row;

fn main() -> ExitCode {
    run_in_folder("goals", async |arguments: &Arguments, folder| {
        raise_open_files()?;
        let run = Run::new(arguments, folder);
        let mut rows = Vec::new();
        for part in arguments.parts() {
            eprintln!("{part:?}");
            rows.extend(run.rows(part).await?);
        }
        if !rows.is_empty() {
            println!("{}", table::table(&rows));
        }
        if arguments.parts().any(|part| part == Part::Growth) {
            run.growth().await?;
        }
        println!("{}", machine());
        Ok(true)
    })
}

/// What is asked for, and what more than one part needs: it is had once, when the first one asks.
struct Run<'a> {
    arguments: &'a Arguments,
    folder: &'a Path,
    paddler: OnceCell<PathBuf>,
    polled: OnceCell<Polled>,
}

impl<'a> Run<'a> {
    fn new(arguments: &'a Arguments, folder: &'a Path) -> Self {
        Self {
            arguments,
            folder,
            paddler: OnceCell::new(),
            polled: OnceCell::new(),
        }
    }

    /// What belongs into the table of goals.
    async fn rows(&self, part: Part) -> Result<Vec<Row>, Failure> {
        let arguments = self.arguments;
        match part {
            Part::Picks => decisions::picks(arguments.rounds),
            Part::Threads => decisions::threads(arguments.rounds),
            Part::Reading => decisions::reading(arguments.rounds),
            Part::Polls => Ok(self.polled().await?.rows()),
            Part::Start => program::start(arguments, self.place().await?).await,
            Part::Streams => program::streams(arguments, self.place().await?).await,
            Part::Events => events::events(arguments, self.place().await?).await,
            Part::Flat => program::flat(arguments, self.place().await?).await,
            Part::Crates => crates::crates(),
            // Tables of its own.
            Part::Growth => Ok(Vec::new()),
        }
    }

    /// Prints how costs grow, and what follows.
    async fn growth(&self) -> Result<(), Failure> {
        let laws = growth::laws(self.arguments.rounds)?;
        let costs = model::Costs::of(&laws, self.polled().await?)?;
        println!("{}\n{}", growth::table(&laws), model::tables(&costs));
        Ok(())
    }

    async fn polled(&self) -> Result<&Polled, Failure> {
        let poll = async || program::polls(self.arguments, self.place().await?).await;
        self.polled.get_or_try_init(poll).await
    }

    async fn place(&self) -> Result<Place<'_>, Failure> {
        let build = async || match &self.arguments.paddler {
            Some(file) => Ok(file.clone()),
            None => Programs::build().map(|programs| programs.paddler),
        };
        Ok(Place::new(
            self.paddler.get_or_try_init(build).await?,
            self.folder,
        ))
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
