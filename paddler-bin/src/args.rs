//! What can be said on the command line and in the environment?

pub(crate) mod agent;
pub(crate) mod look;
pub(crate) mod old;
#[cfg(feature = "envoy")]
mod picker;

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::error::ContextKind;
use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

/// Routes each LLM request to the upstream that will answer it soonest.
#[derive(Debug, Parser)]
#[command(name = "paddler", version, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Reads the command line and the environment, or ends the program with what is wrong with them.
    ///
    /// A variable that is empty counts as one that is not set: compose files and charts pass on what nobody has said.
    pub(crate) fn read() -> Self {
        let command = Self::command().mut_subcommands(|command| command.mut_args(without_empty_variable));
        let read = command
            .try_get_matches()
            .and_then(|matches| Self::from_arg_matches(&matches));
        read.unwrap_or_else(|error| {
            if let Some(variable) = blamed_variable(&error) {
                crate::complain(&format!("{variable} in the environment is read as its flag is:"));
            }
            error.exit()
        })
    }
}

fn without_empty_variable(arg: Arg) -> Arg {
    let is_empty = |variable| env::var_os(variable).is_some_and(|value| value.is_empty());
    if arg.get_env().is_some_and(is_empty) {
        arg.env(None)
    } else {
        arg
    }
}

/// The variable of the flag that an error is about, if the flag was not on the command line.
fn blamed_variable(error: &clap::Error) -> Option<String> {
    let about = error.get(ContextKind::InvalidArg)?.to_string();
    let flag = about
        .split_whitespace()
        .next()
        .filter(|flag| flag.starts_with("--"))?;
    let variable = variable(flag);
    let typed = env::args_os().any(|arg| arg.to_string_lossy().starts_with(flag));
    (!typed && env::var_os(&variable).is_some()).then_some(variable)
}

/// The variable that says the same as a flag.
pub(crate) fn variable(flag: &str) -> String {
    format!(
        "PADDLER_{}",
        flag.trim_start_matches('-')
            .replace('-', "_")
            .to_ascii_uppercase()
    )
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Route by model over engines of any kind.
    ///
    /// A request goes to an upstream that serves its model, has a slot or room, and will answer soonest. When all are
    /// busy it waits here.
    #[command(after_help = GATEWAY_EXAMPLES)]
    Gateway(Serve),
    /// Balance over llama.cpp machines that serve one model, by free slots.
    #[command(after_help = BALANCER_EXAMPLES)]
    Balancer(Balancer),
    /// Tell balancers of an engine, from beside it.
    ///
    /// It finds out what the engine is and follows it closely. Balancers route to it from then on, and no more once it is stopped or
    /// silent.
    #[command(after_help = agent::EXAMPLES)]
    Agent(Box<agent::AgentArgs>),
    /// Tell Envoy where each request goes, over ext_proc.
    ///
    /// It routes as `gateway` does, by the same config file, and Envoy keeps the connections. --listen is where Envoy asks, by
    /// gRPC.
    #[cfg(feature = "envoy")]
    #[command(after_help = picker::EXAMPLES)]
    EndpointPicker(picker::EndpointPicker),
    /// Says how to build a program that can.
    #[cfg(not(feature = "envoy"))]
    #[command(hide = true, disable_help_flag = true)]
    EndpointPicker {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        any: Vec<std::ffi::OsString>,
    },
    /// Read a config file, or a list of clients' keys, and print every fault in it, each with its place.
    Check(look::Check),
    /// Print the tree by which requests are routed: as text, or as a flow chart for Mermaid or Graphviz.
    #[command(after_help = look::TREE_EXAMPLES)]
    Tree(look::TreeArgs),
    /// Tell where a request would go, and why: what each node of the tree left, and who went out by what.
    ///
    /// Each upstream of the config is asked how it is, once; or a snapshot is gone by, which a router tells that serves. Nothing
    /// is sent to an engine.
    #[command(after_help = look::EXPLAIN_EXAMPLES)]
    Explain(look::Explain),
    /// Ask the router that runs here whether it can serve; ends with status 0 if it can.
    ///
    /// It asks /readyz of the management listener, where the same flags, environment or file say that it is. After a start it can
    /// serve once an upstream has said so of itself, or is one that is not asked.
    Health(look::Health),
    /// Tell what another tree would have done with decisions that were written down (decisions.log in the config file).
    ///
    /// Each is made again: the same request, statuses, counters and draws. What cannot be known is what would have come of it:
    /// with other decisions, the load at the later ones would have been another.
    #[command(after_help = look::REPLAY_EXAMPLES)]
    Replay(look::ReplayArgs),
    /// Show in the terminal what goes on: upstreams, queue, refusals and rates.
    ///
    /// It asks the management listener of a router that serves. Keys: j and k move, d drains or lets back in (and asks before), /
    /// filters, q leaves.
    #[command(alias = "dashboard", after_help = look::TOP_EXAMPLES)]
    Top(look::Top),
    /// Read a key from standard input and print its hash, to stand in a file of keys in its place.
    ///
    /// It prints the line "sha256: HASH", to stand in the place of "key: ..." (or of the key, in a file of one key a line).
    /// Nothing keeps the key, so it has to be one that nobody can guess, such as `openssl rand -hex 32` makes.
    HashKey,
    /// Print what a config file may hold, as JSON Schema, for editors.
    ///
    /// An editor that speaks YAML goes by it where the file begins with "# yaml-language-server: $schema=paddler.schema.json".
    Schema,
    /// Print what makes a shell complete commands and flags.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell.
        #[arg(value_enum, value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
    /// Write man pages, one for the program and one for each command, into a folder.
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// The folder; it is made if it is not there.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Start three simulated engines and a gateway on free ports of this machine, and print a request to try.
    Demo,
}

