//! The program `paddler`: arguments -> config -> the library -> serve. No routing logic lives here.

mod agent;
mod api;
mod args;
mod check;
mod control;
mod cors;
mod demo;
mod explain;
mod files;
mod front;
mod hash_key;
mod health;
mod install;
mod management;
mod open_files;
mod page;
mod reload;
mod replay;
mod run;
mod secrets;
mod settings;
mod stop;
mod top;
mod tree;
mod written;

use std::future::Future;
use std::io::Write as _;
use std::process::ExitCode;

use paddler_core::config::Mode;
use tracing_subscriber::EnvFilter;

use args::{Args, Command};
use front::Front;

/// Where memory comes from. The C libraries' own give back to the system what the next request asks for again: a small chat takes
/// 8 % more CPU time with glibc's, and a fifth more with musl's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What went wrong, for the person at the terminal.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let args = Args::read();
    // These are to be read; what they log is not their point.
    start_log(
        if matches!(
            args.command,
            Command::Demo | Command::Explain(_) | Command::Replay(_) | Command::Top(_)
        ) {
            "warn"
        } else {
            "info"
        },
    );
    match carry_out(args.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Says it on standard error. If nobody reads that, the exit status tells.
fn complain(what: &dyn std::fmt::Display) {
    writeln!(std::io::stderr(), "{what}").ok();
}

/// Prints it on standard output. Who reads that may have read enough.
fn print(text: &[u8]) -> Result<(), Failure> {
    match std::io::stdout().write_all(text) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Logs on standard error, by RUST_LOG, or else from this level on.
fn start_log(default: &str) {
    let directives = std::env::var("RUST_LOG").unwrap_or_default();
    let said = Some(directives.as_str()).filter(|said| !said.trim().is_empty());
    let filter = EnvFilter::try_new(quiet(said.unwrap_or(default)));
    let unreadable = filter.as_ref().err().map(ToString::to_string);
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| EnvFilter::new(default)))
        .with_writer(std::io::stderr)
        // Plain text, whoever reads it: a terminal, a file, a collector.
        .with_ansi(false)
        // Whoever read the log may be gone, which is no reason to serve nobody.
        .log_internal_errors(false)
        .init();
    if let Some(error) = unreadable {
        tracing::warn!(%error, "RUST_LOG cannot be read; the log is that of RUST_LOG={default}");
    }
}

/// What is said, without the frames and records of the protocols below, which would drown it: who wants those names them, as
/// in `RUST_LOG=debug,h2=debug`.
fn quiet(said: &str) -> String {
    if said.contains("debug") || said.contains("trace") {
        format!("h2=info,hyper=info,hyper_util=info,rustls=info,{said}")
    } else {
        said.to_owned()
    }
}

fn carry_out(command: Command) -> Result<(), Failure> {
    match command {
        Command::Check(check) => check::check(&check),
        Command::Explain(args) => explain::explain(&args),
        Command::Replay(args) => replay::replay(&args),
        Command::Tree(args) => tree::tree(&args),
        Command::Gateway(serve) => to_its_end(run::run(Mode::Gateway, serve, Front::Clients)),
        Command::Balancer(args) => {
            let args::Balancer { mut serve, old } = args;
            let mode = if old.check_model {
                Mode::Gateway
            } else {
                Mode::Balancer
            };
            old.put_into(&mut serve)?;
            to_its_end(run::run(mode, serve, Front::Clients))
        }
        Command::Agent(args) => to_its_end(agent::run(*args)),
        #[cfg(feature = "envoy")]
        Command::EndpointPicker(picker) => {
            let (options, serve) = picker.split();
            to_its_end(run::run(Mode::Gateway, serve, Front::Envoy(options)))
        }
        #[cfg(not(feature = "envoy"))]
        Command::EndpointPicker { .. } => Err(
            "this program is built without the endpoint picker for Envoy: build it with \
             `cargo install --path paddler-bin --features envoy`"
                .into(),
        ),
        Command::Health(args) => health::health(&args),
        Command::HashKey => hash_key::hash_key(),
        Command::Schema => install::schema(),
        Command::Completions { shell } => install::completions(shell),
        Command::Man { folder } => install::man(&folder),
        Command::Top(args) => to_its_end(top::top(args)),
        Command::Demo => to_its_end(demo::demo()),
    }
}

/// Runs a task, and what it has begun, until the task ends.
fn to_its_end<T>(task: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(task);
    // A name that is still being looked up would hold up the end for as long as that takes.
    runtime.shutdown_background();
    result
}
