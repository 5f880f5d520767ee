//! How are the instructions of each case counted, and no others?
//!
//! This program runs itself under callgrind, which counts within [`counted`] only and writes a file each time that it is left.

use std::path::Path;
use std::process::Command;

use paddler_benches::harness::Failure;

use super::cases::Case;

#[inline(never)]
fn counted(run: &mut dyn FnMut(), runs: u32) {
    for _ in 0..runs {
        run();
    }
}

/// Runs all cases, each counted by itself.
pub(crate) fn run_counted(cases: Vec<Case>) -> Result<(), Failure> {
    for case in cases {
        let mut run = (case.make)()?;
        // Scratch memory grows the first time.
        run();
        counted(&mut *run, case.runs);
    }
    Ok(())
}

/// The instructions of each case whose name contains this, in order.
pub(crate) fn count(only: Option<&str>) -> Result<Vec<u64>, Failure> {
    let folder = std::env::temp_dir().join(format!("paddler-gates-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let result = count_in(&folder, only);
    std::fs::remove_dir_all(&folder)?;
    result
}

fn count_in(folder: &Path, only: Option<&str>) -> Result<Vec<u64>, Failure> {
    let out = folder.join("out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        // By its whole name: of two options with the same wildcards callgrind holds to the first only.
        .args([
            "--toggle-collect=gates::callgrind::counted",
            "--dump-after=gates::callgrind::counted",
        ])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe()?)
        .arg("--counted")
        .args(only.iter().flat_map(|only| ["--only", only]))
        .output()
        .map_err(|error| format!("valgrind cannot be started ({error}): apt-get install -y valgrind"))?;
    if !output.status.success() {
        return Err(format!("callgrind: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let mut counts = Vec::new();
    while let Ok(text) = std::fs::read_to_string(folder.join(format!("out.{}", counts.len() + 1))) {
        counts.push(total(&text).ok_or("a file of callgrind's without a total")?);
    }
    // The last one is written at the end of the program, and holds nothing.
    Ok(counts)
}

/// What all of a file's instructions are.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("summary:"))?;
    line.trim().parse().ok()
}
