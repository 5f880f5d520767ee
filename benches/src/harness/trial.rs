//! How does a program that tries the router begin and end?

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use super::Failure;
use super::programs::Programs;

/// Reads the command line, builds router and engine, and runs the trial with a folder of its own, which is gone afterwards.
/// The trial says whether the router stood it; `name` is that of the program.
pub fn run<A: Parser>(
    name: &str,
    trial: impl AsyncFnOnce(&A, &Programs, &Path) -> Result<bool, Failure>,
) -> ExitCode {
    let arguments = A::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = runtime
        .map_err(Failure::from)
        .and_then(|runtime| runtime.block_on(in_folder(name, &arguments, trial)));
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn in_folder<A>(
    name: &str,
    arguments: &A,
    trial: impl AsyncFnOnce(&A, &Programs, &Path) -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let programs = Programs::build()?;
    let folder = std::env::temp_dir().join(format!("paddler-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let result = trial(arguments, &programs, &folder).await;
    std::fs::remove_dir_all(&folder)?;
    result
}
