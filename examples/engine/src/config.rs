//! What kind of engine is it, how big, and how fast?

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

/// Which real engine's HTTP interface is imitated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Face {
    /// The server of llama.cpp: a fixed number of slots and a queue of deferred requests.
    Llamacpp,
    /// vLLM's OpenAI server: continuous batching over KV-cache blocks, with LoRA adapters.
    Vllm,
}

/// Everything that can be chosen about an engine before it starts.
///
/// Begin with [`EngineConfig::llamacpp`] or [`EngineConfig::vllm`] and change what matters with the methods
/// of the same names as the fields.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineConfig {
    /// The interface to show.
    pub face: Face,
    /// The name of the (base) model.
    pub model: String,
    /// The address to listen on.
    pub address: IpAddr,
    /// The port to listen on; 0 takes a free one.
    pub port: u16,
    /// How many tasks run at once: llama.cpp's slots, vLLM's `max_num_seqs`.
    pub slots: usize,
    /// How many tasks may wait before a request is refused with 503; `None` for no limit. Only vLLM has one.
    pub max_queued: Option<usize>,
    /// Prompt tokens processed in a second, for each task. Infinite costs no time.
    pub prefill_tokens_per_second: f64,
    /// Tokens generated in a second, for each task when it runs alone. Infinite costs no time.
    pub decode_tokens_per_second: f64,
    /// How much longer a token takes for each other running task, as a share: with 0.1 and three tasks a
    /// token takes 1.2 times as long.
    pub decode_slowdown: f64,
    /// Tokens (prompt and answer) that fit into one task's context.
    pub context_tokens: usize,
    /// Upper bound of an answer's tokens when the request names none.
    pub default_max_tokens: usize,
    /// Names of the adapters known at the start.
    pub adapters: Vec<String>,
    /// vLLM: distinct adapters in one batch; 0 turns adapters off.
    pub max_loras: usize,
    /// vLLM: KV-cache blocks in all.
    pub num_gpu_blocks: usize,
    /// vLLM: tokens in one KV-cache block.
    pub block_size: usize,
    /// vLLM: whether `waiting_lora_adapters` names the adapters that wait. Version 0.32 does not: it repeats
    /// the running ones there, and so does this engine unless told otherwise.
    pub waiting_adapters_listed: bool,
    /// What all text, all ids and all vectors are drawn from.
    pub seed: u64,
    /// The same request gives a byte-identical answer: ids come from the request, and time stands still in
    /// what is written (not in how long it takes).
    pub fixed_ids: bool,
    /// Unix time, in seconds, that the engine believes it was started at.
    pub base_unix: u64,
    /// For how long after the start nothing is served: llama.cpp answers 503, vLLM does not listen yet.
    pub load_time: Duration,
    /// How long a connection may be idle before it is closed.
    pub keep_alive: Duration,
    /// llama.cpp: requests on one connection, the last of which is answered with `Connection: close`.
    pub keep_alive_requests: u32,
    /// The key that callers must send as `Authorization: Bearer`; `None` lets everyone in.
    pub api_key: Option<String>,
    /// Largest request body, in bytes; a longer one is answered with 413.
    pub max_body_bytes: usize,
    /// How many of the last requests are remembered for [`Engine::requests`](crate::Engine::requests).
    pub log_capacity: usize,
    /// How many of the last lines are remembered for [`Engine::journal`](crate::Engine::journal).
    pub journal_capacity: usize,
    /// The file to which the journal's lines are added, as JSON; `None` for no file.
    pub journal_file: Option<PathBuf>,
    /// Every answer carries a checksum, whether or not its request asks for one by `x-sim-checksum`.
    pub checksums: bool,
}

/// Writes one builder method for each field: same name, same meaning.
macro_rules! setters {
    ($($name:ident: $kind:ty,)+) => {
        $(
            #[doc = concat!("Sets the field `", stringify!($name), "`.")]
            #[must_use]
            pub fn $name(mut self, $name: $kind) -> Self {
                self.$name = $name;
                self
            }
        )+
    };
}

