//! How is a real Envoy put in front of the program?

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use paddler_engine::{Engine, EngineConfig};
use tokio::net::TcpStream;

use crate::servers::free_port;
use crate::support::client::{Ask, Client, ask, eventually, get, total};
use crate::support::program::Gateway;

/// The two configs that users are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Example {
    OriginalDst,
    OverrideHost,
}

/// Envoy, and the picker that it asks.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) picker: Gateway,
    pub(crate) address: SocketAddr,
    child: Child,
}

/// The program, or why this test says nothing.
pub(crate) fn envoy() -> Option<String> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let named = env::var("PADDLER_ENVOY").ok();
        if named.is_none() {
            let message = b"skipped: PADDLER_ENVOY names no Envoy\n";
            // Written directly, it is not held back by the harness as what a passing test prints is.
            io::stderr().write_all(message).unwrap();
        }
        named
    });
    let required = env::var("PADDLER_REQUIRE_ENVOY").is_ok_and(|required| required == "1");
    assert!(
        found.is_some() || !required,
        "PADDLER_REQUIRE_ENVOY is 1, and PADDLER_ENVOY names none"
    );
    found.clone()
}

/// An engine that takes no time and says the same thing each time.
pub(crate) async fn engine() -> Engine {
    let config = EngineConfig::llamacpp("tiny").instant().fixed_ids(true);
    Engine::start(config).await.unwrap()
}

impl World {
    /// `edit` may change the example's text.
    pub(crate) async fn start(
        envoy: &str,
        example: Example,
        upstreams: &[SocketAddr],
        more: &[&str],
        edit: impl FnOnce(String) -> String,
    ) -> Self {
        let named: Vec<_> = (1..)
            .zip(upstreams)
            .map(|(number, at)| format!("e-{number}=http://{at}"))
            .collect();
        let picker = Gateway::start("endpoint-picker", &named, more);
        for number in 1..=upstreams.len() {
            let limit = format!("paddler_upstream_report_age_seconds{{upstream=\"e-{number}\"}}");
            eventually("each engine was asked", async || {
                ask(picker.management, get("/metrics"))
                    .await
                    .text()
                    .contains(&limit)
            })
            .await;
        }
        let name = match example {
            Example::OriginalDst => "original-dst",
            Example::OverrideHost => "override-host",
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bindings/envoy/examples");
        let mut text = fs::read_to_string(root.join(format!("{name}.yaml"))).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut put = |example: u16, port: u16| {
            let port_value = |port| format!("port_value: {port}}}");
            assert!(text.contains(&port_value(example)), "{name} has a port {example}");
            text = text.replace(&port_value(example), &port_value(port));
        };
        put(8080, address.port());
        put(9002, picker.address.port());
        if example == Example::OverrideHost {
            put(8001, upstreams[0].port());
            put(8002, upstreams[1].port());
        }
        let child = run(envoy, &edit(text));
        eventually("Envoy listens", async || {
            TcpStream::connect(address).await.is_ok()
        })
        .await;
        Self {
            picker,
            address,
            child,
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::to(self.address)
    }

    pub(crate) async fn ask(&self, request: Ask) -> crate::support::client::Answer {
        ask(self.address, request).await
    }

    /// A figure on the picker's page, over all its labels.
    pub(crate) async fn figure(&self, name: &str) -> f64 {
        let page = ask(self.picker.management, get("/metrics")).await;
        assert!(
            page.text().contains(&format!("# TYPE {name} ")),
            "no figure {name}"
        );
        total(page.text(), name)
    }

    /// Nothing is counted any more.
    pub(crate) async fn quiet(&self) {
        for name in [
            "paddler_in_flight_requests",
            "paddler_upstream_open_weight",
            "paddler_picker_streams",
        ] {
            eventually(name, async || self.figure(name).await == 0.0).await;
        }
    }
}

fn run(envoy: &str, config: &str) -> Child {
    static CONFIGS: AtomicU32 = AtomicU32::new(0);
    let number = CONFIGS.fetch_add(1, Relaxed);
    let file =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("envoy-{}-{number}.yaml", std::process::id()));
    fs::write(&file, config).unwrap();
    let mut command = Command::new(envoy);
    command
        .arg("-c")
        .arg(file)
        .args(["--concurrency", "1", "-l", "error", "--disable-hot-restart"]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

impl Drop for World {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
