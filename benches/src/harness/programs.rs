//! How is a program built, started, told and watched?

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use super::Failure;

/// Where the programs are.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The router.
    pub paddler: PathBuf,
    /// The simulated engine.
    pub engine: PathBuf,
}

impl Programs {
    /// Builds them in the profile, and in the directory, in which this very program was built.
    ///
    /// # Errors
    /// When they cannot be built.
    pub fn build() -> Result<Self, Failure> {
        let own = std::env::current_exe()?;
        let folder = own.parent().ok_or("this program is nowhere")?;
        let target = folder.parent().ok_or("this program is in no target directory")?;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command
            .args([
                "build",
                "--quiet",
                "-p",
                "paddler-bin",
                "-p",
                "paddler-engine",
                "--target-dir",
            ])
            .arg(target)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
        if folder.file_name().is_some_and(|name| name == "release") {
            command.arg("--release");
        }
        let built = command.status()?;
        if !built.success() {
            return Err(format!("the programs cannot be built: {built}").into());
        }
        Ok(Self {
            paddler: folder.join("paddler"),
            engine: folder.join("paddler-engine"),
        })
    }
}

/// A program that runs. Dropped, it is killed.
#[derive(Debug)]
pub struct Program {
    child: Child,
    out: Lines,
    log: Lines,
}

impl Program {
    /// Starts it with these arguments.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(file: &Path, args: &[String]) -> Result<Self, Failure> {
        Self::start_with(file, args, &[])
    }

    /// Starts it with these arguments, and these variables besides those of this process.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_with(file: &Path, args: &[String], variables: &[(&str, String)]) -> Result<Self, Failure> {
        let mut child = Command::new(file)
            .args(args)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{} cannot be started: {error}", file.display()))?;
        let out = Lines::of(child.stdout.take().ok_or("no standard output")?);
        let log = Lines::of(child.stderr.take().ok_or("no standard error")?);
        Ok(Self { child, out, log })
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The lines on standard output so far.
    pub fn said(&self) -> Vec<String> {
        self.out.all()
    }

    /// The lines on standard error so far.
    pub fn log(&self) -> Vec<String> {
        self.log.all()
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it runs no more.
    pub fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.ok_or("no process")?, signal)?)
    }

    /// Ends it at once, as `kill -9` does.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// The CPU time that it has taken, with all its threads; zero where the system does not tell.
    pub fn cpu(&self) -> Duration {
        self.cpu_parts().iter().sum()
    }

    /// The same in two parts: in the program, and in the system for it.
    pub fn cpu_parts(&self) -> [Duration; 2] {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // After the name, in which anything may stand: the 12th and the 13th are the ticks.
        let mut fields = stat
            .rsplit_once(')')
            .map_or("", |(_, fields)| fields)
            .split_whitespace()
            .skip(11);
        [(); 2].map(|()| {
            let ticks: f64 = fields
                .next()
                .and_then(|ticks| ticks.parse().ok())
                .unwrap_or_default();
            Duration::from_secs_f64(ticks / clock_ticks_per_second() as f64)
        })
    }

    /// The memory it holds, in bytes; 0 where the system does not tell.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
        number.unwrap_or_default() * 1024
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Raises this process's limit on open files as far as it may be; programs that it starts have the same.
///
/// # Errors
/// When the system will not have it.
pub fn raise_open_files() -> Result<u64, Failure> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// The lines that a program has written so far.
#[derive(Debug, Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Reads them as they come, so that the program never waits for a reader.
    fn of(from: impl Read + Send + 'static) -> Self {
        let lines = Self::default();
        let all = lines.clone();
        thread::spawn(move || {
            for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                all.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        lines
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
