//! Does the comparison measure the router alone, and say what is missing?

use std::path::Path;
use std::process::Command;

#[test]
fn paddler_alone_is_measured_at_every_kind_of_work() {
    let program = Path::new(env!("CARGO_BIN_EXE_proxies"));
    let mut command = Command::new(program);
    command.args(
        "--peers none --seconds 0.5 --rounds 1 --connections 4 --streams 40 --events 100 --uploads 2"
            .split(' '),
    );
    // Built already, by a test of the whole workspace.
    let paddler = program.with_file_name("paddler");
    if paddler.is_file() {
        command.arg("--paddler").arg(paddler);
    }
    let output = command.output().unwrap();
    let (out, log) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}{log}");
    for row in ["| plain | request |", "| stream | event |", "| large | request |"] {
        let rest = out
            .lines()
            .find_map(|line| line.strip_prefix(row))
            .unwrap_or_else(|| panic!("no {row} in {out}"));
        let figure = rest.trim_start().split(' ').next();
        assert!(
            figure.is_some_and(|figure| figure.parse::<f64>().is_ok()),
            "{row}{rest}"
        );
    }
    assert!(out.contains("| paddler |"), "{out}");
}

#[test]
fn a_program_that_is_not_there_is_an_error_that_tells_how_to_build_it() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_proxies"));
    let output = command
        .args(["--peers", "none", "--paddler", "/nonexistent/paddler"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("cargo build --release -p paddler-bin"), "{log}");
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_can() {
    for (flag, range) in [
        ("--seconds=-1", "from 0.5 to 3600"),
        ("--seconds=NaN", "from 0.5 to 3600"),
        ("--rounds=0", "from 1 to 1000"),
        ("--events=1001", "from 1 to 1000"),
        ("--rate=0", "from 1 to 1000000"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_proxies"));
        let output = command.args(["--peers", "none", flag]).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{flag}");
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(log.contains(range), "{flag}: {log}");
    }
}
