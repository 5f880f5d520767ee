//! Does the table of goals hold what is measured, and does it tell what can be?

use std::path::Path;
use std::process::Command;

/// What is printed, and what is said besides.
fn goals(arguments: &str) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_goals"));
    let output = command
        .args(arguments.split(' '))
        .output()
        .expect("it can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.success(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// The figure in the row that begins so, with its unit.
fn reached(table: &str, what: &str) -> f64 {
    let row = table.lines().find(|line| line.starts_with(&format!("| {what}")));
    let row = row.unwrap_or_else(|| panic!("no {what} in {table}"));
    let reached = row.split(" | ").nth(2).and_then(|cell| cell.split(' ').next());
    reached
        .and_then(|figure| figure.parse().ok())
        .unwrap_or_else(|| panic!("no figure in {row}"))
}

#[test]
fn what_is_read_and_what_is_compiled_stands_beside_its_goal() {
    let (done, table, log) = goals("--only reading,crates --rounds 1");
    assert!(done, "{table}{log}");
    for what in ["facts from a chat", "facts from 16 MiB", "a page of vLLM's"] {
        assert!(reached(&table, what) > 0.0);
    }
    assert!(
        (10.0..100.0).contains(&reached(&table, "crates for an embedder")),
        "{table}"
    );
    assert!(
        !table.contains("pick,") && table.contains("built for "),
        "{table}"
    );
}

#[test]
fn the_program_is_started_asked_and_watched() {
    // Built already, by a test of the whole workspace.
    let paddler = Path::new(env!("CARGO_BIN_EXE_goals")).with_file_name("paddler");
    let few = "--seconds 0.5 --upstreams 4 --starts 1 --streams 8 --prompts 40 --names 40";
    let mut arguments = format!("--only polls,start,streams,flat {few}");
    if paddler.is_file() {
        arguments.push_str(&format!(" --paddler {}", paddler.display()));
    }
    let (done, table, log) = goals(&arguments);
    assert!(done, "{table}{log}");
    for what in ["4 upstreams of vLLM", "from start to ready", "the program's file"] {
        assert!(reached(&table, what) >= 0.0, "{table}");
    }
    assert!(
        table.contains("after another 40 different prompts")
            && table.contains("after another 40 different names"),
        "{table}"
    );
    assert_eq!(
        table.matches("memory of an idle stream, of 8, ").count(),
        2,
        "{table}"
    );
}

#[test]
fn what_cannot_be_measured_is_an_error_that_tells_what_can() {
    let (done, _, log) = goals("--only nothing");
    assert!(!done && log.contains("picks") && log.contains("growth"), "{log}");
}
