//! How is an engine run as a process that can be killed, and what has it seen?

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use paddler_engine::JournalLine;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::Failure;
use super::http::{ask, free_address};
use super::programs::Program;

/// The longest that an engine may take to start.
const START: Duration = Duration::from_secs(20);

/// An engine on an address that stays its own, also when it is killed and started again.
#[derive(Debug)]
pub struct EngineProcess {
    /// Its name, which is the upstream's.
    pub id: String,
    /// Where it listens.
    pub address: SocketAddr,
    file: PathBuf,
    args: Vec<String>,
    journal: PathBuf,
    program: Option<Program>,
    panics: usize,
}

impl EngineProcess {
    /// Starts one with these arguments besides those about its address, and a journal in this folder.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(file: &Path, id: &str, args: &[&str], folder: &Path) -> Result<Self, Failure> {
        let address = free_address()?;
        let journal = folder.join(format!("{id}.jsonl"));
        let mut all: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        all.extend(["--port".to_owned(), address.port().to_string()]);
        all.extend(["--journal".to_owned(), journal.to_string_lossy().into_owned()]);
        let mut engine = Self {
            id: id.to_owned(),
            address,
            file: file.to_owned(),
            args: all,
            journal,
            program: None,
            panics: 0,
        };
        engine.restart().await?;
        Ok(engine)
    }

    /// Starts it, where it does not run.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn restart(&mut self) -> Result<(), Failure> {
        let program = Program::start(&self.file, &self.args)?;
        let started = async {
            while program.said().is_empty() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        if timeout(START, started).await.is_err() {
            return Err(format!("{} does not start: {:?}", self.id, program.log()).into());
        }
        self.program = Some(program);
        Ok(())
    }

    /// Ends it at once, with all that goes on in it.
    pub fn kill(&mut self) {
        if let Some(mut program) = self.program.take() {
            program.kill();
            self.panics += panics(&program);
        }
    }

    /// The process, while it runs.
    pub fn program(&self) -> Option<&Program> {
        self.program.as_ref()
    }

    /// How often it has panicked.
    pub fn panics(&self) -> usize {
        self.panics + self.program.as_ref().map_or(0, panics)
    }

    /// Puts these faults in force in place of all others.
    ///
    /// # Errors
    /// When it does not take them.
    pub async fn fault(&self, rules: &Value) -> Result<(), Failure> {
        let body = Bytes::from(rules.to_string());
        let (status, text) = ask(self.address, Method::POST, "/sim/fault", body).await?;
        if status.is_success() {
            return Ok(());
        }
        Err(format!("{} does not take {rules}: {text}", self.id).into())
    }

    /// How many tasks run and wait in it.
    ///
    /// # Errors
    /// When it does not tell.
    pub async fn tasks(&self) -> Result<u64, Failure> {
        let (_, text) = ask(self.address, Method::GET, "/sim/stats", Bytes::new()).await?;
        let stats: Value = serde_json::from_str(&text)?;
        Ok(stats["running"].as_u64().unwrap_or_default() + stats["waiting"].as_u64().unwrap_or_default())
    }

    /// All that it has written down, over all its lives.
    ///
    /// # Errors
    /// When its journal cannot be read.
    pub fn journal(&self) -> Result<Vec<JournalLine>, Failure> {
        let text = std::fs::read_to_string(&self.journal)?;
        let read = |line: &str| serde_json::from_str(line).map_err(|error| format!("{line}: {error}").into());
        text.lines().map(read).collect()
    }
}

/// How often a program has panicked, by its log.
pub fn panics(program: &Program) -> usize {
    let log = program.log();
    log.iter().filter(|line| line.contains("panicked")).count()
}
