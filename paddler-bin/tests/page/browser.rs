//! How is a browser told what to do, and asked what it shows?
//!
//! By the DevTools protocol over a pair of pipes: JSON, each message ended by a zero byte.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use std::{env, fs, thread};

use serde_json::{Value, json};

/// No wait in these tests is meant to take this long.
const HANG: Duration = Duration::from_secs(60);

/// How often is looked whether something is so, and how many times at most.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: u32 = 3_000;

/// A size of window, in CSS pixels.
pub(crate) type Size = (u32, u32);
pub(crate) const PHONE: Size = (390, 844);
pub(crate) const DESK: Size = (1440, 900);

/// A browser with one page. Dropped, it is ended.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: String,
    asked: u64,
    folder: PathBuf,
    /// What went wrong in the page.
    faults: Vec<String>,
    /// What it has fetched.
    pub(crate) fetched: Vec<String>,
}

/// The browser's program, or why this test says nothing.
fn program() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let is_there = |path: &PathBuf| path.is_file();
    let named = || {
        let folders = env::var_os("PATH").unwrap_or_default();
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let all = names
            .iter()
            .flat_map(|name| env::split_paths(&folders).map(move |folder| folder.join(name)));
        all.collect::<Vec<_>>().into_iter().find(is_there)
    };
    let found = FOUND.get_or_init(|| {
        let said = env::var_os("PADDLER_CHROMIUM").filter(|path| !path.is_empty());
        let found = said.map_or_else(named, |path| Some(PathBuf::from(path)).filter(is_there));
        if found.is_none() {
            // Written directly, it is not held back by the harness as what a passing test prints is.
            let message = b"skipped: the page is tested in Chromium, and there is none (PADDLER_CHROMIUM)\n";
            io::stderr().write_all(message).unwrap();
        }
        found
    });
    let required = env::var("PADDLER_REQUIRE_CHROMIUM").is_ok_and(|required| required == "1");
    assert!(
        found.is_some() || !required,
        "PADDLER_REQUIRE_CHROMIUM is 1, and there is no Chromium"
    );
    found.as_deref()
}

