//! How is an engine started from a shell?

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use paddler_engine::{Engine, EngineConfig, Face, FaultRule};

/// A simulated inference engine over real HTTP.
#[derive(Debug, Parser)]
#[command(name = "paddler-engine", version)]
struct Arguments {
    /// The interface to show.
    #[arg(long, value_enum, default_value = "llamacpp")]
    face: Face,
    /// The name of the model.
    #[arg(long, default_value = "tiny")]
    model: String,
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    address: IpAddr,
    /// The port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Tasks that run at once [default: 4 for llamacpp, 256 for vllm].
    #[arg(long, visible_alias = "max-num-seqs")]
    slots: Option<usize>,
    /// vllm: tasks that may wait before a request is refused [default: no limit].
    #[arg(long)]
    max_queued: Option<usize>,
    /// Prompt tokens processed in a second; `inf` costs no time.
    #[arg(long, default_value_t = 2000.0)]
    prefill_tokens_per_second: f64,
    /// Tokens generated in a second by a task that runs alone; `inf` costs no time.
    #[arg(long, default_value_t = 50.0)]
    decode_tokens_per_second: f64,
    /// How much longer a token takes for each other running task, as a share.
    #[arg(long, default_value_t = 0.0)]
    decode_slowdown: f64,
    /// Tokens that fit into one task's context.
    #[arg(long, default_value_t = 8192)]
    context_tokens: usize,
    /// Names of adapters, with commas between.
    #[arg(long, value_delimiter = ',')]
    adapters: Vec<String>,
    /// vllm: distinct adapters in one batch; 0 turns adapters off.
    #[arg(long, default_value_t = 1)]
    max_loras: usize,
    /// vllm: KV-cache blocks.
    #[arg(long, default_value_t = 4096)]
    num_gpu_blocks: usize,
    /// vllm: tokens in a KV-cache block.
    #[arg(long, default_value_t = 16)]
    block_size: usize,
    /// What all text and all ids are drawn from.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Give byte-identical answers to equal requests.
    #[arg(long)]
    fixed_ids: bool,
    /// Milliseconds of loading before anything is served.
    #[arg(long, default_value_t = 0)]
    load_ms: u64,
    /// The key that callers must send.
    #[arg(long)]
    api_key: Option<String>,
    /// A fault that is in force from the start, such as `status=503` or `reset-after=100`, or a rule as JSON.
    #[arg(long)]
    fault: Vec<FaultRule>,
    /// Add what becomes of each request to this file, as lines of JSON.
    #[arg(long)]
    journal: Option<PathBuf>,
    /// Put a checksum at the end of every answer.
    #[arg(long)]
    checksums: bool,
}

impl Arguments {
    fn config(&self) -> EngineConfig {
        let mut config = match self.face {
            Face::Llamacpp => EngineConfig::llamacpp(&self.model),
            Face::Vllm => EngineConfig::vllm(&self.model),
        };
        if let Some(slots) = self.slots {
            config = config.slots(slots);
        }
        if let Some(key) = &self.api_key {
            config = config.api_key(key);
        }
        config
            .address(self.address)
            .port(self.port)
            .max_queued(self.max_queued)
            .prefill_tokens_per_second(self.prefill_tokens_per_second)
            .decode_tokens_per_second(self.decode_tokens_per_second)
            .decode_slowdown(self.decode_slowdown)
            .context_tokens(self.context_tokens)
            .adapters(&self.adapters)
            .max_loras(self.max_loras)
            .num_gpu_blocks(self.num_gpu_blocks)
            .block_size(self.block_size)
            .seed(self.seed)
            .fixed_ids(self.fixed_ids)
            .journal_file(self.journal.clone())
            .checksums(self.checksums)
            .load_time(Duration::from_millis(self.load_ms))
    }
}

async fn run(arguments: Arguments) -> io::Result<()> {
    let engine = Engine::start(arguments.config()).await?;
    for fault in arguments.fault {
        engine.add_fault(fault)?;
    }
    println!("{}", engine.url());
    tokio::signal::ctrl_c().await?;
    engine.shutdown().await;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("paddler-engine: {error}");
            ExitCode::FAILURE
        }
    }
}