const GATEWAY_EXAMPLES: &str = "Flags come before the environment, and both before the file.

Examples:
  paddler gateway --upstream http://10.0.0.3:8080 --upstream http://10.0.0.4:8000
  paddler gateway --config paddler.yaml --listen 0.0.0.0:8080
  PADDLER_UPSTREAM=http://10.0.0.3:8080,http://10.0.0.4:8000 paddler gateway";

const BALANCER_EXAMPLES: &str = "Flags come before the environment, and both before the file.

Examples:
  paddler balancer --upstream http://10.0.0.3:8080 --upstream http://10.0.0.4:8080
  paddler balancer --upstream gpu-1=http://10.0.0.3:8080 --max-requests 100 --max-wait 30s";

const COMPLETIONS_EXAMPLES: &str = "Examples:
  paddler completions bash > ~/.local/share/bash-completion/completions/paddler
  paddler completions fish > ~/.config/fish/completions/paddler.fish
  paddler completions zsh > ~/.zfunc/_paddler      (with fpath+=~/.zfunc before compinit in ~/.zshrc)";

const MAN_EXAMPLES: &str = "Examples:
  paddler man ~/.local/share/man/man1 && man paddler-gateway";

/// Flags come before the environment, and both before the file.
#[derive(Debug, Default, Parser)]
pub(crate) struct Balancer {
    #[command(flatten)]
    pub(crate) serve: Serve,
    #[command(flatten)]
    pub(crate) old: old::OfBalancer,
}

/// Flags come before the environment, and both before the file.
#[derive(Debug, Default, Parser)]
pub(crate) struct Serve {
    /// Upstreams will come by their agents.
    #[arg(skip)]
    pub(crate) expects_agents: bool,
    /// Where requests come in if neither flag nor file says so; `None`: as the config has it.
    #[arg(skip)]
    pub(crate) default_listen: Option<SocketAddr>,
    /// An upstream, as URL or ID=URL. Repeat it for each; they replace those of the file.
    #[arg(long, value_name = "URL", env = "PADDLER_UPSTREAM", value_delimiter = ',')]
    pub(crate) upstream: Vec<String>,
    /// A file of YAML with all settings.
    #[arg(long, value_name = "FILE", env = "PADDLER_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Where requests come in [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDRESS", env = "PADDLER_LISTEN")]
    pub(crate) listen: Option<String>,
    /// Where health, metrics and the management API are, or "off" [default: 127.0.0.1:8081].
    #[arg(long, value_name = "ADDRESS", env = "PADDLER_MANAGEMENT")]
    pub(crate) management: Option<String>,
    /// What kind of server the upstreams of --upstream are [default: auto].
    #[arg(long, value_enum, env = "PADDLER_ENGINE")]
    pub(crate) engine: Option<EngineArg>,
    /// A file with the keys of which clients must present one: one a line, or a list with what each may do.
    #[arg(long, value_name = "FILE", env = "PADDLER_API_KEY_FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// A file with the keys for the management listener's API, one a line.
    #[arg(long, value_name = "FILE", env = "PADDLER_MANAGEMENT_KEY_FILE")]
    pub(crate) management_key_file: Option<PathBuf>,
    /// Who may tell of engines as `paddler agent` does, at the management listener [default: auto].
    #[arg(long, value_enum, env = "PADDLER_AGENTS")]
    pub(crate) agents: Option<AgentsArg>,
    /// A file with the keys of which agents must present one, one a line.
    #[arg(long, value_name = "FILE", env = "PADDLER_AGENT_KEY_FILE")]
    pub(crate) agent_key_file: Option<PathBuf>,
    /// A web page whose browsers may ask the management listener, such as `https://ops.example.com`. Repeat it for each.
    #[arg(
        long,
        value_name = "ORIGIN",
        env = "PADDLER_MANAGEMENT_ORIGIN",
        value_delimiter = ','
    )]
    pub(crate) management_origin: Vec<String>,
    /// A file with the key that is sent to the upstreams of --upstream.
    #[arg(long, value_name = "FILE", env = "PADDLER_UPSTREAM_API_KEY_FILE")]
    pub(crate) upstream_api_key_file: Option<PathBuf>,
    /// How many requests wait at most [default: 30].
    #[arg(long, value_name = "NUMBER", env = "PADDLER_MAX_REQUESTS")]
    pub(crate) max_requests: Option<u32>,
    /// How long one waits at most, such as 500ms, 10s or 2m; while no engine is ready yet, queue.max_wait_starting of the file
    /// (60s) [default: 10s].
    #[arg(long, value_name = "TIME", env = "PADDLER_MAX_WAIT")]
    pub(crate) max_wait: Option<String>,
    /// How often an upstream is asked how it is [default: 1s].
    #[arg(long, value_name = "TIME", env = "PADDLER_POLL_INTERVAL")]
    pub(crate) poll_interval: Option<String>,
    /// Pass on the paths that show or change the inside of an engine (/slots, /props, /metrics, loading of models).
    #[arg(long, env = "PADDLER_OPEN_ADMIN_PATHS", value_parser = BoolishValueParser::new())]
    pub(crate) open_admin_paths: bool,
    /// How long answers under way may take to end once the program is told to stop [default: 30s].
    #[arg(long, value_name = "TIME", env = "PADDLER_GRACE")]
    pub(crate) grace: Option<String>,
    /// A StatsD server, as HOST:PORT, that is told of slots and of requests that wait, over UDP.
    #[arg(long, value_name = "ADDRESS", env = "PADDLER_STATSD_ADDR")]
    pub(crate) statsd_addr: Option<String>,
    /// What stands before the names of those gauges [default: paddler].
    #[arg(long, value_name = "TEXT", env = "PADDLER_STATSD_PREFIX")]
    pub(crate) statsd_prefix: Option<String>,
    /// How often they are sent; a bare number is in milliseconds [default: 10s].
    #[arg(long, value_name = "TIME", env = "PADDLER_STATSD_REPORTING_INTERVAL")]
    pub(crate) statsd_reporting_interval: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineArg {
    /// Find out by asking.
    Auto,
    /// llama.cpp's llama-server.
    Llamacpp,
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// TensorRT-LLM's trtllm-serve.
    Trtllm,
    /// Triton Inference Server.
    Triton,
    /// Ollama.
    Ollama,
    /// Any other OpenAI-compatible endpoint.
    Openai,
    /// Anthropic's API, and what speaks as it does.
    Anthropic,
    /// Another Paddler, with upstreams of its own.
    Paddler,
}

