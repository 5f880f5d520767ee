//! The program `paddler`: arguments -> config -> the library -> serve. No routing logic lives here.

mod args;
mod check;
mod demo;
mod management;
mod run;
mod settings;
mod stop;

use std::process::ExitCode;

use clap::Parser;
use paddler_core::config::Mode;
use tracing_subscriber::EnvFilter;

use args::{Args, Command};

/// What went wrong, for the person at the terminal.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let args = Args::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match carry_out(args.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(command: Command) -> Result<(), Failure> {
    match command {
        Command::Check(check) => check::check(&check),
        Command::Gateway(serve) => runtime()?.block_on(run::run(Mode::Gateway, serve)),
        Command::Balancer(serve) => runtime()?.block_on(run::run(Mode::Balancer, serve)),
        Command::Demo => runtime()?.block_on(demo::demo()),
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}