impl Browser {
    /// A page of this size, in dark or light. `None`: there is no browser.
    pub(crate) fn open(name: &str, size: Size, dark: bool) -> Option<Self> {
        let program = program()?;
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("browser-{name}"));
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(&folder).unwrap();
        // It listens on descriptor 3 and speaks on 4.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh"]);
        command.arg(program).args([
            "--headless=new",
            "--remote-debugging-pipe",
            // As root, in a container, there is no other way; it loads nothing but our own page.
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-proxy-server",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ]);
        command.arg(format!("--user-data-dir={}", folder.display()));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (tell, from) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for message in out.split(0).map_while(Result::ok) {
                if tell.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
            }
        });
        let to = child.stdin.take().unwrap();
        let mut browser = Self {
            child,
            to,
            from,
            session: String::new(),
            asked: 0,
            folder,
            faults: Vec::new(),
            fetched: Vec::new(),
        };
        browser.attach();
        browser.shape(size, dark);
        Some(browser)
    }

    fn attach(&mut self) {
        let target = self.tell("Target.createTarget", json!({"url": "about:blank"}));
        let attached = self.tell(
            "Target.attachToTarget",
            json!({"targetId": target["targetId"], "flatten": true}),
        );
        self.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.tell(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Gives the window another size, in dark or light.
    pub(crate) fn shape(&mut self, (width, height): Size, dark: bool) {
        let mobile = width < 500;
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile});
        self.tell("Emulation.setDeviceMetricsOverride", metrics);
        self.prefer(&[("prefers-color-scheme", if dark { "dark" } else { "light" })]);
    }

    /// What the person in front of it prefers.
    pub(crate) fn prefer(&mut self, features: &[(&str, &str)]) {
        let features: Vec<_> = features
            .iter()
            .map(|(name, value)| json!({"name": name, "value": value}))
            .collect();
        self.tell("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    pub(crate) fn visit(&mut self, url: &str) {
        let answer = self.tell("Page.navigate", json!({"url": url}));
        assert!(answer.get("errorText").is_none(), "{url}: {answer}");
    }

    /// Tells the browser something, and waits for its answer.
    fn tell(&mut self, method: &str, parameters: Value) -> Value {
        self.asked += 1;
        let mut message = json!({"id": self.asked, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        loop {
            let said = self
                .from
                .recv_timeout(HANG)
                .unwrap_or_else(|_| panic!("the browser does not answer {method}"));
            if said["id"] == self.asked {
                assert!(said.get("error").is_none(), "{method}: {said}");
                return said["result"].clone();
            }
            self.hear(&said);
        }
    }

    fn hear(&mut self, said: &Value) {
        let about = &said["params"];
        match said["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => self.faults.push(about["exceptionDetails"].to_string()),
            "Log.entryAdded" if about["entry"]["level"] == "error" => {
                self.faults.push(about["entry"].to_string());
            }
            "Network.requestWillBeSent" => {
                self.fetched
                    .push(about["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
            _ => {}
        }
    }

    /// The value of an expression of JavaScript.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.tell("Runtime.evaluate", asked);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    pub(crate) fn text(&mut self, selector: &str) -> String {
        let expression = format!("document.querySelector({})?.innerText ?? ''", json!(selector));
        self.value(&expression).as_str().unwrap().to_owned()
    }

    /// Waits until an expression is true.
    pub(crate) fn until(&mut self, expression: &str) {
        // What it is about may not be there yet.
        let expression =
            format!("(() => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }})()");
        for _ in 0..LOOKS {
            if self.value(&expression) == true {
                return;
            }
            thread::sleep(LOOK);
        }
        let shown = self.value("document.body.innerText");
        panic!(
            "it never became so: {expression}; faults: {:?}; the page shows:\n{shown}",
            self.faults
        );
    }

    /// Waits until the page shows a text.
    pub(crate) fn until_shown(&mut self, selector: &str, text: &str) {
        let (selector, text) = (json!(selector), json!(text));
        self.until(&format!(
            "document.querySelector({selector})?.innerText.includes({text})"
        ));
    }

    /// Presses a key, as a keyboard does.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "Escape" => (27, ""),
            "Space" => (32, " "),
            _ => panic!("{key} is not known here"),
        };
        let name = if key == "Space" { " " } else { key };
        let both = json!({"key": name, "code": key, "windowsVirtualKeyCode": code, "text": text});
        for kind in ["keyDown", "keyUp"] {
            let mut event = both.clone();
            event["type"] = kind.into();
            self.tell("Input.dispatchKeyEvent", event);
        }
    }

    /// Types a text into what has the focus.
    pub(crate) fn write(&mut self, text: &str) {
        self.tell("Input.insertText", json!({"text": text}));
    }

    /// Goes on by Tab until this has the focus.
    pub(crate) fn tab_to(&mut self, selector: &str) {
        let has = format!("document.activeElement?.matches({})", json!(selector));
        for _ in 0..60 {
            if self.value(&has) == true {
                return;
            }
            self.press("Tab");
        }
        panic!("no way by Tab to {selector}");
    }

    /// Takes a picture of the window, or of the whole page.
    pub(crate) fn picture(&mut self, name: &str, whole: bool) {
        let shot = self.tell(
            "Page.captureScreenshot",
            json!({"format": "png", "captureBeyondViewport": whole}),
        );
        let picture = decoded(shot["data"].as_str().unwrap());
        assert!(picture.starts_with(b"\x89PNG"), "{name} is no picture");
        if let Some(folder) = env::var_os("PADDLER_SCREENSHOTS").filter(|folder| !folder.is_empty()) {
            fs::create_dir_all(&folder).unwrap();
            fs::write(Path::new(&folder).join(format!("{name}.png")), picture).unwrap();
        }
    }

    /// What went wrong in the page so far: errors, and what its policy forbade.
    pub(crate) fn faults(&mut self) -> Vec<String> {
        // What was said before this answer has been heard after it.
        self.value("1");
        std::mem::take(&mut self.faults)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// What a text in base64 stands for.
fn decoded(text: &str) -> Vec<u8> {
    let value = |letter: &u8| match letter {
        b'A'..=b'Z' => u32::from(letter - b'A'),
        b'a'..=b'z' => u32::from(letter - b'a') + 26,
        b'0'..=b'9' => u32::from(letter - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let all = four.iter().fold(0, |all, letter| all << 6 | value(letter)) << (6 * (4 - four.len()));
        bytes.extend(&all.to_be_bytes()[1..four.len()]);
    }
    bytes
}

#[test]
fn base64_is_read() {
    for (text, bytes) in [
        ("", ""),
        ("Zg==", "f"),
        ("Zm8=", "fo"),
        ("Zm9v", "foo"),
        ("Zm9vYmFy", "foobar"),
    ] {
        assert_eq!(decoded(text), bytes.as_bytes());
    }
}
