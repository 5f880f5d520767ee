//! What do all parts of one engine share?

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderMap, header};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::config::{EngineConfig, Face};
use crate::fault::book::FaultBook;
use crate::journal::Journal;
use crate::schedule::{Blocks, Limits, Scheduler};
use crate::stats::{Ledger, Stats};
use crate::text;
use crate::wire::door::Door;

/// One engine's state.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: EngineConfig,
    pub(crate) clock: Arc<Clock>,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) faults: FaultBook,
    pub(crate) door: Door,
    pub(crate) ledger: Ledger,
    /// Becomes true when the engine must end.
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) journal: Arc<Journal>,
    /// How often all that went on was broken off.
    crashes: watch::Sender<u64>,
    adapters: Mutex<Vec<Adapter>>,
    answers: AtomicU64,
}

/// A LoRA adapter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Adapter {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) scale: f64,
}

impl Core {
    pub(crate) fn new(config: EngineConfig, door: Door) -> io::Result<Arc<Self>> {
        let clock = Arc::new(Clock::new(config.base_unix, config.fixed_ids));
        let batching = config.face == Face::Vllm;
        let limits = Limits {
            running: config.slots,
            queued: config.max_queued.filter(|_| batching),
            blocks: batching.then_some(Blocks {
                total: config.num_gpu_blocks,
                size: config.block_size,
            }),
            adapters: (batching && config.max_loras > 0).then_some(config.max_loras),
            list_waiting_adapters: config.waiting_adapters_listed,
        };
        let extension = if batching { "" } else { ".gguf" };
        let adapter = |name: &String| Adapter {
            name: name.clone(),
            path: format!("/models/{name}{extension}"),
            scale: 1.0,
        };
        let journal = Journal::new(config.journal_capacity, config.journal_file.as_deref())?;
        Ok(Arc::new(Self {
            journal,
            crashes: watch::Sender::new(0),
            scheduler: Scheduler::new(limits, clock.clone()),
            clock,
            faults: FaultBook::new(config.seed),
            door,
            ledger: Ledger::new(config.log_capacity),
            stop: watch::Sender::new(false),
            adapters: Mutex::new(config.adapters.iter().map(adapter).collect()),
            answers: AtomicU64::new(0),
            config,
        }))
    }

    /// The adapters known now.
    pub(crate) fn adapters(&self) -> MutexGuard<'_, Vec<Adapter>> {
        self.adapters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an answer's ids are drawn from: the request where they are fixed, else a running number.
    pub(crate) fn id_seed(&self, path: &str, body: &[u8]) -> u64 {
        if self.config.fixed_ids {
            text::digest(text::digest(self.config.seed, path.as_bytes()), body)
        } else {
            let number = self.answers.fetch_add(1, Ordering::Relaxed);
            text::mix(
                self.config.seed
                    ^ text::mix(number.wrapping_add(u64::from(self.door.address().port()) << 32)),
            )
        }
    }

    /// Whether a caller sent the right key, if one is wanted.
    pub(crate) fn is_authorized(&self, headers: &HeaderMap) -> bool {
        let Some(key) = &self.config.api_key else {
            return true;
        };
        let bearer = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let plain = headers.get("x-api-key").and_then(|value| value.to_str().ok());
        bearer.and_then(|value| value.strip_prefix("Bearer ")) == Some(key) || plain == Some(key)
    }

    /// Waits until the engine must end.
    pub(crate) async fn stopped(&self) {
        // It fails only without a sender, and the sender is here.
        self.stop.subscribe().wait_for(|stop| *stop).await.ok();
    }

    /// How often all that went on was broken off so far.
    pub(crate) fn crashes(&self) -> u64 {
        *self.crashes.borrow()
    }

    /// Breaks off all that goes on.
    pub(crate) fn crash(&self) {
        self.crashes.send_modify(|crashes| *crashes += 1);
    }

    /// Waits until all that goes on since `born` is broken off.
    pub(crate) async fn crashed(&self, born: u64) {
        // It fails only without a sender, and the sender is here.
        self.crashes
            .subscribe()
            .wait_for(|crashes| *crashes > born)
            .await
            .ok();
    }

    /// What a test can read.
    pub(crate) fn stats(&self) -> Stats {
        self.ledger
            .stats(&self.scheduler.load(), &self.scheduler.meters())
    }
}
