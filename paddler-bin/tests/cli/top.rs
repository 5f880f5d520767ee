//! Does `paddler top` show what goes on, to people and to scripts?

use std::env;
use std::io::{self, Write as _};
use std::process::Command;

use paddler_engine::{Engine, EngineConfig};
use serde_json::json;

use crate::path;
use crate::support::client::{ask, chat, eventually, get, post};
use crate::support::program::{Gateway, run};

async fn engine() -> Engine {
    Engine::start(EngineConfig::llamacpp("m").instant())
        .await
        .unwrap()
}

async fn in_front_of(one: &Engine, two: &Engine) -> Gateway {
    let upstreams = [format!("gpu-1={}", one.url()), format!("gpu-2={}", two.url())];
    let gateway = Gateway::start("gateway", &upstreams, &["--poll-interval=100ms"]);
    eventually("both are ready", async || {
        let all = ask(gateway.management, get("/api/v1/upstreams")).await.json();
        let all = all["upstreams"].as_array().unwrap();
        all.len() == 2 && all.iter().all(|upstream| upstream["state"] == "healthy")
    })
    .await;
    gateway
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_gets_a_table() {
    let (one, two) = (engine().await, engine().await);
    let gateway = in_front_of(&one, &two).await;
    ask(gateway.address, post("/v1/chat/completions", &chat("m", 1))).await;
    ask(
        gateway.address,
        post("/v1/chat/completions", &chat("nobody-has-it", 1)),
    )
    .await;
    ask(
        gateway.management,
        post("/api/v1/upstreams/gpu-2/drain", &json!({})),
    )
    .await;
    let at = gateway.management.to_string();
    let ended = run(&["top", "--once", "--management", &at], &[]).await;
    assert_eq!(
        (ended.status.code(), ended.log.as_str()),
        (Some(0), ""),
        "{ended:?}"
    );
    let lines: Vec<_> = ended.out.lines().collect();
    assert_eq!(
        lines[0],
        "1 of 2 upstreams serve; 0 requests here, 0 of 30 wait; 2 answered, 1 refused (model_not_found 1)"
    );
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        words(lines[1]),
        [
            "UPSTREAM",
            "STATE",
            "OPEN/LIMIT",
            "RUNNING",
            "WAITING",
            "KV",
            "REPORT",
            "WHY"
        ]
    );
    assert_eq!(words(lines[2])[..3], ["gpu-1", "healthy", "0/4"]);
    assert!(
        lines[3].starts_with("gpu-2") && lines[3].ends_with("idle: it has nothing left"),
        "{ended:?}"
    );
    assert_eq!(lines.len(), 4);

    // The name and the flag that it had in Paddler 1.x, and the variable of the router beside it.
    let url = format!("http://{at}/");
    let ended = run(
        &[
            "dashboard",
            "--management-addr",
            &url,
            "--once",
            "--filter=DRAINING",
        ],
        &[],
    )
    .await;
    assert_eq!(ended.out.lines().count(), 3, "{ended:?}");
    let ended = run(&["top", "--once"], &[("PADDLER_MANAGEMENT", &at)]).await;
    assert_eq!(ended.out.lines().count(), 4, "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_not_let_in_or_finds_nobody_is_told_why() {
    let one = engine().await;
    let keys = path("top-keys.txt", "mk-1\n");
    let upstream = format!("gpu-1={}", one.url());
    let gateway = Gateway::start("gateway", &[upstream], &["--management-key-file", &keys]);
    let at = gateway.management.to_string();
    let ended = run(&["top", "--once", "--management", &at], &[]).await;
    assert_eq!((ended.status.code(), ended.out.as_str()), (Some(1), ""));
    assert!(
        ended.log.contains("a key is needed") && ended.log.contains("--key-file"),
        "{ended:?}"
    );
    let ended = run(&["top", "--once", "--management", &at, "--key-file", &keys], &[]).await;
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(ended.out.contains("gpu-1"), "{ended:?}");

    let ended = run(&["top", "--management", &at], &[]).await;
    assert!(
        ended.status.code() == Some(1) && ended.log.contains("--once"),
        "{ended:?}"
    );
    drop(gateway);
    let ended = run(&["top", "--once", "--management", &at], &[]).await;
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(
        ended.log.contains(&at) && ended.log.contains("refused"),
        "{ended:?}"
    );
}

/// A terminal that a test can look at. Dropped, it is closed.
#[cfg(feature = "top")]
struct Tmux(String);

#[cfg(feature = "top")]
impl Tmux {
    /// `None`: there is no tmux, which is said.
    fn start(name: &str, command: &str) -> Option<Self> {
        let there = Command::new("tmux")
            .arg("-V")
            .output()
            .is_ok_and(|said| said.status.success());
        if !there {
            // Written directly, it is not held back by the harness as what a passing test prints is.
            io::stderr()
                .write_all(b"skipped: `paddler top` is tested in tmux, and there is none\n")
                .unwrap();
            let required = env::var("PADDLER_REQUIRE_TMUX").is_ok_and(|required| required == "1");
            assert!(!required, "PADDLER_REQUIRE_TMUX is 1, and there is no tmux");
            return None;
        }
        let tmux = Self(format!("paddler-{name}-{}", std::process::id()));
        tmux.run(&["new-session", "-d", "-x", "110", "-y", "20", command]);
        Some(tmux)
    }

    fn run(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        let said = command
            .args(["-f", "/dev/null", "-L", &self.0])
            .args(args)
            .output()
            .unwrap();
        String::from_utf8_lossy(&said.stdout).into_owned()
    }

    async fn shows(&self, text: &str) {
        eventually(text, async || self.run(&["capture-pane", "-p"]).contains(text)).await;
    }
}

#[cfg(feature = "top")]
impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

#[cfg(feature = "top")]
#[tokio::test(flavor = "multi_thread")]
async fn somebody_at_a_terminal_drains_filters_and_leaves() {
    let (one, two) = (engine().await, engine().await);
    let gateway = in_front_of(&one, &two).await;
    let program = env!("CARGO_BIN_EXE_paddler");
    let command = format!(
        "'{program}' top --management {}; echo it is over; sleep 600",
        gateway.management
    );
    let Some(tmux) = Tmux::start("top", &command) else {
        return;
    };
    tmux.shows("serving 2/2").await;
    tmux.shows("gpu-2").await;
    tmux.run(&["send-keys", "j", "d"]);
    tmux.shows("Drain gpu-2?").await;
    tmux.run(&["send-keys", "y"]);
    tmux.shows("gpu-2 is drained").await;
    tmux.shows("serving 1/2").await;
    let told = ask(gateway.management, get("/api/v1/upstreams/gpu-2"))
        .await
        .json();
    assert_eq!(told["draining"], true);
    tmux.run(&["send-keys", "/", "h", "e", "a", "l", "Enter"]);
    tmux.shows("filter: heal").await;
    assert!(
        !tmux
            .run(&["capture-pane", "-p"])
            .contains("idle: it has nothing left")
    );
    one.shutdown().await;
    tmux.run(&["send-keys", "Escape"]);
    tmux.shows("polls failed").await;
    tmux.run(&["send-keys", "q"]);
    tmux.shows("it is over").await;
    assert!(
        !tmux.run(&["capture-pane", "-p"]).contains("serving"),
        "the terminal is as it was"
    );
}