impl EngineArg {
    /// The word as it stands in a config file.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Llamacpp => "llamacpp",
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Trtllm => "trtllm",
            Self::Triton => "triton",
            Self::Ollama => "ollama",
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
            Self::Paddler => "paddler",
        }
    }
}

/// Who may tell of engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AgentsArg {
    /// With a key; where there are no keys, programs of this machine, if management is on loopback.
    Auto,
    /// Whoever reaches the management listener, as with Paddler 1.x.
    Open,
    /// Nobody.
    Off,
}

impl AgentsArg {
    /// The word as it stands in a config file.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Open => "open",
            Self::Off => "off",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    /// The flags in the first column of the tables under a heading of the README.
    fn told(readme: &str, heading: &str) -> Vec<String> {
        let (_, section) = readme.split_once(heading).unwrap();
        let section = section.split("\n#").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `--"));
        rows.map(|row| row.split('`').next().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn the_flags_of_1_x_are_those_that_the_readme_tells() {
        let readme = include_str!("../README.md");
        for name in ["agent", "balancer"] {
            let command = Args::command();
            let command = command.find_subcommand(name).unwrap();
            let mut told = told(readme, &format!("### `paddler {name}`"));
            let exists = |flag: &&String| {
                command
                    .get_arguments()
                    .any(|arg| arg.get_long() == Some(flag.as_str()))
            };
            let missing: Vec<_> = told.iter().filter(|flag| !exists(flag)).collect();
            assert!(missing.is_empty(), "`paddler {name}` has no {missing:?}");
            told.sort();
            let old = command
                .get_arguments()
                .filter(|arg| arg.get_help_heading() == Some(old::HEADING));
            let untold: Vec<_> = old
                .filter_map(Arg::get_long)
                .filter(|flag| !told.iter().any(|told| told == flag))
                .collect();
            assert!(
                untold.is_empty(),
                "the README tells nothing of {untold:?} of `paddler {name}`"
            );
            assert!(told.len() > 5, "{told:?}");
        }
    }

    #[test]
    fn each_flag_has_the_variable_of_its_name() {
        for command in Args::command().get_subcommands() {
            // Those of Paddler 1.x had none.
            let is_new = |arg: &&Arg| !arg.is_positional() && arg.get_help_heading() != Some(old::HEADING);
            for arg in command.get_arguments().filter(is_new) {
                let flag = format!("--{}", arg.get_long().unwrap());
                let named = arg.get_env().map(|name| name.to_string_lossy().into_owned());
                assert_eq!(named, Some(variable(&flag)));
            }
        }
    }
}
