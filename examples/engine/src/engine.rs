//! How is an engine started, steered and stopped?

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep_until;

use crate::config::{EngineConfig, Face};
use crate::control;
use crate::core::Core;
use crate::fault::book::Refusal;
use crate::fault::{Fault, FaultRule};
use crate::journal::JournalLine;
use crate::stats::{RequestRecord, Stats};
use crate::wire::connection;
use crate::wire::door::Door;

/// Time until something is tried again that the system had refused.
const RETRY: Duration = Duration::from_millis(20);

/// A running engine. Dropping it stops it; [`shutdown`](Self::shutdown) also waits until it has stopped.
#[derive(Debug)]
pub struct Engine {
    core: Arc<Core>,
    serving: Option<JoinHandle<()>>,
}

impl Engine {
    /// Binds the configured address and serves it on the current tokio runtime.
    ///
    /// # Errors
    ///
    /// When the address cannot be bound, or the configuration cannot work
    /// ([`InvalidInput`](io::ErrorKind::InvalidInput)).
    pub async fn start(config: EngineConfig) -> io::Result<Self> {
        config.check()?;
        let door = Door::reserve(SocketAddr::new(config.address, config.port))?;
        let (face, load_time) = (config.face, config.load_time);
        let core = Core::new(config, door)?;
        let mut rules = Vec::new();
        if !load_time.is_zero() {
            let fault = if face == Face::Vllm {
                Fault::Refuse
            } else {
                Fault::Loading
            };
            rules.push(FaultRule::new(fault).lasting(load_time));
        }
        control::set_rules(&core, false, rules)?;
        let serving = Some(tokio::spawn(serve(core.clone())));
        Ok(Self { core, serving })
    }

    /// The address it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.core.door.address()
    }

    /// The address as a URL, without a slash at its end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// The configuration it was started with.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.core.config
    }

    /// Puts one fault in force in place of all others, until it is cleared; `None` clears.
    ///
    /// # Errors
    ///
    /// When the listener, which [`Fault::Refuse`] had closed, cannot be opened again.
    pub fn set_fault(&self, fault: Option<Fault>) -> io::Result<()> {
        control::set_rules(&self.core, true, fault.map(FaultRule::new).into_iter().collect())
    }

    /// Puts a rule in force beside the others.
    ///
    /// # Errors
    ///
    /// As [`set_fault`](Self::set_fault).
    pub fn add_fault(&self, rule: impl Into<FaultRule>) -> io::Result<()> {
        control::set_rules(&self.core, false, vec![rule.into()])
    }

    /// The rules in force, each with the number of times that are left.
    #[must_use]
    pub fn faults(&self) -> Vec<FaultRule> {
        self.core.faults.list()
    }

    /// What has been counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// The last request that arrived, but for those to `/sim/`.
    #[must_use]
    pub fn last_request(&self) -> Option<RequestRecord> {
        self.core.ledger.last_request()
    }

    /// The last requests, oldest first, as many as the configuration's `log_capacity`.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestRecord> {
        self.core.ledger.requests()
    }

    /// The last lines about what became of requests, oldest first, as many as the configuration's `journal_capacity`.
    #[must_use]
    pub fn journal(&self) -> Vec<JournalLine> {
        self.core.journal.lines()
    }

    /// Stops: the listener and all connections are closed when this returns, and no task goes on.
    pub async fn shutdown(mut self) {
        self.core.stop.send_replace(true);
        if let Some(serving) = self.serving.take() {
            // It can only fail by a panic, which the test or program has already been told of.
            serving.await.ok();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.core.stop.send_replace(true);
        self.core.door.close();
    }
}

/// Counts a connection while it is open.
struct Counted(Arc<Core>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.ledger.disconnected();
    }
}

/// Accepts connections until the engine is told to stop.
async fn serve(core: Arc<Core>) {
    let mut connections = JoinSet::new();
    loop {
        open_door(&core).await;
        let refusal = core.faults.refusal();
        tokio::select! {
            biased;
            () = core.stopped() => break,
            accepted = std::future::poll_fn(|cx| core.door.poll_accept(cx)) => match accepted {
                Ok(stream) => accept(&core, stream, &mut connections),
                // Out of file handles, most likely: some must be given back first.
                Err(_) => tokio::time::sleep(RETRY).await,
            },
            () = core.door.moved() => {}
            () = until(refusal) => {}
            Some(_) = connections.join_next() => {}
        }
    }
    core.door.close();
    connections.shutdown().await;
}

fn accept(core: &Arc<Core>, stream: TcpStream, connections: &mut JoinSet<()>) {
    if core.faults.hangs_up() {
        // Where the socket is already gone there is nothing left to reset.
        stream.set_zero_linger().ok();
        return;
    }
    core.ledger.connected();
    let counted = Counted(core.clone());
    connections.spawn(async move {
        connection::run(counted.0.clone(), stream).await;
        drop(counted);
    });
}

async fn until(refusal: Refusal) {
    match refusal {
        Refusal::Until(end) => sleep_until(end).await,
        Refusal::No | Refusal::UntilCleared => std::future::pending().await,
    }
}

/// Opens the door if nothing is against it; if the system will not have it, it is tried again.
async fn open_door(core: &Core) {
    while core.faults.refusal() == Refusal::No && core.door.open().is_err() && !*core.stop.borrow() {
        tokio::time::sleep(RETRY).await;
    }
}
