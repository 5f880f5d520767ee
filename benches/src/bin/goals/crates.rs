//! On how many crates does an embedder stand?

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use paddler_benches::harness::Failure;

use super::goals;
use super::table::Row;

/// Crates that are compiled on this machine for paddler-core with its default features, itself left out.
pub(crate) fn crates() -> Result<Vec<Row>, Failure> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "tree",
            "-p",
            "paddler-core",
            "-e",
            "normal",
            "--prefix",
            "none",
            "--locked",
        ])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let many = count(&String::from_utf8(output.stdout)?) as f64;
    let what = "crates for an embedder, with default features";
    Ok(vec![Row::new(what, goals::CRATES, many)])
}

/// Each by its name and version, however often and with whatever remark it stands there.
fn count(tree: &str) -> usize {
    let names = tree.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((words.next().filter(|name| !name.is_empty())?, words.next()?))
    });
    let names: BTreeSet<_> = names.filter(|(name, _)| *name != "paddler-core").collect();
    names.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_crate_counts_once_and_the_library_itself_does_not() {
        let tree = "paddler-core v0.1.0 (/here)\nserde v1.0.0\nserde_derive v1.0.0 (proc-macro)\n\nserde v1.0.0 (*)\nsyn v1.0.0\nsyn v2.0.0\n";
        assert_eq!(count(tree), 4);
    }
}
