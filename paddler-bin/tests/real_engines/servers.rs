//! Which servers are there?

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use paddler_core::observe::names::{self, Family};
use tokio::sync::{Mutex, MutexGuard};

use crate::support::client::{Client, ask, eventually, get, series, total};
use crate::support::program::{Gateway, Lines, signal};

/// Slots of each server.
pub(crate) const SLOTS: usize = 4;

/// A Python that has what is needed.
#[derive(Debug, Clone)]
pub(crate) struct Python(String);

impl Python {
    fn find() -> Result<Self, String> {
        let python = env::var("PADDLER_PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let mut import = Command::new(&python);
        import.args(["-c", "import xllamacpp, gguf, openai"]);
        match import.output() {
            Ok(done) if done.status.success() => Ok(Self(python)),
            Ok(done) => {
                let said = String::from_utf8_lossy(&done.stderr);
                Err(format!(
                    "{python}: {}",
                    said.lines().last().unwrap_or("the import failed")
                ))
            }
            Err(error) => Err(format!("{python}: {error}")),
        }
    }

    /// A command that runs one of the scripts beside this file.
    pub(crate) fn script(&self, name: &str) -> Command {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real_engines");
        let mut command = Command::new(&self.0);
        command
            .arg(scripts.join(name))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// The file of a model; each name has weights of its own.
    fn model(&self, name: &str) -> PathBuf {
        static DRAFTS: AtomicU32 = AtomicU32::new(0);
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let draft = format!("{name}.{}-{}", std::process::id(), DRAFTS.fetch_add(1, SeqCst));
        let (file, draft) = (dir.join(format!("{name}.gguf")), dir.join(draft));
        let seed = name.bytes().map(u32::from).sum::<u32>().to_string();
        let mut make = self.script("make_tiny_gguf.py");
        let made = make
            .args(["--name", name, "--seed", &seed, "--out"])
            .arg(&draft)
            .status()
            .unwrap();
        assert!(made.success(), "{name}: {made}");
        // Others may be loading it: they keep the one that they have begun with.
        fs::rename(draft, &file).unwrap();
        file
    }
}

/// A server of llama.cpp. Dropped, or left behind by a test that ended otherwise, it ends.
#[derive(Debug)]
pub(crate) struct Llama {
    pub(crate) address: SocketAddr,
    child: Child,
    // It lives as long as this is open.
    _stdin: ChildStdin,
}

impl Llama {
    pub(crate) fn start(python: &Python, model: &str, port: u16) -> Self {
        let mut command = python.script("xllama_server.py");
        command
            .arg("-m")
            .arg(python.model(model))
            .args(["--alias", model, "--port", &port.to_string()]);
        command.args(["-np", &SLOTS.to_string(), "-c", "16384", "--metrics"]);
        if model == "tiny-e" {
            command.arg("--embeddings");
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let out = Lines::of(child.stdout.take().unwrap());
        let line = out.wait_for(|line| line.starts_with("listening on http://"));
        let address = line.trim_start_matches("listening on http://").parse().unwrap();
        Self {
            address,
            child,
            _stdin: stdin,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends it as a crash does.
    pub(crate) fn crash(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    pub(crate) async fn load(&self) -> Load {
        Load::read(&mut Client::to(self.address)).await
    }
}

impl Drop for Llama {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What a server says of itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Load {
    pub(crate) processing: u32,
    pub(crate) deferred: u32,
    pub(crate) busy_slots: usize,
    /// Tokens that it has read and written since its start.
    pub(crate) tokens: f64,
    /// Tokens that it has written.
    pub(crate) predicted: f64,
}

impl Load {
    pub(crate) async fn read(client: &mut Client) -> Self {
        let metrics = client.ask(get("/metrics")).await;
        let slots = client.ask(get("/slots")).await.json();
        let figure = |name: &str| series(metrics.text(), &format!("llamacpp:{name}")).unwrap();
        let busy = |slot: &&serde_json::Value| slot["is_processing"] == true;
        Self {
            processing: figure("requests_processing") as u32,
            deferred: figure("requests_deferred") as u32,
            busy_slots: slots.as_array().unwrap().iter().filter(busy).count(),
            tokens: figure("prompt_tokens_total") + figure("tokens_predicted_total"),
            predicted: figure("tokens_predicted_total"),
        }
    }

    fn is_idle(&self) -> bool {
        (self.processing, self.deferred, self.busy_slots) == (0, 0, 0)
    }
}

/// Two servers of one model, one of another, and one for embeddings.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) python: Python,
    pub(crate) a: [Llama; 2],
    pub(crate) b: Llama,
    pub(crate) e: Llama,
}

impl Servers {
    fn start(python: Python) -> Self {
        let start = |model| Llama::start(&python, model, 0);
        let (a, b, e) = (
            [start("tiny-a"), start("tiny-a")],
            start("tiny-b"),
            start("tiny-e"),
        );
        Self { python, a, b, e }
    }

    pub(crate) fn all(&self) -> [&Llama; 4] {
        [&self.a[0], &self.a[1], &self.b, &self.e]
    }

    async fn idle(&self) {
        for server in self.all() {
            eventually("every server is idle", async || server.load().await.is_idle()).await;
        }
    }
}

/// Waits until each of these upstreams has told how it is.
pub(crate) async fn heard_from(gateway: &Gateway, upstreams: &[&str]) {
    for id in upstreams {
        eventually(&format!("{id} has told how it is"), async || {
            figure_of(gateway, names::LIMIT, id).await == Some(SLOTS as f64)
        })
        .await;
    }
}

/// A figure on the gateway's own page.
pub(crate) async fn figure(gateway: &Gateway, family: Family) -> Option<f64> {
    let page = ask(gateway.management, get("/metrics")).await;
    // A figure that is not told at all is no zero.
    let is_told = page.text().contains(&format!("# TYPE {} ", family.name));
    is_told.then(|| total(page.text(), family.name))
}

async fn figure_of(gateway: &Gateway, family: Family, upstream: &str) -> Option<f64> {
    let page = ask(gateway.management, get("/metrics")).await;
    let (name, label) = (family.name, family.labels[0]);
    series(page.text(), &format!("{name}{{{label}=\"{upstream}\"}}"))
}

/// The weight that is open on an upstream.
pub(crate) async fn open_weight(gateway: &Gateway, upstream: &str) -> f64 {
    figure_of(gateway, names::OPEN, upstream).await.unwrap()
}

/// The Python, or why this test says nothing.
pub(crate) fn python() -> Option<Python> {
    static FOUND: OnceLock<Option<Python>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let missing = match Python::find() {
            Ok(python) => return Some(python),
            Err(missing) => missing,
        };
        let message =
            format!("skipped: real engines need Python with xllamacpp, gguf and openai ({missing})\n");
        // Written directly, it is not held back by the harness as what a passing test prints is.
        io::stderr().write_all(message.as_bytes()).unwrap();
        None
    });
    let required = env::var("PADDLER_REQUIRE_ENGINES").is_ok_and(|required| required == "1");
    assert!(
        found.is_some() || !required,
        "PADDLER_REQUIRE_ENGINES is 1, and the engines cannot be run"
    );
    found.clone()
}

/// The servers, all of them idle, for one test at a time.
pub(crate) async fn servers() -> Option<MutexGuard<'static, Servers>> {
    static SERVERS: OnceLock<Arc<Mutex<Servers>>> = OnceLock::new();
    let python = python()?;
    let servers = SERVERS
        .get_or_init(|| Arc::new(Mutex::new(Servers::start(python))))
        .lock()
        .await;
    servers.idle().await;
    Some(servers)
}

/// A port that is free now.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}
