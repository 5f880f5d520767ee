//! What can be said to `paddler agent`?

use std::path::PathBuf;

use clap::Parser;

use super::{EngineArg, old};

/// The time between two looks at the engine, and between two words where nothing is new.
pub(crate) const LOOK: &str = "250ms";
pub(crate) const BEAT: &str = "1s";

pub(crate) const EXAMPLES: &str = "Flags come before the environment.

Examples:
  paddler agent --engine-url http://127.0.0.1:8080 --external-url http://10.0.0.3:8080 --balancer http://10.0.0.1:8081
  paddler agent --engine-url http://127.0.0.1:8080 --external-url http://gpu-1:8080 --name gpu-1 --token-file agent.key \\
    --balancer https://balancer-1:8081 --balancer https://balancer-2:8081 --balancer-ca ca.pem";

#[derive(Debug, Default, Parser)]
pub(crate) struct AgentArgs {
    /// Where the engine is asked how it is, from beside it.
    #[arg(
        long,
        value_name = "URL",
        env = "PADDLER_ENGINE_URL",
        required_unless_present = "local_llamacpp_addr"
    )]
    pub(crate) engine_url: Option<String>,
    /// Where balancers send requests to [default: the engine's URL].
    #[arg(long, value_name = "URL", env = "PADDLER_EXTERNAL_URL")]
    pub(crate) external_url: Option<String>,
    /// The management listener of a balancer. Repeat it for each.
    #[arg(
        long,
        value_name = "URL",
        env = "PADDLER_BALANCER",
        value_delimiter = ',',
        required_unless_present = "management_addr"
    )]
    pub(crate) balancer: Vec<String>,
    /// What the upstream is called, and stays when the agent is started again [default: the name, else host:port of the external URL].
    #[arg(long, value_name = "ID", env = "PADDLER_ID")]
    pub(crate) id: Option<String>,
    /// What people call it.
    #[arg(long, value_name = "NAME", env = "PADDLER_NAME")]
    pub(crate) name: Option<String>,
    /// What kind of server the engine is [default: auto].
    #[arg(long, value_enum, env = "PADDLER_ENGINE")]
    pub(crate) engine: Option<EngineArg>,
    /// A file with the key that the engine wants of the agent. Balancers are not told it.
    #[arg(long, value_name = "FILE", env = "PADDLER_ENGINE_API_KEY_FILE")]
    pub(crate) engine_api_key_file: Option<PathBuf>,
    /// A label of the upstream. Repeat it for each.
    #[arg(long, value_name = "NAME=VALUE", env = "PADDLER_LABEL", value_delimiter = ',')]
    pub(crate) label: Vec<String>,
    /// The most requests at once [default: its slots].
    #[arg(long, value_name = "NUMBER", env = "PADDLER_MAX_IN_FLIGHT")]
    pub(crate) max_in_flight: Option<u32>,
    /// A file with the key that the balancers want of agents.
    #[arg(long, value_name = "FILE", env = "PADDLER_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Whose certificates the balancers have, as PEM [default: the CAs that this machine trusts].
    #[arg(long, value_name = "FILE", env = "PADDLER_BALANCER_CA")]
    pub(crate) balancer_ca: Option<PathBuf>,
    /// Our certificate, as PEM, for balancers that want one.
    #[arg(long, value_name = "FILE", env = "PADDLER_CERTIFICATE", requires = "key")]
    pub(crate) certificate: Option<PathBuf>,
    /// Its private key.
    #[arg(long, value_name = "FILE", env = "PADDLER_KEY", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,
    /// How often the engine is asked [default: 250ms].
    #[arg(long, value_name = "TIME", env = "PADDLER_POLL_INTERVAL")]
    pub(crate) poll_interval: Option<String>,
    /// How often something is said where nothing is new; after three that are missing no more requests come [default: 1s].
    #[arg(long, value_name = "TIME", env = "PADDLER_HEARTBEAT")]
    pub(crate) heartbeat: Option<String>,
    #[command(flatten)]
    pub(crate) old: old::OfAgent,
}