impl EngineConfig {
    /// A llama.cpp server with 4 slots of 8192 tokens, on a free port of the loopback interface.
    #[must_use]
    pub fn llamacpp(model: impl Into<String>) -> Self {
        Self {
            face: Face::Llamacpp,
            model: model.into(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            slots: 4,
            max_queued: None,
            prefill_tokens_per_second: 2_000.0,
            decode_tokens_per_second: 50.0,
            decode_slowdown: 0.0,
            context_tokens: 8_192,
            default_max_tokens: 64,
            adapters: Vec::new(),
            max_loras: 1,
            num_gpu_blocks: 4_096,
            block_size: 16,
            waiting_adapters_listed: false,
            seed: 0,
            fixed_ids: false,
            base_unix: 1_800_000_000,
            load_time: Duration::ZERO,
            keep_alive: Duration::from_secs(5),
            keep_alive_requests: 100,
            api_key: None,
            max_body_bytes: 64 << 20,
            log_capacity: 256,
            journal_capacity: 1_024,
            journal_file: None,
            checksums: false,
        }
    }

    /// A vLLM server with `max_num_seqs` 256 and 4096 KV-cache blocks of 16 tokens.
    #[must_use]
    pub fn vllm(model: impl Into<String>) -> Self {
        Self {
            face: Face::Vllm,
            slots: 256,
            ..Self::llamacpp(model)
        }
    }

    setters! {
        face: Face,
        address: IpAddr,
        port: u16,
        slots: usize,
        max_queued: Option<usize>,
        prefill_tokens_per_second: f64,
        decode_tokens_per_second: f64,
        decode_slowdown: f64,
        context_tokens: usize,
        default_max_tokens: usize,
        max_loras: usize,
        num_gpu_blocks: usize,
        block_size: usize,
        waiting_adapters_listed: bool,
        seed: u64,
        fixed_ids: bool,
        base_unix: u64,
        load_time: Duration,
        keep_alive: Duration,
        keep_alive_requests: u32,
        max_body_bytes: usize,
        log_capacity: usize,
        journal_capacity: usize,
        journal_file: Option<PathBuf>,
        checksums: bool,
    }

    /// Sets the names of the adapters known at the start.
    #[must_use]
    pub fn adapters<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.adapters = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the key that callers must send.
    #[must_use]
    pub fn api_key(mut self, key: impl Into<String>) -> Self {
        self.api_key = Some(key.into());
        self
    }

    /// Makes work cost no time at all: for tests that are not about time.
    #[must_use]
    pub fn instant(self) -> Self {
        self.prefill_tokens_per_second(f64::INFINITY)
            .decode_tokens_per_second(f64::INFINITY)
    }

    /// Says what cannot work, before anything is bound.
    pub(crate) fn check(&self) -> io::Result<()> {
        let fault = if self.slots == 0 {
            Some("slots must be at least 1")
        } else if self.num_gpu_blocks == 0 || self.block_size == 0 {
            Some("num_gpu_blocks and block_size must be at least 1")
        } else if self.context_tokens < 2 {
            Some("context_tokens must be at least 2")
        } else if !is_speed(self.prefill_tokens_per_second) || !is_speed(self.decode_tokens_per_second) {
            Some("tokens per second must be above 0")
        } else if !self.decode_slowdown.is_finite() || self.decode_slowdown < 0.0 {
            Some("decode_slowdown must be 0 or more")
        } else {
            None
        };
        fault.map_or(Ok(()), |text| {
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        })
    }

    /// Tokens that one task may hold: never more than the KV cache as a whole.
    pub(crate) fn longest_sequence(&self) -> usize {
        match self.face {
            Face::Llamacpp => self.context_tokens,
            Face::Vllm => self
                .context_tokens
                .min(self.num_gpu_blocks.saturating_mul(self.block_size)),
        }
    }
}

fn is_speed(value: f64) -> bool {
    value > 0.0
}
