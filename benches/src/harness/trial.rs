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
    run_in_folder(name, async |arguments: &A, folder| {
        trial(arguments, &Programs::build()?, folder).await
    })
}

/// The same for a trial that sees to its programs itself.
pub fn run_in_folder<A: Parser>(
    name: &str,
    trial: impl AsyncFnOnce(&A, &Path) -> Result<bool, Failure>,
) -> ExitCode {
    let arguments = A::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = runtime.map_err(Failure::from).and_then(|runtime| {
        let folder = std::env::temp_dir().join(format!("paddler-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let result = runtime.block_on(trial(&arguments, &folder));
        std::fs::remove_dir_all(&folder)?;
        result
    });
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}
