//! What can be said to the commands that look at a config, a tree or a router, and serve nothing?

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{Args, Parser, ValueEnum};
use paddler_core::config::Mode;

pub(super) const EXPLAIN_EXAMPLES: &str = "Examples:
  paddler explain --config paddler.yaml --request body.json
  curl -s http://127.0.0.1:8081/api/v1/snapshot > now.json
  paddler explain --config other.yaml --request body.json --snapshot now.json";

pub(super) const REPLAY_EXAMPLES: &str = "Examples:
  paddler replay decisions.jsonl --config other.yaml
  paddler replay decisions.jsonl --built-in balancer --format json";

pub(super) const TOP_EXAMPLES: &str = "Examples:
  paddler top
  paddler top --management https://gpu-1.lan:8081 --key-file key.txt
  paddler top --once --filter unable";

pub(super) const TREE_EXAMPLES: &str = "Examples:
  paddler tree --config paddler.yaml
  paddler tree --built-in seed --format dot | dot -Tsvg > seed.svg";

/// The commands that take a config file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum For {
    /// `paddler gateway`
    Gateway,
    /// `paddler balancer`
    Balancer,
    /// `paddler endpoint-picker`
    #[cfg(feature = "envoy")]
    EndpointPicker,
}

#[derive(Debug, Parser)]
pub(crate) struct Check {
    /// The file.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// For which command: it decides on the tree where the file names none.
    #[arg(long, value_enum, env = "PADDLER_FOR", default_value = "gateway")]
    pub(crate) r#for: For,
}

impl For {
    /// What decides on the tree where the file names none.
    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Gateway => Mode::Gateway,
            Self::Balancer => Mode::Balancer,
            #[cfg(feature = "envoy")]
            Self::EndpointPicker => Mode::Gateway,
        }
    }
}

#[derive(Debug, Parser)]
pub(crate) struct Health {
    /// The router's config file.
    #[arg(long, value_name = "FILE", env = "PADDLER_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Where its management listener is [default: 127.0.0.1:8081].
    #[arg(long, value_name = "ADDRESS", env = "PADDLER_MANAGEMENT")]
    pub(crate) management: Option<String>,
}

/// The trees that are built in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BuiltIn {
    /// Models, adapters, slots, KV cache, least prefill product.
    Gateway,
    /// llama.cpp, by share of slots busy.
    Balancer,
    /// The filter tree of the Gateway API Inference Extension, pull request 78.
    Seed,
}

/// Which tree is meant.
#[derive(Debug, Args)]
pub(crate) struct TreeChoice {
    /// A config file, whose tree is meant.
    #[arg(long, value_name = "FILE", env = "PADDLER_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// For which command: it decides on the tree where no file names one.
    #[arg(long, value_enum, env = "PADDLER_FOR", default_value = "gateway")]
    pub(crate) r#for: For,
    /// A built-in tree, in the place of a file's.
    #[arg(long, value_enum, env = "PADDLER_BUILT_IN", conflicts_with = "config")]
    pub(crate) built_in: Option<BuiltIn>,
}

/// How a tree is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A node a line, indented.
    Text,
    /// A flow chart of Mermaid, for Markdown.
    Mermaid,
    /// A graph of Graphviz.
    Dot,
}

/// How an explanation is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainFormat {
    /// A table.
    Text,
    /// As the management API has it.
    Json,
}

#[derive(Debug, Parser)]
pub(crate) struct Explain {
    /// A config file: its tree, and its upstreams.
    #[arg(long, value_name = "FILE", env = "PADDLER_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// An upstream, as URL or ID=URL, in the place of those of the file. Repeat it for each.
    #[arg(long, value_name = "URL", env = "PADDLER_UPSTREAM", value_delimiter = ',')]
    pub(crate) upstream: Vec<String>,
    /// A snapshot to go by, as GET /api/v1/snapshot of the management listener tells it.
    #[arg(long, value_name = "FILE", env = "PADDLER_SNAPSHOT")]
    pub(crate) snapshot: Option<PathBuf>,
    /// The body of the request; "-": standard input.
    #[arg(long, value_name = "FILE", env = "PADDLER_REQUEST")]
    pub(crate) request: PathBuf,
    /// The path that it is for.
    #[arg(long, value_name = "PATH", env = "PADDLER_PATH", default_value = crate::explain::PATH)]
    pub(crate) path: String,
    /// Its method.
    #[arg(long, value_name = "METHOD", env = "PADDLER_METHOD", default_value = "POST")]
    pub(crate) method: String,
    /// Its priority: above 0 is served first, below 0 may be shed.
    #[arg(
        long,
        value_name = "NUMBER",
        env = "PADDLER_PRIORITY",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub(crate) priority: i32,
    /// What its draws come from: the same number, the same draws.
    #[arg(long, value_name = "NUMBER", env = "PADDLER_SEED", default_value_t = 1)]
    pub(crate) seed: u64,
    /// For which command: it decides on the tree where no file names one.
    #[arg(long, value_enum, env = "PADDLER_FOR", default_value = "gateway")]
    pub(crate) r#for: For,
    /// How it is printed.
    #[arg(long, value_enum, env = "PADDLER_FORMAT", default_value = "text")]
    pub(crate) format: ExplainFormat,
}

#[derive(Debug, Parser)]
pub(crate) struct ReplayArgs {
    /// What a router has written that serves.
    #[arg(value_name = "LOG")]
    pub(crate) log: PathBuf,
    #[command(flatten)]
    pub(crate) tree: TreeChoice,
    /// How it is printed.
    #[arg(long, value_enum, env = "PADDLER_FORMAT", default_value = "text")]
    pub(crate) format: ExplainFormat,
}

#[derive(Debug, Parser)]
pub(crate) struct Top {
    /// The management listener of the router, as URL or HOST:PORT.
    #[arg(
        long,
        alias = "management-addr",
        value_name = "URL",
        env = "PADDLER_MANAGEMENT",
        default_value = "127.0.0.1:8081"
    )]
    pub(crate) management: String,
    /// A file with a key for it, as its one line.
    #[arg(long, value_name = "FILE", env = "PADDLER_KEY_FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// Print it once, as a table for scripts.
    #[arg(long, env = "PADDLER_ONCE", value_parser = BoolishValueParser::new())]
    pub(crate) once: bool,
    /// Only the upstreams in whose id, address, labels or state each of these words is found.
    #[arg(long, value_name = "WORDS", env = "PADDLER_FILTER", default_value = "")]
    pub(crate) filter: String,
}

#[derive(Debug, Parser)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    pub(crate) tree: TreeChoice,
    /// How it is printed.
    #[arg(long, value_enum, env = "PADDLER_FORMAT", default_value = "text")]
    pub(crate) format: Format,
}
