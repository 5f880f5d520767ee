//! Does the endpoint picker say where Envoy asks?

use crate::path;
use crate::support::program::{Program, run};

#[tokio::test]
async fn the_picker_has_a_port_of_its_own_and_its_help_says_so() {
    let help = run(&["endpoint-picker", "--help"], &[]).await.out;
    assert!(
        help.contains("Where Envoy asks, by gRPC [default: 127.0.0.1:9002]"),
        "{help}"
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:9002");
    let picker = [
        "endpoint-picker",
        "--upstream=http://127.0.0.1:9",
        "--management=off",
    ];
    let program = Program::start(&picker, &[]);
    // Held by us, or by whoever else has it.
    let said =
        program.logs(|line| line.contains("Envoy asks here") || line.contains("cannot be listened on"));
    assert!(said.contains("127.0.0.1:9002"), "{said}");
    drop(taken);
    let file = path("picker_listen.yaml", "listen: 127.0.0.1:0\n");
    let program = Program::start(&[&picker[..], &["--config", &file]].concat(), &[]);
    let said = program.logs(|line| line.contains("Envoy asks here"));
    assert!(!said.contains(":9002"), "{said}");
}

#[tokio::test]
async fn a_picker_that_others_may_reach_warns_of_it() {
    let args = [
        "endpoint-picker",
        "--upstream=http://127.0.0.1:9",
        "--management=off",
        "--listen=0.0.0.0:0",
    ];
    let program = Program::start(&args, &[]);
    program.logs(|line| line.contains("WARN") && line.contains("let only Envoy get there"));
}
