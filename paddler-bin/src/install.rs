//! What do those who install the program put beside it: for editors, shells and `man`?

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use paddler_core::config::{Config, Registry};

use crate::args::Args;
use crate::{Failure, print};

/// Prints what a config file may hold, as JSON Schema.
pub(crate) fn schema() -> Result<(), Failure> {
    let schema = Config::schema(&Registry::new());
    print(format!("{schema:#}\n").as_bytes())
}

/// Prints what makes a shell complete commands and flags.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(), "paddler", &mut script);
    print(&script)
}

/// Writes a page for the program and one for each command into a folder.
pub(crate) fn man(folder: &Path) -> Result<(), Failure> {
    let told = |error: io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(told)?;
    // `paddler help` says what the pages say.
    let command = shown().disable_help_subcommand(true);
    clap_mangen::generate_to(command, folder).map_err(told)?;
    Ok(())
}

/// The commands that the help shows: one that this program is built without says so, and is not to be offered.
fn shown() -> Command {
    let all = Args::command();
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set());
    let shown: Vec<_> = shown.cloned().collect();
    let about = all.get_about().cloned().unwrap_or_default();
    Command::new("paddler")
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .subcommands(shown)
}
