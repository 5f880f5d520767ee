//! What does it look like, on a machine without any engine?

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use paddler_core::config::{Config, Mode, UpstreamConfig};
use paddler_core::upstream::UpstreamSpec;
use paddler_engine::{Engine, EngineConfig};
use tokio::time::timeout;

use crate::Failure;
use crate::front::Front;
use crate::run::Gateway;
use crate::secrets;
use crate::settings::Loaded;
use crate::stop::Stops;

/// How long the engines may take until they are ready. They are in this process, so they take a moment.
const READY: Duration = Duration::from_secs(5);

/// Starts three simulated engines, two of which have the same model, and a gateway in front of them, and prints a request
/// to try.
pub(crate) async fn demo() -> Result<(), Failure> {
    let engines = [
        Engine::start(EngineConfig::llamacpp("small").seed(1)).await?,
        Engine::start(EngineConfig::llamacpp("small").seed(2)).await?,
        Engine::start(EngineConfig::vllm("large").seed(3)).await?,
    ];
    let free_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut config = Config::default_for(Mode::Gateway);
    config.listen = free_port;
    config.management = Some(free_port);
    for (number, engine) in (1..).zip(&engines) {
        let spec = UpstreamSpec::new(format!("engine-{number}"), engine.url())?;
        config.upstreams.push(UpstreamConfig::new(spec));
    }
    let stops = Stops::listen()?;
    let secrets = secrets::read(&config, &[]).map_err(|faults| faults.join("\n"))?;
    let loaded = Loaded {
        config,
        secrets,
        files: Vec::new(),
    };
    let gateway = Gateway::start(loaded, &Front::Clients).await?;
    if timeout(READY, gateway.all_ready()).await.is_err() {
        tracing::warn!("not every engine is ready yet");
    }
    let address = gateway.address()?;
    writeln!(
        io::stdout(),
        "A gateway in front of three engines: two have the model \"small\", one has \"large\". They are simulated: the words \
         mean nothing.\nTry:\n\
         curl -sS http://{address}/v1/chat/completions -H 'Content-Type: application/json' \
         -d '{{\"model\":\"small\",\"max_tokens\":16,\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'"
    )?;
    if let Some(management) = gateway.management()? {
        writeln!(
            io::stdout(),
            "What goes on: http://{management}/\nFigures: http://{management}/metrics"
        )?;
    }
    writeln!(
        io::stdout(),
        "RUST_LOG=debug tells why each request went where it went. Ctrl-C ends it."
    )?;
    gateway.serve(stops, None).await
}
