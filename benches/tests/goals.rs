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

/// The flag for the program, where a test of the whole workspace has built it already.
fn paddler() -> String {
    let paddler = Path::new(env!("CARGO_BIN_EXE_goals")).with_file_name("paddler");
    if paddler.is_file() {
        format!(" --paddler {}", paddler.display())
    } else {
        String::new()
    }
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
    let few = "--seconds 0.5 --upstreams 4 --starts 1 --streams 8 --prompts 40 --names 40";
    let (done, table, log) = goals(&format!("--only polls,start,streams,flat {few}{}", paddler()));
    assert!(done, "{table}{log}");
    for what in [
        "4 upstreams of vLLM",
        "from start to the first answer",
        "the program's file",
    ] {
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
fn what_follows_goes_by_the_polls_of_the_table() {
    let few = "--seconds 0.5 --upstreams 4 --rounds 1";
    let (done, tables, log) = goals(&format!("--only polls,growth {few}{}", paddler()));
    assert!(done, "{tables}{log}");
    assert!(!tables.contains("NaN"), "{tables}");
    assert_eq!(log.matches("polls 4 upstreams").count(), 1, "{log}");
    for row in [
        "| publish of a new load |",
        "| a pick (`gateway`, miss), at all levels |",
        "| facts of a body: image |",
    ] {
        assert!(tables.contains(row), "no {row} in {tables}");
    }
}

#[test]
fn what_is_beyond_a_flags_range_is_an_error_before_anything_is_measured() {
    let (done, table, log) = goals("--seconds -1");
    assert!(
        !done && table.is_empty() && log.contains("--seconds"),
        "{table}{log}"
    );
    assert!(log.contains("from 0.5 to 3600"), "{log}");
}

#[test]
fn what_cannot_be_measured_is_an_error_that_tells_what_can() {
    let (done, _, log) = goals("--only nothing");
    assert!(!done && log.contains("picks") && log.contains("growth"), "{log}");
}
