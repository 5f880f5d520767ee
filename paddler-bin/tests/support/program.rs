//! How is the program run, and how did it end?

use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::client::HANG;

/// The program, running. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    out: Arc<Lines>,
    log: Arc<Lines>,
}

/// How the program ended, and all that it said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) log: String,
}

impl Program {
    /// Starts it with these arguments and variables, and no others.
    pub(crate) fn start<A: AsRef<str>>(args: &[A], variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paddler"));
        command
            .args(args.iter().map(AsRef::as_ref))
            .env_clear()
            .envs(variables.iter().copied());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = Lines::of(child.stdout.take().unwrap());
        let log = Lines::of(child.stderr.take().unwrap());
        Self { child, out, log }
    }

    /// Waits for a line on standard output that is as wanted.
    pub(crate) fn says(&self, wanted: impl Fn(&str) -> bool) -> String {
        self.out.wait_for(wanted)
    }

    /// Waits for a line in the log that is as wanted.
    pub(crate) fn logs(&self, wanted: impl Fn(&str) -> bool) -> String {
        self.log.wait_for(wanted)
    }

    /// Sends a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// How many files and connections it has open.
    pub(crate) fn open_files(&self) -> usize {
        let files = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(files).unwrap().count()
    }

    pub(crate) async fn ended(mut self) -> Ended {
        let wait = async {
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        let status = timeout(HANG, wait).await;
        let status = status.unwrap_or_else(|_| panic!("it does not end: {self:?}"));
        Ended {
            status,
            out: self.out.all(),
            log: self.log.all(),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Sends a process a signal, such as `TERM`.
pub(crate) fn signal(process: &Child, name: &str) {
    let kill = format!("kill -{name} {}", process.id());
    let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
    assert!(sent.success(), "{kill}: {sent}");
}

/// Runs it to its end.
pub(crate) async fn run<A: AsRef<str>>(args: &[A], variables: &[(&str, &str)]) -> Ended {
    Program::start(args, variables).ended().await
}

/// The program, serving on free ports.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) program: Program,
    pub(crate) address: SocketAddr,
    pub(crate) management: SocketAddr,
}

impl Gateway {
    /// Starts `paddler gateway` by this config file.
    pub(crate) fn by(file: &str) -> Self {
        Self::start("gateway", &[], &["--config", file])
    }

    /// Starts `paddler COMMAND` in front of these upstreams, with these arguments besides.
    pub(crate) fn start(command: &str, upstreams: &[String], more: &[&str]) -> Self {
        let mut args = vec![command, "--listen=127.0.0.1:0", "--management=127.0.0.1:0"];
        for upstream in upstreams {
            args.extend(["--upstream", upstream]);
        }
        args.extend(more);
        let program = Program::start(&args, &[]);
        let address = address_in(&program.logs(|line| line.contains("listening for requests")));
        let management = address_in(&program.logs(|line| line.contains("listening for health")));
        Self {
            program,
            address,
            management,
        }
    }
}

/// The address that a line of the log tells.
pub(crate) fn address_in(line: &str) -> SocketAddr {
    let (_, address) = line.split_once("address=").unwrap();
    address.trim().parse().unwrap()
}

/// The lines that a process has written so far.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    so_far: Mutex<(Vec<String>, bool)>,
    more: Condvar,
}

impl Lines {
    /// Reads them as they come, so that the process never waits for a reader.
    pub(crate) fn of(from: impl Read + Send + 'static) -> Arc<Self> {
        let lines = Arc::new(Self::default());
        let all = lines.clone();
        thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                all.so_far.lock().unwrap().0.push(line);
                all.more.notify_all();
            }
            all.so_far.lock().unwrap().1 = true;
            all.more.notify_all();
        });
        lines
    }

    pub(crate) fn wait_for(&self, wanted: impl Fn(&str) -> bool) -> String {
        let mut so_far = self.so_far.lock().unwrap();
        loop {
            if let Some(line) = so_far.0.iter().find(|line| wanted(line)) {
                return line.clone();
            }
            assert!(!so_far.1, "it has ended without saying so: {:#?}", so_far.0);
            let (next, waited) = self.more.wait_timeout(so_far, HANG).unwrap();
            assert!(!waited.timed_out(), "it does not say so: {:#?}", next.0);
            so_far = next;
        }
    }

    /// Everything, once the process has ended.
    fn all(&self) -> String {
        let so_far = self.so_far.lock().unwrap();
        let whole = self.more.wait_timeout_while(so_far, HANG, |(_, ended)| !*ended);
        whole.unwrap().0.0.join("\n")
    }
}
